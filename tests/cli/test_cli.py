"""The command line: every command with good input and with bad, files as spreadsheets write them, no traceback ever."""

import ast
import errno
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import typer
from command_line import assert_one_line, manyarms, said
from extras import needs
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import manyarms as ma
from manyarms.cli.app import WORDS, on_the_command_line
from manyarms.cli.commands import COMMANDS, app_for, function_of
from manyarms.cli.report import FIGURES
from manyarms.runtime import files
from manyarms.study.copies import exported

ROOT = Path(__file__).parents[2]
NAMES = [name for commands in COMMANDS.values() for name in commands]
SOLVENTS = {"water": 0.0, "ethanol": 20.0, "toluene": 10.0}
TABLE = "name,solvent,temperature,dose\n" + "".join(
    f"{solvent}-{t},{solvent},{t},{0.5 + t / 7:.3f}\n"
    for solvent in SOLVENTS
    for t in range(20, 120, 10)
)


def yield_of(id: str) -> float:
    solvent, temperature = id.split("-")
    return 60 + SOLVENTS[solvent] - (int(temperature) - 80) ** 2 / 100


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A study with twelve results, one of them failed, and two pending."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "recipes.csv").write_text(TABLE)
    lab = folder / "lab.db"
    manyarms("init", lab, "--pool", folder / "recipes.csv", "--id", "name", "--maximize")
    for batch in range(2):
        manyarms("suggest", lab, "-n", 6, "-o", folder / f"{batch}.csv")
        rows = pl.read_csv(folder / f"{batch}.csv")
        values = [
            "failed" if (batch, i) == (1, 2) else str(yield_of(id))
            for i, id in enumerate(rows["name"])
        ]
        rows.with_columns(pl.Series("value", values)).write_csv(folder / f"{batch}.csv")
        manyarms("tell", lab, folder / f"{batch}.csv")
    manyarms("suggest", lab, "-n", 2, "--worker", "Ada", "--lease", "2d")
    return folder


@pytest.fixture
def lab(template, folder):
    for name in ("lab.db", "recipes.csv", "0.csv"):
        shutil.copy(template / name, folder)
    return folder / "lab.db"


# Help and documentation


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example_and_every_command_answers_in_json(name):
    text = manyarms(name, "--help").out
    assert re.search(rf"Examples?:\s+manyarms {name} ", text)
    assert "--json" in text


def test_the_list_of_commands_says_what_the_command_says_and_loads_none():
    for commands in COMMANDS.values():
        for name, command in commands.items():
            assert function_of(name, command).__doc__.startswith(f"{command.summary}\n")
    probe = "from manyarms.cli import main; import sys; main(['--help']); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    *page, loaded = ran.stdout.splitlines()
    assert "candidates with the best estimates" in " ".join(page)
    assert not {"numpy", "polars"} & set(loaded.split())


def test_without_a_command_there_is_help():
    assert "init" in manyarms().out
    assert manyarms("--version").out.strip() == ma.__version__


def options_of(name):
    """As they are written in full."""
    parameters = typer.main.get_command(app_for([name])).commands[name].params
    return {
        option
        for each in parameters
        for option in [*each.opts, *each.secondary_opts]
        if option.startswith("--")
    }


def test_the_page_lists_every_command_option_and_exit_code():
    page = (ROOT / "docs" / "cli.md").read_text()
    for name in NAMES:
        section = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
        assert section, name
        for option in options_of(name):
            assert option in section.group(1) + page.split("\n## Commands")[0], f"{name} {option}"
    for code in (0, 1, 2, 3, 4, 5, 130):
        assert re.search(rf"^\| {code} \|", page, re.MULTILINE), code


HOLES = "name,x,when\na,1,\nb,,\n{c},x,2020-01-01\n"
SENTENCES = [  # what is typed, and how the sentence ends
    (["status", "no.db"], "make one with `manyarms init`, or check the path"),
    (["init", "lab.db", "--pool", "recipes.csv", "--maximize"], "open it with `manyarms status`"),
    (["top", "new.db"], "call `manyarms tell` first"),
    (["init", "n.db", "--pool", "holes.csv", "--minimize"], "leave the row out (--missing drop)"),
    (
        ["init", "n.db", "--pool", "dates.csv", "--minimize"],
        "by --column 'the day=categorical', or leave it out by --column 'the day=ignore'",
    ),
    (
        ["init", "n.db", "--pool", "recipes.csv", "--minimize", "--column", "solvent=ordered"],
        "in order, --column solvent=ethanol,toluene,water",
    ),
    (
        ["init", "n.db", "--pool", "recipes.csv", "--minimize", "--column", "name=continuous"],
        "correct the value, make all of them categories by --column name=categorical, or leave",
    ),
    (["init", "n.db", "--pool", "recipes.csv", "--minimize", "--missing", "x"], "got 'x'"),
    (["init", "n.db", "--pool", "book.csv", "--minimize"], "save the sheet as CSV"),
    (["tell", "lab.db", "{0}", "3"], "no candidate has the id '{0}'; ids are strings such as"),
]


@pytest.mark.parametrize(("typed", "end"), SENTENCES, ids=lambda x: x if isinstance(x, str) else "")
def test_a_sentence_is_made_of_what_the_error_holds(lab, monkeypatch, typed, end):
    monkeypatch.chdir(lab.parent)
    Path("holes.csv").write_text("name,x\na,1\nb,\nc,3\nd,4\n")
    Path("dates.csv").write_text("name,the day\na,2020-01-01\nb,2020-01-02\n")
    Path("book.csv").write_bytes(b"PK\x03\x04,b\n\xff,\xfe\n")
    manyarms("init", "new.db", "--pool", "recipes.csv", "--id", "name", "--maximize")
    answer = manyarms(*typed, code=2)
    assert_one_line(answer)
    assert end in answer.err
    for name in set(WORDS) - {"noise", "id", "level", "kernel", "columns"}:  # words of English too
        assert f" {name} " not in answer.err, "a name of the library"
    assert "columns=" not in answer.err


