"""What policies accept, checked once at the edge."""

from copy import deepcopy
from typing import Any

import numpy as np

from manyarms.checks import LARGEST, LARGEST_SEED, NO_ARRAY, whole
from manyarms.engine.confidence import Radius
from manyarms.errors import (
    ArmsError,
    ObservationError,
    ParameterError,
    StateError,
    UnknownArmError,
    shortened,
)
from manyarms.kernels.base import Kernel
from manyarms.typing import AnyArray, Array, Indices, Mask

NO_ARMS = np.zeros(0, dtype=np.intp)
"""No arms: one object for all who have none."""
NO_ARMS.setflags(write=False)
INTP = np.dtype(np.intp)
FLOAT64 = np.dtype(np.float64)


def as_arms(arms: Any, n_arms: int) -> Indices:
    """Arm indices (n,) from an integer or a sequence of integers."""
    is_one = type(arms) is np.ndarray and arms.dtype == INTP and arms.shape == (1,)
    if is_one and 0 <= arms.item() < n_arms:  # what `choose` returned: most calls
        one: Indices = arms
        return one
    # An empty array is of floats unless it was told otherwise: its type does not matter.
    is_array = isinstance(arms, np.ndarray)
    if (is_array and not arms.size) or (isinstance(arms, tuple | list) and not arms):
        return NO_ARMS
    array = _vector(arms, "arms", ArmsError)
    if array.size == 0:
        return NO_ARMS
    if array.dtype.kind not in "iu":
        came = f"got {_example(array)} ({array.dtype})"
        if not n_arms:
            raise ArmsError(
                f"arms are given by value, as rows (n, d), while none has a number; {came}"
            )
        raise ArmsError(
            f"arms are whole numbers from 0 to {n_arms - 1}, {came}; by value, rows (n, d)"
        )
    outside = (array < 0) | (array >= n_arms)  # −1 is not the last arm here
    if outside.any() and not n_arms:
        raise UnknownArmError(
            f"there is no arm {array[outside][0]}: no arm has a number yet, give rows (n, d)"
        )
    if outside.any():
        raise UnknownArmError(
            f"there is no arm {array[outside][0]}: arms are numbered from 0 to {n_arms - 1}"
        )
    return array.astype(np.intp)


def is_rows(arms: Any) -> bool:
    """Whether arms are given by value: a table with rows in it, not a number or a flat sequence."""
    if isinstance(arms, np.ndarray):
        return arms.ndim == 2 and len(arms) > 0
    try:
        return np.ndim(arms) == 2 and len(arms) > 0
    except NO_ARRAY:  # ragged, or masked within
        return False


def as_excluded(exclude: Any, n_arms: int) -> Mask | None:
    """Which arms must not be chosen, (A,), given by their indices or as a mask; None if all may be
    chosen."""
    if isinstance(exclude, np.ndarray) and exclude.dtype == bool and exclude.shape == (n_arms,):
        barred = exclude
    else:
        arms = as_arms(exclude, n_arms)
        if not len(arms):
            return None
        barred = np.zeros(n_arms, dtype=bool)
        barred[arms] = True
    if barred.all():
        raise StateError(f"no arm is left to choose: all {n_arms} are excluded")
    return barred


def as_rewards(rewards: Any, n: int) -> Array:
    """Rewards (n,): finite real numbers, one for each arm."""
    return _reals(
        rewards,
        n,
        "rewards",
        "leave a trial that failed out, or observe it when its value is known",
    )


def as_weights(noise: Any, n: int, regularization: float) -> Array:
    """Weights λ/ξ² (n,) of observations with noise standard deviation ξ: one for all, or one each;
    1 where None."""
    if noise is None:
        weights = np.empty(n)
        weights.fill(1.0)  # in a third of the time of `np.ones`
        return weights
    array = _vector(noise, "noise", ObservationError)
    sd = np.broadcast_to(
        _reals(array, 1 if np.ndim(noise) == 0 else n, "noise", "give a standard deviation"), n
    )
    if n and sd.min() <= 0:
        raise ObservationError(
            f"noise is a standard deviation and must be positive, got {sd.min()}"
        )
    # What overflows or is divided by zero is refused below.
    with np.errstate(over="ignore", divide="ignore"):
        weights = regularization / np.square(sd)  # ω = ξ²/ξ_s²
    if n and not (np.isfinite(weights).all() and weights.min() > 0):
        raise ObservationError(
            f"noise from {sd.min()} to {sd.max()} gives weights beyond float64; rescale the rewards"
        )
    return weights


def as_radius(confidence: Any) -> Radius:
    """A radius, or another function of the evidence."""
    # A class is callable, and so is a kernel: neither is a radius.
    if isinstance(confidence, type | Kernel) or not callable(confidence):
        raise ParameterError(
            f"confidence must be a radius such as Constant(2.0) or a function, got "
            f"{shortened(confidence)}"
        )
    radius: Radius = confidence
    return radius


def as_generator(seed: Any) -> np.random.Generator:
    """A generator of one's own: a copy of the one given, or a new one from a non-negative
    integer."""
    # A copy, so that two policies with one generator do not disturb each other.
    if isinstance(seed, np.random.Generator):
        return deepcopy(seed)
    name = "seed (unless a numpy Generator)"
    return np.random.default_rng(whole(seed, name, at_least=0, at_most=LARGEST_SEED))


def _reals(values: Any, n: int, name: str, advice: str) -> Array:
    array = _vector(values, name, ObservationError)
    if array.size and array.dtype.kind not in "fiub":
        raise ObservationError(
            f"{name} must be real numbers, got {_example(array)} ({array.dtype}); {advice}"
        )
    if len(array) != n:
        raise ObservationError(
            f"{name} must have one value for each of the {n} arms, got {len(array)}"
        )
    reals = array if array.dtype == FLOAT64 else _in_float64(array)
    fits = np.abs(reals) <= LARGEST  # not so of NaN
    if n and not fits[at := int(fits.argmin())]:
        if np.isfinite(reals[at]):
            advice = "use other units"
        raise ObservationError(
            f"{name} must be finite and at most {LARGEST:.0e} in size, got {reals[at]} at "
            f"position {at}; {advice}"
        )
    return reals.copy()


def _in_float64(array: AnyArray) -> Array:
    """A long double beyond float64 becomes infinite, and is refused later."""
    with np.errstate(over="ignore"):
        return array.astype(np.float64)


def _vector(values: Any, name: str, error: type[Exception]) -> AnyArray:
    if type(values) is np.ndarray and values.ndim == 1:
        return values
    if np.ma.is_masked(values):
        raise error(f"{name} must not be masked; leave the masked ones out")
    try:
        array: AnyArray = np.atleast_1d(np.asarray(values))
    except NO_ARRAY as cause:
        raise error(f"{name} must be a number or a flat sequence of numbers: {cause}") from cause
    if array.ndim != 1:
        raise error(
            f"{name} must be a number or a flat sequence of numbers, got shape {array.shape}"
        )
    return array


def _example(array: AnyArray) -> str:
    return shortened(array[0].item() if hasattr(array[0], "item") else array[0])
