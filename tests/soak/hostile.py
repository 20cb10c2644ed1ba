"""Arguments that nobody should give, and some that are nearly right."""

import datetime
import random
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

import manyarms as ma

WHOLE = [
    0,
    1,
    2,
    3,
    4,
    5,
    8,
    20,
    -1,
    -2,
    2**31,
    2**53,
    2**63,
    2**64,
    -(2**63),
    10**30,
    10**400,
    10**5000,
    -(10**5000),
]
REAL = [
    *(0.0, -0.0, 0.1, 0.5, 0.95, 1.0, 1.5, 2.0, -1.0, 1e-9, 1e9, 1e12, 1e-12, 1e60, 1e99),
    *(1e100, 1.1e100, 1e200, 1e308, -1e308, 5e-324, 1e-320, 1e-200, 1e-100, 1e-50, 1e50),
    *(float("inf"), float("-inf"), float("nan")),
]
TEXT = [
    "",
    "a",
    "b",
    "x",
    "id",
    "x0",
    "rbf",
    "log",
    "never",
    "\0",
    "\ud800",
    "é" * 400,
    "=1",
    "-5",
    "nan",
    "x" * 100_000,
]
TYPES = [
    *(np.int8, np.int64, np.uint8, np.float16, np.float32, np.float64, np.longdouble),
    *(np.complex128, np.bool_, np.str_, np.bytes_, np.object_),
]
OTHER: list[Any] = [
    *(
        None,
        True,
        False,
        ...,
        NotImplemented,
        object(),
        int,
        dict,
        ma.BKB,
        ma.kernels.RBF,
        ma.FAILED,
    ),
    *(1j, b"", b"a", bytearray(b"a"), memoryview(b"abc"), range(3), range(0), slice(3), len, print),
    *(
        Decimal("1.5"),
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("sNaN"),
        Decimal("1e100000"),
        Fraction(10**5000, 3),
        Fraction(1, 3),
        datetime.date(2026, 1, 1),
    ),
    *(datetime.timedelta(1), np.datetime64("2026-01-01"), np.timedelta64(1), np.timedelta64("NaT")),
    *(
        np.float32(0.3),
        np.longdouble(0.3),
        np.float16(7),
        np.int8(-3),
        np.uint64(2**63),
        np.str_("a"),
    ),
    *(np.complex64(1), np.bool_(True), np.ma.masked, pd.NA, pd.NaT, pl.col("a")),
    *(ma.kernels.RBF(0.3), ma.Constant(1.0), ma.Inserted(), ma.Tuning(), ma.Box(x=(0.0, 1.0))),
    np.random.default_rng(0),
    np.random.RandomState(0),
]


class Hostile:
    """Draws arguments; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.last = ExitStack()  # what is to be done at the end

    def one(self, *choices: Any) -> Any:
        """One of these."""
        return self.rng.choice(choices)

    def often(self, value: Callable[[], Any], share: float = 0.8) -> Any:
        """What is right, most of the time."""
        return value() if self.rng.random() < share else self.anything()

    def whole(self) -> Any:
        return self.rng.choice(WHOLE)

    def real(self) -> Any:
        if self.rng.random() < 0.3:
            return self.rng.choice([-1, 1]) * 10.0 ** self.rng.uniform(-120, 120)
        return self.rng.choice(REAL)

    def extreme(self) -> float:
        """A value of any size that may be told."""
        return self.rng.choice([-1, 1]) * 10.0 ** self.rng.uniform(-120, 99.9)

    def scalar(self) -> Any:
        match self.rng.randrange(5):
            case 0:
                return self.whole()
            case 1:
                return self.real()
            case 2:
                return self.rng.choice(TEXT)
            case 3:
                return self.rng.choice(OTHER)
            case _:
                return self.numpy(())

    def shape(self) -> tuple[int, ...]:
        return self.rng.choice(
            [(), (0,), (1,), (3,), (5,), (2, 2), (3, 1), (3, 2), (0, 2), (2, 0), (1, 1, 1)]
        )

    def numpy(self, shape: tuple[int, ...] | None = None) -> Any:
        """An array of some type, of numbers of any size."""
        shape = self.shape() if shape is None else shape
        kind = self.rng.choice(TYPES)
        with np.errstate(all="ignore"):
            numbers = [
                self.rng.choice([0.0, 1.0, 2.0, 0.5, self.real()])
                for _ in range(int(np.prod(shape)))
            ]
            array = np.array(numbers, dtype=np.float64).reshape(shape)
            if kind in (np.int8, np.int64, np.uint8):
                array = np.nan_to_num(array) % 5
            array = array.astype(kind)
        if self.rng.random() < 0.1:
            return np.ma.masked_array(array, mask=self.rng.random() < 0.5)
        return array[()] if self.rng.random() < 0.3 else array

    def anything(self, depth: int = 0) -> Any:
        """Any argument at all."""
        kind = self.rng.randrange(12)
        n = self.rng.choice([0, 1, 2, 3])
        if depth > 2 or kind < 5:
            return self.scalar()
        if kind < 7:
            return self.numpy()
        parts = [self.anything(depth + 1) for _ in range(n)]
        match kind:
            case 7 | 8:
                return parts
            case 9:
                return tuple(parts)
            case 10:
                return {self.rng.choice(TEXT[:6]): part for part in parts}
            case _:
                return self.rng.choice(
                    [iter(parts), self.frame(), pl.Series([1, 2]), pd.Series([1, "a"]), {1, 2}]
                )

    def frame(self) -> Any:
        """A small table."""
        columns = {
            name: [self.rng.choice([0, 1, 2.5, None, "a"]) for _ in range(3)]
            for name in ("id", "x", "c")
        }
        return self.rng.choice(
            [pd.DataFrame(columns), pl.DataFrame(columns, strict=False), columns]
        )
