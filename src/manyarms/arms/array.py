"""Candidates held in memory as one read-only float64 array."""

import numpy as np

from manyarms.errors import ArmsError
from manyarms.typing import AnyArray, Array, ArrayLike


def as_rows(arms: ArrayLike, n_columns: int | None = None) -> Array:
    """The candidates as a read-only float64 array (A, d); shares memory with a float64 input and never changes it.

    Raises ArmsError for anything but a non-empty two-dimensional table of finite real numbers, and where `n_columns` is given
    for rows of another length.
    """
    if np.ma.is_masked(arms):
        raise ArmsError("arms must not be masked; fill the masked values or leave the rows out")
    try:
        X: AnyArray = np.asarray(arms)
    except ValueError as error:
        raise ArmsError(f"arms must be a rectangular table of numbers: {error}") from error
    if X.dtype.kind not in "fiub":
        raise ArmsError(f"arms must be real numbers, got dtype {X.dtype}; encode other columns as numbers first")
    if X.ndim != 2:
        raise ArmsError(f"arms must have shape (n_arms, n_features), got {X.shape}; a single feature is arms.reshape(-1, 1)")
    if 0 in X.shape:
        raise ArmsError(f"arms must hold at least one arm and one feature, got shape {X.shape}")
    if n_columns is not None and X.shape[1] != n_columns:
        raise ArmsError(f"rows must have the {n_columns} features of the arms, got {X.shape[1]}")
    rows: Array = X.astype(np.float64, copy=False).view()
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        row, column = bad[0]
        raise ArmsError(f"arms must be finite, got {rows[row, column]} in row {row}, column {column}")
    rows.setflags(write=False)
    return rows
