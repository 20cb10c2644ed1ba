"""Seven experiments, one command each: a JSON, a picture and a Markdown page in docs/experiments.

    python benchmarks/experiments.py starvation | coverage | everything | tails | growth | thompson | words [--quick] [--jobs 2]

Runs are those of runner.py: what is there is not run again, so an experiment that was interrupted goes on where it stopped, and
one that was given more systems runs those only. Systems that this installation lacks are listed and left out.
"""

import argparse
from pathlib import Path

import covered
import everything
import growth
import starvation
import tails
import thompson
import words
from publishing import Options

EXPERIMENTS = {
    "starvation": starvation.experiment,
    "coverage": covered.experiment,  # a module of that name would hide the package that measures tests
    "everything": everything.experiment,
    "tails": tails.experiment,
    "growth": growth.experiment,
    "thompson": thompson.experiment,
    "words": words.experiment,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="+", choices=EXPERIMENTS, metavar="NAME", help=", ".join(EXPERIMENTS)
    )
    parser.add_argument("--quick", action="store_true", help="tiny problems: for tests")
    parser.add_argument("--output", type=Path, default=Path("docs/experiments"))
    parser.add_argument("--runs", type=Path, default=Path("bench-output/runs"))
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds after which a run stops (%(default)s)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=float("inf"),
        help="seconds after which coverage starts no run",
    )
    parser.add_argument("--seeds", type=int, help="how many, where not those published")
    parser.add_argument("--horizon", type=int, help="steps, where not those published")
    options = vars(parser.parse_args(arguments))
    chosen = options.pop("names")
    options["output"].mkdir(parents=True, exist_ok=True)
    for name in chosen:
        EXPERIMENTS[name](Options(**options))


if __name__ == "__main__":
    main()
