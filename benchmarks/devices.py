"""A pass over all arms by NumPy and by PyTorch: how far apart the scores are, and CPU seconds.

    python benchmarks/devices.py                  # CPU tensors
    python benchmarks/devices.py --device cuda    # seconds are those of the clock then

The table has 200,000 rows, |W| = 300 or what the kernel allows. Differences are the largest over all arms: of means relative to the
largest |mean| or 1, of variances relative to κ²/λ, the largest variance there can be. Both are to be at most 1e-10. "NumPy own" is
the difference of means by a pass of NumPy and by the function that scores single arms; where that is as large, no device can do
better. A pass computes all embeddings, a step
brings them forward by one observation. Both sides have one thread.
"""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple, cast

import numpy as np
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.engine.base import Arms, Batch, Change
from manyarms.engine.frozen import Frozen
from manyarms.kernels import RBF, Hamming, Kernel, Linear, Matern, On, Polynomial, Tanimoto
from manyarms.search.dense import Dense
from manyarms.search.devices import Device, device_of
from manyarms.search.work import limit_threads
from manyarms.typing import Array

BAR = 1e-10
SOME = 5_000
"""Arms whose means are also computed by the function that scores."""
D = 8
KERNELS: dict[str, Kernel] = {
    "RBF": RBF(0.5),
    "Matérn ½": Matern(0.8, nu=0.5),
    "Matérn 3/2": Matern(0.8, nu=1.5),
    "Matérn 5/2": Matern(0.8),
    "Linear": Linear(1.0),
    "Polynomial 3, at most 1": Polynomial(3, 1.0) * (1 / 729),
    "Polynomial 3, at most 729": Polynomial(3, 1.0),
    "Hamming": Hamming(2.0),
    "Tanimoto": Tanimoto(),
    "2·On Matérn × On Hamming + On Linear": 2.0 * On(Matern(0.8), 0, 4) * On(Hamming(2.0), 4, 8)
    + On(Linear(), 0, 4),
}


def rows_for(name: str, n: int) -> Array:
    """Numbers between 0 and 1, levels, or bits."""
    rng = np.random.default_rng(0)
    X = rng.random((n, D))
    if name == "Hamming":
        X = rng.integers(0, 6, (n, D)).astype(float)
    elif name == "Tanimoto":
        X = rng.integers(0, 2, (n, 64)).astype(float)
    elif "On" in name:
        X[:, 4:] = rng.integers(0, 6, (n, 4))
    return X


def seconds(work: Callable[[], object], clock: Callable[[], float], repeats: int) -> float:
    """The median, after one run that warms up."""
    work()
    spent = []
    for _ in range(repeats):
        start = clock()
        work()
        spent.append(clock() - start)
    return median(spent)


class Compared(NamedTuple):
    """Of one kernel."""

    m: int
    mean: float  # the largest difference to NumPy, relative
    variance: float
    own: float  # of the means by two functions of NumPy
    seconds: list[float]  # a pass by NumPy and on the device, then a step

    @property
    def difference(self) -> float:
        """The larger one."""
        return max(self.mean, self.variance)


def differences(here: Dense, there: Dense) -> tuple[float, float]:
    """The largest, of means and of variances."""
    mean = float(np.abs(here.mean - there.mean).max())
    return mean, float(np.abs(here.variance - there.variance).max())


def compared(
    name: str, kernel: Kernel, device: Device, args: argparse.Namespace, clock: Callable[[], float]
) -> Compared:
    """A pass over all arms, and a step after it, by NumPy and on a device."""
    X = rows_for(name, args.arms)
    policy = ma.BKB(X, kernel, rule=ma.Inserted(0.0, most=args.inducing))
    n = 2 * args.inducing
    policy.observe(np.arange(n), np.random.default_rng(1).standard_normal(n))
    belief = cast(Frozen, policy.belief)
    arms = Arms(X, kernel.diag(X))
    here = Dense(arms, kernel)
    there = Dense(arms, kernel, device)
    step = belief.observed(
        Batch(X[n : n + 1], arms.diag[n : n + 1], np.ones(1), np.ones(1), np.array([n]), 1)
    )
    after = cast(Frozen, step.after)
    change = cast(Change, step.change)
    for each in (here, there):
        each.compute(belief)
    largest_mean = max(1.0, float(np.abs(here.mean).max()))
    largest_variance = float(arms.diag.max()) / belief.regularization
    by_moments, _ = belief.moments(X[:SOME], arms.diag[:SOME])
    own = float(np.abs(by_moments - here.mean[:SOME]).max()) / largest_mean
    apart = [differences(here, there)]
    for each in (here, there):
        each.follow(after, [change])
    apart.append(differences(here, there))
    mean, variance = (max(each) for each in zip(*apart, strict=True))
    works: list[Callable[[], object]] = [
        partial(here.compute, belief),
        partial(there.compute, belief),
        # The same step again and again takes as long as others: W stays as it is.
        partial(here.follow, after, [change]),
        partial(there.follow, after, [change]),
    ]
    return Compared(
        belief.m,
        mean / largest_mean,
        variance / largest_variance,
        own,
        [seconds(work, clock, args.repeats) for work in works],
    )


def main() -> None:
    """Print a line a kernel; exit with an error where scores are too far apart."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--arms", type=int, default=200_000)
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    device = device_of(args.device)
    clock = process_time if args.device == "cpu" else perf_counter
    limit_threads(1)
    print(
        f"{args.arms:,} arms on {device.name}, {'CPU' if clock is process_time else 'clock'} seconds, median of {args.repeats}"
    )
    print(f"{'':38}{'':5}{'largest difference':>32}{'pass':>16}{'step':>16}")
    print(
        f"{'kernel':38}{'m':>5}{'mean':>10}{'variance':>10}{'NumPy own':>12}"
        + f"{'NumPy':>8}{'device':>8}" * 2
    )
    far = []
    with threadpool_limits(1):  # those of PyTorch too, now that it is loaded
        for name, kernel in KERNELS.items():
            found = compared(name, kernel, device, args, clock)
            if found.difference > BAR:
                far.append((name, found))
            a, b, c, d = found.seconds
            numbers = f"{found.mean:10.1e}{found.variance:10.1e}{found.own:12.1e}{a:8.2f}{b:8.2f}{c:8.3f}{d:8.3f}"
            print(f"{name:38}{found.m:5}{numbers}", flush=True)
    for name, found in far:
        print(
            f"{name}: {found.difference:.1e} is more than {BAR:.0e}; NumPy itself has {found.own:.1e}"
        )
    if any(found.difference > 2 * found.own for _, found in far):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
