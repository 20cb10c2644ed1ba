"""What the runs of peers.py come to: means over seeds, comparisons over tables, and whether the bars are met."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tables import Table

OURS = "manyarms"
"""With nothing set: `goal="find"`. What it finds is held to bars."""
EARN = "manyarms-earn"
"""Its mean regret is."""
OLD = "manyarms-0.1"
FASTER = "botorch-own"
"""BoTorch by its own acquisition function: run for its seconds."""


class Row(NamedTuple):
    """Means over the seeds of one peer on one table."""

    seeds: int
    mean: float  # regret of an evaluation
    best: float  # regret of the best candidate evaluated
    recommended: float  # regret of the last one recommended
    seconds: float  # the median
    failing: float  # evaluations that failed
    first: float  # mean regret of the first 200 evaluations
    last: float  # and of the last 200
    curve: list[float]  # regret of the recommended one after each tenth evaluation
    best_measured: float  # how often the recommended one was the best measured so far


Rows = dict[str, dict[str, Row]]
"""By table and peer."""


def summary(table: Table, runs: Sequence[dict]) -> Row:
    """Over seeds."""
    chosen = [table.regret(np.array(run["chosen"])) for run in runs]
    curves = [table.regret(np.array(run["recommended"])) for run in runs]
    found = [np.minimum.accumulate(regret)[9::10] for regret in chosen]
    pairs = list(zip(curves, found, strict=True))
    return Row(
        seeds=len(runs),
        mean=_mean([regret.mean() for regret in chosen]),
        best=_mean([regret.min() for regret in chosen]),
        recommended=_mean([curve[-1] for curve in curves]),
        seconds=float(np.median([run["seconds"] for run in runs])),
        failing=_mean([table.failing[run["chosen"]].sum() for run in runs]),
        first=_mean([regret[:200].mean() for regret in chosen]),
        last=_mean([regret[-200:].mean() for regret in chosen]),
        curve=np.mean(curves, axis=0).tolist(),
        best_measured=_mean([(curve == best).mean() for curve, best in pairs]),
    )


def summaries(runs: Sequence[dict], tables: Mapping[str, Table], budget: int, batch: int) -> Rows:
    """Of runs of one length, one or several at a time."""
    found: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for run in runs:
        if run["table"] in tables and (run["budget"], run["batch"]) == (budget, batch):
            found[run["table"], run["peer"]].append(run)
    rows: Rows = {name: {} for name in tables}
    for (name, peer), kept in found.items():
        rows[name][peer] = summary(tables[name], kept)
    return {name: peers for name, peers in rows.items() if peers}


def common(rows: Rows, *peers: str) -> list[str]:
    """Tables on which all of these were run."""
    return [name for name, found in rows.items() if set(peers) <= set(found)]


def geometric(rows: Rows, peer: str, reference: str) -> float:
    """Geometric mean over tables of the ratio of mean regrets."""
    names = common(rows, peer, reference)
    return float(np.exp(np.mean([np.log(ratio(rows, name, peer, reference)) for name in names])))


def ratio(rows: Rows, name: str, peer: str, reference: str) -> float:
    """Of mean regrets on a table."""
    return rows[name][peer].mean / rows[name][reference].mean


def average(rows: Rows, names: Sequence[str], peer: str, key: str) -> float:
    """Over tables."""
    return _mean([getattr(rows[name][peer], key) for name in names])


class Comparison(NamedTuple):
    """Ours beside a peer, on the tables where all were run: mean regrets of `earn`, and what `find` found."""

    peer: str
    tables: int
    no_worse: int  # tables on which our mean regret is no larger
    worse: dict[str, float]  # the others, and the ratio ours/theirs
    ratio: float  # geometric mean of ours/theirs
    best: tuple[float, float]  # ours, theirs
    recommended: tuple[float, float]


def compared(rows: Rows, peer: str) -> Comparison:
    """Over tables."""
    names = common(rows, OURS, EARN, peer)
    ratios = {name: ratio(rows, name, EARN, peer) for name in names}
    worse = {name: value for name, value in ratios.items() if value > 1}

    def both(key: str) -> tuple[float, float]:
        return average(rows, names, OURS, key), average(rows, names, peer, key)

    return Comparison(
        peer,
        len(names),
        len(names) - len(worse),
        worse,
        float(np.exp(np.mean(np.log(list(ratios.values()))))),
        both("best"),
        both("recommended"),
    )


def peers_of(rows: Rows) -> list[str]:
    """All that were run, by name."""
    return sorted({peer for found in rows.values() for peer in found})


def verdicts(rows: Rows, tables: Mapping[str, Table]) -> list[str]:
    """The bars of a run of 200 evaluations, met or missed; nothing is said of what was not run."""
    names = common(rows, OURS, EARN)
    if not names:
        return [f"{OURS} and {EARN} were not run"]
    said = []
    if common(rows, EARN, OLD):
        value = geometric(rows, EARN, OLD)
        said.append(
            f"{_met(value <= 0.75)}: mean regret of earn {value:.3f} of version 0.1's (bar 0.75)"
        )
    for key, bar in (("best", 0.025), ("recommended", 0.045)):
        value = average(rows, names, OURS, key)
        said.append(f"{_met(value <= bar)}: average {key} of find {value:.4f} (bar {bar})")
    for peer in peers_of(rows):
        if not peer.startswith(OURS) and peer != FASTER and common(rows, OURS, EARN, peer):
            said += _against(compared(rows, peer))
    if "gpu" in names:
        for peer in (OURS, EARN):
            failing = rows["gpu"][peer].failing
            said.append(
                f"{_met(failing <= 15)}: {failing:.1f} evaluations of {peer} fail on gpu (bar 15)"
            )
    exact = [name for name in names if tables[name].is_exact]
    if exact:
        share = average(rows, exact, OURS, "best_measured")
        where = f"on {len(exact)} exact tables"
        said.append(f"{_met(share == 1)}: {where} the best measured is recommended in {share:.1%}")
    return said + _seconds(rows, tables)


def _against(found: Comparison) -> list[str]:
    share = found.no_worse / found.tables
    ratios = ", ".join(f"{name} {value:.2f}" for name, value in found.worse.items())
    counted = (
        f"mean regret of earn no worse than {found.peer}'s on {found.no_worse} of {found.tables}"
    )
    mean = f", {found.ratio:.2f} of it (geometric mean)"
    others = f"; ratio on the others: {ratios}" * bool(ratios)
    said = [f"{_met(share >= 0.9)}: {counted}{mean}{others}"]
    for key in ("best", "recommended"):
        mine, theirs = getattr(found, key)
        said.append(
            f"{_met(mine <= theirs)}: average {key} of find {mine:.4f}, {found.peer} {theirs:.4f}"
        )
    return said


def _seconds(rows: Rows, tables: Mapping[str, Table]) -> list[str]:
    said = []
    for peer in ("botorch", FASTER):
        for name in common(rows, OURS, peer):
            if len(tables[name]) == 62_208:
                times = rows[name][peer].seconds / rows[name][OURS].seconds
                what = f"{times:.0f} times faster than {peer} on {name} (bar 50)"
                said.append(f"{_met(times >= 50)}: {what}")
    return said


def _met(ok: bool) -> str:
    return "met" if ok else "MISSED"


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
