"""The program, called in this process."""

import contextlib
import io
import json
from typing import NamedTuple

from manyarms.cli import main


class Said(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def data(self):
        """The answer of a command with --json."""
        return json.loads(self.out)


def said(*arguments) -> Said:
    """Run the program as it is run by a shell."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main([str(argument) for argument in arguments])
    return Said(code, out.getvalue(), err.getvalue())


def manyarms(*arguments, code=0) -> Said:
    """Run the program, which must end with this exit code."""
    answer = said(*arguments)
    assert answer.code == code, f"{arguments}: {answer}"
    return answer


def assert_one_line(answer: Said) -> None:
    """An error is one line that begins so, on stderr alone."""
    assert answer.err.startswith("error: "), answer
    assert answer.err.count("\n") == 1, answer
    assert not answer.out, answer
