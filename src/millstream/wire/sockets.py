"""What both ends of a connection set on their sockets."""

from __future__ import annotations

import contextlib
import socket


def send_unpaced(sock: socket.socket) -> None:
    """Where both ends are on this machine: BBR, the default of many a server, paces what it sends by timers
    even there."""
    # Not on Linux, without cubic in the kernel, or with a peer that has gone: as it is.
    with contextlib.suppress(AttributeError, OSError):
        if sock.getpeername()[0] == sock.getsockname()[0]:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
