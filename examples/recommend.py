"""Which item to show to whom: contextual BKB on logged recommendations, with estimates from logs of other policies.

    python examples/recommend.py --campaign men

The Open Bandit Dataset (Saito, Aihara, Matsutani, Narita; NeurIPS 2021, Datasets and Benchmarks) logs the items that a fashion
shop showed, by uniform choice and by Thompson sampling, with who saw them, where, whether they clicked, and with what
probability the item had been chosen. The `obp` package carries 10,000 rows of each policy for three campaigns; it is
downloaded once, not installed.

- Replay (Li, Chu, Langford, Wang; WSDM 2011): a learner goes through the uniform log and learns from the rows in which it
  would have shown the logged item. Those are as its own rounds would have been.
- Off-policy: what a learner that saw all of the uniform log would show, judged on the other log by inverse propensities (IPS)
  and by their self-normalised form (SNIPS).

A click comes in about one of 200 rows: the intervals tell how little 10,000 of them can say.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from wheels import text_of

import manyarms as ma
from manyarms.typing import Array, Indices

CAMPAIGNS = ("men", "women", "all")
USER = [f"user_feature_{j}" for j in range(4)]
ITEM = [f"item_feature_{j}" for j in range(1, 4)]
USUAL = 0.005
"""Click rate expected of an item nothing is known about; rewards are clicks less it."""
SPREAD = 0.005
"""Standard deviation of click rates expected between items and people."""
NOISE = np.sqrt(USUAL * (1 - USUAL))
"""Standard deviation of a click."""
RADIUS = ma.Constant(1.0)
Z = 1.96
"""Half a 95 % interval, in standard deviations."""


class Log(NamedTuple):
    """Rows of a log: who saw what, with what probability it had been chosen, and whether it was clicked."""

    contexts: Array  # (n, 5) codes of the user's features and of the place on the page
    items: Indices  # (n,)
    propensities: Array  # (n,)
    clicks: Array  # (n,)


class Campaign(NamedTuple):
    """Items with their features, and the logs of two policies that showed them."""

    items: Array  # (k, 4) codes, the item's own number first
    uniform: Log
    other: Log


def load(name: str) -> Campaign:
    """A campaign, out of the source archive of obp 0.5.7."""

    def read(path: str) -> pl.DataFrame:
        return pl.read_csv(text_of("obp", "0.5.7", f"obp/dataset/obd/{path}", source=True).encode())

    kept = ["item_id", "position", "click", "propensity_score", *USER]
    uniform, other = (
        read(f"{policy}/{name}/{name}.csv").sort("timestamp")[kept] for policy in ("random", "bts")
    )
    return campaign(
        read(f"random/{name}/item_context.csv").sort("item_id")["item_id", *ITEM], uniform, other
    )


def campaign(items: pl.DataFrame, uniform: pl.DataFrame, other: pl.DataFrame) -> Campaign:
    """The tables with categories as codes, the same in both logs."""
    levels = pl.concat([uniform[USER], other[USER]])
    codes = {
        name: {level: code for code, level in enumerate(levels[name].unique().sort())}
        for name in USER
    }

    def log(frame: pl.DataFrame) -> Log:
        columns = [[codes[name][level] for level in frame[name]] for name in USER]
        contexts = np.column_stack([*columns, frame["position"]]).astype(np.float64)
        numbers = (
            frame[name].to_numpy().astype(np.float64) for name in ("propensity_score", "click")
        )
        return Log(contexts, frame["item_id"].to_numpy().astype(np.intp), *numbers)

    features = [np.unique(items[name].to_numpy(), return_inverse=True)[1] for name in ITEM]
    return Campaign(
        np.column_stack([items["item_id"], *features]).astype(np.float64), log(uniform), log(other)
    )


class Contextual:
    """BKB on pairs of context and item; two are alike where both are."""

    def __init__(self, data: Campaign, seed: int = 0) -> None:
        c, d = data.uniform.contexts.shape[1], data.items.shape[1]
        alike = ma.kernels.On(ma.kernels.Hamming(3.0), 0, c) * ma.kernels.On(
            ma.kernels.Hamming(1.5), c, c + d
        )
        self._items = data.items
        self._policy = ma.BKB(
            None,
            SPREAD**2 * alike,
            n_features=c + d,
            regularization=NOISE**2,
            confidence=RADIUS,
            seed=seed,
        )

    def choose(self, context: Array) -> int:
        """The item to show."""
        return int(self._policy.choose(arms=ma.joined(context, self._items))[0])

    def observe(self, contexts: Array, items: Indices, clicks: Array) -> None:
        """Learn from rows of a log."""
        self._policy.observe(np.hstack([contexts, self._items[items]]), clicks - USUAL)


class ContextFree:
    """BKB on the items alone."""

    def __init__(self, data: Campaign, seed: int = 0) -> None:
        alike = ma.kernels.Hamming(1.5)
        self._policy = ma.BKB(
            data.items, SPREAD**2 * alike, regularization=NOISE**2, confidence=RADIUS, seed=seed
        )

    def choose(self, context: Array) -> int:
        """The item to show."""
        return int(self._policy.choose()[0])

    def observe(self, contexts: Array, items: Indices, clicks: Array) -> None:
        """Learn from rows of a log."""
        self._policy.observe(items, clicks - USUAL)


class Uniform:
    """Any item."""

    def __init__(self, data: Campaign, seed: int = 0) -> None:
        self._rng, self._n = np.random.default_rng(seed), len(data.items)

    def choose(self, context: Array) -> int:
        """The item to show."""
        return int(self._rng.integers(self._n))

    def observe(self, contexts: Array, items: Indices, clicks: Array) -> None:
        """Nothing is learned."""


Learner = Contextual | ContextFree | Uniform
LEARNERS: dict[str, Callable[..., Learner]] = {
    "contextual BKB": Contextual,
    "context-free BKB": ContextFree,
    "uniform": Uniform,
}


class Estimate(NamedTuple):
    """A click rate and its 95 % interval, from so many rows (weighted ones count less) with so many clicks."""

    rate: float
    low: float
    high: float
    rows: float
    clicks: int

    def __str__(self) -> str:
        return f"{self.rate:8.2%} [{self.low:7.2%}, {self.high:7.2%}] {self.rows:10.0f} {self.clicks:7d}"


NOTHING = Estimate(np.nan, 0.0, 1.0, 0, 0)


def replay(learner: Learner, log: Log) -> Estimate:
    """Rejection sampling on a uniform log: the rows in which the learner shows what was shown, with Wilson's interval."""
    matches, clicks = 0, 0
    for t in range(len(log.items)):
        if learner.choose(log.contexts[t]) == log.items[t]:
            now = slice(t, t + 1)
            learner.observe(log.contexts[now], log.items[now], log.clicks[now])
            matches, clicks = matches + 1, clicks + int(log.clicks[t])
    return counted(clicks, matches)


