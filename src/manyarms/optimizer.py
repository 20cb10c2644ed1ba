"""Ask and tell over a pool of candidates, with nothing to tune."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from manyarms.arms.pool import Pool
from manyarms.certificate import Certificate
from manyarms.diagnostics import sketch_accuracy
from manyarms.domains.policy import DomainBKB
from manyarms.errors import ObservationError, ParameterError, StateError
from manyarms.hyper import Fixed, Mixed, Shape
from manyarms.kernels import Kernel, Linear, Tanimoto, Unpacked, as_kernel
from manyarms.kernels.objects import encoder_of
from manyarms.model import Model, Settings
from manyarms.numbers import real, whole
from manyarms.policies import BKB, GPUCB, Adaptive, AlgorithmOne, Incremental, Insertion
from manyarms.sketch.confidence import Bayes, Growing, Radius, TheoremTwo
from manyarms.sketch.dictionary import oversampling_for
from manyarms.sketch.store import blas
from manyarms.trials import FAILED, LARGEST, CandidateId, Trial, as_items, as_noise, as_values
from manyarms.typing import Array, Indices, Mask, Seed

START = 8
"""Candidates drawn at random before the model chooses."""
RADIUS = Growing(1.3, most=3.0)
"""Chosen by benchmark, see docs/optimizer.md."""

Direction = Literal["maximize", "minimize"]


@dataclass(frozen=True)
class Candidate:
    """A candidate and what is known of it: posterior mean and interval of its true value, in the user's units."""

    id: CandidateId
    mean: float
    low: float
    high: float
    n_results: int


class Predictions(NamedTuple):
    """Of some candidates: posterior mean, standard deviation and interval of the true value, each (n,), in the user's units."""

    ids: list[CandidateId]
    mean: Array
    std: Array
    low: Array
    high: Array


class _Told(NamedTuple):
    """What one call of `tell` brought, and how large the sketch was after it."""

    trials: list[Trial]
    size: tuple[int, int, float]


@dataclass(frozen=True)
class _State:
    """Everything that changes, replaced as a whole."""

    pool: Any  # a Pool; of a box the points known
    order: Indices  # positions in the order of the random start
    model: Model
    n_told: int  # entries of the log that count
    n_trials: int
    pending: tuple[int, ...]  # positions in the pool
    results: Indices  # (n,) values told of each candidate
    retired: Mask  # (n,)
    failed: Mask  # (n,)


