"""Accepting connections: the limits, and what the connections of one listener share.

A connection of a TLS listener counts from the moment it is accepted, and becomes a `Connection` when its
handshake is done (`handshakes`). One of a SASL listener begins with a login in the place of the dispatcher.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING

from millstream.broker.network.buffer_budget import BufferBudget
from millstream.broker.network.connection import Connection
from millstream.broker.network.poller import Poller
from millstream.broker.rates import ConnectionRates
from millstream.wire.sockets import send_unpaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.broker.network.dispatch import Dispatcher
    from millstream.broker.network.handshakes import Handshake
    from millstream.broker.network.login_failures import LoginFailures
    from millstream.broker.security import Security
    from millstream.broker.tls.listener_tls import ListenerTls

logger = logging.getLogger("millstream.network")

ACCEPTS_PER_TURN = 64
READS_AT_THE_END = 16  # of a connection whose handshake has failed


def plain_address(host: str) -> str:
    """On a socket that serves IPv6 and IPv4, addresses of the latter look like `::ffff:10.0.0.1`. ACLs,
    quotas and limits name them as they are."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host


class Admission:
    """Who may still connect: counts for the broker, for each listener, and for each address over all
    listeners."""

    def __init__(self) -> None:
        self.limit = 0
        self.per_listener: dict[str, int] = {}  # only listeners with a limit of their own
        self.per_address = 0
        self.overrides: dict[str, int] = {}
        self.open: set[Connection] = set()
        self.half_open = 0  # connections in their TLS handshake
        self.failures: LoginFailures | None = None  # where a listener knows its clients
        self.by_listener: Counter[str] = Counter()
        self.by_address: Counter[str] = Counter()
        self.rates = ConnectionRates()
        self.accepted = 0
        self.refused = 0

    def refuses(self, listener: str, address: str) -> str:
        """Why a connection from this address may not come in; empty when it may."""
        if len(self.open) + self.half_open >= self.limit:
            return f"max.connections={self.limit} reached"
        limit = self.per_listener.get(listener, self.limit)
        if self.by_listener[listener] >= limit:
            return f"listener.name.{listener.lower()}.max.connections={limit} reached"
        limit = self.overrides.get(address, self.per_address)
        if self.by_address[address] >= limit:
            return f"max.connections.per.ip={limit} reached"
        return ""

    def enter(self, listener: str, address: str) -> None:
        self.accepted += 1
        self.by_listener[listener] += 1
        self.by_address[address] += 1

    def leave(self, listener: str, address: str) -> None:
        self.by_listener[listener] -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class ListenerContext:
    """What every connection of one listener shares."""

    __slots__ = (
        "admission",
        "budget",
        "login",
        "max_frame",
        "max_frame_setting",
        "name",
        "poller",
        "protocol",
        "tls",
    )

    def __init__(
        self,
        name: str,
        protocol: str,
        max_frame: int,
        budget: BufferBudget,
        admission: Admission,
        poller: Poller,
    ) -> None:
        self.name = name
        self.protocol = protocol
        self.max_frame = max_frame
        self.max_frame_setting = "socket.request.max.bytes"
        self.budget = budget
        self.admission = admission
        self.poller = poller
        self.tls: ListenerTls | None = None
        # Puts a login before a new connection.
        self.login: Callable[[Connection], None] | None = None

    def closed(self, connection: Connection) -> None:
        self.admission.open.discard(connection)
        self.admission.leave(self.name, connection.client_host)


