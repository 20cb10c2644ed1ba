"""Arms whose mean and variance are current: each observation updates them in O(m) an arm.

Between two factorisations V = CCᵀ the observations wait as rank-one terms. In the coordinates b(x) = C⁻¹z(x) the matrix is
I + Σ ω b_i b_iᵀ, its inverse I − FFᵀ, and with h(x) = Fᵀb(x)

    q(x) = ‖b(x)‖² − ‖h(x)‖²,   cov(x, i) = b(x)ᵀb(i) − h(x)ᵀh(i),   μ̃(x) = b(x)ᵀv,   v = Cᵀw.

A new observation of arm i with weight ω adds the column f = √(ω/a)(b_i − F h_i) to F, a = 1 + ωq(i). The variance of an arm
shrinks by at most 1 + Σωσ̃² over the waiting observations, which the redraw rule keeps near 2: the subtraction loses no digits.
(Observations that break the rule wait only until the draw that follows folds them into C.)
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History
from manyarms.sketch.linalg import TINY, cholesky, chunks, solve_lower, solve_transposed, updated_cholesky
from manyarms.sketch.posterior import Posterior
from manyarms.typing import AnyArray, Array, Indices

WAITING = 64
"""Observations that wait before they are folded into the factor of V."""
DRIFT = 1e-12
"""Relative difference between V and its updated factor, at a probe, above which V is factored anew."""
SPARE = 64
"""Free columns a buffer starts with."""


@dataclass(frozen=True)
class Tracked:
    """A value: `add` and `pull` return a new one that shares buffers, writing behind what the old one sees, or, where another
    version wrote there already, into buffers of its own."""

    posterior: Posterior
    n_arms: int  # k
    n_waiting: int  # J
    v: Array  # (m,) Cᵀw
    mean: Array  # (k,)
    explained: Array  # (k,) ‖h‖²
    where: AnyArray  # (≥ A,) int32, position of each arm if it is tracked; shared by all versions, so checked when read
    _waiting: tuple[tuple[int, float], ...]  # position and weight of each waiting observation
    _written: list[int]  # arms and waiting observations that the newest version on these buffers has
    _arms: Indices  # buffers with room for more arms and more waiting observations
    _Z: Array  # (m, ·) z
    _B: Array  # (m, ·) C⁻¹z
    _prior: Array  # (·,) r/λ + ‖b‖²
    _residual: Array  # (·,) r/λ
    _F: Array  # (m, WAITING)
    _H: Array  # (WAITING, ·)

    @classmethod
    def start(cls, posterior: Posterior, arms: Indices, Z: Array, residual: Array, where: AnyArray) -> "Tracked":
        """Track these arms, of embedding Z (k, m) and residual r/λ (k,), from a fresh factorisation on."""
        B = solve_lower(posterior.C, np.array(Z.T, order="F"))
        return cls._at(posterior, arms, _with_room(Z.T), _with_room(B), residual, where)

    @classmethod
    def _at(cls, posterior: Posterior, arms: Indices, Z: Array, B: Array, residual: Array, where: AnyArray) -> "Tracked":
        """The same from buffers of Z and B = C⁻¹Z, (m, room) each, which become its own."""
        k, (m, room) = len(arms), Z.shape
        where = _reaching(where, arms)
        made = cls(
            posterior,
            k,
            0,
            posterior.v,
            B[:, :k].T @ posterior.v,
            np.zeros(k),
            where,
            (),
            [k, 0],
            np.empty(room, dtype=np.intp),
            Z,
            B,
            np.empty(room),
            np.empty(room),
            np.empty((m, WAITING)),
            np.empty((WAITING, room)),
        )
        made._arms[:k], made._residual[:k] = arms, residual
        made._prior[:k] = residual + np.einsum("ij,ij->j", B[:, :k], B[:, :k])
        where[arms] = np.arange(k)
        return made

    @property
    def arms(self) -> Indices:
        """The tracked arms, (k,), in the order they were added."""
        return self._arms[: self.n_arms]

    @property
    def variance(self) -> Array:
        """σ̃² = r/λ + q, (k,)."""
        return np.maximum(self._prior[: self.n_arms] - self.explained, 0.0)

    @cached_property
    def moved(self) -> float:
        """‖w_t − w_f‖ in V_f, f the last factorisation."""
        return float(np.linalg.norm(self.v - self.posterior.v))

    @property
    def norm_and_spread(self) -> tuple[float, float]:
        """‖μ̃‖ in the RKHS, and σ̃ of ⟨f, μ̃/‖μ̃‖⟩: with x = C⁻¹w, √(‖x‖² − ‖Fᵀx‖²)/‖w‖."""
        w = solve_transposed(self.posterior.C, self.v.copy())
        x = solve_lower(self.posterior.C, w.copy())
        h = self._F[:, : self.n_waiting].T @ x
        norm = float(np.linalg.norm(w))
        return norm, float(np.sqrt(max(float(x @ x - h @ h), 0.0))) / max(norm, TINY)

    def positions(self, arms: Indices) -> Indices:
        """Where these arms are among the tracked ones; −1 for those that are not."""
        at = self._found(arms)
        if (at < 0).any():
            self.where[self.arms] = np.arange(self.n_arms)  # another version may have moved them
            at = self._found(arms)
        return at

    def _found(self, arms: Indices) -> Indices:
        at = self.where.take(arms, mode="clip").astype(np.intp)  # beyond the end is some other arm's, which the check finds
        valid = (at >= 0) & (at < self.n_arms)
        valid &= self._arms[np.where(valid, at, 0)] == arms
        return np.where(valid, at, -1)

    def factored(self, history: History) -> Posterior:
        """The posterior with nothing waiting: V from the embeddings of all that was observed."""
        Z = self.embedded(self.positions(history.pulled))
        posterior = self.posterior
        return Posterior.solve(posterior.embedding, Z, history.counts, history.sums, posterior.regularization, posterior.past)

    def restarted(self, history: History, keep: Indices) -> "Tracked":
        """V factored anew, tracking the arms at these positions on."""
        return Tracked.start(self.factored(history), self._arms[keep], self.embedded(keep), self._residual[keep], self.where)

    def folded(self, history: History) -> "Tracked":
        """Nothing waiting: the factor of V updated, and w solved for anew."""
        if not self.n_waiting:
            return self
        C, B = self._fold()
        k, embedding = self.n_arms, self.posterior.embedding
        return self._settled(history, embedding, _with_room(self._Z[:, :k]), _with_room(B), C, self._residual[:k])

    def only(self, keep: Indices) -> "Tracked":
        """Tracking the arms at these positions on; nothing may be waiting."""
        Z, B = _with_room(self._Z[:, keep]), _with_room(self._B[:, keep])
        return Tracked._at(self.posterior, self._arms[keep], Z, B, self._residual[keep], self.where)

    def _fold(self) -> tuple[Array, Array]:
        """The factor of V with what is waiting, and C⁻¹Z."""
        if not self.n_waiting:
            return self.posterior.C, self._B[:, : self.n_arms]
        at, weights = (np.array(column) for column in zip(*self._waiting, strict=True))
        return updated_cholesky(self.posterior.C, np.sqrt(weights)[:, None] * self._Z[:, at].T, self._B[:, : self.n_arms])

    def appended(self, history: History, embedding: Embedding, K: Array, inducing: Indices) -> "Tracked":
        """Nothing waiting, on inducing arms appended to those of before: `inducing` are all, K (k, j) the kernel at the new.

        ζ = L₊₊⁻¹(k₊ − L₊z) are the new coordinates, those of inducing arms rows of L; with v = Σnzζᵀ, X = C⁻¹v and
        C₊C₊ᵀ = λI + Σnζζᵀ − XᵀX the factor grows to [[C, 0], [Xᵀ, C₊]] and b by C₊⁻¹(ζ − Xᵀb).
        """
        k, lam, L = self.n_arms, self.posterior.regularization, embedding.L
        C, old_B = self._fold()
        m = len(C)
        zeta = solve_lower(L[m:, m:], np.array(K.T - L[m:, :m] @ self._Z[:, :k], order="F"))
        old, new = self.positions(inducing[:m]), self.positions(inducing[m:])
        zeta[:, new], zeta[:, old[old >= 0]] = L[m:, m:].T, 0.0  # inducing arms of a table that was absorbed are not tracked
        Z, B = _with_room(self._Z[:, :k], len(L)), _with_room(old_B, len(L))
        Z[:m, new], B[:m, new] = L[m:, :m].T, solve_lower(C, np.array(L[m:, :m].T, order="F"))
        seen = self.positions(history.pulled)
        weighted = zeta[:, seen] * history.counts
        X = solve_lower(C, np.array(Z[:m, seen] @ weighted.T, order="F"))
        c = weighted @ zeta[:, seen].T - X.T @ X
        c[np.diag_indices_from(c)] += lam
        grown = np.zeros((len(L), len(L)), order="F")
        grown[:m, :m], grown[m:, :m], grown[m:, m:] = C, X.T, cholesky(c)
        Z[m:, :k], B[m:, :k] = zeta, solve_lower(grown[m:, m:], np.array(zeta - X.T @ B[:m, :k], order="F"))
        residual = self._residual[:k] - np.einsum("ij,ij->j", zeta, zeta) / lam
        return self._settled(history, embedding, Z, B, grown, residual)

    def _settled(self, history: History, embedding: Embedding, Z: Array, B: Array, C: Array, residual: Array) -> "Tracked":
        """The same arms from a factor that was updated, or, where that has drifted from V, from V factored anew."""
        seen, lam, past = Z[:, self.positions(history.pulled)], self.posterior.regularization, self.posterior.past
        probe = np.cos(np.arange(len(C)))
        V_probe, b = seen @ (history.counts * (probe @ seen)) + lam * probe, seen @ history.sums
        if past:
            V_past, b_past = past.on(embedding)
            V_probe, b = V_probe + V_past @ probe, b + b_past
        if np.linalg.norm(C @ (probe @ C) - V_probe) > DRIFT * np.linalg.norm(V_probe):
            posterior = Posterior.solve(embedding, seen.T, history.counts, history.sums, lam, past)
            return Tracked.start(posterior, self.arms.copy(), Z[:, : self.n_arms].T, residual, self.where)
        posterior = Posterior.weigh(embedding, C, b, lam, past)
        return Tracked._at(posterior, self.arms.copy(), Z, B, residual, self.where)

    def embedded(self, at: Indices) -> Array:
        """z of the arms at these positions, (len(at), m)."""
        return self._Z[:, at].T

    def residual(self, at: Indices) -> Array:
        """r/λ of the arms at these positions."""
        return self._residual[at]

    def add(self, arms: Indices, Z: Array, residual: Array) -> "Tracked":
        """Track more arms."""
        grown, k, J = self._writable(len(arms)), self.n_arms, self.n_waiting
        new, where = slice(k, k + len(arms)), _reaching(self.where, arms)
        B = solve_lower(self.posterior.C, np.array(Z.T, order="F"))
        H = self._F[:, :J].T @ B
        grown._arms[new], grown._Z[:, new], grown._B[:, new], grown._H[:J, new] = arms, Z.T, B, H
        grown._residual[new] = residual
        where[arms] = np.arange(k, k + len(arms))
        grown._prior[new] = residual + np.einsum("ij,ij->j", B, B)
        mean, explained = np.concatenate([self.mean, B.T @ self.v]), np.concatenate([self.explained, (H * H).sum(axis=0)])
        grown._written[0] = k + len(arms)
        return replace(grown, n_arms=k + len(arms), mean=mean, explained=explained, where=where)

    def moments(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ̃ and σ̃² at any rows, as if they were tracked; `diag` holds k(x, x)."""
        mean, variance, J = np.empty(len(X)), np.empty(len(X)), self.n_waiting
        for rows in chunks(len(X), len(self.v)):
            Z, r = self.posterior.embedding(X[rows], diag[rows])
            B = solve_lower(self.posterior.C, np.array(Z.T, order="F"))
            H = self._F[:, :J].T @ B
            mean[rows] = B.T @ self.v
            variance[rows] = r / self.posterior.regularization + (B * B).sum(axis=0) - (H * H).sum(axis=0)
        return mean, np.maximum(variance, 0.0)

    def pull(self, at: int, reward: float, weight: float) -> "Tracked":
        """Observe the arm at this position; fewer than WAITING may be waiting."""
        k, J, into = self.n_arms, self.n_waiting, self._writable(0)
        b, h = self._B[:, at], self._H[:J, at]
        cov = self._B[:, :k].T @ b
        f = b
        if J:
            cov -= self._H[:J, :k].T @ h
            f = b - self._F[:, :J] @ h
        a = 1.0 + weight * max(float(cov[at]), 0.0)
        step = weight * (reward - float(self.mean[at])) / a
        row = np.sqrt(weight / a) * cov
        into._F[:, J] = np.sqrt(weight / a) * f
        into._H[J, :k] = row
        into._written[1] = J + 1
        return replace(
            into,
            n_waiting=J + 1,
            _waiting=(*self._waiting, (at, weight)),
            v=self.v + step * f,
            mean=self.mean + step * cov,
            explained=self.explained + row * row,
        )

    def _writable(self, n: int) -> "Tracked":
        """This, on buffers with room for n more arms behind which no other version has written."""
        alone = self._written == [self.n_arms, self.n_waiting]
        if alone and self.n_arms + n <= len(self._arms):
            return self
        room = 2 * (self.n_arms + n) + SPARE

        def wider(buffer: AnyArray) -> AnyArray:
            grown = np.empty((*buffer.shape[:-1], room), dtype=buffer.dtype)
            grown[..., : self.n_arms] = buffer[..., : self.n_arms]
            return grown

        return replace(
            self,
            _written=[self.n_arms, self.n_waiting],
            _arms=wider(self._arms),
            _Z=wider(self._Z),
            _B=wider(self._B),
            _prior=wider(self._prior),
            _residual=wider(self._residual),
            _F=self._F.copy(),
            _H=wider(self._H),
        )


def _reaching(where: AnyArray, arms: Indices) -> AnyArray:
    """The same positions with a place for each of these arms: a table does not grow, but arms given by value come after it."""
    last = int(arms.max(initial=-1))
    if last < len(where):
        return where
    return np.concatenate([where, np.full(last + 1, -1, dtype=where.dtype)])


def _with_room(Z: Array, m: int = 0) -> Array:
    """A copy with spare columns, and m rows where that is more."""
    wide = np.empty((max(m, len(Z)), Z.shape[1] + SPARE))
    wide[: len(Z), : Z.shape[1]] = Z
    return wide
