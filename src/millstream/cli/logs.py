"""`millstream logs`: what the services print, together or one by one."""

import os
import sys
import time
from pathlib import Path
from typing import IO, Annotated

import typer

from millstream.cli import shared_options, signals
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.up import DataDir

FOLLOW_PAUSE = 0.2
BLOCK = 65_536
COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")


def command(
    service: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="Which services. Without it: all.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with new lines as they come.")
    ] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", metavar="N", help="So many lines of each from the end; 0: all.")
    ] = 50,
    data_dir: DataDir = "",
    version: shared_options.Version = False,
) -> int:
    """Show what the services of `millstream up` print. It works after they have ended, too."""
    if version:
        return shared_options.show_version()
    if lines < 0:
        raise UsageError(f"-n {lines}: a number of 0 or more")
    from millstream.up.data_folders import SeveralRunning, find

    try:
        home = find(data_dir)
    except SeveralRunning as several:
        raise CommandFailed(
            f"`up` runs more than once; name one with --data-dir FOLDER:\n{several}"
        ) from None
    there = {path.stem: path for path in sorted(home.logs.glob("*.log"))}
    if not there:
        raise CommandFailed(f"there are no logs in {home.logs}")
    for name in service or ():
        if name not in there:
            raise CommandFailed(f"there is no log of '{name}'; there are {', '.join(there)}")
    wanted = {name: path for name, path in there.items() if not service or name in service}
    printer = Printer(list(wanted))
    tails = [Tail(name, path, lines) for name, path in wanted.items()]
    try:
        with signals.InterruptGuard() as interrupts, interrupts.interruptible():
            while True:
                for tail in tails:
                    for line in tail.new_lines():
                        printer.put(tail.name, line)
                sys.stdout.flush()
                if not follow:
                    return 0
                time.sleep(FOLLOW_PAUSE)
    except signals.Interrupted as stopped:
        return stopped.code
    finally:
        for tail in tails:
            tail.close()


class Tail:
    """The end of a file, and what comes to it. A file that became shorter was cut: it is read from its
    beginning."""

    def __init__(self, name: str, path: Path, lines: int) -> None:
        self.name = name
        self._path = path
        self._file: IO[bytes] = path.open("rb")
        self._rest = b""
        if lines:
            self._file.seek(self._start_of(lines))

    def _start_of(self, lines: int) -> int:
        """Where the last so many lines begin: block by block from the end, until there are enough line
        ends."""
        at = self._file.seek(0, os.SEEK_END)
        tail = b""
        while at > 0 and tail.count(b"\n") <= lines:
            step = min(at, BLOCK)
            at -= step
            self._file.seek(at)
            tail = self._file.read(step) + tail
        kept = b"".join(tail.splitlines(keepends=True)[-lines:])
        return at + len(tail) - len(kept)

    def new_lines(self) -> list[bytes]:
        try:
            if os.fstat(self._file.fileno()).st_ino != self._path.stat().st_ino:
                self._file.close()
                self._file = self._path.open("rb")
            elif os.fstat(self._file.fileno()).st_size < self._file.tell():
                self._file.seek(0)
        except OSError:
            return []
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        return whole

    def close(self) -> None:
        self._file.close()


class Printer:
    """Lines with the name of the service in front, in a colour where there is a screen; without it if there
    is one only."""

    def __init__(self, names: list[str]) -> None:
        from rich.console import Console

        self._console = Console(markup=False, highlight=False, soft_wrap=True)
        self._width = max(map(len, names))
        self._colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
        self._alone = len(names) == 1

    def put(self, name: str, line: bytes) -> None:
        text = line.decode(errors="replace")
        if self._alone:
            print(text)
        elif self._console.is_terminal:
            from rich.text import Text

            self._console.print(Text(f"{name:<{self._width}}", self._colour[name]) + Text(f" | {text}"))
        else:
            print(f"{name:<{self._width}} | {text}")
