"""Mistakes at the command line: made, shown, and taken back."""

import io
import sys

import polars as pl
import pytest
from command_line import assert_one_line, manyarms, said

import manyarms as ma
from manyarms.cli.reading import is_same

TABLE = "name,solvent,temperature,dose\n" + "".join(
    f"{solvent}-{t},{solvent},{t},{0.5 + t / 7:.5f}\n"
    for solvent in ("water", "ethanol")
    for t in range(20, 120, 10)
)


@pytest.fixture
def lab(folder, monkeypatch):
    """A study in the current folder, and a batch of four to fill in."""
    monkeypatch.chdir(folder)
    (folder / "recipes.csv").write_text(TABLE)
    manyarms("init", "lab.db", "--pool", "recipes.csv", "--id", "name", "--maximize")
    manyarms("suggest", "lab.db", "-n", 4, "-o", "next.csv")
    return folder / "lab.db"


def filled(values, source="next.csv", to="next.csv", **columns):
    """Fill in a file that suggest wrote; returns the ids."""
    rows = pl.read_csv(source, infer_schema=False)
    filled = rows.with_columns(pl.Series("value", [str(v) for v in values]))
    filled.with_columns(pl.Series(name, cells) for name, cells in columns.items()).write_csv(to)
    return rows["name"].to_list()


def values_of(lab):
    with ma.Study.open(lab) as study:
        return [(trial.id, trial.value) for trial in study.history]


def test_a_typo_is_corrected_and_the_history_says_who_when_and_why(lab):
    ids = filled([50, 60, 7.15, 80])
    manyarms("tell", lab, "next.csv", "--note", "Monday")
    answer = manyarms("correct", lab, ids[2], 71.5, "--note", "decimal point", "--worker", "Ada")
    assert f"Corrected {ids[2]}: 7.15 is now 71.5." in answer.out
    assert values_of(lab) == list(zip(ids, [50, 60, 71.5, 80], strict=True))
    history = manyarms("history", lab)
    assert f"corrected {ids[2]} from 7.15 to 71.5" in history.out
    assert "decimal point" in history.out
    assert history.out.count("Monday") == 4
    (change,) = manyarms("history", lab, "--json").data["changes"]
    assert change["worker"] == "Ada"
    assert change["note"] == "decimal point"
    undone = manyarms("undo", lab, "--note", "it was right", "--json").data
    assert undone["undone"] == change["event"]
    assert values_of(lab)[2] == (ids[2], 7.15)
    manyarms("undo", lab, undone["event"])  # which takes back the taking back
    assert values_of(lab)[2] == (ids[2], 71.5)


def test_of_several_results_the_wrong_one_is_named(lab):
    for value in (50, 51.123456, 510):
        manyarms("tell", lab, "water-20", value)
    answer = manyarms("correct", lab, "water-20", 51, code=2)
    assert "3 results, 50, 51.123, 510" in answer.err
    assert "--was" in answer.err
    manyarms("correct", lab, "water-20", 51, "--was", 510)
    manyarms("correct", lab, "water-20", "none", "--was", "51.123")  # as it is printed
    assert values_of(lab) == [("water-20", 50), ("water-20", 51)]
    manyarms("correct", lab, "water-20", "failed", "--was", 51, "--yes")
    assert values_of(lab)[1] == ("water-20", None)
    manyarms("correct", lab, "water-20", -5, "--was", "failed")
    assert values_of(lab)[1] == ("water-20", -5)


def test_undo_takes_back_call_after_call(lab):
    ids = filled([50, 60, 70, 80])
    manyarms("tell", lab, "next.csv")
    manyarms("retire", lab, "water-20")
    answer = manyarms("undo", lab)
    assert "retired water-20" in answer.out
    answer = manyarms("undo", lab)
    assert "told" in answer.out
    assert "0 results" in answer.out
    with ma.Study.open(lab) as study:
        assert study.pending == ids
    answer = manyarms("undo", lab)
    assert f"suggested {ids[0]}, {ids[1]}" in answer.out
    assert "nothing is left" in manyarms("undo", lab, code=2).err
    # The file of a batch that was taken back may be told all the same.
    manyarms("tell", lab, "next.csv")
    assert len(values_of(lab)) == 4


def test_a_value_changed_in_a_file_that_was_told_is_a_correction(lab):
    ids = filled([50, 60, 7.15, ""])
    manyarms("tell", lab, "next.csv")
    filled([50, 60, 71.5, 80])
    answer = manyarms("tell", lab, "next.csv")
    assert f"Corrected {ids[2]}: 7.15 is now 71.5." in answer.out
    assert "Told 1 result; the study has 4." in answer.out
    assert "skipped 2 rows that the study has" in answer.err
    assert values_of(lab) == list(zip(ids, [50, 60, 71.5, 80], strict=True))
    assert manyarms("tell", lab, "next.csv", "--json").data["corrected"] == []
    data = manyarms("history", lab, "--json").data
    assert [change["change"] for change in data["changes"]] == [
        f"corrected {ids[2]} from 7.15 to 71.5"
    ]


