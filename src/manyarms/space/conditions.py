"""Conditions on the rows of a table, as people type them: base == 'CsOAc' and temperature > 100.

The language is a part of Python's: comparisons, `in`, and / or / not, + − * /, numbers, text in
quotes and the names of columns, in backticks where they are not plain words. It is parsed by `ast`
and evaluated here, column by column: nothing of it is ever run as Python.
"""

import ast
import re
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from manyarms.errors import ArmsError, shortened
from manyarms.space.columns import closest, first_of, is_text
from manyarms.typing import AnyArray, Array, Mask

LONGEST_CONDITION = 2000
"""Characters of a condition: longer ones are lists that belong into a column of the table."""
EQUAL_WITHIN = 1e-9
"""Numbers are equal up to this share of the terms that they are made of: 0.1 + 0.2 is 0.3."""
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`([^`]*)`")
Table = pl.DataFrame | Mapping[str, Any]


class Value(NamedTuple):
    """What a part of a condition is: for each row, or one value for all rows."""

    kind: str  # "number", "text" or "truth"
    values: Any  # arrays of numbers or truths; text: a series
    size: AnyArray = np.array(0.0)  # of the terms that numbers are made of
    column: str | None = None  # of which the part consists
    empty: AnyArray = np.array(False)  # the rows of that column without a value


def rows_where(columns: Table, text: str, levels: Mapping[str, Any] | None = None) -> Mask:
    """Which rows meet a condition.

    A comparison with an empty cell is false. Numbers are compared up to rounding. ArmsError says
    what is wrong with the condition: a column that is not there, text where a number is needed, a
    level that no row has, or that is not among the `levels` of its column where those are given.
    """
    by_name = columns.to_dict() if isinstance(columns, pl.DataFrame) else columns
    n_rows = max((len(values) for values in by_name.values()), default=0)
    tree, names = _parsed(text)
    condition = _Condition(by_name, names, text, levels or {})
    try:
        # What is divided by 0 is no number, and meets no comparison.
        with np.errstate(all="ignore"):
            found = condition.value(tree.body)
    except RecursionError:
        raise _wrong(text, "it is nested too deeply; make several conditions of it") from None
    if found.kind != "truth":
        raise _wrong(text, "it must be true or false of each row, such as `temperature > 100`")
    return np.broadcast_to(found.values, n_rows).copy()


def _parsed(text: str) -> tuple[ast.Expression, dict[str, str]]:
    """The condition as a tree, and the names of columns that stood in backticks."""
    is_text = isinstance(text, str) and 0 < len(text) <= LONGEST_CONDITION
    if not is_text or not text.strip() or re.search("[\0\ud800-\udfff]", text):
        raise ArmsError(
            f"a condition must be text of 1 to {LONGEST_CONDITION:,} characters, such as "
            f"\"temperature > 100 and base == 'CsOAc'\", got {shortened(text)}"
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


class _Condition(NamedTuple):
    """One condition over one table."""

    columns: Mapping[str, Any]
    names: dict[str, str]  # of columns that stood in backticks, by the words in their places
    text: str
    levels: Mapping[str, Any]

    def value(self, node: ast.expr) -> Value:
        """The value of a part of the condition."""
        match node:
            case ast.Name(id=name):
                return self.column(self.names.get(name, name))
            case ast.Constant(value=value):
                return self.literal(value)
            case ast.BoolOp(op=operator, values=parts):
                join = np.logical_and if isinstance(operator, ast.And) else np.logical_or
                return Value("truth", reduce(join, map(self.truths, parts)))
            case ast.UnaryOp():
                return self.one_sided(node)
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                return self.computed(node)
            case ast.Compare(left=left, ops=operators, comparators=others):
                # 60 < temperature <= 80 is two comparisons, both of which must hold.
                pairs = zip([left, *others], operators, others, strict=False)
                found = [self.comparison(one, operator, other) for one, operator, other in pairs]
                return Value("truth", reduce(np.logical_and, found))
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
        if name not in self.columns:
            if name.lower() in ("true", "false"):
                return Value("truth", np.array(name.lower() == "true"))
            raise self.unknown(name)
        series = pl.Series(name, self.columns[name])
        known: dict[str, Any] = {"column": name, "empty": series.is_null().to_numpy()}
        if series.dtype == pl.Boolean:
            return Value("truth", series.fill_null(False).to_numpy(), **known)
        if is_text(series.dtype):
            return Value("text", series.cast(pl.String), **known)
        if series.dtype.is_numeric():
            values = series.cast(pl.Float64).to_numpy()
            return Value("number", values, np.abs(values), **known)
        raise ArmsError(
            "a condition needs numbers or text, and column {column!r} holds {got}",
            column=name,
            got=series.dtype,
        )

    def unknown(self, name: str) -> ArmsError:
        for column, values in self.columns.items():
            series = pl.Series(values)
            if is_text(series.dtype) and (series.cast(pl.String) == name).any():
                return _wrong(self.text, f"put text in quotes: {column} == '{name}'")
        near = closest(name, list(self.columns))
        there = ", ".join(map(repr, self.columns))
        meant = f"did you mean {near!r}?" if near else f"those are {there}"
        return _wrong(self.text, f"there is no column {name!r}; {meant:.200}")

    def literal(self, value: Any) -> Value:
        if isinstance(value, bool):
            return Value("truth", np.array(value))
        if isinstance(value, str):
            return Value("text", pl.Series([value]))
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
            return Value("number", np.array(float(value)), np.array(abs(float(value))))
        raise _wrong(self.text, f"{value!r:.40} is neither a finite number nor text")

    def truths(self, node: ast.expr) -> AnyArray:
        found = self.value(node)
        if found.kind != "truth":
            what = self.source(node)
            raise _wrong(self.text, f"{what!r:.60} is not true or false; compare it with something")
        return np.asarray(found.values)

    def numbers(self, node: ast.expr) -> Value:
        found = self.value(node)
        if found.kind == "text" and found.column is not None:
            raise _wrong(self.text, f"column {found.column!r} holds text, and a number is needed")
        if found.kind != "number":
            raise _wrong(self.text, f"{self.source(node)!r:.60} is no number")
        return found

    def one_sided(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Invert):
            raise _wrong(self.text, "~ is not known here; write not")
        if isinstance(node.op, ast.Not):
            return Value("truth", ~self.truths(node.operand))
        number = self.numbers(node.operand)
        is_minus = isinstance(node.op, ast.USub)
        return Value("number", -number.values if is_minus else number.values, number.size)

    def computed(self, node: ast.BinOp) -> Value:
        left = self.numbers(node.left)
        right = self.numbers(node.right)
        exact = ARITHMETIC[type(node.op)](left.values, right.values)
        values = np.where(np.isfinite(exact), exact, np.nan)
        # A sum is known up to the rounding of its largest term, a product up to its own.
        is_sum = isinstance(node.op, ast.Add | ast.Sub)
        return Value(
            "number", values, np.maximum(left.size, right.size) if is_sum else np.abs(values)
        )

    def comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> AnyArray:
        if isinstance(operator, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
                raise _wrong(self.text, "in takes a list, such as base in ['K2CO3', 'CsOAc']")
            parts = [self.comparison(left, ast.Eq(), each) for each in right.elts]
            among: AnyArray = reduce(np.logical_or, parts)
            is_in = isinstance(operator, ast.In)
            return among if is_in else ~among & ~self.value(left).empty
        if type(operator) not in COMPARISONS:
            raise _wrong(self.text, "is and is not are not known here; write == and !=")
        one = self.value(left)
        other = self.value(right)
        if one.kind == other.kind == "number":
            return COMPARISONS[type(operator)](one, other)
        # Why the two cannot be compared.
        texts = [each.column for each in (one, other) if each.kind == "text" and each.column]
        why = "numbers stand without quotes"
        if texts:
            why = f"column {texts[0]!r} holds text, which stands in quotes"
        if not isinstance(operator, ast.Eq | ast.NotEq):
            raise _wrong(self.text, f"only numbers are larger or smaller; {why}")
        if one.kind != other.kind:
            pair = f"{self.source(left)!r:.60} and {self.source(right)!r:.60}"
            raise _wrong(self.text, f"{pair} cannot be equal; {why}")
        self.check_level(one, other)
        self.check_level(other, one)
        same = one.values == other.values
        same = same.fill_null(False).to_numpy() if one.kind == "text" else same
        is_same = isinstance(operator, ast.Eq)
        met: AnyArray = same if is_same else ~same
        return met & ~one.empty & ~other.empty

    def check_level(self, texts: Value, literal: Value) -> None:
        """A level that no row has is a typing error, which would go unnoticed."""
        if texts.kind != "text" or texts.column is None or literal.column is not None:
            return
        known = pl.Series(self.levels.get(texts.column, texts.values))
        if (known == literal.values).any():
            return
        levels = sorted(known.drop_nulls().unique().to_list())
        level = literal.values[0]
        near = closest(level, levels)
        meant = f"did you mean {near!r}?" if near else f"it holds {first_of(levels)}"
        raise _wrong(self.text, f"no row has {level!r:.60} in column {texts.column!r}; {meant}")


def _near(one: Value, other: Value) -> AnyArray:
    within = EQUAL_WITHIN * np.maximum(one.size, other.size)
    return np.asarray(np.abs(one.values - other.values) <= within)


ARITHMETIC: dict[type[ast.operator], Callable[[Array, Array], Array]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
}
# NaN, an empty cell, is neither near nor above nor below anything.
COMPARISONS: dict[type[ast.cmpop], Callable[[Value, Value], AnyArray]] = {
    ast.Eq: _near,
    ast.NotEq: lambda one, other: (
        np.abs(one.values - other.values) > EQUAL_WITHIN * np.maximum(one.size, other.size)
    ),
    ast.Lt: lambda one, other: (one.values < other.values) & ~_near(one, other),
    ast.LtE: lambda one, other: (one.values <= other.values) | _near(one, other),
    ast.Gt: lambda one, other: (one.values > other.values) & ~_near(one, other),
    ast.GtE: lambda one, other: (one.values >= other.values) | _near(one, other),
}
