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
    └── StudyError (RuntimeError)         a study that cannot be made, opened or used so
        ├── StudyDamagedError             its log is not whole; `whole` events of it are
        ├── StudyStorageError             the disk or the database refused: nothing was written
        └── StudyVersionError             written by a newer version, or by manyarms 0.1

Each message says what was expected, what came, and what to change. The object that raised is as it
was before.
"""

__all__ = [
    "ArmsError",
    "KernelError",
    "ManyArmsError",
    "MemoryBudgetError",
    "NumericalError",
    "ObservationError",
    "ParameterError",
    "StateError",
    "StudyDamagedError",
    "StudyError",
    "StudyStorageError",
    "StudyVersionError",
    "UnknownArmError",
]


class ManyArmsError(Exception):
    """Root of every error raised on purpose."""


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


class StudyError(ManyArmsError, RuntimeError):
    """A study that cannot be made, opened or used so."""


class StudyDamagedError(StudyError):
    """The log of a study is not whole: of `whole` events, from the first on, it is certain that
    they are as written."""

    def __init__(self, message: str, whole: int = 0) -> None:
        super().__init__(message)
        self.whole = whole


class StudyStorageError(StudyError):
    """The disk or the database refused: nothing was written, call again; or it says that this is
    not known."""


class StudyVersionError(StudyError):
    """A study written by a newer version than this one, or by manyarms 0.1."""


class NormWarning(UserWarning):
    """A bound on the norm of f that the data refute."""
