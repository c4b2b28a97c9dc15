"""A connection that speaks TLS: `Connection` over a non-blocking `SSLSocket`, after its handshake.

What differs from a plain socket:

Reading. OpenSSL gives at most one record (16 KB) a call and keeps what did not fit into the buffer, where
epoll does not see it. So a buffer that came back full may hide more: `_hidden` remembers that, and whoever
makes the connection ready to read again looks again (`_look_again`).

Writing. A write that could not finish must be repeated with the same bytes, so what is to be sent is cut at
places that do not depend on how far it got: pieces of up to 128 KB, gathered from all parts of a response
into one buffer, which also spares small parts a TLS record of their own. Ranges of files are simply read
again.

Hanging up. A peer that leaves sends a last record (close_notify). While a request is at work nothing is read,
so the record's header tells it apart from a request that was sent ahead.

One thread. OpenSSL forbids reading and writing at the same time, so the receiving thread has no part in this.
"""

from __future__ import annotations

import os
import socket
import ssl

from millstream.broker.network.connection import SCRATCH_SIZE, Connection
from millstream.broker.network.file_range import FileRange

PIECE = 128 * 1024
BYTES_PER_TURN = 1024 * 1024  # encrypting a megabyte takes the loop about half a millisecond
RECORD = 16 * 1024  # what a TLS record holds at most

# Header of a record: type, version (2 bytes), length (2). TLS 1.3 shows every record as application data; a
# close_notify is then one of 19 bytes, less than any request.
_ALERT = b"\x15"
_ALERT_1_3 = b"\x17\x03\x03\x00\x13"

_gathered = bytearray(PIECE)
_gathered_view = memoryview(_gathered)


class TlsConnection(Connection):
    __slots__ = ("_ahead", "_attempt", "_hidden")

    hands_over = False
    sock: ssl.SSLSocket

    def __init__(self, *arguments: object) -> None:
        self._ahead = b""  # read while looking for the peer's goodbye
        self._attempt = 0  # bytes of the write that has to be repeated
        self._hidden = False  # OpenSSL may hold bytes that epoll does not see
        super().__init__(*arguments)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ reading

    def receive(self, into: memoryview) -> int:
        room = len(into)
        got = 0
        if self._ahead:
            got = min(room, len(self._ahead))
            into[:got] = self._ahead[:got]
            self._ahead = self._ahead[got:]
        self._hidden = False
        read = self.sock.read
        try:
            while got < room:
                count = read(room - got, into[got:] if got else into)
                if not count:  # the peer said goodbye: what came before is handled first
                    self._hidden = got > 0
                    return got
                got += count  # type: ignore[operator]
                if count < RECORD:  # type: ignore[operator]
                    # A record that was not full, and all of it is here: what follows lies in the socket.
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return got or -1
        except (OSError, ValueError):
            self._hidden = got > 0
            return got
        self._hidden = got == room
        return got

    def readable(self) -> None:
        super().readable()
        if self._hidden:
            self.loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        if self._hidden and not (self.closed or self.parked or self._out):
            self.readable()

    def _continue(self) -> None:
        super()._continue()
        self._look_again()

    def resume(self) -> None:
        super().resume()
        if self._hidden:
            self.loop.call_soon(self._look_again)

    def _notice_hangup(self) -> None:
        try:
            ahead = socket.socket.recv(self.sock, 5, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            ahead = b""
        if not ahead:
            self.close()
            return
        if ahead.startswith(_ALERT) or ahead == _ALERT_1_3:
            try:
                found = self.sock.read(RECORD)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except (OSError, ValueError):
                found = b""
            if not found:
                self.close()
                return
            assert isinstance(found, bytes)
            self._ahead += found
            self._hidden = True
        self._sent_ahead()

    # ------------------------------------------------------------------ writing

    def _send_now(self, data: bytes) -> None:
        size = len(data)
        if size > PIECE:
            self._out.append(data)
            self._flush()
            return
        try:
            self.sock.write(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._attempt = size
            self._out.append(data)
            self._wait_writable()
            return
        except (OSError, ValueError):
            self.close()
            return
        self.bytes_out += size

    def _flush(self) -> None:
        out = self._out
        sent_now = 0
        try:
            while out and sent_now < BYTES_PER_TURN:
                size = self._gather(self._attempt or PIECE)
                if not size:
                    self.close("the segment became shorter than the response that was being sent")
                    return
                self._attempt = size
                self.sock.write(_gathered_view[:size])
                self._attempt = 0
                self._sent(size)
                sent_now += size
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (OSError, ValueError):
            self.close()
            return
        if sent_now:
            self.bytes_out += sent_now
            self.last_active = self.loop.time()
        if out or self._writing:
            self._wait_or_continue()

    def _gather(self, limit: int) -> int:
        """Copy the next bytes of the response into the shared buffer; 0 if a file is shorter than it was."""
        at = 0
        for part in self._out:
            room = limit - at
            if isinstance(part, FileRange):
                wanted = min(part.size, room)
                while wanted:
                    found = os.preadv(
                        part.segment.fd,
                        [_gathered_view[at : at + wanted]],
                        part.position + min(part.size, room) - wanted,
                    )
                    if not found:
                        return 0
                    at += found
                    wanted -= found
            else:
                wanted = min(len(part), room)
                _gathered_view[at : at + wanted] = part[:wanted]
                at += wanted
            if at >= limit:
                break
        return at

    def _sent(self, size: int) -> None:
        """So much of the response has been written."""
        out = self._out
        while size:
            part = out[0]
            if isinstance(part, FileRange):
                taken = min(size, part.size)
                part.position += taken
                part.size -= taken
                if not part.size:
                    part.release()
                    out.popleft()
            else:
                taken = min(size, len(part))
                if taken < len(part):
                    out[0] = memoryview(part)[taken:]
                else:
                    out.popleft()
            size -= taken

    # ------------------------------------------------------------------ the end

    def _close_socket(self) -> None:
        try:
            if not self._attempt:
                self.sock.unwrap()  # says goodbye, so that the peer knows that nothing was cut off
        except (OSError, ValueError):
            pass
        self.sock.close()


assert SCRATCH_SIZE >= RECORD
