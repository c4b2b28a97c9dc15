"""SPOOL of the SQL shell: what is typed and what is answered also goes to a file, until SPOOL OFF.

All that the shell prints goes through `sys.stdout`, so that is what is replaced while a spool is open. Lines
that were typed are not printed by us but by the terminal; the shell hands them over with their prompt.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO, cast

from millstream.cli.errors import CommandFailed


class Spool:
    """At most one file at a time, as in ksqlDB's shell."""

    def __init__(self) -> None:
        self._tee: _Tee | None = None
        self._path = Path()

    @property
    def is_open(self) -> bool:
        return self._tee is not None

    def open(self, name: str) -> None:
        self.close()
        path = Path(name).expanduser().absolute()
        try:
            file = path.open("w", encoding="utf-8")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CommandFailed(f"cannot spool to {path}: {reason}") from None
        print(f"Session will be spooled to {path}\nEnter SPOOL OFF to disable")
        self._path = path
        self._tee = _Tee(sys.stdout, file)
        sys.stdout = cast(TextIO, self._tee)

    def typed(self, prompt: str, line: str) -> None:
        if self._tee is not None:
            self._tee.keep(f"{prompt}{line}\n")

    def close(self) -> None:
        if self._tee is None:
            return
        tee, self._tee = self._tee, None
        sys.stdout = tee.shown
        tee.file.close()
        print(f"Spool written to {self._path}")


class _Tee:
    """A stream that writes to the terminal and to a file. All else it has is the terminal's."""

    def __init__(self, shown: TextIO, file: TextIO) -> None:
        self.shown = shown
        self.file = file

    def write(self, text: str) -> int:
        self.keep(text)
        return self.shown.write(text)

    def keep(self, text: str) -> None:
        try:
            self.file.write(text)
        except OSError as error:  # a full disk: the session goes on, and says so with each answer
            self.shown.write(f"[not spooled: {(error.strerror or str(error)).lower()}]\n")

    def flush(self) -> None:
        self.shown.flush()
        try:
            self.file.flush()
        except OSError as error:
            self.shown.write(f"[not spooled: {(error.strerror or str(error)).lower()}]\n")

    def __getattr__(self, name: str) -> object:
        return getattr(self.shown, name)
