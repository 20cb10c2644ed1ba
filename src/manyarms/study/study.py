"""Durable studies: ask and tell as `Optimizer` has them, with every call an event in a log that survives.

State = log. What was chosen, drawn and fitted is written down, so reading the log again gives the same state anywhere: nothing
is chosen, drawn or fitted again. A call first takes in what other processes have appended since, then acts, then appends, in
one transaction; memory changes after the commit. `tell` only appends: the model learns when it is next needed, and whoever
needs it writes down what was drawn and fitted then.
"""

import math
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from manyarms.arms.pool import Pool
from manyarms.arms.stored import described, table_of, tables_of
from manyarms.certificate import Certificate
from manyarms.errors import ObservationError, ParameterError, StudyDamagedError, StudyStorageError
from manyarms.model import Model
from manyarms.numbers import real, whole
from manyarms.optimizer import Candidate, Direction, Optimizer, Predictions, as_pool, as_told, size_of
from manyarms.policies import BKB
from manyarms.sketch.confidence import Radius
from manyarms.study.learning import Learned, learn
from manyarms.study.ledger import Lease, Ledger, unexpired
from manyarms.study.log import START, Event, uncollected
from manyarms.study.snapshot import EVERY, resume, take
from manyarms.study.spec import read, read_policy, written, written_policy
from manyarms.study.storage import Store, Transaction
from manyarms.trials import CandidateId, Trial, as_noise
from manyarms.typing import Seed

PIECE = 2.0
"""Seconds of learning before what was drawn and fitted is written down."""
TOKEN = 200
"""Characters of a token or a worker's name, at most."""


