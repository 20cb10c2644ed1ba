"""The Weisfeiler–Lehman kernel of graphs with labelled nodes."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from manyarms.checks import NO_ARRAY, whole
from manyarms.errors import ArmsError, KernelError, shortened
from manyarms.kernels.bags import Bags, cosines, number
from manyarms.kernels.objects import PADDING, ObjectKernel
from manyarms.typing import AnyArray, Array, Indices


class Graph(NamedTuple):
    """Nodes with labels, and edges between them.

    Parameters
    ----------
    labels : sequence
        A label for each node: strings, numbers or tuples of such.
    edges : sequence of pairs
        Numbers of nodes, from 0 on, each edge once.
    """

    labels: Sequence[Hashable]
    edges: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Graphs:
    """A graph's row is the labels of its nodes, at first and after each refinement, as numbers of
    52 bits.

    A refinement gives nodes the same new label where their labels and the multisets of their
    neighbours' labels are the same. Labels are hashed: among a million different ones two are alike
    with probability 1e-4.
    """

    refinements: int

    def encode(self, objects: Sequence[Any]) -> Array:
        """All graphs refined at once, as one graph, (n, (refinements + 1)·most nodes): rows do not
        depend on each other."""
        sizes, labels, edges = _union(objects)
        levels = [labels]
        for _ in range(self.refinements):
            # A multiset is hashed by the sum of its elements' hashes, which no order changes.
            around = np.zeros_like(labels)
            np.add.at(around, edges[:, 0], _mixed(labels, 1)[edges[:, 1]])
            labels = _mixed(labels + _mixed(around, 2), 3)
            levels.append(labels)
        # 52 of 64 bits. Each level is mixed another way: a label counts for its own level only.
        codes = np.concatenate(
            [_mixed(labels, level) >> np.uint64(12) for level, labels in enumerate(levels)]
        )
        # Codes lie level by level through all graphs; a stable sort brings each graph's together.
        graph = np.tile(np.repeat(np.arange(len(sizes)), sizes), len(levels))
        rows = np.full((len(sizes), len(levels) * int(sizes.max(initial=1))), PADDING)
        held = np.arange(rows.shape[1]) < len(levels) * sizes[:, None]
        rows[held] = codes[np.argsort(graph, kind="stable")]
        return rows

    def show(self, row: Array) -> str:
        """The size is all that a row tells."""
        return f"a graph of {int((row != PADDING).sum()) // (self.refinements + 1)} nodes"


@dataclass(frozen=True)
class WeisfeilerLehman(ObjectKernel):
    """φ_l(x) = how many nodes of the graph x have the label l, at first or after a refinement.

    The subtree kernel of Shervashidze et al. (JMLR 2011), normalised: k(x, x) = 1. Arms are
    `Graph`s, or pairs like them.

    Parameters
    ----------
    refinements : int
        How often labels are refined: a label then stands for a neighbourhood of that radius.
    """

    refinements: int = 2

    def __post_init__(self) -> None:
        whole(self.refinements, "refinements", at_least=0, at_most=100, error=KernelError)

    @property
    def encoder(self) -> Graphs:
        """Of graphs, refined so often."""
        return Graphs(self.refinements)

    def __call__(self, X: Array, Y: Array) -> Array:
        return cosines(np.asarray(X), np.asarray(Y), Bags.of)


def _union(objects: Sequence[Any]) -> tuple[Indices, AnyArray, Indices]:
    """Of all graphs side by side: nodes of each (n,), hashed labels (v,), edges in both directions
    (e, 2)."""
    sizes = np.zeros(len(objects), dtype=np.intp)
    labels: list[int] = []
    edges = [np.zeros((0, 2), dtype=np.intp)]
    for i, each in enumerate(objects):
        try:
            names, pairs = each
            sizes[i] = len(names)
            ends = np.asarray(pairs) if len(pairs) else np.zeros((0, 2), dtype=np.intp)
        except NO_ARRAY as error:
            raise ArmsError(
                f"a graph is its labels and its edges, pairs of nodes; got {shortened(each)} at {i}"
            ) from error
        pairwise = ends.ndim == 2 and ends.shape[1] == 2 and ends.dtype.kind in "iu"
        inside = pairwise and (not ends.size or (ends.min() >= 0 and ends.max() < len(names)))
        if not inside:
            raise ArmsError(
                f"edges must be pairs of nodes from 0 to {len(names) - 1}, got "
                f"{shortened(pairs)} at {i}"
            )
        edges.append(ends.astype(np.intp) + len(labels))  # nodes are numbered through all graphs
        labels += [number(name) for name in names]
    joined = np.concatenate(edges).astype(np.intp)
    return sizes, np.array(labels, dtype=np.uint64), np.concatenate([joined, joined[:, ::-1]])


def _mixed(labels: AnyArray, round: int) -> AnyArray:
    """Numbers of 64 bits scrambled (SplitMix64's finaliser), another way in each round."""
    x = labels + np.uint64((round + 1) * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
