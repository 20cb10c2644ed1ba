"""Signals wait for the end of a transaction.

Ctrl-C raises KeyboardInterrupt between any two steps of the main thread, also in the middle of a
rollback. Within `deferred` a signal that has a handler in Python is only noted; its handler is
called after the end. Within `interruptible`, for what takes long, it is called as Python does: when
the compiled function of the moment has returned. The first one that raises closes that window, so
that the way out is not interrupted again. Other threads never see a signal.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

from manyarms.runtime.machine import uncollected

Handler = Callable[[int, FrameType | None], Any]

_NAMES = ("INT", "TERM", "HUP", "QUIT", "BREAK", "ALRM", "VTALRM", "PROF", "USR1", "USR2", "XCPU")
SIGNALS = [getattr(signal, f"SIG{name}") for name in _NAMES if hasattr(signal, f"SIG{name}")]
"""Those for which people install handlers that raise."""
ENDED = 128
"""The exit code of a process that a signal ended, less the number of the signal."""


def raise_to_end() -> None:
    """From here on a request to end the process, and a terminal that is closed, raise SystemExit,
    so that what was begun is cleaned up. What the caller has ignored (nohup) stays so."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, signal.SIGTERM)
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _exit)


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(ENDED + number)


class Deferral:
    """The handlers of this process, set aside."""

    def __init__(self) -> None:
        found = {number: signal.getsignal(number) for number in SIGNALS}
        # SIG_IGN and SIG_DFL are no functions and raise nothing: they stay as they are.
        self._handlers: dict[int, Handler] = {
            number: handler for number, handler in found.items() if callable(handler)
        }
        self._came: list[int] = []
        self._is_over = False
        self.is_lifted = False

    def begin(self) -> None:
        """From here on signals are noted."""
        for number in self._handlers:
            signal.signal(number, self._note)

    def end(self) -> None:
        """Put the handlers back, and call those of the signals that have come."""
        try:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        finally:  # one that is back may have raised before all were
            self._is_over = True
            self._deliver()

    def lift(self) -> None:
        """Let signals through, beginning with those that have come."""
        self.is_lifted = True
        while self._came and self.is_lifted:
            self._note(self._came.pop(0), None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_over:
            self._handlers[number](number, frame)
        elif self.is_lifted:
            self.is_lifted = False  # stays so where the handler raises
            self._handlers[number](number, frame)
            self.is_lifted = True
        elif number not in self._came:
            self._came.append(number)

    def _deliver(self) -> None:
        """Call every handler, also where one of them raises."""
        if self._came:
            number = self._came.pop(0)
            try:
                self._handlers[number](number, None)
            finally:
                self._deliver()


class _Process:
    """What is set aside now; of the main thread."""

    deferral: Deferral | None = None


def _forget() -> None:
    """In the child of a fork that another thread made: the transaction is not the child's."""
    deferral = _Process.deferral
    _Process.deferral = None
    if deferral is not None:
        deferral.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _here() -> Deferral | None:
    return _Process.deferral if _is_main() else None


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def deferred() -> Iterator[None]:
    """Signals that come in such a block are answered at the end of the outermost one."""
    around = _here()
    if around is not None:
        was_lifted = around.is_lifted
        around.is_lifted = False
        yield
        if was_lifted:
            around.lift()
    elif not _is_main():
        yield
    else:
        deferral = Deferral()
        try:
            deferral.begin()
            _Process.deferral = deferral
            yield
        finally:
            _Process.deferral = None
            deferral.end()


@contextmanager
def interruptible() -> Iterator[None]:
    """Within `deferred`: signals are answered here."""
    around = _here()
    if around is None or around.is_lifted:
        yield
        return
    try:
        around.lift()
        yield
    finally:
        around.is_lifted = False


def load(*modules: str) -> None:
    """Import modules, uninterrupted: after an import that Ctrl-C broke off the next one fails.

    For parts of SciPy that few calls need: it would load them at their first use.
    """
    if not all(name in sys.modules for name in modules):
        with deferred(), uncollected():
            for name in modules:
                import_module(name)
