"""Experiment 7: how often what a certificate says without a theorem is true.

    python benchmarks/experiments.py words [--seeds 20]

`ma.Optimizer` as it comes looks results up in ten tables, and once more with `repeats="never"` in
those that have one value a candidate. After 5, 10, 20, 50 and 100 results its certificate is
compared with the table. A run is a JSON in the folder of the runs; one that is there is not run
again.
"""

import json
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pictures
import polars as pl
from covered import share
from peers import keep
from publishing import Options, publish
from scipy.special import ndtr
from tables import Table, load
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.campaign.certificate import SHARE_TRUE

COUNTS = (5, 10, 20, 50, 100)
DEVELOPED = ("reizman", "buchwald", "esol", "freesolv", "car")
CONFIRMED = ("aniline", "suzuki", "lipophilicity", "phoneme", "nasbench201")
NOISY = ("car", "phoneme", "nasbench201")
QUICK = ("line", "waves")
"""Tables for tests, made here."""
EACH_ONCE = "each once"
TEXT = """\
`Optimizer` as it comes, one suggestion at a time, {seeds} seeds a table. After each number of results its certificate says by how much another
candidate may be better than the recommended one, or that it does not say so yet. The statement is true if no candidate of the table is better by
more. The level is 90 %. "Unwidened" is the same statement made of the radius that the search uses, always made: what was said before statements
rested on the record of forecasts. Bounds are shares of the range of the table's values, in medians. The rule was chosen on the
tables {developed}; the other five confirm it.

{verdict}

A result counts as inside if it fell into the 95 % interval that was predicted when it was asked for. Suggestions look better than they are, so more
results fall below their interval than above it; only the latter can make a statement false.

**Where it fails.** {failing} The best molecules of freesolv are unlike all others, and several runs never come near them: what is said of candidates
that resemble none of those tried rests on the spread of the values seen so far. "Each once" is `repeats="never"` on the tables with one value a
candidate, taken as exact there; runs over 96 candidates end before 100 results."""


class Statement(NamedTuple):
    """What was said after so many results, and what was true; in the table's units."""

    count: int
    bound: float | None  # None: nothing was said
    unwidened: float
    regret: float  # of the recommended candidate

    @property
    def is_true(self) -> bool:
        return self.bound is not None and self.regret <= self.bound

    @property
    def was_true(self) -> bool:
        return self.regret <= self.unwidened


class Kept(NamedTuple):
    """One run."""

    table: str
    seed: int
    repeats: str
    span: float  # largest less smallest mean of the table
    statements: list[Statement]
    sides: list[int]  # of each result that was predicted: −1 below its interval, 0 inside, 1 above
    numbers: list[int]  # of those results, from 1


@cache
def table_of(name: str) -> Table:
    """A table by name."""
    if name not in QUICK:
        return load(name)
    x = np.random.default_rng(len(name)).random((90, 2))
    y = x[:, 0] if name == "line" else np.sin(9 * x).sum(axis=1)
    return Table(name, pl.DataFrame(x, schema=["a", "b"]), y[:, None])


def run(name: str, seed: int, repeats: str) -> Kept:
    """Ask and tell, and compare what is said with the table."""
    table = table_of(name)
    pool = ma.Pool.from_frame(table.frame, columns=table.columns)
    optimizer = ma.Optimizer(pool, seed=seed, repeats="never" if repeats == EACH_ONCE else "allow")
    rng = np.random.default_rng([seed, 1])
    statements = []
    for count in range(1, min(COUNTS[-1], len(table) if repeats == EACH_ONCE else COUNTS[-1]) + 1):
        i: Any = optimizer.ask()[0]
        optimizer.tell(i, table.draw(i, rng))
        if count in COUNTS:
            statements.append(stated(optimizer, table, count))
    predicted = [trial for trial in optimizer.history if trial.forecast is not None]
    sides = [side(trial) for trial in predicted]
    numbers = [trial.number + 1 for trial in predicted]
    span = float(np.ptp(table.means))
    return Kept(name, seed, repeats, span, statements, sides, numbers)


