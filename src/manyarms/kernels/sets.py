"""The kernel of sets, and of multisets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from manyarms.checks import is_whole, items_of
from manyarms.errors import ArmsError, shortened
from manyarms.kernels.bags import Bags, Counts, checked
from manyarms.kernels.objects import PADDING, ObjectKernel
from manyarms.typing import Array

HASHED_TYPES = str | bytes | int | float | None
"""What can be hashed the same everywhere; tuples of such too."""
MOST_COPIES = 10_000
"""Of an element in a multiset: each is a number of the row."""


@dataclass(frozen=True)
class Sets:
    """A set's row is its elements, hashed to 52 bits; the j-th copy of an element of a multiset is
    an element of its own."""

    def encode(self, objects: Sequence[Any]) -> Array:
        """The elements of each set, (n, most elements)."""
        # 52 of the 64 bits, which float64 holds; sorted, so that equal sets have equal rows.
        bags = [
            sorted({number(element) >> 12 for element in _elements(each, i)})
            for i, each in enumerate(objects)
        ]
        rows = np.full((len(bags), max(map(len, bags), default=1) or 1), PADDING)
        for row, bag in zip(rows, bags, strict=True):
            row[: len(bag)] = bag
        return rows

    def show(self, row: Array) -> str:
        """The size is all that a row tells."""
        return f"a set of {int((row != PADDING).sum())} elements"


@dataclass(frozen=True)
class Jaccard(ObjectKernel):
    """k(x, y) = |x ∩ y|/|x ∪ y| of sets; of multisets Σ min/Σ max of their counts, the MinMax
    kernel; 1 for two empty ones.

    Arms are sets or other iterables, or mappings from elements to counts such as
    `collections.Counter`. Elements are strings, numbers and tuples of such.
    """

    @property
    def encoder(self) -> Sets:
        """Of sets."""
        return Sets()

    def __call__(self, X: Array, Y: Array) -> Array:
        X = np.asarray(X)
        Y = np.asarray(Y)
        K = Counts(Bags.of(Y)).shared(Bags.of(X))  # |x ∩ y|: no element is twice in a row
        union = (X >= 0).sum(axis=1)[:, None] + (Y >= 0).sum(axis=1) - K
        return np.asarray(np.divide(K, union, out=np.ones_like(K), where=union > 0))

    def diag(self, X: Array) -> Array:
        return np.ones(len(checked(np.asarray(X))))


def number(thing: Any) -> int:
    """64 bits of a string, a number or a tuple of such; the same for what is equal, in every
    process."""
    if isinstance(thing, np.generic):
        thing = thing.item()
    if isinstance(thing, int) or (isinstance(thing, float) and thing.is_integer()):
        thing = int(thing)  # 1 == 1.0 == True, and members of an IntEnum
    elif isinstance(thing, str):
        thing = str.__str__(thing)
    if isinstance(thing, tuple):
        thing = ("tuple", *map(number, thing))
    elif not isinstance(thing, HASHED_TYPES):
        raise ArmsError(
            "labels and elements must be strings, numbers or tuples of such, got "
            f"{shortened(thing)} of type "
            f"{type(thing).__name__}; convert them"
        )
    # Python's own hash of a string differs from process to process.
    return int.from_bytes(blake2b(repr(thing).encode(), digest_size=8).digest(), "little")


def _elements(each: Any, at: int) -> Iterable[Any]:
    elements = items_of(each)
    if elements is None:
        raise ArmsError(
            f"arms must be sets, lists or counters of elements, got {shortened(each)} at {at}"
        )
    if not isinstance(each, Mapping):
        return elements
    for element, count in each.items():
        if not (is_whole(count) or isinstance(count, bool)) or not 0 <= count <= MOST_COPIES:
            raise ArmsError(
                f"counts must be whole numbers from 0 to {MOST_COPIES:,}, got {shortened(count)} "
                f"of {shortened(element)} at {at}"
            )
    # Copy 0 is the element itself: a set and a counter of ones have equal rows.
    return [
        ("copy", j, element) if j else element
        for element, count in each.items()
        for j in range(count)
    ]
