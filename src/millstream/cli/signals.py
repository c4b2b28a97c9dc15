"""Ctrl-C and SIGTERM as an exception, raised only where a command can be interrupted."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM. As Python's KeyboardInterrupt it is no Exception: what a client does about a broken
    connection or bad bytes must not take it for one of those."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.code = 128 + number


class InterruptGuard:
    """Ctrl-C and SIGTERM as `Interrupted`, but only where it is welcome, so that what is under way comes to
    its end. A second signal does not wait."""

    def __init__(self) -> None:
        self._interruptible = False
        self._pending = 0
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "InterruptGuard":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous_handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        immediately = self._interruptible or self._pending
        self._pending = number
        if immediately:
            raise Interrupted(number)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        self._interruptible = True  # before the look back: a signal between the two must not get lost
        try:
            if self._pending:
                raise Interrupted(self._pending)
            yield
        except Exception:
            # Not everything lets an exception through as it is: one that comes while a module is imported
            # may leave it as a RuntimeError (of __set_name__). After a signal it is that signal.
            if self._pending:
                raise Interrupted(self._pending) from None
            raise
        finally:
            self._interruptible = False
