"""Arms by number: those of a policy's table, then rows that were observed by value."""

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path

import numpy as np

from manyarms.arms import as_rows
from manyarms.arms.array import Checked
from manyarms.arms.objects import encoded
from manyarms.arms.seen import Index
from manyarms.errors import ArmsError, ParameterError, UnknownArmError
from manyarms.kernels import Kernel
from manyarms.kernels.objects import encoder_of
from manyarms.numbers import whole
from manyarms.policies.checks import as_arms, is_rows
from manyarms.sketch.history import History
from manyarms.typing import Array, ArrayLike, Indices


class Numbered(ABC):
    """What a policy knows of arms; those observed by value are in its history."""

    arms: Array  # (A, d)
    kernel: Kernel
    _diag: Array  # (A,) k(x, x)
    _takes_rows = False  # `_among` is there, and `_observed` takes arms that are not in the table
    _index_cache: Index | None = None

    @property
    def n_arms(self) -> int:
        """A, the number of arms in the table."""
        return len(self.arms)

    @property
    def n_features(self) -> int:
        """d, the columns of a row."""
        return int(self.arms.shape[1])

    @abstractmethod
    def _diagonal(self, X: Array) -> Array:
        """k(x, x) of rows."""

    @abstractmethod
    def _check_kernel(self, X: Array, diag: Array) -> None:
        """Raise KernelError where the kernel cannot work on these rows."""

    def _rows(self, history: History, arms: Indices) -> Array:
        """Rows of arms, of the table or seen."""
        return _numbered_through(self.arms, history.seen.rows, arms)

    def _diags(self, history: History, arms: Indices) -> Array:
        """k(x, x) of arms, of the table or seen."""
        return _numbered_through(self._diag, history.seen.diag, arms)

    def _numbered(self, arms: ArrayLike, history: History) -> tuple[History, Indices]:
        """Arms given by number or by value, as numbers, and the history that knows the rows it did not."""
        if not is_rows(arms):
            return history, self._numbers(arms, self.n_arms + (len(history.seen) if self._takes_rows else 0))
        if not len(np.asarray(arms)):
            return history, np.zeros(0, dtype=np.intp)
        rows = self._given(arms).astype(np.float64) + 0.0  # −0 is 0
        numbers, seen = np.full(len(rows), -1, dtype=np.intp), history.seen
        if self.n_arms:
            self._index_cache = self._index_cache or Index.of(self.arms)
            numbers = self._index_cache.find(rows, self.arms)
        found = seen.find(rows)
        numbers = np.where((numbers < 0) & (found >= 0), self.n_arms + found, numbers)
        new = numbers < 0
        if new.any():
            distinct, at = np.unique(rows[new], axis=0, return_inverse=True)
            numbers[new] = self.n_arms + len(seen) + at.ravel()
            history = replace(history, seen=seen.with_more(distinct, self._diagonal(distinct)))
        return history, numbers

    def _numbers(self, arms: ArrayLike, n_arms: int) -> Indices:
        """Arms by number, checked."""
        try:
            return as_arms(arms, n_arms)
        except ArmsError as error:
            if isinstance(error, UnknownArmError) or not self._takes_rows or encoder_of(self.kernel) is None:
                raise
            raise ArmsError(f"objects are given by their rows, kernel.encode(objects), or by number: {error}") from error

    def _given(self, arms: ArrayLike) -> Array:
        """Rows given in place of the table's, checked."""
        if not self._takes_rows:
            raise ArmsError(
                f"{type(self).__name__} chooses among the arms it was made with and knows them by number; "
                "BKB and GPUCB take arms by value"
            )
        X = as_rows(encoded(arms, self.kernel, self.n_features), self.n_features)
        if not self.n_arms:
            self._check_kernel(X, self._diagonal(X))
        return X

    def _table(self, arms: ArrayLike | str | Path | Checked | None, n_features: int | None) -> Array:
        """The policy's own arms; none where they are given at every choice."""
        if arms is not None:
            if n_features is not None:
                raise ParameterError(f"n_features is for policies without arms of their own, got {n_features!r} and arms too")
            return as_rows(arms)
        if not self._takes_rows:
            raise ArmsError(f"{type(self).__name__} needs its arms when it is made; BKB and GPUCB do without")
        return np.zeros((0, whole(n_features, "n_features (where arms are None)")))

    def _check_table(self) -> None:
        if not self.n_arms:
            raise ArmsError("the policy was made without arms: pass those of now, as choose(arms=X) or predict(X)")


def _numbered_through(own: Array, seen: Array, arms: Indices) -> Array:
    """What belongs to arms, of which the first are the table's own and the others were seen."""
    if not len(seen):
        return own[arms]
    inside, values = arms < len(own), np.empty((len(arms), *seen.shape[1:]))
    values[inside], values[~inside] = own[arms[inside]], seen[arms[~inside] - len(own)]
    return values
