"""What every radius promises with every policy: refused, a probability with its theorem, or none.

A new radius or policy has to be entered here, and so takes a stand.
"""

import importlib
import inspect
import pkgutil
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from problems import RKHSProblem

import manyarms as ma
from manyarms import bandit, baselines, domains
from manyarms.baselines.linear import Sketched
from manyarms.campaign.certificate import guarantee_of
from manyarms.engine.dictionary import Draws
from manyarms.engine.sampled import DrawRule
from manyarms.errors import ParameterError

KERNEL = ma.kernels.RBF(0.2)
NORM, NOISE, DELTA = 2.0, 0.1, 0.1
STEPS = 25
ENOUGH = ma.oversampling_for(0.5, DELTA / 2, STEPS)

RADII = {
    "Certified": ma.Certified(NORM, NOISE, DELTA),
    "Resampled": ma.Resampled(NORM, NOISE, DELTA),
    "Theory": ma.Theory(NORM, NOISE, DELTA),
    "LogDet": ma.LogDet(NORM, NOISE, DELTA),
    "Sketched": Sketched(NORM, NOISE, DELTA),
    "Bayes": ma.Bayes(DELTA),
    "FixedDesign": baselines.FixedDesign(NORM, NOISE, 100, DELTA),
    "Constant": ma.Constant(2.0),
    "Growing": ma.Growing(),
}
REFUSED, NONE = "refused", "none"
EXACT, FROZEN, DRAWN = "the posterior is exact", "features are frozen", "through one dictionary"
PAPER, SKETCH, DRAW = "Theorem 2 of the paper", "bounds V on both sides", "a draw of the Gaussian"
# What is known of the posterior, and in the order of RADII what each radius answers.
POSTERIORS = {
    "exact": [EXACT, EXACT, EXACT, EXACT, REFUSED, DRAW, NONE, NONE, NONE],
    "certified": [FROZEN, REFUSED, FROZEN, FROZEN, REFUSED, NONE, NONE, NONE, NONE],
    "resampled": [REFUSED, DRAWN, NONE, NONE, REFUSED, NONE, NONE, NONE, NONE],
    "theorem 1": [REFUSED, DRAWN, PAPER, PAPER, REFUSED, NONE, NONE, NONE, NONE],
    "sketched": [REFUSED, REFUSED, NONE, NONE, SKETCH, NONE, NONE, NONE, NONE],
    "none": [REFUSED, REFUSED, NONE, NONE, REFUSED, NONE, NONE, NONE, NONE],
}


def on_sketch(name, **options):
    """A policy on BKB's sketch, by its name."""
    make = getattr(baselines if hasattr(baselines, name) else bandit, name)
    return lambda arms, kernel, **others: make(arms, kernel, **options, **others)


def linear(name, **options):
    return lambda arms, kernel, **others: getattr(baselines, name)(arms, **options, **others)


def few_evaluations(arms, kernel, **options):
    return baselines.MiniMeta(ma.GPUCB(arms, kernel, **options))


POLICIES = {
    "BKB": ("certified", ma.BKB),
    "Inserted": ("certified", on_sketch("BKB", rule=ma.Inserted(0.3, most=6))),
    "LocalBatch": ("certified", baselines.LocalBatch),
    "Uniform": ("certified", baselines.Uniform),
    "EpsilonGreedy": ("certified", baselines.EpsilonGreedy),
    "Thompson": ("certified", baselines.Thompson),
    "Thompson without residual": ("certified", on_sketch("Thompson", residual=False)),
    "SketchEI": ("certified", baselines.SketchEI),
    "SketchPI": ("certified", baselines.SketchPI),
    "DTC": ("certified", on_sketch("DTC", inducing=4)),
    "GPUCB": ("exact", ma.GPUCB),
    "GPEI": ("exact", baselines.GPEI),
    "GPPI": ("exact", baselines.GPPI),
    "SupKernelUCB": ("exact", baselines.SupKernelUCB),
    "MiniMeta": ("exact", few_evaluations),
    "OFUL": ("exact", linear("OFUL")),
    "OFUL by draws": ("exact", linear("OFUL", choice="thompson")),
    "Sampled": ("resampled", on_sketch("BKB", rule=ma.Sampled(5.0))),
    "Sampled enough": ("theorem 1", on_sketch("BKB", rule=ma.Sampled(ENOUGH))),
    "Incremental": ("resampled", on_sketch("BKB", rule=baselines.Incremental(ENOUGH))),
    "Insertion": ("resampled", on_sketch("BKB", rule=baselines.Insertion(ENOUGH))),
    "SOFUL": ("sketched", linear("SOFUL", size=1)),
    "CBRAP": ("none", linear("CBRAP", dimension=1)),
    "SoR": ("none", on_sketch("SoR", inducing=4)),
    "RFF": ("none", on_sketch("RFF", frequencies=4)),
    "QFF": ("none", on_sketch("QFF", nodes=2)),
}
LINEAR = {"OFUL", "OFUL by draws", "SOFUL", "CBRAP"}
ELSEWHERE = {"DomainBKB", "AdaBKB", "EstimatedNoise"}
"""Policies that are tested by themselves below."""


