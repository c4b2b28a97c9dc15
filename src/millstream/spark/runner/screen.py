"""What a running pipeline shows: a live table on a terminal, plain lines in a pipe or a log."""

import sys
import time
from typing import Any, Protocol, TextIO

from millstream.spark.runner.status_records import QueryStatus, Status

LINE_EVERY = 5.0


class Screen(Protocol):
    def message(self, text: str) -> None: ...

    def show(self, statuses: list[Status]) -> None: ...

    def close(self) -> None: ...


def screen_for(stream: TextIO) -> Screen:
    return Live(stream) if stream.isatty() else Lines(stream)


class Lines:
    """A line per query, when there is news, every few seconds."""

    def __init__(self, stream: TextIO, every: float = LINE_EVERY) -> None:
        self._stream = stream
        self._every = every
        self._shown: dict[tuple[str, str], tuple[float, int]] = {}

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def show(self, statuses: list[Status]) -> None:
        now = time.monotonic()
        for status in statuses:
            for query in status.queries:
                last, updated = self._shown.get((status.pipeline, query.name), (float("-inf"), 0))
                if query.updated != updated and now - last >= self._every:
                    self._shown[status.pipeline, query.name] = (now, query.updated)
                    self.message(line(status, query))

    def close(self) -> None:
        pass


class Live:
    """A table that stays in its place."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console(file=stream, highlight=False)
        self._live = RichLive(console=self._console, refresh_per_second=4, transient=False)
        self._begun = False

    def message(self, text: str) -> None:
        self._console.print(text, markup=False)

    def show(self, statuses: list[Status]) -> None:
        if not self._begun:
            self._live.start()
            self._begun = True
        self._live.update(table(statuses))

    def close(self) -> None:
        if self._begun:
            self._live.stop()


def line(status: Status, query: QueryStatus) -> str:
    name = query.name if query.name == status.pipeline else f"{status.pipeline}/{query.name}"
    parts = [
        f"{name}: batch {query.batch}",
        f"{query.input_rate:,.0f} rows/s in",
        f"{query.process_rate:,.0f} rows/s done",
        f"lag {'?' if query.lag is None else f'{query.lag:,}'}",
        f"{query.batch_ms:,} ms a batch",
        f"{query.rows:,} rows",
    ]
    if query.state_rows:
        parts.append(f"state {query.state_rows:,} rows, {size(query.state_bytes)}")
    if query.late_rows:
        parts.append(f"{query.late_rows:,} too late")
    if status.last_error:
        parts.append(f"last error: {status.last_error}")
    return ", ".join(parts)


def table(statuses: list[Status]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in COLUMNS:
        made.add_column(
            column, justify="left" if column in ("pipeline", "query", "state", "last error") else "right"
        )
    now = round(time.time() * 1000)
    for status in statuses:
        for row in rows(status, now):
            made.add_row(*row)
    return made


COLUMNS = (
    "pipeline",
    "query",
    "state",
    "batch",
    "rows/s in",
    "rows/s done",
    "lag",
    "batch ms",
    "rows",
    "state rows",
    "state size",
    "last error",
)


def rows(status: Status, now_ms: int) -> list[list[str]]:
    """A table row per query of a pipeline."""
    state = status.shown_state(now_ms)
    found = []
    for query in status.queries or [QueryStatus(status.pipeline)]:
        found.append(
            [
                status.pipeline,
                query.name,
                state,
                "" if query.batch < 0 else str(query.batch),
                f"{query.input_rate:,.0f}",
                f"{query.process_rate:,.0f}",
                "" if query.lag is None else f"{query.lag:,}",
                f"{query.batch_ms:,}",
                f"{query.rows:,}",
                f"{query.state_rows:,}" if query.state_rows else "",
                size(query.state_bytes) if query.state_bytes else "",
                (status.last_error or "")[:60],
            ]
        )
    return found


def size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def default_screen() -> Screen:
    return screen_for(sys.stdout)