class Optimizer:
    """Suggests which candidates of a pool to try next, and says what is known of them.

    pool : a `Pool`, the path of a .csv or .parquet file, anything `Pool.from_frame` or `Pool.from_array` takes, or objects
        where the kernel is one of objects.
    direction : "maximize" or "minimize" the values told.
    kernel : "matern" (None means that) learns a lengthscale for each column: Matérn-5/2 on numeric ones, a Hamming kernel on
        categories, Tanimoto on bits; "rbf" has the Gaussian kernel for Matérn's. "tanimoto" and "linear" on all columns,
        a kernel object or a function of two blocks of encoded rows: only the scale is learned.
    noise : standard deviation of the values of one candidate; learned where None, 0 where values are exact. With a kernel
        object *and* a noise nothing is learned and the kernel is taken in the units of the values: only then may a theorem
        cover what `certificate` says.
    confidence : radius of the scores, `Growing(1.3, most=3.0)` where None.
    repeats : "allow" asks for a candidate again where that pays, "never" does not, k asks at most k times.
    policy : `BKB`, `GPUCB`, or another with their arguments.
    seed : an integer or a numpy Generator, for the random start and the sketch.
    options : further arguments of the policy, such as ``memory=`` or ``oversampling=``.
    """

    _over: ClassVar[dict[type, type["Optimizer"]]] = {}

    def __init_subclass__(cls, over: type | None = None) -> None:
        if over is not None:
            Optimizer._over[over] = cls

    def __new__(cls, pool: Any = None, *_: Any, **__: Any) -> "Optimizer":
        return object.__new__(Optimizer._over.get(type(pool), cls))

    def __init__(
        self,
        pool: Any,
        *,
        direction: Direction = "maximize",
        kernel: Any = None,
        noise: float | None = None,
        confidence: Radius | None = None,
        repeats: Literal["allow", "never"] | int = "allow",
        policy: Callable[..., Any] = BKB,
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        pool = as_pool(pool, kernel)
        settings = self._settings(pool, direction, kernel, noise, confidence, repeats, policy, seed, options)
        order, nothing = start_order(settings.seed, len(pool)), np.zeros(len(pool), dtype=bool)
        self._log: list[_Told] = []  # entries from n_told on are of calls that failed
        self._state = _State(pool, order, Model.prior(settings, pool.X), 0, 0, (), nothing.astype(np.intp), nothing, nothing)

    def _settings(
        self,
        pool: Any,
        direction: Any,
        kernel: Any,
        noise: Any,
        confidence: Any,
        repeats: Any,
        policy: Any,
        seed: Any,
        options: dict[str, Any],
    ) -> Settings:
        """What was given, checked."""
        if not isinstance(direction, str) or direction not in ("maximize", "minimize"):
            raise ParameterError(f'direction must be "maximize" or "minimize", got {direction!r}')
        self.direction, self._sign = direction, 1.0 if direction == "maximize" else -1.0
        self._most = _most(repeats)
        if noise is not None:
            real(noise, "noise", "a standard deviation, not negative, in the units of the values", at_least=0, below=LARGEST)
        if not callable(policy):
            raise ParameterError(f"policy must be BKB, GPUCB or another with their arguments, got {policy!r}")
        shape, fixed = _shape(kernel, pool)
        seed = int(seed.integers(2**63)) if isinstance(seed, np.random.Generator) else whole(seed, "seed", at_least=0)
        learns = not (fixed and noise is not None)
        return Settings(shape, noise, learns, RADIUS if confidence is None else confidence, policy, options, seed)

    # What comes next

    def ask(self, n: int = 1) -> list[CandidateId]:
        """The ids of n candidates to try; they are pending until told or released."""
        n, state = whole(n, "n"), self._state
        asked: list[int] = []
        for _ in range(n):
            with blas().limit(limits=1):
                position = self._next(replace(state, pending=(*state.pending, *asked)))
            if position is None:
                if not asked:
                    raise StateError(self._nothing_left(state))
                break
            asked.append(position)
        self._state = replace(state, pending=(*state.pending, *asked))
        return [_plain(state.pool.ids[position]) for position in asked]

    def release(self, ids: Any) -> None:
        """These candidates are not being tried after all."""
        pending = list(self._state.pending)
        for position in self._state.pool.positions(ids).tolist():
            if position not in pending:
                raise StateError(f"{_plain(self._state.pool.ids[position])!r} is not pending; {self.pending or 'nothing'} is")
            pending.remove(position)
        self._state = replace(self._state, pending=tuple(pending))

    @property
    def pending(self) -> list[CandidateId]:
        """Asked, and neither told nor released."""
        return [_plain(self._state.pool.ids[position]) for position in self._state.pending]

    # What came back

    def tell(self, ids: Any, values: Any = None, *, failed: Any = None, noise: Any = None) -> None:
        """Learn the values of candidates, asked for or not, in any order; a repeated id is a replicate.

        `noise` is the standard deviation of these values where it is known, one number or one each (None: that of all others):
        a value then weighs by its own noise, in what is learned of the kernel too. A standard error of a mean is such a noise.

        A value may be `FAILED`; `failed` (True, or one truth each) says so of all or some of the ids instead. A failed
        candidate is not asked for again and teaches the model nothing. On an error nothing has changed.
        """
        state = self._state
        positions = state.pool.positions(ids)
        told = as_told(values, failed, len(positions))
        if self._most == 1:
            self._check_once(positions, told)
        names, deviations = [_plain(state.pool.ids[position]) for position in positions], as_noise(noise, len(positions))
        results_told = zip(names, told, deviations, strict=True)
        trials = [Trial(state.n_trials + i, *result) for i, result in enumerate(results_told)]
        good = np.array([value is not None for value in told], dtype=bool)
        pending, results, failures = list(state.pending), state.results.copy(), state.failed.copy()
        for position in positions.tolist():
            if position in pending:
                pending.remove(position)
        np.add.at(results, positions[good], 1)
        failures[positions[~good]] = True
        model = state.model
        if good.any():
            arms, rewards, sd = self._results(trials, state.pool)
            with blas().limit(limits=1):
                model = model.told(arms, rewards, sd, lambda: self._results([*self.history, *trials], state.pool))
        del self._log[state.n_told :]
        self._log.append(_Told(trials, size_of(model)))
        self._state = replace(
            state,
            model=model,
            n_told=state.n_told + 1,
            n_trials=state.n_trials + len(trials),
            pending=tuple(pending),
            results=results,
            failed=failures,
        )

    @property
    def history(self) -> list[Trial]:
        """Every result told, oldest first."""
        return [trial for told in self._log[: self._state.n_told] for trial in told.trials]

    # What is known

    def best(self, level: float = 0.95) -> Candidate:
        """The tried candidate of largest lower confidence bound (lowest upper bound when minimising)."""
        return self._candidates([self._best()], level)[0]

    def top(self, k: int = 10, level: float = 0.95) -> list[Candidate]:
        """The k candidates, tried or not, of best posterior mean."""
        state, k = self._state, whole(k, "k")
        self._something_told()
        mean = self._means()[state.pool.arm_of]
        mean[state.retired | state.failed] = -np.inf
        order = np.argsort(-mean, kind="stable")[: min(k, int(np.isfinite(mean).sum()))]
        return self._candidates(order.tolist(), level) if len(order) else []

    def predict(self, ids: Any, level: float = 0.95) -> Predictions:
        """Posterior mean, standard deviation and interval of the true values of candidates."""
        pool, arms = self._state.pool, self._state.model.arms
        positions = pool.positions(ids)
        return self._predictions([_plain(pool.ids[position]) for position in positions], arms, pool.arm_of[positions], level)

    def predict_rows(self, table: Any, *, ids: Any = None, level: float = 0.95) -> Predictions:
        """The same of candidates that are not in the pool: a table that `add` would take. Nothing is added."""
        before, pool = len(self._state.pool), self._state.pool.add(table, ids=ids)
        return self._predictions([_plain(name) for name in pool.ids[before:]], pool.X, pool.arm_of[before:], level)

    def _predictions(self, names: list[CandidateId], X: Array, arms: Indices, level: float) -> Predictions:
        """Of rows of an array that has the columns of the pool's."""
        if self._state.model.settings.learns:
            self._something_told()
        if not names:
            return Predictions([], *(np.zeros(0) for _ in range(4)))
        model = replace(self._state.model, arms=X)
        _, less, more = model.interval(arms, 1.0)
        mean, *ends = (self._sign * end for end in model.interval(arms, _quantile(level)))
        return Predictions(names, mean, (more - less) / 2, *(ends if self._sign > 0 else ends[::-1]))

    def certificate(self, tolerance: float | None = None) -> Certificate:
        """How much better than the recommended candidate another one may be, and how sure that is."""
        if tolerance is not None:
            real(tolerance, "tolerance", "a non-negative regret, in the units of the values", at_least=0)
        state, model, best = self._state, self._state.model, self._best()
        policy = model.policy
        gone = self._gone(state)
        gone[state.pool.arm_of[best]] = True
        rival = int(state.pool.arm_of[best] if gone.all() else self._rival(gone))
        mean, low, high = model.interval(np.array([state.pool.arm_of[best], rival]), model.radius)
        bound = 0.0 if gone.all() else max(0.0, float(high[1] - low[0]))
        probability, reason = self._promise()
        ends = sorted((self._sign * low[0], self._sign * high[0]))
        rivals = state.pool.members(rival)
        return Certificate(
            _plain(state.pool.ids[best]),
            float(self._sign * mean[0]),
            float(ends[0]),
            float(ends[1]),
            _plain(state.pool.ids[rivals[~(state.retired | state.failed)[rivals]][0]]),
            float(bound),
            probability,
            reason,
            sketch_accuracy(policy).theta if isinstance(policy, BKB) else 0.0,
            policy.effective_dimension,
            model.n_results,
            tolerance,
        )

    @property
    def importance(self) -> dict[str, float]:
        """One over the lengthscale of every column the kernel learns one for, largest first: what the values depend on most.

        Numbers among numbers and categories among categories: the two are lengths in different kernels.
        """
        fitted, features = self._state.model.fitted, self._state.pool.features
        if fitted is None or not len(fitted.theta):
            raise StateError("no lengthscales were learned: tell more results, and leave `kernel` to be learned")
        columns = [feature.name for feature in features if feature.kind != "bits"]
        pairs = zip(columns, np.exp(-fitted.theta).tolist(), strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    @property
    def sizes(self) -> list[tuple[int, int, float]]:
        """Results, dictionary size and effective dimension after every `tell`."""
        return [told.size for told in self._log[: self._state.n_told]]

    @property
    def pool(self) -> Pool:
        """The candidates."""
        pool: Pool = self._state.pool
        return pool

    @property
    def policy(self) -> Any:
        """The policy at work, on standardised rewards; a refit replaces it."""
        return self._state.model.policy

    @property
    def noise(self) -> float:
        """Standard deviation of the values of one good candidate, given or learned."""
        model = self._state.model
        return float(np.sqrt(model.policy.regularization)) / model.warp.slope

    # Candidates come and go

    def add(self, table: Any, *, ids: Any = None) -> None:
        """More candidates, in a table with the columns of the pool; `ids` for pools made of an array with ids."""
        state = self._state
        pool = state.pool.add(table, ids=ids)
        more = np.zeros(len(pool) - len(state.pool), dtype=bool)
        model = state.model.on(pool.X, *self._results(self.history, pool))
        self._state = replace(
            state,
            pool=pool,
            order=grown_order(state.order, model.settings.seed, len(more)),
            model=model,
            results=np.concatenate([state.results, more.astype(np.intp)]),
            retired=np.concatenate([state.retired, more]),
            failed=np.concatenate([state.failed, more]),
        )

    def retire(self, ids: Any) -> None:
        """These candidates are no longer available: not asked for, not recommended. What they taught stays."""
        retired = self._state.retired.copy()
        retired[self._state.pool.positions(ids)] = True
        pending = tuple(position for position in self._state.pending if not retired[position])
        self._state = replace(self._state, retired=retired, pending=pending)

    def __copy__(self) -> "Optimizer":
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._log = self._log[: self._state.n_told]
        return twin

    def __repr__(self) -> str:
        state = self._state
        done = f"{state.n_trials} results, {len(state.pending)} pending"
        return f"Optimizer({state.pool!r}, {self.direction}, {done})"

    # How

    def _next(self, state: _State) -> int | None:
        """The position of the next candidate, None where none may be asked for."""
        tries = state.results.copy()
        np.add.at(tries, np.array(state.pending, dtype=np.intp), 1)
        open_ = ~(state.retired | state.failed) & (tries < self._most)
        if not open_.any():
            return None
        if state.model.settings.learns and state.model.n_results < START:
            fresh = state.order[open_[state.order] & (tries[state.order] == 0)]
            if len(fresh):
                return int(fresh[0])
        waiting = np.array(state.pending, dtype=np.intp)
        idle = open_.copy()
        idle[waiting] = False  # a result is coming anyway
        open_ = idle if idle.any() else open_
        closed = np.ones(state.model.policy.n_arms, dtype=bool)
        closed[state.pool.arm_of[open_]] = False
        pending = state.pool.arm_of[waiting]
        arm = int(state.model.policy.choose(pending=pending, exclude=closed)[0])
        members = state.pool.members(arm)
        members = members[open_[members]]
        return int(members[np.argmin(tries[members])])

    def _means(self) -> Array:
        """Posterior mean of every arm's reward, (A,)."""
        return np.asarray(self._state.model.policy.predict().mean)

    def _rival(self, gone: Mask) -> int:
        """The arm of largest upper bound that is not gone."""
        return int(self._state.model.policy.choose(exclude=gone)[0])

    def _gone(self, state: _State) -> Mask:
        """Arms all of whose candidates are retired or failed, (A,)."""
        gone = np.ones(state.model.policy.n_arms, dtype=bool)
        gone[state.pool.arm_of[~(state.retired | state.failed)]] = False
        return gone

    def _nothing_left(self, state: _State) -> str:
        counts = f"{int(state.retired.sum())} are retired, {int(state.failed.sum())} failed, {len(state.pending)} are pending"
        return (
            f"nothing is left to ask for: of {len(state.pool)} candidates {counts}, the others were tried as often as "
            "`repeats` allows; tell what is pending, add candidates or allow repeats"
        )

    def _check_once(self, positions: Indices, told: list[float | None]) -> None:
        """Raise ObservationError where repeats="never" and a candidate would have a second value."""
        once = self._state.results > 0
        for position, value in zip(positions.tolist(), told, strict=True):
            if value is not None and once[position]:
                name = _plain(self._state.pool.ids[position])
                raise ObservationError(
                    f"{name!r} has a value already, and repeats is 'never' or 1; allow repeats to tell replicates"
                )
            once[position] = True

    def _results(self, trials: Sequence[Trial], pool: Pool) -> tuple[Indices, Array, Array]:
        """Arms and signed values of all results, and their noise, NaN where none was told."""
        good = [trial for trial in trials if trial.value is not None]
        if not good:
            return np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)
        arms = pool.arm_of[pool.positions([trial.id for trial in good])]
        noise = np.array([np.nan if trial.noise is None else trial.noise for trial in good])
        return arms, self._sign * np.array([trial.value for trial in good]), noise

    def _something_told(self) -> None:
        if not self._state.model.n_results:
            raise StateError("no value was told yet: call tell() first")

    def _best(self) -> int:
        """Position of the recommended candidate."""
        self._something_told()
        state, model = self._state, self._state.model
        positions = np.flatnonzero(state.results)
        positions = positions[~(state.retired | state.failed)[positions]]
        if not len(positions):
            raise StateError("all candidates with a value are retired or failed: tell results of others")
        mean, std = model.predict(state.pool.arm_of[positions])
        return int(positions[np.argmax(mean - model.radius * std)])

    def _candidates(self, positions: Sequence[int], level: float) -> list[Candidate]:
        state = self._state
        names = [_plain(state.pool.ids[position]) for position in positions]
        predicted = self.predict(names, level)
        rows = zip(predicted.mean.tolist(), predicted.low.tolist(), predicted.high.tolist(), strict=True)
        counts = state.results[np.asarray(positions, dtype=np.intp)].tolist()
        return [Candidate(name, *row, count) for name, row, count in zip(names, rows, counts, strict=True)]

    def _promise(self) -> tuple[float | None, str]:
        """The probability behind the intervals and what it rests on; or None and why."""
        model = self._state.model
        radius, policy = model.settings.confidence, model.policy
        if model.settings.learns:
            return None, "the kernel or the noise was learned from the same results; give both to be covered by a theorem"
        covered = isinstance(policy, GPUCB | Adaptive | AlgorithmOne) and not isinstance(policy, Incremental | Insertion)
        if not covered:
            return None, f"no theorem here covers the intervals of {type(policy).__name__}"
        if isinstance(radius, TheoremTwo):
            needed = oversampling_for(radius.epsilon, radius.delta / 2, max(1, model.n_results))
            lacking = isinstance(policy, BKB) and policy.oversampling < needed
            if radius.double or lacking:
                asks = f"Theorem 1 asks for oversampling={needed:.0f} by now, the sketch has less"
                return None, "the norm of f is guessed and doubled" if radius.double else asks
            return 1 - radius.delta, f"Theorem 2, if ‖f‖ ≤ {radius.norm:g} and the noise is {radius.noise:g}-sub-Gaussian"
        if isinstance(radius, Bayes) and not isinstance(policy, BKB):
            return 1 - radius.delta, "if f is a draw of the Gaussian process with this kernel (Srinivas et al. 2010)"
        return None, f"{radius!r} promises nothing over many candidates at once from a sketch"


def as_pool(pool: Any, kernel: Any = None) -> Pool:
    """A pool, from one or from a table; from objects where the kernel is one of objects."""
    if isinstance(pool, Pool):
        return pool
    if isinstance(kernel, Kernel) and encoder_of(kernel) is not None:
        return Pool.from_objects(pool, kernel)
    if isinstance(pool, str | Path):
        return Pool.from_parquet(pool) if str(pool).endswith(".parquet") else Pool.from_csv(pool)
    if isinstance(pool, np.ndarray):
        return Pool.from_array(pool)
    if isinstance(pool, list) and pool and isinstance(pool[0], dict):
        return Pool.from_dicts(pool)
    return Pool.from_frame(pool)


def start_order(seed: int, n: int) -> Indices:
    """The order of the random start of n candidates."""
    return np.random.default_rng([seed, 1]).permutation(n)


def grown_order(order: Indices, seed: int, n: int) -> Indices:
    """The same with n candidates more."""
    more = np.random.default_rng([seed, len(order) + n]).permutation(n)
    return np.concatenate([order, len(order) + more])


def _shape(kernel: Any, pool: Pool) -> tuple[Shape, bool]:
    """What is learned of the kernel, and whether it is taken as given."""
    if pool.kernel is not None and kernel is None:
        return Fixed(pool.kernel), True
    encoders = [encoder_of(each) if isinstance(each, Kernel) else None for each in (kernel, pool.kernel)]
    if encoders[0] != encoders[1]:
        raise ParameterError(
            f"kernel must be one of what the pool holds, got {kernel!r} for {pool!r}; objects that are not rows of numbers go "
            "through Pool.from_objects(objects, kernel)"
        )
    if pool.kernel is not None:
        return Fixed(kernel), True
    widths = dict.fromkeys(("numeric", "categorical", "bits"), 0)
    for feature in pool.features:
        widths[feature.kind] += feature.stop - feature.start
    numeric, codes, bits = widths.values()
    packed = tuple(feature.n_bits for feature in pool.features if feature.kind == "bits")

    def given(kernel: Kernel) -> Shape:
        if isinstance(kernel, Tanimoto) and packed and not numeric + codes:
            return Fixed(Tanimoto(packed=True))
        return Fixed(Unpacked(kernel, packed) if packed else kernel)

    named: dict[str, Shape] = {
        "matern": Mixed(numeric, codes, bits),
        "rbf": Mixed(numeric, codes, bits, rbf=True),
        "tanimoto": given(Tanimoto()),
        "linear": given(Linear(1.0)),
    }
    if kernel is None or isinstance(kernel, str):
        if kernel is not None and kernel not in named:
            raise ParameterError(f"kernel must be one of {sorted(named)}, a kernel object or a function, got {kernel!r}")
        return named[kernel or "matern"], False
    return given(as_kernel(kernel)), True


def _most(repeats: Any) -> float:
    if isinstance(repeats, str):
        if repeats not in ("allow", "never"):
            raise ParameterError(f'repeats must be "allow", "never" or a whole number, got {repeats!r}')
        return np.inf if repeats == "allow" else 1
    return whole(repeats, 'repeats (unless "allow" or "never")')


def as_told(values: Any, failed: Any, n: int) -> list[float | None]:
    """A value for each of n ids, None for those that failed."""
    if failed is None:
        if values is None:
            raise ObservationError("tell() takes a value for each id; manyarms.FAILED, or failed=True, where there is none")
        return as_values(values, n)
    flags = [failed] * n if isinstance(failed, bool | np.bool_) else list(failed) if isinstance(failed, Iterable) else []
    if len(flags) != n or not all(isinstance(flag, bool | np.bool_) for flag in flags):
        raise ObservationError(f"failed must be True, or one truth for each of the {n} ids, got {failed!r}")
    if all(flags) and values is None:
        return [None] * n
    if values is None:
        raise ObservationError("tell() takes a value for every id that did not fail")
    items = as_items(values)
    if len(items) != n:
        raise ObservationError(
            f"tell() takes one value for each of the {n} ids, got {len(items)}; None will do where it failed"
        )
    return as_values([FAILED if flag else item for flag, item in zip(flags, items, strict=True)], n)


def size_of(model: Model) -> tuple[int, int, float]:
    """Results, dictionary size and effective dimension."""
    policy = model.policy
    size = len(policy.dictionary) if isinstance(policy, BKB | DomainBKB) else len(np.flatnonzero(policy.counts))
    return model.n_results, size, policy.effective_dimension


def _quantile(level: float) -> float:
    real(level, "level", "a probability between 0 and 1", above=0, below=1)
    return float(ndtri(0.5 + level / 2))


def _plain(name: Any) -> CandidateId:
    """An id as a Python int or str."""
    plain: CandidateId = name.item() if isinstance(name, np.generic) else name
    return plain