def side(trial: Any) -> int:
    """Whether a result fell below, into or above its interval."""
    return int(trial.value > trial.forecast.high) - int(trial.value < trial.forecast.low)


def stated(optimizer: ma.Optimizer, table: Table, count: int) -> Statement:
    """What is said now."""
    certificate = optimizer.certificate()
    at: Any = certificate.id
    policy = optimizer.policy
    level = 2 * float(ndtr(policy.beta / np.sqrt(policy.regularization))) - 1
    predicted = optimizer.predict(optimizer.pool.ids, level)
    unwidened = max(0.0, float(np.delete(predicted.high, at).max() - predicted.low[at]))
    regret = float(table.means.max() - table.means[at])
    return Statement(count, certificate.regret_bound, unwidened, regret)


def kept(options: Options, name: str, seed: int, repeats: str) -> Kept:
    """A run, made where it is not there."""
    path = options.runs / f"words-{name}-{repeats.replace(' ', '-')}-{seed}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with threadpool_limits(1):
            keep(path, json.dumps(run(name, seed, repeats)))
    found = Kept(*json.loads(path.read_text()))
    return found._replace(statements=[Statement(*each) for each in found.statements])


def experiment(options: Options) -> None:
    """A picture, and tables of how often statements were true."""
    names = options.scale(QUICK, DEVELOPED + CONFIRMED)
    seeds = options.seeds or options.scale(2, 20)
    once = [name for name in names if name not in NOISY]
    runs = [kept(options, name, seed, "allowed") for name in names for seed in range(seeds)]
    exact = [kept(options, name, seed, EACH_ONCE) for name in once for seed in range(seeds)]
    both = {"allowed": runs, EACH_ONCE: exact}
    together = [row(each, count, "all", how) for how, each in both.items() for count in COUNTS]
    by_table = [
        row([each for each in of if each.table == name], count, name, how)
        for how, of in both.items()
        for name in names
        for count in COUNTS[2:]
    ]
    pictures.panels(3, 3, options.output / "words.png", lambda axes: draw(axes, runs, names))
    developed = ", ".join(DEVELOPED)
    said = {"verdict": verdict(runs), "failing": failing(both, names)}
    text = TEXT.format(seeds=seeds, developed=developed, **said)
    tables = {
        "All tables": together,
        "Each table": [each for each in by_table if each["runs"]],
        "Forecasts": forecasts(runs, "allowed") + forecasts(exact, EACH_ONCE),
    }
    title = "What is said without a theorem"
    publish(options, "words", title, text, tables, ["words.png"])


def at_count(runs: list[Kept], count: int) -> list[tuple[Statement, float]]:
    """What was said then, with the range of its table."""
    return [(each, run.span) for run in runs for each in run.statements if each.count == count]


def row(runs: list[Kept], count: int, table: str, repeats: str) -> dict:
    """How often a statement was made, how often it was true, and how much it said."""
    all_of = at_count(runs, count)
    made = [(each, span) for each, span in all_of if each.bound is not None]
    bounds = [each.bound / span for each, span in made if each.bound is not None]
    old = [each.was_true for each, _ in all_of]
    return {
        "system": "bkb",
        "table": table,
        "repeats": repeats,
        "results": count,
        "runs": len(all_of),
        "made": len(made),
        "true": share([each.is_true for each, _ in made]) if made else "–",
        "bound": float(np.median(bounds)) if bounds else "–",
        "regret": float(np.mean([each.regret / span for each, span in all_of])) if all_of else "–",
        "unwidened true": share(old) if old else "–",
    }


def forecasts(runs: list[Kept], repeats: str) -> list[dict]:
    """Shares of results below, inside and above their 95 % intervals, by their number."""
    rows = []
    for first, last in ((9, 20), (21, 50), (51, 100)):
        sides = np.array([side for run in runs for side in sides_of(run, first, last)])
        if len(sides):
            shares = {
                name: float((sides == value).mean())
                for name, value in (("below", -1), ("inside", 0), ("above", 1))
            }
            numbers = f"{first} to {last}"
            rows.append({"system": "bkb", "repeats": repeats, "results": numbers, **shares})
    return rows