def test_all_advice_has_words_on_the_command_line():
    """Every option or call that an error of the library names."""
    found = [
        node.args[1]
        for path in (ROOT / "src" / "manyarms").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Advice"
        if len(node.args) > 1
    ]
    assert len(found) > 10
    for option in found:
        assert isinstance(option, ast.Constant)
        assert option.value in WORDS, option.value


def test_what_does_the_same_here():
    assert on_the_command_line("missing", "drop") == "--missing drop"
    assert on_the_command_line("columns", {"a b": "log"}) == "--column 'a b=log'"
    assert on_the_command_line("columns", {"x": [1, 2]}) == "--column x=1,2"
    assert on_the_command_line("Pool.from_frame", None) is None
    assert on_the_command_line("anything else", None) == "anything else"


# The round


def test_from_a_table_to_a_recommendation(lab):
    before = manyarms("status", lab, "--json", "--tolerance", 1e6).data
    assert before["results"] == 12
    assert before["failed"] == 1
    assert before["certificate"]["regret_bound"] is None
    assert before["certificate"]["reached"] is False
    assert "has not been tested enough yet" in before["certificate"]["text"]
    assert {each["worker"] for each in before["pending"]} == {"Ada"}
    text = manyarms("status", lab).out
    assert before["best"]["measured"]["id"] in text
    assert f"recommended: {before['best']['recommended']['id']}" in text
    assert "Ada" in text
    manyarms("release", lab, "--all")
    next_file = lab.parent / "next.csv"
    for _ in range(4):
        manyarms("suggest", lab, "-n", 4, "-o", next_file, "--force")
        rows = pl.read_csv(next_file)
        expected = ["predicted", "low", "high", "why"]
        columns = ["name", "solvent", "temperature", "dose", *expected, "batch", "note", "value"]
        assert rows.columns == columns
        rows.with_columns(
            pl.col("name").map_elements(yield_of, pl.Float64).alias("value")
        ).write_csv(next_file)
        manyarms("tell", lab, next_file)
    assert manyarms("status", lab, "--json").data["best"]["recommended"]["id"] == "ethanol-80"
    top = manyarms("top", lab, "-k", 3, "--json").data["top"]
    assert top[0]["id"] == "ethanol-80"
    assert top[0]["low"] <= top[0]["estimate"] <= top[0]["high"]
    assert len(manyarms("history", lab, "--json").data["results"]) == 28
    assert len(manyarms("history", lab, "--json", "--last", 5).data["results"]) == 5


def test_bounds_hold_for_intervals(lab):
    place = lab.parent / "bounded.db"
    pool = ("--pool", lab.parent / "recipes.csv", "--id", "name", "--maximize")
    made = manyarms("init", place, *pool, "--bounds", 0, 60, "--json").data
    assert made["bounds"] == [0, 60]
    manyarms("tell", place, "water-20", 30)
    manyarms("tell", place, "ethanol-80", 59.9)
    top = manyarms("top", place, "-k", 20, "--json").data["top"]
    assert all(0 <= each["low"] <= each["estimate"] <= each["high"] <= 60 for each in top)
    refused = manyarms("init", lab.parent / "other.db", *pool, "--bounds", 60, 0, code=2)
    assert "bounds" in refused.err


def test_answers_are_those_of_the_library(lab):
    told = manyarms("history", lab, "--json").data["results"]
    top = manyarms("top", lab, "-k", 5, "--json", "--level", 0.5).data["top"]
    best = manyarms("status", lab, "--json", "--level", 0.5).data["best"]
    with ma.Study.open(lab) as study:
        assert [(each["id"], each["value"]) for each in told] == [
            (t.id, "failed" if t.failed else t.value) for t in study.history
        ]
        known = study.top(5, 0.5)
        assert [
            (each["id"], each["estimate"], each["low"], each["high"], each["results"])
            for each in top
        ] == [(c.id, c.mean, c.low, c.high, c.n_results) for c in known]
        assert best["recommended"]["low"] == study.best(0.5).recommended.low
        assert best["measured"]["measured"] == study.best(0.5).measured.value
        assert best["why"] == study.best(0.5).why


def test_pending_candidates_can_be_written_again_and_files_are_not_written_over(lab):
    file = lab.parent / "next.csv"
    pending = manyarms("status", lab, "--json").data["pending"]
    manyarms("suggest", lab, "--pending", "-o", file)
    assert pl.read_csv(file)["name"].to_list() == [each["id"] for each in pending]
    before = file.read_bytes(), lab.read_bytes()
    assert_one_line(manyarms("suggest", lab, "-n", 2, "-o", file, code=2))
    assert (file.read_bytes(), lab.read_bytes()) == before


def test_a_file_told_twice_counts_once_and_a_longer_one_adds_what_is_new(lab):
    file = lab.parent / "results.csv"
    file.write_text("name,value\nwater-20,\nwater-30,5\nwater-30,5\nwater-40,failed\n")
    first = manyarms("tell", lab, file, "--json")
    assert first.data == {
        "told": 3,
        "failed": 1,
        "corrected": [],
        "noted": 0,
        "known": 0,
        "empty": 1,
        "results": 15,
    }
    assert "without a value" in first.err
    again = manyarms("tell", lab, file, "--json")
    assert again.data["told"] == 0
    assert "--again" in again.err
    file.write_text("name,value\nwater-20,7\nwater-30,5\nwater-30,5\nwater-30,5\nwater-40,Failed\n")
    assert manyarms("tell", lab, file, "--json").data["told"] == 2
    assert manyarms("tell", lab, file, "--json", "--again").data["told"] == 5


