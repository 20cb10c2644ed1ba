"""Random Fourier features (Rahimi and Recht, NeurIPS 2007) for RBF and Matérn kernels."""

from pathlib import Path
from typing import Any

import numpy as np

from manyarms.kernels import RBF, Matern
from manyarms.kernels.stationary import Stationary
from manyarms.numbers import whole
from manyarms.policies.fourier import Fourier, Term
from manyarms.sketch.confidence import Radius
from manyarms.typing import Array, ArrayLike, Seed


class RFF(Fourier):
    """UCB or Thompson sampling on frequencies drawn from the kernel's spectral density: O(A·m + m²) a step, m features.

    Guarantee: none. φ(x)ᵀφ(y) is within O(1/√m) of k(x, y), but m features hold m directions: observations that pin all their
    weights down leave no variance anywhere, far from all data neither (variance starvation), and what is left is confident and
    wrong. The fewer features for the effective dimension of the kernel on all arms, the worse: in the paper's Figure 1, where
    the exact standard deviation away from the data is 1.0, it is about 0.05 with 6 features, 0.8 with 20 and 0.98 with 200.

    arms : (A, d) array of finite numbers, or the path of a .npy (mapped) or .parquet file that holds one.
    kernel : `RBF` or `Matern`, multiples and sums of them, or such kernels `On` some columns.
    frequencies : D, drawn for every term of a sum; each gives a cosine and a sine, m = 2D features.
    regularization : λ, a variance; the square of the noise's standard deviation unless there is a reason.
    confidence : the radius β̃; by default `Constant(2.0)`, for Thompson sampling `Constant(1.0)`.
    choice : "ucb" or "thompson".
    seed : an integer or a numpy Generator, which is copied.
    """

    _allowed = (RBF, Matern)

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        kernel: Any,
        *,
        frequencies: int = 128,
        regularization: float = 0.01,
        confidence: Radius | None = None,
        choice: str = "ucb",
        seed: Seed = 0,
    ) -> None:
        self.frequencies = whole(frequencies, "frequencies")
        super().__init__(arms, kernel, regularization=regularization, confidence=confidence, choice=choice, seed=seed)

    def _frequencies(self, terms: list[Term], rng: np.random.Generator) -> list[tuple[Array, Array]]:
        weights = np.full(self.frequencies, 1 / self.frequencies)
        return [(draw(term.kernel, (self.frequencies, term.stop - term.start), rng), weights) for term in terms]


def draw(kernel: Stationary, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Frequencies (D, d) from the spectral density of a kernel of lengthscale 1.

    N(0, I) for RBF; for Matérn a multivariate t of 2ν degrees of freedom, N(0, I) divided by √(χ²_{2ν}/2ν).
    """
    normal = rng.standard_normal(shape)
    if isinstance(kernel, Matern):
        normal /= np.sqrt(rng.chisquare(2 * kernel.nu, size=(shape[0], 1)) / (2 * kernel.nu))
    return normal
