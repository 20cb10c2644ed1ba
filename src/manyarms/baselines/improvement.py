"""Expected improvement (Mockus 1978) and probability of improvement (Kushner 1964).

Both are here on the exact posterior and on BKB's sketch, where most arms are passed over by bounds
on EI, as for upper confidence bounds.

An arm is judged by how much f may exceed the incumbent μ⁺, under f(x) ~ N(μ̃(x), β̃²σ̃²(x)):

    EI(x) = E max(0, f(x) − μ⁺),    PI(x) = P(f(x) ≥ μ⁺ + margin).

With noise the best reward seen is luck as well as merit, so the incumbent is the largest posterior
*mean* of the pulled arms. The deviation is β̃σ̃; the radius `Constant(1.0)`, the default, makes it
the posterior standard deviation √λσ̃ of f.

No regret guarantee: sublinear regret is proved for EI with inflated deviations and the exact
posterior (Wang and de Freitas, arXiv:1406.7758; Tran-The, Gupta, Rana and Venkatesh, AISTATS 2022),
not for the plain deviation, nor for PI, nor on a sketch. Rates of plain EI are known without noise
(Bull, JMLR 2011). A radius that grows may be given as `confidence`.
"""

from dataclasses import dataclass
from functools import cache
from math import log, sqrt
from typing import Any, ClassVar

import numpy as np

from manyarms.bandit.policy import Policy
from manyarms.checks import real
from manyarms.engine.confidence import Constant, Radius
from manyarms.engine.exact import Exact
from manyarms.engine.frozen import Inserted
from manyarms.engine.linalg import TINY
from manyarms.lapack import special
from manyarms.search.scores import TIE, Rising, Upper, View
from manyarms.typing import Array, TableLike

LOG_ROOT_TAU = 0.5 * log(2 * np.pi)
"""ln √2π: ln φ(u) = −u²/2 − ln √2π."""
FAR = 40.0
"""|u| up to which ln h is inverted by a table."""
KNOTS = 256
"""Knots to a unit of u in the table."""


