"""What the columns do and how well results are predicted, against the posterior computed anew."""

from itertools import product

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import ParameterError, StateError
from manyarms.kernels import RBF

KERNEL = RBF(0.7)
GRID = [{"base": b, "heat": h, "dose": d} for b, h, d in product("abc", (20, 50, 80, 110), (1, 2))]
ABOVE = {"a": 0.0, "b": 6.0, "c": -4.0}


def truth(row):
    return 50 + ABOVE[row["base"]] + row["heat"] / 10


def grid(direction="maximize", n=200, **options):
    """Every recipe told several times, with little noise."""
    made = ma.Optimizer(ma.Pool.from_dicts(GRID), direction=direction, **options)
    rng = np.random.default_rng(0)
    ids = rng.integers(len(GRID), size=n)
    made.tell(ids, [truth(GRID[i]) + 0.5 * rng.standard_normal() for i in ids])
    return made


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("told", [None, 0.3])
def test_left_out_is_the_posterior_without_the_results_of_one_arm(direction, told):
    rng = np.random.default_rng(1)
    pool = ma.Pool.from_array(rng.random((30, 2)))
    X = pool.X[pool.arm_of]  # scaled
    made = ma.Optimizer(pool, direction=direction, kernel=KERNEL, noise=0.1)
    ids = rng.integers(12, size=25)
    values = rng.standard_normal(25)
    noise = [told if i % 3 == 0 else None for i in range(25)]
    made.tell(ids, values, noise=None if told is None else noise)
    variance = np.array([0.1**2 if each is None or told is None else each**2 for each in noise])
    found = made.left_out(0.95)
    assert sorted(found.predicted.ids) == sorted(set(ids.tolist()))
    for at, id in enumerate(found.predicted.ids):
        kept = ids != id
        K = KERNEL(X[ids[kept]], X[ids[kept]]) + np.diag(variance[kept])
        cross = KERNEL(X[ids[kept]], X[[id]])
        mean = (cross.T @ np.linalg.solve(K, values[kept])).item()
        own = 1 / np.sum(1 / variance[~kept])
        spread = (1.0 + own - cross.T @ np.linalg.solve(K, cross)).item()
        mean_told = np.average(values[~kept], weights=1 / variance[~kept])
        assert found.predicted.mean[at] == pytest.approx(mean, abs=1e-9)
        assert found.predicted.std[at] == pytest.approx(np.sqrt(spread), rel=1e-9)
        assert found.predicted.high[at] == pytest.approx(
            mean + 1.959964 * np.sqrt(spread), rel=1e-6
        )
        assert found.predicted.low[at] == pytest.approx(mean - 1.959964 * np.sqrt(spread), rel=1e-6)
        assert found.measured[at] == pytest.approx(mean_told)
        assert found.n_results[at] == (~kept).sum()
    inside = (found.predicted.low <= found.measured) & (found.measured <= found.predicted.high)
    assert found.n_inside == inside.sum()


def test_left_out_respects_bounds():
    found = grid(bounds=(45.0, 60.0)).left_out(0.999).predicted
    assert found.low.min() >= 45
    assert found.high.max() <= 60


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_effects_are_those_of_the_truth(direction):
    found = grid(direction).effects(0.99)
    assert list(found)[:2] == ["base", "heat"]  # the largest first
    for name, effects in found.items():
        levels = sorted({row[name] for row in GRID})
        assert [each.level for each in effects] == levels
        means = [np.mean([truth(row) for row in GRID if row[name] == level]) for level in levels]
        expected = means - np.mean(means)
        for each, true in zip(effects, expected, strict=True):
            assert each.mean == pytest.approx(true, abs=0.5)
            assert each.low <= true <= each.high
        assert sum(each.mean for each in effects) == pytest.approx(0, abs=1e-9)
        assert sum(each.n_results for each in effects) == 200