def counted(clicks: int, rows: int) -> Estimate:
    """A rate by counting."""
    return Estimate(clicks / rows, *wilson(clicks / rows, rows), rows, clicks) if rows else NOTHING


def wilson(rate: float, rows: float) -> tuple[float, float]:
    """Wilson's interval of a rate; unlike the normal one it is not empty where nothing was clicked."""
    grown = rows + Z**2
    middle, half = (
        (rows * rate + Z**2 / 2) / grown,
        Z * float(np.sqrt(rows * rate * (1 - rate) + Z**2 / 4)) / grown,
    )
    return max(0.0, middle - half), middle + half


def learned(learner: Learner, log: Log, block: int = 500) -> Learner:
    """The learner after all rows of a log."""
    for start in range(0, len(log.items), block):
        some = slice(start, start + block)
        learner.observe(log.contexts[some], log.items[some], log.clicks[some])
    return learner


def shown(learner: Learner, log: Log) -> Indices:
    """What it would show in every row; the same where the context is."""
    contexts, at = np.unique(log.contexts, axis=0, return_inverse=True)
    return np.array([learner.choose(context) for context in contexts])[at.ravel()]


def off_policy(probabilities: Array, log: Log) -> tuple[Estimate, Estimate]:
    """IPS, mean(w·click), and SNIPS, Σw·click/Σw, for a policy of such probabilities (n,) of what was shown: w = π/p.

    The rows of SNIPS are the effective ones, (Σw)²/Σw² (Kish 1965), and its interval is Wilson's for so many; that of IPS is
    the normal one, and says nothing where nothing was clicked.
    """
    w, n = probabilities / log.propensities, len(log.items)
    clicks = int((log.clicks * (w > 0)).sum())
    if not w.any():
        return NOTHING, NOTHING
    value, half = float(np.mean(w * log.clicks)), Z * float(np.std(w * log.clicks)) / np.sqrt(n)
    ips = Estimate(
        value,
        max(0.0, value - half),
        value + half if clicks else 1.0,
        int(np.count_nonzero(w)),
        clicks,
    )
    rate, effective = float(w @ log.clicks / w.sum()), float(w.sum() ** 2 / (w @ w))
    return ips, Estimate(rate, *wilson(rate, effective), effective, clicks)


def report(data: Campaign, seed: int = 0) -> list[str]:
    """Everything that is printed, line by line."""
    measured, k = counted(int(data.uniform.clicks.sum()), len(data.uniform.items)), len(data.items)
    own = counted(int(data.other.clicks.sum()), len(data.other.items))
    lines = [f"{f'{k} items':<32}{'rate':>8} {'95 % interval':>18} {'rows':>10} {'clicks':>7}"]
    lines += [
        f"{'shown uniformly (measured)':<32}{measured}",
        f"{'other policy (measured)':<32}{own}",
        "",
        "replay, uniform log",
    ]
    apart = []
    for name, make in LEARNERS.items():
        found = replay(make(data, seed), data.uniform)
        lines.append(f"  {name:<30}{found}")
        apart += [name] if found.low > measured.high else []
    lines += ["", "learned from the uniform log, judged on the other"]
    for name, make in LEARNERS.items():
        if make is Uniform:
            chance = np.full(len(data.other.items), 1 / k)
        else:
            chance = (
                shown(learned(make(data, seed), data.uniform), data.other) == data.other.items
            ).astype(np.float64)
        for kind, found in zip(("IPS", "SNIPS"), off_policy(chance, data.other), strict=True):
            lines.append(f"  {name + ', ' + kind:<30}{found}")
            apart += [f"{name} ({kind})"] if found.low > measured.high and found.clicks > 9 else []
    better = f"Better than uniform, by intervals that do not meet: {', '.join(apart)}."
    return [
        *lines,
        "",
        better
        if apart
        else "No interval lies above that of uniform choice: these logs are too short to tell them apart.",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaign", choices=CAMPAIGNS, default="men")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    print("\n".join(report(load(given.campaign), given.seed)))


if __name__ == "__main__":
    main()
