"""Fourier features of stationary kernels: k(x, y) ≈ Σ_j p_j cos ω_jᵀ(x − y) = φ(x)ᵀφ(y).

By Bochner's theorem k is the expectation of cos ωᵀ(x − y) over its spectral density; a policy
supplies frequencies ω_j and weights p_j that stand for it. Multiples of kernels scale the weights.
Sums of kernels and kernels of some columns (``On(RBF(0.3), 0, 2) + On(RBF(0.3), 2, 4)``: an
additive kernel) have the frequencies of every term.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from manyarms.beliefs.base import Arms
from manyarms.errors import KernelError, MemoryBudgetError
from manyarms.kernels import Kernel, On, Scaled, Sum
from manyarms.kernels.stationary import Stationary
from manyarms.search.estimate import half_the_machine
from manyarms.typing import Array


@dataclass(frozen=True)
class Term:
    """constant · kernel(x_columns, y_columns), one summand of a kernel."""

    constant: float
    kernel: Stationary
    start: int
    stop: int

    @property
    def lengthscales(self) -> Array:
        """ℓ of each of the columns."""
        return np.broadcast_to(self.kernel.lengthscale, self.stop - self.start)


def terms_of(kernel: Kernel, n_columns: int, allowed: tuple[type[Stationary], ...]) -> list[Term]:
    """The summands of a kernel of so many columns; KernelError where one is of another type."""
    if isinstance(kernel, Sum):
        first = terms_of(kernel.first, n_columns, allowed)
        return first + terms_of(kernel.second, n_columns, allowed)
    if isinstance(kernel, Scaled):
        inner = terms_of(kernel.kernel, n_columns, allowed)
        return [replace(term, constant=kernel.constant * term.constant) for term in inner]
    if isinstance(kernel, On):
        inner = terms_of(kernel.kernel, kernel.stop - kernel.start, allowed)
        shift = kernel.start
        return [replace(term, start=term.start + shift, stop=term.stop + shift) for term in inner]
    if isinstance(kernel, allowed):
        return [Term(1.0, kernel, 0, n_columns)]
    names = " or ".join(each.__name__ for each in allowed)
    raise KernelError(
        f"Fourier features need {names} kernels of manyarms, multiples and sums of them, or such "
        f"kernels On some columns; got {kernel!r}: use BKB for other kernels"
    )


FEATURE_COPIES = 2.5
"""Arrays (A, m) that exist at once while features of all arms are made: measured peak memory."""
FACTOR_COPIES = 5.0
"""Arrays (m, m) that exist at once while an arm is observed: measured peak memory."""


def check_memory(n_arms: int, m: int) -> None:
    """Raise MemoryBudgetError where m features of so many arms take over half of all memory."""
    features = 8.0 * n_arms * m
    factor = 8.0 * m * m
    peak = FEATURE_COPIES * features + FACTOR_COPIES * factor
    allowed = half_the_machine()
    if peak > allowed:
        raise MemoryBudgetError(
            f"{m:,} features of {n_arms:,} arms take 8·A·m = {features / 1e9:.3g} GB and "
            f"8·m² = {factor / 1e9:.3g} GB, and {peak / 1e9:.3g} GB while they are computed; half "
            f"of this machine's memory is {allowed / 1e9:.3g} GB. Give fewer features or fewer "
            "arms, or use BKB, which needs a few numbers an arm"
        )


Frequencies = Callable[[list[Term], Arms, np.random.Generator], list[tuple[Array, Array]]]
"""Of each term: frequencies (D, columns) in units of 1/ℓ, and weights (D,), which add up to 1."""


@dataclass(frozen=True)
class MakesWaves:
    """Gives `Waves` of a kernel, whose terms are of the types allowed."""

    allowed: tuple[type[Stationary], ...]
    frequencies: Frequencies

    def __call__(self, kernel: Kernel, arms: Arms, rng: np.random.Generator) -> "Waves":
        d = arms.rows.shape[1]
        blocks: list[Array] = []
        weights: list[Array] = []
        terms = terms_of(kernel, d, self.allowed)
        for term, drawn in zip(terms, self.frequencies(terms, arms, rng), strict=True):
            frequencies, probabilities = drawn
            block = np.zeros((len(frequencies), d))
            block[:, term.start : term.stop] = frequencies / term.lengthscales
            blocks.append(block)
            weights.append(term.constant * probabilities)
        origin = arms.rows.mean(axis=0, dtype=np.float64)
        return Waves(origin, np.vstack(blocks), np.concatenate(weights))


@dataclass(frozen=True)
class Waves:
    """φ(x) = (√p_j cos ω_jᵀ(x − o), √p_j sin ω_jᵀ(x − o))_j, o any origin; ω = 0 has no sine."""

    origin: Array  # (d,)
    frequencies: Array  # (D, d)
    weights: Array  # (D,)

    def __call__(self, X: Array, diag: Array) -> tuple[Array, Array]:
        P = (X - self.origin) @ self.frequencies.T
        roots = np.sqrt(self.weights)
        waving = self.frequencies.any(axis=1)
        features = np.hstack([roots * np.cos(P), roots[waving] * np.sin(P[:, waving])])
        return features, np.zeros(len(X))
