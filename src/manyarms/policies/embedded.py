"""The embeddings of all arms at hand, for policies that look at every arm at every step."""

from collections.abc import Iterable
from typing import Any

from manyarms.policies.adaptive import Adaptive
from manyarms.policies.working import AdaptiveState
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.linalg import chunks
from manyarms.sketch.posterior import Posterior
from manyarms.typing import Array

Block = tuple[slice, Array, Array]


class Embedded(Adaptive):
    """BKB's adaptive sketch, and z(x), r(x) of all arms.

    While they fit `memory`, 8·A·m bytes, they are kept: inducing arms that were appended add columns, others replace them all.
    Beyond that they are computed again at every step, O(A m²).
    """

    _takes_rows = False

    def __init__(self, *args: Any, **options: Any) -> None:
        self._posterior_cache: tuple[AdaptiveState, Posterior] | None = None
        self._embedded_cache: tuple[Embedding, list[Block]] | None = None
        super().__init__(*args, **options)

    def _current(self) -> Posterior:
        """The posterior now; kept, as all arms of a batch rest on it."""
        state, cached = self._state, self._posterior_cache
        if cached is None or cached[0] is not state:
            sketched = state.history.n_observations and not state.exact
            cached = self._posterior_cache = state, state.frontier.posterior() if sketched else self._fitted()
        return cached[1]

    def _embedded(self, embedding: Embedding) -> Iterable[Block]:
        """z and r of all arms, some rows at a time."""
        if self._embedded_cache is None or self._embedded_cache[0] is not embedding:
            made = self._made(embedding)
            if 8 * self.n_arms * (len(embedding.L) + 1) > self.memory:
                self._embedded_cache = None
                return made
            with self.stats.timed("embeddings of all arms"):
                self._embedded_cache = embedding, list(made)
        return self._embedded_cache[1]

    def _made(self, embedding: Embedding) -> Iterable[Block]:
        if self._embedded_cache and embedding.extends(self._embedded_cache[0]):
            blocks = self._embedded_cache[1]
            return ((rows, *embedding.extend(self.arms[rows], self._diag[rows], Z, r)) for rows, Z, r in blocks)
        parts = chunks(self.n_arms, len(embedding.L))
        return ((rows, *embedding(self.arms[rows], self._diag[rows])) for rows in parts)
