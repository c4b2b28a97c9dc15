"""Links between processes that can be cut: a proxy before each server, which knows who connects to it.

A connection belongs to the process that has its other end; the kernel says which (/proc/net/tcp has the
inode of the socket, /proc/PID/fd who holds it). So one proxy for each server is enough, and the link from one
broker to another is cut while all other links hold.

A cut link is *silent*: nothing moves, nothing is closed, and what was sent arrives when the link is back, as
with a network cable; or it *resets* every connection, as a firewall does. A server that is down has its door
closed: connections to it are refused, as they would be without a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

HOST = "127.0.0.1"
CHUNK = 1 << 16

Result = TypeVar("Result")


class Link(NamedTuple):
    source: str
    target: str


class _Connection:
    """Both ends of one connection through a proxy; `flowing` is clear while its link is silent."""

    def __init__(self, link: Link, client: asyncio.StreamWriter) -> None:
        self.link = link
        self.writers = [client]
        self.flowing = asyncio.Event()

    def abort(self) -> None:
        self.flowing.set()
        for writer in self.writers:
            writer.transport.abort()


class _Door:
    """Where a server's proxy listens, and the port behind it."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.server: asyncio.Server | None = None


class Links:
    """All proxies, on one event loop in a thread. `pids` names the processes that connect."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids = pids
        self._doors: dict[str, _Door] = {}
        self._cut: dict[Link, bool] = {}  # link -> whether it is silent
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- what faults do -------------------------------------------------------------------------------------

    def add(self, target: str, port: int) -> int:
        """A proxy before this server; returns the port to connect to."""
        door = self._doors[target] = _Door(port)
        self._run(self._open(target))
        return door.port

    def cut(self, link: Link, silent: bool) -> None:
        self._run(self._break(link, silent))

    def heal(self, link: Link) -> None:
        self._run(self._mend(link))

    def close_door(self, target: str) -> None:
        """The server is down: its connections end, and new ones are refused."""
        self._run(self._close(target))

    def open_door(self, target: str) -> None:
        self._run(self._open(target))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    # --- on the loop ----------------------------------------------------------------------------------------

    async def _open(self, target: str) -> None:
        door = self._doors[target]
        if door.server is None:
            door.server = await asyncio.start_server(
                lambda reader, writer: self._accept(target, reader, writer), HOST, door.port
            )
            door.port = door.server.sockets[0].getsockname()[1]

    async def _close(self, target: str) -> None:
        door = self._doors[target]
        if door.server is not None:
            door.server.close()
            door.server = None
        for connection in [each for each in self._connections if each.link.target == target]:
            connection.abort()

    async def _break(self, link: Link, silent: bool) -> None:
        self._cut[link] = silent
        for connection in [each for each in self._connections if each.link == link]:
            if silent:
                connection.flowing.clear()
            else:
                connection.abort()

    async def _mend(self, link: Link) -> None:
        self._cut.pop(link, None)
        for connection in self._connections:
            if connection.link == link:
                connection.flowing.set()

    async def _end(self) -> None:
        for target in self._doors:
            await self._close(target)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(target, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = owner(writer.get_extra_info("peername")[1], self._pids())
        connection = _Connection(Link(source, target), writer)
        silent = self._cut.get(connection.link)
        if silent is False:
            writer.transport.abort()
            return
        if silent is None:
            connection.flowing.set()
        self._connections.add(connection)
        try:
            await connection.flowing.wait()
            answers, server = await asyncio.open_connection(HOST, self._doors[target].target_port)
            connection.writers.append(server)
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, server, connection))
                both.create_task(_copy(answers, writer, connection))
        except OSError:
            pass
        finally:
            self._connections.discard(connection)
            connection.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            await connection.flowing.wait()
            writer.write(data)
            await writer.drain()
    connection.abort()


def owner(port: int, pids: Mapping[str, int]) -> str:
    """Which of these processes has the socket with this local port; empty if none has."""
    local = f"0100007F:{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == local and fields[9] != "0":
            wanted = f"socket:[{fields[9]}]"
            break
    else:
        return ""
    for name, pid in pids.items():
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as found:
            for each in found:
                with contextlib.suppress(OSError):
                    if os.readlink(each.path) == wanted:
                        return name
    return ""