def test_the_interval_of_an_effect_is_that_of_the_posterior():
    X = np.array(list(product([0.0, 1.0], [0.0, 0.5, 1.0])))
    made = ma.Optimizer(ma.Pool.from_array(X, names=["p", "q"]), kernel=KERNEL, noise=0.2)
    made.tell([0, 1, 5], [1.0, 2.0, 0.0])
    told = X[[0, 1, 5]]
    S = KERNEL(told, told) + 0.04 * np.eye(3)
    cross = KERNEL(told, X)
    mean = cross.T @ np.linalg.solve(S, [1.0, 2.0, 0.0])
    covariance = KERNEL(X, X) - cross.T @ np.linalg.solve(S, cross)
    a = np.where(X[:, 0] == 1.0, 1 / 6, -1 / 6)  # half of (mean at p = 1 less mean at p = 0)
    effect = made.effects(0.95)["p"][1]
    assert effect.mean == pytest.approx(a @ mean, abs=1e-9)
    half = 1.959964 * np.sqrt(a @ covariance @ a)
    assert (effect.high - effect.low) / 2 == pytest.approx(half, rel=1e-6)


def test_a_slice_is_what_is_predicted_of_its_candidates():
    made = grid(bounds=(0, 100))
    found = made.slice("heat", "base")
    best = GRID[made.best().recommended.id]
    assert found.x_levels == [20, 50, 80, 110]
    assert found.y_levels == ["a", "b", "c"]
    for j, base in enumerate(found.y_levels):
        for i, heat in enumerate(found.x_levels):
            id = GRID.index({**best, "base": base, "heat": heat})
            assert found.mean[j, i] == pytest.approx(made.predict(id).mean[0])
    assert (found.x_levels[found.at[0]], found.y_levels[found.at[1]]) == (
        best["heat"],
        best["base"],
    )


def test_columns_with_many_values_are_looked_at_in_some():
    rng = np.random.default_rng(0)
    rows = [{"x": float(x), "amine": f"amine {i % 150}"} for i, x in enumerate(rng.random(600))]
    made = ma.Optimizer(ma.Pool.from_dicts(rows, columns={"amine": "categorical"}))
    made.tell([3, 3, 153, 7], [1.0, 1.1, 2.0, 3.0])
    found = made.effects()
    assert len(found["x"]) == 9
    assert len(found["amine"]) == 64
    assert {"amine 3", "amine 7"} <= {each.level for each in found["amine"]}
    assert made.slice("x", "amine").at[1] < 64


def test_a_box_has_the_points_known():
    made = ma.Optimizer(ma.Box(x=(0.0, 1.0), kind=["a", "b"]), seed=0)
    for _ in range(8):
        (point,) = made.ask()
        made.tell([point], [point["x"] + (point["kind"] == "a")])
    found = made.effects()
    assert {each.level for each in found["kind"]} == {"a", "b"}
    assert len(made.left_out().measured) == 8
    assert made.slice("x", "kind").mean.shape[0] == 2


def test_what_cannot_be_answered_is_said():
    made = ma.Optimizer(ma.Pool.from_dicts(GRID))
    for ask in (made.left_out, made.effects, lambda: made.slice("heat", "dose")):
        with pytest.raises(StateError, match="no value was told yet"):
            ask()
    made.tell(0, 1.0)
    with pytest.raises(ParameterError, match="got 'cold'"):
        made.slice("heat", "cold")
    with pytest.raises(ParameterError, match="twice"):
        made.slice("heat", "heat")


def test_a_study_answers_as_an_optimizer(folder):
    pool = ma.Pool.from_dicts(GRID)
    made = ma.Optimizer(pool)
    made.tell([0, 5, 9, 9], [1.0, 2.0, 3.0, 2.5])
    with ma.Study.create(folder / "s.db", pool) as study:
        study.tell([0, 5, 9, 9], [1.0, 2.0, 3.0, 2.5])
        assert study.effects() == made.effects()
        assert study.left_out().n_inside == made.left_out().n_inside
        np.testing.assert_array_equal(
            study.slice("heat", "dose").mean, made.slice("heat", "dose").mean
        )