def problem_of(name, seed=0):
    """A problem that the policy's theorem covers: f is linear for a linear bandit."""
    kernel = ma.kernels.Linear() if name in LINEAR else KERNEL
    problem = RKHSProblem(kernel, n_arms=40, d=2, norm=NORM, noise=NOISE, seed=seed)
    return kernel, problem


def optimizer_of(name, radius, kernel, problem, seed=0):
    policy = POLICIES[name][1]
    return ma.Optimizer(
        problem.arms, kernel=kernel, noise=NOISE, confidence=radius, policy=policy, seed=seed
    )


def classes(*modules):
    for module in modules:
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isclass(member):
                yield name, member


def test_every_radius_is_here():
    found = set()
    for module in pkgutil.walk_packages(ma.__path__, "manyarms."):
        if module.name.startswith(("manyarms.engine", "manyarms.baselines")):
            for name, member in inspect.getmembers(importlib.import_module(module.name)):
                call = vars(member).get("__call__") if inspect.isclass(member) else None
                if call is not None and "evidence" in inspect.signature(call).parameters:
                    found.add(name)
    assert found == set(RADII)


def test_every_policy_and_rule_is_here():
    found = set()
    for name, member in classes(ma, bandit, baselines, domains):
        if hasattr(member, "choose") and hasattr(member, "observe") and name != "Stream":
            found.add(name)
        if issubclass(member, DrawRule | ma.Inserted):
            found.add(name)
    assert found == {name for name in POLICIES if " " not in name} | ELSEWHERE


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("name", POLICIES)
def test_what_a_radius_promises_with_a_policy(name, radius):
    known, _ = POLICIES[name]
    expected = POSTERIORS[known][list(RADII).index(radius)]
    kernel, problem = problem_of(name)
    if expected == REFUSED:
        with pytest.raises(ParameterError, match=f"{radius} is not proved for"):
            optimizer_of(name, RADII[radius], kernel, problem)
        return
    found = optimizer_of(name, RADII[radius], kernel, problem)
    found.tell(range(8), problem.f[:8])
    certificate = found.certificate()
    has_theorem = known != "theorem 1" or expected == PAPER
    assert guarantee_of(found.policy) == (known if has_theorem else "resampled")
    if expected == NONE:
        assert certificate.probability is None
        assert "heuristic" in str(certificate)
    else:
        assert certificate.probability == 1 - DELTA
        assert expected in certificate.reason
        assert ("Gaussian" if radius == "Bayes" else "sub-Gaussian") in certificate.reason


CLAIMS = [
    (name, radius)
    for name, (known, _) in POLICIES.items()
    for radius, answer in zip(RADII, POSTERIORS[known], strict=True)
    if answer not in (REFUSED, NONE)
]


def misses(name, radius, draws=False):
    """Of 12 runs, those in which f was outside somewhere; drawn from the Gaussian process, or of
    the norm that is said."""
    missed = 0
    for seed in range(12):
        kernel, problem = problem_of(name, seed)
        rng = np.random.default_rng(seed)
        if draws:
            K = kernel(problem.arms, problem.arms) + 1e-9 * np.eye(40)
            problem.f = np.linalg.cholesky(K) @ rng.standard_normal(40)
        options = {"regularization": NOISE**2, "confidence": radius, "seed": seed}
        policy = POLICIES[name][1](problem.arms, kernel, **options)
        for _ in range(STEPS):
            arms = policy.choose()
            policy.observe(arms, problem.f[arms] + NOISE * rng.standard_normal(len(arms)))
            mean, variance, _ = policy.scores()
            if (np.abs(problem.f - mean) > policy.beta * np.sqrt(variance)).any():
                missed += 1
                break
    return missed


@pytest.mark.slow
@pytest.mark.parametrize(("name", "radius"), CLAIMS)
def test_what_is_promised_holds(name, radius):
    assert misses(name, RADII[radius], draws=radius == "Bayes") <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SoR", "CBRAP", "QFF"])
