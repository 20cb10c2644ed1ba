"""Sparse Gaussian processes: UCB on m inducing arms that are given, or drawn once, and stay.

With z(x) = L⁻¹k_S(x), V = Σωzzᵀ + λI and q = zᵀV⁻¹z as for BKB (names as in Quiñonero-Candela and
Rasmussen, JMLR 2005):

    SoR   subset of regressors                σ̃² = q          the prior variance of f is ‖z(x)‖²
    DTC   deterministic training conditional  σ̃² = r/λ + q    r(x) = k(x, x) − ‖z(x)‖²

The mean zᵀw is the same. Neither has a regret guarantee for a dictionary that does not follow the
pulls. But the features of DTC are frozen before anything is seen, so that the radius `Certified`
holds for it: what the arms in S do not represent counts in e, which grows with every pull of them.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from manyarms.bandit.batches import GoesOn
from manyarms.bandit.checks import as_arms
from manyarms.bandit.policy import Policy
from manyarms.baselines.features import OnFeatures
from manyarms.checks import items_of, whole
from manyarms.engine.base import Arms
from manyarms.engine.embedding import Inducing
from manyarms.engine.linalg import chunks, represented_below
from manyarms.errors import ParameterError
from manyarms.kernels import Kernel
from manyarms.search.scores import ArmScores, UpperBound
from manyarms.typing import Array, ArrayLike, Indices, TableLike


class OnDictionary(Policy):
    """A policy on inducing arms that stay as they are."""

    @property
    def inducing(self) -> Indices:
        """The arms the posterior rests on, in index order: S without those the others represent."""
        coordinates = self.belief.feature_map  # type: ignore[attr-defined]
        return np.sort(coordinates.inducing.keys)


class DTC(OnDictionary):
    """UCB on a fixed dictionary with the DTC variance, that of BKB: a step is O(A m).

    An arm that S does not represent keeps its r/λ however often it is pulled, so it may be pulled
    forever: there is no regret guarantee. `choose(None)` is one arm.

    Parameters
    ----------
    arms : array_like, (A, d), or path
        As for `GPUCB`.
    kernel : Kernel
        The covariance of f.
    inducing : array_like or int
        The inducing arms by index, or how many to draw uniformly at random (all, if there are
        fewer).
    **options
        Those of `GPUCB`, without `batches`.
    """

    def __init__(
        self, arms: TableLike, kernel: Any, *, inducing: ArrayLike = 100, **options: Any
    ) -> None:
        made = partial(on_dictionary, inducing, True)
        rule = OnFeatures(made, guarantee="certified")
        super().__init__(arms, kernel, rule=rule, chooser=UpperBound(), batches=OneArm(), **options)


class SoR(OnDictionary):
    """UCB on a fixed dictionary with the variance of the GP whose kernel is zᵀz (Silverman 1985).

    Far from S both mean and variance vanish, whatever was observed: arms there are never explored
    ("variance starvation", the paper's Figure 1). There is no regret guarantee, nor a radius.

    Parameters
    ----------
    arms : array_like, (A, d), or path
        As for `GPUCB`.
    kernel : Kernel
        The covariance of f.
    inducing : array_like or int
        As for `DTC`.
    **options
        Those of `GPUCB`, without `batches`.
    """

    def __init__(
        self, arms: TableLike, kernel: Any, *, inducing: ArrayLike = 100, **options: Any
    ) -> None:
        rule = OnFeatures(partial(on_dictionary, inducing, False))
        super().__init__(arms, kernel, rule=rule, chooser=UpperBound(), batches=OneArm(), **options)


def on_dictionary(
    asked: ArrayLike,
    residual: bool,
    kernel: Kernel,
    arms: Arms,
    regularization: float,
    rng: np.random.Generator,
) -> "Coordinates":
    """The coordinates z of a dictionary S that is asked for by index, or by size."""
    n_arms = len(arms.rows)
    if items_of(asked) is None:
        S = rng.permutation(n_arms)[: whole(asked, "inducing (unless arms by index)")]
    else:
        S = np.unique(as_arms(asked, n_arms))
    if not len(S):
        raise ParameterError("inducing must hold at least one arm, got none")
    # Before any pull: n_max = 1 pull of an arm.
    tolerance = represented_below(len(S), float(arms.diag[S].max()), regularization, 1.0)
    # Near-duplicates in S would only cost digits: pivots below the tolerance are left out.
    W, _ = Inducing.fit(kernel, arms.rows[S], S, tolerance)
    return Coordinates(W, regularization, residual)


@dataclass(frozen=True)
class Coordinates:
    """φ(x) = z(x), and r(x)/λ where the residual counts."""

    inducing: Inducing
    regularization: float
    residual: bool  # whether r/λ counts in the variance

    def __call__(self, X: Array, diag: Array) -> tuple[Array, Array]:
        m = self.inducing.L.n
        Z = np.empty((len(X), m))
        outside = np.zeros(len(X))
        for some in chunks(len(X), m):
            Z[some], r, _ = self.inducing.features(X[some], diag[some])
            if self.residual:
                # What DTC (Eq. 4) keeps of the prior variance, and SoR forgets.
                outside[some] = r / self.regularization
        return Z, outside


@dataclass(frozen=True)
class OneArm:
    """One arm at a time.

    `GlobalRule` would end batches of unrepresented arms at once, and those of starved ones never.
    """

    def started(self, scores: ArmScores) -> GoesOn:
        return lambda positions: not len(positions)
