"""A column of bits: lists of 0 and 1, or strings of them, packed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from manyarms.errors import Advice, ArmsError
from manyarms.kernels.inner import BITS, pack
from manyarms.space.columns import Column, Feature
from manyarms.space.values import Label, as_python
from manyarms.typing import AnyArray, Array

ENTRIES_DECODED = 1 << 22
"""Bits decoded at a time, a byte each: 4 MiB."""


@dataclass(frozen=True, eq=False)
class Bits(Column):
    """Bits, packed (`kernels.pack`)."""

    n_bits: int

    @property
    def width(self) -> int:
        return -(-self.n_bits // BITS)

    @classmethod
    def fit(cls, values: pl.Series, name: str, label: Label) -> "Bits":
        texts = not isinstance(values.dtype, pl.List | pl.Array)
        n_bits = len(values.cast(pl.String)[0] if texts else values[0])
        if not n_bits:
            raise ArmsError(
                "column {column!r} must hold {expected}, got none in {place}",
                column=name,
                expected="at least one bit",
                **label(0),
            )
        return cls(name, "bits", n_bits)

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        for start, bits in self.decoded(values, label):
            out[start : start + len(bits)] = pack(bits)

    def decoded(
        self, values: pl.Series, label: Label, entries: int = ENTRIES_DECODED
    ) -> Iterator[tuple[int, AnyArray]]:
        """Blocks of rows of 0 and 1, of about so many entries, each with its first position."""
        n_rows = max(1, entries // self.n_bits)
        texts = not isinstance(values.dtype, pl.List | pl.Array)
        plain = (
            values.cast(pl.String)
            if texts
            else values
            if isinstance(values.dtype, pl.List)
            else values.arr.to_list()
        )
        for start in range(0, len(values), n_rows):
            block = plain.slice(start, n_rows)
            # In bytes, which fill the rows below: a letter of several bytes is refused there.
            lengths = (block.str.len_bytes() if texts else block.list.len()).to_numpy()
            _raise_first(
                lengths != self.n_bits,
                start,
                self,
                values,
                f"{self.n_bits} of them as in the first row",
                label,
            )
            # Strings of one length are one long string, whose bytes less "0" are the bits.
            flat = (
                np.frombuffer(block.str.join("").item().encode(), np.uint8) - ord("0")
                if texts
                else self._entries(block)
            )
            bits = flat.reshape(len(block), self.n_bits)
            # Bytes below "0" have wrapped round to large numbers: one comparison finds all.
            _raise_first(bits.max(axis=1) > 1, start, self, values, "0 and 1", label)
            yield start, bits

    def _entries(self, block: pl.Series) -> AnyArray:
        """The entries of lists one after another, 2 for what is not a bit."""
        entries = block.explode()
        if not entries.dtype.is_numeric() and entries.dtype != pl.Boolean:
            return np.full(len(entries), 2, np.uint8)
        numbers = entries.cast(pl.Float64).fill_null(2.0).to_numpy()  # 2 is no bit: an error
        return np.where((numbers == 0) | (numbers == 1), numbers, 2).astype(np.uint8)

    def feature(self, start: int) -> Feature:
        return Feature(self.name, "bits", start, start + self.width, "bits", n_bits=self.n_bits)


def _raise_first(
    bad: AnyArray, start: int, column: Bits, values: pl.Series, expected: str, label: Label
) -> None:
    if bad.any():
        row = start + int(bad.argmax())
        raise ArmsError(
            "column {column!r} is of bits and must hold {expected} in every row, got {got} "
            "in {place}",
            "correct it",
            "put numbers into columns of their own",
            Advice("leave the column out by {}", "columns", {column.name: "ignore"}),
            column=column.name,
            expected=expected,
            got=as_python(values[row]),
            **label(row),
        )
