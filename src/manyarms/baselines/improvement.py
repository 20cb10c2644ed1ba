"""Expected improvement (Mockus 1978) and probability of improvement (Kushner 1964), on the exact posterior and on BKB's sketch.

An arm is judged by how much f may exceed the incumbent μ⁺, under f(x) ~ N(μ̃(x), β̃²σ̃²(x)):

    EI(x) = E max(0, f(x) − μ⁺),    PI(x) = P(f(x) ≥ μ⁺ + margin).

With noise the best reward seen is luck as well as merit, so the incumbent is the largest posterior *mean* of the pulled arms.
The deviation is β̃σ̃; the radius `Constant(1.0)`, the default, makes it the posterior standard deviation √λσ̃ of f.

No regret guarantee: sublinear regret is proved for EI with inflated deviations and the exact posterior (Wang and de Freitas,
arXiv:1406.7758; Tran-The, Gupta, Rana and Venkatesh, AISTATS 2022), not for the plain deviation, nor for PI, nor on a sketch.
Rates of plain EI are known without noise (Bull, JMLR 2011). A radius that grows may be given as `confidence`.
"""

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import erfcx, ndtr

from manyarms.numbers import real
from manyarms.policies.adaptive import Adaptive
from manyarms.policies.base import Lookahead
from manyarms.policies.gpucb import GPUCB
from manyarms.policies.rules import Rule
from manyarms.sketch.choice import TIE, largest
from manyarms.sketch.confidence import Constant, Radius
from manyarms.typing import Array, ArrayLike, Mask

ROOT_TAU = np.sqrt(2 * np.pi)


class Improvement(Rule):
    """The arm of largest acquisition. In a batch variances shrink, means and incumbent stay."""

    def _pick(self, mean: Array, lookahead: Lookahead, beta: float, number: int, barred: Mask | None) -> int:
        gain = mean - self._incumbent(mean)
        return largest(*self._acquisition(gain, beta * np.sqrt(lookahead.variance)), barred)

    def _incumbent(self, mean: Array) -> float:
        """μ⁺, the largest mean of the pulled arms; the prior's where none was pulled."""
        pulled = self._state.history.pulled
        return float(mean[pulled].max()) if len(pulled) else 0.0

    @abstractmethod
    def _acquisition(self, gain: Array, deviation: Array) -> tuple[Array, Array]:
        """What is to be largest, given μ̃ − μ⁺ and β̃σ̃ of every arm, and by how much rounding may change it, each (A,)."""


class _Expected(Improvement):
    def __init__(
        self, arms: ArrayLike | str | Path, kernel: Any, *, confidence: Radius = Constant(1.0), **options: Any
    ) -> None:
        super().__init__(arms, kernel, confidence=confidence, **options)

    def _acquisition(self, gain: Array, deviation: Array) -> tuple[Array, Array]:
        tail = np.minimum(_standardised(gain, deviation), 0.0)
        return log_expected_improvement(gain, deviation), TIE * (1 + np.square(tail))


class _Probable(Improvement):
    def __init__(self, arms: ArrayLike | str | Path, kernel: Any, *, margin: float = 0.1, **options: Any) -> None:
        self.margin = real(margin, "margin", "a non-negative multiple of the noise", at_least=0)
        super().__init__(arms, kernel, **options)

    def _acquisition(self, gain: Array, deviation: Array) -> tuple[Array, Array]:
        u = _standardised(gain - self.margin * np.sqrt(self.regularization), deviation)  # PI = Φ(u), which increases with u
        return u, TIE * (1 + np.abs(u))


class GPEI(_Expected, GPUCB):
    """Expected improvement on the exact posterior, O(A·u) a step: no regret guarantee in this form.

    confidence : β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    options : the others of `GPUCB`.
    """


class SketchEI(_Expected, Adaptive):
    """Expected improvement on BKB's adaptive sketch, O(A m²) a step: no regret guarantee.

    confidence : β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    options : the others of `BKB`.
    """


class GPPI(_Probable, GPUCB):
    """Probability of improvement on the exact posterior, O(A·u) a step: no regret guarantee.

    margin : by how much to improve, in multiples of √λ, the noise's standard deviation. At 0 the incumbent has probability ½,
        and is pulled until the mean of another arm exceeds its own.
    options : those of `GPUCB`; the radius does not change the choice.
    """


class SketchPI(_Probable, Adaptive):
    """Probability of improvement on BKB's adaptive sketch, O(A m²) a step: no regret guarantee.

    margin : as for `GPPI`.
    options : those of `BKB`; the radius does not change the choice.
    """


def log_expected_improvement(gain: Array, deviation: Array) -> Array:
    """ln E max(0, gain + deviation·g) for g ~ N(0, 1): ln deviation + ln(φ(u) + uΦ(u)), u = gain/deviation.

    φ and Φ vanish in float64 where u < −38, the logarithm does not. Below −1 it is −u²/2 − ln √2π + ln(1 + uΦ(u)/φ(u)); what
    is left in the brackets tends to u⁻², which takes its place from −1000 on.
    """
    u = _standardised(gain, deviation)
    tail, body = np.minimum(u, -1.0), np.maximum(u, -1.0)
    left = np.where(tail > -1e3, 1 + tail * np.sqrt(np.pi / 2) * erfcx(-tail / np.sqrt(2)), tail**-2.0)
    far = -0.5 * np.square(tail) - np.log(ROOT_TAU) + np.log(left)
    with np.errstate(under="ignore"):
        near = np.log(np.exp(-0.5 * np.square(np.minimum(body, 40.0))) / ROOT_TAU + body * ndtr(body))
    return np.asarray(np.log(_floored(gain, deviation)) + np.where(u < -1, far, near))


def _standardised(gain: Array, deviation: Array) -> Array:
    return gain / _floored(gain, deviation)


def _floored(gain: Array, deviation: Array) -> Array:
    """The deviation, or next to nothing where it is zero."""
    floor = 1e-100 * max(float(np.abs(gain).max()), float(deviation.max()))
    return np.maximum(deviation, max(floor, 1e-300))
