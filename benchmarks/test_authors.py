"""benchmarks/authors.py without the authors' code: our side of it, and the page."""

from argparse import Namespace
from pathlib import Path

import authors
import pytest
from sides import Run

OURS = ["ours", "ours, batches", "ours, printed"]


def row(system, seed=0, radius="coded"):
    return authors.record(Run(system, radius, 60, 2, 12, seed), Path("nowhere"), limit=60.0)


@pytest.mark.parametrize("system", OURS)
@pytest.mark.parametrize("radius", ["coded", "constant"])
def test_a_run_of_ours_ends_at_its_last_step(system, radius):
    kept = row(system, radius=radius)
    assert kept["ended"] == "steps"
    assert kept["curve"][-1][0] == 12


def test_an_error_ends_a_run_and_is_named():
    kept = row("theirs")
    assert kept["ended"].startswith("ModuleNotFoundError")
    assert kept["curve"] == []


def test_the_limit_stops_a_run_which_more_time_makes_again():
    kept = authors.record(Run("ours", "coded", 60, 2, 12, 0), Path("nowhere"), limit=0.0)
    assert kept["ended"] == "limit"
    assert authors._serves(kept, 0.0)
    assert not authors._serves(kept, 1.0)


def test_systems_are_compared_after_as_many_steps_and_losses_are_marked():
    start = (2, 1, 1, 2, 1, 0.2)
    ours = {"system": "ours", "ended": "steps", "curve": [start, (12, 6, 11, 2, 6, 0.2)]}
    theirs = {"system": "theirs", "ended": "limit", "curve": [start, (7, 7, 3, 2, 2, 0.2)]}
    line = authors.compared([ours], [theirs])
    assert line["steps"] == "7 (stopped by theirs: limit)"
    assert line["CPU ratio"] == "**2.00**, we lose"
    assert line["regret ratio"] == "0.50"


def test_the_page_has_a_table_for_every_pair():
    options = Namespace(arms=[60], d=[2], radius=["coded"], steps=12, seeds=2, limit=60.0)
    runs = authors.wanted(options)
    rows = {run: {**row("ours", run.seed), "system": run.system} for run in runs}
    text = authors.page(runs, rows, options)
    assert text.count("| 60 | 2 | coded | 12 |") == len(authors.PAIRS)
    assert "--arms 60 --d 2 --radius coded --steps 12 --seeds 2 --limit 60" in text
