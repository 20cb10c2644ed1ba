"""Quadrature Fourier features (Mutný and Krause, NeurIPS 2018): RBF kernels of few columns."""

from functools import reduce
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import roots_hermitenorm

from manyarms.baselines.features import chosen_by
from manyarms.baselines.fourier import MakesWaves, Term, check_memory
from manyarms.beliefs.base import Arms
from manyarms.beliefs.linear import OnFeatures
from manyarms.errors import ParameterError
from manyarms.kernels import RBF
from manyarms.numbers import whole
from manyarms.policies.policy import Policy
from manyarms.sketch.confidence import Radius
from manyarms.typing import Array, ArrayLike, Seed

MOST_FEATURES = 1 << 12
"""Features beyond which QFF refuses: a step is O(m²)."""
ACCURACY = 1e-4
"""Largest error of a column's kernel, over the span of the arms, of the nodes taken by default."""


class QFF(Policy):
    """Frequencies are the nodes of Gauss–Hermite quadrature of the spectral density.

    There are Πₖ nₖ features. |φ(x)ᵀφ(y) − k(x, y)| decays exponentially in n once n exceeds about
    (span/2ℓ)². Guarantee: with n of order ln T a column the kernel's error is too small to matter
    over T steps, and the regret is that of the exact method, with its radius. There is none for a
    smaller n, nor beyond the span of the arms. Features are exponential in the columns of a term:
    take few columns, or a kernel that is additive over groups of few columns.

    arms : (A, d) array of finite numbers, or the path of a .npy (mapped) or .parquet file that
        holds one.
    kernel : `RBF`, multiples and sums of it, or such kernels `On` some columns.
    nodes : n of every column; by default as few as bring each column's kernel within 1e-4 over the
        span of the arms.
    The other parameters: `OFUL`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        kernel: Any,
        *,
        nodes: int | None = None,
        regularization: float = 0.01,
        noise: float | None = None,
        confidence: Radius | None = None,
        choice: str = "ucb",
        seed: Seed = 0,
    ) -> None:
        self.nodes = None if nodes is None else whole(nodes, "nodes")
        super().__init__(
            arms,
            kernel,
            rule=OnFeatures(MakesWaves((RBF,), self._frequencies)),
            regularization=regularization,
            noise=noise,
            seed=seed,
            **chosen_by(choice, confidence),
        )

    def _frequencies(
        self, terms: list[Term], arms: Arms, rng: np.random.Generator
    ) -> list[tuple[Array, Array]]:
        sizes = [self._nodes(term, arms.rows) for term in terms]
        m = sum(prod(each) for each in sizes)
        if m > MOST_FEATURES:
            raise ParameterError(
                f"QFF takes at most {MOST_FEATURES} features, got {m:,} from {sizes} nodes a "
                "column: give an additive kernel of few columns a term, larger lengthscales or "
                "fewer nodes, or use BKB"
            )
        check_memory(len(arms.rows), m)
        return [grid(each) for each in sizes]

    def _nodes(self, term: Term, rows: Array) -> list[int]:
        """n of each of a term's columns."""
        if self.nodes is not None:
            return [self.nodes] * (term.stop - term.start)
        spans = np.ptp(rows[:, term.start : term.stop], axis=0) / term.lengthscales
        return [nodes_for(float(span)) for span in spans]


def quadrature(n: int) -> tuple[Array, Array]:
    """Nodes and weights (n,): Σ p_j g(ω_j) = E g(ω), ω ~ N(0, 1), for g of degree up to 2n − 1."""
    nodes, weights = roots_hermitenorm(n)
    return nodes, weights / weights.sum()


def grid(sizes: list[int]) -> tuple[Array, Array]:
    """One of each pair ±ω of the product grid (D, d), with the weight of both (D,)."""
    rules = [quadrature(n) for n in sizes]
    axes = np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij")
    nodes = np.stack(axes, axis=-1).reshape(-1, len(sizes))
    weights = reduce(np.multiply.outer, [weights for _, weights in rules]).ravel()
    half = len(nodes) // 2  # node i is minus node N − 1 − i
    weights[:half] *= 2
    return nodes[: len(nodes) - half], weights[: len(nodes) - half]


def kernel_error(n: int, span: float) -> float:
    """max |Σ p_j cos ω_jτ − exp(−τ²/2)| over 0 ≤ τ ≤ span, at 256 points."""
    nodes, weights = quadrature(n)
    lags = np.linspace(0.0, span, 256)
    return float(
        np.abs(np.cos(np.outer(lags, nodes)) @ weights - np.exp(-np.square(lags) / 2)).max()
    )


def nodes_for(span: float) -> int:
    """About the fewest nodes whose `kernel_error` is at most `ACCURACY`.

    Nodes are π/√n apart in the middle, so that the kernel repeats itself at 2√n: n ≥ (span/2)² at
    least.
    """
    n = 1 + int(min((span / 2) ** 2, MOST_FEATURES))
    while n <= MOST_FEATURES and kernel_error(n, span) > ACCURACY:
        n += 1 + n // 50
    return n
