"""The recommendation example on a small made-up campaign whose click rates are known."""

import numpy as np
import polars as pl
import pytest
import recommend
from recommend import Log

pytestmark = pytest.mark.slow

N = 1000


def made_up(seed=0, n=N):
    """Four items; the people of either kind click on one of them, half of the time. One log is uniform, one prefers item 0."""
    rng = np.random.default_rng([seed, 11])  # not that of a learner
    items = pl.DataFrame(
        {
            "item_id": range(4),
            "item_feature_1": list("aabb"),
            "item_feature_2": ["x"] * 4,
            "item_feature_3": list("abab"),
        }
    )
    logs = []
    for chance in (np.full(4, 0.25), np.array([0.7, 0.1, 0.1, 0.1])):
        kind, shown = rng.integers(2, size=n), rng.choice(4, size=n, p=chance)
        clicks = (rng.random(n) < np.where(shown == 3 * kind, 0.5, 0.02)).astype(int)
        columns = {
            "item_id": shown,
            "position": np.ones(n, dtype=int),
            "click": clicks,
            "propensity_score": chance[shown],
        }
        people = {
            "user_feature_0": np.array(["u", "v"])[kind],
            **{f"user_feature_{j}": ["-"] * n for j in (1, 2, 3)},
        }
        logs.append(pl.DataFrame({**columns, **people}))
    return recommend.campaign(items, *logs)


@pytest.fixture
def data(monkeypatch):
    monkeypatch.setattr(recommend, "SPREAD", 0.3)
    monkeypatch.setattr(recommend, "NOISE", 0.4)
    return made_up()


def test_replay_and_off_policy_estimates_find_the_rates(data):
    seeing, blind, any_item = (
        recommend.replay(make(data), data.uniform) for make in recommend.LEARNERS.values()
    )
    assert 0.25 * N * 0.7 < any_item.rows < 0.25 * N * 1.3
    assert any_item.low < 0.14 < any_item.high
    assert seeing.rate > blind.high  # 0.5 against 0.26 at most
    learner = recommend.learned(recommend.Contextual(data), data.uniform, block=100)
    chance = (recommend.shown(learner, data.other) == data.other.items).astype(float)
    for estimate in recommend.off_policy(chance, data.other):
        assert estimate.low < 0.5 < estimate.high
        assert estimate.high - estimate.low < 0.4


def test_estimates_are_their_formulas():
    log = Log(
        np.zeros((4, 1)),
        np.arange(4),
        np.array([0.5, 0.25, 0.5, 0.5]),
        np.array([1.0, 1.0, 0.0, 0.0]),
    )
    ips, snips = recommend.off_policy(np.array([1.0, 0.5, 0.0, 1.0]), log)
    assert ips.rate == pytest.approx((2 + 2 + 0 + 0) / 4)
    assert snips.rate == pytest.approx(4 / 6)
    assert snips.rows == pytest.approx(36 / 12)
    assert all(
        np.isnan(estimate.rate) and estimate.high == 1
        for estimate in recommend.off_policy(np.zeros(4), log)
    )
    unclicked = recommend.off_policy(np.array([0.0, 0.0, 1.0, 1.0]), log)
    assert unclicked[0][:3] == (0, 0, 1)
    assert unclicked[1].rate == 0
    assert unclicked[1].high > 0.5
    assert recommend.wilson(0.1, 100) == (
        pytest.approx(0.0552, abs=1e-4),
        pytest.approx(0.1744, abs=1e-4),
    )  # Wilson 1927
    assert recommend.counted(0, 0).high == 1


def test_the_ips_of_uniform_choice_is_unbiased():
    """The mean of 40 estimates of 0.14, each within its own interval about 95 times in 100."""
    estimates = []
    for seed in range(40):
        log = made_up(seed, 400).other
        estimates.append(recommend.off_policy(np.full(400, 0.25), log))
    rates = np.array([[e.rate for e in pair] for pair in estimates])
    np.testing.assert_allclose(rates.mean(axis=0), 0.14, atol=0.02)
    assert np.mean([e.low < 0.14 < e.high for pair in estimates for e in pair]) > 0.85


def test_it_prints_what_can_be_said(data, monkeypatch, capsys):
    monkeypatch.setattr(recommend, "load", lambda name: data)
    recommend.main(["--campaign", "men"])
    printed = capsys.readouterr().out
    assert "4 items" in printed
    assert "contextual BKB, SNIPS" in printed
    assert "Better than uniform, by intervals that do not meet: contextual BKB" in printed
    same = made_up()._replace(uniform=made_up().uniform._replace(clicks=np.zeros(N)))
    assert (
        "too short to tell"
        in recommend.report(same._replace(other=same.other._replace(clicks=np.zeros(N))))[-1]
    )


def test_a_shop_is_served_in_two_stages():
    shop = recommend.Shop.drawn(3_000, 0)
    lines = recommend.served(shop, 300)
    late = {line.split("  ")[2].strip(): float(line.split()[-1]) for line in lines[-4:]}
    both, first = late["both stages"], late["first stage alone"]
    assert late["best that is left"] <= both < first < late["random item"]
    assert "3,000 items" in lines[0]
