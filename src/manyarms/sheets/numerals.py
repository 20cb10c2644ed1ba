"""Numbers as people write them: 1,200 and 0,5 and 80 °C and 5 %.

Which mark stands before the fraction is found in the text, or an error asks for it. A number may
have a unit behind it, the same in its whole column, and words such as RT stand for numbers where
someone said for which.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from manyarms.checks import LARGEST
from manyarms.errors import Advice, ArmsError

NOT_A_NUMBER = ["", "na", "n/a", "nan", "null", "none", "-", "–", "n.d."]
"""Words for a missing number, in any case."""
DECIMALS = (".", ",")
"""Marks before the fraction of a number."""
UNITS = frozenset(
    [
        "K",
        "h",
        "hr",
        "hrs",
        "min",
        "mins",
        "s",
        "sec",
        "ms",
        "g",
        "mg",
        "kg",
        "µg",
        "μg",
        "ug",
        "ng",
        "L",
        "l",
        "mL",
        "ml",
        "µL",
        "μL",
        "uL",
        "mol",
        "mmol",
        "µmol",
        "μmol",
        "M",
        "mM",
        "µM",
        "μM",
        "uM",
        "nM",
        "eq",
        "eq.",
        "equiv",
        "equiv.",
        "bar",
        "mbar",
        "Pa",
        "hPa",
        "kPa",
        "MPa",
        "psi",
        "atm",
        "mV",
        "kV",
        "mA",
        "kW",
        "Hz",
        "kHz",
        "MHz",
        "GHz",
        "rpm",
        "mm",
        "cm",
        "km",
        "µm",
        "μm",
        "um",
        "nm",
        "ppm",
        "ppb",
        "wt%",
        "vol%",
        "mol%",
        "kJ",
        "eV",
    ]
)
"""Units that may follow a number without a blank. Other units need a blank, because 1a and 2a are
names."""
BLANKS = "[\u00a0\u2007\u2009\u202f]"
"""Blanks that keep a number and its unit on one line."""


class Written(NamedTuple):
    """Texts read as numbers: the numbers (null for a text that is none) and the unit of each ("" if
    it has none)."""

    numbers: pl.Series
    units: pl.Series


def read_numbers(texts: pl.Series, decimal: str) -> Written:
    """Texts as numbers with this decimal mark. Blanks, apostrophes and the other mark may divide
    thousands."""
    plain = _plain(texts)
    parts = pl.select(plain.str.extract_groups(_pattern(decimal))).to_series()
    number = parts.struct.field("number")
    unit = parts.struct.field("unit").fill_null("").str.strip_chars()
    gap = parts.struct.field("gap").fill_null("")
    # A letter close behind a number is a part of a name, unless it is a unit that people know.
    is_close = (gap == "") & unit.str.contains(r"^\p{L}")
    is_name = is_close & ~unit.is_in(list(UNITS))
    bare = number.str.replace_all(_thousands(decimal), "")
    if decimal == ",":
        bare = bare.str.replace(",", ".", literal=True)
    values = bare.cast(pl.Float64, strict=False)
    is_number = (values.abs() <= LARGEST).fill_null(False) & ~is_name.fill_null(True)
    return Written(
        pl.select(pl.when(is_number).then(values)).to_series().alias(texts.name),
        pl.select(pl.when(is_number).then(unit)).to_series().alias(texts.name),
    )


def number_in(text: str, decimal: str) -> tuple[float, str] | None:
    """A text as a number and its unit; None if it is no number."""
    found = read_numbers(pl.Series([text], dtype=pl.String), decimal)
    number = found.numbers[0]
    return None if number is None else (number, found.units[0])


def is_blank(texts: pl.Series) -> pl.Series:
    """Which texts stand for a missing number."""
    return texts.is_null() | _plain(texts).str.to_lowercase().is_in(NOT_A_NUMBER).fill_null(True)


def column_numbers(texts: pl.Series, decimal: str) -> Written:
    """One column of text as numbers, with this decimal mark. If that cannot read all of them
    and the other mark can, the other mark is used."""
    written = read_numbers(texts, decimal)
    is_known = ~is_blank(texts)
    if not (written.numbers.is_null() & is_known).any():
        return written
    other = read_numbers(texts, "," if decimal == "." else ".")
    return written if (other.numbers.is_null() & is_known).any() else other


def as_whole(numbers: pl.Series) -> pl.Series:
    """The numbers as whole numbers, if all of them are whole and exact."""
    known = numbers.drop_nulls()
    are_whole = bool((known == known.round()).all()) and bool((known.abs() < 2**53).all())
    return numbers.cast(pl.Int64) if are_whole else numbers


def decimal_in(columns: Iterable[pl.Series], separator: str) -> str:
    """The mark before fractions in columns of text: a comma where one of them has commas that
    cannot divide thousands. Where a comma may be either, ArmsError asks."""
    says_point = False
    unclear: tuple[str, str] | None = None
    for texts in columns:
        levels = texts.unique(maintain_order=True)  # few as a rule, where rows are many
        known = levels.filter(~is_blank(levels))
        if not known.str.contains(r"\d[.,]\d|^\s*[+-]?[.,]\d").any():
            continue
        # Only a column of numbers says anything: "1,4-dioxane" is a name.
        as_comma = read_numbers(known, ",").numbers
        as_point = read_numbers(known, ".").numbers
        if 2 * max(as_comma.count(), as_point.count()) < len(known):
            continue
        if (as_comma.is_not_null() & as_point.is_null()).any():
            return ","
        says_point = says_point or bool((as_point.is_not_null() & as_comma.is_null()).any())
        either = known.filter((as_comma != as_point).fill_null(False))
        either = either.filter(either.str.contains(",", literal=True))
        if len(either):
            unclear = unclear or (texts.name, either[0])
    # Where commas divide the columns, one inside a number divides thousands.
    if unclear is not None and not says_point and separator != ",":
        name, text = unclear
        raise ArmsError(
            f"column {{column!r}} holds {text!r}, which may be {_as(text, '.')} or "
            f"{_as(text, ',')}",
            Advice("give {} where it divides thousands", "decimal", "."),
            Advice("give {} where it stands before the fraction", "decimal", ","),
            column=name,
        )
    return "."


def _as(text: str, decimal: str) -> str:
    found = number_in(text, decimal)
    return f"{found[0]:.10g}" if found else "no number"


def _plain(texts: pl.Series) -> pl.Series:
    """The texts without unusual blanks, and with the minus sign of the keyboard."""
    return texts.str.replace_all(BLANKS, " ").str.replace_all("−", "-").str.strip_chars()


def _thousands(decimal: str) -> str:
    return "[ '’,]" if decimal == "." else "[ '’.]"


def _pattern(decimal: str) -> str:
    mark = re.escape(decimal)
    thousands = _thousands(decimal)
    whole = rf"[1-9]\d{{0,2}}(?:{thousands}\d{{3}})+|\d+"
    number = rf"[+-]?(?:(?:{whole})(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?"
    # A unit begins with neither a digit nor a mark that would go on with the number.
    unit = r"[^\d\s.,;:=<>~?+\-_()'’][^;]{0,19}"
    return rf"^(?P<number>{number})(?P<gap>\s*)(?P<unit>{unit})?$"
