"""Kernels of objects that are no rows of numbers: strings, graphs, sets, anything a function of two
objects can compare.

Policies work on rows. A kernel of objects has an encoder, which makes a row of each object, and is
evaluated on such rows; sums, products and multiples of kernels with equal encoders have it too.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from manyarms.checks import Checked, items_of
from manyarms.errors import ArmsError, KernelError, shortened
from manyarms.kernels.base import FromObject, Kernel, Pair, Pairwise, Scaled
from manyarms.typing import Array

PADDING = -1.0
"""Fills rows up to the width of the longest: no code is negative."""
NUMBER_LIMIT = 2**52
"""Codes are below this: rows are float64, which holds such whole numbers exactly."""


class Encoder(Protocol):
    """From objects to rows of numbers that keep all a kernel needs."""

    def encode(self, objects: Sequence[Any]) -> Array:
        """A row for each object, (n, as wide as the widest needs); `PADDING` fills the others."""

    def show(self, row: Array) -> str:
        """How a message names the object of a row."""


class ObjectKernel(Kernel):
    """A kernel of objects, called with the rows that `encode` makes of them; policies encode arms
    that are objects."""

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """What makes rows of objects."""

    def encode(self, objects: Sequence[Any]) -> Array:
        """A row for each object."""
        listed = items_of(objects)
        if listed is None:
            raise ArmsError(
                f"{self!r} takes a sequence of objects, such as a list, got {shortened(objects)}"
            )
        return self.encoder.encode(listed)

    def diag(self, X: Array) -> Array:
        return np.ones(len(checked(np.asarray(X))))


def checked(rows: Array, below: int = NUMBER_LIMIT) -> Array:
    """Rows as an encoder makes them, whole numbers from −1 on and below some number, or
    ArmsError."""
    is_code = (rows >= -1) & (rows < below) & (np.floor(rows) == rows)
    if not is_code.all():
        raise ArmsError(
            "rows of objects are those that kernel.encode(objects) gives, whole numbers from "
            f"-1 to {below - 1}, got {rows[~is_code][0]}; encode the objects, or give them as a "
            "list"
        )
    return rows


class OnObjects(Pairwise, ObjectKernel):
    """k(x, y) = ``function(x, y)`` of two objects of any kind. Slow: one Python call a pair.

    A row is the number of an object among all that were encoded; they are kept for as long as the
    kernel is. An object that comes again, itself and not one equal to it, has the number it had.

    Parameters
    ----------
    function : callable
        From two objects to a real number. It must be a covariance.
    """

    advice = "it must give one real number for two objects"

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        if not callable(function):
            raise KernelError(
                f"OnObjects takes a function of two objects, got {shortened(function)}"
            )
        # Rows of one number each come in, objects go to the function.
        super().__init__(lambda x, y: function(self._encoder[x], self._encoder[y]))
        self._name = getattr(function, "__name__", repr(function))
        self._encoder = Numbered()

    @property
    def encoder(self) -> "Numbered":
        """Numbers objects as they come."""
        return self._encoder

    def __repr__(self) -> str:
        return f"OnObjects({self._name})"


class Numbered:
    """An object's row is its number. The list only grows, so that a row stays the object it was."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # by id(): the objects are kept, so it stays theirs

    def encode(self, objects: Sequence[Any]) -> Array:
        """The number of each, a new one where it was not seen before, (n, 1)."""
        # By identity: an object need be neither hashable nor comparable.
        for each in objects:
            if self._numbers.setdefault(id(each), len(self._objects)) == len(self._objects):
                self._objects.append(each)
        numbers = [self._numbers[id(each)] for each in objects]
        return np.array(numbers, dtype=np.float64).reshape(-1, 1)

    def __getitem__(self, row: Array) -> Any:
        if len(row) != 1 or not 0 <= row[0] < len(self._objects) or row[0] != int(row[0]):
            raise KernelError(
                f"a row must be a number that encode() gave, below {len(self._objects)}; got {row}"
            )
        return self._objects[int(row[0])]

    def show(self, row: Array) -> str:
        """The object as Python shows it, cut short."""
        return shortened(self[row])


def encoder_of(kernel: Kernel) -> Encoder | None:
    """The encoder of a kernel of objects, or of an expression of such; None for kernels of rows of
    numbers."""
    match kernel:
        case ObjectKernel():
            return kernel.encoder
        case Scaled(kernel=inner) | FromObject(function=Kernel() as inner):
            return encoder_of(inner)
        case Pair(first, second):
            one = encoder_of(first)
            if one != encoder_of(second):
                raise KernelError(
                    f"{first!r} and {second!r} take different objects; combine kernels of the "
                    "same ones"
                )
            return one
    return None


def shown(kernel: Kernel, row: Array) -> str:
    """How a message names a row: as its object where it is one."""
    encoder = encoder_of(kernel)
    return str(row) if encoder is None else encoder.show(row)


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
