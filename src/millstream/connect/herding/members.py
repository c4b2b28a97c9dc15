"""Which workers there are, by membership in the Kafka group `group.id`.

The group's leader hands out nothing but the list of members; what each of them runs is computed by everyone
(see assignment). The protocol's type is Kafka's, `connect`, its name our own: a Java worker and one of ours
never share a group, because they would not share the work. What a member says of itself is in Kafka's layout:
its URL, and how far it has read the config topic.

With `scheduled.rebalance.max.delay.ms` a worker that is gone keeps its work for so long, in case it returns.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from millstream.client import ClientConfig
from millstream.host.static_member import StaticMember

PROTOCOL_TYPE, PROTOCOL = "connect", "millstream"


def encode_metadata(url: str, offset: int) -> bytes:
    """Kafka's WorkerState: a version, the URL, the offset."""
    text = url.encode()
    return struct.pack(f">hh{len(text)}sq", 0, len(text), text, offset)


def decode_url(metadata: bytes) -> str:
    (length,) = struct.unpack_from(">h", metadata, 2)
    return metadata[4 : 4 + length].decode()


def _hand_out(members: Mapping[str, bytes]) -> dict[str, bytes]:
    urls = json.dumps(sorted({decode_url(metadata) for metadata in members.values()})).encode()
    return dict.fromkeys(members, urls)


class Absences:
    """Workers that are gone and may return, until their time is over. Pure."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay = delay_seconds
        self._present: frozenset[str] = frozenset()
        self._gone: dict[str, float] = {}

    def update(self, present: Iterable[str], now: float) -> None:
        here = frozenset(present)
        for url in self._present - here:
            self._gone[url] = now + self._delay
        self._gone = {url: until for url, until in self._gone.items() if url not in here and until > now}
        self._present = here

    def counted(self, now: float) -> frozenset[str]:
        """Those among whom the work is shared."""
        return self._present | {url for url, until in self._gone.items() if until > now}

    def next_change(self) -> float | None:
        return min(self._gone.values(), default=None)


@dataclass(frozen=True, slots=True)
class MemberConfig:
    group_id: str
    url: str
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 1_000
    rebalance_timeout_ms: int = 60_000


class Members:
    """In a thread of its own, which calls `changed` with the URLs of all workers, and `replaced` when another
    worker with the same URL has come."""

    def __init__(
        self,
        client: ClientConfig,
        config: MemberConfig,
        changed: Callable[[tuple[str, ...]], None],
        replaced: Callable[[], None],
    ) -> None:
        self._changed = changed
        self._member = StaticMember(
            client,
            group_id=config.group_id,
            instance_id=config.url,
            protocol_type=PROTOCOL_TYPE,
            protocol=PROTOCOL,
            metadata=lambda: encode_metadata(config.url, 0),
            assign=_hand_out,
            assigned=lambda found: self._changed(tuple(json.loads(found or b"[]"))),
            replaced=replaced,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
        )

    @property
    def generation(self) -> int:
        return self._member.generation

    def start(self) -> None:
        self._member.start()

    def stop(self) -> None:
        self._member.stop()

    def is_current(self) -> bool:
        """Whether the coordinator was heard within the session: if not, others may run our tasks by now."""
        return self._member.is_current()
