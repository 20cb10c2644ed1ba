"""Requests with a context: milliseconds, requests a second, and regret beside LinUCB and random choice.

    python benchmarks/streams.py latency          # one of 100 rows, at row 1,000, 20,000 and 100,000
    python benchmarks/streams.py ten              # the best ten of 100,000 rows
    python benchmarks/streams.py state            # saving, loading, a discount
    python benchmarks/streams.py regret           # 20,000 requests, four seeds: docs/streams.png

A request has a context of 8 numbers and 100 offers of 16 numbers each, out of 5,000 items. Times are those of the
processor, with one BLAS thread: another load on the machine does not count.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
from summary import interval

import manyarms as ma
from manyarms.bandit.policy import Policy
from manyarms.typing import Array

CONTEXT = 8
ITEM = 16
ITEMS = 5_000
OFFERS = 100
HIDDEN = 16
NOISE = 0.5
"""Standard deviation of a reward; f itself has 1."""
MOST = 200
LENGTHSCALE = 2.5
"""A little above 2, the usual distance of two rows. Of 1.5, 2.5 and 4 the best on seed 0, which is not among those reported."""
ROWS = (1_000, 20_000, 100_000)
WINDOW = 1_000
"""Requests over which percentiles are taken."""


class World(NamedTuple):
    """Items, and the mean reward of rows (context, item)."""

    items: Array
    reward: Callable[[Array], Array]

    @classmethod
    def drawn(cls, seed: int, kind: str) -> "World":
        """f is linear, θᵀx, or the mean of that and of a network of 16 units, aᵀtanh(1.5Bx + b), each of variance 1."""
        rng = np.random.default_rng(seed)
        items = rng.standard_normal((ITEMS, ITEM)) / np.sqrt(ITEM)
        theta = rng.standard_normal(CONTEXT + ITEM)
        B = rng.standard_normal((HIDDEN, CONTEXT + ITEM))
        b = rng.uniform(-1, 1, HIDDEN)
        a = rng.standard_normal(HIDDEN)
        contexts = rng.standard_normal((ITEMS, CONTEXT)) / np.sqrt(CONTEXT)
        rows = np.hstack([contexts, items])

        def linear(X: Array) -> Array:
            return X @ theta

        def network(X: Array) -> Array:
            return np.tanh(1.5 * X @ B.T + b) @ a

        parts = {"linear": [linear], "mixed": [linear, network]}[kind]
        units = [(part(rows).mean(), part(rows).std() * np.sqrt(len(parts))) for part in parts]

        def reward(X: Array) -> Array:
            return np.sum(
                [(f(X) - mean) / sd for f, (mean, sd) in zip(parts, units, strict=True)], axis=0
            )

        return cls(items, reward)

    def offers(self, rng: np.random.Generator, n: int = OFFERS) -> Array:
        """A context with n of the items."""
        context = rng.standard_normal(CONTEXT) / np.sqrt(CONTEXT)
        return ma.joined(context, self.items[rng.integers(len(self.items), size=n)])


def ours(kernel: ma.kernels.Kernel | None = None, discount: float = 1.0) -> ma.BKB:
    """BKB with at most 200 inducing rows."""
    return ma.BKB(
        None,
        ma.kernels.RBF(LENGTHSCALE) if kernel is None else kernel,
        n_features=CONTEXT + ITEM,
        rule=ma.Inserted(most=MOST),
        regularization=NOISE**2,
        confidence=ma.Constant(1.0),
        discount=discount,
    )


def linucb() -> Policy:
    """LinUCB on the same rows: any table will do, as arms come by value."""
    table = np.ones((1, CONTEXT + ITEM))
    return ma.baselines.OFUL(table, regularization=NOISE**2, confidence=ma.Constant(1.0))


def latency(requests: int) -> None:
    """Choose and observe, by percentiles of the last thousand requests before some rows."""
    print("choose + observe: ms of the processor (ms of the clock)")
    for name, policy in (
        ("RBF, discount 0.9999", ours(discount=0.9999)),
        ("Matérn-5/2", ours(ma.kernels.Matern(LENGTHSCALE))),
    ):
        print(f"{name}\n{served(policy, 2_000, (2_000,))}", flush=True)
    print(f"RBF\n{served(ours(), requests)}", flush=True)


def served(policy: ma.BKB, requests: int, rows: tuple[int, ...] = ROWS) -> str:
    """A line for each of some numbers of rows."""
    world = World.drawn(1, "mixed")
    rng = np.random.default_rng(2)
    stream = ma.Stream(policy)
    spent = np.zeros((requests, 2))
    lines = []
    for t in range(requests):
        X = world.offers(rng)
        wall, start = perf_counter(), process_time()
        chosen = stream.choose(t, X)
        spent[t] = process_time() - start, perf_counter() - wall
        y = float(world.reward(X[chosen])[0]) + NOISE * rng.standard_normal()
        wall, start = perf_counter(), process_time()
        stream.observe(t, y)
        spent[t] += process_time() - start, perf_counter() - wall
        if t + 1 in rows:
            last = 1e3 * spent[t + 1 - WINDOW : t + 1]
            (p50, clock50), (p99, clock99) = np.percentile(last, [50, 99], axis=0)
            lines.append(
                f"  row {t + 1:>7,}: p50 {p50:.2f} ({clock50:.2f}), p99 {p99:.2f} ({clock99:.2f}), "
                f"{1e3 / last[:, 0].mean():,.0f} requests a second, m = {stream.policy.belief.m}"
            )
    return "\n".join(lines)


def ten(rows: int, repeats: int = 9, learned: int = 2_000) -> None:
    """The best ten of many rows, once some requests were learned from."""
    for kernel in (ma.kernels.RBF(LENGTHSCALE), ma.kernels.Matern(LENGTHSCALE)):
        policy = ours(kernel)
        world = World.drawn(1, "mixed")
        rng = np.random.default_rng(2)
        for _ in range(learned):
            X = world.offers(rng)
            i = policy.choose(arms=X)
            policy.observe(X[i], world.reward(X[i]) + NOISE * rng.standard_normal(1))
        spent = []
        for _ in range(repeats):
            X = np.hstack(
                [
                    np.tile(rng.standard_normal(CONTEXT) / np.sqrt(CONTEXT), (rows, 1)),
                    rng.standard_normal((rows, ITEM)) / np.sqrt(ITEM),
                ]
            )
            start = process_time()
            policy.choose(10, arms=X)
            spent.append(process_time() - start)
        found = 1e3 * np.sort(spent)
        print(
            f"{kernel!r}, m = {policy.belief.m}: ten of {rows:,} rows in {np.median(found):.0f} ms"
            f" (from {found[0]:.0f} to {found[-1]:.0f})"
        )


def state(requests: int = 3_000) -> None:
    """Saving and loading, a third of the requests pending."""
    world = World.drawn(1, "mixed")
    rng = np.random.default_rng(2)
    stream = ma.Stream(ours())
    for t in range(requests):
        X = world.offers(rng)
        i = stream.choose(t, X)
        if 3 * t < 2 * requests:
            stream.observe(t, world.reward(X[i]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream"
        spent = []
        for _ in range(21):
            begin = process_time()
            stream.save(path)
            middle = process_time()
            ma.Stream.load(path, ours())
            spent.append((middle - begin, process_time() - middle))
        save, load = 1e3 * np.median(spent, axis=0)
        print(f"{path.stat().st_size:,} bytes: saved in {save:.1f} ms, loaded in {load:.1f} ms")


def played(make: Callable[[], Policy] | None, seed: int, kind: str, requests: int) -> Array:
    """Regret after every request, (T,); a policy of None takes any row."""
    world = World.drawn(seed, kind)
    rng = np.random.default_rng(10_000 + seed)
    policy = None if make is None else make()
    dice = np.random.default_rng(seed)
    regret = np.zeros(requests)
    for t in range(requests):
        X = world.offers(rng)
        noise = NOISE * rng.standard_normal()
        value = world.reward(X)
        i = int(dice.integers(len(X))) if policy is None else int(policy.choose(arms=X)[0])
        regret[t] = value.max() - value[i]
        if policy is not None:
            policy.observe(X[i : i + 1], value[i] + noise)
    return np.cumsum(regret)


SYSTEMS: dict[str, Callable[[], Policy] | None] = {"BKB": ours, "LinUCB": linucb, "random": None}


def regret(requests: int, seeds: int, picture: Path) -> None:
    """Regret of all systems on both kinds of f, with 95 % intervals over seeds."""
    import matplotlib.pyplot as plt  # noqa: PLC0415  only this part needs it

    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for kind, panel in zip(("mixed", "linear"), panels, strict=True):
        ends: dict[str, Array] = {}
        for name, make in SYSTEMS.items():
            runs = np.array([played(make, seed, kind, requests) for seed in range(1, seeds + 1)])
            ends[name] = runs[:, -1]
            late = (runs[:, -1] - runs[:, requests // 2]) / (requests - requests // 2)
            each = " ".join(f"{end:.0f}" for end in runs[:, -1])
            print(
                f"{kind:<7} {name:<7} {interval(runs[:, -1])} ({each})   "
                f"second half, a request: {late.mean():.4f}",
                flush=True,
            )
            steps = np.arange(1, requests + 1)
            (line,) = panel.plot(steps, runs.mean(axis=0), label=name)
            panel.fill_between(
                steps, runs.min(axis=0), runs.max(axis=0), color=line.get_color(), alpha=0.2
            )
        ratio = interval(ends["BKB"] / ends["LinUCB"], ratio=True)
        print(f"{kind:<7} BKB / LinUCB {ratio}", flush=True)
        panel.set(xscale="log", yscale="log", xlabel="requests", ylabel="regret", title=kind)
        panel.legend()
    figure.savefig(picture, dpi=130)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("latency", "ten", "state", "regret"))
    parser.add_argument("--requests", type=int)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--picture", type=Path, default=Path("docs/streams.png"))
    given = parser.parse_args(arguments)
    if given.what == "latency":
        latency(given.requests or 100_000)
    elif given.what == "ten":
        ten(given.rows)
    elif given.what == "state":
        state()
    else:
        regret(given.requests or 20_000, given.seeds, given.picture)


if __name__ == "__main__":
    main()
