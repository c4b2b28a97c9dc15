"""Ports for the services: chosen, reserved, and explained where one is taken.

On Linux a port is bound here first and stays bound, without listening, while `up` runs: the service binds it
as well (two sockets may share an address while only one listens), and no client of the machine is given it
for its own end while the service is being started again. Elsewhere it is only tried out.
"""

import errno
import os
import socket
import sys
from pathlib import Path

LISTENING = "0A"  # the state of a socket in /proc/net/tcp


class PortTaken(Exception):
    """Somebody else has the port."""

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(reason)
        self.port = port


def reserve(host: str, port: int) -> tuple[int, socket.socket | None]:
    """The port (a free one for 0), and on Linux the socket that keeps it. PortTaken says who has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, port))
        number = int(reserved.getsockname()[1])
    except OSError as error:
        reserved.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(port, f"port {port} is in use{_owner_note(port)}") from None
        if error.errno == errno.EACCES:
            raise PortTaken(port, f"port {port} needs the rights of root; choose one above 1023") from None
        raise PortTaken(port, f"cannot listen on {host}:{port}: {(error.strerror or '').lower()}") from None
    if sys.platform == "linux":
        return number, reserved
    reserved.close()
    return number, None


def port_problem(host: str, port: int) -> str | None:
    """Why a port cannot be had, or None."""
    try:
        _, reserved = reserve(host, port)
    except PortTaken as error:
        return str(error)
    if reserved is not None:
        reserved.close()
    return None


def _owner_note(port: int) -> str:
    who = listener_of(port)
    return f" by process {who[0]} ({who[1]})" if who else ""


def listener_of(port: int) -> tuple[int, str] | None:
    """Process id and command line of who listens on a port, as far as /proc tells it to us."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if int(words[1].rpartition(":")[2], 16) == port and words[3] == LISTENING:
                inodes.add(f"socket:[{words[9]}]")
    if not inodes:
        return None
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(link) in inodes for link in (folder / "fd").iterdir()):
                command = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                )
                return int(folder.name), command if len(command) <= 60 else command[:59] + "…"
        except OSError:
            continue  # not ours to look at, or gone
    return None
