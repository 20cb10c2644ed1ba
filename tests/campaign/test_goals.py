"""To find or to earn; units that do not collapse; numbers that are names; intervals of the best."""

import numpy as np
import polars as pl
import pytest

import manyarms as ma
from manyarms.campaign.results import Results, Warp
from manyarms.kernels import RBF

RNG = np.random.default_rng(0)
X = RNG.random((400, 2))
F = np.sin(5 * X[:, 0]) + X[:, 1]


def run(optimizer, values, steps, noise=0.0, seed=0):
    """What was asked for."""
    rng = np.random.default_rng(seed)
    asked = []
    for _ in range(steps):
        (found,) = optimizer.ask()
        asked.append(int(found))
        optimizer.tell(found, values[int(found)] + noise * rng.standard_normal())
    return asked


def test_who_earns_tries_fewer_candidates_and_has_better_values_on_the_way():
    earned = run(ma.Optimizer(X, goal="earn", seed=1), F, 80)
    found = run(ma.Optimizer(X, goal="find", seed=1), F, 80)
    assert found == run(ma.Optimizer(X, seed=1), F, 80)  # the default
    assert len(set(earned)) < len(set(found))
    assert F[earned].mean() > F[found].mean()


def test_where_kernel_and_noise_are_given_the_goal_changes_nothing():
    given = {"kernel": RBF(0.3), "noise": 0.1, "seed": 1}
    asked = [run(ma.Optimizer(X, goal=goal, **given), F, 30) for goal in (None, "find", "earn")]
    assert asked[0] == asked[1] == asked[2]


@pytest.mark.parametrize("goal", ["win", 1, ["find"]])
def test_another_goal_is_an_error(goal):
    with pytest.raises(ma.errors.ParameterError, match="goal must be"):
        ma.Optimizer(X, goal=goal)


def test_a_study_keeps_its_goal(tmp_path):
    with ma.Study.create(
        str(tmp_path / "s.db"), ma.Pool.from_array(X), goal="earn", seed=1
    ) as made:
        run(made, F, 20)
    with ma.Study.open(str(tmp_path / "s.db")) as study:
        optimizer = ma.Optimizer(X, goal="earn", seed=1)
        run(optimizer, F, 20)
        assert study.ask(3) == [int(i) for i in optimizer.ask(3)]


def told(values):
    """Results of different candidates, in this order."""
    n = len(values)
    return Results.at_once(np.arange(n), np.asarray(values, dtype=float), np.full(n, np.nan))


def test_a_run_that_has_settled_keeps_its_unit():
    first = np.linspace(0, 1, 10)
    plateau = 1 + 1e-3 * RNG.standard_normal(90)
    results = told(np.concatenate([first, plateau]))
    alone = Warp.half_log(results.values, float(results.values.max()))
    floored = Warp.half_log(results.values, float(results.values.max()), results.spread)
    assert 1 / alone.slope < 0.01  # noise is the unit
    assert 1 / floored.slope > 0.1


def test_a_tail_of_bad_values_is_not_the_scale_of_the_others():
    usual = np.linspace(0, 1, 40)
    assert told(np.concatenate([usual, [-1e6]])).spread < 2 * told(usual).spread
    assert np.isfinite(told([1e100, -1e100, 0.0, 5e99]).spread)
    assert told([3.0, 3.0]).spread == 0


def methods(seed=0):
    """A table with numbers of methods: neighbours have nothing in common."""
    rng = np.random.default_rng(seed)
    names = {name: rng.integers(0, 8, 600) for name in ("method", "base")}
    worth = rng.standard_normal((2, 8))
    dose = rng.random(600)
    values = sum(each[at] for each, at in zip(worth, names.values(), strict=True)) + np.sin(
        3 * dose
    )
    return pl.DataFrame({**names, "dose": dose}), values


def test_numbers_that_are_names_are_told_from_numbers():
    errors = []
    for seed in range(5):
        frame, values = methods(seed)
        ordered = {"method": "ordered", "base": "ordered"}
        for columns in ({}, ordered):
            optimizer = ma.Optimizer(ma.Pool.from_frame(frame, columns=columns), seed=0)
            optimizer.tell(list(range(60)), values[:60])
            predicted = optimizer.predict(list(range(60, 600))).mean
            errors.append(np.abs(predicted - values[60:]).mean())
            assert set(optimizer.importance) == {"method", "base", "dose"}
    assert np.mean(errors[::2]) < 0.8 * np.mean(errors[1::2])


def test_few_whole_numbers_are_named_and_others_are_not():
    frame, _ = methods()
    frame = frame.with_columns(
        pair=pl.col("method") % 2, many=pl.int_range(600), half=pl.col("method") / 4
    )
    named = [each.name for each in ma.Pool.from_frame(frame).features if each.named]
    assert named == ["method", "base"]


def test_intervals_of_what_is_recommended_cover_luck():
    """Much noise and no repeats: intervals of the model alone hold in 45 of 100 cases."""
    inside = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = rng.random((300, 3))
        f = np.sin(4 * rows[:, 0]) + rows[:, 1] + 0.3 * rng.standard_normal(300)
        optimizer = ma.Optimizer(rows, seed=seed)
        some = rng.choice(300, 30, replace=False)
        optimizer.tell(some.tolist(), f[some] + 0.4 * rng.standard_normal(30))
        best = optimizer.best().recommended
        inside.append(best.low <= f[int(best.id)] <= best.high)
    assert np.mean(inside) >= 0.75


def test_repeats_tell_noise_from_what_a_candidate_has_of_its_own():
    optimizer = ma.Optimizer(X, seed=0)
    rng = np.random.default_rng(5)
    optimizer.tell(list(range(20)), F[:20] + 0.05 * rng.standard_normal(20))
    before = optimizer.predict([0])
    optimizer.tell([*range(1, 10)], F[1:10] + 0.05 * rng.standard_normal(9))
    after = optimizer.predict([0])
    assert after.high[0] - after.low[0] < before.high[0] - before.low[0]
