"""Files that are whole at any moment."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """A new file beside this one, which takes its place at once when the block ends: nobody sees
    half a file. After an error none stays behind.

    Only its owner may read it, and nobody can guess its name: no link that someone put there is
    followed.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.absolute().parent)
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
