"""Sheets as people keep them: what is found in them, what is asked, and what is never done silently."""

import gzip
import io
import re
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import spreadsheets as sheets
from command_line import assert_one_line, manyarms, said
from extras import needs
from hypothesis import given
from hypothesis import strategies as st

import manyarms as ma
from manyarms.cli import main
from manyarms.cli.tables import not_used
from manyarms.errors import ArmsError, ParameterError, UnknownArmError
from manyarms.sheets.csvfiles import write_csv
from manyarms.sheets.numerals import decimal_in, number_in
from manyarms.sheets.reading import read_sheet, write_workbook
from manyarms.space.pool import Pool

RECIPES = "name,base,t,yield\n" + "".join(
    f"r{i},{'abc'[i % 3]},{20 + 10 * (i % 5)},{i if i % 2 else ''}\n" for i in range(15)
)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Numbers as people write them


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        ("80 °C", (80, "°C"), (80, "°C")),
        ("80°C", (80, "°C"), (80, "°C")),
        ("5 %", (5, "%"), (5, "%")),
        ("5%", (5, "%"), (5, "%")),
        ("1,200", (1200, ""), (1.2, "")),
        ("0,200", None, (0.2, "")),
        ("1,200.5", (1200.5, ""), None),
        ("1.200,5 mg", None, (1200.5, "mg")),
        ("0,5", None, (0.5, "")),
        ("1 200", (1200, ""), (1200, "")),
        ("1\u202f200 g", (1200, "g"), (1200, "g")),
        ("1'200", (1200, ""), (1200, "")),
        ("−5", (-5, ""), (-5, "")),
        ("1e-3 M", (0.001, "M"), (0.001, "M")),
        (".5", (0.5, ""), None),
        ("5h", (5, "h"), (5, "h")),
        ("5 g/100 mL", (5, "g/100 mL"), (5, "g/100 mL")),
        *(
            (text, None, None)
            for text in ("RT", "1a", "80-90", "1,4-dioxane", "nan", "1_000", "", "<5", "1e999")
        ),
    ],
)
def test_a_number_as_people_write_it(text, point, comma):
    assert number_in(text, ".") == point
    assert number_in(text, ",") == comma


@given(st.floats(-1e12, 1e12), st.sampled_from(["", " °C", "%", " mg/L"]), st.sampled_from(".,"))
def test_what_is_written_is_read(number, unit, decimal):
    text = f"{number!r}".replace(".", decimal)
    assert number_in(text + unit, decimal) == (number, unit.strip())


@pytest.mark.parametrize(
    ("columns", "separator", "decimal"),
    [
        ([["0,5", "1"]], ";", ","),
        ([["0.5", "1"]], ";", "."),
        ([["a", "b"]], ";", "."),
        ([["1,4-dioxane", "2,2-bipyridine"]], ";", "."),  # names, not numbers
        ([["1,200", "3"], ["0.5", "1"]], ";", "."),  # the second says what the first means
        ([["1,200", "3"], ["0,5", "1"]], ";", ","),
        ([["1,200", "3"]], ",", "."),  # a comma cannot be both
        ([["2,5 %", "5 %"]], ";", ","),
        ([["0,5", "1"], ["0.5", "1"]], ";", ","),  # the second has its own
    ],
)
def test_the_decimal_mark_is_found(columns, separator, decimal):
    series = [pl.Series(f"c{i}", values) for i, values in enumerate(columns)]
    assert decimal_in(series, separator) == decimal


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([["1,200", "3"]], "may be 1200 or 1.2; give decimal='.' where it divides thousands"),
    ],
)
def test_a_decimal_mark_that_is_not_clear_is_asked_for(columns, message):
    series = [pl.Series(f"c{i}", values) for i, values in enumerate(columns)]
    with pytest.raises(ArmsError, match=re.escape(message)):
        decimal_in(series, ";")


def test_thousands_where_the_comma_is_decimal(tmp_path):
    path = written(tmp_path / "t.csv", "x;y\n1.200;0,5\n2.400;1,5\n")
    assert Pool.from_csv(path).rows([0, 1]) == [{"x": 1200, "y": 0.5}, {"x": 2400, "y": 1.5}]
    # A column may have the other mark, where it has no numbers otherwise.
    path = written(tmp_path / "u.csv", "x;y;z\n1.25;0,5;1.1 eq.\n2.5;1,5;1.5 eq.\n")
    pool = Pool.from_csv(path)
    assert pool.decimal == ","
    assert pool.rows([0, 1]) == [{"x": 1.25, "y": 0.5, "z": 1.1}, {"x": 2.5, "y": 1.5, "z": 1.5}]
    assert pool.add(written(tmp_path / "v.csv", "x;y;z\n3.25;0,5;2 eq.\n")).row(2)["x"] == 3.25
    path = written(tmp_path / "w.csv", "x;y\n1.25;0,5\n2,5;1,5\n")
    with pytest.raises(ArmsError, match=r"'x' must hold numbers, got '1.25' in row 2"):
        Pool.from_csv(path)


