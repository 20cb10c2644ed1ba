"""What manyarms and other tools find in the tables of tables.py, at most one run at a time.

    python benchmarks/peers.py --table car phoneme --peer random tpe --budget 200 --seed 0 1 2 --output bench-output/peers
    python benchmarks/peers.py --peer manyarms-0.1 --old CHECKOUT     # a checkout of version 0.1 (commit 12ba010)
    python benchmarks/peers.py --csv FOLDER --table mine              # the table of FOLDER/mine.csv.gz (see tables.load)
    python benchmarks/peers.py --peer manyarms tpe random --batch 8   # eight at a time, 5 % of the results never come

One JSON for each table, peer, budget and seed; those already there are not run again, and all are shown in a table. Peers:
random, tpe, tpe-univariate, optuna-gp, smac, botorch (its fits begin at the last one), botorch-anew, and the variants of manyarms_peer.py.

A peer is asked for a row, told its value (None: the evaluation failed), and recommends a row. Seconds are the processor's,
of `ask` and `tell` only.
"""

import argparse
import json
import os
import platform
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from tables import DEVELOPMENT, HELD_OUT, MORE, Table, load

EVERY = 10
"""A recommendation is recorded after each so many evaluations."""
LOST = 0.05
"""Share of results that never come, where several are evaluated at a time."""


class Peer(Protocol):
    """A tool that searches a table. A peer that can wait for several results also has `lose(row)`: one never comes."""

    def ask(self) -> int: ...
    def tell(self, row: int, value: float | None) -> None: ...
    def recommend(self) -> int: ...


class Random:
    """Rows uniform with replacement; the best observed is recommended."""

    def __init__(self, table: Table, budget: int, seed: int) -> None:
        self._n = len(table)
        self._rng = np.random.default_rng([seed, 1])
        self._best = (-np.inf, 0)

    def ask(self) -> int:
        return int(self._rng.integers(self._n))

    def tell(self, row: int, value: float | None) -> None:
        if value is not None and value > self._best[0]:
            self._best = (value, row)

    def lose(self, row: int) -> None:
        pass

    def recommend(self) -> int:
        return self._best[1]


class Trace(NamedTuple):
    """One run: what was evaluated, in the order of the results."""

    chosen: list[int]
    rewards: list[float | None]  # None: it failed, or its result never came
    recommended: list[int]  # after each EVERY evaluations
    seconds: float


class Clock:
    """Seconds spent inside `with clock`: those on the wall, unless `now` tells others."""

    def __init__(self, now=time.perf_counter):
        self.seconds, self._now = 0.0, now

    def __enter__(self):
        self._start = self._now()

    def __exit__(self, *_):
        self.seconds += self._now() - self._start


PACKAGES = {
    "random": ("numpy",),
    "tpe": ("optuna",),
    "tpe-univariate": ("optuna",),
    "optuna-gp": ("optuna", "torch"),
    "smac": ("smac", "ConfigSpace"),
    "botorch": ("botorch", "gpytorch", "torch"),
    "botorch-own": ("botorch", "gpytorch", "torch"),
    "botorch-anew": ("botorch", "gpytorch", "torch"),
}
"""The peers that are not manyarms, and the packages whose versions are recorded."""
COLUMNS_ONLY = ("tpe", "tpe-univariate", "optuna-gp", "smac")
"""Those that need a product of columns, which fingerprints are not."""


def applies(table: Table, peer: str) -> bool:
    """Whether a peer can search a table."""
    return not (peer in COLUMNS_ONLY and table.columns)


def started(table: Table, peer: str, budget: int, seed: int) -> Peer:
    """A peer at the beginning of a run; its package is imported here."""
    if peer == "random":
        return Random(table, budget, seed)
    if peer.startswith("botorch"):
        own, anew = peer == "botorch-own", peer == "botorch-anew"
        return import_module("botorch_peer").BoTorch(table, budget, seed, own, anew)
    if peer == "smac":
        return import_module("smac_peer").Smac(table, budget, seed)
    if peer in PACKAGES:
        names = {"tpe": "tpe", "tpe-univariate": "univariate", "optuna-gp": "gp"}
        return getattr(import_module("optuna_peer"), names[peer])(table, budget, seed)
    ours = import_module("manyarms_peer")
    return ours.ManyArms(table, seed, ours.VARIANTS[peer])


