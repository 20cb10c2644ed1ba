"""Processes of shards are killed in the middle of rounds: no wrong arm, no hang, and how long it takes to go on.

python -m soak.shards [--kills 200] [--rows 50000]
"""

import argparse
import os
import signal
import threading
import time
from typing import NamedTuple

import numpy as np

import manyarms as ma
from manyarms.cluster import Sharded
from manyarms.kernels import RBF

HANG = 60.0
"""Seconds that no round may take."""
BETWEEN = 3
"""Rounds to a kill."""


class Kills(NamedTuple):
    """Rounds in all, those in which a process died, and how long each of these took, in seconds."""

    rounds: int
    n: int
    seconds: np.ndarray


def kills(n_kills: int, rows: int, seed: int = 0, shards: int = 2) -> Kills:
    """AssertionError where a divided table chooses another arm than a whole one, or a round hangs."""
    import ray

    rng = np.random.default_rng(seed)
    X = rng.random((rows, 3))
    X[rng.integers(rows, size=rows // 100)] = X[rng.integers(rows, size=rows // 100)]
    rounds = 0
    spent = []
    with Sharded(X, shards) as there, Sharded(X, 3, in_process=True) as here:
        policies = [
            ma.BKB(arms, RBF(0.3), tuning=ma.Tuning(rough=8, quick=0), seed=1)
            for arms in (X, here, there)
        ]
        while len(spent) < n_kills:
            rounds += 1
            size = (1, 1, 4)[rounds % 3]
            pending = rng.integers(rows, size=2) if rounds % 4 == 1 else ()
            exclude = rng.integers(rows, size=rows // 10) if rounds % 5 == 2 else ()
            expected = [
                policy.choose(size, pending=pending, exclude=exclude) for policy in policies[:2]
            ]
            np.testing.assert_array_equal(expected[1], expected[0])
            killer = None
            if rounds % BETWEEN == 0:
                actor = there._crew._actors[int(rng.integers(shards))]
                pid = ray.get(actor.process.remote())
                killer = threading.Timer(rng.random() * 0.01, os.kill, (pid, signal.SIGKILL))
                killer.start()
            start = time.perf_counter()
            chosen = policies[2].choose(size, pending=pending, exclude=exclude)
            seconds = time.perf_counter() - start
            np.testing.assert_array_equal(chosen, expected[0], err_msg=f"round {rounds}")
            assert seconds < HANG, f"round {rounds} took {seconds:.1f} s"
            if killer is not None:
                killer.join()
                # Where it was killed after the answer, the next question finds it dead.
                np.testing.assert_array_equal(
                    policies[2].choose(exclude=chosen), policies[0].choose(exclude=chosen)
                )
                spent.append(time.perf_counter() - start)
                if len(spent) % 20 == 0:
                    print(f"{len(spent)} kills, at most {max(spent):.2f} s", flush=True)
            for policy in policies:
                policy.observe(chosen, np.sin(7 * X[chosen, 0]) + X[chosen, 2])
    return Kills(rounds, len(spent), np.array(spent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=50_000)
    given = parser.parse_args()
    found = kills(given.kills, given.rows)
    print(
        f"{found.n} kills in {found.rounds} rounds: the same arms as one table; going on took "
        f"{np.median(found.seconds):.2f} s (median), {np.quantile(found.seconds, 0.99):.2f} s (p99), "
        f"{found.seconds.max():.2f} s at most"
    )


if __name__ == "__main__":
    main()
