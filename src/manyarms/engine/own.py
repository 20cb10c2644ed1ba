"""What each row has of its own, summed out: the kernel k(x, y) + v·[x = y] beside frozen features
of k.

A belief `Frozen` with the kernel k is told, for a pull (y, ω) of a row that was pulled before with
weight Ω and mean ȳ,

    Δω′ = λ²ω/((λ + vΩ)(λ + v(Ω + ω))),   y′ = y + (vΩ/λ)(y − ȳ),

in place of ω and y. Beside it two numbers are kept of each row that was tried, Ω and ȳ. With κ =
vΩ/(λ + vΩ), which is 0 where a row was never tried,

    μ̃(x) = (1 − κ)μ_S(x) + κȳ,   σ̃²(x) = (1 − κ)²σ_S²(x) + v/(λ + vΩ),

μ_S and σ_S² being those of the belief of k. So every row that is tried is learned, whether it is in
W or not, and W is as large as k asks for. docs/theory.md has the statements and their proofs.
"""

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, cast

import numpy as np

from manyarms.engine.base import Batch, Record, Step, observed_fading
from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.growing import Stack
from manyarms.engine.linalg import TINY, chunks
from manyarms.equal import equal_rows, group
from manyarms.kernels import Kernel
from manyarms.typing import Array, Indices

if TYPE_CHECKING:
    from manyarms.engine.frozen import Frozen

ROWS = 1 << 16
"""Rows whose bytes are looked up at a time."""


ONE_ROW = (np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp))
"""The groups of equal rows in most batches."""


@dataclass(eq=False)
class Tried:
    """A value: rows that were observed, and what their own parts are told by."""

    weight: Array  # (u,) Ω, the sum of the weights of a row
    mean: Array  # (u,) ȳ, the weighted mean of its rewards
    _rows: Stack  # (u, d)
    _places: dict[bytes, int] = field(default_factory=dict)  # shared as the buffer of the rows is

    @classmethod
    def of(cls, rows: Array, weight: Array, mean: Array) -> "Tried":
        """These different rows (u, d)."""
        return cls(weight, mean, Stack(rows), {key: i for i, key in enumerate(_keys(rows))})

    @classmethod
    def none(cls, n_features: int) -> "Tried":
        """No rows yet."""
        return cls.of(np.zeros((0, n_features)), np.zeros(0), np.zeros(0))

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def rows(self) -> Array:
        """(u, d), in the order in which they were tried first."""
        return self._rows.items

    def places(self, rows: Array) -> Indices:
        """Where each of some rows (n, d) is among these, (n,); −1 where it is not."""
        u = len(self)
        places = np.full(len(rows), -1, dtype=np.intp)
        for start in range(0, len(rows) if u else 0, ROWS):
            some = slice(start, start + ROWS)
            # Later values that share the dictionary have put their rows behind those of this one.
            places[some] = [self._places.get(key, u) for key in _keys(rows[some])]
        places[places >= u] = -1
        return places

    def at(self, places: Indices) -> tuple[Array, Array]:
        """Ω and ȳ of the rows at some places, 0 at −1."""
        nothing = np.zeros(1)
        # −1 is the last place.
        weight = np.concatenate((self.weight, nothing))[places]
        return weight, np.concatenate((self.mean, nothing))[places]

    def observed(self, rows: Array, places: Indices, weight: Array, mean: Array) -> "Tried":
        """After more results of different rows (k, d) at these places, of such weights and
        means."""
        is_new = places < 0
        u = len(self)
        more = rows[is_new]
        known = self._places
        if len(more):
            places = places.copy()
            places[is_new] = np.arange(u, u + len(more))
            if len(known) > u:
                known = dict(islice(known.items(), u))  # another value went on from here
            known.update(zip(_keys(more), range(u, u + len(more)), strict=True))
        total = np.concatenate((self.weight, np.zeros(len(more))))
        means = np.concatenate((self.mean, np.zeros(len(more))))
        total[places] += weight
        means[places] += (mean - means[places]) * (weight / total[places])
        return Tried(total, means, self._rows.appended(more), known)


