"""Expected improvement (Mockus 1978) as an acquisition that rises with mean and deviation.

An arm is judged by how much f may exceed the incumbent μ⁺, under f(x) ~ N(μ̃(x), s²), s = β̃σ̃(x):

    EI(x) = E max(0, f(x) − μ⁺) = s·h(u),    u = (μ̃(x) − μ⁺)/s,    h(u) = φ(u) + uΦ(u).

It rises with μ̃ (by Φ(u)) and with s (by φ(u)). What is computed is its logarithm, so that arms far
below the incumbent, whose EI is 0 in float64, still have an order (Ament, Daulton, Eriksson,
Balandat and Bakshy, NeurIPS 2023, arXiv:2310.20708). The arm of largest EI is that of largest
log EI.
"""

from dataclasses import dataclass
from functools import cache
from math import log, sqrt
from typing import ClassVar

import numpy as np
import scipy

from manyarms.engine.linalg import TINY
from manyarms.search.scores import TIE, Rising, Upper, View
from manyarms.typing import Array

LOG_ROOT_TAU = 0.5 * log(2 * np.pi)
"""ln √2π: ln φ(u) = −u²/2 − ln √2π."""
DEEP_TAIL = -1e3
"""u below which 1 + uΦ(u)/φ(u) is u⁻²: the next term of its expansion, 3u⁻⁴, is 3e-6 of it there,
and the difference from 1 has lost six digits."""
NO_SPREAD = 1e-100
"""Deviation that stands for 0, in units of the incumbent and of the radius: u stays finite."""
FAR = 40.0
"""|u| up to which ln h is interpolated."""
KNOTS = 256
"""Knots to a unit of u. A chord of a function with |f″| ≤ 1 is off by KNOTS⁻²/8 at most."""
OFF = 1.05 / (8 * KNOTS**2)


@dataclass(frozen=True)
class Improvement(Rising):
    """ln EI over an incumbent μ⁺, deviations being β̃σ̃."""

    incumbent: float
    beta: float

    @property
    def _floor(self) -> float:
        return max(NO_SPREAD * (abs(self.incumbent) + self.beta), TINY)

    def __call__(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        spread = np.maximum(self.beta * deviation, self._floor)
        u = (mean - self.incumbent) / spread
        # ln EI falls like −u²/2 in the tail, and its rounding error grows with it.
        ties = TIE * (1 + np.square(np.minimum(u, 0.0)))
        return np.log(spread) + log_gain(u), ties

    def upper(self, mean: Array, deviation: Array) -> Array:
        """ln h by chords, plus what they may be off by."""
        spread = deviation * self.beta
        np.maximum(spread, self._floor, out=spread)
        u = mean - self.incumbent
        u /= spread
        bound = _interpolated(u)
        bound += np.log(spread, out=spread)
        return bound

    def least(self, mean: float, deviation: float) -> float:
        """The value by a chord, less what that may be off by and eight times what is a tie."""
        spread = max(self.beta * deviation, self._floor)
        u = (mean - self.incumbent) / spread
        ties = 8 * TIE * (1 + min(u, 0.0) ** 2)
        if abs(u) > FAR:
            return log(spread) + float(log_gain(np.array([u]))[0]) - ties
        values, slopes = _chords()
        at = (u + FAR) * KNOTS
        knot = min(int(at), len(slopes) - 1)
        chord = float(values[knot]) + (at - knot) * float(slopes[knot])
        return log(spread) + chord - 2 * OFF - ties

    def needed(self, value: float, deviation: Array) -> Array:
        """The incumbent and as many deviations as ln h(u) = value − ln β̃σ̃ takes, a knot less."""
        spread = np.maximum(self.beta * deviation, self._floor)
        return self.incumbent + spread * _inverse(value - np.log(spread))


def log_gain(u: Array) -> Array:
    """ln h(u) = ln(φ(u) + uΦ(u)), to all digits.

    φ and Φ vanish in float64 where u < −38, the logarithm does not. Below −1 it is −u²/2 − ln √2π +
    ln(1 + uΦ(u)/φ(u)); what is left in the brackets tends to u⁻², which takes its place from −1000
    on.
    """
    tail = np.minimum(u, -1.0)
    body = np.maximum(u, -1.0)
    # Φ(u)/φ(u) = √(π/2) erfcx(−u/√2), the scaled function, which does not underflow.
    ratio = sqrt(np.pi / 2) * scipy.special.erfcx(-tail / sqrt(2))
    left = np.where(tail > DEEP_TAIL, 1 + tail * ratio, tail**-2.0)
    far = -0.5 * np.square(tail) - LOG_ROOT_TAU + np.log(left)
    with np.errstate(under="ignore"):
        # φ(40) is 0 in float64 already; a larger u would overflow its square.
        density = np.exp(-0.5 * np.square(np.minimum(body, 40.0)) - LOG_ROOT_TAU)
        near = np.log(density + body * scipy.special.ndtr(body))
    return np.asarray(np.where(u < -1, far, near))


def _interpolated(u: Array) -> Array:
    """What ln h(u) does not exceed, by less than 2·OFF within FAR."""
    values, slopes = _chords()
    at = u * KNOTS
    at += FAR * KNOTS
    last = len(slopes) - 1
    beyond = at.max(initial=0.0) > last
    below = at.min(initial=0.0) < 0
    if beyond:
        np.minimum(at, last, out=at)
    if below:
        np.maximum(at, 0.0, out=at)
    knots = at.astype(np.intp)
    at -= knots
    at *= slopes[knots]
    at += values[knots]
    if beyond:
        some = np.flatnonzero(u >= last / KNOTS - FAR)
        at[some] = np.log(u[some]) + OFF  # h(u) = u but for e⁻⁷⁰⁰ of it
    if below:
        some = np.flatnonzero(u < -FAR)
        tail = u[some]
        at[some] = OFF - LOG_ROOT_TAU - 0.5 * np.square(tail) - 2 * np.log(-tail)  # h ≤ φ/u²
    return at


def _inverse(gain: Array) -> Array:
    """u with ln h(u) ≤ gain, less than 2/KNOTS below the largest one within FAR."""
    values, _ = _chords()
    knots = np.searchsorted(values, gain) - 2.0
    u = knots / KNOTS - FAR
    # h(u) ≤ φ(u)/u² where u < −FAR, and h(u) ≤ u + 1/FAR² where u > FAR.
    low = gain < values[2]
    tail = gain[low] + LOG_ROOT_TAU + 2 * log(FAR)
    u[low] = -np.sqrt(np.maximum(-2 * tail, FAR**2)) - 1.0 / KNOTS
    high = gain > values[-1]
    with np.errstate(over="ignore"):
        u[high] = np.exp(gain[high] - 2 * OFF) - 1.0
    return u


@cache
def _chords() -> tuple[Array, Array]:
    """ln h at the knots, plus what a chord may be off by, and what it gains to the next knot."""
    knots = np.linspace(-FAR, FAR, int(2 * FAR * KNOTS) + 1)
    values = log_gain(knots)
    return values[:-1] + OFF, np.diff(values)


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
    pulled = view.log.arms
    if len(pulled):
        return view.scores.largest_mean(pulled)
    behind = None
    if view.barred is not None and len(view.barred) > view.n_arms:
        behind = np.arange(len(view.barred)) >= view.n_arms  # rows that are only pending
    leader = view.scores.arg_max(Upper(0.0), behind)  # radius 0: the largest mean
    mean, _ = view.scores.moments(np.array([leader]))
    return float(mean[0])
