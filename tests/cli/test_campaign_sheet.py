"""A campaign on a messy sheet, from `init` to the report: every line on the screen is one that this
file knows, and what it claims is compared with the sheet and with the library."""

import csv
import html
import re
from statistics import mean

import pytest
from command_line import manyarms
from spreadsheets import (
    MESSY_OPTIONS,
    N_FAILED,
    N_RESULTS,
    NAMES,
    RECIPES,
    messy_sheet,
    true_yield,
    write_messy_sheet,
)

import manyarms as ma

pytestmark = pytest.mark.slow

NUMBER = r"-?[\d.]+(?:e[+-]\d+)?"


def told_in_sheet():
    """Every value in the sheet by the id of its recipe, read with nothing but the csv module."""
    lines = messy_sheet().decode("utf-8-sig").splitlines()
    values: dict[str, list[str]] = {}
    seen = set()
    for row in csv.DictReader(lines, delimiter=";"):
        key = tuple(row.values())[:8]
        if row["Nr"] and row["yield (%)"] and key not in seen:
            values.setdefault(row["Nr"], []).append(row["yield (%)"].replace(",", "."))
        seen.add(key)
    return values


class Screen:
    """What is printed, line by line; a line that nothing was said about is a failure."""

    def __init__(self, text):
        self.lines = [line for line in text.splitlines() if line.strip()]

    def take(self, pattern):
        """The groups of the first line that is like this."""
        for line in self.lines:
            found = re.fullmatch(pattern, line)
            if found:
                self.lines.remove(line)
                return found.groups()
        raise AssertionError(f"no line is like {pattern!r} in {self.lines}")

    def take_table(self, header, n):
        """The cells of a table that begins with these columns: two blanks stand between cells."""
        at = next(i for i, line in enumerate(self.lines) if line.split()[: len(header)] == header)
        rows = self.lines[at : at + n + 1]
        del self.lines[at : at + n + 1]
        return [re.split(r" {2,}", row.strip()) for row in rows[1:]]

    def end(self):
        assert not self.lines