def test_units_and_words():
    rows = [{"t": "RT", "x": "5 %"}, {"t": "80 °C", "x": "2.5 %"}, {"t": "105", "x": "1 %"}]
    pool = Pool.from_dicts(rows, columns={"t": "number:RT=25, reflux=110"})
    assert pool.columns == {"t": "integer", "x": "log"}
    assert pool.units == {"t": "°C", "x": "%"}
    assert [row["t"] for row in pool.rows([0, 1, 2])] == [25, 80, 105]
    more = pool.add([{"t": "reflux", "x": "5"}, {"t": "rt", "x": "7 %"}])
    assert [row["t"] for row in more.rows([3, 4])] == [110, 25]
    with pytest.raises(ArmsError, match=r"'x' must have one unit, '%', got '5 mg' in row 0"):
        pool.add([{"t": "80 °C", "x": "5 mg"}])


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (["80 °C", "RT"], None, "'t' must hold numbers, got 'RT' in row 1; correct the value, say what it stands for by columns={'t': 'number:RT=25'}"),
        (["80 °C", "353 K"], None, "must have one unit, '°C', got '353 K' in row 1"),
        (["1 h", "30 min", "2 h"], None, "must have one unit, 'h', got '30 min' in row 1"),
        (["80", "90", "100-110"], None, "got '100-110' in row 2; correct the value, make all of them categories"),
        (["80", "RT"], {"t": "number"}, "got 'RT' in row 1"),
        (["80", "RT"], {"t": "number:RT"}, "words stand for numbers, as in number:RT=25"),
        (["80", "RT"], {"t": "number:RT=x"}, "words stand for numbers"),
        (["80", "RT"], {"t": "text:RT=5"}, "columns of 't' must be one of"),
    ],
)  # fmt: skip
def test_text_among_numbers_is_never_a_category_silently(rows, columns, message):
    with pytest.raises((ArmsError, ParameterError), match=re.escape(message)):
        Pool.from_dicts([{"t": t} for t in rows], columns=columns)


def test_names_that_begin_with_numbers_are_names():
    rows = [{"plan": name, "x": i} for i, name in enumerate(["1a", "2a", "3a", "2-MeTHF"])]
    assert Pool.from_dicts(rows).columns["plan"] == "categorical"


# Types by what repeats


def test_sixty_amines_are_a_feature():
    rows = [
        {"amine": f"amine {a}", "base": b, "t": t}
        for a in range(60)
        for b in "xyz"
        for t in (20, 60, 100)
    ]
    pool = Pool.from_dicts(rows)
    assert pool.columns["amine"] == "categorical"
    assert len(pool.X) == 540
    assert not pool.unused


def test_text_that_alone_tells_rows_apart_is_an_error_until_decided():
    rows = [{"name": f"n{i}", "t": i % 3} for i in range(90)]
    with pytest.raises(ArmsError, match=r"'name' tells rows apart .* 'n0' and 'n3'") as error:
        Pool.from_dicts(rows)
    assert "columns={'name': 'ignore'}" in str(error.value)
    assert len(Pool.from_dicts(rows, columns={"name": "categorical"}).X) == 90
    assert len(Pool.from_dicts(rows, columns={"name": "ignore"}).X) == 3
    assert len(Pool.from_dicts(rows, id="name").X) == 3


def test_what_is_not_used_is_named_with_the_reason():
    rows = [
        {"x": i, "lot": 7, "empty": None, "seen": f"at {i}", "note": "ok" if i else None, "z": i}
        for i in range(60)
    ]
    pool = Pool.from_dicts(rows, columns={"z": "ignore"})
    assert pool.unused == {
        "lot": "7 in every row",
        "empty": "empty",
        "seen": "free text",
        "note": "free text",
        "z": "left out as asked",
    }
    (line,) = not_used(pool)
    assert line.startswith("NOT USED: lot (7 in every row); empty (empty); seen (free text")
    assert not_used(Pool.from_dicts([{"x": 1}, {"x": 2}])) == []


def test_levels_that_differ_by_case_or_blanks_are_named():
    rows = [{"s": s, "x": i} for i, s in enumerate(["DMF", "DMF ", "dmf", "THF", "DMF"])]
    with pytest.raises(ArmsError, match="'DMF' and 'DMF ' and 'dmf'"):
        Pool.from_dicts(rows)
    apart = Pool.from_dicts(rows, columns={"s": "categorical"})
    assert apart.features[-1].levels == ("DMF", "DMF ", "THF", "dmf")
    merged = Pool.from_dicts(rows, columns={"s": "categorical:merge"})
    assert merged.features[-1].levels == ("DMF", "THF")
    assert merged.add([{"s": " thf", "x": 9}]).row(5) == {"s": "THF", "x": 9}


def test_types_stay_as_they_were_decided(path):
    # A study is read by the types it was made with, whatever later tables would suggest.
    pool = Pool.from_dicts([{"s": f"w{i % 60}", "x": i} for i in range(120)])
    ma.Study.create(path, pool).close()
    study = ma.Study.open(path)
    assert study.settings["seed"] == 0
    assert study._replica.replay.settings["pool"]["decided"] == {"s": "categorical", "x": "integer"}
    np.testing.assert_array_equal(study.pool.X, pool.X)


