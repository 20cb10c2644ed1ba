"""What people write beside results: remarks, and which suggestion a result is of."""

from typing import Any

from manyarms.campaign.trials import as_items
from manyarms.checks import is_whole
from manyarms.errors import ParameterError, shortened
from manyarms.study.location import is_plain

LONGEST_NOTE = 1000
"""Characters of a note: more is a document, and belongs elsewhere."""


def as_note(note: Any) -> str:
    """A remark that can be stored and printed."""
    if not isinstance(note, str) or len(note) > LONGEST_NOTE or not is_plain(note):
        raise ParameterError(
            f"note must be text of at most {LONGEST_NOTE:,} Unicode characters without NUL, got "
            f"{shortened(note)}"
        )
    return note


def as_notes(note: Any, n: int) -> list[str | None]:
    """A remark for each of n results: one for all, or one each; None where there is none."""
    if note is None or isinstance(note, str):
        return [as_note(note) if note else None] * n
    items = as_items(note)
    if len(items) != n:
        raise ParameterError(
            f"note must be one text, or one for each of the {n} ids, got {len(items)}"
        )
    return [as_note(item) if item else None for item in items]


def as_batches(batch: Any, n: int) -> list[int]:
    """The number of an event for each of n results, 0 where it is not known."""
    items = [0] * n if batch is None else as_items(batch)
    if len(items) != n or not all(is_whole(item) and 0 <= item < 10**18 for item in items):
        raise ParameterError(
            f"batch must be the number of an event for each of the {n} ids, got {shortened(batch)}"
        )
    return [int(item) for item in items]