def test_what_is_refused_would_not_hold(name):
    def as_if_exact(evidence):
        return RADII["Certified"](replace(evidence, guarantee="exact"))

    assert misses(name, as_if_exact) >= 6


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("policy", [domains.DomainBKB, domains.AdaBKB])
def test_over_a_box_nothing_is_promised(policy, radius):
    """The rival comes from a search; of few combinations all are looked at."""
    box = ma.Box([[0, 1], [0, 1]])
    options = {"norm": NORM} if policy is domains.AdaBKB else {}
    make: Any = partial(
        ma.Optimizer,
        kernel=KERNEL,
        noise=NOISE,
        confidence=RADII[radius],
        policy=policy,
        **options,
    )
    if radius in ("Resampled", "Sketched", "Bayes", "FixedDesign"):
        with pytest.raises(ParameterError):
            make(box)
        return
    found = make(box)
    found.tell([(0.2, 0.3), (0.5, 0.5), (0.9, 0.1)], [0.1, 0.2, 0.3])
    assert found.policy.guarantee == "certified"
    assert found.certificate().probability is None


@pytest.mark.parametrize("radius", RADII)
def test_over_few_combinations_the_radius_decides(radius):
    box = ma.Box(a=list("xyz"), b=[1, 2, 3])
    make = partial(ma.Optimizer, kernel=ma.kernels.RBF(0.5), noise=NOISE, confidence=RADII[radius])
    if radius in ("Resampled", "Sketched", "Bayes", "FixedDesign"):
        with pytest.raises(ParameterError):
            make(box)
        return
    found = make(box)
    found.tell([{"a": "x", "b": 1}, {"a": "y", "b": 2}], [0.1, 0.2])
    promised = POSTERIORS["certified"][list(RADII).index(radius)] == FROZEN
    assert found.certificate().probability == (1 - DELTA if promised else None)


@pytest.mark.parametrize("radius", RADII)
def test_observations_that_fade_have_no_promise(radius):
    make = partial(ma.BKB, None, KERNEL, n_features=2, discount=0.9, regularization=NOISE**2)
    if radius in ("Constant", "Growing", "FixedDesign"):
        assert make(confidence=RADII[radius]).guarantee == "none"
    else:
        with pytest.raises(ParameterError):
            make(confidence=RADII[radius])


def test_noise_that_is_estimated_has_no_promise():
    arms = RKHSProblem(KERNEL).arms
    policy = baselines.EstimatedNoise(
        lambda noise: ma.BKB(
            arms, KERNEL, regularization=noise**2, confidence=ma.Certified(NORM, noise)
        ),
        NOISE,
    )
    assert guarantee_of(policy) == "none"


def test_bayes_is_for_a_ridge_that_is_the_variance_of_the_noise():
    """With λ far below ξ² f was outside in 60 of 60 runs."""
    arms = RKHSProblem(KERNEL).arms
    options = {"kernel": KERNEL, "confidence": ma.Bayes(DELTA), "policy": ma.GPUCB}
    with pytest.raises(ParameterError, match="λ is the variance of the noise"):
        ma.Optimizer(arms, noise=0.5, regularization=1e-4, **options)
    with pytest.raises(ParameterError, match="Certified"):
        ma.GPUCB(arms, KERNEL, regularization=0.25, noise=0.1, confidence=ma.Bayes(DELTA))
    exact = ma.Optimizer(arms, noise=0.0, **options)  # λ is the least that counts, not 0
    exact.tell(range(8), np.arange(8.0))
    assert exact.certificate().probability is None
    assert "Gaussian noise" in exact.certificate().reason


def test_what_a_subclass_computes_is_not_proved():
    class Half(ma.Certified):
        def __call__(self, evidence):
            return 0.5 * super().__call__(evidence)

    class Less(ma.Bayes):
        def __call__(self, evidence):
            return 0.5 * super().__call__(evidence)

    problem = RKHSProblem(KERNEL)
    for radius in (Half(NORM, NOISE), Less(DELTA)):
        found = optimizer_of("GPUCB", radius, KERNEL, problem)
        found.tell(range(8), problem.f[:8])
        assert found.certificate().probability is None
        assert type(radius).__name__ in found.certificate().reason


def sampled(oversampling, radius=RADII["LogDet"], epsilon=0.5):
    problem = RKHSProblem(KERNEL, n_arms=60)
    found = ma.Optimizer(
        problem.arms,
        kernel=KERNEL,
        noise=NOISE,
        confidence=radius,
        rule=ma.Sampled(oversampling, epsilon),
    )
    found.tell(range(STEPS), problem.f[:STEPS])
    return found