class Lab:
    """The study, and what this file knows of it."""

    def __init__(self):
        self.values = {
            id: [float(value) for value in values if value != "failed"]
            for id, values in told_in_sheet().items()
        }
        self.failed = {id for id, values in told_in_sheet().items() if "failed" in values}
        self.pending = []

    @property
    def n_results(self):
        return sum(map(len, self.values.values())) + len(self.failed)

    def run(self, *arguments):
        return Screen(manyarms(*arguments).out)

    def check_status(self):
        screen = self.run("status", "lab.db")
        n, failed, pending = screen.take(
            r"lab.db: maximize yield \(%\); 54 candidates, (\d+) results \((\d+) failed\), (\d+) pending"
        )
        assert (int(n), int(failed)) == (self.n_results, len(self.failed))
        assert int(pending) == len(self.pending)
        (why,) = screen.take(r"NOT USED: note \((.*)\)\.")
        assert "text" in why
        with ma.Study.open("lab.db") as study:
            best, certificate = study.best(), study.certificate()
        self.check_best(screen, best)
        self.check_certificate(screen, certificate)
        if self.pending:
            rows = screen.take_table(["pending", "base", "solvent"], len(self.pending))
            assert [row[0] for row in rows] == self.pending
            assert [tuple(row[1:3]) for row in rows] == [recipe(id)[:2] for id in self.pending]
        screen.end()

    def check_best(self, screen, best):
        means = {id: mean(values) for id, values in self.values.items() if values}
        assert best.measured.value == pytest.approx(max(means.values()))
        measured = r"measured ([\d.]+) \((?:mean of )?(\d+) results?\)"
        estimate = rf"([^ ]+), estimated ({NUMBER}) \(95%: ({NUMBER}) to ({NUMBER})\), {measured}"
        if best.measured.id == best.recommended.id:
            found = screen.take(f"Best measured and recommended: {estimate}")
            recipe_rows = [
                screen.take(rf"  {name}: ?(.*)")[0] for name in ("base", "solvent", "temperature")
            ]
            assert recipe_rows[:2] == list(recipe(best.measured.id)[:2])
            for name in ("loading", "concentration", "note"):
                screen.take(rf"  {name}: ?.*")
        else:
            id, value, n = screen.take(rf"Best measured: (\d+), {measured}")
            assert float(value) == pytest.approx(means[id], rel=1e-4)
            assert int(n) == len(self.values[id])
            found = screen.take(f"Recommended: {estimate}")
            told, n, expected = screen.take(
                rf"Why: the best one measured has ({NUMBER}) from (\d+) results?, but some of that is taken for "
                rf"noise: the model expects ({NUMBER}) of it, and is surer of the one it recommends\."
            )
            assert float(told) == pytest.approx(means[id], rel=1e-3)
            assert int(n) == len(self.values[id])
            assert float(expected) == pytest.approx(best.measured.mean, rel=1e-3)
            assert float(expected) < float(told)
            rows = screen.take_table([id, found[0]], 6)
            both = {row[0]: row[1:] for row in rows}
            assert both["base"] == [recipe(id)[0], recipe(found[0])[0]]
            assert both["solvent"] == [recipe(id)[1], recipe(found[0])[1]]
        id, middle, low, high, value, n = found
        assert id == best.recommended.id
        assert [float(middle), float(low), float(high)] == pytest.approx(
            [best.recommended.mean, best.recommended.low, best.recommended.high], rel=1e-4
        )
        assert float(low) <= float(middle) <= float(high)
        assert float(value) == pytest.approx(means[id], rel=1e-4)
        assert int(n) == len(self.values[id])

    def check_certificate(self, screen, certificate):
        record = certificate.record
        if certificate.regret_bound is None:
            (n,) = screen.take(
                r"The model has not been tested enough yet to say how much better another candidate like those tried may be: "
                r"20 tested predictions of candidates without a value are needed, there (?:is|are) (\d+)\."
            )
            assert int(n) == record.n < 20
            if record.n:
                inside, n = screen.take(
                    r"(\d+) of (\d+) results? fell inside the 95 % interval predicted\."
                )
                assert (int(inside), int(n)) == (record.n_inside, record.n)
            return
        bound, rival = screen.take(
            rf"The model expects that among candidates like those tried no other is better by more than ({NUMBER}); the closest rival is (\d+)\."
        )
        screen.take(r"It cannot know of candidates that are unlike all of them\.")
        assert float(bound) == pytest.approx(certificate.regret_bound, rel=1e-3)
        assert rival == certificate.rival
        inside, n = screen.take(
            r"Nine of ten such statements should be true\. (\d+) of (\d+) results fell inside the 95 % interval predicted.*"
        )
        assert (int(inside), int(n)) == (record.n_inside, record.n)

    def suggest(self, n):
        (said_n,) = self.run("suggest", "lab.db", "-n", n, "-o", "next.csv", "--force").take(
            r"(\d+) candidates? to try in next\.csv\."
        )
        header, rows = read("next.csv")
        assert int(said_n) == len(rows)
        self.pending = [row["Nr"] for row in rows]
        for row in rows:
            base, solvent, _, loading = recipe(row["Nr"])
            assert (row["base"], row["solvent"]) == (base, solvent)
            assert number(row["loading"]) == number(loading.removesuffix(" %"))
            assert number(row["low"]) <= number(row["predicted"]) <= number(row["high"])
            is_tried = bool(self.values.get(row["Nr"]))
            assert ("repeat" in row["why"] or "check" in row["why"]) == is_tried, row["why"]
        return header, rows

    def tell(self, values):
        """Fill in the file and tell it; returns what is printed."""
        header, rows = read("next.csv")
        for row in rows:
            row["yield (%)"] = values[row["Nr"]]
        with open("next.csv", "w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, header, delimiter=";")
            writer.writeheader()
            writer.writerows(rows)
        return self.run("tell", "lab.db", "next.csv")


def recipe(id):
    return RECIPES[NAMES.index(id)]


def number(text):
    return float(text.replace(",", "."))


def comma(value):
    return f"{value:.1f}".replace(".", ",")


def read(path):
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter=";")
        return reader.fieldnames, list(reader)


