"""Accepting connections: the limits, and what the connections of one listener share."""

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
from millstream.wire.sockets import send_unpaced

if TYPE_CHECKING:
    from millstream.broker.network.dispatch import Dispatcher

logger = logging.getLogger("millstream.network")

ACCEPTS_PER_TURN = 64


class Admission:
    """Who may still connect: counts for the broker, for each listener, and for each address over all
    listeners."""

    def __init__(self) -> None:
        self.limit = 0
        self.per_listener: dict[str, int] = {}  # only listeners with a limit of their own
        self.per_address = 0
        self.overrides: dict[str, int] = {}
        self.open: set[Connection] = set()
        self.by_listener: Counter[str] = Counter()
        self.by_address: Counter[str] = Counter()
        self.accepted = 0
        self.refused = 0

    def refuses(self, listener: str, address: str) -> str:
        """Why a connection from this address may not come in; empty when it may."""
        if len(self.open) >= self.limit:
            return f"max.connections={self.limit} reached"
        limit = self.per_listener.get(listener, self.limit)
        if self.by_listener[listener] >= limit:
            return f"listener.name.{listener.lower()}.max.connections={limit} reached"
        limit = self.overrides.get(address, self.per_address)
        if self.by_address[address] >= limit:
            return f"max.connections.per.ip={limit} reached"
        return ""


class ListenerContext:
    """What every connection of one listener shares."""

    __slots__ = ("admission", "budget", "max_frame", "name", "poller", "protocol")

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
        self.budget = budget
        self.admission = admission
        self.poller = poller

    def closed(self, connection: Connection) -> None:
        admission = self.admission
        admission.open.discard(connection)
        admission.by_listener[self.name] -= 1
        address = connection.peer.rsplit(":", 1)[0]
        admission.by_address[address] -= 1
        if not admission.by_address[address]:
            del admission.by_address[address]


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
    ) -> None:
        self.context = context
        self.dispatcher = dispatcher
        self.loop = loop
        self.send_buffer = send_buffer
        self.receive_buffer = receive_buffer
        self.backlog = backlog
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

    def start(self) -> None:
        self.sock.listen(self.backlog)
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
            self._admit(sock, address[0], address[1])

    def _retry(self) -> None:
        if self.sock.fileno() >= 0:
            self.loop.add_reader(self.sock.fileno(), self._accept)

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        admission = self.context.admission
        reason = admission.refuses(self.context.name, host)
        if reason:
            admission.refused += 1
            logger.warning("refused connection from %s:%d: %s", host, port, reason)
            sock.close()
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
        admission.accepted += 1
        admission.by_listener[self.context.name] += 1
        admission.by_address[host] += 1
        admission.open.add(Connection(sock, f"{host}:{port}", self.context, self.dispatcher, self.loop))
