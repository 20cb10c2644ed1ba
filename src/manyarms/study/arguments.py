"""What callers give beside results: names, leases, notes, and which suggestion a result is of."""

import os
import socket
from typing import Any

from manyarms.campaign.trials import as_items
from manyarms.checks import is_whole, real
from manyarms.errors import ParameterError, shortened
from manyarms.study.location import is_plain

LEASE = 86_400.0
"""Seconds of a lease, unless another length is given: one day. This is longer than most trials, and
it ends if the process that asked has died."""
LONGEST_LEASE = 10 * 366 * 86_400
"""Seconds of a lease, at most: a trial of more than ten years is a mistake."""
LONGEST_NAME = 200
"""Characters of a token or a worker's name, at most."""
LONGEST_NOTE = 1000
"""Characters of a note: more is a document, and belongs elsewhere."""


def as_name(name: Any, what: str) -> str:
    """A token, or the name of a worker."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not is_plain(name):
        raise ParameterError(
            f"{what} must be a string of 1 to {LONGEST_NAME} Unicode characters without NUL, got "
            f"{shortened(name)}"
        )
    return name


def as_worker(worker: Any) -> str:
    """The name of this process; host and process id where None."""
    return f"{socket.gethostname()}:{os.getpid()}" if worker is None else as_name(worker, "worker")


def as_lease(lease: Any, usual: float = LEASE) -> float:
    """Seconds of a lease."""
    wanted = f"a positive number of seconds below {LONGEST_LEASE:,}, ten years"
    return usual if lease is None else real(lease, "lease", wanted, above=0, below=LONGEST_LEASE)


def as_note(note: Any) -> str | None:
    """A remark that can be stored and printed; None where there is none."""
    if note is None or (isinstance(note, str) and not note):
        return None
    if not isinstance(note, str) or len(note) > LONGEST_NOTE or not is_plain(note):
        raise ParameterError(
            f"note must be text of at most {LONGEST_NOTE:,} Unicode characters without NUL, got "
            f"{shortened(note)}"
        )
    return note


def as_notes(note: Any, n: int) -> list[str | None] | None:
    """A remark for each of n results, one for all or one each; None where all are without."""
    items = [note] * n if note is None or isinstance(note, str) else as_items(note)
    if len(items) != n:
        raise ParameterError(
            f"note must be one text, or one for each of the {n} ids, got {len(items)}"
        )
    notes = [as_note(item) for item in items]
    return notes if any(notes) else None


def as_batches(batch: Any, n: int) -> list[int] | None:
    """The number of an event for each of n results, 0 where it is not known; None where none is."""
    items = [0] * n if batch is None else as_items(batch)
    if len(items) != n or not all(is_whole(item) and 0 <= item < 10**18 for item in items):
        raise ParameterError(
            f"batch must be the number of an event for each of the {n} ids, got {shortened(batch)}"
        )
    return [int(item) for item in items] if any(items) else None
