"""Algorithm 1: what the print says, line by line."""

from dataclasses import replace

import numpy as np
import pytest
from oracles import dense
from problems import RKHSProblem, fingerprint, play

import manyarms as ma
from manyarms.engine import sampled
from manyarms.engine.dictionary import inclusion_probability
from manyarms.errors import ObservationError, ParameterError

KERNEL = ma.kernels.RBF(0.1)


def dictionary(policy):
    """The arms of S, in index order."""
    belief = policy.belief
    return np.sort(belief.seen.keys[belief.dictionary])


def test_a_run_is_algorithm_one():
    """A naive implementation in the paper's order chooses the same from the same random numbers."""
    kernel = ma.kernels.Matern(0.3, 0.5)
    problem = RKHSProblem(kernel, n_arms=120, seed=1)
    policy = ma.BKB(
        problem.arms,
        kernel,
        regularization=0.5,
        rule=ma.Sampled(2.0),
        confidence=ma.Constant(2.0),
        seed=9,
    )
    rng = np.random.default_rng(9)
    beta = 2.0 * np.sqrt(0.5)
    x = int(rng.integers(120))  # line 1
    pulls, rewards, S = [], [], None
    for _ in range(60):
        assert policy.choose() == [x]
        y = problem.pull(np.array([x]))
        record = policy.observe(x, y)
        # lines 6-9 for x_{t+1}, with σ̃²_t
        seen = np.array(list(dict.fromkeys([*pulls, x])))
        counts = np.array([[*pulls, x].count(i) for i in seen])
        if S is None:
            variance = np.full(1, 2.0)
        else:
            variance = dense.sketched(
                kernel, problem.arms, S, pulls, np.array(rewards), 0.5, problem.arms[seen]
            )[1]
        p = np.minimum(1.0, 2.0 * variance * counts)
        draw = rng.random(len(seen)) < p
        S = seen[draw] if draw.any() else seen[[np.argmax(p)]]
        pulls.append(x)
        rewards.append(float(y[0]))
        np.testing.assert_array_equal(dictionary(policy), np.sort(S))
        np.testing.assert_array_equal(seen[record.entered], S)
        # lines 4-5
        mean, variance = dense.sketched(
            kernel, problem.arms, S, pulls, np.array(rewards), 0.5, problem.arms
        )
        np.testing.assert_allclose(policy.scores().mean, mean, atol=1e-6)
        np.testing.assert_allclose(policy.scores().variance, variance, rtol=1e-6)
        u = mean + beta * np.sqrt(variance)
        x = int(
            np.argmax(u >= u.max() * (1 - 1e-9))
        )  # far from the data scores tie within rounding
    assert len(S) < len(np.unique(pulls))


def test_the_dictionary_is_smaller_than_what_was_pulled_and_is_part_of_it():
    policy = ma.BKB(
        np.linspace(0, 1, 500)[:, None], KERNEL, regularization=1.0, rule=ma.Sampled(2.0)
    )
    rng = np.random.default_rng(0)
    for _ in range(20):
        policy.observe(rng.integers(500, size=50), rng.standard_normal(50))
    pulled = np.flatnonzero(policy.counts)
    assert set(policy.inducing) <= set(dictionary(policy)) <= set(pulled)
    assert len(dictionary(policy)) < 0.6 * len(pulled)
    assert (np.diff(policy.inducing) > 0).all()
    assert policy.guarantee == policy.evidence.guarantee == "resampled"


def test_linear_kernels_keep_as_many_inducing_arms_as_they_have_dimensions():
    arms = np.random.default_rng(0).standard_normal((200, 3))
    policy = ma.BKB(arms, ma.kernels.Linear(), regularization=1.0, rule=ma.Sampled(5.0))
    play(policy, lambda chosen: arms[chosen, 0] + np.random.default_rng(1).standard_normal(1), 60)
    policy.observe(np.arange(200), arms[:, 0])
    policy.observe(0, arms[0, 0])
    assert len(dictionary(policy)) > 3
    assert len(policy.inducing) == 3


def test_longer_horizon_redraws_with_a_larger_oversampling():
    rng = np.random.default_rng(0)
    policy = ma.BKB(
        np.linspace(0, 1, 400)[:, None], KERNEL, regularization=1.0, rule=ma.Sampled(1.0)
    )
    policy.observe(np.arange(400), rng.standard_normal(400))
    policy.redraw()
    small, information, beta = len(dictionary(policy)), policy.evidence.information, policy.beta
    belief = policy.belief
    expected = inclusion_probability(belief.variance, belief.seen.counts, 20.0).sum()
    policy.redraw(oversampling=20.0)
    assert policy.belief.rule == ma.Sampled(20.0)
    assert len(dictionary(policy)) > 3 * small
    assert len(dictionary(policy)) == pytest.approx(expected, abs=5 * np.sqrt(expected))
    assert policy.counts.sum() == 400
    assert (policy.evidence.information, policy.beta) == (information, beta)
    policy.redraw(ma.oversampling_for(0.5, 0.1, 10_000))
    assert len(dictionary(policy)) == 400  # Theorem 1's q̄ keeps them all
    exact = ma.GPUCB(policy.arms, KERNEL, regularization=1.0)
    exact.observe(np.arange(400), np.zeros(400))
    np.testing.assert_allclose(policy.scores().variance, exact.scores().variance, rtol=1e-9)


