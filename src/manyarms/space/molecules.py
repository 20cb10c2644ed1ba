"""A column of molecules, written as SMILES: as fingerprints, or as a few descriptors.

Fingerprints are Morgan's of radius 2 in 2,048 bits (Rogers and Hahn, J. Chem. Inf. Model. 50, 742,
2010), compared by the Tanimoto kernel. RDKit makes both.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from manyarms.checks import needed
from manyarms.errors import Advice, ArmsError
from manyarms.kernels.inner import BITS, pack
from manyarms.space.columns import Column, Feature, Label
from manyarms.typing import AnyArray, Array

SMILES = "smiles"
"""The type of molecules as fingerprints."""
BY_DESCRIPTORS = "smiles:descriptors"
"""The type of molecules as descriptors."""
MORGAN_RADIUS, MORGAN_BITS = 2, 2048
"""Radius (bonds around an atom) and bits of a Morgan fingerprint: the usual ones."""
DESCRIPTORS = (
    "MolWt",
    "MolLogP",
    "TPSA",
    "NumHDonors",
    "NumHAcceptors",
    "NumRotatableBonds",
    "RingCount",
    "NumAromaticRings",
    "FractionCSP3",
)
"""Descriptors of a molecule, by their names in RDKit: size, polarity, flexibility and shape."""


@dataclass(frozen=True, eq=False)
class Fingerprints(Column):
    """Molecules as packed bits."""

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        generator = _rdkit("Chem.rdFingerprintGenerator").GetMorganGenerator(
            radius=MORGAN_RADIUS, fpSize=MORGAN_BITS
        )
        molecules, codes = _molecules(values, self.name, label)
        bits = np.array([generator.GetFingerprintAsNumPy(each) for each in molecules])
        out[:] = pack(bits.reshape(-1, MORGAN_BITS))[codes]

    def features(self, start: int) -> tuple[Feature, ...]:
        stop = start - (-MORGAN_BITS // BITS)
        return (Feature(self.name, "bits", start, stop, SMILES, n_bits=MORGAN_BITS),)


@dataclass(frozen=True, eq=False)
class Descriptors(Column):
    """Molecules as numbers, scaled so that the range in the first table is [0, 1]."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def fit(cls, values: pl.Series, name: str, label: Label) -> "Descriptors":
        numbers, _ = _described(values, name, label)
        low, high = numbers.min(axis=0).tolist(), numbers.max(axis=0).tolist()
        return cls(name, BY_DESCRIPTORS, tuple(low), tuple(high))

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        numbers, codes = _described(values, self.name, label)
        low = np.array(self.low)
        # A descriptor that all molecules share has a range of 0: divided by 1, it is 0 everywhere.
        widths = np.array(self.high) - low
        out[:] = ((numbers - low) / np.where(widths > 0, widths, 1.0))[codes]

    def features(self, start: int) -> tuple[Feature, ...]:
        """One feature for each descriptor."""
        parts = zip(DESCRIPTORS, self.low, self.high, strict=True)
        return tuple(
            Feature(
                f"{self.name}: {each}",
                "numeric",
                start + place,
                start + place + 1,
                "continuous",
                low=low,
                high=high,
            )
            for place, (each, low, high) in enumerate(parts)
        )


def molecules_as(type: str, values: pl.Series, name: str, label: Label) -> Column:
    """How a column of SMILES is encoded."""
    if type == BY_DESCRIPTORS:
        return Descriptors.fit(values, name, label)
    return Fingerprints(name, SMILES)


def _described(values: pl.Series, name: str, label: Label) -> tuple[Array, AnyArray]:
    descriptors = _rdkit("Chem.Descriptors")
    functions = [getattr(descriptors, each) for each in DESCRIPTORS]
    molecules, codes = _molecules(values, name, label)
    numbers = [[function(each) for function in functions] for each in molecules]
    # Rounded: CCO and OCC are one molecule, whose sums differ in their last digits.
    return np.array(numbers, dtype=np.float64).reshape(-1, len(functions)).round(9), codes


def _molecules(values: pl.Series, name: str, label: Label) -> tuple[list[Any], AnyArray]:
    """The different molecules of a column, and which of them each row contains."""
    chem = _rdkit("Chem")
    texts = values.cast(pl.String).str.strip_chars()
    # A ligand stands in many rows: each is read once.
    distinct = texts.unique(maintain_order=True)
    with _rdkit("rdBase").BlockLogs():
        read = [chem.MolFromSmiles(text) if text else None for text in distinct.to_list()]
    for text, molecule in zip(distinct.to_list(), read, strict=True):
        if molecule is None:
            row = int((texts == text).arg_max() or 0)
            raise ArmsError(
                "column {column!r} must hold {expected}, got {got} in {place}",
                "correct it",
                "leave the row out",
                Advice("make categories of them by {}", "columns", {name: "categorical"}),
                column=name,
                expected="molecules as SMILES",
                got=text,
                **label(row),
            )
    codes = texts.replace_strict(distinct, pl.Series(np.arange(len(distinct))))
    return read, codes.to_numpy()


def _rdkit(module: str) -> Any:
    why = "molecules as SMILES need RDKit: `pip install 'manyarms[molecules]'`"
    return needed(f"rdkit.{module}", why)
