"""Connections between the processes of a host (planner and lanes, driver and services): messages of JSON,
both sides known to each other.

Whoever connects has to know the host's secret, and so has whoever answers: each side proves it to the other
without sending it (multiprocessing's challenge by HMAC). Lanes unpickle what the planner sends, so they must
not take it from anyone else who happens to listen on that port.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from millstream import __version__

log = logging.getLogger("millstream.host")

HANDSHAKE_SECONDS = 5.0
CONNECT_SECONDS = 5.0
LOST_MS = 10_000

SOFTWARE = f"Millstream {__version__} on Python {sys.version_info[0]}.{sys.version_info[1]}"
"""What both sides have to have in common: code goes from one to the other by value."""

Message = dict[str, Any]


class LinkClosed(ConnectionError):
    """The other side is gone, or never proved that it belongs here."""


class LinkSilent(LinkClosed):
    """The other side is there, and has not answered in time."""


class Link:
    """One side of a connection. Sending is safe in several threads, receiving is for one."""

    def __init__(self, opened: socket.socket) -> None:
        opened.settimeout(None)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a machine that is lost closes no connection
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_MS)
        self._connection: Connection = Connection(opened.detach())
        self._sending = threading.Lock()

    @classmethod
    def connect(cls, host: str, port: int, secret: bytes) -> Link:
        """To the planner."""
        try:
            link = cls(socket.create_connection((host, port), CONNECT_SECONDS))
        except OSError as error:
            raise LinkClosed(f"the planner at {host}:{port} cannot be reached: {error}") from error
        link._prove(secret, first=False)
        return link

    @classmethod
    def accept(cls, opened: socket.socket, secret: bytes) -> Link:
        """A lane has connected."""
        link = cls(opened)
        link._prove(secret, first=True)
        return link

    def _prove(self, secret: bytes, *, first: bool) -> None:
        """Both ways, in a limited time: someone who connects and says nothing is not waited for."""
        silent = threading.Event()

        def give_up() -> None:
            silent.set()
            self.shut()

        late = threading.Timer(HANDSHAKE_SECONDS, give_up)
        late.daemon = True
        late.start()
        steps = [deliver_challenge, answer_challenge]
        try:
            for step in steps if first else reversed(steps):
                step(self._connection, secret)
        except (AuthenticationError, AssertionError, OSError, EOFError, ValueError) as error:
            self.close()
            kind = LinkSilent if silent.is_set() else LinkClosed
            raise kind(f"the other side did not prove that it belongs to this host: {error}") from error
        finally:
            late.cancel()

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: Message) -> None:
        try:
            with self._sending:
                self._connection.send_bytes(json.dumps(message).encode())
        except (OSError, ValueError) as error:
            raise LinkClosed(str(error)) from error

    def receive(self) -> Message:
        """The next message; waits for it."""
        try:
            message: Message = json.loads(self._connection.recv_bytes())
        except (OSError, EOFError, ValueError, TypeError) as error:
            raise LinkClosed(str(error) or "the other side is gone") from error
        return message

    def waiting(self) -> bool:
        """Whether a message can be received at once."""
        try:
            return self._connection.poll(0)
        except (OSError, EOFError, ValueError, TypeError):
            return True  # `receive` will say what is wrong

    def shut(self) -> None:
        """End the conversation, from any thread; whoever waits in `receive` hears of it and closes."""
        with contextlib.suppress(OSError, ValueError):
            borrowed = socket.socket(fileno=self._connection.fileno())
            try:
                borrowed.shutdown(socket.SHUT_RDWR)
            finally:
                borrowed.detach()

    def close(self) -> None:
        self.shut()
        with contextlib.suppress(OSError):
            self._connection.close()


class LinkServer:
    """Accepts whoever knows the secret. Each link is served by a thread of its own, and closed after it."""

    def __init__(self, name: str, secret: bytes, serve: Callable[[Link], None], address: str) -> None:
        self._name, self._secret, self._serve = name, secret, serve
        self._socket = socket.create_server((address, 0))
        self.host, self.port = self._socket.getsockname()[:2]
        threading.Thread(target=self._accept, name=f"{name}-accept", daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                opened, address = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._run, args=(opened, address), name=self._name, daemon=True).start()

    def _run(self, opened: socket.socket, address: Any) -> None:
        try:
            link = Link.accept(opened, self._secret)
        except LinkClosed as error:
            log.warning("refused a connection from %s: %s", address[0], error)
            return
        try:
            self._serve(link)
        except LinkClosed:
            pass
        finally:
            link.close()
