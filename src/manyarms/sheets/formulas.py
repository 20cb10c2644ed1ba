"""Text in CSV files that a spreadsheet would take for a formula.

A spreadsheet runs what begins with = + - or @, and a tab or a return before it does not help. Such
text is written with an apostrophe in front, which shows it as text, and is read without it. Text
that already has apostrophes there gets another one, so what is written is read back unchanged.
"""

import re

import polars as pl

FORMULA = r"^'*[=+\-@\t\r]"
"""Text that a spreadsheet would run, or that would be taken for a formula when read."""
MARKED = r"^'+[=+\-@\t\r]"
NUMBER_START = r"^[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?$"
"""A number, which may begin like a formula."""


def marked(frame: pl.DataFrame) -> pl.DataFrame:
    """A table to write: names and cells of text that look like a formula get an apostrophe."""
    text = pl.col(pl.String)
    # -5 begins like a formula and is a number, which a spreadsheet may take as it is.
    is_formula = text.str.contains(FORMULA) & ~text.str.contains(NUMBER_START)
    cells = pl.when(is_formula).then(pl.lit("'") + text).otherwise(text).name.keep()
    names = {name: f"'{name}" for name in frame.columns if re.match(FORMULA, name)}
    return frame.with_columns(cells).rename(names)


def unmarked(frame: pl.DataFrame) -> pl.DataFrame:
    """The cells of a table as they were before `marked`."""
    text = pl.col(pl.String)
    cells = pl.when(text.str.contains(MARKED)).then(text.str.slice(1)).otherwise(text).name.keep()
    return frame.with_columns(cells)


def unmarked_name(name: str) -> str:
    """The name of a column as it was before `marked`."""
    return name[1:] if re.match(MARKED, name) else name
