"""The writing half of a connection: responses out, in order, as fast as the client takes them.

A response is a list of parts: bytes, or a `FileRange` of a segment, which goes from the page cache to the
socket by sendfile. `MSG_MORE` keeps header and records in one TCP segment. Small responses are held while
more requests are there, and leave together. What the socket does not take waits until it can be written, and
the connection looks at no further request until then.

A base class, not an object of its own: that would cost a call per response.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence

from millstream.broker.network.file_range import FileRange, Part

HOLD_BELOW = 4096  # larger responses are sent at once
BYTES_PER_TURN = 4 * 1024 * 1024


class ResponseWriter:
    __slots__ = (
        "_held",
        "_hold",
        "_out",
        "_writing",
        "bytes_out",
        "closed",
        "fd",
        "last_active",
        "loop",
        "parked",
        "sock",
    )

    # The connection sets all of them; what they are for is said there.
    sock: socket.socket
    fd: int
    loop: asyncio.AbstractEventLoop
    closed: bool
    parked: bool
    last_active: float
    bytes_out: int
    _hold: bool
    _held: list[bytes]
    _out: deque[Part]
    _writing: bool

    def close(self, reason: str = "") -> None:
        raise NotImplementedError

    def _continue(self) -> None:
        """All is sent: go on with the frames that waited for it."""
        raise NotImplementedError

    def _send(self, data: bytes | bytearray | memoryview, more: bool) -> int:
        try:
            return self.sock.send(data, socket.MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            return 0

    def _send_file(self, part: FileRange) -> int:
        try:
            return os.sendfile(self.fd, part.segment.fd, part.position, part.size)
        except (BlockingIOError, InterruptedError):
            return 0

    def send(self, data: bytes) -> None:
        """Send a response that is one piece, as most are."""
        if self._out:
            self._out.append(data)
        elif self._hold and not self.parked and len(data) <= HOLD_BELOW:
            self._held.append(data)
        elif self._held:
            self._held.append(data)
            self.send_held()
        else:
            self._send_now(data)

    def send_held(self) -> None:
        """Send the responses that were kept for the end of the turn."""
        self._hold = False
        held = self._held
        if held and not self.closed:
            self._held = []
            self._send_now(held[0] if len(held) == 1 else b"".join(held))

    def _send_now(self, data: bytes) -> None:
        try:
            sent = self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        self.bytes_out += sent
        if sent < len(data):
            self._out.append(memoryview(data)[sent:])
            self._wait_writable()

    def send_parts(self, parts: Sequence[Part]) -> None:
        """Send a response with file ranges in it, which are released when they are sent."""
        if self._held:
            self._out.extend(self._held)
            self._held = []
        self._out.extend(parts)
        if not self._writing:
            self._flush()

    def _flush(self) -> None:
        out = self._out
        sent_now = 0
        try:
            while out:
                part = out[0]
                if sent_now >= BYTES_PER_TURN:
                    break
                if isinstance(part, FileRange):
                    sent = self._send_file(part)
                    sent_now += sent
                    if sent < part.size:
                        if sent == 0 and os.fstat(part.segment.fd).st_size < part.position + part.size:
                            self.close("the segment became shorter than the response that was being sent")
                            return
                        part.position += sent
                        part.size -= sent
                        break  # the socket is full: another try would only fail
                    out.popleft()
                    part.release()
                else:
                    sent = self._send(part, len(out) > 1)
                    sent_now += sent
                    if sent < len(part):
                        out[0] = memoryview(part)[sent:]
                        break
                    out.popleft()
        except OSError:
            self.close()
            return
        if sent_now:
            self.bytes_out += sent_now
            self.last_active = self.loop.time()
        if out or self._writing:
            self._wait_or_continue()

    def _wait_or_continue(self) -> None:
        """After a turn of writing that could not send all, or that sends what had to wait."""
        if self._out:
            self._wait_writable()
        else:
            self._writing = False
            self.loop.remove_writer(self.fd)
            self._continue()

    def _wait_writable(self) -> None:
        if not self._writing:
            self._writing = True
            self.loop.add_writer(self.fd, self._flush)
