"""Rows that are equal, found by hashes."""

import numpy as np

from manyarms.typing import AnyArray, Array, Indices

ENTRIES_HASHED = 1 << 20
"""Entries hashed, or compared, at a time."""


def group(rows: Array) -> tuple[Indices, Indices]:
    """The first of each distinct row, in order of appearance, and for each row which of them it equals."""
    _, first, inverse = np.unique(_hashes(rows), return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return np.arange(len(rows)), np.arange(len(rows))
    step = max(1, ENTRIES_HASHED // rows.shape[1])
    slices = [slice(start, start + step) for start in range(0, len(rows), step)]
    if not all(np.array_equal(rows[part], rows[first[inverse[part]]]) for part in slices):
        whole = np.ascontiguousarray(rows).view(f"V{rows.shape[1] * 8}").ravel()
        _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def _hashes(rows: Array) -> AnyArray:
    """64 bits for each row, equal for equal rows; different rows may collide, which the caller checks."""
    weights = np.random.default_rng(0).integers(0, 2**64, rows.shape[1], dtype=np.uint64) | np.uint64(1)
    hashes = np.empty(len(rows), np.uint64)
    step = max(1, ENTRIES_HASHED // rows.shape[1])
    for start in range(0, len(rows), step):
        bits = rows[start : start + step].view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        hashes[start : start + step] = mixed @ weights
    return hashes