def test_the_same_value_of_another_batch_is_a_replicate(lab):
    """And a file of an earlier batch told again, while the candidate is pending anew, is none."""
    file, later = lab.parent / "a.csv", lab.parent / "b.csv"
    with ma.Study.open(lab) as study:
        file.write_text(
            f"name,batch,value\nwater-20,{study.n_events},7\nwater-30,{study.n_events},\n"
        )
        assert manyarms("tell", lab, file, "--json").data["told"] == 1
        later.write_text(f"name,batch,value\nwater-20,{study.n_events},7\n")
        assert manyarms("tell", lab, file, "--json").data["told"] == 0
        assert manyarms("tell", lab, later, "--json").data["told"] == 1
        assert manyarms("tell", lab, later, "--json").data["told"] == 0
        assert manyarms("tell", lab, file, "--json").data["told"] == 0


def test_two_who_tell_the_same_file_at_once_tell_it_once(lab, monkeypatch):
    """Both have read the history before either has told."""
    file = lab.parent / "results.csv"
    file.write_text("name,value\nwater-20,7\n")
    with ma.Study.open(lab) as study:
        before = study.history
    monkeypatch.setattr(ma.Study, "history", before)
    manyarms("tell", lab, file)
    manyarms("tell", lab, file)
    monkeypatch.undo()
    assert [trial.value for trial in ma.Study.open(lab).history if trial.id == "water-20"] == [7]


def test_noise_is_told_with_the_values_and_comes_back(lab):
    """In the column `noise` or another, empty where it is not known; a study of the exported results has learned the same."""
    folder = lab.parent
    (folder / "a.csv").write_text(
        "name,value,noise\nwater-20,5,0.25\nwater-30,6,\nwater-40,failed,\nwater-50,7, 0\n"
    )
    (folder / "b.csv").write_text("name;mean;error;noise\nwater-60;8,5;0,75;loud\n")
    manyarms("tell", lab, folder / "a.csv")
    manyarms("tell", lab, folder / "b.csv", "--value", "mean", "--noise", "error", "--decimal", ",")
    manyarms("tell", lab, "water-70", "9", "--noise", "1.5")
    with ma.Study.open(lab) as study:
        assert [(trial.id, trial.value, trial.noise) for trial in study.history[12:]] == [
            ("water-20", 5, 0.25),
            ("water-30", 6, None),
            ("water-40", None, None),
            ("water-50", 7, 0),
            ("water-60", 8.5, 0.75),
            ("water-70", 9, 1.5),
        ]
    rows = manyarms("history", lab, "--last", 2, "--json").data["results"]
    assert [row["noise"] for row in rows] == [0.75, 1.5]
    assert "noise" in manyarms("history", lab).out
    manyarms("history", lab, "-o", folder / "told.csv")
    manyarms(
        "init", folder / "copy.db", "--pool", folder / "recipes.csv", "--id", "name", "--maximize"
    )
    manyarms("import", folder / "copy.db", folder / "told.csv")
    with ma.Study.open(lab) as study, ma.Study.open(folder / "copy.db") as copy:
        told = [[(t.id, t.value, t.noise) for t in each.history] for each in (copy, study)]
        assert told[0] == told[1]
    assert manyarms("import", lab, folder / "told.csv", "--json").data["known"] == 18


def test_results_without_noise_have_no_column_of_it(lab):
    manyarms("history", lab, "-o", lab.parent / "told.csv")
    assert "noise" not in (lab.parent / "told.csv").read_text()
    assert "noise" not in manyarms("history", lab).out


def test_noise_does_not_tell_rows_apart(lab):
    """A result is not counted again when its noise becomes known."""
    file = lab.parent / "results.csv"
    file.write_text("name,value,noise\nwater-20,7,\n")
    assert manyarms("tell", lab, file, "--json").data["told"] == 1
    file.write_text("name,value,noise\nwater-20,7,0.5\n")
    assert manyarms("tell", lab, file, "--json").data["known"] == 1


@pytest.mark.parametrize("value", ["-12.5", "3", "-1e-3", "failed", "+2"])
def test_one_value_may_be_told_negative_too(lab, value):
    assert manyarms("tell", lab, "water-20", value, "--json").data["results"] == 13
    last = ma.Study.open(lab).history[-1]
    assert last.value == (None if value == "failed" else float(value))


def test_failed_release_retire_and_add(lab):
    manyarms("failed", lab, "water-20", "water-30", "--yes")
    assert manyarms("status", lab, "--json").data["failed"] == 3
    pending = [each["id"] for each in manyarms("status", lab, "--json").data["pending"]]
    manyarms("release", lab, pending[0])
    assert manyarms("release", lab, "--all", "--json").data["released"] == pending[1:]
    best = manyarms("status", lab, "--json").data["best"]["recommended"]["id"]
    manyarms("retire", lab, best)
    assert manyarms("status", lab, "--json").data["best"]["recommended"]["id"] != best
    more = lab.parent / "more.csv"
    more.write_text("temperature;name;dose;solvent\n80;acetone-80;4,5;acetone\n")
    assert manyarms("add", lab, more, "--decimal", ",", "--json").data == {
        "added": 1,
        "candidates": 31,
        "told": 0,
        "new_levels": {"solvent": ["acetone"]},
    }
    assert ma.Study.open(lab).pool.row("acetone-80")["dose"] == 4.5


