"""Files that are whole at any moment."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyarms.runtime.signals import deferred, interruptible


@contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """A new file beside this one, which takes its place at once when the block ends: nobody sees
    half a file. After an error, or a signal that raises, none stays behind. Once the block has
    ended it is on disk.

    Only its owner may read it, and nobody can guess its name: no link that someone put there is
    followed.
    """
    with deferred():
        folder = path.absolute().parent
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=folder)
        os.close(handle)
        draft = Path(name)
        try:
            with interruptible():
                yield draft
            sync(draft)
            draft.replace(path)
            if os.name == "posix":  # elsewhere a directory cannot be opened
                sync(folder)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on disk."""
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
