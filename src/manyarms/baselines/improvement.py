"""Expected improvement (Mockus 1978) and probability of improvement (Kushner 1964).

Both are here on the exact posterior and on BKB's sketch.

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
from typing import Any, ClassVar

import numpy as np
import scipy

from manyarms.beliefs.exact import Exact
from manyarms.beliefs.frozen import Inserted
from manyarms.numbers import real
from manyarms.policies.policy import Policy
from manyarms.search.scores import TIE, View
from manyarms.sketch.confidence import Constant, Radius
from manyarms.sketch.linalg import TINY
from manyarms.typing import Array, TableLike

ROOT_TAU = np.sqrt(2 * np.pi)
"""√2π, by which exp(−u²/2) is divided to be a density."""
DEEP_TAIL = -1e3
"""Standardised gain u below which 1 + uΦ(u)/φ(u) is u⁻²: the next term of its expansion, 3u⁻⁴, is
3e-6 of it there, and the difference from 1 has lost six digits."""
NO_SPREAD = 1e-100
"""Deviation, in units of the largest gain or deviation, that stands for 0: u stays finite."""


@dataclass(frozen=True)
class ExpectedImprovement:
    """The arm of largest EI. In a batch variances shrink, means and incumbent stay."""

    looks: ClassVar[bool] = True

    def pick(self, view: View) -> int:
        best = incumbent(view)

        def acquisition(mean: Array, deviation: Array) -> tuple[Array, Array]:
            gain = mean - best
            width = view.beta * deviation
            # ln EI falls like −u²/2 in the tail, and its rounding error grows with it.
            tail = np.minimum(_standardised(gain, width), 0.0)
            return log_expected_improvement(gain, width), TIE * (1 + np.square(tail))

        return view.scores.arg_max(acquisition, view.barred)


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
            gain = mean - best
            # PI = Φ(u), which increases with u.
            u = _standardised(gain - margin, view.beta * deviation)
            return u, TIE * (1 + np.abs(u))

        return view.scores.arg_max(acquisition, view.barred)


def incumbent(view: View) -> float:
    """μ⁺, the largest mean of the pulled arms, or of all arms where only other rows were observed.

    Before any observation it is the mean of the prior.
    """
    if not view.n_observations:
        return 0.0  # the prior has mean 0
    mean, _ = view.scores.current()
    pulled = view.log.pulled
    return float((mean[pulled] if len(pulled) else mean[: view.n_arms]).max())


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
    """Expected improvement on BKB's sketch, O(A m) a step: no regret guarantee.

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


def log_expected_improvement(gain: Array, deviation: Array) -> Array:
    """ln E max(0, gain + deviation·g) for g ~ N(0, 1).

    It is ln deviation + ln(φ(u) + uΦ(u)), u = gain/deviation.
    φ and Φ vanish in float64 where u < −38, the logarithm does not. Below −1 it is −u²/2 − ln √2π +
    ln(1 + uΦ(u)/φ(u)); what is left in the brackets tends to u⁻², which takes its place from −1000
    on.
    """
    u = _standardised(gain, deviation)
    tail = np.minimum(u, -1.0)
    body = np.maximum(u, -1.0)
    # Φ(u)/φ(u) = √(π/2) erfcx(−u/√2), the scaled function, which does not underflow.
    ratio = np.sqrt(np.pi / 2) * scipy.special.erfcx(-tail / np.sqrt(2))
    left = np.where(tail > DEEP_TAIL, 1 + tail * ratio, tail**-2.0)
    far = -0.5 * np.square(tail) - np.log(ROOT_TAU) + np.log(left)
    with np.errstate(under="ignore"):
        # φ(40) is 0 in float64 already; a larger u would overflow its square.
        density = np.exp(-0.5 * np.square(np.minimum(body, 40.0))) / ROOT_TAU
        near = np.log(density + body * scipy.special.ndtr(body))
    return np.asarray(np.log(_floored(gain, deviation)) + np.where(u < -1, far, near))


def _standardised(gain: Array, deviation: Array) -> Array:
    return gain / _floored(gain, deviation)


def _floored(gain: Array, deviation: Array) -> Array:
    """The deviation, or next to nothing where it is zero."""
    floor = NO_SPREAD * max(float(np.abs(gain).max()), float(deviation.max()))
    return np.maximum(deviation, max(floor, TINY))
