"""A sheet as it comes from a laboratory: what is wrong with it is what tests are about."""

from itertools import product
from pathlib import Path

BASES = {"K2CO3": 0.0, "CsOAc": 9.0, "KOPiv": 14.0}
SOLVENTS = {"DMF": 0.0, "DMAc": 6.0, "BuOAc": -5.0}
TEMPERATURES = {"RT": 25.0, "80 °C": 80.0, "105 °C": 105.0}
LOADINGS = {"2,5 %": 2.5, "5 %": 5.0}
RECIPES = list(product(BASES, SOLVENTS, TEMPERATURES, LOADINGS))
NAMES = [f"{number:03d}" for number in range(1, len(RECIPES) + 1)]
"""Ids with zeros in front, which a spreadsheet takes away."""
MESSY_OPTIONS = (
    *("--id", "Nr", "--target", "yield (%)", "--maximize"),
    *("--column", "temperature=number:RT=25"),
    *("--column", "solvent=categorical:merge"),
)
"""What `init` needs to know about the sheet beside what it finds."""
N_RESULTS = 28
"""Results in the sheet: 27 rows of 54 are filled in, one of them is copied, one was done twice."""
N_FAILED = 1
"""Those of them that failed."""


def true_yield(name: str) -> float:
    """The yield of a recipe, by its name."""
    base, solvent, temperature, loading = RECIPES[NAMES.index(name)]
    warmth = 40 - (TEMPERATURES[temperature] - 90) ** 2 / 150
    return round(BASES[base] + SOLVENTS[solvent] + warmth + 3 * LOADINGS[loading], 1)


def messy_sheet() -> bytes:
    """UTF-8 with a mark in front, semicolons, one too many on each line, decimal commas, units, a
    word for a temperature, blanks and other cases in names, a row that was copied, a recipe that
    was done twice, notes, and yields of every other row."""
    header = "Nr;base;solvent;temperature;loading;concentration;note;yield (%);"
    lines = []
    for place, (name, (base, solvent, temperature, loading)) in enumerate(
        zip(NAMES, RECIPES, strict=True)
    ):
        written = {4: f"{solvent} ", 9: solvent.lower()}.get(place % 12, solvent)
        concentration = "0,1 M" if place % 4 < 2 else "1,25 M"
        note = {0: "white crystals, dried", 10: "=brown?"}.get(place, "")
        value = f"{true_yield(name):.1f}".replace(".", ",") if place % 2 == 0 else ""
        value = "failed" if place == 20 else value
        lines.append(
            f"{name};{base};{written};{temperature};{loading};{concentration};{note};{value};"
        )
    again = lines[8].replace(f";{true_yield(NAMES[8]):.1f};".replace(".", ","), ";33,3;")
    lines = [*lines, lines[2], again]
    return ("\ufeff" + "\r\n".join([header, *lines, ";;;;;;;;", "", ""])).encode()


def write_messy_sheet(folder: Path) -> Path:
    """The sheet as a file."""
    path = folder / "sheet.csv"
    path.write_bytes(messy_sheet())
    return path
