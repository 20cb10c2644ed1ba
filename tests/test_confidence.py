"""Radii against their formulas, and the norm that is guessed and doubled."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.errors import ParameterError
from manyarms.sketch.confidence import updated_norm

KERNEL = ma.kernels.RBF(0.2)
SKETCH = ma.Evidence(
    n_arms=1000,
    regularization=0.04,
    exact=False,
    n_observations=50,
    trace=1250.0,
    effective_dimension=9.0,
    information=30.0,
    mean_norm=1.0,
)
EXACT = replace(SKETCH, exact=True)


def test_theory_is_theorem_two():
    radius = ma.Theory(norm=2.0, noise=0.3, epsilon=0.5, delta=0.1)
    bias = (1 + np.sqrt(2)) * np.sqrt(0.04) * 2.0
    expected = 0.3 * np.sqrt(2 * (3 * (1 + np.log(1251)) * 9 + np.log(2 / 0.1))) + bias
    assert radius(SKETCH) == pytest.approx(expected)
    assert radius(EXACT) == pytest.approx(0.3 * np.sqrt(2 * ((1 + np.log(1251)) * 9 + np.log(10))) + 0.2 * 2.0)


def test_a_stale_dictionary_widens_the_radius():
    stale = replace(SKETCH, staleness=1.8)
    bias = (1 + np.sqrt(2 + 0.8)) * np.sqrt(0.04) * 2.0
    expected = 0.3 * np.sqrt(2 * (3 * 1.8 * (1 + np.log(1251)) * 9 + np.log(2 / 0.1))) + bias
    assert ma.Theory(2.0, 0.3)(stale) == pytest.approx(expected)
    assert ma.LogDet(2.0, 0.3)(stale) == pytest.approx(0.3 * np.sqrt(30 + 2 * np.log(2 / 0.1)) + bias)


def test_logdet_is_theorem_two_before_its_last_step():
    radius = ma.LogDet(norm=2.0, noise=0.3, epsilon=0.5, delta=0.1)
    bias = (1 + np.sqrt(2)) * np.sqrt(0.04) * 2.0
    assert radius(SKETCH) == pytest.approx(0.3 * np.sqrt(30 + 2 * np.log(2 / 0.1)) + bias)
    assert radius(EXACT) == pytest.approx(0.3 * np.sqrt(30 + 2 * np.log(10)) + 0.2 * 2.0)


def test_bayes_and_constant():
    assert ma.Bayes(0.1)(SKETCH) == pytest.approx(0.2 * np.sqrt(2 * np.log(1000 * 50**2 * np.pi**2 / 0.6)))
    assert ma.Bayes(0.1)(replace(SKETCH, n_observations=0)) == pytest.approx(0.2 * np.sqrt(2 * np.log(1000 * np.pi**2 / 0.6)))
    assert ma.Constant(3.0)(SKETCH) == pytest.approx(0.6)
    assert ma.Growing(3.0, most=0.5)(SKETCH) == pytest.approx(0.1)
    assert ma.Growing(3.0)(SKETCH) == pytest.approx(0.6 * np.sqrt(np.log1p(SKETCH.n_observations)))


@pytest.mark.parametrize(
    "build",
    [
        lambda: ma.Theory(norm=0.0, noise=0.1),
        lambda: ma.Theory(norm=1.0, noise=-0.1),
        lambda: ma.Theory(norm=1.0, noise=0.1, epsilon=1.0),
        lambda: ma.LogDet(norm=float("inf"), noise=0.1),
        lambda: ma.LogDet(norm=1.0, noise=0.1, delta=0.0),
        lambda: ma.Bayes(2.0),
        lambda: ma.Constant(-1.0),
        lambda: ma.Growing(-1.0),
        lambda: ma.Growing(1.0, most=-1.0),
        lambda: ma.Growing(1.0, most=float("nan")),
        lambda: ma.Growing(1.0, most="3"),
        lambda: ma.Constant(float("nan")),
        lambda: ma.Constant("2"),
        lambda: ma.Theory("a", 0.1),
        lambda: ma.LogDet(None, 0.1),
        lambda: ma.Bayes(None),
        lambda: ma.oversampling_for(0.5, 0.1, float("nan")),
        lambda: ma.oversampling_for("a", 0.1, 10),
        lambda: ma.BKB(np.ones((2, 1)), KERNEL, confidence=lambda evidence: None).choose(),
        lambda: ma.BKB(np.ones((2, 1)), KERNEL, confidence=2.0),
        lambda: ma.BKB(np.ones((2, 1)), KERNEL, confidence=lambda evidence: float("nan")).choose(),
        lambda: ma.BKB(np.ones((2, 1)), KERNEL, confidence=lambda evidence: -1.0).choose(),
    ],
)
def test_wrong_radii_are_typed_errors(build):
    with pytest.raises(ParameterError):
        build()


def test_any_function_of_the_evidence_is_a_radius():
    policy = ma.BKB(np.linspace(0, 1, 9)[:, None], KERNEL, confidence=lambda evidence: 0.1 * (1 + evidence.n_observations))
    policy.observe([1, 2], [0.0, 1.0])
    assert policy.beta == pytest.approx(0.3)


@pytest.mark.parametrize("policy", [partial(ma.BKB, resparsify="always"), ma.GPUCB], ids=["BKB", "GPUCB"])
def test_the_evidence_is_what_it_says(policy):
    problem = RKHSProblem(KERNEL, n_arms=60, seed=3)
    bandit = policy(problem.arms, KERNEL, regularization=0.01, confidence=ma.LogDet(1.0, 0.1))
    pulls = play(bandit, problem.pull, 30)
    evidence = bandit._state.evidence
    rows = problem.arms[pulls]
    K = KERNEL(rows, rows)
    assert evidence.n_observations == 30
    assert evidence.trace == pytest.approx(30 / 0.01)
    assert evidence.effective_dimension == pytest.approx(ma.diagnostics.effective_dimension(rows, KERNEL, 0.01), rel=0.05)
    log_det = np.linalg.slogdet(K / 0.01 + np.eye(30))[1]
    if evidence.exact:
        assert evidence.information == pytest.approx(log_det, rel=1e-9)
    else:
        assert log_det <= evidence.information <= 3 * log_det + 30
    mean = bandit.predict().mean
    fit = np.linalg.lstsq(KERNEL(problem.arms, problem.arms), mean, rcond=1e-9)[0]
    assert evidence.mean_norm == pytest.approx(np.sqrt(fit @ mean), rel=0.02)


@pytest.mark.parametrize("policy", [partial(ma.BKB, resparsify="always"), ma.BKB, ma.GPUCB], ids=["BKB", "adaptive", "GPUCB"])
@pytest.mark.parametrize("radius", [ma.Theory, ma.LogDet])
def test_a_norm_guessed_too_small_is_doubled_until_the_data_allow_it(policy, radius):
    problem = RKHSProblem(KERNEL, norm=200.0, noise=0.1, seed=1)
    bandit = policy(problem.arms, KERNEL, regularization=0.01, confidence=radius(0.5, 0.1, double=True))
    norms = []
    for _ in range(60):
        arms = bandit.choose()
        bandit.observe(arms, problem.pull(arms))
        norms.append(bandit._state.evidence.norm)
    assert norms == sorted(norms)
    assert norms[-1] > 16
    assert norms[-1] <= 2 * 200.0  # never doubled past a bound that is true
    assert (bandit.scores().ucb >= problem.f - 1e-6).all()


@pytest.mark.parametrize("resparsify", ["always", "adaptive", None])
@pytest.mark.parametrize("oversampling", [1e300, 2.0])
def test_the_spread_of_the_mean_is_that_of_a_direction(resparsify, oversampling):
    """√(gᵀV⁻¹g), g = w/‖w‖, by dense formulas on the working set; for all pulled arms it is the exact posterior's."""
    problem = RKHSProblem(KERNEL, n_arms=9000 if resparsify == "adaptive" else 60, norm=3.0, seed=3)
    radius, options = ma.LogDet(1.0, 0.1, double=True), {"resparsify": resparsify, "oversampling": oversampling}
    policy = (
        ma.BKB(problem.arms, KERNEL, confidence=radius, **options)
        if resparsify
        else ma.GPUCB(problem.arms, KERNEL, confidence=radius)
    )
    pulls = play(policy, problem.pull, 25)
    W = policy.inducing if resparsify else np.unique(pulls)
    rewards = policy._state.history.sums
    L = np.linalg.cholesky(KERNEL(problem.arms[W], problem.arms[W]) + 1e-13 * np.eye(len(W)))
    pulled, counts = policy._state.history.pulled, policy._state.history.counts
    Z = np.linalg.solve(L, KERNEL(problem.arms[W], problem.arms[pulled])).T
    V = Z.T @ (counts[:, None] * Z) + 0.01 * np.eye(len(W))
    w = np.linalg.solve(V, Z.T @ rewards)
    spread = np.sqrt(w @ np.linalg.solve(V, w)) / np.linalg.norm(w)
    assert policy.evidence.mean_spread == pytest.approx(spread, rel=1e-3)
    assert policy.evidence.mean_norm == pytest.approx(np.linalg.norm(w), rel=1e-3)
    assert spread < 0.5 / np.sqrt(0.01)


