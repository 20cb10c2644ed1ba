"""What a posterior is fitted to."""

from typing import NamedTuple

from manyarms.typing import Array


class Observations(NamedTuple):
    """The distinct rows observed: k(x, x), weight n and weighted reward sum s of each."""

    rows: Array  # (u, d)
    diag: Array  # (u,)
    counts: Array  # (u,)
    sums: Array  # (u,)