def play(table: Table, peer: str, budget: int, seed: int, batch: int = 1) -> Trace:
    """So many evaluations under way at any time.

    Where there are several, they end in random order and some results never come.
    """
    noise = np.random.default_rng([seed, 2])
    events = np.random.default_rng([seed, 3])
    clock = Clock(time.process_time)
    trace = Trace([], [], [], 0.0)
    with clock:
        tool: Any = started(table, peer, budget, seed)
    waiting: list[int] = []
    for number in range(1, budget + 1):
        with clock:
            while len(waiting) < min(batch, budget - number + 1):
                waiting.append(tool.ask())
        row = waiting.pop(events.integers(len(waiting)))
        is_lost = batch > 1 and events.random() < LOST
        value = None if is_lost else table.draw(row, noise)
        with clock:
            if is_lost:
                tool.lose(row)
            else:
                tool.tell(row, value)
        trace.chosen.append(row)
        trace.rewards.append(value)
        if number % EVERY == 0:
            trace.recommended.append(tool.recommend())
    return trace._replace(seconds=clock.seconds)


def versions(peer: str) -> dict[str, str]:
    """Of Python and of what a peer runs."""
    found = {"python": platform.python_version()}
    if peer in PACKAGES:
        return found | {name: version(name) for name in PACKAGES[peer]}
    return found | {"manyarms": import_module("manyarms").__version__}


def record(table: Table, peer: str, budget: int, seed: int, batch: int = 1) -> dict:
    """What is kept of one run."""
    trace = play(table, peer, budget, seed, batch)
    return {
        "table": table.name,
        "peer": peer,
        "budget": budget,
        "batch": batch,
        "seed": seed,
        **trace._asdict(),
        "versions": versions(peer),
    }


def keep(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    whole = path.with_suffix(f".{os.getpid()}")
    whole.write_text(text)
    whole.replace(path)


def line(table: Table, kept: dict) -> str:
    """A run in a line."""
    regret = table.regret(np.array(kept["chosen"]))
    recommended = table.regret(kept["recommended"][-1])
    figures = f"{regret.mean():>8.3f}{regret.min():>8.4f}{recommended:>13.4f}"
    failed = int(table.failing[kept["chosen"]].sum())
    name = f"{kept['table']:<20}{kept['peer']:<20}{kept['seed']:>4}"
    return f"{name}  {kept['seconds']:>8.2f}{figures}{failed:>8}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [*DEVELOPMENT, *HELD_OUT]
    parser.add_argument("--table", nargs="+", default=list(DEVELOPMENT), help="or all")
    parser.add_argument("--csv", type=Path, help="a folder of tables of your own")
    parser.add_argument("--peer", nargs="+", default=["random", "tpe"])
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument("--output", type=Path, default=Path("bench-output/peers"))
    parser.add_argument("--old", type=Path, help="a checkout of version 0.1, for manyarms-0.1")
    options = parser.parse_args()
    if options.budget < EVERY:
        parser.error(f"--budget must be at least {EVERY}, got {options.budget}")
    if options.batch < 1:
        parser.error(f"--batch must be at least 1, got {options.batch}")
    if not options.csv and (unknown := {*options.table} - {*every, *MORE, "all"}):
        parser.error(f"no table {', '.join(sorted(unknown))}")
    ours = {peer for peer in options.peer if peer not in PACKAGES}
    if options.old:
        sys.path.insert(0, str(options.old / "src"))
    if ours:
        if unknown := ours - set(import_module("manyarms_peer").VARIANTS):
            parser.error(f"no peer {', '.join(sorted(unknown))}")
        if bool(options.old) != (ours == {"manyarms-0.1"}):
            parser.error("manyarms-0.1, and no other variant of manyarms, needs --old")
    options.output.mkdir(parents=True, exist_ok=True)
    print("regrets: 0 is the best candidate, 1 a median one")
    heading = f"{'table':<20}{'peer':<20}seed   seconds    mean    best  recommended"
    print(f"{heading}  failed")
    for name in every if "all" in options.table else options.table:
        table = load(name, options.csv)
        for peer in options.peer:
            if not applies(table, peer):
                print(f"{name:<20}{peer:<20}does not apply")
                continue
            for seed in options.seed:
                size = f"{options.budget}" + f"x{options.batch}" * (options.batch > 1)
                path = options.output / f"{name}-{peer}-{size}-{seed}.json"
                if not path.exists():
                    kept = record(table, peer, options.budget, seed, options.batch)
                    keep(path, json.dumps(kept))
                print(line(table, json.loads(path.read_text())), flush=True)


if __name__ == "__main__":
    main()
