"""Which item to show to whom: contextual BKB on logged recommendations, with estimates from logs of other policies.

    python examples/recommend.py --campaign men
    python examples/recommend.py --items 1000000

With `--items` a made-up shop has a million items. A first stage prunes: one product of matrices finds the 500 items whose
embeddings are nearest to the visitor's. Then BKB chooses exactly among those, as a stream of requests whose rewards come
late. What that costs, and what it earns beside the first stage alone, is printed.

With `--campaign` real logs are replayed.
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
from time import process_time
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


CONTEXT, EMBEDDING = 8, 16
PRUNED = 500
"""Items that the first stage leaves."""
LENGTHSCALES = [6.0] * CONTEXT + [1.5] * EMBEDDING
"""About twice the spread of a column, times the root of their number."""
DELAY = 20
"""Requests until a reward comes."""


class Shop(NamedTuple):
    """A made-up shop: items with embeddings, and visitors for whom a model made earlier gives one.

    The value of an item is how near it is to what the visitor really wants, from which the model is off, and half a sine
    of another direction: fashion, which no embedding tells.
    """

    items: Array  # (k, 16) float32
    tower: Array  # (8, 16): the embedding of a visitor, as the model has it
    wants: Array  # (8, 16): as it is
    fashion: Array  # (16,)

    @classmethod
    def drawn(cls, n_items: int, seed: int) -> "Shop":
        """A shop of so many items."""
        rng = np.random.default_rng(seed)
        items = rng.standard_normal((n_items, EMBEDDING), dtype=np.float32) / 4
        wants, off = rng.standard_normal((2, CONTEXT, EMBEDDING)) / np.sqrt(CONTEXT)
        return cls(items, wants + 0.5 * off, wants, rng.standard_normal(EMBEDDING))

    def nearest(self, context: Array) -> Indices:
        """The first stage: the items of largest inner product with the visitor's embedding."""
        near = self.items @ (context @ self.tower).astype(np.float32)
        return np.argpartition(near, -PRUNED)[-PRUNED:]

    def value(self, context: Array, items: Array) -> Array:
        """The mean reward of items."""
        wanted = items @ (context @ self.wants).astype(np.float32)
        fashion = np.sin(3 * (items @ self.fashion.astype(np.float32)))
        return np.asarray(wanted + 0.5 * fashion, dtype=np.float64)


def served(shop: Shop, requests: int, seed: int = 0) -> list[str]:
    """What a stream of requests to a shop costs and earns, line by line."""
    rng = np.random.default_rng([seed, 1])
    policy = ma.BKB(
        None,
        ma.kernels.On(ma.kernels.Linear(), 0, 1)
        + ma.kernels.On(ma.kernels.RBF(LENGTHSCALES), 1, 1 + CONTEXT + EMBEDDING),
        n_features=1 + CONTEXT + EMBEDDING,
        rule=ma.Inserted(most=200),
        regularization=0.09,
        confidence=ma.Constant(1.0),
    )
    stream = ma.Stream(policy)
    names = ("random item", "first stage alone", "both stages", "best that is left")
    regret = np.zeros((requests, len(names)))
    spent = np.zeros((requests, 3))
    late: dict[int, float] = {}
    for t in range(requests):
        context = rng.standard_normal(CONTEXT)
        begin = process_time()
        left = shop.nearest(context)
        pruned = process_time()
        # What the first stage thinks of an item is a column of its own, in which f is nearly linear.
        near = shop.items[left] @ (context @ shop.tower)
        rows = np.column_stack([near, ma.joined(context, shop.items[left])])
        chosen = int(stream.choose(t, rows)[0])
        shown = process_time()
        value = shop.value(context, shop.items)
        first = left[near.argmax()]
        picked = (int(rng.integers(len(value))), first, left[chosen], left[value[left].argmax()])
        regret[t] = value.max() - value[list(picked)]
        late[t] = float(value[left[chosen]] + 0.3 * rng.standard_normal())
        learning = process_time()
        if t >= DELAY:
            stream.observe(t - DELAY, late.pop(t - DELAY))
        spent[t] = pruned - begin, shown - pruned, process_time() - learning
    prune, choose, observe = 1e3 * np.median(spent, axis=0)
    half = requests // 2
    lines = [
        f"{len(shop.items):,} items, {requests:,} requests, rewards {DELAY} requests late",
        f"  ms of the processor: first stage {prune:.1f}, exact choice among {PRUNED} {choose:.1f}, "
        f"observing {observe:.2f}",
        "  regret a request, beside the best of all items: first half, second half",
    ]
    for name, mine in zip(names, regret.T, strict=True):
        lines.append(f"    {name:<20}{mine[:half].mean():>8.3f}{mine[half:].mean():>8.3f}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaign", choices=CAMPAIGNS, default="men")
    parser.add_argument("--items", type=int, help="a made-up shop with so many items instead")
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.items:
        shop = Shop.drawn(given.items, given.seed)
        print("\n".join(served(shop, given.requests, given.seed)))
        return
    print("\n".join(report(load(given.campaign), given.seed)))


if __name__ == "__main__":
    main()
