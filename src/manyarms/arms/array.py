"""Candidates as one read-only array (A, d): in memory, or mapped from a .npy file so that only what
is touched is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.errors import ArmsError
from manyarms.numbers import NO_ARRAY
from manyarms.sheets.parquet import read_parquet
from manyarms.typing import AnyArray, Array, ArrayLike

ROWS_READ = 1 << 16
"""Rows checked for NaN and infinity at a time: a mapped file is never in memory as a whole."""


@dataclass(frozen=True)
class Checked:
    """Rows that came from `as_rows`, for policies made again and again on one table."""

    rows: Array


def as_rows(arms: "ArrayLike | str | Path | Checked", n_columns: int | None = None) -> Array:
    """The candidates as a read-only array of float64 or float32, (A, d).

    Shares memory with such an input and never changes it; a .npy file is mapped, a .parquet file is
    read (all its columns, with polars). Raises ArmsError for anything but a non-empty
    two-dimensional table of finite real numbers, and where `n_columns` is given for rows of another
    length. What is `Checked` already is not looked at again.
    """
    if isinstance(arms, Checked):
        return arms.rows
    X = _read(Path(arms)) if isinstance(arms, str | Path) else _array(arms)
    if X.dtype.kind not in "fiub":
        raise ArmsError(
            f"arms must be real numbers, got dtype {X.dtype}; encode other columns as numbers first"
        )
    if X.ndim != 2:
        raise ArmsError(
            f"arms must have shape (n_arms, n_features), got {X.shape}; a single feature is "
            "arms.reshape(-1, 1)"
        )
    if 0 in X.shape:
        raise ArmsError(f"arms must hold at least one arm and one feature, got shape {X.shape}")
    if n_columns is not None and X.shape[1] != n_columns:
        raise ArmsError(f"rows must have the {n_columns} features of the arms, got {X.shape[1]}")
    # A view, so that what is made read-only below is ours and not the caller's array.
    rows: AnyArray = X.view() if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    for start in range(0, len(rows), ROWS_READ):
        finite = np.isfinite(rows[start : start + ROWS_READ])
        if not finite.all():
            bad = np.argwhere(~finite)
            row = start + bad[0][0]
            column = bad[0][1]
            raise ArmsError(
                f"arms must be finite, got {rows[row, column]} in row {row}, column {column}"
            )
    rows.setflags(write=False)
    return rows


def _array(arms: Any) -> AnyArray:
    if np.ma.is_masked(arms):
        raise ArmsError("arms must not be masked; fill the masked values or leave the rows out")
    try:
        return np.asarray(arms)
    except NO_ARRAY as error:
        raise ArmsError(f"arms must be a rectangular table of numbers: {error}") from error


def _read(path: Path) -> AnyArray:
    if path.suffix == ".npy":
        try:
            mapped: AnyArray = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # NumPy evaluates the header as Python: anything may come of it
            raise ArmsError(
                f"cannot read {path}: it is no .npy file of numbers, or damaged ({error}); write "
                "it again"
            ) from error
        return mapped
    if path.suffix != ".parquet":
        raise ArmsError(f"arms come from a .npy or a .parquet file, got {path}")
    return read_parquet(path).to_numpy()
