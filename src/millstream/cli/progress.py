"""Progress of long work, on the error stream and only where that is a screen: what is piped stays clean."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

DRAW_EVERY = 0.1


class Progress(Protocol):
    def advance(self, steps: int) -> None: ...


class _Silent:
    def advance(self, steps: int) -> None:
        pass


class _Bar:
    """Collects small steps: the bar is drawn ten times a second, so more news is of no use."""

    def __init__(self, bars: Any, task: Any) -> None:
        self._bars = bars
        self._task = task
        self._steps = 0
        self._drawn_at = time.monotonic()

    def advance(self, steps: int) -> None:
        self._steps += steps
        now = time.monotonic()
        if now - self._drawn_at > DRAW_EVERY:
            self._drawn_at = now
            self.flush()

    def flush(self) -> None:
        steps, self._steps = self._steps, 0
        self._bars.advance(self._task, steps)


@contextmanager
def progress(what: str, total: int | None, unit: str) -> Iterator[Progress]:
    """A bar with rate and time left; without a total, the count and the rate."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} {unit}/s")

    count = "{task.completed:,.0f} of {task.total:,.0f}" if total else "{task.completed:,.0f}"
    columns = [TextColumn(what), BarColumn(bar_width=None), TextColumn(f"{count} {unit}"), Rate()]
    columns.append(TimeRemainingColumn() if total else TimeElapsedColumn())
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        # Lines go above the bar on a screen, and into a pipe as they are.
        redirect_stdout=sys.stdout.isatty(),
    ) as bars:
        bar = _Bar(bars, bars.add_task(what, total=total))
        yield bar
        bar.flush()
