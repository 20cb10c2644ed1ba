"""Bandits on Fourier features of stationary kernels: RFF draws frequencies, QFF computes them.

    k(x, y) ≈ Σ_j p_j cos ω_jᵀ(x − y) = φ(x)ᵀφ(y)

By Bochner's theorem k is the expectation of cos ωᵀ(x − y) over its spectral density; a policy
supplies frequencies ω_j and weights p_j that stand for it. Multiples of kernels scale the weights.
Sums of kernels and kernels of some columns (``On(RBF(0.3), 0, 2) + On(RBF(0.3), 2, 4)``: an
additive kernel) have the frequencies of every term.
"""

from dataclasses import dataclass, replace
from functools import partial, reduce
from math import prod
from typing import Any

import numpy as np
import scipy

from manyarms.bandit.policy import Policy
from manyarms.baselines.features import FeatureMap, OnFeatures
from manyarms.baselines.linear import by_choice
from manyarms.checks import whole
from manyarms.engine.base import Arms
from manyarms.errors import KernelError, MemoryBudgetError, ParameterError, shortened
from manyarms.kernels import RBF, Kernel, Matern, On, Scaled, Sum
from manyarms.kernels.stationary import Stationary
from manyarms.runtime.machine import half_the_memory
from manyarms.typing import Array, TableLike

MOST_FEATURES = 1 << 12
"""Features beyond which QFF refuses: a step is O(m²), and 8m² bytes are then 128 MiB."""
ACCURACY = 1e-4
"""Largest error of a column's kernel (k(x, x) = 1), over the span of the arms, of the nodes QFF
takes by default. The error falls exponentially with n, so that less would cost few nodes more."""


class RFF(Policy):
    """Frequencies are drawn from the kernel's spectral density: m features, O(A·m + m²) a step.

    Random Fourier features (Rahimi and Recht, NeurIPS 2007) for RBF and Matérn kernels.
    Guarantee: none. φ(x)ᵀφ(y) is within O(1/√m) of k(x, y), but m features hold m directions:
    observations that pin all their weights down leave no variance anywhere, far from all data
    neither (variance starvation), and what is left is confident and wrong. The fewer features for
    the effective dimension of the kernel on all arms, the worse: in the paper's Figure 1, where the
    exact standard deviation away from the data is 1.0, it is about 0.05 with 6 features, 0.8 with
    20 and 0.98 with 200.

    Parameters
    ----------
    arms : array_like, (A, d), or path
        Finite numbers, or a .npy (mapped) or .parquet file that holds them.
    kernel : Kernel
        `RBF` or `Matern`, multiples and sums of them, or such kernels `On` some columns.
    frequencies : int
        D, drawn for every term of a sum; each gives a cosine and a sine, m = 2D features a term.
        They take 8·(A·m + m²) bytes, and 2.5 to 5 times as many while they are computed.
    **options
        Those of `OFUL`.

    Raises
    ------
    MemoryBudgetError
        The features would take more than half of this machine's memory.
    """

    def __init__(
        self, arms: TableLike, kernel: Any, *, frequencies: int = 128, **options: Any
    ) -> None:
        rule = OnFeatures(partial(random_waves, whole(frequencies, "frequencies")))
        super().__init__(arms, kernel, rule=rule, **by_choice(**options))


def random_waves(
    D: int, kernel: Kernel, arms: Arms, regularization: float, rng: np.random.Generator
) -> FeatureMap:
    """Waves of D frequencies a term, drawn."""
    terms = terms_of(kernel, arms.rows.shape[1], (RBF, Matern))
    # Before anything is drawn: D = 10⁹ frequencies alone would take all memory.
    check_memory(len(arms.rows), 2 * D * len(terms))
    weights = np.full(D, 1 / D)  # a Monte Carlo mean
    drawn = [(draw(term.kernel, (D, term.stop - term.start), rng), weights) for term in terms]
    return waves(terms, drawn, arms)


