"""Radii against their formulas, what they refuse, and the norm that is guessed and doubled."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.engine.confidence import updated_norm
from manyarms.errors import ParameterError

KERNEL = ma.kernels.RBF(0.2)
SAMPLED = ma.Evidence(
    regularization=0.04,
    noise=0.3,
    guarantee="resampled",
    n_arms=1000,
    n_observations=50,
    trace=1250.0,
    log_det=25.0,
    left_out=0.8,
    largest=lambda: 0.09,
    information=30.0,
    mean=lambda: (1.0, 1.0),
    dimension=lambda: 9.0,
)
FROZEN = replace(SAMPLED, guarantee="certified")
EXACT = replace(SAMPLED, guarantee="exact", largest=lambda: 0.0, left_out=0.0)


def test_certified_is_the_radius_of_frozen_features():
    radius = ma.Certified(norm=2.0, noise=0.3, delta=0.1)
    inside = np.sqrt(0.09 * (25 + 2 * np.log(10)) + 0.04 * 4)
    assert radius(FROZEN) == pytest.approx(inside + np.sqrt(0.04 * 0.09) * 2)
    assert radius(EXACT) == pytest.approx(inside)
    assert radius(FROZEN) < ma.LogDet(norm=2.0, noise=0.3, delta=0.1)(FROZEN)
    assert radius(FROZEN) < ma.Theory(norm=2.0, noise=0.3, delta=0.1)(FROZEN)
    with pytest.raises(ParameterError, match="Resampled"):
        radius(SAMPLED)


def test_resampled_is_the_radius_of_dictionaries_that_are_drawn_again():
    radius = ma.Resampled(norm=2.0, noise=0.3, delta=0.1)
    expected = 0.3 * np.sqrt(25 + 0.8 + 2 * np.log(10)) + 1.3 * 0.2 * 2
    assert radius(SAMPLED) == pytest.approx(expected)
    with pytest.raises(ParameterError, match="use Certified"):
        radius(FROZEN)


def test_theory_is_theorem_two():
    """With the log-determinant once: the paper doubles it, which the bound of Abbasi-Yadkori et al. does not need."""
    radius = ma.Theory(norm=2.0, noise=0.3, epsilon=0.5, delta=0.1)
    bias = (1 + np.sqrt(2)) * np.sqrt(0.04) * 2.0
    expected = 0.3 * np.sqrt(3 * (1 + np.log(1251)) * 9 + 2 * np.log(2 / 0.1)) + bias
    assert radius(SAMPLED) == pytest.approx(expected)
    assert radius(EXACT) == pytest.approx(
        0.3 * np.sqrt((1 + np.log(1251)) * 9 + 2 * np.log(10)) + 0.2 * 2.0
    )


def test_logdet_is_theorem_two_before_its_last_step():
    radius = ma.LogDet(norm=2.0, noise=0.3, epsilon=0.5, delta=0.1)
    bias = (1 + np.sqrt(2)) * np.sqrt(0.04) * 2.0
    assert radius(SAMPLED) == pytest.approx(0.3 * np.sqrt(30 + 2 * np.log(2 / 0.1)) + bias)
    assert radius(EXACT) == pytest.approx(0.3 * np.sqrt(30 + 2 * np.log(10)) + 0.2 * 2.0)
    assert radius(FROZEN) == pytest.approx(0.3 * np.sqrt(30 + 2 * np.log(10)) + 1.3 * 0.2 * 2.0)


def test_bayes_and_constant():
    """The decision with 50 observations made is the 51st."""
    expected = 0.2 * np.sqrt(2 * np.log(1000 * 51**2 * np.pi**2 / 0.6))
    assert ma.Bayes(0.1)(SAMPLED) == pytest.approx(expected)
    first = 0.2 * np.sqrt(2 * np.log(1000 * np.pi**2 / 0.6))
    assert ma.Bayes(0.1)(replace(SAMPLED, n_observations=0)) == pytest.approx(first)
    assert ma.Constant(3.0)(SAMPLED) == pytest.approx(0.6)
    assert ma.Growing(3.0, most=0.5)(SAMPLED) == pytest.approx(0.1)
    assert ma.Growing(3.0)(SAMPLED) == pytest.approx(
        0.6 * np.sqrt(np.log1p(SAMPLED.n_observations))
    )


def test_failures_of_bayes_add_up_to_delta():
    """Each of A arms fails with probability exp(−β²/2λ) or less at each step."""
    failures = 0.0
    for n in range(20_000):
        beta = ma.Bayes(0.1)(replace(SAMPLED, n_observations=n))
        failures += 1000 * np.exp(-(beta**2) / (2 * 0.04))
    assert 0.0999 < failures <= 0.1


def test_a_radius_for_another_noise_is_refused():
    arms = np.linspace(0, 1, 5)[:, None]
    for radius in (ma.Certified(1.0, 0.2), ma.LogDet(1.0, 0.2), ma.Theory(1.0, 0.2)):
        for policy in (ma.BKB, ma.GPUCB):
            with pytest.raises(ParameterError, match=r"noise=0\.2"):
                policy(arms, KERNEL, regularization=0.01, confidence=radius)
            policy(arms, KERNEL, regularization=0.01, noise=0.2, confidence=radius)


@pytest.mark.parametrize(
    "build",
    [
        lambda: ma.Theory(norm=0.0, noise=0.1),
        lambda: ma.Theory(norm=1.0, noise=-0.1),
        lambda: ma.Theory(norm=1.0, noise=0.1, epsilon=1.0),
        lambda: ma.LogDet(norm=float("inf"), noise=0.1),
        lambda: ma.LogDet(norm=1.0, noise=0.1, delta=0.0),
        lambda: ma.Certified(norm=0.0, noise=0.1),
        lambda: ma.Resampled(norm=1.0, noise=0.1, delta=1.0),
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
    policy = ma.BKB(
        np.linspace(0, 1, 9)[:, None],
        KERNEL,
        confidence=lambda evidence: 0.1 * (1 + evidence.n_observations),
    )
    policy.observe([1, 2], [0.0, 1.0])
    assert policy.beta == pytest.approx(0.3)


SYSTEMS = {
    "BKB": ma.BKB,
    "Sampled": partial(ma.BKB, rule=ma.Sampled(5.0)),
    "GPUCB": ma.GPUCB,
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_evidence_is_what_it_says(name):
    problem = RKHSProblem(KERNEL, n_arms=60, seed=3)
    bandit = SYSTEMS[name](
        problem.arms, KERNEL, regularization=0.01, confidence=ma.LogDet(1.0, 0.1)
    )
    pulls = play(bandit, problem.pull, 30)
    evidence = bandit.evidence
    rows = problem.arms[pulls]
    K = KERNEL(rows, rows)
    assert evidence.n_observations == 30
    assert evidence.n_arms == 60
    assert evidence.trace == pytest.approx(30 / 0.01)
    expected = ma.diagnostics.effective_dimension(rows, KERNEL, 0.01)
    assert evidence.effective_dimension == pytest.approx(expected, rel=0.05)
    log_det = np.linalg.slogdet(K / 0.01 + np.eye(30))[1]
    if evidence.guarantee == "exact":
        assert evidence.information == pytest.approx(log_det, rel=1e-9)
    else:
        assert log_det <= evidence.information * (1 + 1e-9) <= 3 * log_det + 30
    mean = bandit.predict().mean
    fit = np.linalg.lstsq(KERNEL(problem.arms, problem.arms), mean, rcond=1e-9)[0]
    norm, spread = evidence.mean()
    assert norm == pytest.approx(np.sqrt(fit @ mean), rel=0.02)
    assert 0 < spread < 0.5 / np.sqrt(0.01)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("radius", [ma.Theory, ma.LogDet, ma.Certified])
def test_a_norm_guessed_too_small_is_doubled_until_the_data_allow_it(name, radius):
    if radius is ma.Certified and name == "Sampled":
        radius = ma.Resampled
    problem = RKHSProblem(KERNEL, norm=200.0, noise=0.1, seed=1)
    bandit = SYSTEMS[name](
        problem.arms, KERNEL, regularization=0.01, confidence=radius(0.5, 0.1, double=True)
    )
    norms = []
    for _ in range(60):
        arms = bandit.choose()
        bandit.observe(arms, problem.pull(arms))
        norms.append(bandit.evidence.norm)
    assert norms == sorted(norms)
    assert norms[-1] > 16
    assert norms[-1] <= 2 * 200.0  # never doubled past a bound that is true
    assert (bandit.scores().ucb >= problem.f - 1e-6).all()


@pytest.mark.parametrize("name", ["BKB", "GPUCB"])
def test_the_spread_of_the_mean_is_that_of_a_direction(name):
    """√(gᵀV⁻¹g), g = w/‖w‖, by dense formulas on the arms that were pulled."""
    problem = RKHSProblem(KERNEL, n_arms=60, norm=3.0, seed=3)
    options = {"rule": ma.Inserted(0.0)} if name == "BKB" else {}
    policy = SYSTEMS[name](
        problem.arms, KERNEL, confidence=ma.LogDet(1.0, 0.1, double=True), **options
    )
    play(policy, problem.pull, 25)
    W = policy.inducing if name == "BKB" else policy.log.pulled
    L = np.linalg.cholesky(KERNEL(problem.arms[W], problem.arms[W]) + 1e-13 * np.eye(len(W)))
    Z = np.linalg.solve(L, KERNEL(problem.arms[W], problem.arms[policy.log.arms])).T
    V = Z.T @ (policy.log.weights[:, None] * Z) + 0.01 * np.eye(len(W))
    w = np.linalg.solve(V, Z.T @ (policy.log.weights * policy.log.rewards))
    norm, spread = policy.evidence.mean()
    assert spread == pytest.approx(np.sqrt(w @ np.linalg.solve(V, w)) / np.linalg.norm(w), rel=1e-3)
    assert norm == pytest.approx(np.linalg.norm(w), rel=1e-3)


@pytest.mark.parametrize("policy", [ma.BKB, ma.GPUCB])
def test_an_optimizer_doubles_the_norm_too(policy):
    problem = RKHSProblem(KERNEL, n_arms=60, norm=50.0, seed=3)
    opt = ma.Optimizer(
        problem.arms,
        kernel=KERNEL,
        noise=0.1,
        policy=policy,
        confidence=ma.LogDet(0.5, 0.1, double=True),
        repeats="allow",
    )
    for _ in range(40):
        ids = opt.ask()
        opt.tell(ids, problem.pull(ids))
    assert 2 <= opt.policy.evidence.norm <= 100.0
    assert opt.certificate().probability is None
    assert "guess" in opt.certificate().reason


def test_a_norm_that_is_large_enough_stays():
    evidence = replace(FROZEN, norm=4.0, mean=lambda: (3.0, 1.0))
    assert updated_norm(ma.LogDet(4.0, 0.1, double=True), evidence) == 4.0
    assert updated_norm(ma.LogDet(4.0, 0.1), FROZEN) is None


def test_radii_do_not_double_unless_asked():
    policy = ma.BKB(np.linspace(0, 1, 9)[:, None], KERNEL, confidence=ma.LogDet(1e-3, 0.1))
    policy.observe(np.arange(9), np.full(9, 100.0))
    assert policy.evidence.norm is None


COVERED = {
    "inserted": {},
    "a loose tolerance": {"rule": ma.Inserted(0.3)},
    "at most eight": {"rule": ma.Inserted(most=8)},
    "sampled": {"rule": ma.Sampled(1.0), "radius": ma.Resampled},
    "weights": {"noise_told": True},
    "batches": {"n": 4},
    "delays": {"delay": 5},
    "a small ridge": {"regularization": 1e-4},
    "a large ridge": {"regularization": 1.0},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", COVERED)
def test_f_is_inside_for_all_arms_and_steps(case):
    """Statement 2 on few runs; `benchmarks/covered.py` has a hundred of each, and larger ones."""
    options = dict(COVERED[case])
    radius = options.pop("radius", ma.Certified)
    noise_told = options.pop("noise_told", False)
    n = options.pop("n", 1)
    delay = options.pop("delay", 0)
    regularization = options.pop("regularization", 0.01)
    missed = 0
    for seed in range(12):
        problem = RKHSProblem(KERNEL, n_arms=60, norm=3.0, noise=0.1, seed=seed)
        rng = np.random.default_rng(seed)
        bandit = ma.BKB(
            problem.arms,
            KERNEL,
            regularization=regularization,
            noise=0.1,
            confidence=radius(3.0, 0.1, 0.1),
            seed=seed,
            **options,
        )
        waiting = []
        for step in range(40):
            arms = bandit.choose(n, pending=np.concatenate([np.zeros(0, int), *waiting]))
            waiting.append(arms)
            if len(waiting) > delay:
                arms = waiting.pop(0)
                sd = 0.1 if not noise_told or step % 2 else 0.4
                rewards = problem.f[arms] + sd * rng.standard_normal(len(arms))
                bandit.observe(arms, rewards, noise=sd if noise_told else None)
            mean, variance, _ = bandit.scores()
            if (np.abs(problem.f - mean) > bandit.beta * np.sqrt(variance)).any():
                missed += 1
                break
    assert missed <= 1