# The target


def test_a_target_has_results_and_is_no_feature(tmp_path, path):
    pool = Pool.from_csv(written(tmp_path / "t.csv", RECIPES), id="name", target="yield")
    assert set(pool.columns) == {"base", "t"}
    assert len(pool) == 15
    assert [(each.id, each.value) for each in pool.results] == [
        (f"r{i}", float(i)) for i in range(1, 15, 2)
    ]
    optimizer = ma.Optimizer(pool)
    assert len(optimizer.history) == 7
    study = ma.Study.create(path, pool)
    assert [trial.value for trial in study.history] == [trial.value for trial in optimizer.history]
    more = pl.DataFrame({"name": ["s1", "s2"], "base": "a", "t": 25, "yield": [None, 99.0]})
    optimizer.add(more)
    study.add(more)
    assert len(optimizer.history) == len(study.history) == 8
    assert len(study.pool) == 17
    assert ma.Study.open(path).history[-1].value == 99.0
    study.add(more.drop("yield").with_columns(name=pl.Series(["u1", "u2"])))
    assert len(study.history) == 8


@pytest.mark.parametrize("source", ["frame", "dicts", "parquet", "xlsx"])
def test_every_table_may_have_a_target(tmp_path, source):
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [5.5, None, 6.5]})
    if source == "frame":
        pool = Pool.from_frame(frame, target="y")
    elif source == "dicts":
        pool = Pool.from_dicts(frame.to_dicts(), target="y")
    elif source == "parquet":
        frame.write_parquet(tmp_path / "t.parquet")
        pool = Pool.from_parquet(tmp_path / "t.parquet", target="y")
    else:
        needs("excel", "xlsxwriter")
        needs("excel", "fastexcel")
        write_workbook(frame, tmp_path / "t.xlsx")
        pool = Pool.from_csv(tmp_path / "t.xlsx", target="y")
    assert [each[:2] for each in pool.results] == [(0, 5.5), (2, 6.5)]
    assert pool.names == ("x",)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("n,x,y\na,1,good\n", {"target": "y"}, "'y' must hold finite numbers, blanks, and the word failed, got 'good' in row 2"),
        ("n,x,y\na,1,<5\n", {"target": "y"}, "got '<5' in row 2"),
        ("n,x,y\na,1,5 %\nb,2,5 mg\n", {"target": "y"}, "one unit, '%', got '5 mg' in row 3"),
        ("n,x,y\na,1,5\n", {"target": "z"}, "target must be a column"),
        ("n,x,y\na,1,5\n", {"target": "n", "id": "n"}, "another column than that of the ids"),
        ("n,x,y\na,1,5\n", {"target": "y", "columns": {"y": "log"}}, "other than the target"),
        ("n,x,y\na,1,5\na,2,6\n", {"target": "y", "id": "n"}, "ids must be unique, got 'a' in rows 2, 3"),
    ],
)  # fmt: skip
def test_a_target_that_cannot_be(tmp_path, text, options, message):
    with pytest.raises((ArmsError, ParameterError), match=re.escape(message)):
        Pool.from_csv(written(tmp_path / "t.csv", text), **options)


def test_rows_of_one_id_are_trials_of_one_candidate(tmp_path):
    text = (
        "n,x,y,note\na,1,5,first\nb,2,,\na,1,7,again\na,1,5,a true replicate\na,1,,\nb,2,failed,\n"
        "a,1,7,again\nb,2,failed,\n"
    )
    pool = Pool.from_csv(written(tmp_path / "t.csv", text), id="n", target="y")
    assert len(pool) == 2
    assert pool.results == (
        ("a", 5.0, "first"),
        ("a", 7.0, "again"),
        ("a", 5.0, "a true replicate"),
        ("b", None, None),
    )
    assert pool.notes == (
        "Left out 2 rows (8, 9): every cell is that of a row above.",
        "Left out 1 row (6) without a value: the candidate is that of a row above.",
        "Took 3 rows (4, 5, 7) as further trials: the candidate is that of a row above.",
    )
    with pytest.raises(ArmsError, match="ids must be unique"):
        Pool.from_csv(tmp_path / "t.csv", id="n", columns={"y": "ignore"})


def test_drop_says_how_many_rows_went(tmp_path):
    text = "x,y\n1,5\n,6\n3,7\n,\n"
    pool = Pool.from_csv(written(tmp_path / "t.csv", text), target="y", missing="drop")
    assert pool.notes == ("Left out 1 row (3), which miss a value, with their results.",)
    assert len(pool.results) == 2


# Files


ROWS = [{"name": "Größe", "x": 0.5, "t": 80}, {"name": "é", "x": 1.5, "t": 90}]


