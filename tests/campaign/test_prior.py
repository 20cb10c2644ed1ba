"""Results of another table as a prior: what they make one expect is a feature, trusted as far as it
helps."""

import numpy as np
import polars as pl
import pytest

import manyarms as ma
from manyarms.campaign.fitting import Mixed
from manyarms.errors import ArmsError, ObservationError, ParameterError

N = 300
LEVELS = ["a", "b", "c"]


def table(seed=0, n=N):
    """Rows of two columns."""
    rng = np.random.default_rng(seed)
    return pl.DataFrame({"x": rng.random(n), "base": rng.choice(LEVELS, n)})


def f(frame):
    """What comes out in the other table; in the one that is searched, 3 + 2f."""
    return np.sin(5 * frame["x"].to_numpy()) + (frame["base"] == "b").to_numpy()


def source(n=60, seed=1, sign=1.0):
    frame = table(seed, n)
    return frame, sign * f(frame)


def play(optimizer, frame, steps, sign=1.0):
    """Regrets of so many steps."""
    values = f(frame)
    regrets = []
    for _ in range(steps):
        (i,) = optimizer.ask()
        optimizer.tell(i, sign * (3 + 2 * float(values[i])))
        regrets.append(values.max() - values[i])
    return np.array(regrets)


def trust(optimizer):
    """The variance that was learned of the weight of the prior."""
    return float(np.exp(optimizer._state.model.fitted.theta[-1]))


def told(prior, n=40, **options):
    """An optimizer with results of random rows."""
    frame = table()
    optimizer = ma.Optimizer(frame, prior=prior, **options)
    rows = np.random.default_rng(5).choice(N, n, replace=False)
    optimizer.tell(rows, 3 + 2 * f(frame)[rows])
    return optimizer


def test_first_suggestions_are_good():
    frame = table()
    with_it = play(ma.Optimizer(frame, prior=source()), frame, 8)
    assert with_it[0] < 0.1
    assert with_it[:4].mean() < 0.3
    without = play(ma.Optimizer(frame), frame, 8)
    assert with_it.mean() < 0.5 * without.mean()


def test_it_learns_how_far_to_trust():
    frame, values = source()
    wrong = np.random.default_rng(2).normal(size=N)
    helpful = told((frame, values))
    # A clear function that has nothing to do with the other.
    other = told((frame, np.cos(40 * frame["x"].to_numpy())))
    assert trust(other) < 0.5 * trust(helpful)
    # One that is nothing but noise is expected to say little in the first place.
    noise = ma.Optimizer(table(), prior=(table(), wrong))
    assert np.std(noise.pool.expected) < 0.5 * np.std(helpful.pool.expected)


def test_with_a_prior_predictions_are_better():
    values = f(table())
    good = np.flatnonzero(values > np.median(values))  # of others a prior says only that
    errors = {}
    for name, prior in {"with": source(), "without": None}.items():
        predicted = told(prior, n=8).predict(good)
        errors[name] = np.abs(predicted.mean - 3 - 2 * values[good]).mean()
    assert errors["with"] < 0.8 * errors["without"]


def test_searches_are_priors():
    """An optimizer of either direction and a table say the same."""
    frame, values = source()
    up = ma.Optimizer(frame)
    up.tell(list(range(60)), values)
    up.tell(0, ma.FAILED)
    down = ma.Optimizer(frame, direction="minimize")
    down.tell(list(range(60)), -values)
    expected = ma.Optimizer(table(), prior=(frame, values)).pool.X
    for prior in (up, down, (frame.to_dicts(), [*values])):
        np.testing.assert_allclose(ma.Optimizer(table(), prior=prior).pool.X, expected)
    minimised = ma.Optimizer(table(), prior=(frame, -values), direction="minimize")
    np.testing.assert_allclose(minimised.pool.X, expected)


def test_candidates_added_and_rows_predicted_have_an_expectation():
    optimizer = told(source())
    more = table(7, 5)
    before = optimizer.predict_rows(more)
    X = optimizer.pool.X
    optimizer.add(more)
    grown = optimizer.pool.X
    assert grown.shape == (N + 5, X.shape[1])
    np.testing.assert_array_equal(grown[:N], X)
    after = optimizer.predict(list(range(N, N + 5)))
    np.testing.assert_allclose(after.mean, before.mean)
    # Those that are there are the same arms.
    optimizer.add(table()[:3])
    assert len(optimizer.pool.X) == N + 5


