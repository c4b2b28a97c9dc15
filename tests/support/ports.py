"""Ports for servers that cannot choose one themselves."""

import socket


def free_port() -> int:
    """Free a moment ago. Servers that take port 0 and say what they got are better off."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
