"""What a place for studies must do, as checks that need no test runner.

Each check takes the location of a place where nothing is yet, and raises AssertionError where the
place does something else.

    for check in CHECKS:
        check(f"postgresql://localhost/test#{check.__name__}")
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyarms.errors import StudyDamagedError, StudyError, StudyVersionError
from manyarms.study.events import START, Event
from manyarms.study.store import FORMAT, Store, Transaction, store_at

LONG = 30.0
"""Seconds after which whoever still waits hangs."""
SHORT = 0.2
"""Seconds in which whoever need not wait is usually through."""

Where = str | Path


def keeps_what_was_written(location: Where) -> None:
    """Events come back as they were written, to the last digit, also over a new connection."""
    payload = {
        "ids": ["µ – ' % ? :a \\ \U0001f600", 2**60, [1e-300], {"x": True}],
        "values": [0.1, 1e-300, 2**60, None],
        "worker": "me",
    }
    store = _made(location)
    with store.writing() as transaction:
        written = transaction.append("tell", payload, 1e9 / 7)
    store.close()
    for reader in (store, store_at(location)):
        reader.check()
        _expect(_events(reader)[1:] == [written], "an event comes back as it was written")
        reader.close()


def is_made_once(location: Where) -> None:
    """A study is made where nothing is, and never in place of another."""
    with _raises(StudyError, "there is nothing to open"):
        store_at(location).check()
    store = _made(location)
    with _raises(StudyError, "there is a study already"):
        _made(location)
    _expect([event.kind for event in _events(store)] == ["create"], "the first study is left alone")
    store.close()


def undoes_what_fails(location: Where) -> None:
    """A call that ends in an error has written nothing, and has let go of the lock."""
    store, other = _made(location), store_at(location)
    with suppress(ZeroDivisionError), store.writing() as transaction:
        _renew(transaction, "failed")
        transaction.keep(b"table")
        raise ZeroDivisionError
    with _raises(StudyError, "a wrong statement is a typed error"), store.writing() as transaction:
        _renew(transaction, "failed")
        store.execute("SELECT number FROM nowhere")
    _append(other, "first")
    _append(store, "second")
    _expect(_workers(store) == ["first", "second"], "what failed left nothing behind")
    store.close()
    other.close()


def lets_one_write(location: Where) -> None:
    """A writer waits until the one before it has ended, and then sees what that one wrote."""
    store = _made(location)
    with store.writing() as transaction:
        thread = _begun(location, "second")
        thread.join(SHORT)
        _expect(thread.is_alive(), "a second writer waits for the first")
        _renew(transaction, "first")
    _ended(thread)
    _expect(_workers(store) == ["first", "second"], "writers write one after the other")
    store.close()


def reads_one_state(location: Where) -> None:
    """A reader sees the log as it was when it began, whoever writes meanwhile."""
    store = _made(location)
    with store.reading() as transaction:
        thread = _begun(location, "later")
        thread.join(SHORT)
        _expect(len(transaction.since(START)) == 1, "a reader sees nothing of a later writer")
    _ended(thread)
    _expect(len(_events(store)) == 2, "the next reader sees what was written")
    store.close()


def keeps_bytes(location: Where) -> None:
    """Tables and snapshots come back byte by byte; of snapshots few are kept, and each takes the
    place of one of about as many results."""
    store = _made(location)
    table, last = bytes(range(256)) * 400, b"\xff\0?%s" + b"\0" * 70_000
    with store.writing() as transaction:
        digest = transaction.keep(table)
        _expect(transaction.keep(table) == digest, "the same bytes have the same name")
        _expect(transaction.snapshots() == [], "there is no snapshot before one is kept")
        for n, snapshot in ((3, b"?"), (100, b"1"), (200, b"2"), (300, b"3"), (310, last)):
            transaction.put_snapshot(n, snapshot)
    store.close()
    with store.reading() as reading:
        _expect(reading.fetch(digest) == table, "a table comes back as it was written")
        _expect(reading.snapshots() == [310, 200, 100], "few snapshots are kept")
        _expect(reading.snapshot(310) == last, "a snapshot comes back as it was written")
        _expect(reading.snapshot_bytes() == len(last) + 2, "those before it are gone")
    store.close()


def notices_what_changed(location: Where) -> None:
    """An event that was changed behind the log's back is damage; a format of later is said."""
    store = _made(location)
    with store.writing():
        store.execute("UPDATE events SET record = ?", ('{"a":1}',))
    with _raises(StudyDamagedError, "an event that was changed is damage"):
        _events(store)
    with store.writing():
        store.execute("UPDATE manyarms SET version = ?", (FORMAT + 1,))
    with _raises(StudyVersionError, "a later format is said"):
        store.check()
    store.close()


def survives_a_fork(location: Where) -> None:
    """A child writes over a connection of its own; one that dies while it writes keeps nobody
    waiting, and has written nothing."""
    if not hasattr(os, "fork"):
        return
    store = _made(location)
    child = os.fork()
    if not child:
        try:
            _append(store, "child")
            with store.writing() as transaction:
                _renew(transaction, "died")
                os._exit(0)
        finally:
            os._exit(1)
    _expect(os.waitpid(child, 0)[1] == 0, "a child writes")
    _append(store, "parent")
    _expect(_workers(store) == ["child", "parent"], "the dead one has not written")
    store.close()


CHECKS: tuple[Callable[[Where], None], ...] = (
    keeps_what_was_written,
    is_made_once,
    undoes_what_fails,
    lets_one_write,
    reads_one_state,
    keeps_bytes,
    notices_what_changed,
    survives_a_fork,
)
"""All of them."""


def _made(location: Where) -> Store:
    """A place with one event."""
    store = store_at(location)
    settings = {"direction": "maximize", "seed": 0, "options": {}}
    store.create(lambda transaction: transaction.append("create", settings, 0.0))
    return store


def _append(store: Store, worker: str) -> None:
    with store.writing() as transaction:
        _renew(transaction, worker)


def _renew(transaction: Transaction, worker: str) -> None:
    transaction.append("renew", {"worker": worker, "until": 0.0})


def _workers(store: Store) -> list[str]:
    """Who has written after the first event."""
    return [event.payload["worker"] for event in _events(store)[1:]]


def _events(store: Store) -> list[Event]:
    with store.reading() as transaction:
        return transaction.since(START)


def _begun(location: Where, worker: str) -> threading.Thread:
    """Another writer, with a connection of its own."""

    def write() -> None:
        store = store_at(location)
        _append(store, worker)
        store.close()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def _ended(thread: threading.Thread) -> None:
    thread.join(LONG)
    _expect(not thread.is_alive(), "whoever waits goes on when the other has ended")


def _expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise AssertionError(f"this does not hold: {what}")


@contextmanager
def _raises(error: type[Exception], what: str) -> Iterator[None]:
    try:
        yield
    except error:
        return
    _expect(False, what)