def test_redrawing_before_any_observation_only_sets_the_oversampling():
    policy = ma.BKB(np.zeros((3, 1)), KERNEL, rule=ma.Sampled())
    first = policy.choose()
    policy.redraw(7.0)
    assert policy.belief.rule.oversampling == 7.0
    assert policy.choose() == first


def test_wrong_settings_are_typed_errors():
    for wrong in (0.0, -1.0, float("nan"), "5", None, True, 10**400):
        with pytest.raises(ParameterError):
            ma.Sampled(oversampling=wrong)
    with pytest.raises(ParameterError):
        ma.Sampled(epsilon=1.0)
    policy = ma.BKB(np.arange(9.0)[:, None], KERNEL, rule=ma.Sampled())
    policy.observe([1, 2], [0.0, 1.0])
    before = fingerprint(policy)
    with pytest.raises(ParameterError):
        policy.redraw(-1.0)
    with pytest.raises(ObservationError):
        policy.observe(3, 1.7e308, noise=1e-3)
    assert fingerprint(policy) == before
    with pytest.raises(ParameterError, match="Sampled"):
        ma.BKB(np.arange(9.0)[:, None], KERNEL).redraw()
    with pytest.raises(ParameterError, match="Resampled"):
        ma.BKB(
            np.arange(9.0)[:, None], KERNEL, rule=ma.Sampled(), confidence=ma.Certified(1.0, 0.1)
        )


def test_a_batch_repeats_an_arm_only_when_nothing_else_is_worth_it():
    for rule in (ma.Inserted(), ma.Sampled()):
        policy = ma.BKB([[0.0], [1e-3]], ma.kernels.RBF(1.0), regularization=0.01, rule=rule)
        assert len(policy.choose(5)) == 5


def test_a_batch_from_an_unexplored_pool_holds_different_arms():
    """An arm that is supposed pulled enters S: outside of S it would keep its variance."""
    arms = np.arange(50.0)[:, None]
    policy = ma.BKB(arms, KERNEL, regularization=0.01, rule=ma.Sampled())
    policy.observe(0, 0.0)
    batch = policy.choose(8, pending=[3, 4])
    assert len(np.unique(batch)) == 8
    assert not np.isin(batch, [0, 3, 4]).any()
    scores = policy._scores.supposing(batch)
    known = ma.BKB(arms, KERNEL, regularization=0.01, rule=ma.Sampled(1e300))
    known.observe(np.append(batch, 0), np.zeros(9))
    np.testing.assert_allclose(scores.moments()[1], known.scores().variance, rtol=1e-9)
    np.testing.assert_array_equal(scores.moments()[0], policy.scores().mean)


def test_repeats_in_one_call_count_once_in_the_information():
    radius = ma.LogDet(1.0, 0.1)
    policies = [
        ma.BKB(np.linspace(0, 1, 9)[:, None], KERNEL, confidence=radius, rule=ma.Sampled())
        for _ in range(2)
    ]
    policies[0].observe(np.full(500, 3), np.zeros(500))
    for _ in range(500):
        policies[1].observe(3, 0.0)
    together, apart = (policy.evidence.information for policy in policies)
    assert np.log1p(500 / 0.01) <= together <= apart
    assert policies[0].evidence.n_observations == 500


def test_rows_by_value_are_the_arms_they_equal():
    rng = np.random.default_rng(0)
    arms = rng.random((60, 2))
    by_number, by_value = (
        ma.BKB(arms, KERNEL, regularization=0.1, rule=ma.Sampled(3.0)) for _ in range(2)
    )
    for _ in range(30):
        i = int(by_number.choose()[0])
        assert by_value.choose(arms=arms) == [i] or not by_value.evidence.n_observations
        y = rng.standard_normal(1)
        by_number.observe(i, y)
        by_value.observe(arms[[i]], y)
    np.testing.assert_array_equal(by_number.belief.dictionary, by_value.belief.dictionary)
    np.testing.assert_allclose(by_number.scores().variance, by_value.scores().variance)
    assert (by_value.belief.keys == -1).all()