@pytest.mark.parametrize(
    "content",
    [
        "name;x;t\nGröße;0,5;80\né;1,5;90\n".encode("cp1252"),
        "name;x;t\nGröße;0,5;80\né;1,5;90\n".encode("utf-16"),
        "\ufeffname;x;t;\r\nGröße;0,5;80;\r\né;1,5;90;\r\n;;;\r\n".encode(),
        b"name;x;t\nGr\xc3\xb6\xc3\x9fe;0,5;80;;\n\xc3\xa9;1,5;90;;\n",
        "sep=;\nname;x;t\nGröße;0,5;80\né;1,5;90\n".encode(),
        "\n;;\nname;x;t\nGröße;0,5;80\n;;\né;1,5;90\n".encode(),
        gzip.compress(
            b"name|x |t\nGr\xc3\xb6\xc3\x9fe|0.5|80 \xc2\xb0C\n\xc3\xa9|1.5|90 \xc2\xb0C\n",
            mtime=0,
        ),
    ],
)
def test_files_as_they_come(tmp_path, content):
    pool = Pool.from_csv(written(tmp_path / "t.csv", content), id="name")
    assert [{"name": id, **pool.row(id)} for id in pool.ids] == ROWS


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ("x,y\n1,2\n,3\n4,5\n6,7\n", 3),
        ("\n\nx,y\n1,2\n,3\n4,5\n6,7\n", 5),
        ("x,y\n\n1,2\n,\n,3\n4,5\n6,7\n", 5),
        ('x,y,z\n1,2,"a\nb"\n,3,a\n4,5,a\n6,7,a\n', 3),
    ],
)
def test_rows_have_the_numbers_of_the_file(tmp_path, content, row):
    with pytest.raises(ArmsError, match=f"misses a value in row {row} ") as error:
        Pool.from_csv(written(tmp_path / "t.csv", content))
    assert error.value.fields["row"] == row


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,y,\n1,2,9\n", "got 9 in column 3, which has no name"),
        ("x, x\n1,2\n", "must name its columns differently"),
        (b"x,y\n1,\x81\n", "must be text in UTF-8 or Windows-1252"),
        (b"x,y\n\x00\xff,1\n", "must be text in UTF-8 or Windows-1252"),
        (b"\xd0\xcf\x11\xe0 old", "is an old workbook"),
        (
            "Plan of May\n\nx,y\n1,2\n",
            "its header names 1 column, got 2 fields in line 3; .* delete the lines above",
        ),
    ],
)
def test_files_that_are_refused(tmp_path, content, message):
    with pytest.raises(ArmsError, match=message):
        Pool.from_csv(written(tmp_path / "t.csv", content))


# Workbooks


def test_a_workbook_is_read_as_its_rows_stand(tmp_path):
    needs("excel", "fastexcel")
    xlsxwriter = needs("excel", "xlsxwriter")
    with xlsxwriter.Workbook(str(tmp_path / "t.xlsx")) as book:
        book.add_worksheet("empty")
        sheet = book.add_worksheet("plan")
        cells = [
            [],
            ["id", "t", "x", "yield"],
            ["001", "80 °C", 0.5, 71.5],
            [],
            ["002", "RT", "1,5", "failed"],
            ["003", "90 °C", 3],
        ]
        for row, values in enumerate(cells):
            for column, value in enumerate(values):
                sheet.write(row, column, value)
    options = {"id": "id", "target": "yield", "columns": {"t": "number:RT=25"}}
    pool = Pool.from_csv(tmp_path / "t.xlsx", **options)
    assert [row["x"] for row in pool.rows(pool.ids)] == [0.5, 1.5, 3]
    with pytest.raises(ArmsError, match=r"'x' must hold numbers, got '1,5' in row 5"):
        Pool.from_csv(tmp_path / "t.xlsx", **options, decimal=".")
    assert pool.ids.tolist() == ["001", "002", "003"]
    assert [row["t"] for row in pool.rows(pool.ids)] == [80, 25, 90]
    assert [each[:2] for each in pool.results] == [("001", 71.5), ("002", None)]
    assert read_sheet(tmp_path / "t.xlsx", "id", set(), set()).rows.tolist() == [3, 5, 6]


def test_text_stays_text_in_a_workbook(tmp_path):
    needs("excel", "xlsxwriter")
    fastexcel = needs("excel", "fastexcel")
    texts = ["=1+1", "+a", "-b", "@c", "http://x.org", "007", "'=d"]
    frame = pl.DataFrame({"=name": texts, "x": range(7), "on": [True] * 7})
    write_workbook(frame, tmp_path / "t.xlsx")
    sheet = read_sheet(tmp_path / "t.xlsx", None, {"=name"}, {"=name"}).frame
    assert sheet["=name"].to_list()[:6] == texts[:6]
    raw = fastexcel.read_excel(tmp_path / "t.xlsx").load_sheet(0, dtypes="string").to_polars()
    assert raw["=name"].to_list() == texts  # as text, not as what a formula gives