def test_predictions_by_id_and_by_features(lab):
    file = lab.parent / "other.csv"
    file.write_text(
        "name,solvent,temperature,dose,note\nwater-20,,,,by id\nnew,ethanol,82,12.2,by features\nwater-30,,,,\n"
    )
    rows = manyarms("predict", lab, file, "--json").data["predictions"]
    with ma.Study.open(lab) as study:
        known = study.predict(["water-20", "water-30"])
        new = study.predict_rows(
            [{"name": "new", "solvent": "ethanol", "temperature": 82, "dose": 12.2}]
        )
        near = study.predict(["ethanol-80"]).mean[0]
    assert [row["id"] for row in rows] == ["water-20", "new", "water-30"]
    assert [row["estimate"] for row in rows] == pytest.approx(
        [known.mean[0], new.mean[0], known.mean[1]]
    )
    assert rows[1]["estimate"] == pytest.approx(near, rel=0.1)
    file.write_text(file.read_text().replace(",", ";").replace("12.2", "12,2"))
    manyarms("predict", lab, file, "-o", lab.parent / "out.csv", "--decimal", ",")
    assert (
        (lab.parent / "out.csv").read_bytes().startswith(b"\xef\xbb\xbfname;estimate;sd;low;high\n")
    )
    bare = lab.parent / "bare.csv"
    bare.write_text("name,solvent\nnobody,water\n")
    assert "'temperature'" in manyarms("predict", lab, bare, code=2).err


def test_rows_predicted_are_those_that_would_be_added(lab):
    row = {"name": "new", "solvent": "acetone", "temperature": 75, "dose": 10.0}
    with ma.Study.open(lab) as study:
        before = study.predict_rows([row])
        study.add([row])
        after = study.predict(["new"])
    for mine, others in zip(before[1:], after[1:], strict=True):
        assert mine == pytest.approx(others, rel=1e-6)


# Spreadsheets