def test_a_file_from_before_a_correction_does_not_bring_the_mistake_back(lab):
    ids = filled([50, 60, 7.15, ""])
    manyarms("tell", lab, "next.csv")
    manyarms("correct", lab, ids[2], 71.5)
    manyarms("correct", lab, ids[1], "none")
    filled([50, 60, 7.15, 80])  # the file still has both
    answer = manyarms("tell", lab, "next.csv")
    assert "2 rows with a value that was corrected" in answer.err
    assert "--replace" in answer.err
    assert values_of(lab) == [(ids[0], 50), (ids[2], 71.5), (ids[3], 80)]
    manyarms("tell", lab, "next.csv", "--replace")
    assert sorted(values_of(lab)) == sorted(zip(ids, [50, 60, 7.15, 80], strict=True))


def test_replace_takes_the_place_of_all_that_a_candidate_has(lab):
    for value in (1, 2, 3):
        manyarms("tell", lab, "water-20", value)
    answer = manyarms("tell", lab, "water-20", 2, "--replace", "--json")
    assert answer.data["told"] == 0
    assert values_of(lab) == [("water-20", 2)]
    manyarms("tell", lab, "water-20", 5, "--replace", "--note", "another day")
    assert values_of(lab) == [("water-20", 5)]
    manyarms("tell", lab, "water-30", 6, "--replace")
    (lab.parent / "two.csv").write_text("name,value\nwater-30,7\nwater-30,8\n")
    manyarms("tell", lab, "two.csv", "--replace")
    assert values_of(lab) == [("water-20", 5), ("water-30", 7), ("water-30", 8)]
    assert (
        "give one of them" in manyarms("tell", lab, "two.csv", "--replace", "--again", code=2).err
    )


def test_failed_asks_before_it_throws_out_a_candidate_with_values(lab, monkeypatch):
    manyarms("tell", lab, "water-20", 50)
    (lab.parent / "f.csv").write_text("name,value\nwater-20,failed\n")
    for line in (
        ["failed", lab, "water-30", "water-20"],
        ["tell", lab, "water-20", "failed"],
        ["tell", lab, "f.csv"],
        ["correct", lab, "water-20", "failed"],
        ["import", lab, "f.csv"],
    ):
        answer = manyarms(*line, code=2)
        assert_one_line(answer)
        assert "'water-20' has a value, 50" in answer.err
        assert "--yes" in answer.err
    assert values_of(lab) == [("water-20", 50)]

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    asked = Terminal()
    for reply, code in (("n\n", 2), ("\n", 2), ("y\n", 0)):
        monkeypatch.setattr(sys, "stdin", Terminal(reply))
        monkeypatch.setattr(sys, "stderr", asked)
        # `said` puts streams of its own in place of stderr, which are no terminals.
        monkeypatch.setattr("contextlib.redirect_stderr", lambda stream: _Here(asked))
        assert said("failed", lab, "water-20").code == code
        monkeypatch.undo()
    assert "Go on?" in asked.getvalue()
    assert values_of(lab) == [("water-20", 50), ("water-20", None)]
    manyarms("tell", lab, "water-20", 52)  # a later value lifts it
    assert "water-20" in {
        each["id"] for each in manyarms("top", lab, "-k", 20, "--json").data["top"]
    }


class _Here:
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        return self.stream

    def __exit__(self, *_):
        pass


def test_restore_takes_back_retire(lab):
    manyarms("tell", lab, "water-20", 50)
    manyarms("retire", lab, "water-20", "water-30", "--note", "sold out")
    assert "water-20" not in manyarms("top", lab, "-k", 20).out
    manyarms("restore", lab, "water-20", "--note", "bought")
    assert "water-20" in manyarms("top", lab, "-k", 20).out
    assert "not retired" in manyarms("restore", lab, "water-20", code=2).err
    changes = manyarms("history", lab, "--json").data["changes"]
    assert [(each["change"], each["note"]) for each in changes] == [
        ("retired water-20, water-30", "sold out"),
        ("restored water-20", "bought"),
    ]


def test_the_file_of_another_study_is_refused_and_the_first_difference_named(lab):
    ids = filled([50, 60, 70, 80], dose=["", "", "9.9", "1.1"])
    answer = manyarms("tell", lab, "next.csv", code=2)
    assert_one_line(answer)
    assert "next.csv, row 4: 'dose'" in answer.err
    assert repr(ids[2]) in answer.err
    assert "'9.9'" in answer.err
    assert not values_of(lab)


def test_a_file_as_a_spreadsheet_leaves_it_is_taken(lab):
    rows = pl.read_csv("next.csv")
    rounded = [f"{dose:.2f}" for dose in rows["dose"]]
    capitals = [solvent.upper() + " " for solvent in rows["solvent"]]
    filled([1, 2, 3, 4], dose=rounded, solvent=capitals)
    assert manyarms("tell", lab, "next.csv", "--json").data["told"] == 4