def test_kept_kernel_columns_are_those_of_the_rows():
    """Scores that follow many draws equal scores made anew, and the columns kept are few."""
    problem = RKHSProblem(KERNEL, n_arms=2500, seed=3)
    policy = ma.BKB(problem.arms, KERNEL, regularization=0.3, rule=ma.Sampled(1.0), seed=3)
    for step in range(150):
        arms = policy.choose(1 + step % 3)
        policy.observe(arms, problem.pull(arms))
        if step % 30 == 29:
            mean, variance = policy._scores.moments()
            for found in (
                policy.belief.scores(policy._scores.arms).moments(),
                policy.belief.moments(*policy._scores.arms),
            ):
                np.testing.assert_allclose(found[0], mean, atol=1e-9)
                np.testing.assert_allclose(found[1], variance, rtol=1e-8)
    assert set(policy._scores.columns) == set(policy.belief.inducing.tolist())


def test_scores_do_not_depend_on_whether_columns_are_kept(monkeypatch):
    problem = RKHSProblem(KERNEL, n_arms=2500, seed=3)
    arms = problem.arms.astype(np.float32)
    made = [ma.BKB(arms, KERNEL, regularization=0.3, rule=ma.Sampled(), seed=3) for _ in range(2)]
    keeps, streams = made
    for _ in range(40):
        i = keeps.choose()
        keeps.observe(i, problem.f[i])
        expected = keeps.scores()
        with monkeypatch.context() as patch:
            patch.setattr(sampled, "ROOM", 0)
            assert streams.choose() == i
            streams.observe(i, problem.f[i])
            found = streams.scores()
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-9)
    assert not streams._scores.columns
    assert keeps._scores.columns


def test_the_norm_is_doubled_until_the_data_do_not_refute_it():
    problem = RKHSProblem(KERNEL, n_arms=100, norm=20.0, noise=0.1)
    radius = ma.LogDet(0.5, 0.1, double=True)
    policy = ma.BKB(problem.arms, KERNEL, rule=ma.Sampled(), confidence=radius)
    play(policy, problem.pull, 60)
    assert 0.5 < policy.evidence.norm <= 40.0


def test_the_evidence_is_of_the_rows_as_they_are_projected_now():
    rng = np.random.default_rng(0)
    arms = rng.random((80, 1))
    policy = ma.BKB(arms, KERNEL, regularization=0.5, rule=ma.Sampled(0.5))
    pulls = rng.integers(80, size=150)
    policy.observe(pulls, np.zeros(150))
    policy.observe(pulls[:5], np.zeros(5), noise=0.5)
    n = policy.counts
    S = policy.inducing
    K = KERNEL(arms, arms)
    projected = K[:, S] @ np.linalg.solve(K[np.ix_(S, S)], K[S])
    root = np.sqrt(np.outer(n, n))
    evidence = policy.evidence
    assert len(S) < 40
    assert evidence.log_det == pytest.approx(
        np.linalg.slogdet(projected * root / 0.5 + np.eye(80))[1]
    )
    assert evidence.left_out == pytest.approx(n @ np.diag(K - projected) / 0.5)
    assert evidence.largest() == pytest.approx(
        np.linalg.eigvalsh((K - projected) * root / 0.5).max()
    )
    assert evidence.effective_dimension == pytest.approx(n @ policy.scores().variance)
    assert evidence.trace == pytest.approx(n.sum() / 0.5)
    radius = ma.Resampled(2.0, np.sqrt(0.5), 0.1)
    bias = (1 + np.sqrt(evidence.largest())) * np.sqrt(0.5) * 2.0
    expected = np.sqrt(0.5 * (evidence.log_det + evidence.left_out + 2 * np.log(10))) + bias
    assert radius(evidence) == pytest.approx(expected)
    assert radius(replace(evidence, largest=lambda: evidence.left_out)) > expected


@pytest.mark.slow
def test_its_own_radius_covers_f_whatever_the_oversampling():
    covered = 0
    for seed in range(40):
        q = (0.1, 1.0, 5.0)[seed % 3]
        problem = RKHSProblem(KERNEL, n_arms=100, noise=0.3, seed=seed)
        radius = ma.Resampled(1.0, 0.3, 0.1)
        policy = ma.BKB(
            problem.arms,
            KERNEL,
            regularization=0.09,
            rule=ma.Sampled(q),
            confidence=radius,
            seed=seed,
        )
        inside = True
        for _ in range(50):
            arms = policy.choose()
            policy.observe(arms, problem.pull(arms))
            mean, variance, _ = policy.scores()
            inside &= bool((np.abs(problem.f - mean) <= policy.beta * np.sqrt(variance)).all())
        covered += inside
    assert covered >= 38
