"""The broker's end of the conversation with the child process that compacts.

A child is started for the first log that is due, kept while there are more, and let go when there are none,
so that an idle broker has no second process. Nothing here takes long: a few lines of JSON a segment.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice

from millstream.storage.cleaning import worker_protocol
from millstream.storage.cleaning.cleaned_segment import Replacement
from millstream.storage.cleaning.worker_protocol import Job, Message, Summary

FACTS_AT_ONCE = 500
LONGEST_LINE = 1 << 20
COMMAND = (sys.executable, "-m", "millstream.storage.cleaning.worker")


class CleanerFailed(Exception):
    """The child could not do it. `damaged`: because of what the log holds, so that trying again is no use."""

    def __init__(self, reason: str, damaged: bool = False) -> None:
        super().__init__(reason)
        self.damaged = damaged


class CleanerProcess:
    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> CleanerProcess:
        try:
            process = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=PIPE, stdout=PIPE, limit=LONGEST_LINE
            )
        except OSError as error:
            raise CleanerFailed(f"the process that compacts does not start: {error}") from error
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def clean(self, job: Job, put_in_place: Callable[[Replacement], Awaitable[None]]) -> Summary:
        """Have one log cleaned; `put_in_place` is awaited for each new segment before the next is begun."""
        await self._tell_facts("aborted", (list(entry) for entry in job.aborted))
        await self._tell_facts("producers", ([pid, *known] for pid, known in job.producers.items()))
        await self._send(worker_protocol.clean_line(job))
        while True:
            message = await self._receive()
            if message["say"] == "replace":
                await put_in_place(worker_protocol.read_replacement(message))
                await self._send(worker_protocol.line("next"))
            elif message["say"] == "done":
                return worker_protocol.read_summary(message)
            elif message["say"] == "failed":
                raise CleanerFailed(message["reason"], bool(message["damaged"]))

    async def end(self) -> None:
        """Let it go. Whatever it was doing stops; what it had written is for `remove_leftovers`."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass
        await self._process.wait()

    async def _tell_facts(self, name: str, facts: Iterable[list[int]]) -> None:
        for some in _slices(facts):
            await self._send(worker_protocol.line("facts", {name: some}))
            await asyncio.sleep(0)

    async def _send(self, data: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(data)
            await stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise CleanerFailed(f"the process that compacts is gone: {error}") from error

    async def _receive(self) -> Message:
        stdout = self._process.stdout
        assert stdout is not None
        text = await stdout.readline()
        if not text.endswith(b"\n"):
            code = await self._process.wait()
            raise CleanerFailed(f"the process that compacts ended with code {code}")
        message: Message = json.loads(text)
        return message


def _slices(facts: Iterable[list[int]]) -> Iterator[list[list[int]]]:
    rest = iter(facts)
    while some := list(islice(rest, FACTS_AT_ONCE)):
        yield some