@pytest.mark.parametrize("ids", ["numbers", "strings", "rows"])
@pytest.mark.parametrize(
    ("separator", "decimal"), [(",", "."), (";", ","), ("tab", "."), ("|", ",")]
)
def test_a_round_through_a_spreadsheet(folder, ids, separator, decimal):
    mark = "\t" if separator == "tab" else separator
    names = {
        "numbers": [str(100 + i) for i in range(12)],
        "strings": [f"{i:03d} ä" for i in range(12)],
        "rows": range(12),
    }[ids]
    rows = [
        ["Probe", "Größe", "Menge"],
        *([name, f"{i / 8}".replace(".", decimal), i % 3] for i, name in enumerate(names)),
    ]
    rows = [row[1:] for row in rows] if ids == "rows" else rows
    text = "\r\n".join(mark.join(map(str, row)) for row in rows) + "\r\n\r\n"
    (folder / "proben.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    lab = folder / "lab.db"
    named = [] if ids == "rows" else ["--id", "Probe"]
    manyarms(
        "init", lab, "--pool", folder / "proben.csv", "--minimize", "--decimal", decimal, *named
    )
    asked = ["-o", folder / "next.csv", "--separator", separator, "--decimal", decimal]
    given = manyarms("suggest", lab, "-n", 3, *asked, "--json").data["ids"]
    header, *lines = (folder / "next.csv").read_text("utf-8-sig").strip("\r\n").split("\n")
    assert header.split(mark)[-1] == "value"
    assert {line.split(mark)[1].count(decimal) for line in lines} == {1} or ids == "rows"
    filled = "\r\n".join([header, *(line + f"{i}{decimal}25" for i, line in enumerate(lines))])
    (folder / "next.csv").write_bytes(b"\xef\xbb\xbf" + filled.encode())
    manyarms("tell", lab, folder / "next.csv", "--decimal", decimal)
    with ma.Study.open(lab) as study:
        assert [(t.id, t.value) for t in study.history] == [
            (id, i + 0.25) for i, id in enumerate(given)
        ]
        assert isinstance(study.history[0].id, str if ids == "strings" else int)
    manyarms("history", lab, *asked[:1], folder / "told.csv", *asked[2:])
    assert (
        manyarms("tell", lab, folder / "told.csv", "--decimal", decimal, "--json").data["known"]
        == 3
    )


def test_columns_may_be_called_value_id_number_or_time(folder):
    (folder / "t.csv").write_text(
        "id,value,number,time,worker\n"
        + "".join(f"{i},{i},{i * i},{i % 4},w{i}\n" for i in range(9))
    )
    lab = folder / "lab.db"
    manyarms(
        "init",
        lab,
        "--pool",
        folder / "t.csv",
        "--id",
        "number",
        "--maximize",
        "--column",
        "worker=ignore",
        "--column",
        "value=number",
    )
    manyarms("suggest", lab, "-o", folder / "next.csv")
    text = (folder / "next.csv").read_text()
    header = "number,id,value,time,worker,predicted,low,high,why,batch,note,value_\n"
    assert text.startswith(header)
    (folder / "next.csv").write_text(text.rstrip("\n") + "4.5\n")
    manyarms("tell", lab, folder / "next.csv")
    manyarms("history", lab, "-o", folder / "history.csv")
    manyarms("export", lab, "-o", folder / "results.csv")
    assert len(pl.read_csv(folder / "results.csv")) == 1


def test_types_levels_and_settings_of_a_study(folder):
    (folder / "t.csv").write_text(
        "size,grade,x,bad\n" + "".join(f"{'SML'[i % 3]},{i % 4},{10**i},\n" for i in range(6))
    )
    given = [
        "--column",
        "size=S,M,L",
        "--column",
        "grade=0,1,2,3",
        "--column",
        "x=log",
        "--column",
        "bad=ignore",
    ]
    more = ["--noise", 0.5, "--kernel", "rbf", "--repeats", 2, "--seed", 3, "--maximize", "--json"]
    data = manyarms("init", folder / "lab.db", "--pool", folder / "t.csv", *given, *more).data
    assert data["columns"] == {"size": "ordered", "grade": "ordered", "x": "log", "bad": "ignore"}
    known = ma.Study.open(folder / "lab.db").settings
    assert (known["noise"], known["kernel"], known["repeats"], known["seed"]) == (0.5, "rbf", 2, 3)
    assert known["direction"] == "maximize"


# Pages and files


def test_a_report_is_one_page_that_needs_nothing_and_runs_nothing_of_a_user(folder):
    evil = "</script><script>alert(1)</script>"
    rows = [{"name": f"{evil}{i}", f"<b>{evil}": i % 5, "x": float(i)} for i in range(20)]
    with ma.Study.create(
        folder / "lab.db", ma.Pool.from_dicts(rows, id="name"), worker=evil
    ) as study:
        manyarms("report", folder / "lab.db", "-o", folder / "empty.html")
        ids = study.ask(10)
        study.tell(ids[:9], [float(i) for i in range(9)])
    manyarms("report", folder / "lab.db", "-o", folder / "r.html")
    page = (folder / "r.html").read_text()
    body = page.split("</head>")[1]
    assert evil not in page
    assert "<b></script>" not in page
    assert "&lt;script&gt;alert(1)" in body
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", page)
    assert "default-src 'none'" in page
    assert body.count("Plotly.newPlot") == 3  # best so far, one slice of two columns, the fit
    assert "No values" in (folder / "empty.html").read_text()


@pytest.mark.parametrize("kind", FIGURES)
def test_plots(lab, kind):
    manyarms("plot", lab, "--kind", kind, "-o", lab.parent / "p.html")
    assert "plotly" in (lab.parent / "p.html").read_text()[:10_000]


def test_an_export_makes_the_same_study(lab):
    (lab.parent / "more.csv").write_text("name,solvent,temperature,dose\nx,acetone,80,4.5\n")
    manyarms("add", lab, lab.parent / "more.csv")
    manyarms("top", lab)
    manyarms("export", lab, "-o", lab.parent / "all")
    assert {path.name for path in (lab.parent / "all").iterdir()} == {
        "study.json",
        "results.csv",
        "candidates.csv",
    }
    twin = lab.parent / "twin.db"
    manyarms("import", twin, lab.parent / "all" / "study.json")
    with ma.Study.open(lab) as mine, ma.Study.open(twin) as other:
        assert exported(mine) == exported(other)
        assert mine.ask(3) == other.ask(3)
    fresh = lab.parent / "fresh.db"
    manyarms(
        "init", fresh, "--pool", lab.parent / "all" / "candidates.csv", "--id", "name", "--maximize"
    )
    assert (
        manyarms("import", fresh, lab.parent / "all" / "results.csv", "--json").data["told"] == 12
    )


@pytest.mark.parametrize("change", ["time", "table", "kind", "payload", "first", "no json", "list"])
def test_an_export_that_was_changed_is_refused(lab, change):
    file, twin = lab.parent / "study.json", lab.parent / "twin.db"
    manyarms("export", lab, "-o", file)
    data = json.loads(file.read_text())
    if change == "time":
        data["events"][3]["time"] = "yesterday"
    elif change == "table":
        data["tables"] = dict.fromkeys(data["tables"], "AAAA")
    elif change == "kind":
        data["events"][0]["kind"] = 7
    elif change == "payload":
        data["events"][2]["payload"] = {"ids": ["nobody"]}
    elif change == "first":
        data["events"] = []
    file.write_text("{" if change == "no json" else json.dumps([] if change == "list" else data))
    answer = said("import", twin, file)
    assert answer.code == 2
    assert_one_line(answer)
    assert not twin.exists()


def test_the_doctor_finds_damage_and_saves_what_is_whole(lab):
    healthy = manyarms("doctor", lab, "--json").data
    assert healthy["whole"]
    assert healthy["results"] == 12
    with sqlite3.connect(lab) as base:
        number = base.execute("select max(number) from events where kind = 'tell'").fetchone()[0]
        base.execute(
            "update events set record = replace(record, '1', '2') where number = ?", (number,)
        )
    base.close()
    assert manyarms("status", lab, code=3).err.count("\n") == 1
    answer = manyarms("doctor", lab, "--json", code=3).data
    assert not answer["whole"]
    assert (answer["results"], answer["lost"]) == (6, 1)
    saved = lab.parent / "saved.db"
    manyarms("doctor", lab, "--salvage", saved, code=3)
    assert len(ma.Study.open(saved).history) == 6
    assert manyarms("doctor", saved, "--json").data["whole"]
    assert_one_line(manyarms("doctor", saved, "--salvage", lab.parent / "more.db", code=2))


def test_the_doctor_with_nothing_to_save(lab):
    with sqlite3.connect(lab) as base:
        base.execute("delete from events where number = 1")
    base.close()
    for more in ([], ["--salvage", lab.parent / "saved.db"]):
        answer = manyarms("doctor", lab, *more, code=3)
        assert_one_line(answer)
        assert "nothing can be saved" in answer.err
    assert not (lab.parent / "saved.db").exists()


@pytest.mark.postgres
def test_a_study_in_postgresql_has_the_same_commands(lab, server):
    place = f"{server}#lab"
    manyarms("export", lab, "-o", lab.parent / "study.json")
    assert manyarms("import", place, lab.parent / "study.json", "--json").data["results"] == 12
    manyarms("tell", place, "water-20", "-3.5")
    assert manyarms("status", place, "--json").data["results"] == 13
    # Two candidates are pending, which count as well.
    assert manyarms("run", place, "--budget", 16, "--json", "--", "echo", "5").data["told"] == 1
    assert manyarms("doctor", place, "--json").data["whole"]
    assert_one_line(
        manyarms("init", place, "--pool", lab.parent / "recipes.csv", "--maximize", code=2)
    )


# Bad input: one line, exit code 2, nothing written


BAD = [
    "init",
    "init new.db",
    "init new.db --pool nowhere.csv --maximize",
    "init new.db --pool recipes.csv",
    "init new.db --pool recipes.csv --id nobody --maximize",
    "init new.db --pool recipes.csv --id solvent --maximize",
    "init new.db --pool recipes.csv --maximize --noise -1",
    "init new.db --pool recipes.csv --maximize --noise nan",
    "init new.db --pool recipes.csv --maximize --kernel best",
    "init new.db --pool recipes.csv --maximize --repeats often",
    "init new.db --pool recipes.csv --maximize --repeats 0",
    "init new.db --pool recipes.csv --maximize --seed -1",
    "init new.db --pool recipes.csv --maximize --seed x",
    "init new.db --pool recipes.csv --maximize --column dose",
    "init new.db --pool recipes.csv --maximize --column nothing=log",
    "init new.db --pool recipes.csv --maximize --column solvent=log",
    "init new.db --pool recipes.csv --maximize --decimal x",
    "columns lab.db --column nothing=number",
    "init new.db --pool recipes.csv --maximize --missing x",
    "init new.db --pool lab.db --maximize",
    "init new.db --pool . --maximize",
    "init lab.db --pool recipes.csv --maximize",
    "init nowhere/new.db --pool recipes.csv --maximize",
    "init mysql://me@host/x --pool recipes.csv --maximize",
    "init 'postgresql://me@host/x#Bad Name' --pool recipes.csv --maximize",
    "add lab.db",
    "add lab.db nowhere.csv",
    "add lab.db recipes.csv",
    "add lab.db 0.csv",
    "retire lab.db",
    "retire lab.db nobody",
    "suggest lab.db -n 0",
    "suggest lab.db -n many",
    "suggest lab.db -o nowhere/next.csv",
    "suggest lab.db -o .",
    "suggest lab.db -o recipes.csv",
    "suggest lab.db --lease soon",
    "suggest lab.db --lease -1h",
    "suggest lab.db --lease 0",
    "suggest lab.db --separator ab -o next.csv",
    "suggest lab.db --separator , --decimal , -o next.csv",
    "suggest lab.db --decimal x -o next.csv",
    "suggest lab.db --worker ''",
    "tell lab.db",
    "tell lab.db nowhere.csv",
    "tell lab.db water-20",
    "tell lab.db nobody 5",
    "tell lab.db water-20 five",
    "tell lab.db water-20 nan",
    "tell lab.db water-20 inf",
    "tell lab.db water-20 1e200",
    "tell lab.db water-20 1_000",
    "tell lab.db water-20 1,5",
    "tell lab.db water-20 1.000,5 --decimal ,",
    "tell lab.db water-20 5 water-30",
    "tell lab.db water-20 5 --colour",
    "tell lab.db recipes.csv",
    "tell lab.db recipes.csv --value solvent",
    "tell lab.db recipes.csv --value nothing",
    "tell lab.db water-20 5 --value yield",
    "tell lab.db water-20 5 --noise loud",
    "tell lab.db water-20 5 --noise -1",
    "tell lab.db water-20 5 --noise nan",
    "tell lab.db water-20 5 --noise 0,5",
    "tell lab.db 0.csv --noise nothing",
    "tell lab.db bad-noise.csv",
    "tell lab.db bad-last-row.csv",
    "tell lab.db no-id.csv",
    "tell lab.db bad-batch.csv",
    "tell lab.db 0.csv nowhere.csv",
    "tell lab.db lab.db",
    "failed lab.db",
    "failed lab.db nobody",
    "release lab.db",
    "release lab.db water-20 --all",
    "release lab.db nobody",
    "release lab.db water-20 water-20 water-20",
    "correct lab.db nobody 5",
    "undo lab.db 9999",
    "restore lab.db water-20",
    "status",
    "status nowhere.db",
    "status recipes.csv",
    "status .",
    "status empty.db",
    "status lab.db --level 2",
    "status lab.db --level nan",
    "status lab.db --tolerance -1",
    "status lab.db --tolerance nan",
    "status ftp://host/x",
    "top lab.db -k 0",
    "top lab.db --level 0",
    "history lab.db --last 0",
    "history lab.db -o nowhere/h.csv",
    "predict lab.db nowhere.csv",
    "predict lab.db no-id.csv",
    "predict lab.db 0.csv -o 0.csv",
    "plot lab.db",
    "plot lab.db -o p.txt",
    "plot lab.db -o p.html --kind pie",
    "plot lab.db -o nowhere/p.html",
    "report lab.db -o report.csv",
    "report lab.db -o nowhere/report.html",
    "report lab.db -k 0",
    "export lab.db",
    "export lab.db -o x.zip",
    "export lab.db -o recipes.csv",
    "export lab.db -o nowhere/x.json",
    "import new.db nowhere.json",
    "import new.db nowhere.csv",
    "import lab.db recipes.csv",
    "import lab.db 0.csv --noise nothing",
    "import new.db bad.json",
    "doctor nowhere.db",
    "doctor recipes.csv",
    "doctor lab.db --salvage recipes.csv",
    "doctor lab.db --salvage nowhere/x.db",
    "run lab.db",
    "run lab.db -- no-such-program",
    "run lab.db -- echo {lr}",
    "run lab.db -- echo {}",
    "run lab.db --jobs 0 -- echo 1",
    "run lab.db --budget 0 -- echo 1",
    "run lab.db --timeout soon -- echo 1",
    "run lab.db --retries -1 -- echo 1",
    "run lab.db --value-from nowhere -- echo 1",
    "run lab.db --value-from file -- echo 1",
    "run lab.db --value-from last-line -- echo {out}",
    "run nowhere.db -- echo 1",
    "frobnicate lab.db",
    "--frobnicate",
]


def contents(folder):
    """All files but journals, which SQLite leaves empty."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".db-journal"
    }


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(lab, line, monkeypatch):
    monkeypatch.chdir(lab.parent)
    Path("bad-last-row.csv").write_text("name,value\nwater-20,1\nwater-30,2\nwater-40,three\n")
    Path("no-id.csv").write_text("name,value\nwater-20,1\n,2\n")
    Path("bad-batch.csv").write_text("name,batch,value\nwater-20,1,1\nwater-30,two,2\n")
    Path("bad-noise.csv").write_text("name,value,noise\nwater-20,1,1\nwater-30,2,-1\n")
    Path("bad.json").write_text('{"format": "another"}')
    Path("empty.db").touch()
    before = contents(lab.parent)
    answer = manyarms(*shlex.split(line), code=2)
    assert_one_line(answer)
    assert len(answer.err) < 1200
    assert contents(lab.parent) == before


def test_every_command_is_among_the_bad_ones():
    assert {line.split()[0] for line in BAD} >= set(NAMES)


def test_an_untold_study_says_what_to_do(folder):
    (folder / "recipes.csv").write_text(TABLE)
    lab = folder / "lab.db"
    manyarms("init", lab, "--pool", folder / "recipes.csv", "--id", "name", "--maximize")
    before = lab.read_bytes()
    assert "manyarms tell" in manyarms("status", lab).out
    for arguments in (
        ["top", lab],
        ["predict", lab, folder / "recipes.csv"],
        ["plot", lab, "-o", folder / "p.html"],
    ):
        answer = manyarms(*arguments, code=2)
        assert_one_line(answer)
        assert "manyarms tell" in answer.err
    assert lab.read_bytes() == before


def test_storage_that_refuses_has_its_own_exit_code(lab):
    with sqlite3.connect(lab) as base:
        base.execute(
            "create trigger full before insert on events begin select raise(abort, 'disk is full'); end"
        )
    base.close()
    before = lab.read_bytes()
    answer = said("tell", lab, "water-20", 5)
    assert answer.code in (3, 4)
    assert_one_line(answer)
    assert lab.read_bytes() == before


def test_a_server_that_does_not_answer_has_its_own_exit_code():
    needs("postgres", "psycopg")
    assert said("status", "postgresql://nobody@127.0.0.1:1/x").code == 4


@pytest.mark.parametrize("command", ["history", "suggest", "export", "report"])
def test_a_file_that_cannot_be_written_is_named_and_not_left_behind(lab, monkeypatch, command):
    """As on a full disk; what `suggest` asked for is given back."""

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_csv", full)
    monkeypatch.setattr(Path, "write_text", full)
    file, before = (
        lab.parent / f"x.{'html' if command == 'report' else 'csv'}",
        ma.Study.open(lab).pending,
    )
    answer = manyarms(command, lab, "-o", file, code=4)
    assert_one_line(answer)
    assert f"{file} could not be written: No space left on device" in answer.err
    assert {path.name for path in contents(lab.parent)} == {"0.csv", "lab.db", "recipes.csv"}
    assert ma.Study.open(lab).pending == before


def test_an_unknown_id_is_told_with_its_row(lab):
    (lab.parent / "other.csv").write_text("name,value\nwater-20,1\nwater-3,2\nnobody,3\n")
    assert (
        "other.csv, row 3: no candidate has the id 'water-3'"
        in manyarms("tell", lab, lab.parent / "other.csv", code=2).err
    )


def test_levels_are_not_rounded_to_certainty(lab):
    assert "(99.5%: " in manyarms("status", lab, "--level", 0.995).out
    assert "(95%: " in manyarms("status", lab).out


def test_an_error_nobody_expected_is_one_line_too(lab, monkeypatch):
    monkeypatch.setattr(ma.Study, "top", lambda *_: 1 / 0)
    answer = manyarms("top", lab, code=1)
    assert_one_line(answer)
    monkeypatch.setenv("MANYARMS_TRACEBACK", "1")
    assert "Traceback" in manyarms("top", lab, code=1).err


def test_terminals_are_not_given_orders(folder):
    rows = [{"name": f"\x1b[31m{i}", "x": i} for i in range(12)]
    with ma.Study.create(folder / "lab.db", ma.Pool.from_dicts(rows, id="name")):
        pass
    shown = manyarms("suggest", folder / "lab.db", "-n", 3).out
    assert "\x1b" not in shown
    assert "\\u001b[31m" in shown


ORDERS = "\x1b]0;mine\x07\x7f\x9b\u202e\u2066\u200b"


def test_neither_in_errors_nor_in_json(folder):
    """JSON has them escaped: who reads it has the same text."""
    strange = ORDERS
    rows = [{"name": f"{i}{strange}é", "x": i} for i in range(12)]
    with ma.Study.create(folder / "lab.db", ma.Pool.from_dicts(rows, id="name")) as study:
        study.tell(rows[0]["name"], 1.0)
    said = [
        manyarms("status", folder / f"{ORDERS}.db", code=2).err,
        manyarms("tell", folder / "lab.db", ORDERS, "1", code=2).err,
        manyarms(ORDERS, code=2).err,
        manyarms("top", folder / "lab.db", f"--{ORDERS}", code=2).err,
        manyarms("history", folder / "lab.db", "--json").out,
    ]
    for text in said:
        assert text.replace("\n", "").isprintable()
    assert "é" in said[-1]
    assert json.loads(said[-1])["results"][0]["id"] == rows[0]["name"]


def test_a_url_in_the_place_of_a_command_shows_no_password():
    answer = manyarms("postgresql://me:a/b@secret@host/x", "status", code=2)
    assert_one_line(answer)
    assert "secret" not in answer.err


# Fuzz


CELLS = st.one_of(
    st.sampled_from(
        [
            "name",
            "value",
            "water-20",
            "water-30",
            "failed",
            "",
            "1.5",
            "-2",
            "nan",
            "1e400",
            '"',
            "a,b",
            "\ufeff",
            "'",
        ]
    ),
    st.text(max_size=8),
)
FILES = st.one_of(
    st.binary(max_size=200),
    st.lists(st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=6).map(
        lambda lines: "\n".join(lines).encode()
    ),
    st.builds(
        lambda table, at, junk: table[:at] + junk + table[at:],
        st.sampled_from([TABLE.encode(), b"name,value\nwater-20,1\nwater-30,2\n"]),
        st.integers(0, 60),
        st.binary(max_size=6),
    ),
)
FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@FUZZ
@given(
    content=FILES,
    command=st.sampled_from(["init", "tell", "add", "predict", "import", "import json"]),
)
@example(content=b"", command="tell")
@example(content=b"name,value\n\xff,1\n", command="tell")
@example(content=b"PAR1", command="init")
def test_any_bytes_in_a_file_give_an_answer_or_one_line(template, folder, content, command):
    lab, file, new = (
        folder / "lab.db",
        folder / ("x.json" if "json" in command else "x.csv"),
        folder / "new.db",
    )
    shutil.copy(template / "lab.db", lab)
    file.write_bytes(content)
    before = lab.read_bytes()
    arguments = {
        "init": ["init", new, "--pool", file, "--maximize", "--id", "name"],
        "import json": ["import", new, file],
    }.get(command, [command, lab, file])
    answer = said(*arguments)
    assert answer.code in (0, 2), answer
    if answer.code:
        assert_one_line(answer)
        assert lab.read_bytes() == before
        assert not new.exists()
    new.unlink(missing_ok=True)


OPTIONS = sorted({option for name in NAMES for option in options_of(name)})
WORDS_OF_A_LINE = st.one_of(
    st.sampled_from(
        [
            "lab.db",
            "0.csv",
            "recipes.csv",
            "water-20",
            "5",
            "-5",
            "0",
            "nan",
            ".",
            ",",
            "--",
            "next.csv",
            "1d",
        ]
    ),
    st.sampled_from([option for option in OPTIONS if option not in ("--force", "-o", "--output")]),
    st.text(max_size=6),
)


@pytest.mark.slow
@FUZZ
@given(
    name=st.sampled_from([name for name in NAMES if name != "run"]),
    words=st.lists(WORDS_OF_A_LINE, max_size=5),
)
@example(name="tell", words=["lab.db", "water-20", "-\ud800"])
@example(name="status", words=["\0"])
@example(name="status", words=["-" * 3])
def test_any_arguments_give_an_answer_or_one_line(template, folder, name, words, monkeypatch):
    monkeypatch.chdir(folder)
    for file in ("lab.db", "recipes.csv", "0.csv"):
        shutil.copy(template / file, folder)
    before = (folder / "lab.db").read_bytes()
    answer = said(name, *words)
    assert answer.code in (0, 2), answer
    if answer.code:
        assert_one_line(answer)
        assert (folder / "lab.db").read_bytes() == before


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
)


@pytest.mark.slow
@FUZZ
@given(data=st.data())
def test_any_change_of_an_export_is_refused_or_makes_a_study_that_answers(template, folder, data):
    file, twin = folder / "x.json", folder / "twin.db"
    if not (folder / "study.json").exists():
        manyarms("export", template / "lab.db", "-o", folder / "study.json")
    held = whole = json.loads((folder / "study.json").read_text())
    for _ in range(data.draw(st.integers(0, 5))):
        keys = list(held) if isinstance(held, dict) else list(range(len(held)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(held[key], dict | list) or not held[key]:
            break
        held = held[key]
    keys = list(held) if isinstance(held, dict) else list(range(len(held)))
    held[data.draw(st.sampled_from(keys))] = data.draw(LEAVES)
    file.write_text(json.dumps(whole))
    answer = said("import", twin, file)
    assert answer.code in (0, 2), answer
    if answer.code:
        assert_one_line(answer)
        assert not twin.exists()
    else:
        assert said("status", twin).code in (0, 2)
        twin.unlink()


def test_candidates_whose_file_does_not_last_are_given_back(lab, monkeypatch):
    """Also where the table is written and only its sync fails."""

    def fails(path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "sync", fails)
    before = manyarms("status", lab, "--json").data["pending"]
    answer = manyarms("suggest", lab, "-n", 3, "-o", lab.parent / "next.csv", code=4)
    assert_one_line(answer)
    assert not (lab.parent / "next.csv").exists()
    assert manyarms("status", lab, "--json").data["pending"] == before
