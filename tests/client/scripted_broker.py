"""A broker that answers what a test tells it to: for what a healthy broker never does."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from millstream.wire.messages import codec

Answer = Callable[[int, int, int, memoryview], bytes | None]
"""(api, version, correlation id, body) -> the whole response frame, or None to close the connection."""


class ScriptedBroker:
    """Listens on a free port; every connection is served by the same function, in a thread of its own."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(ConnectionError):
            while True:
                head = peer.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                (size,) = struct.unpack(">i", head)
                frame = peer.recv(size, socket.MSG_WAITALL)
                api, version, correlation_id, client_size = struct.unpack_from(">hhih", frame)
                body = memoryview(frame)[10 + client_size :]
                response = self._answer(api, version, correlation_id, body)
                if response is None:
                    return
                peer.sendall(response)

    def close(self) -> None:
        self._server.close()

    def __enter__(self) -> "ScriptedBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def versions(
    correlation_id: int, offered: dict[int, tuple[int, int]], version: int = 4, error: int = 0
) -> bytes:
    """An answer to ApiVersions."""
    from millstream.wire.errors import ErrorCode

    form = codec(18, version)
    keys = tuple(
        form.make("ApiVersion", api_key=api, min_version=low, max_version=high)
        for api, (low, high) in offered.items()
    )
    return form.pack(correlation_id, form.answer(error_code=ErrorCode(error), api_keys=keys))
