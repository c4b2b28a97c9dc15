"""Which server of a service runs which persistent query. Pure, so that all servers agree.

When a server comes or goes, the leader of their group deals the queries anew: whoever runs one keeps it,
unless another server has fewer by two or more. A query that is created later goes to the server that its
command names, which was the one with the fewest; nothing else moves for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Claim(NamedTuple):
    """What a server has run until now, since that generation of the group."""

    server: str
    generation: int
    queries: tuple[str, ...]

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def decode_claim(data: bytes) -> Claim:
    found = json.loads(data)
    return Claim(str(found["server"]), int(found["generation"]), tuple(found["queries"]))


@dataclass(frozen=True, slots=True)
class Assignment:
    """What all servers know of one generation: who is there, and who has which query."""

    servers: tuple[str, ...] = ()
    queries: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps({"servers": self.servers, "queries": dict(self.queries)}).encode()

    def owner(self, query: str, named: str | None) -> str | None:
        """`named` is the server that the query's command names. Where that is not there any more, each query
        prefers the servers in an order of its own."""
        if query in self.queries:
            return self.queries[query]
        if named in self.servers:
            return named
        return min(self.servers, key=lambda server: _preference(query, server), default=None)


def decode_assignment(data: bytes) -> Assignment:
    found = json.loads(data) if data else {"servers": (), "queries": {}}
    return Assignment(tuple(found["servers"]), found["queries"])


def deal(claims: Iterable[Claim], queries: Collection[str]) -> Assignment:
    """Of two servers that claim a query, the one that was in the newer generation has it."""
    ordered = sorted(claims, key=lambda claim: (-claim.generation, claim.server))
    owned: dict[str, list[str]] = {claim.server: [] for claim in sorted(ordered, key=lambda one: one.server)}
    free = dict.fromkeys(sorted(queries))
    for claim in ordered:
        for query in claim.queries:
            if query in free:
                del free[query]
                owned[claim.server].append(query)
    if not owned:
        return Assignment()

    def idlest() -> list[str]:
        return min(owned.values(), key=len)

    for query in free:
        idlest().append(query)
    while len(busiest := max(owned.values(), key=len)) > len(idlest()) + 1:
        idlest().append(busiest.pop())
    return Assignment(tuple(owned), {query: server for server, own in owned.items() for query in own})


def least_loaded(servers: Collection[str], owners: Iterable[str | None]) -> str | None:
    """For a new query, where `owners` has the server of each of the others."""
    counts = dict.fromkeys(sorted(servers), 0)
    for owner in owners:
        if owner in counts:
            counts[owner] += 1
    return min(counts, key=lambda server: counts[server], default=None)


def _preference(query: str, server: str) -> bytes:
    return hashlib.blake2b(f"{query}\0{server}".encode(), digest_size=8).digest()
