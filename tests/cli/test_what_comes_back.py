"""All that comes back in a file is compared, or kept, or said to be left out."""

import polars as pl
import pytest
from command_line import assert_one_line, manyarms, said

import manyarms as ma

TABLE = """name,solvent,temperature,operator,price,made,comment
a,water,20,Ann the first,12.5 €,2026-01-05,
b,DMF,30,Bob the second,13.5 €,2026-01-06,
c,water,40,Carl the third,9.5 €,2026-01-07,was brown
d,DMF,50,Dora the fourth,100 €,2026-01-08,
e,THF,60,Emil the fifth,7 €,2026-01-09,
"""
IGNORED = [f"--column={name}=ignore" for name in ("operator", "price", "made")]
OWN = """name,x,run,remark,yield
a,1,r1,white,71
a,1,r2,white,71
a,1,r2,white,71
b,2,r3,,65
c,3,r4,,
"""


@pytest.fixture
def lab(folder):
    (folder / "t.csv").write_text(TABLE)
    manyarms(
        "init", folder / "lab.db", "--pool", folder / "t.csv", "--id=name", "--maximize", *IGNORED
    )
    manyarms("suggest", folder / "lab.db", "-n", 3, "-o", folder / "next.csv")
    return folder / "lab.db"


def filled(lab, **columns):
    """The sheet that was suggested, with these columns filled in."""
    sheet = pl.read_csv(lab.parent / "next.csv", infer_schema=False)
    sheet.with_columns(**{name: pl.Series(cells) for name, cells in columns.items()}).write_csv(
        lab.parent / "done.csv"
    )
    return lab.parent / "done.csv"


def notes(lab):
    return [each["note"] for each in manyarms("history", lab, "--json").data["results"]]


def test_a_second_outcome_and_remarks_are_kept_with_the_result(lab):
    sheet = filled(
        lab,
        value=["50", "60", ""],
        impurity=["03.20", "", "9"],
        **{"who did it": ["Ann", "Bob", None]},
        note=["dried", None, None],
    )
    answer = manyarms("tell", lab, sheet)
    assert "kept in the notes of the results: 'impurity', 'who did it', 'note'" in answer.err
    assert "left out the notes of 1 row without a value" in answer.err
    kept = ["impurity: 03.20; who did it: Ann; note: dried", "who did it: Bob"]
    assert notes(lab) == kept
    assert "impurity: 03.20" in manyarms("history", lab).out
    manyarms("export", lab, "-o", lab.parent / "out.csv")
    assert pl.read_csv(lab.parent / "out.csv")["comment"].to_list() == kept
    # Neither file brings anything new.
    for file in (sheet, lab.parent / "out.csv"):
        again = manyarms("tell", lab, file, "--json").data
        assert (again["told"], again["noted"], again["known"]) == (0, 0, 2)


def test_what_was_filled_in_where_the_table_is_empty_is_kept(lab):
    """The sheet has a column of remarks of its own, and another that is empty."""
    sheet = filled(lab, value=["50", "60", "70"], comment=["turned red", "", ""])
    manyarms("tell", lab, sheet)
    assert notes(lab) == ["turned red", None, None]
    empty = lab.parent / "empty.db"
    rows = [{"id": f"m{i}", "x": i, "seen": None, "note": None} for i in range(4)]
    with ma.Study.create(empty, ma.Pool.from_dicts(rows, id="id")):
        (lab.parent / "seen.csv").write_text("id,x,seen,note,value\nm1,1,crystals,old flask,5\n")
    manyarms("tell", empty, lab.parent / "seen.csv")
    assert notes(empty) == ["old flask; seen: crystals"]


def test_what_has_no_room_is_said(lab):
    sheet = filled(lab, value=["50", "60", "70"], long=["x" * 1200] * 3, short=["y"] * 3)
    answer = manyarms("tell", lab, sheet)
    assert "left out, as a note has 1,000 characters at most: 'long'" in answer.err
    assert notes(lab) == ["short: y"] * 3


def test_rows_without_id_and_value_are_said(lab):
    text = "name,value,remark\na,5,\n,,bought a new pump\n"
    (lab.parent / "rows.csv").write_text(text)
    assert (
        "left out 1 row without an id and a value"
        in manyarms("tell", lab, lab.parent / "rows.csv").err
    )


@pytest.mark.parametrize(
    ("column", "cell"),
    [("operator", "Zoe"), ("price", "99 €"), ("temperature", "21"), ("solvent", "DMSO")],
)
def test_every_column_is_compared(lab, column, cell):
    sheet = filled(lab, value=["50", "60", "70"], **{column: [cell] * 3})
    answer = said("tell", lab, sheet)
    assert answer.code == 2
    assert_one_line(answer)
    assert repr(column) in answer.err
    assert not notes(lab)


def test_what_a_spreadsheet_does_is_no_difference(lab):
    sheet = pl.read_csv(lab.parent / "next.csv", infer_schema=False)
    german = sheet["made"].str.replace(r"(\d+)-0?(\d+)-0?(\d+)", "$3.$2.$1")
    prices = sheet["price"].str.replace(".", ",", literal=True)
    upper = sheet["operator"].str.to_uppercase()
    file = filled(lab, value=["50", "60", "70"], made=german, price=prices, operator=upper)
    assert manyarms("tell", lab, file, "--json").data["told"] == 3
    assert notes(lab) == [None] * 3


def test_a_true_replicate_with_the_same_value_counts(folder):
    """It differs from the first in a column that is not used; a copy differs in none."""
    lab = folder / "lab.db"
    (folder / "own.csv").write_text(OWN)
    answer = manyarms(
        "init", lab, "--pool", folder / "own.csv", "--id=name", "--target=yield", "--maximize",
        "--column=run=ignore",
    )  # fmt: skip
    assert "Left out 1 row (4): every cell is that of a row above." in answer.out
    assert "Took 1 row (3) as further trials" in answer.out
    assert len(notes(lab)) == 3
    (folder / "own.csv").write_text(OWN.replace("c,3,r4,,", "c,3,r4,,\na,1,r9,white,71"))
    told = manyarms("tell", lab, folder / "own.csv")
    assert "Told 1 result; the study has 4." in told.out
    assert "left out 1 row: all that counts is that of a row above" in told.err
    assert manyarms("tell", lab, folder / "own.csv", "--json").data["told"] == 0
    assert manyarms("tell", lab, folder / "own.csv", "--again", "--json").data["told"] == 5


def test_results_may_come_in_a_parquet_file(lab):
    columns = {"name": ["a", "b"], "value": [1.5, None], "curve": [[1, 2], None], "n": [3, 4]}
    pl.DataFrame(columns).write_parquet(lab.parent / "done.parquet")
    manyarms("tell", lab, lab.parent / "done.parquet")
    assert notes(lab) == ["curve: [1, 2]; n: 3"]


def test_conditions_on_columns_that_are_not_used(lab):
    """Numbers are numbers there, too, whatever unit is behind them."""
    for condition, there in (
        ("price > 12", {"a", "b", "d"}),
        ("price == 9.5", {"c"}),
        ("operator == 'Emil the fifth'", {"e"}),
        ("comment == 'was brown'", {"c"}),
    ):
        with ma.Study.open(lab) as study:
            assert set(study.pool.ids[study.pool.where(condition)]) == there
    manyarms("release", lab, "--all")
    answer = manyarms("suggest", lab, "-n", 1, "--where", "price < 8", "--json")
    assert [each["id"] for each in answer.data["candidates"]] == ["e"]
