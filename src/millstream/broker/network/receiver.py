"""A thread that receives large frames while the loop goes on.

A third of what a produce request of a megabyte costs is the kernel's copy out of the socket. Where several
connections send such requests, the loop hands the next copy to this thread and meanwhile checks and writes
what has come before; the interpreter lock is free during all of it. The thread does one non-blocking
`recv_into` at a time and knows nothing of frames. Until it is done, nobody else touches the connection.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection

# Bytes waiting in the socket that make it worth it: handing over costs as much as copying some 50 KB.
WORTH_IT = 128 * 1024
# With more in the queue the loop is faster itself.
MAX_QUEUED = 2

_INT = struct.Struct("i")


class Receiver:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Connection, memoryview] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._queued = 0
        # With one core nothing is gained.
        self._max_queued = MAX_QUEUED if len(os.sched_getaffinity(0)) > 1 else 0
        self.done: deque[tuple[Connection, int]] = deque()

    def take(self, connection: Connection, target: memoryview) -> bool:
        """Receive into `target`, then call `connection.received`; false if that is not worth it now."""
        if self._queued >= self._max_queued or len(target) < WORTH_IT or _waiting(connection.fd) < WORTH_IT:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
            self._thread.start()
        self._queued += 1
        self._queue.put((connection, target))
        return True

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            connection, target = work
            self.done.append((connection, connection.receive(target)))
            self._loop.call_soon_threadsafe(self.deliver)

    def deliver(self) -> None:
        """Hand what has been received to its connections."""
        while self.done:
            connection, count = self.done.popleft()
            self._queued -= 1
            connection.received(count)

    def close(self) -> None:
        """Let the thread end, after what it was given."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()


def _waiting(fd: int) -> int:
    """How many bytes are in the socket's receive buffer."""
    try:
        return int(_INT.unpack(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0])
    except OSError:
        return 0