class Acceptor:
    """A listening socket on the loop."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ListenerContext,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        send_buffer: int,
        receive_buffer: int,
        backlog: int,
        security: Security | None = None,
    ) -> None:
        self.context = context
        self.dispatcher = dispatcher
        self.loop = loop
        self.send_buffer = send_buffer
        self.receive_buffer = receive_buffer
        self.backlog = backlog
        self.security = security
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sock = socket.socket(family)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.sock.bind((host, port))
        except OSError as error:
            self.sock.close()
            raise OSError(
                error.errno,
                f"cannot listen on {host}:{port} for {context.name}: {error.strerror}; "
                "choose another port in `listeners`, or stop what uses this one",
            ) from None
        self.sock.setblocking(False)
        self.host = host
        self.port: int = self.sock.getsockname()[1]

    def listen(self) -> None:
        """From now on nobody is refused: connections wait in the kernel until `start`."""
        self.sock.listen(self.backlog)

    def start(self) -> None:
        self.listen()
        self.loop.add_reader(self.sock.fileno(), self._accept)

    def stop(self) -> None:
        if self.sock.fileno() >= 0:
            self.loop.remove_reader(self.sock.fileno())
            self.sock.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self.sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    logger.error(
                        "cannot accept connections on %s for a second: %s; "
                        "raise the limit of open files (ulimit -n)",
                        self.context.name,
                        error.strerror,
                    )
                    self.loop.remove_reader(self.sock.fileno())
                    self.loop.call_later(1.0, self._retry)
                return
            self._admit(sock, plain_address(address[0]), address[1])
            rates = self.context.admission.rates
            if rates and (pause := rates.pause()) > 0:
                self.loop.remove_reader(self.sock.fileno())
                self.loop.call_later(pause, self._retry)
                return

    def _retry(self) -> None:
        if self.sock.fileno() >= 0:
            self.loop.add_reader(self.sock.fileno(), self._accept)

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        context, admission = self.context, self.context.admission
        if (
            admission.failures is not None
            and context.protocol != "PLAINTEXT"
            and admission.failures.refuses(host)
        ):
            sock.close()
            return
        reason = admission.refuses(context.name, host)
        if reason:
            admission.refused += 1
            logger.warning("refused connection from %s:%d: %s", host, port, reason)
            sock.close()
            return
        if admission.rates:
            delay = admission.rates.delay(host)
            if delay > 0:  # kept waiting, then closed: who comes too often does not come more often
                admission.refused += 1
                sock.setblocking(False)
                self.loop.call_later(delay, sock.close)
                return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            send_unpaced(sock)
            if self.send_buffer > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer)
            if self.receive_buffer > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        except OSError:  # the client has left already
            sock.close()
            return
        admission.enter(context.name, host)
        if context.tls is not None:
            self._shake_hands(context.tls, sock, host, port)
        else:
            self._connect(Connection, sock, host, port)

    def _connect(self, kind: type[Connection], sock: socket.socket, host: str, port: int) -> Connection:
        connection = kind(sock, f"{host}:{port}", self.context, self.dispatcher, self.loop)
        self.context.admission.open.add(connection)
        if self.context.login is not None:
            self.context.login(connection)
        return connection

    # ------------------------------------------------------------------ TLS

    def _shake_hands(self, tls: ListenerTls, sock: socket.socket, host: str, port: int) -> None:
        from millstream.broker.network.handshakes import Handshake

        assert self.security is not None
        self.context.admission.half_open += 1
        self.security.handshakes.begin(Handshake(sock, host, port, tls.material, self._shaken))

    def _shaken(self, handshake: Handshake, error: str | None) -> None:
        from millstream.broker.network.handshakes import LEFT
        from millstream.broker.network.tls_connection import TlsConnection

        host, port = handshake.host, handshake.port
        if error is None and self.sock.fileno() >= 0:
            self.context.admission.half_open -= 1
            connection = self._connect(TlsConnection, handshake.sock, host, port)
            connection.certified = handshake.user is not None
            if handshake.user is not None and self.context.login is None:
                connection.principal = f"User:{handshake.user}"
                logger.debug("%s on %s is %s", connection.peer, self.context.name, connection.principal)
                if self.security is not None and self.security.failures.audit is not None:
                    self.security.failures.audit.login(connection, "TLS")
            return
        delay = 0.0
        if error not in (None, LEFT):
            assert self.security is not None
            delay = self.security.failure_delay()
            self.security.failures.handshake_failed(host, port, self.context.name, error or "")
        if delay > 0:
            self.loop.call_later(delay, self._turn_away, handshake)
        else:
            self._turn_away(handshake)

    def _turn_away(self, handshake: Handshake) -> None:
        """What the client has sent is read first: to close without that would reset the connection, which can
        cost the client the alert that says what is wrong."""
        try:
            for _ in range(READS_AT_THE_END):
                if not socket.socket.recv(handshake.sock, 16 * 1024):
                    break
        except OSError:
            pass
        handshake.sock.close()
        self.context.admission.half_open -= 1
        self.context.admission.leave(self.context.name, handshake.host)
