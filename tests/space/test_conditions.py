"""Conditions on rows: what they mean, and what is wrong with those that mean nothing."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyarms as ma
from manyarms.errors import ArmsError
from manyarms.space.conditions import rows_where

TABLE = pl.DataFrame(
    {
        "base": ["K2CO3", "CsOAc", "CsOAc", None],
        "temperature": [60, 80, 120, 100],
        "a": [0.1, 0.2, 0.7, None],
        "b": [0.2, 0.3, 0.2, 0.5],
        "c": [0.7, 0.5, 0.2, 0.5],
        "dry": [True, False, None, True],
        "dose (mg)": [1.0, 2.0, 3.0, 4.0],
        "it's": ["x", "y", "x", "y"],
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("base == 'CsOAc' and temperature > 100", [2]),
        ("base == 'CsOAc' or temperature == 60", [0, 1, 2]),
        ("not base == 'CsOAc'", [0, 3]),  # an empty cell is not equal, so "not" holds
        ("base != 'CsOAc'", [0]),  # an empty cell meets no comparison
        ("base in ['CsOAc', 'K2CO3']", [0, 1, 2]),
        ("base not in ('CsOAc',)", [0]),
        ("temperature not in {60, 80}", [2, 3]),
        ("a + b + c == 1", [0, 1]),  # 0.1 + 0.2 + 0.7 is 0.9999999999999999
        ("a + b + c - 1 == 0", [0, 1]),
        ("a + b + c >= 1", [0, 1, 2]),
        ("a + b + c > 1", [2]),
        ("a + b + c < 1", []),
        ("a + b + c <= 1", [0, 1]),
        ("a + b + c != 1", [2]),
        ("a != 0.1", [1, 2]),
        ("60 < temperature <= 100", [1, 3]),
        ("-temperature * 2 / 4 == -30", [0]),
        ("+temperature == 60", [0]),
        ("dry", [0, 3]),
        ("not dry", [1, 2]),
        ("dry == true", [0, 3]),
        ("dry == False", [1]),
        ("`dose (mg)` > 2", [2, 3]),
        ("`it's` == 'x'", [0, 2]),
        ("'CsOAc' == base", [1, 2]),
        ("base == base", [0, 1, 2]),
        ("1 / (temperature - 60) > 0", [1, 2, 3]),  # 1 / 0 is no number
        ("(temperature - 60) / (temperature - 60) == 1", [1, 2, 3]),
        ("True", [0, 1, 2, 3]),
        ("1 == 2", []),
        ("'x' == 'x'", [0, 1, 2, 3]),
    ],
)
def test_a_condition_finds_its_rows(text, rows):
    assert np.flatnonzero(rows_where(TABLE, text)).tolist() == rows
    columns = {name: TABLE[name] for name in TABLE.columns}
    assert np.array_equal(rows_where(columns, text), rows_where(TABLE, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be text"),
        (None, "must be text"),
        ("temperature > " + "1" * 3000, "must be text of 1 to 2,000"),
        ("base = 'CsOAc'", "equal is written =="),
        ("base == 'CsOAc' && temperature > 1", "write and, or, not"),
        ("base == 'CsOAc", "quote is not closed"),
        ("base == CsOAc", "put text in quotes: base == 'CsOAc'"),
        ("bsae == 'CsOAc'", "did you mean 'base'?"),
        ("zinc > 1", "there is no column 'zinc'"),
        ("base == 'CsOAx'", "did you mean 'CsOAc'?"),
        ("base in ['CsOAc', 'water']", "no row has 'water' in column 'base'"),
        ("base > 100", "column 'base' holds text"),
        ("base + 1 > 100", "column 'base' holds text"),
        ("base == 5", "column 'base' holds text"),
        ("temperature == '80'", "numbers stand without quotes"),
        ("temperature", "must be true or false of each row"),
        ("temperature and base", "is not true or false"),
        ("temperature in base", "in takes a list"),
        ("temperature in []", "in takes a list"),
        ("temperature is 5", "write == and !="),
        ("~dry", "write not"),
        ("temperature ** 2 > 4", "more than comparisons"),
        ("open('x')", "more than comparisons"),
        ("__import__('os').system('true')", "more than comparisons"),
        ("temperature.real > 1", "more than comparisons"),
        ("[x for x in (1, 2)] == 1", "more than comparisons"),
        ("(lambda: 1) == 1", "more than comparisons"),
        ("temperature > 1e999", "neither a finite number nor text"),
        ("temperature > 1" + "0" * 400, "neither a finite number nor text"),
        ("temperature > 1j", "neither a finite number nor text"),
        ("temperature > None", "neither a finite number nor text"),
        ("-" * 1900 + "temperature > 1", "cannot read the condition"),
        ("(" * 900 + "dry" + ")" * 900, "cannot read the condition"),
        ("temperature >", "cannot read the condition"),
        ("dry\nimport os", "cannot read the condition"),
    ],
)
def test_a_condition_that_means_nothing_is_an_error(text, said):
    with pytest.raises(ArmsError, match="condition") as error:
        rows_where(TABLE, text)
    assert said in str(error.value)


def test_columns_that_can_be_compared_with_nothing():
    with pytest.raises(ArmsError, match="column 'x' holds"):
        rows_where(pl.DataFrame({"x": [[1, 0], [0, 1]]}), "x == 1")


def test_candidates_of_a_pool_are_found_by_columns_and_ids():
    pool = ma.Pool.from_dicts(
        [{"name": f"c{t}", "t": t, "base": "x"} for t in (60, 80)], id="name"
    ).add([{"name": "c100", "t": 100, "base": "x"}])
    assert pool.where("t >= 80 and base == 'x'").tolist() == [False, True, True]
    assert pool.where("name in ['c60', 'c100']").tolist() == [True, False, True]


@given(st.text(alphabet="temperature base><=!()'\"`+-*/and or not in [],0123.", max_size=60))
def test_any_text_is_a_condition_or_a_typed_error(text):
    try:
        mask = rows_where(TABLE, text)
    except ArmsError:
        return
    assert mask.dtype == bool
    assert mask.shape == (4,)
