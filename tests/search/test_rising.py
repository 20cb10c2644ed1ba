"""Expected improvement by bounds chooses the arms of full scoring; the bounds hold."""

import numpy as np
import pytest
from test_search import DENSE, HARD, LISTED, TUNINGS, problem

import manyarms as ma
from manyarms.baselines.improvement import Improvement
from manyarms.kernels import RBF
from manyarms.search.scores import Upper, best_of
from manyarms.search.table import FEW
from manyarms.search.tuning import Tuning


def full(policy, barred=None):
    """The arm of largest expected improvement by scoring all, ties as everywhere."""
    mean, variance, _ = policy.scores()
    acquisition = Improvement(float(mean[policy.log.pulled].max()), policy.beta)
    return best_of(*acquisition(mean, np.sqrt(variance)), barred)


@pytest.mark.slow
@pytest.mark.parametrize("radius", [1.0, 3.0])
@pytest.mark.parametrize("case", HARD)
def test_dense_listed_and_full_choose_the_same_arm(case, radius):
    given_ = dict(HARD[case])
    n, d, kernel = given_.pop("n"), given_.pop("d"), given_.pop("kernel")
    regularization = given_.pop("regularization")
    X, f, _ = problem(n, d, kernel, 3, **given_)
    options = {
        "regularization": regularization,
        "confidence": ma.Constant(radius),
        "seed": 1,
    }
    made = [ma.baselines.SketchEI(X, kernel, tuning=tuning, **options) for tuning in TUNINGS]
    rng = np.random.default_rng(5)
    for step in range(120):
        exclude = rng.integers(n, size=5) if step % 7 == 3 else ()
        chosen = [int(policy.choose(exclude=exclude)[0]) for policy in made]
        if step:
            barred = None
            if len(exclude):
                barred = np.zeros(n, dtype=bool)
                barred[exclude] = True
            chosen.append(full(made[0], barred))
        assert len(set(chosen)) == 1, f"step {step}: {chosen}"
        arms = made[0].choose(3) if step % 11 == 5 else np.array(chosen[:1])
        rewards = f[arms] + np.sqrt(regularization) * rng.standard_normal(len(arms))
        for policy in made:
            if step % 11 == 5:
                np.testing.assert_array_equal(policy.choose(3), arms)
            policy.observe(arms, rewards)
        if step % 13 == 6:
            pending = rng.integers(n, size=3)
            batches = [policy.choose(8, pending=pending).tolist() for policy in made]
            assert all(batch == batches[0] for batch in batches)


def test_most_steps_at_many_arms_look_at_a_short_list_only():
    X, f, _ = problem(30_000, 3, RBF(0.4), 0)
    policy = ma.baselines.SketchEI(X, RBF(0.4), tuning=Tuning(shortlist=256, rough=0, quick=0))
    rng = np.random.default_rng(0)
    for step in range(100):
        arms = policy.choose()
        if step % 9 == 5:
            assert int(arms[0]) == full(policy)
        policy.observe(arms, f[arms] + 0.1 * rng.standard_normal(1))
    assert policy.stats.counts["bounds"] < 75


def test_shards_choose_the_same_arms():
    X, f, _ = problem(400, 2, RBF(0.15), 2, duplicates=100)
    with ma.cluster.Sharded(X, 3, in_process=True) as rows:
        divided = ma.baselines.SketchEI(rows, RBF(0.15), tuning=LISTED)
        whole = ma.baselines.SketchEI(X, RBF(0.15), tuning=DENSE)
        for step in range(30):
            arms = whole.choose(1 + step % 3)
            np.testing.assert_array_equal(divided.choose(1 + step % 3), arms)
            for policy in (divided, whole):
                policy.observe(arms, f[arms])


def test_many_rows_that_are_offered_are_bounded_first():
    rng = np.random.default_rng(3)
    policy = ma.baselines.SketchEI(None, RBF(0.6), n_features=4, rule=ma.Inserted(most=20))
    seen = rng.random((60, 4))
    policy.observe(seen, np.sin(5 * seen[:, 0]) + seen[:, 2])
    X = rng.random((3 * FEW, 4))
    diag = np.ones(len(X))
    waiting = rng.random((2, 4))
    belief = policy.belief.supposing(waiting, np.ones(2)).after
    barred = np.zeros(len(X), dtype=bool)
    barred[policy.choose(3, arms=X)] = True
    expected = []
    for _ in range(6):
        mean, variance = belief.moments(X, diag)
        values = Improvement(float(mean.max()), policy.beta)(mean, np.sqrt(variance))
        expected.append(best_of(*values, barred))
        belief = belief.supposing(X[expected[-1:]], np.ones(1)).after
    found = policy.choose(6, arms=X, pending=waiting, exclude=np.flatnonzero(barred))
    assert found.tolist() == expected


@pytest.mark.parametrize("acquisition", [Upper(2.0), Improvement(0.5, 0.3), Improvement(-2.0, 4.0)])
def test_an_arm_that_reaches_a_value_has_the_mean_that_is_needed(acquisition):
    rng = np.random.default_rng(0)
    deviation = np.concatenate([10.0 ** rng.uniform(-3, 2, 2000), np.zeros(5)])
    mean = 10 * rng.standard_normal(2005)
    bound, _ = acquisition(mean, deviation)
    for value in (*np.quantile(bound[np.isfinite(bound)], [0.0, 0.1, 0.5, 0.9, 1.0]), -np.inf):
        reaches = bound >= value
        need = acquisition.needed(value, deviation)
        assert (mean[reaches] >= need[reaches] - 1e-12 * np.abs(need[reaches])).all()
        # Few others have it.
        assert (mean[~reaches] < need[~reaches]).mean() > 0.9 if (~reaches).any() else True


@pytest.mark.parametrize("tuning", TUNINGS, ids=["dense", "listed", "short"])
def test_the_largest_mean_of_the_pulled_arms_is_found_without_scoring_all(tuning):
    X, f, _ = problem(300, 2, RBF(0.15), 6)
    policy = ma.BKB(X, RBF(0.15), tuning=tuning, seed=1)
    rng = np.random.default_rng(2)
    for step in range(60):
        arms = rng.integers(300, size=40) if step == 20 else policy.choose(1 + step % 4)
        policy.observe(arms, f[arms] + 0.3 * rng.standard_normal(len(arms)))
        scores = policy._scores
        mean, _ = scores.moments()
        expected = pytest.approx(mean[policy.log.pulled].max(), rel=1e-10)
        assert scores.means(policy.log.pulled)[0].max() == expected
        assert scores.supposing(np.array([3])).means(policy.log.pulled)[0].max() == expected
