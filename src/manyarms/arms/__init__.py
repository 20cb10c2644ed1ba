"""Rows of numbers. An arm is a row; its index is its name."""

from manyarms.arms.array import as_rows

__all__ = ["as_rows"]
