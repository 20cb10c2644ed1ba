"""What runs say together: means with intervals over seeds, ratios to another system, exponents; tables in Markdown."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student


class Interval(NamedTuple):
    """A mean and a 95 % interval of it."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.mean:.3g}"
            if self.low == self.high
            else f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"
        )


def interval(values: Iterable[float], *, ratio: bool = False) -> Interval:
    """Student's interval of the mean, of the geometric one for ratios; fewer than three values have none worth giving."""
    x = np.log(list(values)) if ratio else np.array(list(values))
    mean = float(x.mean())
    half = (
        float(student.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))
        if len(x) > 2
        else 0.0
    )
    ends = mean, mean - half, mean + half
    return Interval(*np.exp(ends).tolist()) if ratio else Interval(*ends)


def finished(records: Iterable[dict]) -> list[dict]:
    """Those that have a curve."""
    return [kept for kept in records if "error" not in kept]


def of(records: Iterable[dict], **wanted: object) -> list[dict]:
    """Those with these values, for instance of(records, system="bkb")."""
    return [kept for kept in records if all(kept[key] == value for key, value in wanted.items())]


def names(records: Iterable[dict], key: str) -> list[str]:
    """Distinct values of a key, in the order they come."""
    return list(dict.fromkeys(kept[key] for kept in records))


def at(kept: dict, key: str, step: float) -> float:
    """`regret`, `elapsed` or `sizes` of a run after so many steps."""
    return float(np.interp(step, kept["steps"], kept[key]))


def relative(kept: dict, step: float | None = None) -> float:
    """R_t/R_t of uniform play in expectation, at the end or at another step."""
    step = kept["completed"] if step is None else step
    return at(kept, "regret", step) / (step * kept["uniform regret"])


def late(kept: dict) -> float:
    """The same of the second half of the run alone: it tends to 0 if and only if regret grows less than linearly."""
    end = kept["completed"]
    return (at(kept, "regret", end) - at(kept, "regret", end / 2)) / (
        end / 2 * kept["uniform regret"]
    )


def against(records: list[dict], reference: list[dict], key: str) -> list[float]:
    """`regret` or `elapsed` of each run over that of the reference on the same problem and seed, after as many steps."""
    others = {(kept["problem"], kept["seed"]): kept for kept in reference}
    ratios = []
    for kept in records:
        if other := others.get((kept["problem"], kept["seed"])):
            step = min(kept["completed"], other["completed"])
            ratios.append(at(kept, key, step) / at(other, key, step))
    return ratios


def exponent(x: Sequence[float] | np.ndarray, y: Sequence[float]) -> float:
    """b of the least-squares fit y = a·xᵇ, on logarithms."""
    return float(np.polynomial.Polynomial.fit(np.log(x), np.log(y), 1).convert().coef[1])


def markdown(rows: Sequence[dict]) -> str:
    """A table; columns are the keys of the first row."""
    head = list(rows[0])
    lines = [[_cell(key) for key in head], ["---"] * len(head)]
    lines += [[_cell(row.get(key, "")) for key in head] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).replace("|", "\\|")
