"""Conditions on the rows of a table, as people type them: base == 'CsOAc' and temperature > 100.

The language is a part of Python's: comparisons, `in`, and / or / not, + − * /, numbers, text in
quotes and the names of columns, in backticks where they are not plain words. It is parsed by `ast`
and evaluated here, column by column: nothing of it is ever run as Python.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from manyarms.errors import ArmsError
from manyarms.space.values import closest, first_of, is_text
from manyarms.typing import AnyArray, Array, Mask

LONGEST_CONDITION = 2000
"""Characters of a condition: longer ones are lists that belong into a column of the table."""
EQUAL_WITHIN = 1e-9
"""Numbers are equal up to this share of the terms that they are made of: 0.1 + 0.2 is 0.3."""
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`([^`]*)`")
Table = pl.DataFrame | Mapping[str, Any]


class Numbers(NamedTuple):
    """Numbers, one for each row or one for all rows, and the size of the terms they are made of."""

    values: Array
    size: Array


class Texts(NamedTuple):
    """A column of text; for a literal, the text itself."""

    column: str | None
    values: Any  # a series, or a string


class Truths(NamedTuple):
    """True or false, for each row or for all rows."""

    values: AnyArray


Value = Numbers | Texts | Truths


def rows_where(columns: Table, text: str, levels: Mapping[str, Any] | None = None) -> Mask:
    """Which rows meet a condition.

    A comparison with an empty cell is false. Numbers are compared up to rounding. ArmsError says
    what is wrong with the condition: a column that is not there, text where a number is needed, a
    level that no row has, or that is not among the `levels` of its column where those are given.
    """
    by_name = columns.to_dict() if isinstance(columns, pl.DataFrame) else columns
    n_rows = max((len(values) for values in by_name.values()), default=0)
    tree, names = _parsed(text)
    try:
        # What is divided by 0 is no number, and meets no comparison.
        with np.errstate(all="ignore"):
            found = _Evaluation(by_name, names, text, levels or {}).value(tree.body)
    except RecursionError:
        raise _wrong(text, "it is nested too deeply; make several conditions of it") from None
    if not isinstance(found, Truths):
        raise _wrong(text, "it must be true or false of each row, such as `temperature > 100`")
    return np.broadcast_to(found.values, n_rows).copy()


def _parsed(text: str) -> tuple[ast.Expression, dict[str, str]]:
    """The condition as a tree, and the names of columns that stood in backticks."""
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_CONDITION:
        raise ArmsError(
            f"a condition must be text of 1 to {LONGEST_CONDITION:,} characters, such as "
            f"\"temperature > 100 and base == 'CsOAc'\", got {text!r:.80}"
        )
    names: dict[str, str] = {}

    def word(found: re.Match[str]) -> str:
        if found[1] is None:  # text in quotes, which may have a backtick
            return found[0]
        name = f"_column_{len(names)}_"
        names[name] = found[1]
        return name

    try:
        tree = ast.parse(QUOTED.sub(word, text).strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _wrong(text, _hint(text)) from None
    return tree, names


def _hint(text: str) -> str:
    bare = QUOTED.sub("''", text)
    if re.search(r"(?<![=!<>])=(?!=)", bare):
        return "equal is written =="
    if re.search(r"&&|\|\||<>|(?<!\w)!(?!=)", bare):
        return "write and, or, not and != in words and marks of Python"
    if bare.count("'") % 2 or bare.count('"') % 2:
        return "a quote is not closed"
    return (
        "write it as `temperature > 100 and base == 'CsOAc'`, text in quotes, and names of columns "
        "that are not plain words in backticks"
    )


def _wrong(text: str, why: str) -> ArmsError:
    return ArmsError(f"cannot read the condition {text!r:.100}: {why}")


class _Evaluation:
    """One condition over one table."""

    def __init__(
        self,
        columns: Mapping[str, Any],
        names: dict[str, str],
        text: str,
        levels: Mapping[str, Any],
    ) -> None:
        self.columns = columns
        self.levels = levels
        self.names = names
        self.text = text

    def value(self, node: ast.expr) -> Value:
        """The value of a part of the condition."""
        if isinstance(node, ast.Name):
            return self.column(self.names.get(node.id, node.id))
        if isinstance(node, ast.Constant):
            return self.literal(node.value)
        if isinstance(node, ast.BoolOp):
            return self.joined(node)
        if isinstance(node, ast.UnaryOp):
            return self.one_sided(node)
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            return self.computed(node)
        if isinstance(node, ast.Compare):
            return self.compared(node)
        what = self.source(node)
        raise _wrong(
            self.text, f"{what!r:.60} is more than comparisons, and, or, not, in, and + - * /"
        )

    def source(self, node: ast.expr) -> str:
        """A part of the condition as it was typed."""
        words = ast.unparse(node)
        for name, column in self.names.items():
            words = words.replace(name, f"`{column}`")
        return words

    def column(self, name: str) -> Value:
        if name.lower() in ("true", "false") and name not in self.columns:
            return Truths(np.array(name.lower() == "true"))
        if name not in self.columns:
            raise self.unknown(name)
        given = self.columns[name]
        series = given if isinstance(given, pl.Series) else pl.Series(name, given)
        if series.dtype == pl.Boolean:
            return Truths(series.fill_null(False).to_numpy())
        if is_text(series.dtype):
            return Texts(name, series.cast(pl.String))
        if series.dtype.is_numeric():
            values = series.cast(pl.Float64).to_numpy()
            return Numbers(values, np.abs(values))
        raise ArmsError(
            "a condition needs numbers or text, and column {column!r} holds {got}",
            column=name,
            got=series.dtype,
        )

    def unknown(self, name: str) -> ArmsError:
        there = list(self.columns)
        texts = [
            column
            for column in there
            if is_text((series := pl.Series(self.columns[column])).dtype)
            and bool((series.cast(pl.String) == name).any())
        ]
        if texts:
            return _wrong(self.text, f"put text in quotes: {texts[0]} == '{name}'")
        near = closest(name, there)
        meant = f"did you mean {near!r}?" if near else f"those are {', '.join(map(repr, there))}"
        return _wrong(self.text, f"there is no column {name!r}; {meant:.200}")

    def literal(self, value: Any) -> Value:
        if isinstance(value, bool):
            return Truths(np.array(value))
        if isinstance(value, str):
            return Texts(None, value)
        if isinstance(value, int | float):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return Numbers(np.array(number), np.array(abs(number)))
        raise _wrong(self.text, f"{value!r:.40} is neither a finite number nor text")

    def joined(self, node: ast.BoolOp) -> Truths:
        parts = [self.truths(each) for each in node.values]
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        found = parts[0]
        for part in parts[1:]:
            found = join(found, part)
        return Truths(found)

    def truths(self, node: ast.expr) -> AnyArray:
        found = self.value(node)
        if isinstance(found, Truths):
            return found.values
        raise _wrong(
            self.text,
            f"{self.source(node)!r:.60} is not true or false; compare it with something",
        )

    def one_sided(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Truths(~self.truths(node.operand))
        if isinstance(node.op, ast.Invert):
            raise _wrong(self.text, "~ is not known here; write not")
        number = self.numbers(node.operand)
        return number._replace(values=-number.values) if isinstance(node.op, ast.USub) else number

    def numbers(self, node: ast.expr) -> Numbers:
        found = self.value(node)
        if isinstance(found, Numbers):
            return found
        if isinstance(found, Texts) and found.column is not None:
            raise _wrong(self.text, f"column {found.column!r} holds text, and a number is needed")
        raise _wrong(self.text, f"{self.source(node)!r:.60} is no number")

    def computed(self, node: ast.BinOp) -> Numbers:
        left = self.numbers(node.left)
        right = self.numbers(node.right)
        exact = ARITHMETIC[type(node.op)](left.values, right.values)
        values = np.where(np.isfinite(exact), exact, np.nan)
        # A sum is known up to the rounding of its largest term, a product up to its own.
        if isinstance(node.op, ast.Add | ast.Sub):
            return Numbers(values, np.maximum(left.size, right.size))
        return Numbers(values, np.abs(values))

    def compared(self, node: ast.Compare) -> Truths:
        """60 < temperature <= 80 is two comparisons, both of which must hold."""
        found: AnyArray = np.array(True)
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            found = found & self.comparison(left, operator, right)
            left = right
        return Truths(found)

    def comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> AnyArray:
        if isinstance(operator, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
                raise _wrong(self.text, "in takes a list, such as base in ['K2CO3', 'CsOAc']")
            parts = [self.comparison(left, ast.Eq(), each) for each in right.elts]
            among: AnyArray = np.logical_or.reduce(parts)
            if isinstance(operator, ast.In):
                return among
            return ~among & ~self.is_empty(left)
        if type(operator) not in COMPARISONS:
            raise _wrong(self.text, "is and is not are not known here; write == and !=")
        one = self.value(left)
        other = self.value(right)
        if isinstance(one, Numbers) and isinstance(other, Numbers):
            return COMPARISONS[type(operator)](one, other)
        if isinstance(operator, ast.Eq | ast.NotEq):
            same = self.are_same(left, one, right, other)
            if isinstance(operator, ast.Eq):
                return same
            return ~same & ~self.is_empty(left) & ~self.is_empty(right)
        raise _wrong(self.text, f"only numbers are larger or smaller; {self.no_number(one, other)}")

    def are_same(self, left: ast.expr, one: Value, right: ast.expr, other: Value) -> AnyArray:
        if isinstance(one, Truths) and isinstance(other, Truths):
            same: AnyArray = one.values == other.values
            return same & ~self.is_empty(left) & ~self.is_empty(right)
        if not (isinstance(one, Texts) and isinstance(other, Texts)):
            raise _wrong(
                self.text,
                f"{self.source(left)!r:.60} and {self.source(right)!r:.60} cannot be equal; "
                f"{self.no_number(one, other)}",
            )
        if one.column is None and other.column is None:
            return np.array(one.values == other.values)
        for texts, literal in ((one, other), (other, one)):
            if literal.column is None and texts.column is not None:
                self.check_level(texts.column, texts.values, literal.values)
        series, against = (one, other) if one.column is not None else (other, one)
        equal = (series.values == against.values).fill_null(False)
        return np.asarray(equal.to_numpy())

    def no_number(self, one: Value, other: Value) -> str:
        """Why two values cannot be compared."""
        for value in (one, other):
            if isinstance(value, Texts) and value.column is not None:
                return f"column {value.column!r} holds text, which stands in quotes"
        return "numbers stand without quotes"

    def check_level(self, column: str, values: pl.Series, level: str) -> None:
        """A level that no row has is a typing error, which would go unnoticed."""
        known = pl.Series(self.levels[column]) if column in self.levels else values
        if bool((known == level).any()):
            return
        levels = sorted(known.drop_nulls().unique().to_list())
        near = closest(level, levels)
        meant = f"did you mean {near!r}?" if near else f"it holds {first_of(levels)}"
        raise _wrong(self.text, f"no row has {level!r:.60} in column {column!r}; {meant}")

    def is_empty(self, node: ast.expr) -> AnyArray:
        """The rows without a value, if the part is a column and nothing else."""
        if not isinstance(node, ast.Name):
            return np.array(False)
        name = self.names.get(node.id, node.id)
        if name not in self.columns:
            return np.array(False)
        return pl.Series(self.columns[name]).is_null().to_numpy()


def _near(one: Numbers, other: Numbers) -> AnyArray:
    near: AnyArray = np.abs(one.values - other.values) <= EQUAL_WITHIN * np.maximum(
        one.size, other.size
    )
    return near


ARITHMETIC: dict[type[ast.operator], Callable[[Array, Array], Array]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
}
# NaN, an empty cell, is neither near nor above nor below anything.
COMPARISONS: dict[type[ast.cmpop], Callable[[Numbers, Numbers], AnyArray]] = {
    ast.Eq: _near,
    ast.NotEq: lambda one, other: (
        np.abs(one.values - other.values) > EQUAL_WITHIN * np.maximum(one.size, other.size)
    ),
    ast.Lt: lambda one, other: (one.values < other.values) & ~_near(one, other),
    ast.LtE: lambda one, other: (one.values <= other.values) | _near(one, other),
    ast.Gt: lambda one, other: (one.values > other.values) & ~_near(one, other),
    ast.GtE: lambda one, other: (one.values >= other.values) | _near(one, other),
}
