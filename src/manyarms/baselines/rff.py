"""Random Fourier features (Rahimi and Recht, NeurIPS 2007) for RBF and Matérn kernels."""

from pathlib import Path
from typing import Any

import numpy as np

from manyarms.baselines.features import chosen_by
from manyarms.baselines.fourier import MakesWaves, Term, check_memory
from manyarms.beliefs.base import Arms
from manyarms.beliefs.linear import OnFeatures
from manyarms.kernels import RBF, Matern
from manyarms.kernels.stationary import Stationary
from manyarms.numbers import whole
from manyarms.policies.policy import Policy
from manyarms.sketch.confidence import Radius
from manyarms.typing import Array, ArrayLike, Seed


class RFF(Policy):
    """Frequencies are drawn from the kernel's spectral density: m features, O(A·m + m²) a step.

    Guarantee: none. φ(x)ᵀφ(y) is within O(1/√m) of k(x, y), but m features hold m directions:
    observations that pin all their weights down leave no variance anywhere, far from all data
    neither (variance starvation), and what is left is confident and wrong. The fewer features for
    the effective dimension of the kernel on all arms, the worse: in the paper's Figure 1, where the
    exact standard deviation away from the data is 1.0, it is about 0.05 with 6 features, 0.8 with
    20 and 0.98 with 200.

    arms : (A, d) array of finite numbers, or the path of a .npy (mapped) or .parquet file that
        holds one.
    kernel : `RBF` or `Matern`, multiples and sums of them, or such kernels `On` some columns.
    frequencies : D, drawn for every term of a sum; each gives a cosine and a sine, m = 2D features
        a term. They take 8·(A·m + m²) bytes, and 2.5 to 5 times as many while they are computed;
        more than half of this machine's memory is a MemoryBudgetError.
    The other parameters: `OFUL`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        kernel: Any,
        *,
        frequencies: int = 128,
        regularization: float = 0.01,
        noise: float | None = None,
        confidence: Radius | None = None,
        choice: str = "ucb",
        seed: Seed = 0,
    ) -> None:
        self.frequencies = whole(frequencies, "frequencies")
        super().__init__(
            arms,
            kernel,
            rule=OnFeatures(MakesWaves((RBF, Matern), self._frequencies)),
            regularization=regularization,
            noise=noise,
            seed=seed,
            **chosen_by(choice, confidence),
        )

    def _frequencies(
        self, terms: list[Term], arms: Arms, rng: np.random.Generator
    ) -> list[tuple[Array, Array]]:
        # Before anything is drawn: D = 10⁹ frequencies alone would take all memory.
        D = self.frequencies
        check_memory(len(arms.rows), 2 * D * len(terms))
        weights = np.full(D, 1 / D)
        return [(draw(term.kernel, (D, term.stop - term.start), rng), weights) for term in terms]


def draw(kernel: Stationary, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Frequencies (D, d) from the spectral density of a kernel of lengthscale 1.

    N(0, I) for RBF; for Matérn a multivariate t of 2ν degrees of freedom, N(0, I) divided by
    √(χ²_{2ν}/2ν).
    """
    normal = rng.standard_normal(shape)
    if isinstance(kernel, Matern):
        normal /= np.sqrt(rng.chisquare(2 * kernel.nu, size=(shape[0], 1)) / (2 * kernel.nu))
    return normal
