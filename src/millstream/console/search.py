"""Searches that run: each a child process, whose hits and progress are kept for whoever looks at its page."""

import asyncio
import base64
import json
import logging
import secrets
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from millstream.console.message_pages import PartitionRecord
from millstream.wire.records import Record

log = logging.getLogger(__name__)

KEEP_SECONDS = 900.0  # seconds that a finished search can be looked at
MAX_LINE = 4 << 20  # a hit with a key, a value and headers of the largest size


class Search:
    """One search. `hits` grows while it runs; `progress` is the last report."""

    def __init__(self, task: dict[str, Any], owner: str) -> None:
        self.id = secrets.token_urlsafe(9)
        self.task = task
        self.owner = owner
        self.hits: list[PartitionRecord] = []
        self.progress: dict[str, Any] = {}
        self.error: str | None = None
        self.cancelled = False
        self.ended = False
        self.ended_at = 0.0
        self._changed = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._runner: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._runner = asyncio.ensure_future(self._run())

    def cancel(self) -> None:
        if not self.ended:
            self.cancelled = True
            if self._process is not None and self._process.returncode is None:
                self._process.kill()

    async def changes(self) -> AsyncIterator[None]:
        """Yields whenever there is something new, and for the last time when the search has ended."""
        while True:
            changed, last = self._changed, self.ended
            yield
            # Not self.ended: the end may have come while the caller was busy, and has to be seen too.
            if last:
                return
            await changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "millstream.console.search_worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_LINE,
            )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            if self.cancelled:
                self._process.kill()
            self._process.stdin.write(json.dumps(self.task).encode() + b"\n")
            await self._process.stdin.drain()
            async for line in self._process.stdout:
                self._apply(json.loads(line))
                self._notify()
            await self._process.wait()
            finished = self.progress.get("kind") == "done"
            if not finished and not self.cancelled and self.error is None:
                self.error = f"the search ended unexpectedly (exit code {self._process.returncode})"
        except (OSError, ValueError) as error:
            if not self.cancelled:
                log.warning("a search failed: %s", error)
                self.error = str(error)
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
        finally:
            self.ended = True
            self.ended_at = time.monotonic()
            self._notify()

    def _apply(self, event: dict[str, Any]) -> None:
        if event["kind"] == "hit":
            headers = tuple((name, _bytes(value)) for name, value in event["headers"])
            record = Record(
                event["offset"], event["timestamp"], _bytes(event["key"]), _bytes(event["value"]), headers
            )
            self.hits.append(PartitionRecord(event["partition"], record))
        elif event["kind"] == "failed":
            self.error = event["message"]
        else:
            self.progress = event


def drop_old_searches(searches: dict[str, Search]) -> None:
    oldest = time.monotonic() - KEEP_SECONDS
    for name in [name for name, search in searches.items() if search.ended and search.ended_at < oldest]:
        del searches[name]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
