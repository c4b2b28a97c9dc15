"""Which connections have something to read: all of them on one epoll, looked at in turns.

The loop knows this epoll as one more readable thing. In a turn every connection that is readable is read and its requests
are handled; small answers are kept until all have been looked at, and then leave one after the other. A client that
sleeps until its answer comes is woken by the first, which is half of what an answer costs; those that follow at once
find it awake. And what every readable connection costs is paid in one place, without the loop's own handling of each.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING

from millstream.broker.network.receiver import Receiver

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection

CONNECTIONS_PER_TURN = 64  # the first answer of a turn waits for the handling of the others


class Poller:
    __slots__ = ("_connections", "_epoll", "_leaving", "_loop", "_turning", "now", "receiver")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._leaving: list[Connection] = []  # those with answers that leave at the end of the turn
        self._turning = False
        self.now = loop.time()  # when the turn began
        self.receiver = Receiver(loop)
        loop.add_reader(self._epoll.fileno(), self._turn)

    def watch(self, connection: Connection) -> None:
        self._epoll.register(connection.fd, select.EPOLLIN)
        self._connections[connection.fd] = connection

    def forget(self, connection: Connection) -> None:
        """No longer look at a connection; harmless if that is so already."""
        if self._connections.pop(connection.fd, None) is not None:
            self._epoll.unregister(connection.fd)

    def _turn(self) -> None:
        connections, receiver = self._connections, self.receiver
        self.now = self._loop.time()
        self._turning = True
        try:
            for fd, _ in self._epoll.poll(0, CONNECTIONS_PER_TURN):
                connection = connections.get(fd)
                if connection is not None:  # else another one's request has ended it
                    connection.readable()
                    if receiver.done:  # in the meantime: it was before those that follow
                        receiver.deliver()
        finally:
            self._turning = False
            if self._leaving:
                self.send_all()

    def leave(self, connection: Connection) -> None:
        """Send what the connection holds: at the end of the turn, or now if it was not read in one."""
        if self._turning:
            self._leaving.append(connection)
        else:
            connection.send_held()

    def send_all(self) -> None:
        leaving, self._leaving = self._leaving, []
        for connection in leaving:
            connection.send_held()

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self.receiver.close()