class Study:
    """A study in a file or a database: made by `create`, found again by `open`; its methods are those of `Optimizer`.

    Several processes, on one machine or many, may have the same study open: each sees the results and the pending candidates of
    all. A study object may be used by several threads, one call at a time.
    """

    def __init__(self, store: Store, worker: str | None, lease: float | None) -> None:
        self._store, self._lock = store, threading.RLock()
        self.worker = f"{socket.gethostname()}:{os.getpid()}" if worker is None else _name(worker, "worker")
        self.lease = None if lease is None else _seconds(lease)
        self._is_torn = True  # nothing is read yet
        self._ledger: Ledger
        self._optimizer: Optimizer
        self._model: Model
        self._prior: Model  # before any step
        self._done: int  # steps the model has taken
        self._kept: int  # of them, those of the last snapshot
        self._unwritten: Learned | None = None  # steps taken of which nothing is written yet
        with store.reading() as transaction:
            self._take_in(transaction)

    @classmethod
    def create(
        cls,
        location: str | Path,
        pool: Any,
        *,
        direction: Direction = "maximize",
        kernel: Any = None,
        noise: float | None = None,
        confidence: Radius | None = None,
        repeats: Literal["allow", "never"] | int = "allow",
        policy: Any = BKB,
        seed: Seed = 0,
        worker: str | None = None,
        lease: float | None = None,
        **options: Any,
    ) -> "Study":
        """A new study in a file, or in a PostgreSQL database by URL (``postgresql://user@host/database#name``).

        The pool is stored with it, so the file is all there is. Settings are those of `Optimizer`; they must be such as can be
        written down: a kernel by name or of `manyarms.kernels`, a radius of this package, a policy of `manyarms.policies`.
        `worker` and `lease`: see `open`.
        """
        pool, store = as_pool(pool), Store(location)
        seed = seed if isinstance(seed, int) else _seed(seed)
        settings = {
            "direction": direction,
            "kernel": written(kernel, "kernel"),
            "noise": written(noise, "noise"),
            "confidence": written(confidence, "confidence"),
            "repeats": written(repeats, "repeats"),
            "policy": written_policy(policy),
            "seed": seed,
            "options": {name: written(value, name) for name, value in options.items()},
        }
        _optimizer(settings, pool)  # raises where a setting is wrong
        tables = tables_of(pool)

        def fill(transaction: Transaction) -> None:
            kept = [transaction.keep(table) for table in tables]
            transaction.append("create", {**settings, "pool": {**described(pool), "tables": kept}}, time.time())

        store.create(fill)
        return cls(store, worker, lease)

    @classmethod
    def open(cls, location: str | Path, *, worker: str | None = None, lease: float | None = None) -> "Study":
        """A study that exists.

        worker : a name for this process, kept with what it asks for; host and process id where None.
        lease : seconds after which what this process asked for, and neither told nor renewed, is given back; None: never.
        """
        store = Store(location)
        store.check()
        return cls(store, worker, lease)

    # What comes next

    def ask(self, n: int = 1, *, lease: float | None = None) -> list[CandidateId]:
        """The ids of n candidates to try; they are pending, for all who use the study, until told, released or expired."""
        whole(n, "n")
        seconds = self.lease if lease is None else _seconds(lease)
        self._catch_up()
        with self._writing() as call:
            now = time.time()
            leases = unexpired(self._ledger.leases, now)
            if len(leases) < len(self._ledger.leases):
                gone = [each for each in self._ledger.leases if each not in leases]
                call.append("expire", {"ids": [each.id for each in gone], "workers": [each.worker for each in gone], "by": now})
            call.learn()
            ids = self._at(call.model, leases).ask(n)
            learned = self._ledger.steps[-1].number if self._ledger.steps else 0
            until = None if seconds is None else now + seconds
            call.append("ask", {"ids": ids, "worker": self.worker, "until": until, "learned": learned})
        return ids

    def release(self, ids: Any) -> None:
        """These candidates are not being tried after all."""
        with self._writing() as call:
            optimizer = self._at(self._model)
            names = self._names(ids)
            optimizer.release(names)
            call.append("release", {"ids": names, "worker": self.worker})

    def renew(self, lease: float | None = None) -> None:
        """What this worker asked for is still being tried: its leases run anew, from now, as long as `lease` or its own."""
        seconds = self.lease if lease is None else _seconds(lease)
        with self._writing() as call:
            if any(each.worker == self.worker for each in self._ledger.leases):
                call.append("renew", {"worker": self.worker, "until": None if seconds is None else time.time() + seconds})

    @property
    def pending(self) -> list[CandidateId]:
        """Asked by anyone, and neither told nor released nor expired."""
        return [lease.id for lease in self.leases]

    @property
    def leases(self) -> list[Lease]:
        """Who is trying what, and until when."""
        with self._current():
            return unexpired(self._ledger.leases, time.time())

    # What came back

    def tell(self, ids: Any, values: Any = None, *, failed: Any = None, noise: Any = None, token: str | None = None) -> None:
        """Learn the values of candidates; once this returns they are on disk. Arguments are those of `Optimizer.tell`.

        token : a name for this result, such as a job's: told again with the same token it is not counted twice, so a caller
            that does not know whether its call went through may repeat it.
        """
        with self._writing() as call:
            names = self._names(ids)
            told, deviations = as_told(values, failed, len(names)), as_noise(noise, len(names))
            if token is not None and self._known(_name(token, "token"), names, told):
                return
            if self._optimizer._most == 1:
                self._at(self._model)._check_once(self._ledger.pool.positions(names), told)
            marked = {} if token is None else {"token": token}
            exact = {} if noise is None else {"noise": deviations}
            call.append("tell", {"ids": names, "values": told, "worker": self.worker, **marked, **exact})

    @property
    def history(self) -> list[Trial]:
        """Every result told, oldest first."""
        with self._current() as ledger:
            results = zip(ledger.ids, ledger.values, ledger.noise, strict=True)
            return [Trial(i, *result) for i, result in enumerate(results)]

    # What is known

    def best(self, level: float = 0.95) -> Candidate:
        """The tried candidate of largest lower confidence bound (lowest upper bound when minimising)."""
        with self._learned() as optimizer:
            return optimizer.best(level)

    def top(self, k: int = 10, level: float = 0.95) -> list[Candidate]:
        """The k candidates, tried or not, of best posterior mean."""
        with self._learned() as optimizer:
            return optimizer.top(k, level)

    def predict(self, ids: Any, level: float = 0.95) -> Predictions:
        """Posterior mean, standard deviation and interval of the true values of candidates."""
        with self._learned() as optimizer:
            return optimizer.predict(ids, level)

    def predict_rows(self, table: Any, *, ids: Any = None, level: float = 0.95) -> Predictions:
        """The same of candidates that are not in the pool: a table that `add` would take. Nothing is added."""
        with self._learned() as optimizer:
            return optimizer.predict_rows(table, ids=ids, level=level)

    def certificate(self, tolerance: float | None = None) -> Certificate:
        """How much better than the recommended candidate another one may be, and how sure that is."""
        with self._learned() as optimizer:
            return optimizer.certificate(tolerance)

    @property
    def importance(self) -> dict[str, float]:
        """What the values depend on most, see `Optimizer.importance`."""
        with self._learned() as optimizer:
            return optimizer.importance

    @property
    def noise(self) -> float:
        """Standard deviation of the values of one good candidate, given or learned."""
        with self._learned() as optimizer:
            return optimizer.noise

    @property
    def policy(self) -> Any:
        """The policy at work, on standardised rewards; read it, but let `tell` teach it."""
        with self._learned() as optimizer:
            return optimizer.policy

    @property
    def sizes(self) -> list[tuple[int, int, float]]:
        """Results, dictionary size and effective dimension, whenever a dictionary was drawn and now."""
        with self._learned() as optimizer:
            return [*self._ledger.sizes, *([size_of(optimizer._state.model)] if self._ledger.steps else [])]

    # Candidates come and go

    def add(self, table: Any, *, ids: Any = None) -> None:
        """More candidates, in a table with the columns of the pool; `ids` for pools made of an array with ids."""
        with self._writing() as call:
            pool = self._ledger.pool.add(table, ids=ids)
            digest = call.keep(table_of(pool, -1))
            call.append(
                "add", {"table": digest, "next_row": described(pool)["next_row"], "n": len(pool) - len(self._ledger.pool)}
            )

    def retire(self, ids: Any) -> None:
        """These candidates are no longer available: not asked for, not recommended. What they taught stays."""
        with self._writing() as call:
            call.append("retire", {"ids": self._names(ids)})

    # The study itself

    @property
    def pool(self) -> Pool:
        """The candidates."""
        with self._current() as ledger:
            return ledger.pool

    @property
    def direction(self) -> str:
        """ "maximize" or "minimize"."""
        return str(self._ledger.settings["direction"])

    @property
    def settings(self) -> dict[str, Any]:
        """What the study was created with, as it is stored."""
        return {name: value for name, value in self._ledger.settings.items() if name != "pool"}

    @property
    def location(self) -> str:
        """The path or URL."""
        return self._store.location

    @property
    def n_events(self) -> int:
        """Entries of the log."""
        with self._current():
            return self._head.number

    def events(self) -> Iterator[Event]:
        """The log from its first entry, read and checked anew; StudyDamagedError where it is not whole."""
        with self._lock, self._store.reading() as transaction:
            events = transaction.since(START)
        return iter(events)

    def verify(self) -> int:
        """Check every event and every stored table; returns the number of events, or raises StudyDamagedError."""
        with self._lock, self._store.reading() as transaction:
            events = transaction.since(START)
            for event in events:
                for digest in _tables(event):
                    transaction.fetch(digest)
            return len(events)

    def close(self) -> None:
        """Let go of the file or the connection. Later calls open it again."""
        with self._lock:
            self._store.close()

    def __enter__(self) -> "Study":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ledger = self._ledger
        done = f"{len(ledger.ids)} results, {len(ledger.leases)} pending"
        return f"Study({self._store.shown!r}, {ledger.pool!r}, {self.direction}, {done})"

    # How

    @contextmanager
    def _writing(self) -> Iterator["_Call"]:
        """A transaction: events of others are taken in first, those appended are applied after the commit."""
        with self._lock:
            with self._store.writing() as transaction:
                self._take_in(transaction)
                call = _Call(self, transaction)
                yield call
            with self._all_or_nothing():
                self._ledger.apply(transaction.appended, transaction.kept.__getitem__)
                self._head, self._model, self._done = transaction.head, call.model, call.done

    @contextmanager
    def _current(self) -> Iterator[Ledger]:
        """The ledger, up to date."""
        with self._lock:
            with self._store.reading() as transaction:
                self._take_in(transaction)
            yield self._ledger

    @contextmanager
    def _learned(self) -> Iterator[Optimizer]:
        """The optimizer, its model up to date. Where nothing can be written, what was learned is kept for later."""
        with self._lock:
            model = None
            try:
                self._catch_up()
            except StudyStorageError:
                with self._current():
                    self._unwritten = self._next(math.inf)
                    model = self._unwritten.model
            yield self._at(model or self._model)

    def _catch_up(self) -> None:
        """Learn what there is without making others wait: between transactions, written down piece by piece."""
        with self._current() as ledger:
            while self._done < len(ledger.steps):
                found = self._unwritten = self._next(PIECE)
                if found.made or self._is_due(found):
                    with self._writing() as call:
                        call.adopt(found)
                else:
                    self._model, self._done = found.model, found.done
                self._unwritten = None

    def _next(self, seconds: float) -> Learned:
        """What is learned from here on; it begins with what could not be written before."""
        ledger, before = self._ledger, self._unwritten
        if before is None or before.begun != self._done or not before.agrees(ledger):
            return learn(ledger, self._model, self._done, self._resume, seconds)
        return before.followed_by(learn(ledger, before.model, before.done, lambda _: None, seconds))

    def _resume(self, after: int, transaction: Transaction | None = None) -> tuple[Model, int] | None:
        """The model from the snapshot, if it has taken more steps than that and this object has taken none."""
        if self._done or not self._ledger.steps:
            return None
        try:
            with nullcontext(transaction) if transaction else self._store.reading() as open_:
                found = resume(open_, self._ledger, self._prior, after)
        except StudyDamagedError as error:
            warnings.warn(f"the snapshot of {self._store.shown} is not used: {error}", RuntimeWarning, stacklevel=2)
            return None
        self._kept = found[1] if found else 0
        return found

    def _is_due(self, found: Learned) -> bool:
        """Whether a snapshot is to be taken."""
        refitted = any(kind == "refit" for kind, _ in found.made.values())
        return found.done >= self._kept + EVERY or (refitted and found.model.n_results >= EVERY)

    def _take_in(self, transaction: Transaction) -> None:
        """Apply what others have appended. Where they drew or fitted at a step that this model has taken, it starts anew."""
        with self._all_or_nothing():
            if self._is_torn:
                self._read_all(transaction)
                return
            events, number = transaction.since(self._head), self._ledger.steps[self._done - 1].number if self._done else 0
            self._ledger.apply(events, transaction.fetch)
            self._head = transaction.head
            if any(event.kind in ("draw", "refit") and event.payload["step"] <= number for event in events):
                self._model, self._done = self._prior, 0

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What is interrupted here is read from the log again."""
        try:
            yield
        except BaseException:
            self._is_torn = True
            raise

    def _read_all(self, transaction: Transaction) -> None:
        """The state from the log alone."""
        with uncollected():
            events = transaction.since(START)
            self._ledger = Ledger(events[0], transaction.fetch)
            self._optimizer = _optimizer(self._ledger.settings, self._ledger.pool)
            self._prior = self._model = self._optimizer._state.model
            self._done = self._kept = 0
            self._ledger.apply(events[1:], transaction.fetch)
        self._head, self._is_torn = transaction.head, False

    def _at(self, model: Model, leases: list[Lease] | None = None) -> Optimizer:
        """The optimizer in the state that the log says, with a model."""
        ledger, optimizer = self._ledger, self._optimizer
        ids = [lease.id for lease in (ledger.leases if leases is None else leases)]
        optimizer._state = replace(
            optimizer._state,
            pool=ledger.pool,
            order=ledger.order,
            model=model,
            n_trials=len(ledger.ids),
            pending=tuple(ledger.pool.positions(ids).tolist()) if ids else (),
            results=ledger.results,
            retired=ledger.retired,
            failed=ledger.failed,
        )
        return optimizer

    def _names(self, ids: Any) -> list[CandidateId]:
        """Ids of candidates, checked, as Python ints and strings."""
        pool = self._ledger.pool
        names: list[CandidateId] = pool.ids[pool.positions(ids)].tolist()
        return names

    def _known(self, token: str, ids: list[CandidateId], told: list[float | None]) -> bool:
        """Whether this was told before with this token; ObservationError where something else was."""
        before = self._ledger.told_by.get(token)
        if before is not None and before != (ids, told):
            raise ObservationError(f"token {token!r} came before with other results, {before}; give each result its own")
        return before is not None


class _Call:
    """What happens in one transaction: events, and the model after them."""

    def __init__(self, study: Study, transaction: Transaction) -> None:
        self._study, self._transaction = study, transaction
        self.model: Model = study._model
        self.done: int = study._done
        self.keep = transaction.keep

    def append(self, kind: str, payload: dict[str, Any]) -> None:
        self._transaction.append(kind, payload, time.time())

    def learn(self) -> None:
        """The model takes the steps that are left."""
        study, ledger = self._study, self._study._ledger
        if self.done < len(ledger.steps):
            self.adopt(learn(ledger, self.model, self.done, lambda after: study._resume(after, self._transaction)))

    def adopt(self, found: Learned) -> None:
        """Go on with a model that has learned, and write down what it drew and fitted; unless others took its steps meanwhile,
        and otherwise."""
        study, ledger = self._study, self._study._ledger
        if self.done != found.begun or not found.agrees(ledger):
            return
        for number, (kind, payload) in found.made.items():
            if number > ledger.learned:
                self.append(kind, payload)
        self.model, self.done = found.model, found.done
        if study._is_due(found):
            take(self._transaction, ledger, found)
            study._kept = self.done


def _optimizer(settings: dict[str, Any], pool: Pool) -> Optimizer:
    options = {name: read(value) for name, value in settings["options"].items()}
    return Optimizer(
        pool,
        direction=settings["direction"],
        kernel=read(settings["kernel"]),
        noise=settings["noise"],
        confidence=read(settings["confidence"]),
        repeats=settings["repeats"],
        policy=read_policy(settings["policy"]),
        seed=settings["seed"],
        **options,
    )


def _tables(event: Event) -> list[str]:
    return (
        list(event.payload["pool"]["tables"])
        if event.kind == "create"
        else [event.payload["table"]]
        if event.kind == "add"
        else []
    )


def _seed(seed: Any) -> int:
    return int(seed.integers(2**63)) if hasattr(seed, "integers") else whole(seed, "seed", at_least=0)


def _seconds(lease: Any) -> float:
    return real(lease, "lease", "a positive number of seconds", above=0)


def _name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= TOKEN:
        raise ParameterError(f"{what} must be a string of 1 to {TOKEN} characters, got {name!r:.80}")
    return name
