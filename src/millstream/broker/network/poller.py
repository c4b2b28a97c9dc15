"""Which connections are readable: all of them on one epoll, served in turns.

The loop knows this epoll as one more readable descriptor. In a turn every readable connection is read and its
requests are handled; small responses are kept until all have been served, and are then sent one after the
other. A client that sleeps until its response comes is woken by the first, which is half of what a response
costs; those that follow at once find it awake. It also saves the loop's own work per connection. Followers
that wait for records get, at the end of the turn, all that was written in it.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.broker.network.receiver import Receiver

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection

logger = logging.getLogger("millstream.network")

CONNECTIONS_PER_TURN = 64  # the first response of a turn waits for the others to be handled


class Poller:
    __slots__ = ("_at_end", "_connections", "_epoll", "_holding", "_loop", "_turning", "now", "receiver")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._holding: list[Connection] = []  # with responses that are sent at the end of the turn
        self._at_end: list[Callable[[], None]] = []
        self._turning = False
        self.now = loop.time()  # when the turn began
        self.receiver = Receiver(loop)
        loop.add_reader(self._epoll.fileno(), self._turn)

    def watch(self, connection: Connection) -> None:
        self._epoll.register(connection.fd, select.EPOLLIN)
        self._connections[connection.fd] = connection

    def forget(self, connection: Connection) -> None:
        """Stop watching a connection; harmless if it is not watched."""
        if self._connections.pop(connection.fd, None) is not None:
            self._epoll.unregister(connection.fd)

    def _turn(self) -> None:
        connections, receiver = self._connections, self.receiver
        self.now = self._loop.time()
        self._turning = True
        try:
            for fd, _ in self._epoll.poll(0, CONNECTIONS_PER_TURN):
                connection = connections.get(fd)
                if connection is not None:  # None if handling another's request has closed it
                    connection.readable()
                    if receiver.done:  # before the connections that follow
                        receiver.deliver()
        finally:
            if self._at_end:
                self._end_turn()
            self._turning = False
            if self._holding:
                self.send_all()

    def _end_turn(self) -> None:
        while self._at_end:
            at_end, self._at_end = self._at_end, []
            for work in at_end:
                try:
                    work()
                except Exception:
                    logger.exception("what was left to the end of a turn failed")

    def at_end(self, work: Callable[[], None]) -> None:
        """Do this at the end of the turn, or now if there is none."""
        if self._turning:
            self._at_end.append(work)
        else:
            work()

    def send_later(self, connection: Connection) -> None:
        """Send what the connection holds at the end of the turn, or now if there is none."""
        if self._turning:
            self._holding.append(connection)
        else:
            connection.send_held()

    def send_all(self) -> None:
        holding, self._holding = self._holding, []
        for connection in holding:
            connection.send_held()

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self.receiver.close()
