"""What status, top and predict say: every number is that of the library, and no word is the model's."""

import html
import os
import re
import subprocess
import sys
import time

import polars as pl
import pytest
from command_line import assert_one_line, manyarms

import manyarms as ma
from manyarms.cli import report as reporting

MODEL_WORDS = re.compile(r"inducing|effective dimension|sketch|dictionar|heuristic|snapshot", re.I)


@pytest.fixture
def lab(folder, monkeypatch):
    """Two solvents, seven temperatures, a column of remarks and one that never changes; values of
    which one is far too good to be true."""
    monkeypatch.chdir(folder)
    rows = [
        {"name": f"{s}{t}", "solvent": s, "heat": t, "remark": f"by hand {s} {t}", "scale": 1.0}
        for s in "ab"
        for t in range(20, 90, 10)
    ]
    pool = ma.Pool.from_dicts(rows, id="name", columns={"remark": "text", "scale": "ignore"})
    with ma.Study.create("lab.db", pool, direction="maximize", bounds=(0, 100), noise=6.0) as study:
        for row in rows[::2] * 3:
            study.tell(row["name"], 70 + 5 * (row["solvent"] == "b") - abs(row["heat"] - 60) / 4)
        study.tell("a30", 80.0)
    return "lab.db"


def test_measured_and_recommended_differ_and_the_reason_is_said(lab):
    data = manyarms("status", lab, "--json").data["best"]
    text = manyarms("status", lab).out
    measured, recommended = data["measured"], data["recommended"]
    assert measured["id"] == "a30" != recommended["id"]
    assert f"Best measured: {measured['id']}, measured {measured['measured']:.5g}" in text
    estimate = f"estimated {recommended['estimate']:.5g} (95%: {recommended['low']:.5g} to "
    assert f"Recommended: {recommended['id']}, {estimate}{recommended['high']:.5g})" in text
    assert f"Why: {data['why']}." in text
    # One interval only, and both recipes.
    assert len(re.findall(r"[\d.]+ to [\d.]+", text)) == 1
    assert re.search(rf"^ +{measured['id']} +{recommended['id']}$", text, re.MULTILINE)
    assert re.search(r"^solvent +\w+ +\w+$", text, re.MULTILINE)


def test_where_they_are_the_same_one_line_says_so(lab):
    for _ in range(6):
        manyarms("tell", lab, "b60", "95")
    data = manyarms("status", lab, "--json").data["best"]
    assert data["measured"] == data["recommended"]
    text = manyarms("status", lab).out
    assert "Best measured and recommended: b60, estimated" in text
    assert "Why" not in text
    assert "\n  solvent: b\n" in text


def test_words_of_the_model_are_for_those_who_ask(lab):
    assert not MODEL_WORDS.search(manyarms("status", lab).out)
    verbose = manyarms("status", lab, "--verbose").out
    for word in ("inducing", "effective dimensions", "sketch", "noise", "heuristic"):
        assert word in verbose


def test_columns_that_are_not_used_are_named(lab):
    with ma.Study.open(lab) as study:
        unused = study.pool.unused
    assert list(unused) == ["remark", "scale"]
    (line,) = [text for text in manyarms("status", lab).out.splitlines() if "NOT USED" in text]
    assert line == f"NOT USED: remark ({unused['remark']}); scale ({unused['scale']})."
    assert manyarms("status", lab, "--json").data["not_used"] == unused


def test_bounds_are_respected_everywhere(lab):
    for _ in range(4):
        manyarms("tell", lab, "b60", "99.9")
    rows = manyarms("top", lab, "-k", 14, "--json").data["top"]
    assert all(0 <= row["low"] <= row["estimate"] <= row["high"] <= 100 for row in rows)
    ends = re.findall(r"95%: ([\d.-]+) to ([\d.]+)", manyarms("status", lab).out)
    assert ends
    assert all(0 <= float(low) <= float(high) <= 100 for low, high in ends)


def test_top_has_the_recipe_and_goes_to_a_file(lab, folder):
    rows = manyarms("top", lab, "-k", 3, "--json").data["top"]
    shown = manyarms("top", lab, "-k", 3).out.splitlines()
    assert shown[0].split() == [
        "id", "estimate", "low", "high", "results", "measured", "solvent", "heat", "remark", "scale"
    ]  # fmt: skip
    assert shown[1].split()[0] == rows[0]["id"]
    manyarms("top", lab, "-k", 3, "-o", "best.csv")
    frame = pl.read_csv("best.csv")
    assert frame["name"].to_list() == [row["id"] for row in rows]
    assert frame["estimate"].to_list() == pytest.approx([row["estimate"] for row in rows])
    with ma.Study.open(lab) as study:
        heats = [row["heat"] for row in study.pool.rows(frame["name"].to_list())]
    assert frame["heat"].to_list() == heats
    assert_one_line(manyarms("top", lab, "-o", "best.csv", code=2))
    manyarms("top", lab, "-o", "comma.csv", "--decimal", ",")
    assert ";" in (folder / "comma.csv").read_text(encoding="utf-8-sig").splitlines()[0]


