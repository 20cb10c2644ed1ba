"""A ball with a linear kernel, where the maximum of u is known.

With k(x, y) = c·xᵀy the score is u(x) = θᵀx + β̃√(xᵀMx), the largest θ′ᵀx over the ellipsoid θ′ = θ
+ β̃M^½v, ‖v‖ ≤ 1 (Abbasi-Yadkori, Pál and Szepesvári 2011).
"""

from dataclasses import dataclass

import numpy as np
import scipy

from manyarms.bandit.score import Score
from manyarms.checks import real, store, whole
from manyarms.errors import ArmsError, KernelError
from manyarms.kernels import Kernel, Linear, Scaled
from manyarms.lapack import in_one_thread
from manyarms.space.box import finite_rows
from manyarms.typing import Array, ArrayLike

OUTSIDE = 1e-8
"""How far outside, relative to the size of the domain, a row may be by rounding: about √ε, half of
float64's digits."""
SINGULAR = 1e-13
"""Relative distance from the top eigenvalue at which ν − d counts as 0: some 500 ε."""


@dataclass(frozen=True)
class Ball:
    """‖x‖ ≤ radius in some dimension, with a linear kernel without bias: `maximise` is exact.

    Parameters
    ----------
    dimension : int
        Columns of a row.
    radius : float
        Above 0.
    """

    dimension: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        store(
            self,
            dimension=whole(self.dimension, "dimension", at_most=10**6),
            radius=real(self.radius, "radius", "a positive number", above=0),
        )

    def checked(self, rows: ArrayLike) -> Array:
        """Rows (n, d), all inside, or ArmsError."""
        X = finite_rows(rows, self.dimension)
        norms = np.linalg.norm(X, axis=1)
        if norms.max(initial=0.0) > self.radius * (1 + OUTSIDE):
            raise ArmsError(
                f"row {X[int(np.argmax(norms))]} is outside the ball: its norm {norms.max()} "
                f"exceeds {self.radius}"
            )
        return X

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Rows drawn uniformly, (n, d)."""
        directions = rng.standard_normal((n, self.dimension))
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        # A ball of radius s has s^d of the volume.
        return np.asarray(self.radius * rng.random((n, 1)) ** (1 / self.dimension) * directions)

    @in_one_thread
    def maximise(self, score: Score, _: "Ball", rng: np.random.Generator) -> Array:
        """The maximum of u: max_x max_θ′ θ′ᵀx = radius·max ‖θ′‖ over the ellipsoid, at x along the
        longest θ′.

        ‖θ + β̃M^½v‖² over ‖v‖ = 1 is a quadratic on a sphere, whose maximum solves a secular
        equation.
        """
        constant, bias = linear_parts(score.kernel)
        if bias:
            raise KernelError(
                f"over a ball the kernel is Linear() without a bias, got {score.kernel!r}"
            )
        belief = score.belief.base
        B = constant * belief.W  # k_W(x) = Bx and z = L⁻¹Bx
        theta = B.T @ score.alpha
        Z = belief.L.solve(B)
        # xᵀMx = σ̃²(x) = r(x)/λ + zᵀV⁻¹z, with r(x) = xᵀ(cI − ZᵀZ)x.
        left_out = constant * np.eye(self.dimension) - Z.T @ Z
        M = left_out / belief.regularization + belief.factor.half(Z).gram
        # In the basis of eigenvectors, β̃M^½ is diagonal: `half`.
        eigenvalues, E = np.linalg.eigh((M + M.T) / 2)
        half = score.beta * np.sqrt(np.maximum(eigenvalues, 0.0))
        longest = theta + E @ (half * on_sphere(half * half, half * (E.T @ theta)))
        length = float(np.linalg.norm(longest))
        return np.asarray(self.radius / length * longest) if length else self.radius * E[:, -1]


def on_sphere(d: Array, b: Array) -> Array:
    """The maximum of Σ d_j v_j² + 2bᵀv over ‖v‖ = 1: v = b/(ν − d), ν ≥ max d such that ‖v‖ = 1
    (the secular equation)."""
    top = float(d.max())
    size = float(np.linalg.norm(b))

    def excess(nu: float) -> float:
        return float(np.linalg.norm(b / (nu - d))) - 1.0

    # ‖v‖ falls with ν; at ν = max d + ‖b‖ it is at most 1.
    margin = SINGULAR * (top + size)
    low = top + margin
    high = top + size
    if size == 0 or excess(low) <= 0:
        # The hard case: no ν > max d has ‖v‖ = 1. What is missing lies along a top eigenvector.
        rest = d < top - margin
        v = np.where(rest, b / np.where(rest, top - d, 1.0), 0.0)
        v[int(np.argmax(d))] += np.sqrt(max(0.0, 1.0 - float(v @ v)))
    else:
        nu = high
        if excess(high) < 0:
            nu = scipy.optimize.brentq(excess, low, high, xtol=1e-15 * high)
        v = b / (nu - d)
    return np.asarray(v / np.linalg.norm(v))


def linear_parts(kernel: Kernel) -> tuple[float, float]:
    """c and the bias of the kernel c·(xᵀy + bias); KernelError for others."""
    if isinstance(kernel, Scaled):
        constant, bias = linear_parts(kernel.kernel)
        return kernel.constant * constant, bias
    if isinstance(kernel, Linear):
        return 1.0, kernel.bias
    raise KernelError(
        f"a ball or a polytope takes a linear kernel, got {kernel!r}; use a Box and its maximiser"
    )