def test_the_oversampling_of_now_is_what_counts():
    found = sampled(ENOUGH)
    assert found.policy.guarantee == "theorem 1"
    assert found.certificate().probability == 1 - DELTA
    found.policy.redraw(ENOUGH)
    assert found.policy.guarantee == "theorem 1"
    found.policy.redraw(5.0)
    assert found.policy.guarantee == "resampled"
    assert found.certificate().probability is None
    assert f"oversampling={ENOUGH:.0f}" in found.certificate().reason
    assert "drawn with 5" in found.certificate().reason


def test_draws_that_were_poor_once_are_not_made_good():
    """The probabilities of a draw rest on the variances that the draw before gave."""
    found = sampled(5.0)
    found.policy.redraw(ENOUGH)
    assert found.policy.guarantee == "resampled"
    assert found.certificate().probability is None


def test_a_longer_horizon_asks_for_more():
    found = sampled(ENOUGH)
    problem = RKHSProblem(KERNEL, n_arms=60)
    found.tell([30], problem.f[30:31])
    assert found.policy.guarantee == "resampled"
    again = sampled(ENOUGH)
    again.policy.redraw(ma.oversampling_for(0.5, DELTA / 2, 100))
    again.tell(range(30, 60), problem.f[30:])
    assert again.policy.guarantee == "theorem 1"
    assert again.certificate().probability == 1 - DELTA


def test_before_any_observation_the_oversampling_is_redrawn():
    policy = ma.BKB(
        np.linspace(0, 1, 9)[:, None], KERNEL, rule=ma.Sampled(5.0), confidence=RADII["LogDet"]
    )
    assert policy.guarantee == "resampled"
    policy.redraw(ENOUGH)
    assert policy.guarantee == "theorem 1"


def test_the_oversampling_must_do_for_both_epsilons():
    """`LogDet` rests on the ε of the rule, and on its own."""
    much = ma.oversampling_for(0.2, DELTA / 2, STEPS)
    for rule, radius, oversampling, covered in (
        (0.2, 0.5, ENOUGH, False),
        (0.5, 0.2, ENOUGH, False),
        (0.2, 0.5, much, True),
        (0.5, 0.2, much, True),
    ):
        made = ma.LogDet(NORM, NOISE, DELTA, epsilon=radius)
        found = sampled(oversampling, made, rule)
        assert (found.certificate().probability is not None) == covered


def test_redrawing_often_is_not_covered():
    draws = Draws(0.5, ((ENOUGH, STEPS),) * 80)
    assert draws.lack(0.5, DELTA / 2) is None
    assert "80 times" in Draws(0.5, ((ENOUGH, STEPS),) * 81).lack(0.5, DELTA / 2)


def test_features_that_are_chosen_anew_are_not_frozen():
    """DTC draws its dictionary from the table. One that grows after results has another."""
    problem = RKHSProblem(KERNEL, n_arms=40, d=2)
    for name, probability in (("DTC", None), ("BKB", 1 - DELTA), ("GPUCB", 1 - DELTA)):
        found = optimizer_of(name, RADII["Certified"], KERNEL, problem)
        found.add(problem.arms[:3] + 0.01)
        found.tell(range(8), problem.f[:8])
        assert found.certificate().probability == 1 - DELTA
        found.add(problem.arms[:3] + 0.02)
        assert found.certificate().probability == probability


def test_a_policy_answers_for_itself():
    """A policy of one's own claims nothing unless it says so."""
    assert guarantee_of(object()) == "none"
    policy = ma.BKB(np.zeros((2, 1)), KERNEL, rule=ma.Sampled(5.0), confidence=ma.Constant(2.0))
    assert policy.guarantee == "resampled"


@pytest.mark.parametrize("name", ["SoR", "RFF", "QFF", "CBRAP"])
def test_nothing_is_said_of_how_accurate_other_features_are(name):
    kernel, problem = problem_of(name)
    policy = POLICIES[name][1](problem.arms, kernel)
    policy.observe([1, 2], [0.0, 1.0])
    with pytest.raises(ParameterError, match="not known"):
        ma.diagnostics.sketch_accuracy(policy)


def test_observations_that_fade_have_an_accuracy():
    policy = ma.BKB(None, KERNEL, n_features=2, discount=0.9, rule=ma.Inserted(0.5))
    policy.observe(np.random.default_rng(0).random((30, 2)), np.zeros(30))
    assert ma.diagnostics.sketch_accuracy(policy).theta > 0