@dataclass(frozen=True)
class Improvement(Rising):
    """ln EI over an incumbent μ⁺, deviations being β̃σ̃.

    With s = β̃σ̃, u = (μ̃ − μ⁺)/s and h(u) = φ(u) + uΦ(u) it is ln s + ln h(u), which rises with μ̃
    (by Φ(u)) and with s (by φ(u)). By its logarithm arms far below the incumbent, whose EI is 0 in
    float64, still have an order (Ament, Daulton, Eriksson, Balandat and Bakshy, NeurIPS 2023,
    arXiv:2310.20708).
    """

    incumbent: float
    beta: float

    def __call__(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        spread = _spread(self.beta, deviation, self.incumbent)
        u = (mean - self.incumbent) / spread
        # ln EI falls like −u²/2 in the tail, and its rounding error grows with it.
        ties = TIE * (1 + np.square(np.minimum(u, 0.0)))
        return np.log(spread) + log_gain(u), ties

    def needed(self, value: float, deviation: Array) -> Array:
        """The incumbent and as many deviations as ln h(u) = value − ln β̃σ̃ takes, a knot less."""
        spread = _spread(self.beta, deviation, self.incumbent)
        return self.incumbent + spread * _inverse(value - np.log(spread))


def _spread(beta: float, deviation: Array, incumbent: float) -> Array:
    """β̃σ̃, not so small that u would be beyond float64."""
    return np.maximum(beta * deviation, max(1e-100 * (abs(incumbent) + beta), TINY))


def log_gain(u: Array) -> Array:
    """ln h(u) = ln(φ(u) + uΦ(u)), to all digits.

    φ and Φ vanish in float64 where u < −38, the logarithm does not. Below −1 it is −u²/2 − ln √2π +
    ln(1 + uΦ(u)/φ(u)); what is left in the brackets tends to u⁻², which takes its place from −1000
    on.
    """
    tail = np.minimum(u, -1.0)
    body = np.maximum(u, -1.0)
    # Φ(u)/φ(u) = √(π/2) erfcx(−u/√2), the scaled function, which does not underflow.
    ratio = sqrt(np.pi / 2) * special.erfcx(-tail / sqrt(2))
    # At −1000 the next term, 3u⁻⁴, is 3e-6 of u⁻², and the difference from 1 has lost six digits.
    left = np.where(tail > -1e3, 1 + tail * ratio, tail**-2.0)
    far = -0.5 * np.square(tail) - LOG_ROOT_TAU + np.log(left)
    with np.errstate(under="ignore"):
        # φ(40) is 0 in float64 already; a larger u would overflow its square.
        density = np.exp(-0.5 * np.square(np.minimum(body, 40.0)) - LOG_ROOT_TAU)
        near = np.log(density + body * special.ndtr(body))
    return np.asarray(np.where(u < -1, far, near))


def _inverse(gain: Array) -> Array:
    """u with ln h(u) ≤ gain, less than 2/KNOTS below the largest one within FAR."""
    values = _table()
    u = (np.searchsorted(values, gain) - 2.0) / KNOTS - FAR
    # h(u) ≤ φ(u)/u² where u < −FAR, and h(u) ≤ u + 1/FAR² where u > FAR.
    low = gain < values[2]
    tail = gain[low] + LOG_ROOT_TAU + 2 * log(FAR)
    u[low] = -np.sqrt(np.maximum(-2 * tail, FAR**2)) - 1.0 / KNOTS
    high = gain > values[-1]
    with np.errstate(over="ignore"):
        u[high] = np.exp(gain[high]) - 1.0
    return u


@cache
def _table() -> Array:
    """ln h at the knots."""
    return log_gain(np.linspace(-FAR, FAR, int(2 * FAR * KNOTS) + 1))


@dataclass(frozen=True)
class ExpectedImprovement:
    """The arm of largest EI. In a batch variances shrink, means and incumbent stay."""

    looks: ClassVar[bool] = True

    def pick(self, view: View) -> int:
        acquisition = Improvement(incumbent(view), view.beta)
        return view.scores.arg_max(acquisition, view.barred)


def incumbent(view: View) -> float:
    """μ⁺, the largest mean of the pulled arms, or of all arms where only other rows were observed.

    With noise the best reward seen is luck as well as merit, so it is a mean. Before any
    observation it is that of the prior.
    """
    if not view.n_observations:
        return 0.0  # the prior has mean 0
    if len(view.log):
        return float(view.scores.means(view.log.pulled)[0].max())
    behind = None
    if view.barred is not None and len(view.barred) > view.n_arms:
        behind = np.arange(len(view.barred)) >= view.n_arms  # rows that are only pending
    leader = view.scores.arg_max(Upper(0.0), behind)  # radius 0: the largest mean
    mean, _ = view.scores.moments(np.array([leader]))
    return float(mean[0])


@dataclass(frozen=True)
class ProbabilityOfImprovement:
    """The arm of largest PI, by a margin of so many √λ. Batches are as those of EI."""

    margin: float = 0.1

    looks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        real(self.margin, "margin", "a non-negative multiple of the noise", at_least=0)

    def pick(self, view: View) -> int:
        best = incumbent(view)
        margin = self.margin * np.sqrt(view.regularization)

        def acquisition(mean: Array, deviation: Array) -> tuple[Array, Array]:
            # PI = Φ(u), which increases with u.
            u = (mean - best - margin) / _spread(view.beta, deviation, best)
            return u, TIE * (1 + np.abs(u))

        return view.scores.arg_max(acquisition, view.barred)


class GPEI(Policy):
    """Expected improvement on the exact posterior, O(A·u) a step: no regret guarantee in this form.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `GPUCB`.
    kernel : Kernel
        The covariance of f.
    confidence : Radius
        β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    **options
        The others of `GPUCB`.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        confidence: Radius = Constant(1.0),
        **options: Any,
    ) -> None:
        super().__init__(
            arms,
            kernel,
            rule=Exact(),
            chooser=ExpectedImprovement(),
            confidence=confidence,
            **options,
        )


class SketchEI(Policy):
    """Expected improvement on BKB's sketch, exact for arms that may be best: no regret guarantee.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `BKB`.
    kernel : Kernel
        The covariance of f.
    rule : Inserted
        Which rows enter the inducing set.
    confidence : Radius
        β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    **options
        The others of `BKB`.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        rule: Inserted = Inserted(),
        confidence: Radius = Constant(1.0),
        **options: Any,
    ) -> None:
        super().__init__(
            arms, kernel, rule=rule, chooser=ExpectedImprovement(), confidence=confidence, **options
        )


class GPPI(Policy):
    """Probability of improvement on the exact posterior, O(A·u) a step: no regret guarantee.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `GPUCB`.
    kernel : Kernel
        The covariance of f.
    margin : float
        By how much to improve, in multiples of √λ, the noise's standard deviation. At 0 the
        incumbent has probability ½, and is pulled until the mean of another arm exceeds its own.
    **options
        Those of `GPUCB`; the radius does not change the choice.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        margin: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(
            arms, kernel, rule=Exact(), chooser=ProbabilityOfImprovement(margin), **options
        )


class SketchPI(Policy):
    """Probability of improvement on BKB's sketch, O(A m) a step: no regret guarantee.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `BKB`.
    kernel : Kernel
        The covariance of f.
    rule : Inserted
        Which rows enter the inducing set.
    margin : float
        As for `GPPI`.
    **options
        Those of `BKB`; the radius does not change the choice.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        rule: Inserted = Inserted(),
        margin: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(
            arms, kernel, rule=rule, chooser=ProbabilityOfImprovement(margin), **options
        )