def test_levels_that_only_the_prior_has():
    frame, values = source()
    values = values + np.where(frame["x"].to_numpy() > 0.5, 5.0, 0.0)
    swapped = frame.with_columns(
        base=pl.when(pl.col("x") > 0.5).then(pl.lit("z")).otherwise(pl.col("base"))
    )
    optimizer = ma.Optimizer(table(), prior=(swapped, values))
    optimizer.add(pl.DataFrame({"x": [0.8, 0.8], "base": ["z", "new"]}))
    known, unknown = optimizer.pool.expected[-2:]
    assert known > unknown + 0.5


def test_answers_know_of_it():
    optimizer = told(source())
    assert set(optimizer.importance) == {"x", "base"}
    effects = optimizer.effects()
    assert set(effects) == {"x", "base"}
    by_level = {effect.level: effect.mean for effect in effects["base"]}
    assert by_level["b"] - by_level["a"] == pytest.approx(2, abs=0.5)
    across = optimizer.slice("x", "base")
    assert across.mean.shape == (3, len(across.x_levels))
    assert optimizer.left_out().n_inside >= 36
    assert "prior" not in optimizer.pool.columns


@pytest.mark.parametrize(
    ("space", "options", "error"),
    [
        (table(), {"kernel": ma.kernels.RBF(0.3), "noise": 0.1}, ParameterError),
        (table(), {"kernel": "linear"}, ParameterError),
        (table(), {"kernel": "no such"}, ParameterError),
        (ma.Optimizer(table(), prior=source()).pool, {}, ParameterError),
        (
            ma.Optimizer(table(), prior=source()).pool,
            {"prior": None, "kernel": "linear"},
            ParameterError,
        ),
        (ma.Box([(0, 1)]), {}, ParameterError),
        (table(), {"prior": "other.csv"}, ParameterError),
        (table(), {"prior": (table(), [1.0])}, ParameterError),
        (table(), {"prior": (table(), [np.nan] * N)}, ObservationError),
        (table(), {"prior": (table()[:2], [ma.FAILED] * 2)}, ParameterError),
        (table(), {"prior": (table().drop("base"), [1.0] * N)}, ArmsError),
        (table(), {"prior": ma.Optimizer(ma.Box([(0, 1)]))}, ParameterError),
        (table(), {"prior": ma.Optimizer(table())}, ParameterError),
    ],
)
def test_refusals(space, options, error):
    with pytest.raises(error):
        ma.Optimizer(space, **{"prior": source(), **options})


def test_gradient_of_the_likelihood():
    """Also by the weight of the prior; and the kernel is that of the fit."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=9), rng.random((9, 2)), rng.integers(3, size=9)])
    shape = Mixed(2, 1, 0, own=True, expected=True)
    theta = np.array([-0.5, 0.2, 0.3, -2.0, -0.7])
    assert len(shape.prior[0]) == len(shape.bounds) == len(theta)
    gram = shape.gram(X)
    K, gradient = gram(theta)
    np.testing.assert_allclose(K, shape.kernel(theta)(X, X))
    G = rng.normal(size=(9, 9))
    G = G + G.T
    for i, step in enumerate(1e-6 * np.eye(5)):
        slope = (np.vdot(G, gram(theta + step)[0]) - np.vdot(G, gram(theta - step)[0])) / 2e-6
        assert gradient(G)[i] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_a_study_keeps_it(tmp_path):
    frame = table()
    path = tmp_path / "study.db"
    optimizer = ma.Optimizer(frame, prior=source())
    with ma.Study.create(path, frame, prior=source()) as study:
        study.ask()
        assert study.leases[0].reason == "good by the prior"
        study.release(study.pending)
        play(study, frame, 6)
        play(optimizer, frame, 6)
        assert [trial.id for trial in study.history] == [trial.id for trial in optimizer.history]
        study.add(table(7, 5))
    optimizer.add(table(7, 5))
    with ma.Study.open(path) as study:
        np.testing.assert_array_equal(study.pool.X, optimizer.pool.X)
        assert study.ask() == optimizer.ask()
        assert study.verify()
        study.retype({"x": "log"})
        retyped = study.pool.X
        assert study.best().measured.id == optimizer.best().measured.id
    with ma.Study.open(path) as study:
        np.testing.assert_array_equal(study.pool.X, retyped)


def test_a_study_is_a_prior(tmp_path):
    frame, values = source()
    with ma.Study.create(tmp_path / "first.db", frame) as first:
        first.tell(list(range(60)), values)
        second = ma.Optimizer(table(), prior=first)
    expected = ma.Optimizer(table(), prior=(frame, values))
    np.testing.assert_allclose(second.pool.X, expected.pool.X)
