"""Ctrl-C again and again while processes tell, ask and read: nothing is lost, and nobody waits for a lock that is not let go.

    python -m soak.interrupts [--interrupts 2000] [--processes 40] [--where memory|disk|postgresql]

Each child tells results, each with a value of its own, asks, and reads; it goes on after every KeyboardInterrupt. It is sent its
share of the interrupts, 0.3 to 100 ms apart (log-uniform; each child has a range of its own within that). All the while the
parent tells results too, and measures how long it waits. In the end every result whose `tell` returned must be there once, no
other error may have come out of any call, and the child must end by itself.
"""

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import manyarms as ma
from manyarms.errors import StateError
from soak.common import N, at, place, pool

SHORTEST, LONGEST = 0.3e-3, 100e-3
"""Seconds between two interrupts."""
PATIENCE = 60.0
"""Seconds after which a child that does not end is said to hang."""


class Interrupted(NamedTuple):
    """What came of it."""

    interrupts: int
    raised: int  # those that came out of a call, as KeyboardInterrupt
    acknowledged: int
    unanswered: int  # there, though the interrupt came before `tell` returned
    hangs: int
    slowest: float  # seconds that a call of a process beside took


def interrupts(where: str | Path, number: int, processes: int, seed: int = 0) -> Interrupted:
    """Send so many, one process after another; AssertionError where one is answered by anything but KeyboardInterrupt, or a
    result is lost or doubled."""
    rng = random.Random(seed)
    total = Interrupted(0, 0, 0, 0, 0, 0.0)
    location = at(where, "interrupts")
    study = ma.Study.create(location, pool())
    study.tell(0, [0.0])  # so that there is a best one
    for process in range(processes):
        gaps = _gaps(rng, number // processes)
        found = _one(study, location, process, gaps)
        counts = [one + two for one, two in zip(total[:-1], found[:-1], strict=True)]
        total = Interrupted._make([*counts, max(total.slowest, found.slowest)])
        if process % 10 == 9:
            print(total, flush=True)
    assert study.verify() == study.n_events
    study.close()
    return total


def _gaps(rng: random.Random, number: int) -> list[float]:
    """Seconds between interrupts: half of the processes get them quick as lightning."""
    longest = rng.choice([1e-3, 10e-3, LONGEST, LONGEST])
    return [math.exp(rng.uniform(math.log(SHORTEST), math.log(longest))) for _ in range(number)]


def _one(study: ma.Study, location: str | Path, process: int, gaps: list[float]) -> Interrupted:
    first = 1e6 * (process + 1)
    child = subprocess.Popen(
        [sys.executable, "-m", "soak.interrupts", "--child", str(location), "--first", str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert child.stdout is not None
    child.stdout.readline()  # it begins
    sender = threading.Thread(target=_send, args=(child, gaps))
    sender.start()
    slowest, own = 0.0, 0
    while sender.is_alive():
        begun = time.perf_counter()
        study.tell(own % N, [-first - own])
        slowest = max(slowest, time.perf_counter() - begun)
        own += 1
        time.sleep(0.002)
    try:
        said, _ = child.communicate(timeout=PATIENCE)  # its input ends, so it does
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return Interrupted(len(gaps), 0, 0, 0, 1, slowest)
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert not told["errors"], told["errors"]
    values = [trial.value for trial in study.history if trial.value is not None]
    assert len(set(values)) == len(values), "a result is there twice"
    mine = {value for value in values if first <= value < first + 1e6}
    lost = set(told["told"]) - mine
    assert not lost, f"{len(lost)} acknowledged results are lost"
    assert mine <= set(told["tried"])
    assert {-first - i for i in range(own)} <= set(values)
    return Interrupted(
        len(gaps), told["raised"], len(told["told"]), len(mine) - len(told["told"]), 0, slowest
    )


def _send(child: subprocess.Popen[str], gaps: list[float]) -> None:
    for gap in gaps:
        time.sleep(gap)
        os.kill(child.pid, signal.SIGINT)


class _Child:
    """Calls of a study, one after another, each of which may be interrupted."""

    def __init__(self, location: str, first: float) -> None:
        self.study = ma.Study.open(location)
        self.value = first
        self.tried: list[float] = []
        self.told: list[float] = []
        self.errors: list[str] = []
        self.raised = 0
        self.ends = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        sys.stdin.read()
        self.ends = True

    def call(self) -> None:
        """One round; the first says that it begins."""
        if not self.tried:
            print("begins", flush=True)
        self.value += 1.0
        kind = int(self.value) % 8
        if kind == 1:
            asked = self.study.ask()
            with suppress(StateError):  # the parent may have told a result of it meanwhile
                self.study.release(asked)
        elif kind == 2:
            self.study.best()
        elif kind == 3:
            self.study.close()
        self.tried.append(self.value)
        self.study.tell(kind, [self.value])
        self.told.append(self.value)

    def go_on(self, depth: int) -> None:
        """Call until the end. An interrupt in this loop itself is caught by the same loop around it."""
        while not self.ends:
            try:
                if depth:
                    self.go_on(depth - 1)
                else:
                    self.call()
            except KeyboardInterrupt:
                self.raised += 1
            except Exception as error:
                self.errors.append(repr(error))


def _child(location: str, first: float) -> None:
    child = _Child(location, first)
    child.go_on(12)
    told = {name: getattr(child, name) for name in ("tried", "told", "errors", "raised")}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--interrupts", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument("--where", choices=["disk", "memory", "postgresql"], default="memory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        _child(given.child, given.first)
        sys.exit()
    with place(given.where) as where:
        found = interrupts(where, given.interrupts, given.processes, given.seed)
        print(found)
        assert not found.hangs
        assert found.slowest < 1
