"""The servers of a service share its persistent queries, in the Kafka group `<service.id>-planner`.

A server is known by its machine and its address (`ksql.advertised.listener`): other servers ask it for the
states of its queries, and after a restart it has its place in the group again. One that is gone for longer
than a session (6 s) loses its queries to the others. If it was only cut off, its queries end when those of
the others fence them; it starts none before it is in the group again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from millstream.client import ClientConfig
from millstream.host.static_member import StaticMember
from millstream.sql.server.query_assignment import (
    Assignment,
    Claim,
    deal,
    decode_assignment,
    decode_claim,
    least_loaded,
)

log = logging.getLogger("millstream.sql")

PROTOCOL_TYPE, PROTOCOL = "millstream-sql", "queries"
SESSION_MS = 6_000
HEARTBEAT_MS = 1_000


class ServerGroup:
    """`queries` says which there are; `changed` is called, from threads of this object, when others may be
    this server's than before."""

    def __init__(
        self,
        client: ClientConfig,
        service_id: str,
        server: str,
        queries: Callable[[], Collection[str]],
        changed: Callable[[], None],
    ) -> None:
        self.server = server
        self._queries, self._changed = queries, changed
        self._assignment = Assignment()
        self._named: dict[str, str | None] = {}
        self._member = StaticMember(
            client,
            group_id=f"{service_id}-planner",
            instance_id=server,
            protocol_type=PROTOCOL_TYPE,
            protocol=PROTOCOL,
            metadata=self._claim,
            assign=self._hand_out,
            assigned=self._assigned,
            replaced=self._replaced,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=SESSION_MS,
        )

    def start(self) -> None:
        self._member.start()

    def stop(self) -> None:
        self._member.stop()

    # Who runs what

    @property
    def servers(self) -> tuple[str, ...]:
        return self._assignment.servers

    def owner(self, query: str) -> str | None:
        """The server that runs a query; None while this one is not in the group."""
        return self._assignment.owner(query, self._named.get(query))

    def is_mine(self, query: str) -> bool:
        return self.owner(query) == self.server

    def may_start(self, query: str) -> bool:
        """Whether it is this server's, and was not given away meanwhile."""
        return self.is_mine(query) and self._member.is_current()

    def name(self, query: str, server: str | None) -> None:
        """The command of a query names the server."""
        self._named[query] = server

    def choose(self, query: str) -> str | None:
        """The server for a query that a command is about to create or to replace."""
        queries = self._queries()
        if query in queries:
            return self.owner(query)
        return least_loaded(self.servers, map(self.owner, queries)) or self.server

    # In the group

    def _claim(self) -> bytes:
        mine = filter(self.is_mine, self._queries())
        return Claim(self.server, self._member.generation, tuple(sorted(mine))).encode()

    def _hand_out(self, members: Mapping[str, bytes]) -> dict[str, bytes]:
        dealt = deal(map(decode_claim, members.values()), self._queries())
        return dict.fromkeys(members, dealt.encode())

    def _assigned(self, data: bytes) -> None:
        self._assignment = decode_assignment(data)
        mine = sum(map(self.is_mine, self._queries()))
        log.info("this server runs %d queries; %d servers share them", mine, len(self.servers))
        self._changed()

    def _replaced(self) -> None:
        self._assignment = Assignment()
        log.error(
            "another server of this service has the address %s: this one runs no queries. Give each its own "
            "ksql.advertised.listener",
            self.server,
        )
        self._changed()
