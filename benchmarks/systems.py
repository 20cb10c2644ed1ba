"""Every system by name: how it is made for a problem, and what its paper promises.

All are told the same kernel and λ, and those that choose by upper bounds the same radius; sizes are the defaults. Guarantees
are those of the papers, with their radii and constants, for a kernel that is known; no radius used in practice has them. T
steps, γ the information gain, d_eff the effective dimension. To add a system, add a line.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from bandits import Problem

import manyarms as ma
from manyarms import bandit, baselines

RADIUS = ma.Growing()
"""1.3√ln(1 + t) posterior standard deviations: the optimizer's, without its limit of 3."""


class MissingSystemError(Exception):
    """This installation has no such policy."""


class System(NamedTuple):
    """How a system is made from a problem, a seed and the horizon; its guarantee; how many arms it chooses at a time."""

    make: Callable[[Problem, int, int], Any]
    guarantee: str
    batch: int | None = 1  # None: a rule of the system's own ends a batch


def policy(name: str) -> Any:
    """A class of manyarms.bandit or manyarms.baselines, looked up when it is wanted."""
    found = getattr(bandit, name, None) or getattr(baselines, name, None)
    if found is None:
        raise MissingSystemError(
            f"manyarms has no {name}: install a version that has it, or leave it out"
        )
    return found


def kernelised(name: str, **options: Any) -> Callable[[Problem, int, int], Any]:
    """A policy on the problem's kernel."""

    def make(problem: Problem, seed: int, horizon: int) -> Any:
        return policy(name)(
            problem.arms,
            problem.kernel,
            regularization=problem.regularization,
            seed=seed,
            **options,
        )

    return make


def drawn(name: str) -> Callable[[Problem, int, int], Any]:
    """BKB on a dictionary that is drawn by a rule of manyarms.baselines, q̄ = 5."""

    def make(problem: Problem, seed: int, horizon: int) -> Any:
        rule = policy(name)(5.0)
        return kernelised("BKB", confidence=RADIUS, rule=rule)(problem, seed, horizon)

    return make


def certified(name: str) -> Callable[[Problem, int, int], Any]:
    """A policy with the radius that is proved, δ = .1."""

    def make(problem: Problem, seed: int, horizon: int) -> Any:
        norm: Any = problem.norm  # which problems for it know
        radius = ma.Certified(norm=norm, noise=problem.noise, delta=0.1)
        return kernelised(name, confidence=radius, noise=problem.noise)(problem, seed, horizon)

    return make


def linear(
    name: str, size: str | None = None, **options: Any
) -> Callable[[Problem, int, int], Any]:
    """A policy with the columns of the arms as features; a sketch of them, whose parameter is named, has a quarter as many."""

    def make(problem: Problem, seed: int, horizon: int) -> Any:
        sized = {size: max(1, problem.arms.shape[1] // 4)} if size else {}
        return policy(name)(
            problem.arms, regularization=problem.regularization, seed=seed, **sized, **options
        )

    return make


def mini(name: str, **options: Any) -> Callable[[Problem, int, int], Any]:
    """Mini-META around a policy."""
    make = kernelised(name, **options)
    return lambda problem, seed, horizon: policy("MiniMeta")(make(problem, seed, horizon))


def sup_kernel(problem: Problem, seed: int, horizon: int) -> Any:
    """SupKernelUCB, which is told the horizon; the radius is not that of its theorem."""
    return kernelised("SupKernelUCB", confidence=RADIUS, horizon=horizon)(problem, seed, horizon)


def linear_bkb(problem: Problem, seed: int, horizon: int) -> Any:
    """BKB with the kernel of a linear bandit, whatever the problem's."""
    return SYSTEMS["bkb"].make(replace(problem, kernel=ma.kernels.Linear()), seed, horizon)


SYSTEMS = {
    "bkb": System(
        kernelised("BKB", confidence=RADIUS),
        "Õ(√T γ), variances within 1 + θ of the exact ones, surely",
    ),
    "bkb-certified": System(certified("BKB"), "the same, with a radius that is proved"),
    "algorithm1": System(
        kernelised("BKB", confidence=RADIUS, rule=ma.Sampled(5.0)),
        "Õ(√T d_eff), variances within a factor 3, |S| = Õ(d_eff)",
    ),
    "incremental": System(drawn("Incremental"), "none: the paper's remark"),
    "insertion": System(
        drawn("Insertion"), "Õ(√T d_eff) with the leverage estimates of KORS (EK-UCB)"
    ),
    "batch-bkb": System(
        kernelised("BKB", confidence=RADIUS), "BKB's up to constants, in Õ(γ) batches", batch=None
    ),
    "batch-bkb-local": System(
        kernelised("LocalBatch", confidence=RADIUS), "the same, in fewer batches", batch=None
    ),
    "ts-sketch": System(
        kernelised("Thompson"),
        "none in this form; Õ(√(γT)) for joint draws and a larger variance (S-GP-TS)",
    ),
    "ei-sketch": System(kernelised("SketchEI"), "none"),
    "pi-sketch": System(kernelised("SketchPI"), "none"),
    "gpucb": System(kernelised("GPUCB", confidence=RADIUS), "Õ(√T γ): exact"),
    "gpucb-certified": System(certified("GPUCB"), "the same, with a radius that is proved"),
    "supkernelucb": System(sup_kernel, "Õ(√(T d_eff))"),
    "mini-ucb": System(mini("GPUCB", confidence=RADIUS), "GP-UCB's up to constants, Õ(γ) switches"),
    "mini-ei": System(mini("GPEI"), "none of its own"),
    "mini-ts": System(mini("Thompson"), "none of its own"),
    "ei": System(kernelised("GPEI"), "none with the posterior's own deviation"),
    "pi": System(kernelised("GPPI"), "none"),
    "dtc": System(kernelised("DTC", confidence=RADIUS), "none for a dictionary that is fixed"),
    "sor": System(kernelised("SoR", confidence=RADIUS), "none: variances starve"),
    "rff-ucb": System(kernelised("RFF", confidence=RADIUS), "none: variances starve"),
    "rff-ts": System(kernelised("RFF", choice="thompson"), "none: variances starve"),
    "qff-ucb": System(
        kernelised("QFF", confidence=RADIUS), "Õ(√T γ), RBF in low dimension or additive"
    ),
    "qff-ts": System(kernelised("QFF", choice="thompson"), "the same"),
    "bkb-linear": System(linear_bkb, "Õ(√T d_eff) if f is linear"),
    "oful": System(linear("OFUL", confidence=RADIUS), "Õ(d√T) if f is linear"),
    "soful-ucb": System(
        linear("SOFUL", "size", confidence=RADIUS),
        "Õ(√T) plus linear in the spectrum's tail, if f is linear",
    ),
    "soful-ts": System(linear("SOFUL", "size", choice="thompson"), "the same"),
    "cbrap": System(
        linear("CBRAP", "dimension", confidence=RADIUS),
        "Õ(√T) plus linear in the projection's error",
    ),
    "epsilon-greedy": System(kernelised("EpsilonGreedy"), "linear regret for a constant ε"),
    "uniform": System(kernelised("Uniform"), "T (max f − mean f) in expectation, exactly"),
}
