"""Durable studies: ask and tell as `Optimizer` has them, with every call an event in a log that
survives.

The log has what people and machines did, suggestions among it. The model is a function of that
(`campaign/model`), so everybody who reads the log has the same one, and nothing of it is written
down. Every method is one transaction of `Replica`, which holds the state in memory. `tell` only
appends: the model learns when it is next needed.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.campaign.answers import Answers
from manyarms.campaign.ledger import Ledger, as_corrections, as_known
from manyarms.campaign.model import Campaign
from manyarms.campaign.prior import as_prior, with_prior
from manyarms.campaign.proposing import as_rule, propose
from manyarms.campaign.reasons import reasons
from manyarms.campaign.settings import as_given
from manyarms.campaign.trials import CandidateId, Trial, as_noise, as_told
from manyarms.checks import MOST_AT_ONCE, items_of, whole
from manyarms.errors import (
    ArmsError,
    ObservationError,
    ParameterError,
    StateError,
    StudyError,
    shortened,
)
from manyarms.runtime.signals import interruptible
from manyarms.space.deciding import checked_types
from manyarms.space.points import as_space
from manyarms.space.stored import (
    bytes_of,
    described,
    retyped,
    tables_of,
    written_table,
    written_types,
)
from manyarms.space.tables import TableResult
from manyarms.study.arguments import as_batches, as_lease, as_name, as_note, as_notes, as_worker
from manyarms.study.events import START, Event, Head, root_of, undoable
from manyarms.study.replica import Lease, Replay, Replica
from manyarms.study.spec import maker_of, read_settings, written_box, written_settings
from manyarms.study.store import Store, Transaction, store_at


class Study(Answers):
    """A study in a file or a database: made by `create`, found again by `open`.

    Its methods are those of `Optimizer`; answers come from a model that has learned every result.

    Several processes, on one machine or many, may have the same study open: each sees the results
    and the pending candidates of all. A study object may be used by several threads, one call at a
    time.
    """

    def __init__(
        self, store: Store, worker: str | None, lease: float | None, policy: Any = None
    ) -> None:
        if not isinstance(store, Store):
            raise StudyError(f"a study is made by create or open, got {shortened(store)}")
        self.worker = as_worker(worker)
        self.lease = as_lease(lease)
        self._store = store
        self._replica = Replica(store, policy)

    @classmethod
    def create(
        cls,
        location: str | Path,
        pool: Any,
        *,
        prior: Any = None,
        worker: str | None = None,
        lease: float | None = None,
        **settings: Any,
    ) -> "Study":
        """A new study in a file, or in a PostgreSQL database.

        The pool or the box is stored with it, so the file is all there is.

        Parameters
        ----------
        location : str or Path
            A file, or ``postgresql://user@host/database#name``.
        pool : Pool, path, table, array_like or Box
            The candidates. Levels of a box must be text or numbers.
        prior : Optimizer, Study or tuple, optional
            As for `Optimizer`. Its results are stored with the study.
        worker, lease
            See `open`.
        **settings
            What else `Optimizer` takes: direction, goal, kernel, noise, confidence, repeats,
            bounds, policy, seed, and options of the policy. They must be such as can be written
            down: a kernel by name or of `manyarms.kernels`, a radius of this package, `BKB`,
            `GPUCB` or a policy of `manyarms.baselines`, over a box `DomainBKB` or `AdaBKB`. Of
            `cluster.OnShards` only `BKB` is written: where a search runs is a matter of each
            process.

        Returns
        -------
        Study
            It is on disk.
        """
        space = as_space(pool)
        store = store_at(location)
        as_worker(worker), as_lease(lease)  # raise where one is wrong, before anything is written
        given = as_given(settings)
        stored = written_settings(given, space)
        tables: list[bytes] = []
        if prior is not None:
            known = as_prior(prior, space, given["direction"])
            space = with_prior(space, known, given["kernel"])
            stored["prior"] = {"values": known.values.tolist()}
            tables.append(written_table(known.frame, np.arange(len(known.frame))))
        # Raises where a setting is wrong, or a result.
        maker = maker_of(given["policy"], stored["policy"])
        Campaign.begun(space, read_settings(stored, space, maker)).with_results()
        if space.box is not None:
            stored["box"] = written_box(space.box)
        else:
            table = space.table("store")
            stored["pool"] = described(table)
            tables += tables_of(table)

        def fill(transaction: Transaction) -> None:
            kept = [transaction.keep(table) for table in tables]
            if prior is not None:
                stored["prior"]["table"] = kept.pop(0)
            if kept:
                stored["pool"]["tables"] = kept
            transaction.append("create", stored)
            if space.results:
                transaction.append("tell", _told(space.results, as_worker(worker)))

        store.create(fill)
        return cls(store, worker, lease, given["policy"])

    @classmethod
    def open(
        cls,
        location: str | Path,
        *,
        policy: Any = None,
        worker: str | None = None,
        lease: float | None = None,
    ) -> "Study":
        """A study that exists.

        Parameters
        ----------
        location : str or Path
            A file, or ``postgresql://user@host/database#name``.
        policy : optional
            How this process makes the policy of the study: `cluster.OnShards` divides its search.
            The candidates asked for are the same.
        worker : str, optional
            A name for this process, kept with what it asks for; host and process id where None.
        lease : float, optional
            Seconds after which what this process asked for, and neither told nor renewed, is given
            back: 86,400, a day, where None; ten years at most.

        Returns
        -------
        Study
            Read and checked.

        Raises
        ------
        StudyError
            There is none.
        StudyVersionError
            It was written by another version.
        """
        store = store_at(location)
        store.check()
        return cls(store, worker, lease, policy)

    # What comes next

    def ask(
        self,
        n: int = 1,
        *,
        at_most: int | None = None,
        lease: float | None = None,
        where: Any = None,
        same: str | Sequence[str] | None = None,
        max_new: dict[str, int] | None = None,
        most_each: int | None = None,
    ) -> list[CandidateId]:
        """Candidates to try. They are pending, for everybody who uses the study, until they are
        told or given back.

        Parameters
        ----------
        n : int
            How many.
        at_most : int, optional
            How many results the study may reach. What anybody is trying counts as one already, so
            that all who ask under the same limit never pass it together.
        lease : float, optional
            Seconds after which they are given back if not told; that of the study where None.
        where, same, max_new, most_each
            As for `Optimizer.ask`.

        Returns
        -------
        list
            Their ids; fewer than n, or none, where `at_most` is reached.
        """
        whole(n, "n", at_most=MOST_AT_ONCE)
        seconds = as_lease(lease, self.lease)
        if at_most is not None:
            whole(at_most, "at_most")
            self._replica.current()
            if not self._left(n, at_most, time.time()):
                return []
        # Learned and chosen before there is a lock for which others would wait.
        with self._now():
            head, events = self._choice(n, at_most, seconds, where, same, max_new, most_each)
        with self._replica.writing() as transaction:
            # The choice and the count rest on the whole log: made again where somebody was faster.
            if head != self._replica.head:
                _, events = self._choice(n, at_most, seconds, where, same, max_new, most_each)
            for kind, said in events:
                self._append(transaction, kind, **said)
        return list(events[-1][1]["ids"]) if events else []

    def _left(self, n: int, at_most: int | None, now: float) -> int:
        """How many of n candidates may be tried, so that the study never has more than `at_most`
        results."""
        ledger = self._replica.replay.ledger.expired(now)
        taken = ledger.n_trials + len(ledger.pending)
        return n if at_most is None else max(0, min(n, at_most - taken))

    def _choice(
        self, n: int, at_most: int | None, seconds: float, *chosen: Any
    ) -> tuple[Head, list[tuple[str, dict[str, Any]]]]:
        """The kinds and the payloads of the events that ask for candidates, and after which one
        they may follow."""
        now = time.time()
        replay, head = self._replica.replay, self._replica.head
        n = self._left(n, at_most, now)
        if not n:
            return head, []
        before = self._replica.campaign(replay.ledger.expired(now))
        rule = as_rule(before.ledger.candidates, *chosen)
        with interruptible():
            after = propose(before, n, rule)
            why = reasons(before, after, rule)
        # What was just asked for is the last of what is pending.
        asked = after.pending[len(before.ledger.pending) :]
        ids = after.names([each.position for each in asked])
        forecasts = [each.forecast for each in asked]
        ask = {"ids": ids, "until": now + seconds, "forecasts": forecasts, "reasons": why}
        # Who expires is written down: replay must not depend on the clock.
        gone = [each for each in replay.leases if _is_over(each, now)]
        names, workers = [each.id for each in gone], [each.worker for each in gone]
        expire = [("expire", {"ids": names, "workers": workers, "by": now})] if gone else []
        return head, [*expire, ("ask", ask)]

    def release(self, ids: Any) -> None:
        """Give back candidates that will not be tried after all.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates that are pending.
        """
        with self._replica.writing() as transaction:
            ledger = self._replica.replay.ledger
            positions = ledger.candidates.positions(ids)
            ledger.check_pending(positions)
            self._append(transaction, "release", ids=ledger.names(positions))

    def renew(self, lease: float | None = None) -> None:
        """Renew the leases of this worker, from now on: what it asked for is still being tried.

        Parameters
        ----------
        lease : float, optional
            Seconds; those of the study where None.
        """
        seconds = as_lease(lease, self.lease)
        with self._replica.writing() as transaction:
            # A worker that tries nothing writes nothing.
            if any(each.worker == self.worker for each in self._replica.replay.ledger.pending):
                self._append(transaction, "renew", until=time.time() + seconds)

    @property
    def pending(self) -> list[CandidateId]:
        """Candidates that somebody asked for and that were not told or released, with leases that
        run."""
        return [lease.id for lease in self.leases]

    @property
    def leases(self) -> list[Lease]:
        """Who is trying which candidate, and until when."""
        now = time.time()
        return [each for each in self._replica.current().leases if not _is_over(each, now)]

    # What came back

    def tell(
        self,
        ids: Any,
        values: Any = None,
        *,
        failed: Any = None,
        noise: Any = None,
        token: str | None = None,
        note: Any = None,
        batch: Any = None,
    ) -> None:
        """Learn the values of candidates; once this returns they are on disk.

        Parameters
        ----------
        ids, values, failed, noise
            As for `Optimizer.tell`.
        token : str, optional
            A name for this result, such as a job's: told again with the same token it is not
            counted twice, so a caller that does not know whether its call went through may repeat
            it.
        note : str or sequence, optional
            A remark about all results, or one about each (None: none), kept with them.
        batch : sequence of int, optional
            Of each result the number of the last event when it was suggested, 0 where that is not
            known. Files have it in their column "batch".
        """
        with self._replica.writing() as transaction:
            self._tell(transaction, ids, values, failed, noise, token, note, batch)

    def correct(
        self, ids: Any, values: Any, *, noise: Any = None, note: str | None = None
    ) -> list[Trial]:
        """Correct results. The log keeps the values that were told first.

        The model learns all results anew, from nothing, so the wrong values leave no trace.

        Parameters
        ----------
        ids, values, noise
            As for `Optimizer.correct`.
        note : str, optional
            Why.

        Returns
        -------
        list of Trial
            The results as they were before.
        """
        with self._replica.writing() as transaction:
            return self._correct(transaction, ids, values, noise, note)

    def revise(
        self,
        told: dict[str, Any] | None = None,
        corrected: dict[str, Any] | None = None,
        noted: Sequence[tuple[Trial, str]] = (),
    ) -> None:
        """`tell`, `correct` and new notes of results as one: all are written, or none.

        Parameters
        ----------
        told, corrected : dict, optional
            The arguments of `tell` and of `correct`, by name; None: there is nothing to tell, or to
            correct.
        noted : sequence of (Trial, str)
            Results of `history`, and the notes that they have from now on.
        """
        for method, said in ((self._tell, told), (self._correct, corrected)):
            try:
                signature(method).bind(
                    None, **({"ids": (), "values": ()} if said is None else said)
                )
            except TypeError as error:
                raise ParameterError(
                    "{option} must be {expected}, got {got}",
                    option="corrected" if method == self._correct else "told",
                    expected=f"a dict of the arguments of {method.__name__.strip('_')}()",
                    got=said,
                ) from error
        pairs = items_of(noted)
        if pairs is None or not all(isinstance(each, tuple) and len(each) == 2 for each in pairs):
            raise ParameterError(f"noted must be pairs of Trial and note, got {shortened(noted)}")
        with self._replica.writing() as transaction:
            if told is not None:
                self._tell(transaction, **told)
            if corrected is not None:
                self._correct(transaction, **corrected)
            if pairs:
                replay = self._replica.replay
                sources = [replay.sources[as_known(replay.ledger, trial)] for trial, _ in pairs]
                notes = [as_note(text) for _, text in pairs]
                self._append(transaction, "note", of=sources, notes=notes)

    def undo(self, event: int | None = None, *, note: str | None = None) -> Event:
        """Take back a call, as if it had not been made. The log keeps the call and the undo.

        Where the model had learned from it, it learns all that is left anew, from nothing.

        Parameters
        ----------
        event : int, optional
            The number of the event; where None, the last one that is an `ask`, `tell`, `correct`,
            `note`, `release`, `retire`, `restore` or `add` and was not taken back yet. An `undo`
            can be taken back by its number.
        note : str, optional
            Why.

        Returns
        -------
        Event
            The event that was taken back.

        Raises
        ------
        StateError
            It cannot be taken back.
        """
        with self._replica.writing() as transaction:
            events = transaction.since(START)
            target = undoable(events, event)
            kind = root_of(events, target).kind
            undo = self._append(
                transaction, "undo", event=target.number, kind=kind, note=as_note(note)
            )
            try:
                Replay.of([*events, undo], transaction.fetch).ledger.check_counts()
            except (ArmsError, ObservationError) as error:
                raise StateError(
                    f"event {target.number} cannot be taken back while what came later needs it: "
                    f"{error}"
                ) from error
        return target

    @property
    def history(self) -> list[Trial]:
        """Every result that counts, oldest first: with corrections, and without results taken
        back."""
        return self._replica.current().history

    def results_of(self, ids: Any) -> list[Trial]:
        """Every result of these candidates that counts, oldest first.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates.
        """
        replay = self._replica.current()
        ledger, positions = replay.ledger.knowing(ids)
        told = ledger.outcomes.entries.items["position"]
        return replay.trials(np.flatnonzero(np.isin(told, positions)))

    @property
    def n_results(self) -> int:
        """How many results were told, failed trials included."""
        return self._books().n_trials

    @property
    def is_changed(self) -> bool:
        """Whether a result was corrected or taken back, or the features of candidates with
        results are others."""
        return self._books().outcomes.is_changed

    @property
    def n_failed(self) -> int:
        """How many of the results are failed trials."""
        ledger = self._books()
        return ledger.n_trials - ledger.n_values

    def _now(self) -> AbstractContextManager[Campaign]:
        return self._replica.learned()

    def _books(self) -> Ledger:
        return self._replica.current().ledger

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the snapshots that are stored, 0 where there are none."""
        with self._replica.reading() as transaction:
            return transaction.snapshot_bytes()

    # Candidates come and go

    def add(self, table: Any, *, ids: Any = None) -> None:
        """Add candidates.

        Parameters
        ----------
        table : table
            With the columns of the pool. Where the pool has a target and the table has it too,
            filled cells of it are results.
        ids : sequence, optional
            For pools made of an array with ids.
        """
        with self._replica.writing() as transaction:
            before = self._replica.replay.ledger.candidates.table("add to")
            pool = before.add(table, ids=ids)
            self._append(
                transaction,
                "add",
                table=transaction.keep(bytes_of(pool, -1)),
                next_row=described(pool)["next_row"],
                n=len(pool) - len(before),
            )
            results = pool.results[len(before.results) :]
            if results:
                transaction.append("tell", _told(results, self.worker))

    def retire(self, ids: Any, *, note: str | None = None) -> None:
        """Retire candidates: they are neither asked for nor recommended any more.

        What they taught stays.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates.
        note : str, optional
            Why.
        """
        with self._replica.writing() as transaction:
            ledger = self._replica.replay.ledger
            names = ledger.names(ledger.candidates.table("retire from").positions(ids))
            self._append(transaction, "retire", ids=names, note=as_note(note))

    def restore(self, ids: Any, *, note: str | None = None) -> None:
        """Make retired candidates available again.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates that are retired.
        note : str, optional
            Why.
        """
        with self._replica.writing() as transaction:
            ledger = self._replica.replay.ledger
            positions = ledger.candidates.table("restore to").positions(ids)
            ledger.check_retired(positions)
            self._append(transaction, "restore", ids=ledger.names(positions), note=as_note(note))

    def retype(self, columns: Any, *, note: str | None = None) -> None:
        """Correct the types of columns. The model learns all results again.

        Parameters
        ----------
        columns : dict
            Types by the names of columns, as for `Pool`; the others stay as they are.
        note : str, optional
            Why.
        """
        with self._replica.writing() as transaction:
            replay = self._replica.replay
            before = replay.ledger.candidates.table("change columns of")
            types = checked_types(columns)
            if not types:
                raise ParameterError("columns must give a type for a column at least, got none")
            # Raises where a column cannot be so.
            space = replay.with_prior(retyped(before, types))
            Campaign.begun(space, read_settings(replay.settings, space))
            why = as_note(note)
            self._append(transaction, "retype", columns=written_types(types), note=why)

    # The study itself

    @property
    def direction(self) -> str:
        """ "maximize" or "minimize"."""
        return str(self._replica.replay.settings["direction"])

    @property
    def settings(self) -> dict[str, Any]:
        """What the study was created with, as it is stored."""
        settings = self._replica.replay.settings
        return {name: settings[name] for name in settings if name not in ("pool", "box")}

    @property
    def location(self) -> str:
        """The path or URL."""
        return self._store.place.text

    @property
    def n_events(self) -> int:
        """How many entries the log has."""
        self._replica.current()
        return self._replica.head.number

    def events(self) -> Iterator[Event]:
        """The log from its first entry, read and checked anew; StudyDamagedError where it is not
        whole."""
        with self._replica.reading() as transaction:
            # Read whole: the iterator needs no transaction any more.
            return iter(transaction.since(START))

    def tables(self) -> dict[str, bytes]:
        """The stored tables of candidates by their digests, read and checked anew."""
        with self._replica.reading() as transaction:
            return transaction.tables(transaction.since(START))

    def verify(self) -> int:
        """Check every event and every stored table, and that the books kept of a long log say what
        it says; returns the number of events, or raises StudyDamagedError."""
        return self._replica.verify()

    def close(self) -> None:
        """Close the file or the connection. Later calls open it again."""
        self._replica.close()

    def __enter__(self) -> "Study":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ledger = self._replica.replay.ledger
        done = f"{ledger.n_trials} results, {len(ledger.pending)} pending"
        return (
            f"Study({self._store.place.shown!r}, {ledger.candidates!r}, {self.direction}, {done})"
        )

    def _append(self, transaction: Transaction, kind: str, /, **said: Any) -> Event:
        """One more event by this worker, without what is None."""
        payload = {name: value for name, value in said.items() if value is not None}
        return transaction.append(kind, {**payload, "worker": self.worker})

    def _tell(
        self,
        transaction: Transaction,
        ids: Any,
        values: Any,
        failed: Any = None,
        noise: Any = None,
        token: str | None = None,
        note: Any = None,
        batch: Any = None,
    ) -> None:
        """Append what was told, unless it was told before with this token."""
        ledger, positions = self._replica.replay.ledger.knowing(ids)
        n = len(positions)
        told = as_told(values, failed, n)
        deviations = as_noise(noise, n)
        # Before check_once, which would refuse a repeated call as a second value.
        if token is not None and self._is_known(as_name(token, "token"), positions.tolist(), told):
            return
        ledger.check_once(positions, told)
        self._append(
            transaction,
            "tell",
            ids=ledger.names(positions),
            values=told,
            token=token,
            noise=None if noise is None else deviations,
            notes=as_notes(note, n),
            batches=as_batches(batch, n),
        )

    def _is_known(self, token: str, positions: list[int], told: list[float | None]) -> bool:
        """Whether this was told before with this token; ObservationError if something else was."""
        replay = self._replica.replay
        before = replay.tokens.get(token)
        if before is not None and before != (positions, told):
            results = replay.ledger.names(before[0]), before[1]
            raise ObservationError(
                f"token {token!r} came before with other results, {results}; give each result its "
                "own"
            )
        return before is not None

    def _correct(
        self,
        transaction: Transaction,
        ids: Any,
        values: Any,
        noise: Any = None,
        note: str | None = None,
    ) -> list[Trial]:
        """Append other values of results; returns the results as they were."""
        replay = self._replica.replay
        found = as_corrections(replay.ledger, ids, values, noise)
        numbers = found.trials.tolist()
        history = replay.history
        before = [history[number] for number in numbers]
        self._append(
            transaction,
            "correct",
            of=[replay.sources[number] for number in numbers],
            ids=[trial.id for trial in before],
            before=[trial.value for trial in before],
            values=found.values,
            noise=None if noise is None else found.noise,
            removed=[i for i, is_removed in enumerate(found.removed) if is_removed] or None,
            note=as_note(note),
        )
        return before


def _told(results: Sequence[TableResult], worker: str) -> dict[str, Any]:
    """The results in a table of candidates, as an event."""
    notes = as_notes([each.note for each in results], len(results))
    return {
        "ids": [each.id for each in results],
        "values": [each.value for each in results],
        "worker": worker,
        **({"notes": notes} if notes else {}),
    }


def _is_over(lease: Lease, now: float) -> bool:
    """Whether the time of a lease has run out."""
    return lease.until is not None and lease.until <= now