def test_workbooks_that_cannot_be_read(tmp_path):
    needs("excel", "fastexcel")
    needs("excel", "xlsxwriter")
    with pytest.raises(ArmsError, match=r"cannot read .*t\.xlsx"):
        Pool.from_csv(written(tmp_path / "t.xlsx", "x,y\n1,2\n"))
    write_workbook(pl.DataFrame({"x": []}), tmp_path / "e.xlsx")
    with pytest.raises(ArmsError, match="needs a sheet with a header and a row below it"):
        Pool.from_csv(tmp_path / "e.xlsx")
    with pytest.raises(ArmsError, match="has no sheet 'Runs'; it has 'Sheet1'"):
        Pool.from_csv(tmp_path / "e.xlsx#Runs")
    with pytest.raises(ArmsError, match="at least one candidate"):
        Pool.from_csv(tmp_path / "e.xlsx#Sheet1")


def test_workbooks_without_their_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(ArmsError, match=r"needs fastexcel: `pip install 'manyarms\[excel\]'`"):
        Pool.from_csv(written(tmp_path / "t.xlsx", "x,y\n1,2\n"))


# Ids


def test_ids_that_a_spreadsheet_changed_are_recognised(tmp_path, path):
    pool = Pool.from_dicts(
        [{"n": n, "x": i} for i, n in enumerate(["001", "002", "1E3", "a"])], id="n"
    )
    assert [pool.parts.ids.meant(text) for text in ("1", "2.0", "1000", "a", "3", "b")] == [
        "001", "002", "1E3", "a", None, None,
    ]  # fmt: skip
    several = Pool.from_dicts([{"n": "1", "x": 1}, {"n": "01", "x": 2}], id="n")
    assert several.parts.ids.meant("001") is None
    assert several.parts.ids.meant("01") == "01"
    with pytest.raises(ArmsError, match="a spreadsheet may have made of '002'"):
        pool.add([{"n": "2", "x": 9}])
    ma.Study.create(path, pool).close()
    manyarms("tell", path, written(tmp_path / "r.csv", "n,x,value\n1,0,5\n1000,2,7\n"))
    assert [trial.id for trial in ma.Study.open(path).history] == ["001", "1E3"]
    with pytest.raises(UnknownArmError):
        pool.positions("1")


# All combinations


def test_levels_make_all_combinations_but_for_some():
    levels = {"base": ["K2CO3", "CsOAc"], "temperature": [60, 80, 100, 120]}
    pool = Pool.from_levels(levels, exclude="base == 'CsOAc' and temperature > 100")
    assert len(pool) == 7
    assert pool.row(0) == {"base": "K2CO3", "temperature": 60}
    parts = [i / 10 for i in range(11)]
    blend = Pool.from_levels({"a": parts, "b": parts, "c": parts}, where="a + b + c == 1")
    assert len(blend) == 66
    for levels, options in [
        ({}, {}),
        ({"a": []}, {}),
        ({"a": "xy"}, {}),
        ({"a": [1, 1]}, {}),
        ({"a": [1, None]}, {}),
        ({"a": [1, 2]}, {"where": "a > 2"}),
        ({"a": ["x", "y"]}, {"exclude": "a == 'z'"}),
        ({f"a{i}": range(100) for i in range(5)}, {}),
        ({f"a{i}": range(100) for i in range(4)}, {}),
    ]:
        with pytest.raises((ArmsError, ParameterError)):
            Pool.from_levels(levels, **options)


@pytest.mark.slow
def test_more_combinations_than_fit_are_asked_one_block_after_another():
    n = range(128)
    pool = Pool.from_levels(
        {"a": n, "s": ["x", "y"], "b": n, "c": n}, where="a + b + c == 3 and s == 'y'"
    )
    assert len(pool) == 10


# Molecules


SMILES = ["CCO", "CCN", "c1ccccc1", "CC(=O)O", "OCC"]


def test_molecules_as_fingerprints_and_as_descriptors(tmp_path, path):
    needs("molecules", "rdkit")
    rows = [{"ligand": s, "t": t} for s in SMILES for t in (20, 40)]
    pool = Pool.from_dicts(rows, columns={"ligand": "smiles"})
    assert [(f.name, f.kind, f.n_bits) for f in pool.features] == [
        ("t", "numeric", 0),
        ("ligand", "bits", 2048),
    ]
    assert len(pool.X) == 8  # CCO and OCC are one molecule
    described = Pool.from_dicts(rows, columns={"ligand": "smiles:descriptors"})
    assert "ligand: MolWt" in [feature.name for feature in described.features]
    assert len(described.X) == 8
    listed = Pool.from_csv(
        written(tmp_path / "m.csv", "smiles\n" + "\n".join(SMILES)), columns={"smiles": "smiles"}
    )
    assert len(listed) == 5
    study = ma.Study.create(path, pool, seed=1)
    for _ in range(10):
        (id,) = study.ask()
        study.tell(id, float(pool.row(id)["t"]))
    np.testing.assert_array_equal(ma.Study.open(path).pool.X, pool.X)
    assert pool.row(study.best().recommended.id)["t"] == 40
    assert len(pool.add([{"ligand": "CCCl", "t": 20}]).X) == 9


