"""Problems at the edge, drawn at random: each works, or is refused by a typed error.

    python -m soak.edges [--problems 1000] [--seed 0]

One arm or forty; all alike, alike but for rounding, on a line, or scattered; five kernels, scaled by 1e-6 to 1e6; λ/k(x, x) from
1e-8 to 100; rewards that are constant, zero, tiny or huge; one step or twenty, then a batch beside pending pulls. Scores must be
finite, variances not negative, and no error may come out but those of `manyarms.errors`.
"""

import argparse
import warnings
from typing import NamedTuple

import numpy as np

import manyarms as ma

POLICIES = (ma.BKB, ma.GPUCB)
KERNELS = (
    ma.kernels.RBF(0.3),
    ma.kernels.Matern(0.3, 0.5),
    ma.kernels.Matern(0.3, 2.5),
    ma.kernels.Linear(),
    ma.kernels.Polynomial(2),
)


class Edges(NamedTuple):
    """What came of it."""

    worked: int
    refused: int
    faults: list[str]


def drawn_arms(rng: np.random.Generator) -> np.ndarray:
    """Rows that are hard to tell apart, as a rule."""
    n = int(rng.choice([1, 2, 3, 40]))
    d = int(rng.choice([1, 2, 8]))
    X = rng.random((n, d))
    kind = rng.integers(5)
    if kind == 0:
        X[:] = X[0]
    elif kind == 1:
        X = X[rng.integers(n, size=n)] + 10.0 ** rng.integers(-16, -6) * rng.random((n, d))
    elif kind == 2:
        X = np.outer(X[:, 0], np.ones(d))
    elif kind == 3:
        X[rng.random(n) < 0.5] = 0.0
    return X


def one(seed: int) -> str:
    """ "worked", "refused", or what was wrong."""
    rng = np.random.default_rng(seed)
    X = drawn_arms(rng)
    scale = float(10.0 ** rng.integers(-6, 7))
    ratio = float(rng.choice([100.0, 1.0, 1e-2, 1e-8]))
    kernel = scale * KERNELS[rng.integers(len(KERNELS))]
    size = float(rng.choice([0.0, 1e-6, 1.0, 1e6])) * np.sqrt(scale)
    is_constant = rng.random() < 0.3

    def pull(arms: np.ndarray) -> np.ndarray:
        heights = np.ones(len(arms)) if is_constant else np.sin(6 * X[arms, 0])
        return np.asarray(size * heights)

    try:
        make = POLICIES[rng.integers(len(POLICIES))]
        policy = make(X, kernel, regularization=ratio * scale, seed=seed)
        for _ in range(int(rng.choice([1, 20]))):
            arms = policy.choose()
            policy.observe(arms, pull(arms))
        batch = policy.choose(3, pending=[0, 0])
        policy.observe(batch, pull(batch))
        mean, variance, ucb = policy.scores()
    except ma.errors.ManyArmsError:
        return "refused"
    except Exception as error:
        return f"problem {seed}: {error!r}"
    if not np.isfinite([mean, variance, ucb]).all() or variance.min() < 0:
        return f"problem {seed}: scores that are not finite, or variances below 0"
    return "worked"


def edges(problems: int, first: int = 0) -> Edges:
    """So many of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [one(first + i) for i in range(problems)]
    faults = [each for each in found if each not in ("worked", "refused")]
    return Edges(found.count("worked"), found.count("refused"), faults)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = edges(given.problems, given.seed)
    print(found)
    assert not found.faults
