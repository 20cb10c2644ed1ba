"""Rows that are equal: those of one table, and those of two blocks."""

from functools import lru_cache

import numpy as np

from manyarms.typing import AnyArray, Array, Indices

ENTRIES_HASHED = 1 << 20
"""Entries hashed, or compared, at a time: 8 MiB, beside which the copies of a step are small."""
FASTER_THAN_SORTING = 20_000
"""Comparisons of numbers up to which comparing every two rows is faster than sorting them."""


def group(rows: Array, hashes: AnyArray | None = None) -> tuple[Indices, Indices]:
    """The first of each distinct row, in order of appearance, and for each row which of them it
    equals."""
    hashes = hashes_of(rows) if hashes is None else hashes
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return np.arange(len(rows)), np.arange(len(rows))  # different hashes: different rows
    # Equal hashes may be of different rows. If any are, the bytes themselves are sorted.
    step = max(1, ENTRIES_HASHED // rows.shape[1])
    slices = [slice(start, start + step) for start in range(0, len(rows), step)]
    if not all(np.array_equal(rows[part], rows[first[inverse[part]]]) for part in slices):
        whole = np.ascontiguousarray(rows).view(f"V{rows.shape[1] * 8}").ravel()
        _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    # `unique` sorts by hash; the groups are numbered by their first row instead.
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def equal_rows(X: Array, Y: Array) -> tuple[Indices, Indices]:
    """All pairs (i, j) with x_i = y_j, of many rows in O((n + m)(d + log m)) and not O(nmd)."""
    if len(X) * Y.size <= FASTER_THAN_SORTING:
        found = np.nonzero((X[:, None] == Y).all(axis=2))
        return found[0], found[1]
    keys = row_keys(Y)
    order = np.argsort(keys, kind="stable")
    wanted = row_keys(X)
    first = np.searchsorted(keys, wanted, side="left", sorter=order)
    after = np.searchsorted(keys, wanted, side="right", sorter=order)
    count = after - first
    rows = np.repeat(np.arange(len(X)), count)
    # The places first, first + 1, …, after − 1 of each row that has any.
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    columns = order[np.repeat(first, count) + within]
    equal = (X[rows] == Y[columns]).all(axis=1)
    return rows[equal], columns[equal]


def row_keys(X: Array) -> Array:
    """A number a row, the same for equal rows whatever block they are in: it is summed column by
    column."""
    keys = np.zeros(len(X))
    for j, column in enumerate(X.T):
        keys += np.sqrt(2.0 + 3.0 * j) * column
    return keys


def hashes_of(rows: Array) -> AnyArray:
    """64 bits for each row of float64, equal for equal rows, in every process; different rows may
    collide, which the caller checks."""
    weights = _weights(rows.shape[1])
    hashes = np.empty(len(rows), np.uint64)
    step = max(1, ENTRIES_HASHED // rows.shape[1])
    for start in range(0, len(rows), step):
        bits = rows[start : start + step].view(np.uint64)
        # Each entry by multiplications and shifts as in SplitMix64, then a sum with odd weights
        # modulo 2⁶⁴, another one for each column.
        mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        mixed *= weights
        hashes[start : start + step] = mixed.sum(axis=1)
    return hashes


@lru_cache
def _weights(columns: int) -> AnyArray:
    """Odd numbers of 64 bits, (columns,)."""
    return np.asarray(
        np.random.default_rng(0).integers(0, 2**64, columns, dtype=np.uint64) | np.uint64(1)
    )
