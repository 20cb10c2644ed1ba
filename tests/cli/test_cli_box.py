"""The command line over a box: from an empty folder to a recommendation, and what it refuses."""

import csv
import os
import signal
import subprocess
import sys
import time

import pytest
from command_line import assert_one_line, manyarms, said

import manyarms as ma

BOX = ["--box", "temperature=20:120", "--box", "time=1:60:log", "--box", "trays=1:9:int"]
BOX += ["--box", "fan=on,off"]


def value(row):
    return -((float(row["temperature"]) - 60) ** 2) / 1000 + (row["fan"] == "on")


def filled(source, target, answer):
    """The file that was suggested, with its values filled in."""
    with open(source, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["value"] = answer(row)
    with open(target, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.fixture
def oven(folder, monkeypatch):
    """A study of a box with three results, one point that failed and one that is pending."""
    monkeypatch.chdir(folder)
    manyarms("init", "oven.db", *BOX, "--maximize", "--seed", 1)
    manyarms("suggest", "oven.db", "-n", 5, "-o", "next.csv")
    answers = iter([None, "failed", "", None, None])
    filled("next.csv", "done.csv", lambda row: value(row) if (a := next(answers)) is None else a)
    manyarms("tell", "oven.db", "done.csv")
    return folder


def test_from_an_empty_folder_to_a_recommendation(folder, monkeypatch):
    monkeypatch.chdir(folder)
    made = manyarms("init", "oven.db", *BOX, "--minimize").out
    assert "a box of 4 columns; minimize" in made
    assert "continuous, log scale" in made
    manyarms("suggest", "oven.db", "-n", 3, "-o", "next.csv")
    rows = filled("next.csv", "done.csv", value)
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert "Told 3 results" in manyarms("tell", "oven.db", "done.csv").out
    assert "Told 0 results" in manyarms("tell", "oven.db", "done.csv").out
    command = "print((float('{temperature}') - 60) ** 2 / 1000 + {trays} + {id} * 0)"
    ran = manyarms("run", "oven.db", "--budget", 6, "--", sys.executable, "-c", command)
    assert "the study has 6" in ran.out
    status = manyarms("status", "oven.db", "--json").data
    assert status["candidates"] == status["results"] == 6
    assert set(status["best"]["columns"]) == {"temperature", "time", "trays", "fan"}
    found = status["best"]["recommended"]
    assert str(found["id"]) in status["certificate"]["text"]
    with ma.Study.open("oven.db") as study:
        position = found["id"] - 1
        best = study.best().recommended
        assert study.pool.ids[position] == best.id == status["best"]["columns"]
    assert found["estimate"] == pytest.approx(best.mean)
    assert str(round(best.id["temperature"]))[:2] in manyarms("status", "oven.db").out


def test_points_stand_beside_their_numbers_in_every_table(oven):
    for command in ("suggest", "status", "top", "history"):
        shown = manyarms(command, "oven.db", *(["--pending"] if command == "suggest" else [])).out
        assert "temperature" in shown
        assert "fan" in shown
    manyarms("export", "oven.db", "-o", "out")
    with open("out/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["1", "2", "4", "5"]
    assert rows[1]["value"] == "failed"
    assert all(20 <= float(row["temperature"]) <= 120 for row in rows)
    manyarms("import", "copy.db", "out/study.json")
    mine, its = (manyarms("history", name, "--json").data for name in ("oven.db", "copy.db"))
    assert mine == its
    manyarms("report", "oven.db")
    assert "temperature" in (oven / "report.html").read_text()


def test_what_only_tables_have_is_refused_in_words_of_the_command_line(oven):
    for line in ("add oven.db next.csv", "retire oven.db 1", "columns oven.db --column fan=text"):
        refused = manyarms(*line.split(), code=2)
        assert_one_line(refused)
        assert "`manyarms tell` takes any point of it" in refused.err
    assert "continuous, log scale" in manyarms("columns", "oven.db").out


def test_points_that_were_never_suggested_get_numbers_too(oven):
    (oven / "own.csv").write_text("temperature,time,trays,fan,value\n60,10,3,on,1.5\n")
    assert "Told 1 result;" in manyarms("tell", "oven.db", "own.csv").out
    told = manyarms("tell", "oven.db", "own.csv")
    assert "skipped 1 row that the study has" in told.err
    manyarms("tell", "oven.db", 6, 1.25)  # the same by its number: another result
    history = manyarms("history", "oven.db", "--json").data["results"]
    assert [row["id"] for row in history[-2:]] == [6, 6]
    (oven / "ask.csv").write_text("id,temperature,time,trays,fan\n6,,,,\n,61,10,3,on\n")
    rows = manyarms("predict", "oven.db", "ask.csv", "--json").data["predictions"]
    assert [row["id"] for row in rows] == [6, None]
    assert rows[0]["temperature"] == 60
    manyarms("predict", "oven.db", "ask.csv", "-o", "estimates.csv")
    assert (oven / "estimates.csv").read_text().startswith("id,temperature,time,trays,fan,estimate")


def test_a_number_that_a_spreadsheet_cut_is_the_same_and_another_is_not(oven):
    with open("next.csv", newline="") as file:
        row = list(csv.DictReader(file))[2]
    short = {**row, "temperature": f"{float(row['temperature']):.9g}", "value": "1"}
    line = ",".join(short.values())
    (oven / "short.csv").write_text(f"{','.join(short)}\n{line}\n")
    assert "Told 1 result;" in manyarms("tell", "oven.db", "short.csv").out
    other = ",".join({**short, "temperature": "33"}.values())
    (oven / "other.csv").write_text(f"{','.join(short)}\n{other}\n")
    refused = manyarms("tell", "oven.db", "other.csv", code=2)
    assert_one_line(refused)
    assert "leave the id empty where another point was tried" in refused.err


def test_a_decimal_comma_and_columns_called_as_ours(folder, monkeypatch):
    monkeypatch.chdir(folder)
    columns = ["--box", "id=0:1", "--box", "value=1:9:int", "--box", "batch=a,b"]
    manyarms("init", "odd.db", *columns, "--maximize")
    manyarms("suggest", "odd.db", "-n", 2, "-o", "next.csv", "--decimal", ",")
    text = (folder / "next.csv").read_text(encoding="utf-8-sig")
    assert text.splitlines()[0] == "id_;id;value;batch;predicted;low;high;why;batch_;note;value_"
    lines = [f"{line}1,5" for line in text.splitlines()[1:]]
    (folder / "next.csv").write_text("\n".join([text.splitlines()[0], *lines]) + "\n")
    manyarms("tell", "odd.db", "next.csv", "--decimal", ",")
    assert "recommended: " in manyarms("status", "odd.db").out
    manyarms("history", "odd.db")
    (folder / "ask.csv").write_text("id_;id\n1;\n")
    manyarms("predict", "odd.db", "ask.csv", "--json")


WRONG_BOXES = [
    "x",
    "=1:2",
    "x=",
    "x=1",
    "x=a",
    "x=5:1",
    "x=1:1",
    "x=1,5:3",
    "x=a:b",
    "x=nan:1",
    "x=0:1e400",
    "x=0:5:log",
    "x=1:2:foo",
    "x=1.5:3:int",
    "x=a,a",
    "x=a,,b",
]


@pytest.mark.parametrize("wrong", WRONG_BOXES)
def test_a_wrong_box_is_refused_and_nothing_is_written(folder, monkeypatch, wrong):
    monkeypatch.chdir(folder)
    refused = manyarms("init", "w.db", "--box", wrong, "--maximize", code=2)
    assert_one_line(refused)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "line",
    [
        "init w.db --maximize",
        "init w.db --maximize --box x=0:1 --pool next.csv",
        "init w.db --maximize --box x=0:1 --id x",
        "init w.db --maximize --box x=0:1 --box x=0:2",
        "add oven.db next.csv",
        "retire oven.db 1",
        "tell oven.db 99 1",
        "tell oven.db 0 1",
        "tell oven.db x 1",
        "failed oven.db 7",
        "release oven.db 1",
        "tell oven.db far.csv",
        "tell oven.db half.csv",
        "tell oven.db level.csv",
        "tell oven.db lacking.csv",
        "tell oven.db nothing.csv",
        "predict oven.db lacking.csv",
        "predict oven.db far.csv",
        "run oven.db -- echo {nothing}",
    ],
)
def test_what_makes_no_sense_is_one_line_and_nothing_written(oven, line):
    files = {
        "far": "temperature,time,trays,fan,value\n500,10,3,on,1\n",
        "half": "temperature,time,trays,fan,value\n50,10,3.5,on,1\n",
        "level": "temperature,time,trays,fan,value\n50,10,3,maybe,1\n",
        "lacking": "temperature,time,value\n50,10,1\n",
        "nothing": "id,temperature,time,trays,fan,value\n,50,,3,on,1\n",
    }
    for name, text in files.items():
        (oven / f"{name}.csv").write_text(text)
    before = manyarms("doctor", "oven.db", "--json").data["events"]
    assert_one_line(manyarms(*line.split(), code=2))
    assert manyarms("doctor", "oven.db", "--json").data["events"] == before
    assert not (oven / "w.db").exists()


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on(oven):
    """kill -9 in the middle: what was told is there, what was asked for is pending."""
    command = [sys.executable, "-m", "manyarms.cli", "run", "oven.db", "--budget", "40", "--"]
    command += [sys.executable, "-c", "print({temperature} / 100)"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with ma.Study.open("oven.db") as study:
        until = time.monotonic() + 60
        while len(study.history) < 6 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with ma.Study.open("oven.db") as study:
        told = len(study.history)
        assert told >= 6
        assert study.verify() == study.n_events
    ended = said("run", "oven.db", "--budget", str(told + 3), "--", *command[-3:])
    assert ended.code == 0
    assert manyarms("status", "oven.db", "--json").data["results"] >= told + 1


PRODUCT = [f"{name}=a,b,c,d" for name in "pqrs"]
PRODUCT += ["temperature=60,80,100,120", "dose=0.1,0.5,1,5,10", "plate=1,2,3:choice", "lot=007,008"]


def yield_of(row):
    return -abs(float(row["temperature"]) - 80) / 40 + (row["p"] == "b") + (row["plate"] == "2")


def test_a_product_of_levels(folder, monkeypatch):
    monkeypatch.chdir(folder)
    options = [part for text in PRODUCT for part in ("--box", text)]
    made = manyarms("init", "lab.db", *options, "--maximize", "--json").data
    types = made["columns"]
    assert types["temperature"] == "levels"
    assert types["dose"] == "levels, log scale"
    assert types["plate"] == types["lot"] == types["p"] == "choice"
    for _ in range(2):
        manyarms("suggest", "lab.db", "-n", 6, "-o", "next.csv", "--force")
        rows = filled("next.csv", "done.csv", yield_of)
        manyarms("tell", "lab.db", "done.csv")
    assert rows[0]["temperature"] in ("60", "80", "100", "120")
    # A combination that was not suggested, with a level as a spreadsheet may write it.
    with open("more.csv", "w") as file:
        file.write(
            "id,p,q,r,s,temperature,dose,plate,lot,value\n,b,a,a,a,80.0,0.50000001,2,007,2\n"
        )
    assert "Told 1 result" in manyarms("tell", "lab.db", "more.csv").out
    with ma.Study.open("lab.db") as study:
        assert study.history[-1].id["temperature"] == 80
        assert study.history[-1].id["dose"] == 0.5
        assert study.history[-1].id["lot"] == "007"
    top = manyarms("top", "lab.db", "-k", 30, "--json").data["top"]
    new = [each["id"] for each in top if not isinstance(each["id"], int)]
    assert new
    assert all(len(id) == len(PRODUCT) for id in new)
    assert "\nnew " in manyarms("top", "lab.db", "-k", 30).out
    # In a file it has no id; its columns say which it is.
    manyarms("top", "lab.db", "-k", 30, "-o", "best.csv")
    rows = manyarms("predict", "lab.db", "best.csv", "--json").data["predictions"]
    assert [row["id"] for row in rows] == [
        None if each["id"] in new else each["id"] for each in top
    ]
    assert "temperature" in manyarms("status", "lab.db").out
    manyarms("predict", "lab.db", "more.csv", "-o", "estimates.csv")
    with open("wrong.csv", "w") as file:
        file.write("id,p,q,r,s,temperature,dose,plate,lot,value\n,b,a,a,a,81,0.5,2,007,2\n")
    refused = said("tell", "lab.db", "wrong.csv")
    assert_one_line(refused)
    assert "'temperature' must be one of [60, 80, 100, 120], got 81" in refused.err
    manyarms("report", "lab.db", "-o", "report.html")
    with open("report.html") as file:
        assert ">new</td>" in file.read()
