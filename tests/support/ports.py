"""Ports for servers that cannot choose one themselves.

The system takes ports from one range, for every outgoing connection and for whoever binds to port 0. A port
of that range that was free a moment ago may be the near end of anybody's connection by the time a server
binds to it, and a JVM on a busy machine takes long to get there. So these come from below the range, where
only servers bind that were told to.
"""

import os
import random
import socket
from pathlib import Path

LOWEST = 10_000
# Where nobody says: what Linux does unless told otherwise.
EPHEMERAL_FROM = 32_768
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_given: set[tuple[int, int]] = set()


def lowest_ephemeral() -> int:
    """The first port that the system gives away by itself."""
    try:
        return int(RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_FROM


def free_port() -> int:
    """Nobody's now, and given to nobody else in this process. Servers that take port 0 and say what they got
    are better off."""
    # Other test processes draw from the same ports, so not in order, and not by a seed that a test has set.
    draw = random.SystemRandom()
    # A range that begins very low leaves nothing below it.
    upto = lowest_ephemeral() if lowest_ephemeral() > LOWEST + 1000 else 65_536
    for _ in range(1000):
        port = draw.randrange(LOWEST, upto)
        if (os.getpid(), port) not in _given and _is_free(port):
            _given.add((os.getpid(), port))
            return port
    raise AssertionError(f"no free port between {LOWEST} and {upto}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers bind: an earlier connection that is only waiting for its time to pass is in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 (whoever listens on one address only is found, too)
        except OSError:
            return False
        return True