def draw(kernel: Stationary, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Frequencies (D, d) from the spectral density of a kernel of lengthscale 1.

    N(0, I) for RBF; for Matérn a multivariate t of 2ν degrees of freedom, N(0, I) divided by
    √(χ²_{2ν}/2ν).
    """
    normal = rng.standard_normal(shape)
    # Matérn's density has heavier tails the rougher the kernel: ν → ∞ is RBF.
    if isinstance(kernel, Matern):
        normal /= np.sqrt(rng.chisquare(2 * kernel.nu, size=(shape[0], 1)) / (2 * kernel.nu))
    return normal


class QFF(Policy):
    """Frequencies are the nodes of Gauss–Hermite quadrature of the spectral density.

    Quadrature Fourier features (Mutný and Krause, NeurIPS 2018), for RBF kernels of few columns.
    There are Πₖ nₖ features. |φ(x)ᵀφ(y) − k(x, y)| decays exponentially in n once n exceeds about
    (span/2ℓ)². Guarantee: with n of order ln T a column the kernel's error is too small to matter
    over T steps, and the regret is that of the exact method, with its radius (the paper's theorem).
    There is none for a smaller n, nor beyond the span of the arms. Whether n is large enough is not
    checked, so that `Certified` is refused. Features are exponential in the columns of a term:
    take few columns, or a kernel that is additive over groups of few columns.

    Parameters
    ----------
    arms : array_like, (A, d), or path
        Finite numbers, or a .npy (mapped) or .parquet file that holds them.
    kernel : Kernel
        `RBF`, multiples and sums of it, or such kernels `On` some columns.
    nodes : int, optional
        n of every column; by default as few as bring each column's kernel within 1e-4 over the
        span of the arms.
    **options
        Those of `OFUL`.
    """

    def __init__(
        self, arms: TableLike, kernel: Any, *, nodes: int | None = None, **options: Any
    ) -> None:
        given = None if nodes is None else whole(nodes, "nodes")
        rule = OnFeatures(partial(quadrature_waves, given))
        super().__init__(arms, kernel, rule=rule, **by_choice(**options))


def quadrature_waves(
    nodes: int | None, kernel: Kernel, arms: Arms, regularization: float, rng: np.random.Generator
) -> FeatureMap:
    """Waves on the nodes of quadrature, so many a column or as many as it needs."""
    terms = terms_of(kernel, arms.rows.shape[1], (RBF,))
    spans = [np.ptp(arms.rows[:, term.start : term.stop], axis=0) for term in terms]
    sizes = [
        [nodes or nodes_for(float(each)) for each in span / term.lengthscales]
        for term, span in zip(terms, spans, strict=True)
    ]
    m = sum(prod(each) for each in sizes)
    if m > MOST_FEATURES:
        raise ParameterError(
            f"QFF takes at most {MOST_FEATURES} features, got {m:,} from {sizes} nodes a "
            "column: give an additive kernel of few columns a term, larger lengthscales or "
            "fewer nodes, or use BKB"
        )
    check_memory(len(arms.rows), m)
    return waves(terms, [grid(each) for each in sizes], arms)


def quadrature(n: int) -> tuple[Array, Array]:
    """Nodes and weights (n,): Σ p_j g(ω_j) = E g(ω), ω ~ N(0, 1), for g of degree up to 2n − 1."""
    nodes, weights = scipy.special.roots_hermitenorm(
        n
    )  # for the weight exp(−ω²/2), which is not normalised
    return nodes, weights / weights.sum()


def grid(sizes: list[int]) -> tuple[Array, Array]:
    """One of each pair ±ω of the product grid (D, d), with the weight of both (D,)."""
    rules = [quadrature(n) for n in sizes]
    axes = np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij")
    nodes = np.stack(axes, axis=-1).reshape(-1, len(sizes))
    weights = reduce(np.multiply.outer, [weights for _, weights in rules]).ravel()
    # Node i is minus node N − 1 − i, and cos is even: one of the two stands for both.
    half = len(nodes) // 2
    weights[:half] *= 2
    return nodes[: len(nodes) - half], weights[: len(nodes) - half]


def kernel_error(n: int, span: float) -> float:
    """max |Σ p_j cos ω_jτ − exp(−τ²/2)| over 0 ≤ τ ≤ span."""
    nodes, weights = quadrature(n)
    lags = np.linspace(0.0, span, 256)  # the error is smooth in τ
    approximate = np.cos(np.outer(lags, nodes)) @ weights
    return float(np.abs(approximate - np.exp(-np.square(lags) / 2)).max())


def nodes_for(span: float) -> int:
    """About the fewest nodes whose `kernel_error` is at most `ACCURACY`.

    Nodes are π/√n apart in the middle, so that the kernel repeats itself at 2√n: n ≥ (span/2)² at
    least.
    """
    n = 1 + int(min((span / 2) ** 2, MOST_FEATURES))
    while n <= MOST_FEATURES and kernel_error(n, span) > ACCURACY:
        n += 1 + n // 50  # 2 % more than the fewest is cheaper than trying each n
    return n


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
    if isinstance(kernel, allowed):
        return [Term(1.0, kernel, 0, n_columns)]
    match kernel:
        case Sum(first, second):
            return terms_of(first, n_columns, allowed) + terms_of(second, n_columns, allowed)
        case Scaled(inner, c):
            terms = terms_of(inner, n_columns, allowed)
            return [replace(term, constant=c * term.constant) for term in terms]
        case On(inner, at, end):
            terms = terms_of(inner, end - at, allowed)
            return [replace(term, start=term.start + at, stop=term.stop + at) for term in terms]
    names = " or ".join(each.__name__ for each in allowed)
    raise KernelError(
        f"Fourier features need {names} kernels of manyarms, multiples and sums of them, or such "
        f"kernels On some columns; got {shortened(kernel)}: use BKB for other kernels"
    )


def check_memory(n_arms: int, m: int, allowed: float | None = None) -> None:
    """Raise MemoryBudgetError where m features of so many arms take over half of all memory.

    `allowed` is another limit, in bytes.
    """
    features = 8.0 * n_arms * m  # bytes of float64
    factor = 8.0 * m * m
    # Measured: arrays (A, m) while features are made, arrays (m, m) while an arm is observed.
    peak = 2.5 * features + 5.0 * factor
    allowed = half_the_memory() if allowed is None else allowed
    if peak > allowed:
        raise MemoryBudgetError(
            f"{m:,} features of {n_arms:,} arms take 8·A·m = {features / 1e9:.3g} GB and "
            f"8·m² = {factor / 1e9:.3g} GB, and {peak / 1e9:.3g} GB while they are computed; half "
            f"of this machine's memory is {allowed / 1e9:.3g} GB. Give fewer features or fewer "
            "arms, or use BKB, which needs a few numbers an arm"
        )


def waves(terms: list[Term], drawn: list[tuple[Array, Array]], arms: Arms) -> FeatureMap:
    """φ(x) = (√p_j cos ω_jᵀ(x − o), √p_j sin ω_jᵀ(x − o))_j, o any origin; ω = 0 has no sine.

    Of each term there are frequencies (D, columns) in units of 1/ℓ, and weights (D,), which add up
    to 1.
    """
    # A term of some columns has waves that are flat along all others.
    blocks = [np.zeros((len(each), arms.rows.shape[1])) for each, _ in drawn]
    for term, block, (nodes, _) in zip(terms, blocks, drawn, strict=True):
        block[:, term.start : term.stop] = nodes / term.lengthscales
    frequencies = np.vstack(blocks)
    weights = [term.constant * each for term, (_, each) in zip(terms, drawn, strict=True)]
    roots = np.sqrt(np.concatenate(weights))
    waving = frequencies.any(axis=1)
    origin = arms.rows.mean(axis=0, dtype=np.float64)

    def features(X: Array, diag: Array) -> tuple[Array, Array]:
        P = (X - origin) @ frequencies.T
        # cos a cos b + sin a sin b = cos(a − b), so that φ(x)ᵀφ(y) does not depend on the origin.
        found = np.hstack([roots * np.cos(P), roots[waving] * np.sin(P[:, waving])])
        return found, np.zeros(len(X))

    return features