@pytest.mark.parametrize("policy", [ma.BKB, ma.GPUCB])
def test_an_optimizer_doubles_the_norm_too(policy):
    problem = RKHSProblem(KERNEL, n_arms=60, norm=50.0, seed=3)
    opt = ma.Optimizer(
        problem.arms, kernel=KERNEL, noise=0.1, policy=policy, confidence=ma.LogDet(0.5, 0.1, double=True), repeats="allow"
    )
    for _ in range(40):
        ids = opt.ask()
        opt.tell(ids, problem.pull(ids))
    assert 2 <= opt.policy.evidence.norm <= 100.0
    assert opt.certificate().probability is None
    assert "doubled" in opt.certificate().reason


def test_a_norm_that_is_large_enough_stays():
    evidence = replace(SKETCH, norm=4.0, mean_norm=3.0)
    assert updated_norm(ma.LogDet(4.0, 0.1, double=True), evidence) == 4.0
    assert updated_norm(ma.LogDet(4.0, 0.1), SKETCH) is None


def test_radii_do_not_double_unless_asked():
    policy = ma.BKB(np.linspace(0, 1, 9)[:, None], KERNEL, confidence=ma.LogDet(1e-3, 0.1))
    policy.observe(np.arange(9), np.full(9, 100.0))
    assert policy._state.evidence.norm is None
