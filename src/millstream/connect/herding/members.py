"""Which workers there are, by membership in the Kafka group `group.id`.

The group's leader hands out nothing but the list of members; what each of them runs is computed by everyone
(see assignment). The protocol's type is Kafka's, `connect`, its name our own: a Java worker and one of ours
never share a group, because they would not share the work. What a member says of itself is in Kafka's layout:
its URL, and how far it has read the config topic.

With `scheduled.rebalance.max.delay.ms` a worker that is gone keeps its work for so long, in case it returns.
"""

from __future__ import annotations

import json
import logging
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from millstream.client import ClientConfig, Cluster
from millstream.client.errors import Unreachable
from millstream.client.membership import GroupMember
from millstream.host.membership import remove_members
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger("millstream.connect")

PROTOCOL_TYPE, PROTOCOL = "connect", "millstream"
RETRY_SECONDS = 0.3


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
    worker with the same URL has come. A worker is a static member (KIP-345), so one that was killed and
    starts again has its place at once."""

    def __init__(
        self,
        client: ClientConfig,
        config: MemberConfig,
        changed: Callable[[tuple[str, ...]], None],
        replaced: Callable[[], None],
    ) -> None:
        self._config, self._changed, self._replaced = config, changed, replaced
        self._cluster = Cluster(replace(client, total_timeout=5.0))
        self._member = GroupMember(
            self._cluster,
            config.group_id,
            protocol_type=PROTOCOL_TYPE,
            protocol=PROTOCOL,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            instance_id=config.url,
            timeout=0.0,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect-members", daemon=True)
        self.generation = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5)
        self._cluster.close()

    def is_current(self) -> bool:
        """Whether the coordinator was heard within the session: if not, others may run our tasks by now."""
        return time.monotonic() - self._member.last_contact < self._config.session_timeout_ms / 1000

    def _run(self) -> None:
        failing = False
        while not self._stopping.is_set():
            try:
                self._join()
                failing = False
                while not self._stopping.wait(self._config.heartbeat_interval_ms / 1000):
                    self._member.heartbeat()
            except (KafkaError, OSError, ValueError) as error:
                if self._stopping.is_set():
                    break
                if isinstance(error, KafkaError):
                    if error.code is ErrorCode.fenced_instance_id:
                        self._replaced()
                        return
                    if self._member.must_rejoin(error):
                        continue
                if not failing:
                    log.warning("the group %s cannot be reached: %s", self._config.group_id, error)
                    failing = True
                if isinstance(error, Unreachable):
                    self._cluster.close()
                self._stopping.wait(RETRY_SECONDS)
        try:
            remove_members(self._cluster, self._config.group_id, [(self._member.member_id, self._config.url)])
        except (KafkaError, OSError):
            pass  # the session ends by itself

    def _join(self) -> None:
        assignment = self._member.join(encode_metadata(self._config.url, 0), _hand_out)
        self.generation = int(self._member.identity()["generation_id"])
        self._changed(tuple(json.loads(assignment or b"[]")))
