"""Fourier features of stationary kernels: k(x, y) ≈ Σ_j p_j cos ω_jᵀ(x − y) = φ(x)ᵀφ(y), what RFF and QFF share.

By Bochner's theorem k is the expectation of cos ωᵀ(x − y) over its spectral density; a policy supplies frequencies ω_j and
weights p_j that stand for it. Multiples of kernels scale the weights, sums of kernels and kernels of some columns
(``On(RBF(0.3), 0, 2) + On(RBF(0.3), 2, 4)``: an additive kernel) have the frequencies of every term.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from manyarms.errors import KernelError
from manyarms.kernels import Kernel, On, Scaled, Sum
from manyarms.kernels.stationary import Stationary
from manyarms.policies.features import FeatureMap, Features
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
    """The summands of a kernel of so many columns; KernelError where one is of another type than allowed."""
    if isinstance(kernel, Sum):
        return terms_of(kernel.first, n_columns, allowed) + terms_of(kernel.second, n_columns, allowed)
    if isinstance(kernel, Scaled):
        return [replace(term, constant=kernel.constant * term.constant) for term in terms_of(kernel.kernel, n_columns, allowed)]
    if isinstance(kernel, On):
        inner = terms_of(kernel.kernel, kernel.stop - kernel.start, allowed)
        return [replace(term, start=term.start + kernel.start, stop=term.stop + kernel.start) for term in inner]
    if isinstance(kernel, allowed):
        return [Term(1.0, kernel, 0, n_columns)]
    names = " or ".join(each.__name__ for each in allowed)
    raise KernelError(
        f"Fourier features need {names} kernels of manyarms, multiples and sums of them, or such kernels On some columns; "
        f"got {kernel!r}: use BKB for other kernels"
    )


class Fourier(Features):
    """A linear bandit on Fourier features of a kernel."""

    _allowed: tuple[type[Stationary], ...]

    @abstractmethod
    def _frequencies(self, terms: list[Term], rng: np.random.Generator) -> list[tuple[Array, Array]]:
        """Of each term: frequencies (D, stop − start) of its columns in units of 1/ℓ; weights (D,), which add up to 1."""

    def _feature_map(self, rng: np.random.Generator) -> FeatureMap:
        d = self.arms.shape[1]
        blocks, weights = list[Array](), list[Array]()
        summands = terms_of(self.kernel, d, self._allowed)
        for term, (frequencies, probabilities) in zip(summands, self._frequencies(summands, rng), strict=True):
            block = np.zeros((len(frequencies), d))
            block[:, term.start : term.stop] = frequencies / term.lengthscales
            blocks.append(block)
            weights.append(term.constant * probabilities)
        return Waves(self.arms.mean(axis=0, dtype=np.float64), np.vstack(blocks), np.concatenate(weights))


@dataclass(frozen=True)
class Waves:
    """φ(x) = (√p_j cos ω_jᵀ(x − o), √p_j sin ω_jᵀ(x − o))_j, o any origin; ω = 0 has no sine."""

    origin: Array  # (d,)
    frequencies: Array  # (D, d)
    weights: Array  # (D,)

    def __call__(self, X: Array) -> Array:
        P = (X - self.origin) @ self.frequencies.T
        roots, waving = np.sqrt(self.weights), self.frequencies.any(axis=1)
        return np.hstack([roots * np.cos(P), roots[waving] * np.sin(P[:, waving])])
