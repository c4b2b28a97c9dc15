"""TLS handshakes of new connections, in two threads beside the loop.

A handshake costs the broker 0.4 ms (ECDSA P-256) to 1.1 ms (RSA-2048), most of it without the interpreter
lock. In the loop, a burst of new clients would hold up everybody who is connected already. Each thread has an
epoll of its own and goes from one unfinished handshake to the next, so a client that stalls costs nothing but
its place. Places are bounded in three ways: a handshake has ten seconds, it counts as a connection from the
moment it was accepted (`max.connections`, `max.connections.per.ip`), and when MAX_HALF_OPEN are unfinished
the oldest of them makes room for the newest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.settings.principal_mapping import NoRuleMatches
from millstream.wire.certificate import read_certificate

if TYPE_CHECKING:
    from millstream.broker.tls.stores import Material

logger = logging.getLogger("millstream.tls")

THREADS = 2
TIMEOUT = 10.0  # seconds for one handshake
MAX_HALF_OPEN = 1000
# A peer that leaves without a word is a port scan or a health check, not a failure.
LEFT = ""
UNEXPECTED = "an unexpected error, see above"


class Handshake:
    """One of them. When it is over, `finished(handshake, error)` is called in the loop: `sock` speaks TLS if
    there is no error, `user` is what the client's certificate says, if it has one."""

    __slots__ = ("deadline", "finished", "host", "material", "port", "sock", "user")

    def __init__(
        self,
        sock: socket.socket,
        host: str,
        port: int,
        material: Material,
        finished: Callable[[Handshake, str | None], None],
    ) -> None:
        self.sock = sock
        self.host = host
        self.port = port
        self.material = material
        self.finished = finished
        self.deadline = time.monotonic() + TIMEOUT
        self.user: str | None = None


class Handshakes:
    """All handshakes of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._workers: list[_Worker] = []
        self._half_open: dict[Handshake, _Worker] = {}  # oldest first
        self.done = 0
        self.failed = 0
        self.evicted = 0

    @property
    def half_open(self) -> int:
        return len(self._half_open)

    def begin(self, handshake: Handshake) -> None:
        if not self._workers:
            self._workers = [_Worker(self._over) for _ in range(THREADS)]
        if len(self._half_open) >= MAX_HALF_OPEN:
            oldest = next(iter(self._half_open))
            self.evicted += 1
            oldest.deadline = 0.0
            self._half_open.pop(oldest).wake()
        worker = min(self._workers, key=lambda each: each.load)
        self._half_open[handshake] = worker
        worker.begin(handshake)

    def _over(self, handshake: Handshake, error: str | None) -> None:
        """Called in a worker's thread."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, handshake, error)
        except RuntimeError:  # the loop is closed: the broker has stopped
            handshake.sock.close()

    def _deliver(self, handshake: Handshake, error: str | None) -> None:
        self._half_open.pop(handshake, None)
        if error is None:
            self.done += 1
        elif error != LEFT:
            self.failed += 1
        handshake.finished(handshake, error)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


class _Worker:
    def __init__(self, over: Callable[[Handshake, str | None], None]) -> None:
        self._over = over
        self._new: deque[Handshake] = deque()
        self._epoll = select.epoll()
        self._at_work: dict[int, Handshake] = {}  # by descriptor, oldest first
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="tls-handshakes", daemon=True)
        self._thread.start()

    @property
    def load(self) -> int:
        return len(self._new) + len(self._at_work)

    def begin(self, handshake: Handshake) -> None:
        self._new.append(handshake)
        self.wake()

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        self._closing = True
        self.wake()
        self._thread.join()
        for handshake in (*self._new, *self._at_work.values()):
            handshake.sock.close()
        self._epoll.close()
        os.close(self._wake)

    def _run(self) -> None:
        while not self._closing:
            timeout = None
            if self._at_work:
                timeout = max(0.0, next(iter(self._at_work.values())).deadline - time.monotonic())
            for fd, _ in self._epoll.poll(timeout):
                if fd == self._wake:
                    os.eventfd_read(self._wake)
                    while self._new:
                        self._start(self._new.popleft())
                elif fd in self._at_work:
                    self._step(fd, self._at_work[fd])
            self._expire()

    def _start(self, handshake: Handshake) -> None:
        try:
            handshake.sock = handshake.material.context.wrap_socket(
                handshake.sock, server_side=True, do_handshake_on_connect=False
            )
        except OSError:  # the client has left already
            self._over(handshake, LEFT)
            return
        except Exception:  # as in `_step`
            logger.exception("TLS handshake of %s:%d failed", handshake.host, handshake.port)
            self._over(handshake, UNEXPECTED)
            return
        fd = handshake.sock.fileno()
        self._at_work[fd] = handshake
        self._epoll.register(fd, select.EPOLLIN)
        self._step(fd, handshake)

    def _step(self, fd: int, handshake: Handshake) -> None:
        sock = handshake.sock
        assert isinstance(sock, ssl.SSLSocket)
        error: str | None = None
        try:
            sock.do_handshake()
            der = sock.getpeercert(binary_form=True)
            if der:
                handshake.user = handshake.material.mapping.user(read_certificate(der).subject)
        except ssl.SSLWantReadError:
            self._epoll.modify(fd, select.EPOLLIN)
            return
        except ssl.SSLWantWriteError:
            self._epoll.modify(fd, select.EPOLLOUT)
            return
        except (ssl.SSLEOFError, ConnectionError):
            error = LEFT
        except ssl.SSLError as problem:
            error = reason_of(problem)
        except NoRuleMatches as problem:
            error = str(problem)
        except (OSError, ValueError) as problem:
            error = str(problem) or type(problem).__name__
        except Exception:  # nobody foresaw it: it ends this handshake, not the thread of all others
            logger.exception("TLS handshake of %s:%d failed", handshake.host, handshake.port)
            error = UNEXPECTED
        self._end(fd, handshake, error)

    def _end(self, fd: int, handshake: Handshake, error: str | None) -> None:
        del self._at_work[fd]
        try:
            self._epoll.unregister(fd)
        except OSError:
            pass
        self._over(handshake, error)

    def _expire(self) -> None:
        now = time.monotonic()
        while self._at_work:
            fd, oldest = next(iter(self._at_work.items()))
            if oldest.deadline > now:
                return
            made_room = oldest.deadline == 0.0
            self._end(
                fd,
                oldest,
                "too many unfinished handshakes" if made_room else f"not done within {TIMEOUT:g} s",
            )


_REASONS = {
    "HTTP_REQUEST": "the client speaks HTTP",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS (is security.protocol right for this listener?)",
    "UNSUPPORTED_PROTOCOL": "the client speaks only versions of TLS that are not served",
    "NO_SHARED_CIPHER": "no cipher suite in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate (ssl.client.auth=required)",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is not trusted",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust our certificate's authority",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that our certificate has expired",
}


def reason_of(error: ssl.SSLError) -> str:
    """Why a handshake failed, for the log."""
    reason = error.reason or ""
    text = _REASONS.get(reason) or (reason or str(error)).lower().replace("_", " ")
    detail = getattr(error, "verify_message", "")
    return f"{text}: {detail}" if detail else text
