"""What a running query reads, keeps and writes, and how fast: for EXPLAIN, beyond what ksqlDB says.

Lanes report once a second what their tasks have done. A rate is what has come since the last look, if that
was between one second and one minute ago; else it is taken over the next second.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.streams.runtime.running import RunningStreams

Json = dict[str, Any]
_MIN_AGE, _MAX_AGE = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    read: int
    written: int


class QueryStatistics:
    def __init__(self, client: ClientConfig) -> None:
        self._client = client
        self._samples: dict[str, _Sample] = {}
        self._lock = threading.Lock()

    def of(self, query_id: str, running: RunningStreams) -> Json:
        before = self._recent(query_id, running)
        now = self._sample(query_id, running)
        tasks = running.tasks()
        status = [task.status for task in tasks.values()]
        seconds = now.at - before.at
        return {
            "topics": self._topics(running),
            "stores": self._stores(running),
            "rates": {
                # A task that moves begins to count anew.
                "readPerSecond": round(max(0, now.read - before.read) / seconds, 1),
                "writtenPerSecond": round(max(0, now.written - before.written) / seconds, 1),
                "read": now.read,
                "written": now.written,
                "lag": sum(one.lag for one in status),
                "commitMs": round(max((one.commit_ms for one in status), default=0.0), 1),
                "stateBytes": sum(one.state_bytes for one in status),
            },
        }

    def _recent(self, query_id: str, running: RunningStreams) -> _Sample:
        with self._lock:
            found = self._samples.get(query_id)
        if found is not None and _MIN_AGE <= time.monotonic() - found.at <= _MAX_AGE:
            return found
        found = self._sample(query_id, running)
        time.sleep(_MIN_AGE)
        return found

    def _sample(self, query_id: str, running: RunningStreams) -> _Sample:
        status = [task.status for task in running.tasks().values()]
        found = _Sample(time.monotonic(), sum(one.read for one in status), sum(one.written for one in status))
        with self._lock:
            self._samples[query_id] = found
        return found

    def _topics(self, running: RunningStreams) -> list[Json]:
        """Every topic of the query with its role and how many offsets it has taken so far."""
        topology, name = running.topology, running.name
        roles: dict[str, str] = {}
        for node in topology.nodes.values():
            for topic in node.topics if node.type == "source" else ():
                roles.setdefault(
                    topology.internal_name(topic, name),
                    "repartition" if topic in topology.internal else "source",
                )
            for topic in node.topics if node.type == "sink" else ():
                if topic not in topology.internal:
                    roles[topic] = "sink"
        for store in self._stores(running):
            if store["changelog"] is not None:
                roles[store["changelog"]] = "changelog"
        found = []
        try:
            with Cluster(self._client) as cluster:
                cluster.refresh(list(roles))
                for topic, role in roles.items():
                    numbers = cluster.topic(topic).partitions
                    which = [TopicPartition(topic, number) for number in numbers]
                    ends = list_offsets(cluster, dict.fromkeys(which, LATEST), read_committed=True)
                    total = sum(end.offset for end in ends.values())
                    found.append({"name": topic, "role": role, "partitions": len(which), "endOffsets": total})
        except KafkaError:  # the rest is worth showing without it
            return [{"name": topic, "role": role} for topic, role in roles.items()]
        return found

    @staticmethod
    def _stores(running: RunningStreams) -> list[Json]:
        return [
            {
                "name": name,
                "type": spec.type,
                "changelog": spec.changelog(running.name) if spec.logged else None,
            }
            for name, spec in sorted(running.topology.stores.items())
        ]
