"""Candidates that are objects, as the rows that a kernel's encoder makes of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyarms.arms.array import Checked
from manyarms.errors import ArmsError
from manyarms.kernels.base import Kernel
from manyarms.kernels.objects import PADDING, encoder_of
from manyarms.numbers import items_of
from manyarms.typing import Array


def encoded(arms: Any, kernel: Kernel, width: int | None = None) -> Any:
    """The rows of objects, padded to `width`, where the kernel is one of objects; else what came,
    None included.

    A two-dimensional array of numbers is rows already, perhaps narrower ones.
    """
    encoder = encoder_of(kernel)
    if encoder is None or arms is None or isinstance(arms, Checked):
        return arms
    if isinstance(arms, np.ndarray) and arms.ndim == 2 and arms.dtype.kind == "f":
        return widened(arms, width) if len(arms) else arms
    listed = items_of(arms) if isinstance(arms, Sequence | np.ndarray) else None
    if listed is None:
        raise ArmsError(
            f"{kernel!r} takes a sequence of objects, such as a list, got {type(arms).__name__}"
        )
    return widened(encoder.encode(listed), width)


def widened(rows: Array, width: int | None) -> Array:
    """The rows with `PADDING` up to a width."""
    if width is None or rows.shape[1] == width:
        return rows
    if rows.shape[1] > width:
        raise ArmsError(
            f"objects must be no larger than the largest arm: rows of {width} numbers hold it, got "
            "an object that needs "
            f"{rows.shape[1]}; have one as large among the arms, or give a larger n_features where "
            "there are none"
        )
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=PADDING)
