"""What experiments share: their options, their runs, and the JSON and the page that each leaves."""

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from archive import results_of
from runner import read, report, run_all, runs
from summary import markdown

import manyarms as ma


@dataclass(frozen=True)
class Options:
    """From the command line."""

    quick: bool
    output: Path
    runs: Path
    jobs: int
    limit: float
    budget: float
    seeds: int | None
    horizon: int | None

    @property
    def asked(self) -> str:
        """What of the command line the results depend on."""
        sizes = {"horizon": self.horizon, "seeds": self.seeds, "limit": self.limit}
        return "".join(
            [
                " --quick" * self.quick,
                *(f" --{name} {value:g}" for name, value in sizes.items() if value),
            ]
        )

    def scale(self, quick: Any, full: Any) -> Any:
        """A setting for tests, or the one that is published."""
        return quick if self.quick else full

    def size(self, quick: tuple[int, int], full: tuple[int, int]) -> tuple[int, int]:
        """Horizon and number of seeds, where they are not asked for."""
        horizon, seeds = self.scale(quick, full)
        return self.horizon or horizon, self.seeds or seeds


def played(
    options: Options, systems: list[str], problems: list[str], horizon: int, seeds: int
) -> list[dict]:
    """The runs, made where they are not there."""
    wanted = runs(systems, problems, horizon, range(seeds))
    report(run_all(wanted, options.runs, limit=options.limit, jobs=options.jobs))
    return read(wanted, options.runs)


def publish(
    options: Options,
    name: str,
    title: str,
    text: str,
    tables: dict[str, list[dict]],
    pictures: list[str],
) -> None:
    """The JSON and the page, NAME.json and NAME.md; the pictures are there already."""
    made = {
        "python": platform.python_version(),
        "manyarms": ma.__version__,
        "numpy": version("numpy"),
    }
    results = {"experiment": name, "quick": options.quick, "versions": made, "tables": tables}
    (results_of(options.output) / f"{name}.json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False)
    )
    shown = {heading: markdown(rows) for heading, rows in tables.items() if rows}
    parts = [f"# {title}", text, *(f"![{title}]({picture})" for picture in pictures)]
    parts += [f"## {heading}\n\n{table}" for heading, table in shown.items()]
    parts.append(f"Made by `python benchmarks/experiments.py {name}{options.asked}`.")
    (options.output / f"{name}.md").write_text("\n\n".join(parts) + "\n")
    print("\n\n".join(["", text, *(f"{heading}\n{table}" for heading, table in shown.items())]))