def test_init_says_that_smiles_are_only_names(folder):
    path = written(folder / "m.csv", "Ligand SMILES,x\nCCO,1\nCCN,2\n")
    answer = manyarms("init", folder / "lab.db", "--pool", path, "--maximize")
    said_of_it = "Column 'Ligand SMILES' is names to the model; --column 'Ligand SMILES=smiles' compares molecules."
    assert said_of_it in answer.out


def test_wrong_smiles_are_named_with_their_row(tmp_path):
    needs("molecules", "rdkit")
    path = written(tmp_path / "m.csv", "smiles,x\nCCO,1\nC1CC,2\n")
    for kind in ("smiles", "smiles:descriptors"):
        with pytest.raises(ArmsError, match="molecules as SMILES, got 'C1CC' in row 3"):
            Pool.from_csv(path, columns={"smiles": kind})


def test_molecules_without_their_extra(tmp_path, monkeypatch):
    path = written(tmp_path / "m.csv", "smiles,x\nCCO,1\nCC,2\n")
    monkeypatch.setitem(sys.modules, "rdkit", None)
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(ArmsError, match=r"RDKit: `pip install 'manyarms\[molecules\]'`"):
        Pool.from_csv(path, columns={"smiles": "smiles:descriptors"})


# Types corrected later


def test_types_can_be_corrected_and_the_study_is_as_if_they_had_been_right(folder):
    rows = [{"t": f"{t} C", "s": s} for t in (20, 40, 60, 80) for s in "ab" for _ in range(3)]
    right = ma.Study.create(folder / "right.db", Pool.from_dicts(rows, columns={"t": "number"}))
    wrong = ma.Study.create(
        folder / "wrong.db", Pool.from_dicts(rows, columns={"t": "categorical"})
    )
    other = ma.Study.open(folder / "wrong.db")
    ids = list(range(0, 24, 2))
    values = [float(rows[i]["t"].split()[0]) + (i % 5) for i in ids]
    for study in (right, wrong):
        study.tell(ids, values)
    other.predict([1])
    before = wrong.predict(range(24)).mean
    wrong.retype({"t": "number"}, note="a slip")
    assert wrong.pool.columns == right.pool.columns == {"t": "integer", "s": "categorical"}
    assert wrong.pool.units == {"t": "C"}
    expected = right.predict(range(24)).mean
    for study in (wrong, other, ma.Study.open(folder / "wrong.db")):
        np.testing.assert_allclose(study.predict(range(24)).mean, expected, rtol=1e-6)
    assert np.abs(before - expected).max() > 0.01
    wrong.add([{"t": "100 C", "s": "b"}])
    assert wrong.pool.row(24) == {"t": 100, "s": "b"}
    wrong.undo()
    wrong.undo()
    np.testing.assert_allclose(wrong.predict(range(24)).mean, before, rtol=1e-6)
    assert wrong.pool.columns["t"] == "categorical"
    assert wrong.verify() == wrong.n_events


def test_a_type_that_cannot_be_changes_nothing(path):
    study = ma.Study.create(path, Pool.from_dicts([{"s": s, "x": i} for i, s in enumerate("abc")]))
    for columns in ({"s": "number"}, {"z": "log"}, {}, {"s": "odd"}, {"x": "log"}, None):
        n = study.n_events
        with pytest.raises((ArmsError, ParameterError)):
            study.retype(columns)
        assert study.n_events == n
    box = ma.Study.create(path.with_name("box.db"), ma.Box(x=(0, 1)))
    with pytest.raises(ParameterError, match="a box has no list"):
        box.retype({"x": "log"})


def test_columns_on_the_command_line(path, tmp_path):
    manyarms(
        "init",
        path,
        "--pool",
        written(tmp_path / "t.csv", RECIPES),
        "--id",
        "name",
        "--target",
        "yield",
        "--maximize",
    )
    shown = manyarms("columns", path).out
    assert re.search(r"^t +integer +20, 30, 40$", shown, re.MULTILINE)
    manyarms("columns", path, "--column", "t=categorical", "--note", "plates")
    assert manyarms("columns", path, "--json").data["columns"]["t"] == "categorical"
    assert "changed the types of columns: t categorical" in manyarms("history", path).out
    manyarms("columns", path, "--column", "base=ignore")
    assert "NOT USED: base (left out as asked)." in manyarms("columns", path).out
    manyarms("undo", path)
    assert manyarms("columns", path, "--json").data["not_used"] == {}


# The campaign of a messy sheet: its beginning