def test_the_campaign(folder, monkeypatch):
    monkeypatch.chdir(folder)
    lab = Lab()
    assert lab.n_results == N_RESULTS
    assert len(lab.failed) == N_FAILED

    screen = lab.run("init", "lab.db", "--pool", write_messy_sheet(folder), *MESSY_OPTIONS)
    screen.take(r"lab.db: 54 candidates; maximize yield \(%\)\.")
    types = {row[0]: row[1] for row in screen.take_table(["column", "type", "such", "as"], 5)}
    assert types == {
        "base": "categorical",
        "solvent": "categorical",
        "temperature": "integer, in °C",
        "loading": "continuous, in %",
        "concentration": "continuous, in M",
    }
    n, failed = screen.take(r"(\d+) results in column 'yield \(%\)', (\d+) of them failed\.")
    assert (int(n), int(failed)) == (N_RESULTS, N_FAILED)
    (left_out,) = screen.take(r"Left out 1 row \((\d+)\): every cell is that of a row above\.")
    (again,) = screen.take(
        r"Took 1 row \((\d+)\) as further trials: the candidate is that of a row above\."
    )
    lines = messy_sheet().decode("utf-8-sig").splitlines()
    assert lines[int(left_out) - 1] in lines[: int(left_out) - 1]
    assert lines[int(again) - 1].split(";")[0] == NAMES[8]
    screen.take(r"NOT USED: note \(.*text.*\)\.")
    screen.end()
    lab.check_status()

    # A batch, with a decimal point in the wrong place.
    _, rows = lab.suggest(5)
    lab.check_status()
    typo = rows[0]["Nr"]
    wrong = round(true_yield(typo) / 10, 1)
    values = {row["Nr"]: comma(true_yield(row["Nr"])) for row in rows}
    screen = lab.tell(values | {typo: comma(wrong)})
    n, total = screen.take(r"Told (\d+) results; the study has (\d+)\.")
    screen.end()
    for id in lab.pending:
        lab.values.setdefault(id, []).append(wrong if id == typo else true_yield(id))
    lab.pending = []
    assert (int(n), int(total)) == (len(rows), lab.n_results)
    lab.check_status()

    # It is noticed: the file is told again with another value.
    screen = lab.tell(values)
    id, before, after = screen.take(rf"Corrected (\d+): ({NUMBER}) is now ({NUMBER})\.")
    assert (id, float(before), float(after)) == (typo, wrong, true_yield(typo))
    screen.take(rf"The study has {lab.n_results} results\.")
    screen.end()
    lab.values[typo].remove(wrong)
    lab.values[typo].append(true_yield(typo))
    lab.check_status()

    # A correction that was wrong is taken back.
    screen = lab.run("correct", "lab.db", NAMES[0], "99,9", "--note", "read from the wrong line")
    screen.take(
        rf"Corrected 001: {true_yield('001'):g} is now 99\.9\. The study has {lab.n_results} results\."
    )
    screen.end()
    screen = lab.run("undo", "lab.db")
    event, what = screen.take(r"Took back event (\d+) of [\d-]+ [\d:]+: (.*)\.")
    assert what == f"corrected 001 from {true_yield('001'):g} to 99.9"
    screen.take(
        rf"The study has {lab.n_results} results\. Take this back with: manyarms undo lab\.db {int(event) + 1}"
    )
    screen.end()
    lab.check_status()

    for _ in range(4):
        _, rows = lab.suggest(5)
        screen = lab.tell({row["Nr"]: comma(true_yield(row["Nr"])) for row in rows})
        for id in lab.pending:
            lab.values.setdefault(id, []).append(true_yield(id))
        lab.pending = []
        n, total = screen.take(r"Told (\d+) results; the study has (\d+)\.")
        assert (int(n), int(total)) == (len(rows), lab.n_results)
        screen.end()
        lab.check_status()

    # What was found is about the best there is.
    with ma.Study.open("lab.db") as study:
        recommended = study.best().recommended.id
        top = study.top(3)
        (predicted,) = study.predict(NAMES[-1]).mean
    assert true_yield(recommended) >= sorted(map(true_yield, NAMES))[-5]
    screen = lab.run("top", "lab.db", "-k", 3)
    rows = screen.take_table(["id", "estimate", "low"], 3)
    assert [row[0] for row in rows] == [each.id for each in top]
    assert [float(row[1]) for row in rows] == pytest.approx([each.mean for each in top], rel=1e-4)
    screen.end()
    screen = lab.run("predict", "lab.db", NAMES[-1])
    ((id, estimate, *_),) = screen.take_table(["id", "estimate", "sd"], 1)
    assert (id, float(estimate)) == (NAMES[-1], pytest.approx(predicted, rel=1e-4))
    screen.end()
    check_report(lab)


def check_report(lab):
    lab.run("report", "lab.db").take(r"Wrote report\.html\.")
    with open("report.html", encoding="utf-8") as file:
        page = file.read().split("</head>")[1]
    page = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    sections = dict(re.findall(r"<section[^>]*><h2>(.*?)</h2>(.*?)</section>", page, re.DOTALL))
    listed = [
        [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in re.findall(
            r"<tr>(.*?)</tr>", sections["All results, the latest first"], re.DOTALL
        )
    ][1:]
    assert len(listed) == lab.n_results
    values: dict[str, list[float]] = {}
    for row in listed:
        if row[2] != "failed":
            values.setdefault(row[1], []).append(float(row[2]))
    assert {id: sorted(v) for id, v in values.items()} == {
        id: sorted(v) for id, v in lab.values.items() if v
    }
    assert "took back event" in sections["What was changed"]
    assert "read from the wrong line" in sections["What was changed"]
    assert "NOT USED: note" in page
    inside, n = re.search(
        r"(\d+) of (\d+) measured candidates lie inside the 95% interval",
        sections["How well the model predicts"],
    ).groups()
    assert int(n) == sum(bool(v) for v in lab.values.values())
    assert int(inside) <= int(n)
    # What is known to be true is what the effects say: KOPiv is the best base, DMAc the best solvent.
    effects = sections["What each level does"]
    for column, best, worst in (("base", "KOPiv", "K2CO3"), ("solvent", "DMAc", "BuOAc")):
        table = effects.split(f"<h3>{column}</h3>")[1].split("</table>")[0]
        effect = {
            level: float(value)
            for level, value in re.findall(
                r"<tr><td>(.*?)</td><td[^>]*>\d+</td><td[^>]*>([+-][\d.e-]+)</td>", table
            )
        }
        assert max(effect, key=effect.get) == best
        assert min(effect, key=effect.get) == worst