def test_predict_takes_ids(lab):
    (row,) = manyarms("predict", lab, "a50", "--json").data["predictions"]
    with ma.Study.open(lab) as study:
        known = study.predict("a50")
    assert row["id"] == "a50"
    assert row["heat"] == 50
    assert [row["estimate"], row["low"], row["high"]] == pytest.approx(
        [known.mean[0], known.low[0], known.high[0]]
    )
    assert len(manyarms("predict", lab, "a50", "b20", "--json").data["predictions"]) == 2
    for wrong in (["nobody"], ["other.csv"], ["a50", "lab.db"]):
        assert_one_line(manyarms("predict", lab, *wrong, code=2))


def test_times_are_local(lab, monkeypatch):
    manyarms("suggest", lab, "--lease", "2d")
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        until = manyarms("status", lab, "--json").data["pending"][0]["until"]
        assert until.endswith("+05:30")
        assert until[:16] in manyarms("status", lab).out
        assert manyarms("history", lab, "--json").data["results"][0]["time"].endswith("+05:30")
    finally:
        del os.environ["TZ"]
        time.tzset()


def report(lab, *options):
    """The page, and the text of each of its sections by its title."""
    manyarms("report", lab, "-o", "report.html", *options)
    with open("report.html", encoding="utf-8") as file:
        page = file.read()
    body = re.sub(r"<script.*?</script>", "", page.split("</head>")[1], flags=re.DOTALL)
    sections = {}
    for section in re.findall(r"<section.*?</section>", body, re.DOTALL):
        text = html.unescape(re.sub(r"<[^>]*>", " ", section))
        title = re.search(r"<h2>(.*?)</h2>", section)
        sections[title[1] if title else "figure"] = (" ".join(text.split()), section)
    return page, sections


def cells(section):
    """The rows of the first table of a section, as text."""
    table = re.search(r"<table.*?</table>", section, re.DOTALL)[0]
    return [
        [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    ]


def test_the_report_says_what_the_library_says(lab):
    manyarms("suggest", lab, "-n", 2)
    manyarms("failed", lab, "a70")
    page, sections = report(lab, "-k", 5)
    with ma.Study.open(lab) as study:
        effects, left_out, top = study.effects(), study.left_out(), study.top(5)
        pending, history = study.pending, study.history
    header, *rows = cells(sections["All results, the latest first"][1])
    told = ["number", "id", "value", "time", "worker", "event"]
    assert header == [*told, "solvent", "heat", "remark", "scale"]
    assert [row[1] for row in rows] == [trial.id for trial in reversed(history)]
    told = [
        "failed" if trial.value is None else f"{trial.value:.5g}" for trial in reversed(history)
    ]
    assert [row[2] for row in rows] == told
    text, section = sections["What each level does"]
    assert re.findall(r"<h3>(.*?)</h3>", section) == list(effects)
    for effect in (each for levels in effects.values() for each in levels):
        assert f"{effect.mean:+.3g} {effect.low:+.3g} to {effect.high:+.3g}" in text
    n = len(left_out.measured)
    claim = f"{left_out.n_inside} of {n} measured candidates lie inside the 95% interval"
    assert claim in sections["How well the model predicts"][0]
    assert [row[0] for row in cells(sections["Suggestions pending"][1])[1:]] == pending
    _, *rows = cells(sections["The best 5 by estimate, tried or not"][1])
    assert [row[:2] for row in rows] == [[each.id, f"{each.mean:.5g}"] for each in top]
    (row,) = [row for row in cells(sections["Columns"][1]) if row[0] == "remark"]
    assert row[2].startswith("NOT USED: ")
    assert "NOT USED: remark (" in page
    # Words of the model stand in the section about it, and nowhere else.
    for title, (text, _) in sections.items():
        assert (title == "The model") == bool(MODEL_WORDS.search(text)), title


def test_a_report_looks_at_a_column_of_a_table_once(lab, monkeypatch):
    """And not at every cell of it: that took minutes for 5,000 results."""
    looked = []
    by_class = reporting._class
    monkeypatch.setattr(reporting, "_class", lambda cells: looked.append(1) or by_class(cells))
    manyarms("report", lab, "-o", "report.html")
    assert len(looked) < 100


def test_a_report_of_few_results(folder, monkeypatch):
    monkeypatch.chdir(folder)
    pool = ma.Pool.from_dicts([{"x": float(i)} for i in range(5)])
    with ma.Study.create("few.db", pool) as study:
        assert "No values were told yet." in report("few.db")[1]["Best so far"][0]
        study.tell(2, ma.FAILED)
        assert "No values were told yet." in report("few.db")[1]["Best so far"][0]
        study.tell(1, 3.0)
    page, sections = report("few.db")
    assert "1 of 1 measured candidate lies inside" in sections["How well the model predicts"][0]
    assert "Two columns at a time" not in sections
    assert "NOT USED" not in page


@pytest.mark.parametrize(
    "arguments", [["--help"], ["status", "lab.db"], ["tell", "lab.db", "a50", "3"]]
)
def test_only_pictures_load_what_draws_them_and_text_needs_no_pydantic(lab, arguments):
    probe = f"from manyarms.cli import main; import sys; main({arguments!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not {"plotly", "jinja2", "pydantic"} & set(done.stdout.splitlines()[-1].split())