@pytest.mark.parametrize(
    ("known", "cell", "same"),
    [
        (80, "80.0", True),
        (80, "80,0", True),
        (80, "81", False),
        (3.357142, "3.36", True),
        (3.357142, "3.37", False),
        (3.357142, "3", False),
        (1e-8, "1E-08", True),
        ("007", "7", True),
        ("DMF", "dmf", True),
        ("DMF", "DMA", False),
        (True, "TRUE", True),
        (True, "0", False),
        (None, "x", False),
        ([0, 1], "1", True),
    ],
)
def test_cells_that_say_the_same(known, cell, same):
    assert is_same(known, cell) is same


def test_notes_are_kept_with_the_results(lab):
    filled([50, 60, 70, 80], note=["cloudy", "", "=cmd()", ""])
    manyarms("tell", lab, "next.csv", "--note", "Tuesday")
    assert [row["note"] for row in manyarms("history", lab, "--json").data["results"]] == [
        "cloudy",
        "Tuesday",
        "=cmd()",
        "Tuesday",
    ]
    manyarms("export", lab, "-o", "out.csv")
    manyarms("history", lab, "-o", "told.csv")
    for name in ("out.csv", "told.csv"):
        assert pl.read_csv(name)["note"].to_list() == ["cloudy", "Tuesday", "'=cmd()", "Tuesday"]
    # A file that is exported and told elsewhere brings its notes along.
    manyarms("init", "copy.db", "--pool", "recipes.csv", "--id", "name", "--maximize")
    manyarms("import", "copy.db", "out.csv")
    assert manyarms("history", "copy.db", "--json").data["results"][2]["note"] == "=cmd()"


def test_mistakes_with_the_points_of_a_box(folder, monkeypatch):
    monkeypatch.chdir(folder)
    manyarms("init", "oven.db", "--box", "t=20:120", "--box", "fan=on,off", "--maximize")
    manyarms("suggest", "oven.db", "-n", 3, "-o", "next.csv")
    rows = pl.read_csv("next.csv", infer_schema=False)
    rows.with_columns(value=pl.Series(["1", "2", "30"])).write_csv("next.csv")
    manyarms("tell", "oven.db", "next.csv")
    rows.with_columns(value=pl.Series(["1", "2", "3"])).write_csv("next.csv")
    assert "Corrected 3: 30 is now 3." in manyarms("tell", "oven.db", "next.csv").out
    manyarms("correct", "oven.db", 1, 10)
    assert [trial.value for trial in ma.Study.open("oven.db").history] == [10, 2, 3]
    assert "corrected 1 from 1 to 10" in manyarms("history", "oven.db").out
    assert "corrected 1 from 1 to 10" in manyarms("undo", "oven.db").out
    manyarms("failed", "oven.db", 2, "--yes")
    assert manyarms("restore", "oven.db", 2, code=2)


def test_a_file_of_what_is_pending_is_of_the_same_suggestions(lab):
    ids = filled([50, "", "", ""])
    manyarms("tell", lab, "next.csv")
    manyarms("suggest", lab, "--pending", "-o", "rest.csv")
    filled([60, 70, 80], "rest.csv", "rest.csv")
    manyarms("tell", lab, "rest.csv")
    filled([50, 60, 71, 80])  # the first file, filled in as well, one row otherwise
    answer = manyarms("tell", lab, "next.csv", "--json").data
    assert answer["told"] == 0
    assert [each["id"] for each in answer["corrected"]] == [ids[2]]
    assert answer["known"] == 3


def test_a_note_that_is_written_later_is_kept(lab):
    filled([50, 60, 70, 80], note=["cloudy", "", "", ""])
    manyarms("tell", lab, "next.csv")
    filled([50, 60, 71, 80], note=["cloudy", "spilled", "weighed again", ""])
    answer = manyarms("tell", lab, "next.csv")
    assert "kept 2 new notes" in answer.err
    rows = manyarms("history", lab, "--json").data["results"]
    assert [row["note"] for row in rows] == ["cloudy", "spilled", "weighed again", None]
    assert rows[2]["value"] == 71
    assert "noted spilled, weighed again" in manyarms("undo", lab).out
    rows = manyarms("history", lab, "--json").data["results"]
    assert [row["note"] for row in rows] == ["cloudy", None, None, None]


def test_what_looks_like_a_mistake_is_said(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "recipes.csv").write_text(TABLE)
    made = ["--pool", "recipes.csv", "--id", "name", "--maximize", "--bounds", 0, 100]
    manyarms("init", "lab.db", *made)
    answer = manyarms("tell", "lab.db", "water-20", 505)
    assert "water-20 has 505, which is outside of the bounds 0 to 100" in answer.err
    answer = manyarms("tell", "lab.db", "water-20", 50.5)
    assert "2 results now" in answer.err
    assert "--replace" in answer.err
    assert not manyarms("tell", "lab.db", "water-30", 100).err
