"""Calls from other processes of this machine, over links (`link`).

A call is `{"number", "call", "arguments"}`; its answer has the number, and a result or an error. Each
connection makes one call after the other. The server knows how long nobody has been connected: a driver child
ends when nobody needs it any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from millstream.host.link import Link, LinkServer, Message

Call = Callable[[str, dict[str, Any]], Any]
"""A call by its name and arguments; what it returns is the result, what it raises the error."""


class CallServer:
    """`connection` says what the calls of a connection do, and what ends with it."""

    def __init__(self, name: str, secret: bytes, address: str = "127.0.0.1") -> None:
        self._clients = 0
        self._lock = threading.Lock()
        self._idle_since = time.monotonic()
        self._server = LinkServer(name, secret, self._serve, address)
        self.address, self.port = self._server.host, self._server.port

    def connection(self, link: Link) -> AbstractContextManager[Call]:
        raise NotImplementedError

    @property
    def idle_seconds(self) -> float:
        """How long nobody has been connected."""
        return 0.0 if self._clients else time.monotonic() - self._idle_since

    def close(self) -> None:
        self._server.close()

    def _serve(self, link: Link) -> None:
        with self._lock:
            self._clients += 1
        try:
            with self.connection(link) as call:
                while True:
                    link.send(_answer(call, link.receive()))
        finally:
            with self._lock:
                self._clients -= 1
                self._idle_since = time.monotonic()


def _answer(call: Call, message: Message) -> Message:
    try:
        result = call(message["call"], message["arguments"])
    except Exception as error:
        return {"answer": message["number"], "error": str(error) or type(error).__name__}
    return {"answer": message["number"], "result": result}
