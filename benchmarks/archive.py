"""All runs of peers.py in one file: what was chosen, in which order, and what was recommended.

A folder of runs is what peers.py leaves; the file is what is kept of it. Rewards are not kept: regrets are those of the means
of the tables.
"""

import gzip
import json
from pathlib import Path

RESULTS = Path("benchmarks/results")

KEYS = ("table", "peer", "budget", "batch", "seed", "seconds", "versions", "chosen", "recommended")


def results_of(pages: Path) -> Path:
    """The folder of the JSON of pages: one of its own for those in docs/, which are for readers."""
    return RESULTS if pages.parts[:1] == ("docs",) else pages


def read(path: Path) -> list[dict]:
    """The runs of a folder or of a file, in order of their names."""
    if path.is_dir():
        runs = [json.loads(file.read_text()) for file in path.glob("*.json")]
    else:
        runs = json.loads(gzip.decompress(path.read_bytes()))
    kept = [{key: run[key] for key in KEYS} for run in runs]
    return sorted((run | {"seconds": round(run["seconds"], 3)} for run in kept), key=_name)


def write(runs: list[dict], path: Path) -> None:
    """The same runs give the same bytes."""
    text = json.dumps(sorted(runs, key=_name), separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def merged(runs: list[dict], more: list[dict]) -> list[dict]:
    """Both; of two runs of the same name the later one."""
    return list({_name(run): run for run in [*runs, *more]}.values())


def _name(run: dict) -> tuple:
    return tuple(run[key] for key in ("table", "peer", "budget", "batch", "seed"))
