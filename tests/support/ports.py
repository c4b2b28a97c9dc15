"""Ports for servers that cannot choose one themselves.

The system takes ports from one range, for every outgoing connection and for whoever binds to port 0. A port
of that range that was free a moment ago may be the near end of anybody's connection by the time a server
binds to it, and a JVM on a busy machine takes long to get there. So these come from below the range, where
only servers bind that were told to.

Other test processes draw from the same ports at the same time, and a port that was given away is free to all
appearances until its server listens. So whoever is given one holds a lock on a byte of a file that all of
them share, at the port's number; the lock goes with the process.
"""

import fcntl
import functools
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import BinaryIO

LOWEST = 10_000
# Where nobody says: what Linux does unless told otherwise.
EPHEMERAL_FROM = 32_768
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_given: set[int] = set()


def lowest_ephemeral() -> int:
    """The first port that the system gives away by itself."""
    try:
        return int(RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_FROM


def free_port() -> int:
    """Nobody's now, and given to nobody else while this process lives. Servers that take port 0 and say what
    they got are better off."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many in a row, each as `free_port` gives it."""
    draw = random.SystemRandom()  # not by a seed that a test has set
    # A range that begins very low leaves nothing below it.
    upto = lowest_ephemeral() if lowest_ephemeral() > LOWEST + 1000 else 65_536
    for _ in range(1000):
        first = draw.randrange(LOWEST, upto - count)
        row = range(first, first + count)
        if _given.isdisjoint(row) and all(_claim(port) for port in row):
            _given.update(row)
            return first
    raise AssertionError(f"no {count} free ports in a row between {LOWEST} and {upto}")


def _claim(port: int) -> bool:
    try:
        fcntl.lockf(_lock_file(os.getpid()), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return _is_free(port)


@functools.cache
def _lock_file(pid: int) -> BinaryIO:
    """Open as long as the process lives: closing it would give up every lock. A fork has none of them."""
    _given.clear()
    return open(Path(tempfile.gettempdir()) / f"millstream-test-ports-{os.getuid()}", "ab")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers bind: an earlier connection that is only waiting for its time to pass is in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 (whoever listens on one address only is found, too)
        except OSError:
            return False
        return True
