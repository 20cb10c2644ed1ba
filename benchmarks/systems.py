"""Every system by name: how it is made for a problem, and what its paper promises.

All are told the same: kernel, λ, and the radius of `RADIUS` where they have one. Guarantees are those of the papers, with their
radii and constants, for a kernel that is known; no radius used in practice has them. T steps, A arms, γ the information gain,
d_eff the effective dimension. To add a system, add a line.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from bandits import Problem

import manyarms as ma
from manyarms import policies

RADIUS = ma.Growing()
"""The optimizer's: 1.3√ln(1 + t) posterior standard deviations."""
SKETCH = 64
"""Features, inducing arms or rows of sketches whose size is fixed."""


class MissingSystemError(Exception):
    """This installation has no such policy."""


class System(NamedTuple):
    """How a system is made from a problem, a seed and the horizon; its guarantee; how many arms it chooses at a time."""

    make: Callable[[Problem, int, int], Any]
    guarantee: str
    batch: int | None = 1  # None: a rule of the system's own ends a batch


def policy(name: str) -> Any:
    """A class of manyarms.policies, looked up when it is wanted."""
    try:
        return getattr(policies, name)
    except AttributeError:
        raise MissingSystemError(f"manyarms.policies has no {name}: install a version that has it, or leave it out") from None


def kernelised(name: str, **options: Any) -> Callable[[Problem, int, int], Any]:
    """A policy with a kernel and a radius."""
    return plain(name, confidence=RADIUS, **options)


def plain(name: str, **options: Any) -> Callable[[Problem, int, int], Any]:
    """A policy with a kernel."""

    def make(problem: Problem, seed: int, horizon: int) -> Any:
        return policy(name)(problem.arms, problem.kernel, regularization=problem.regularization, seed=seed, **options)

    return make


def linear(name: str, **options: Any) -> Callable[[Problem, int, int], Any]:
    """A policy with the columns of the arms as features."""

    def make(problem: Problem, seed: int, horizon: int) -> Any:
        told = {"regularization": problem.regularization, "confidence": RADIUS, "seed": seed}
        return policy(name)(problem.arms, **told, **options)

    return make


def linear_bkb(problem: Problem, seed: int, horizon: int) -> ma.BKB:
    """BKB with the kernel of a linear bandit, whatever the problem's."""
    told = {"regularization": problem.regularization, "confidence": RADIUS, "seed": seed}
    return ma.BKB(problem.arms, ma.kernels.Linear(), **told)


SYSTEMS = {
    "bkb": System(kernelised("BKB"), "Õ(√T d_eff), variances within a factor 3, |S| = Õ(d_eff)"),
    "bkb-always": System(kernelised("BKB", resparsify="always"), "the same: Algorithm 1 as printed"),
    "bkb-incremental": System(kernelised("BKB", resparsify="incremental"), "none: the paper's remark"),
    "bkb-insertion": System(kernelised("BKB", resparsify="insertion"), "Õ(√T d_eff) (KORS, EK-UCB)"),
    "batch-bkb": System(kernelised("BKB"), "BKB's up to constants, in Õ(γ) batches", batch=None),
    "gpucb": System(kernelised("GPUCB"), "Õ(√T γ): exact"),
    "supkernelucb": System(kernelised("SupKernelUCB"), "Õ(√(T d_eff))"),
    "ei": System(plain("EI"), "none for noisy rewards without restarts or a rescaled variance"),
    "pi": System(plain("PI"), "none"),
    "ei-sketch": System(plain("SketchedEI"), "none"),
    "pi-sketch": System(plain("SketchedPI"), "none"),
    "ts-sketch": System(plain("SketchedThompson"), "Õ(√T γ) with an inflated variance (S-GP-TS)"),
    "mini-ucb": System(kernelised("MiniMeta"), "GP-UCB's up to constants, Õ(γ) switches", batch=None),
    "sor": System(kernelised("SoR"), "none: variances starve"),
    "dtc": System(kernelised("DTC"), "none for a dictionary that is fixed"),
    "rff-ucb": System(kernelised("RFF"), "none: variances starve"),
    "rff-ts": System(plain("RFFThompson"), "none: variances starve"),
    "qff-ucb": System(kernelised("QFF"), "Õ(√T γ), RBF in low dimension or additive"),
    "qff-ts": System(plain("QFFThompson"), "the same"),
    "bkb-linear": System(linear_bkb, "Õ(√T d_eff) if f is linear"),
    "oful": System(linear("OFUL"), "Õ(d√T) if f is linear"),
    "soful-ucb": System(linear("SOFUL"), "Õ(√T) plus linear in the spectrum's tail, if f is linear"),
    "soful-ts": System(linear("SOFULThompson"), "the same"),
    "cbrap": System(linear("CBRAP"), "Õ(√T) plus linear in the projection's error, if f is linear"),
    "epsilon-greedy": System(plain("EpsilonGreedy"), "linear regret for a constant ε"),
    "uniform": System(plain("Uniform"), "T (max f − mean f) in expectation, exactly"),
}
