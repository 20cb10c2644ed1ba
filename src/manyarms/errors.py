"""Every error that manyarms raises on purpose.

    ManyArmsError
    ├── ParameterError (ValueError)       a setting is out of its range
    ├── ArmsError (ValueError)            the candidates cannot be used
    │   └── UnknownArmError (IndexError)  an index that names no candidate
    ├── ObservationError (ValueError)     a reward that cannot be learned from
    ├── KernelError (ValueError)          a kernel that is not a finite, symmetric, PSD function
    ├── MemoryBudgetError (MemoryError)   a problem that does not fit the memory allowed
    ├── NumericalError (ArithmeticError)  a factorisation that float64 cannot carry
    ├── StateError (RuntimeError)         asked for before there is anything to answer from
    ├── ClusterError (RuntimeError)       machines that cannot be reached, or do not answer
    ├── RequestError (LookupError)        a request that waits for no reward, or waits already
    ├── SavedStateError (ValueError)      a file of a stream that is damaged, or of another policy
    └── StudyError (RuntimeError)         a study that cannot be made, opened or used so
        ├── StudyDamagedError             its log is not whole; `whole` events of it are
        ├── StudyStorageError             the disk or the database refused
        └── StudyVersionError             written by a newer version, or by an earlier one

Each message says what was expected, what came, and what to change. The object that raised is as it
was before. What a message is made of can be read off the error, so nobody has to parse it:
`problem` and `fields` (column, row, id, option, expected, got), and `advice`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

__all__ = [
    "ArmsError",
    "ClusterError",
    "KernelError",
    "ManyArmsError",
    "MemoryBudgetError",
    "NumericalError",
    "ObservationError",
    "ParameterError",
    "RequestError",
    "SavedStateError",
    "StateError",
    "StudyDamagedError",
    "StudyError",
    "StudyStorageError",
    "StudyVersionError",
    "UnknownArmError",
]


class Fields(TypedDict, total=False):
    """What an error is about; only what applies is there."""

    option: str  # the argument that is wrong
    column: str  # of a table
    row: int  # of the table that was given, from 0
    id: Any  # of a candidate
    expected: str
    got: Any


@dataclass(frozen=True)
class Advice:
    """One way out of an error, by an option or a call of the library.

    `words` say it, with {} in place of the option or call: Advice("leave the row out ({})",
    "missing", "drop"). So another program can name what does the same there.
    """

    words: str
    option: str = ""
    value: Any = None


def in_python(option: str, value: Any) -> str:
    """An option or a call as it is written in Python."""
    return option if value is None else f"{option}={shortened(value)}"


class ManyArmsError(Exception):
    """Root of every error raised on purpose.

    Attributes
    ----------
    problem : str
        What was expected and what came. Where there are `fields`, their names stand in it in
        braces; {got} is shortened there, {place} is made of row and id.
    advice : tuple of Advice
        What to do: any of these.
    fields : dict
        What the problem is about.
    """

    def __init__(self, problem: str, *advice: str | Advice, **fields: Unpack[Fields]) -> None:
        self.problem = problem
        self.advice = tuple(Advice(each) if isinstance(each, str) else each for each in advice)
        self.fields = fields
        super().__init__(self.said())

    def said(self, named: Callable[[str, Any], str | None] = in_python) -> str:
        """The message, with options and calls as `named(option, value)` has them; advice for which
        that is None is left out."""
        ways = [
            each.words.replace("{}", name)
            for each in self.advice
            if (name := named(each.option, each.value)) is not None
        ]
        return "; ".join([self._what(named), _any_of(ways)] if ways else [self._what(named)])

    def _what(self, named: Callable[[str, Any], str | None]) -> str:
        if not self.fields:
            return self.problem
        option = named(self.fields.get("option", ""), None)
        id = f" (id {shortened(self.fields['id'])})" if "id" in self.fields else ""
        place = f"row {self.fields.get('row')}{id}"
        shown = {
            name: value if isinstance(value, str) else _Shown(shortened(value))
            for name, value in self.fields.items()
        }
        got = shortened(self.fields.get("got"))
        return self.problem.format_map({**shown, "got": got, "option": option, "place": place})


def shortened(thing: Any) -> str:
    """As Python shows it, at most 60 characters."""
    try:
        text = repr(thing)
    except Exception:  # Python writes no number of 4,301 digits; a class of the caller may fail
        if isinstance(thing, int):
            return f"a number of {thing.bit_length():,} bits"
        text = f"a {type(thing).__name__} that cannot be written"
    return text if len(text) <= 60 else text[:57] + "…"


class _Shown(str):
    """A value as it is shown, also where a message shows it as Python would."""

    __repr__ = str.__str__


def _any_of(ways: list[str]) -> str:
    """ "a"; "a, or b"; "a, b, or c"."""
    return ", ".join([*ways[:-1], f"or {ways[-1]}"] if len(ways) > 1 else ways)


class ParameterError(ManyArmsError, ValueError):
    """A setting is out of its range."""


class ArmsError(ManyArmsError, ValueError):
    """The candidates cannot be used."""


class UnknownArmError(ArmsError, IndexError):
    """An index that names no candidate."""


class ObservationError(ManyArmsError, ValueError):
    """A reward, or its noise, that cannot be learned from."""


class KernelError(ManyArmsError, ValueError):
    """A kernel that is not a finite, symmetric, positive semi-definite function of two rows."""


class MemoryBudgetError(ManyArmsError, MemoryError):
    """A problem that does not fit the memory allowed."""


class NumericalError(ManyArmsError, ArithmeticError):
    """A factorisation that float64 cannot carry."""


class StateError(ManyArmsError, RuntimeError):
    """Asked for something before there is anything to answer from."""


class ClusterError(ManyArmsError, RuntimeError):
    """Machines that cannot be reached or used, or a shard that does not come back."""


class RequestError(ManyArmsError, LookupError):
    """A request of a stream that is not waiting for a reward, or that is waiting already."""


class SavedStateError(ManyArmsError, ValueError):
    """A file of a stream that cannot be read: it is damaged, no such file, or of another policy."""


class StudyError(ManyArmsError, RuntimeError):
    """A study that cannot be made, opened or used so."""


class StudyDamagedError(StudyError):
    """The log of a study is not whole: of `whole` events, from the first on, it is certain that
    they are as written."""

    def __init__(self, problem: str, *advice: str | Advice, whole: int = 0) -> None:
        super().__init__(problem, *advice)
        self.whole = whole


class StudyStorageError(StudyError):
    """The disk or the database refused: nothing was written, call again; or it says that this is
    not known."""


class StudyVersionError(StudyError):
    """A study written by a newer version than this one, or by an earlier one."""


class NormWarning(UserWarning):
    """A bound on the norm of f that the data refute."""