def test_a_messy_sheet_from_init_on(folder):
    sheet = sheets.write_messy_sheet(folder)
    lab = folder / "lab.db"
    told: list[str] = []
    # Each thing that is not clear is one question; the answer is in the message.
    options = ["--id", "Nr", "--maximize"]
    for _ in range(4):
        answer = said("init", lab, "--pool", sheet, *options)
        if not answer.code:
            break
        assert_one_line(answer)
        assert not lab.exists()
        told.append(answer.err)
        if "--target" in answer.err:
            options += ["--target", "yield (%)"]
        elif "RT" in answer.err:
            options += ["--column", "temperature=number:RT=25"]
        else:
            options += ["--column", "solvent=categorical:merge"]
    assert tuple(options) == sheets.MESSY_OPTIONS or set(options) == set(sheets.MESSY_OPTIONS)
    assert (
        "column 'yield (%)' looks like an outcome: repeat the command with --target 'yield (%)'"
        in told[0]
    )
    assert "got 'RT' in row 2 (id '001')" in told[1]
    assert "say what it stands for by --column temperature=number:RT=25" in told[1]
    assert (
        "'BuOAc' and 'BuOAc ' and 'buoac'; make one of them by --column solvent=categorical:merge"
        in told[2]
    )
    assert "lab.db: 54 candidates; maximize yield (%)." in answer.out
    assert (
        f"{sheets.N_RESULTS} results in column 'yield (%)', {sheets.N_FAILED} of them failed."
        in answer.out
    )
    assert "Left out 1 row (56): every cell is that of a row above." in answer.out
    assert "Took 1 row (57) as further trials" in answer.out
    assert "NOT USED: note (free text" in answer.out
    for line in (
        "temperature    integer, in °C    25, 80, 105\n",
        "loading        continuous, in %  2.5, 5\n",
        "concentration  continuous, in M  0.1, 1.25\n",
    ):
        assert line in answer.out
    study = ma.Study.open(lab)
    assert study.pool.ids.tolist() == sheets.NAMES
    for place, name in enumerate(sheets.NAMES):
        base, solvent, temperature, loading = sheets.RECIPES[place]
        row = study.pool.row(name)
        assert (row["base"], row["solvent"]) == (base, solvent)
        assert (row["temperature"], row["loading"]) == (
            sheets.TEMPERATURES[temperature],
            sheets.LOADINGS[loading],
        )
    values = {trial.id: trial.value for trial in study.history[:-1] if not trial.failed}
    assert values == {name: sheets.true_yield(name) for name in values}
    assert len(study.history) == sheets.N_RESULTS
    assert study.history[0].note == "white crystals, dried"
    # The study goes on in the marks of the sheet.
    manyarms("suggest", lab, "-n", 2, "-o", folder / "next.csv")
    text = (folder / "next.csv").read_text("utf-8-sig")
    header, first, _ = text.splitlines()
    assert header.split(";")[0] == "Nr"
    assert header.split(";")[-1] == "yield (%)"
    assert re.search(r";(2,5|5,0);", first)
    (folder / "next.csv").write_text(text.rstrip("\n") + "61,5 %\n", "utf-8")
    manyarms("tell", lab, folder / "next.csv")
    assert ma.Study.open(lab).history[-1].value == 61.5
    # The sheet itself, told again, has nothing new.
    assert manyarms("tell", lab, sheet, "--json").data["told"] == 0


def test_a_sheet_through_a_workbook(folder):
    needs("excel", "xlsxwriter")
    needs("excel", "fastexcel")
    lab = folder / "lab.db"
    manyarms("init", lab, "--pool", sheets.write_messy_sheet(folder), *sheets.MESSY_OPTIONS)
    manyarms("suggest", lab, "-n", 3, "-o", folder / "next.xlsx")
    frame = read_sheet(folder / "next.xlsx", None, {"Nr"}, set()).frame
    # A spreadsheet has made numbers of the ids, and someone typed a comma in one cell.
    changed = frame.with_columns(
        pl.col("Nr").cast(pl.Int64), pl.Series("yield (%)", ["61.5", "62,5", "failed"])
    )
    write_workbook(changed, folder / "done.xlsx", "")
    manyarms("tell", lab, folder / "done.xlsx", "--yes")
    told = ma.Study.open(lab).history[-3:]
    assert [trial.value for trial in told[:2]] == [61.5, 62.5]
    assert told[2].failed
    assert [trial.id for trial in told] == frame["Nr"].to_list()
    for command in (["history"], ["predict"]):
        given = [folder / "next.xlsx"] if command == ["predict"] else []
        manyarms(*command, lab, *given, "-o", folder / f"{command[0]}.xlsx")
        assert len(read_sheet(folder / f"{command[0]}.xlsx", None, set(), set()).frame)
    assert (folder / "history.xlsx").read_bytes()[:2] == b"PK"


def test_init_asks_on_a_terminal(folder, monkeypatch):
    recipes = written(folder / "t.csv", RECIPES)

    class Screen(io.StringIO):
        def isatty(self):
            return True

    class Keyboard:
        def __init__(self, line):
            self.line = line

        def isatty(self):
            return True

        def readline(self):
            return self.line

    for line, code in (("", 2), ("perhaps\n", 2), ("n\n", 2), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Keyboard(line))
        monkeypatch.setattr("sys.stderr", Screen())
        options = ["--pool", str(recipes), "--id", "name", "--maximize"]
        assert main(["init", str(folder / "lab.db"), *options]) == code
        shown = sys.stderr.getvalue()
        assert "Is column 'yield' what came out of trials? [y/n]" in shown
        assert (folder / "lab.db").exists() == (code == 0)
    assert ma.Study.open(folder / "lab.db").n_results == 7


