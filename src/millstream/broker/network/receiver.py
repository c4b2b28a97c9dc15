"""A thread that receives large frames, so that copying them out of the socket does not wait for the loop, nor the loop for it.

A third of what a produce request of a megabyte costs is the kernel's copy out of the socket. Where several connections send
such requests, the loop hands the next copy to this thread and meanwhile checks and writes what has come before; the
interpreter lock is free during all of them. The thread does one `recv_into` at a time, which never waits, and knows nothing
of frames. Until it is done the connection is nobody else's.
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

WORTH_IT = 128 * 1024  # bytes that wait in the socket; handing over costs as much as copying some 50 KB
IN_QUEUE = 2  # with more waiting, the loop is faster itself

_INT = struct.Struct("i")


class Receiver:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Connection, memoryview] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._in_work = 0
        self._most = IN_QUEUE if len(os.sched_getaffinity(0)) > 1 else 0  # with one core nothing is won
        self.done: deque[tuple[Connection, int]] = deque()

    def take(self, connection: Connection, room: memoryview) -> bool:
        """Receive into `room` and call `connection.received` afterwards; false if that is not worth it now."""
        if self._in_work >= self._most or len(room) < WORTH_IT or _waiting(connection.fd) < WORTH_IT:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
            self._thread.start()
        self._in_work += 1
        self._queue.put((connection, room))
        return True

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            connection, room = work
            self.done.append((connection, connection.receive(room)))
            self._loop.call_soon_threadsafe(self.deliver)

    def deliver(self) -> None:
        """Tell the connections whose bytes have come."""
        while self.done:
            connection, count = self.done.popleft()
            self._in_work -= 1
            connection.received(count)

    def close(self) -> None:
        """Let the thread end, after what it has been given."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()


def _waiting(fd: int) -> int:
    """How many bytes lie in the socket's buffer."""
    try:
        return int(_INT.unpack(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0])
    except OSError:
        return 0