@dataclass(eq=False)
class Owned:
    """What is known of f, where each row has a part of its own."""

    kernel: Kernel  # k(x, y) + v·[x = y]
    base: "Frozen"  # given (x, y′, Δω′): what is known of the part of f whose kernel is k
    own_variance: float  # v
    tried: Tried
    trace: float = 0.0  # Σ ω(k(x, x) + v)/λ
    own_log_det: float = 0.0  # Σ ln(1 + vΩ/λ) over the rows tried
    discount: float = 1.0  # γ: the weight of k's part in a row is γω′ once another reward came

    def __post_init__(self) -> None:
        # As of `Frozen`.
        base = self.base
        self.regularization = base.regularization  # λ
        self.noise = base.noise  # ξ
        self.n_observations = base.n_observations
        self.m = base.m  # |W|
        self.W = base.W  # (m, d)
        self.keys = base.keys
        self.guarantee: Posterior = "certified" if self.discount == 1.0 else "none"

    @classmethod
    def prior(cls, kernel: Kernel, base: "Frozen", own_variance: float) -> "Owned":
        """Before anything is observed."""
        return cls(kernel, base, own_variance, Tried.none(base.W.shape[1]))

    @property
    def evidence(self) -> Evidence:
        """What a radius is a function of: e and η are those of k's part."""
        inner = self.base.evidence
        own = self.own_log_det
        return Evidence(
            self.regularization,
            self.noise,
            self.guarantee,
            n_observations=self.n_observations,
            trace=self.trace,
            log_det=inner.log_det + own,
            left_out=inner.left_out,
            largest=inner.largest,
            information=inner.information + own,
            mean=self._mean,
            dimension=self._dimension,
        )

    def _dimension(self) -> float:
        """Σ Ωσ̃²(x) over the rows tried."""
        rows = self.tried.rows
        return float(self.tried.weight @ self.moments(rows, np.zeros(len(rows)))[1])

    def _mean(self) -> tuple[float, float]:
        """‖μ̃‖, and σ̃ of ⟨f, μ̃/‖μ̃‖⟩, where each row tried has the feature of now.

        In coordinates of W and of own parts, μ̃ = (a, u), u_i = κ_i(ȳ_i − μ_S(x_i))/√v, and V is an
        arrow with c_i = Ω_iz_i, so that its inverse at (a, u) is (a − Σ κ_iu_iz_i/√v)ᵀS⁻¹(…) + Σ
        u_i²/(λ + vΩ_i).
        """
        base = self.base
        total, _, shrunk = self._shares(self.tried.weight)
        shrunk /= np.sqrt(self.own_variance)  # κ/√v
        own = np.zeros(len(self.tried))
        along = np.zeros(base.m)  # Σ κuz/√v, as a sum of kernel columns
        alpha = base.L.solve_transposed(base.w)
        for some in chunks(len(own), max(1, base.m)):
            K = base.kernel(self.tried.rows[some], base.W)
            own[some] = shrunk[some] * (self.tried.mean[some] - K @ alpha)
            along += (shrunk[some] * own[some]) @ K
        norm = float(np.sqrt(base.w @ base.w + own @ own))
        inside = base.factor.half(base.w - base.L.solve(along)).quad
        return norm, float(np.sqrt(inside + np.square(own) @ (1 / total))) / max(norm, TINY)

    # Reading

    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """μ̃ and σ̃² (leverage units) of rows, (n,) each: the one function that scores."""
        rows = rows.astype(np.float64, copy=False)
        # What k says of itself: a difference of `diag` and v would lose digits.
        mean, variance = self.base.moments(rows, self.base.kernel.diag(rows))
        return self.corrected(mean, variance, self.tried.places(rows))

    def corrected(self, mean: Array, variance: Array, places: Indices) -> tuple[Array, Array]:
        """μ̃ and σ̃² (n,) of μ_S and σ_S² of k's part, given where each row is among those tried, −1
        where it is not."""
        known = np.flatnonzero(places >= 0)
        at = places[known]
        total, kept, shrunk = self._shares(self.tried.weight[at])
        corrected = mean.copy()
        corrected[known] = kept * mean[known] + shrunk * self.tried.mean[at]
        spread = variance + self.own_variance / self.regularization
        spread[known] = np.square(kept) * variance[known] + self.own_variance / total
        return corrected, spread

    def covariance(self, covariance: Array, X: Array, Y: Array) -> Array:
        """Of all pairs of rows X (n, d) and Y (m, d), in leverage units, given that of k's part:
        (1 − κ(x))(1 − κ(y))k̃(x, y) + v/(λ + vΩ)·[x = y]."""
        weights = [self.tried.at(self.tried.places(rows))[0] for rows in (X, Y)]
        kept = [self._shares(weight)[1] for weight in weights]
        corrected = np.outer(*kept) * covariance
        i, j = equal_rows(X, Y)
        corrected[i, j] += self.own_variance / self.regularization * kept[0][i]
        return corrected

    def _shares(self, weight: Array) -> tuple[Array, Array, Array]:
        """λ + vΩ, 1 − κ and κ of rows of weight Ω: no differences."""
        informed = self.own_variance * weight
        total = self.regularization + informed
        return total, self.regularization / total, informed / total

    # Observing

    def observed(self, batch: Batch, record: Record | None = None) -> Step:
        """The belief after these observations; with a record, as was decided then."""
        if self.discount < 1.0 and len(batch) and not batch.supposed:
            return observed_fading(self, batch)
        lam = self.regularization
        v = self.own_variance
        n = len(batch)
        # Groups of equal rows: the first row of each, and for each row its group.
        first, which = ONE_ROW if n == 1 else group(batch.rows + 0.0)
        repeats = len(first) < n
        rows = batch.rows
        weight = batch.weights
        mean = batch.rewards
        with np.errstate(over="ignore", invalid="ignore"):
            if repeats:
                # What comes of one row counts as one: its own part adds the weights up.
                rows = rows[first]
                weight = np.bincount(which, weight).astype(np.float64)
                mean = np.bincount(which, batch.weights * mean) / weight
            places = self.tried.places(rows)
            before, old = self.tried.at(places)
            total, kept, shrunk = self._shares(before)
            part = Batch(
                rows,
                self.base.kernel.diag(rows),
                mean + v * before / lam * (mean - old),  # y′
                kept * weight * (lam / (lam + v * (before + weight))),  # Δω′
                batch.keys[first],
                batch.n_observations,
                batch.supposed,
            )
            told = None if record is None else Record(which[record.entered], record.sizes)
            step = self.base.observed(part, told)
            if batch.supposed:
                # Each gives its mean, so that means stay.
                mean = kept * self.base.moments(rows, part.diag)[0] + shrunk * old
            after = Owned(
                self.kernel,
                cast("Frozen", step.after),
                v,
                self.tried.observed(rows, places, weight, mean),
                self.trace + float(batch.weights @ batch.diag) / lam,
                self.own_log_det + float(np.log1p(v * weight / total).sum()),
                self.discount,
            )
        record = step.record
        if repeats:
            record = Record(first[record.entered], record.sizes[which])
        return Step(after, record, step.change, batch)

    def supposing(self, rows: Array, diag: Array) -> Step:
        """If each of these rows were pulled once more, and gave its mean: means stay, variances
        fall."""
        return self.observed(Batch.supposing(rows, diag))

    def faded(self, gamma: float) -> "Owned":
        """The belief if k's part of all rows weighed γ times as much: ω′ becomes γω′. O(m³)."""
        weight = self.faded_weights(self.tried.weight, gamma)
        faded = self.with_tried(self.base.faded(gamma), replace(self.tried, weight=weight))
        return replace(faded, trace=gamma * self.trace)

    def with_tried(self, base: "Frozen", tried: Tried) -> "Owned":
        """With another base and other rows tried; the trace is the caller's to put right."""
        log_det = float(np.log1p(self.own_variance / self.regularization * tried.weight).sum())
        return replace(self, base=base, tried=tried, own_log_det=log_det)

    def faded_weights(self, weight: Array, gamma: float | Array) -> Array:
        """Ω whose ω′ = Ω/(1 + vΩ/λ) is γ times that of these weights."""
        lam = self.regularization
        return np.asarray(gamma * weight * (lam / (lam + (1 - gamma) * self.own_variance * weight)))


def _keys(rows: Array) -> list[bytes]:
    """The bytes of rows (n, d), the same for rows that are equal: −0 is 0."""
    firm = np.add(rows, 0.0, dtype=np.float64, order="C")
    keys: list[bytes] = firm.view(f"V{firm.itemsize * firm.shape[1]}").ravel().tolist()
    return keys