def test_the_likeliest_outcome_is_named_and_the_others_with_it(folder):
    path = written(folder / "t.csv", "name,x,conversion,Yield\na,1,5,6\nb,2,,\n")
    options = ["--pool", path, "--id", "name", "--maximize"]
    answer = said("init", folder / "lab.db", *options)
    command = "--target Yield --column conversion=ignore"
    assert f"repeat the command with {command}, or" in answer.err
    shown = manyarms("init", folder / "lab.db", *options, *command.split()).out
    assert "NOT USED: conversion (left out as asked)." in shown


def test_a_new_level_is_named_by_add(folder):
    lab = folder / "lab.db"
    manyarms(
        "init",
        lab,
        "--pool",
        written(folder / "t.csv", RECIPES),
        "--id",
        "name",
        "--target",
        "yield",
        "--maximize",
    )
    answer = manyarms(
        "add", lab, written(folder / "u.csv", "yield,t,base,name\n5,20,d,s0\n,30,a,s1\n")
    )
    assert answer.out.splitlines() == [
        "Added 2 candidates; there are 17 now.",
        "Told 1 result in column 'yield'.",
        "New in column 'base': 'd'. Nothing is known of it yet.",
    ]


def test_levels_on_the_command_line(folder):
    factors = written(
        folder / "factors.csv", "base;temperature\nK2CO3;60 °C\nCsOAc;80 °C\n;100 °C\n"
    )
    manyarms("init", folder / "a.db", "--levels", factors, "--maximize")
    study = ma.Study.open(folder / "a.db")
    assert len(study.pool) == 6
    assert study.pool.units == {"temperature": "°C"}
    answer = manyarms(
        "init",
        folder / "b.db",
        "--levels",
        "base=K2CO3,CsOAc",
        "temperature=60:120:20",
        "--exclude",
        "base == 'CsOAc' and temperature > 100",
        "--maximize",
    )
    assert "7 candidates" in answer.out
    manyarms(
        "init",
        folder / "c.db",
        "--levels",
        "a=0:0.3:0.1",
        "--levels",
        "b=1,2.5",
        "--column",
        "b=categorical",
        "--minimize",
    )
    pool = ma.Study.open(folder / "c.db").pool
    assert [row["a"] for row in pool.rows(range(8))] == [0, 0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    assert pool.columns == {"a": "continuous", "b": "categorical"}


def test_a_new_level_is_named_by_predict_and_columns_that_are_not_used_may_lack(folder):
    lab = folder / "lab.db"
    text = RECIPES.replace("yield\n", "yield,lot,note\n", 1).replace(
        "\nr1,a,30,1", "\nr1,a,30,1,7,x"
    )
    lines = [line if i == 0 else line + ",7," for i, line in enumerate(text.splitlines())]
    path = written(folder / "t.csv", "\n".join(line.replace(",7,x,7,", ",7,x") for line in lines))
    manyarms("init", lab, "--pool", path, "--id", "name", "--target", "yield", "--maximize")
    pool = ma.Study.open(lab).pool
    assert set(pool.unused) == {"lot", "note"}
    answer = manyarms("predict", lab, written(folder / "u.csv", "name,base,t\nr1,b,30\nx,d,20\n"))
    assert answer.err == "New in column 'base': 'd'. Nothing is known of it yet.\n"
    assert [line.split()[0] for line in answer.out.splitlines()] == ["id", "r1", "x"]
    manyarms("add", lab, folder / "v.csv", code=2)
    manyarms("add", lab, written(folder / "v.csv", "name,base,t\nx,d,20\n"))
    assert ma.Study.open(lab).pool.row("x") == {"base": "d", "t": 20, "lot": 7, "note": None}
    wrong = said("predict", lab, written(folder / "w.csv", "name,base,t\nr1,b,30\ny,d,warm\n"))
    assert "got 'warm' in row 3 (id 'y')" in wrong.err


@pytest.mark.parametrize("types", [{}, {"dry": "categorical", "n": "categorical"}, {"n": "text"}])
def test_the_same_sheet_is_the_same_table_in_both_kinds_of_files(tmp_path, types):
    needs("excel", "fastexcel")
    needs("excel", "xlsxwriter")
    frame = pl.DataFrame(
        {
            "name": ["007", "008", "010"],
            "n": [3, 1, 2],
            "x": [0.5, None, 2.25],
            "dry": [True, False, True],
            "bits": ["00110011", "01010101", "11110000"],
            "t": ["80 °C", "1,200 °C", "25 °C"],
            "base": ["a", " b", "=1+1"],
        }
    )
    write_csv(frame, tmp_path / "t.csv", ",", ".")
    write_workbook(frame, tmp_path / "t.xlsx")
    pools = [
        Pool.from_csv(tmp_path / name, id="name", columns=types, missing="drop", decimal=".")
        for name in ("t.csv", "t.xlsx")
    ]
    assert pools[0].columns == pools[1].columns
    assert pools[0].rows(pools[0].ids) == pools[1].rows(pools[1].ids)
    assert np.array_equal(pools[0].X, pools[1].X)
    assert pools[0].ids.tolist() == pools[1].ids.tolist() == ["007", "010"]