def sides_of(run: Kept, first: int, last: int) -> list[int]:
    """Of the results with these numbers."""
    pairs = zip(run.sides, run.numbers, strict=True)
    return [side for side, number in pairs if first <= number <= last]


def verdict(runs: list[Kept]) -> str:
    """The first table in words."""
    parts = []
    for count in COUNTS:
        made = [each for each, _ in at_count(runs, count) if each.bound is not None]
        true = f", {sum(each.is_true for each in made)} of them true" if made else ""
        parts.append(f"after {count} results {len(made)} of {len(runs)}{true}")
    return f"Statements that were made: {'; '.join(parts)}."


def failing(both: dict[str, list[Kept]], names: tuple[str, ...]) -> str:
    """The tables on which fewer than nine of ten statements were true."""
    parts = []
    for how, runs in both.items():
        for name in names:
            for count in COUNTS:
                mine = at_count([run for run in runs if run.table == name], count)
                true = [each.is_true for each, _ in mine if each.bound is not None]
                if true and np.mean(true) < SHARE_TRUE:
                    cell = f"{name}, repeats {how}, after {count}"
                    parts.append(f"{cell}: {sum(true)} of {len(true)}")
    return f"Fewer than nine of ten were true in these cells: {'; '.join(parts) or 'none'}."


def draw(axes: list[Any], runs: list[Kept], names: tuple[str, ...]) -> None:
    """Shares of true statements, bounds, and how forecasts held."""
    truths, bounds, held = axes
    for is_new, label, colour in ((True, "on the record", 0), (False, "unwidened", 1)):
        points = []
        for count in COUNTS:
            said = [
                each for each, _ in at_count(runs, count) if not is_new or each.bound is not None
            ]
            if said:
                true = [each.is_true if is_new else each.was_true for each in said]
                points.append((count, float(np.mean(true)), len(true)))
        x, y, made = zip(*points, strict=True) if points else ((), (), ())
        truths.plot(x, y, "o-", color=pictures.COLOURS[colour], label=label)
        for at, height, n in zip(x, y, made, strict=True):
            place = (0, 6) if is_new else (0, -12)
            truths.annotate(
                str(n), (at, height), place, textcoords="offset points", ha="center", fontsize=7
            )
    truths.axhline(SHARE_TRUE, color="#6e6e6e", lw=0.8, ls=":")
    truths.set(
        xscale="log", ylim=(0, 1.08), title="share of statements that are true, and how many"
    )
    truths.legend(fontsize=8, loc="lower right")
    for number, name in enumerate(names):
        mine = [run for run in runs if run.table == name]
        line = [(count, row(mine, count, name, "")["bound"]) for count in COUNTS]
        known = [(count, bound) for count, bound in line if bound != "–"]
        if known:
            bounds.plot(
                *zip(*known, strict=True), marker="o", ms=3, label=name, **pictures.style(number)
            )
    bounds.axhline(0.25, color="#6e6e6e", lw=0.8, ls=":")
    bounds.set(xscale="log", yscale="log", title="median bound, of the table's range")
    bounds.legend(fontsize=7, handlelength=3.5)
    edges = np.array([9, 13, 20, 30, 50, 70, 101])
    for value, label, colour in ((0, "inside", 0), (-1, "below", 4), (1, "above", 1)):
        shares = [
            np.mean([side == value for run in runs for side in sides_of(run, low, high - 1)])
            for low, high in pairwise(edges)
        ]
        held.stairs(shares, edges, color=pictures.COLOURS[colour], label=label, baseline=None)
    held.axhline(0.95, color="#6e6e6e", lw=0.8, ls=":")
    held.set(ylim=(0, 1.02), title="results and their 95 % intervals")
    held.legend(fontsize=8, loc="center right")
    for ax in (truths, bounds):
        ax.set_xticks(COUNTS, labels=list(map(str, COUNTS)))
        ax.minorticks_off()
    for ax in axes:
        ax.set_xlabel("results")
