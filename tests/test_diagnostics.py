"""The paper's quantities against their definitions and the inequalities between them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import dense
from problems import RKHSProblem, play

import manyarms as ma
from manyarms import diagnostics
from manyarms.errors import ParameterError, StateError

KERNEL = ma.kernels.RBF(0.2)
ROWS = np.random.default_rng(0).random((20, 1))


def test_effective_dimension_is_the_sum_of_the_leverage_scores():
    expected = dense.leverage_scores(KERNEL(ROWS, ROWS), 0.3).sum()
    assert diagnostics.effective_dimension(ROWS, KERNEL, 0.3) == pytest.approx(expected)


def test_counts_stand_for_repeated_rows():
    counts = np.random.default_rng(1).integers(1, 6, 20)
    repeated = np.repeat(ROWS, counts, axis=0)
    for measure in (diagnostics.effective_dimension, diagnostics.information_gain):
        assert measure(ROWS, KERNEL, 0.3, counts) == pytest.approx(measure(repeated, KERNEL, 0.3))


@pytest.mark.parametrize(
    "diagnose",
    [
        lambda: diagnostics.effective_dimension(ROWS, KERNEL, 0.3, [1.0, 2.0]),
        lambda: diagnostics.effective_dimension(ROWS, KERNEL, 0.3, np.full(20, -1.0)),
        lambda: diagnostics.effective_dimension(ROWS, KERNEL, -1.0),
        lambda: diagnostics.information_gain(ROWS, KERNEL, 0.0),
        lambda: diagnostics.dictionary_size_bound(0.5, -5.0, 3.0, 1.0, 0.1),
        lambda: diagnostics.dictionary_size_bound(0.5, 5.0, 3.0, 1.0, 0.0),
        lambda: diagnostics.regret_bound(ma.Constant(2.0), 10, 3.0, 1.0, 0.1),
        lambda: diagnostics.regret_bound(ma.Theory(1.0, 0.1, double=True), 10, 3.0, 1.0, 0.1),
        lambda: diagnostics.regret_bound(ma.Theory(1.0, 0.1), 10, 3.0, 0.0, 0.1),
        lambda: diagnostics.Sandwich(1.0, 1.0).holds(1.0),
        lambda: diagnostics.sketch_accuracy(ma.GPUCB(ROWS, KERNEL)),
    ],
)
def test_wrong_arguments_are_typed_errors(diagnose):
    with pytest.raises(ParameterError):
        diagnose()


def test_information_gain_is_half_a_log_determinant():
    K = KERNEL(ROWS, ROWS)
    assert diagnostics.information_gain(ROWS, KERNEL, 0.3) == pytest.approx(
        np.linalg.slogdet(K / 0.3 + np.eye(20))[1] / 2
    )


@pytest.mark.slow
@given(st.lists(st.integers(0, 19), min_size=1, max_size=25), st.sampled_from([1e-3, 0.1, 10.0]))
def test_the_chain_of_inequalities(pulls, regularization):
    """d_eff ≤ Σσ_t²(x_t) ≤ log det(K/λ + I) and σ_t²(x_t)(1 + κ²/λ) ≥ σ²_{t−1}(x_t) ≥ σ_t²(x_t)."""
    policy = ma.GPUCB(ROWS, KERNEL, regularization=regularization)
    total = 0.0
    for arm in pulls:
        before = policy.scores().variance[arm]
        policy.observe(arm, 0.0)
        after = policy.scores().variance[arm]
        assert after * (1 + 1 / regularization) >= before * (1 - 1e-9)
        assert before >= after * (1 - 1e-9)
        total += after
    d_eff = diagnostics.effective_dimension(ROWS[pulls], KERNEL, regularization)
    assert policy.effective_dimension == pytest.approx(d_eff, rel=1e-6)
    assert d_eff <= total * (1 + 1e-9)
    assert total <= 2 * diagnostics.information_gain(ROWS[pulls], KERNEL, regularization) * (
        1 + 1e-9
    )


@pytest.fixture
def sketched():
    problem = RKHSProblem(KERNEL, n_arms=150, seed=5)
    policy = ma.BKB(problem.arms, KERNEL, regularization=0.5, rule=ma.Sampled(1.0), seed=5)
    play(policy, problem.pull, 80)
    return policy


def test_sketched_effective_dimension_is_close_to_the_exact_one(sketched):
    sketched.redraw(5.0)
    sketched.redraw(5.0)
    exact = diagnostics.effective_dimension(sketched.arms, KERNEL, 0.5, sketched.counts)
    assert exact / 3 <= sketched.effective_dimension <= 3 * exact


def test_sandwich_compares_with_the_exact_variances(sketched):
    exact = ma.GPUCB(sketched.arms, KERNEL, regularization=0.5)
    exact.observe(np.repeat(np.arange(150), sketched.counts.astype(int)), np.zeros(80))
    ratio = sketched.scores().variance / exact.scores().variance
    found = diagnostics.sandwich(sketched)
    assert found == pytest.approx((ratio.min(), ratio.max()), rel=1e-6)
    assert found.holds(0.999)
    assert not found.holds(1e-9)


@pytest.mark.parametrize("rule", [ma.Inserted(0.1), ma.Sampled(5.0)])
def test_sandwich_compares_with_everything_observed(rule):
    """Repair 4: a table of past rewards told at once counts as all other observations do."""
    rng = np.random.default_rng(0)
    policy = ma.BKB(np.linspace(0, 1, 400)[:, None], KERNEL, regularization=0.1, rule=rule)
    policy.observe(rng.integers(400, size=1500), rng.standard_normal(1500))
    policy.observe([3, 5], [0.0, 1.0], noise=0.1)
    low, high = diagnostics.sandwich(policy)
    _, _, theta = diagnostics.sketch_accuracy(policy)
    assert 1 / (1 + theta) <= low * (1 + 1e-6)
    assert high <= (1 + theta) * (1 + 1e-6)
    assert 0.6 < low <= high < 1.7


def test_rows_that_are_not_kept_cannot_be_compared_with():
    policy = ma.BKB(ROWS, KERNEL)
    policy.observe(ROWS[:3] + 0.01, np.zeros(3))
    assert diagnostics.sketch_accuracy(policy).eta >= 0
    with pytest.raises(StateError, match="by value"):
        diagnostics.sandwich(policy)
    drawn = ma.BKB(ROWS, KERNEL, rule=ma.Sampled(5.0))
    drawn.observe(ROWS[:3] + 0.01, np.zeros(3))
    assert diagnostics.sandwich(drawn).holds(0.5)


def test_accuracy_without_epsilon_bounds_every_variance(sketched):
    """η and θ hold whatever the dictionary, also for the poor ones of q̄ = 1."""
    checked = 0
    for oversampling in (0.05, 0.3, 1.0, 5.0):
        for _ in range(5):
            sketched.redraw(oversampling)
            eta, eta_bound, theta = diagnostics.sketch_accuracy(sketched)
            low, high = diagnostics.sandwich(sketched)
            assert 0 <= eta <= eta_bound * (1 + 1e-9) + 1e-9
            assert 1 / (1 + theta) <= low * (1 + 1e-6)
            assert high <= (1 + theta) * (1 + 1e-6)
            checked += eta > 0.1
    assert checked >= 5
    sketched.redraw(1e300)
    assert diagnostics.sketch_accuracy(sketched).eta < 1e-9


def test_nothing_to_diagnose_is_a_typed_error():
    policy = ma.BKB(ROWS, KERNEL)
    for diagnose in (diagnostics.sandwich, diagnostics.sketch_accuracy):
        with pytest.raises(StateError):
            diagnose(policy)


def test_sandwich_where_nothing_varies():
    policy = ma.BKB(np.zeros((3, 1)), ma.kernels.Linear())
    policy.observe(0, 1.0)
    assert diagnostics.sandwich(policy) == (1.0, 1.0)


def test_size_and_regret_bounds():
    assert diagnostics.dictionary_size_bound(0.5, 5.0, 13.0, 1.0, 0.25) == pytest.approx(
        3 * 5 * 3 * 5 * 13
    )
    theory = ma.Theory(norm=2.0, noise=0.1, epsilon=0.5, delta=0.1)
    ratio = 1.0 / 0.01
    spread = (1 + np.log1p(ratio * 100)) * 7.0
    beta = 0.1 * np.sqrt(9 * spread + 2 * np.log(20)) + (1 + np.sqrt(2)) * 0.1 * 2.0
    expected = 4.0 + 2 * beta * np.sqrt(3 * 100 * ratio / np.log1p(ratio) * spread)
    assert diagnostics.regret_bound(theory, 100, 7.0, 1.0, 0.01) == pytest.approx(expected)
    with pytest.raises(ParameterError):
        diagnostics.regret_bound(theory, 0, 7.0, 1.0, 0.01)


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
@pytest.mark.parametrize("regularization", [0.25, 100.0])
@pytest.mark.parametrize("noise", [1e-6, 0.5])
def test_the_regret_bound_is_above_what_a_run_adds_up(epsilon, regularization, noise):
    """2Σβ̃_tσ̃_t(x_{t+1}) of a run."""
    horizon = 60
    norm = 1.0
    problem = RKHSProblem(KERNEL, n_arms=50, norm=norm, noise=noise)
    theory = ma.Theory(norm, noise, epsilon=epsilon, delta=0.1)
    policy = ma.BKB(
        problem.arms,
        KERNEL,
        regularization=regularization,
        noise=noise,
        rule=ma.Sampled(ma.oversampling_for(epsilon, 0.05, horizon)),
        confidence=theory,
    )
    added = 0.0
    for _ in range(horizon):
        (arm,) = policy.choose()
        added += 2 * policy.beta * np.sqrt(policy.scores().variance[arm])
        policy.observe(arm, problem.pull([arm])[0])
    pulled = policy.counts > 0
    d_eff = diagnostics.effective_dimension(
        problem.arms[pulled], KERNEL, regularization, policy.counts[pulled]
    )
    assert added <= diagnostics.regret_bound(theory, horizon, d_eff, 1.0, regularization)


def test_regrets():
    values = [1.0, 3.0, 2.0]
    np.testing.assert_allclose(diagnostics.cumulative_regret(values, 4.0), [3.0, 4.0, 6.0])
    np.testing.assert_allclose(diagnostics.simple_regret(values, 4.0), [3.0, 1.0, 1.0])
    np.testing.assert_allclose(diagnostics.random_iterate_regret(values, 4.0), [3.0, 2.0, 2.0])
    draws = np.random.default_rng(0).choice(values, 100_000)
    assert 4.0 - draws.mean() == pytest.approx(2.0, abs=0.01)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_what_is_beyond_float64_is_refused():
    for size, counts in ((1e160, None), (1e100, [1e308, 1e308])):
        with pytest.raises(ma.errors.NumericalError):
            diagnostics.effective_dimension(size * np.eye(2), ma.kernels.Linear(), 0.1, counts)
