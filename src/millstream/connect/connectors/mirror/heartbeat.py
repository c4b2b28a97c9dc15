"""MirrorHeartbeatConnector: a record every second, so that whoever reads it elsewhere knows that the way is
open."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.connect.api import Settings, SourceConnector, SourceContext, SourceTask
from millstream.connect.connectors.mirror.config import HEARTBEAT, cluster, unreachable
from millstream.connect.connectors.mirror.mirror_records import Heartbeat
from millstream.connect.connectors.mirror.naming import HEARTBEATS
from millstream.connect.connectors.mirror.offsets import check_offsets
from millstream.connect.connectors.mirror.topics import create_compacted
from millstream.connect.data.record import SourceRecord
from millstream.connect.data.schema import REQUIRED, Type
from millstream.wire.errors import KafkaError

_BYTES = REQUIRED[Type.BYTES]


class MirrorHeartbeatTask(SourceTask):
    steady = True

    def start(self, settings: Settings, context: SourceContext) -> None:
        parsed = HEARTBEAT.parse(settings)
        self._source, self._target = parsed["source.cluster.alias"], parsed["target.cluster.alias"]
        self._interval = parsed["emit.heartbeats.interval.seconds"]
        self._due = time.monotonic() + self._interval

    def poll(self) -> Sequence[SourceRecord]:
        left = self._due - time.monotonic()
        if left > 0:
            self.idle_ms = left * 1000
            return []
        self._due = time.monotonic() + self._interval
        beat = Heartbeat(self._source, self._target, int(time.time() * 1000))
        return [
            SourceRecord(
                topic=HEARTBEATS,
                partition=0,
                key_schema=_BYTES,
                key=beat.key,
                value_schema=_BYTES,
                value=beat.value,
                timestamp=beat.timestamp,
                source_partition={"sourceClusterAlias": beat.source, "targetClusterAlias": beat.target},
                source_offset={"offset": 0},
            )
        ]


class MirrorHeartbeat(SourceConnector):
    task = MirrorHeartbeatTask
    config = HEARTBEAT

    def start(self) -> None:
        parsed = HEARTBEAT.parse(self.settings)
        with cluster(self.settings, "target", "admin") as target:
            try:
                create_compacted(target, HEARTBEATS, parsed["heartbeats.topic.replication.factor"])
            except KafkaError as error:
                raise unreachable(self.settings, "target", error) from None

    def task_settings(self, max_tasks: int) -> list[Settings]:
        parsed = HEARTBEAT.parse(self.settings)
        return [dict(self.settings)] if parsed["enabled"] and parsed["emit.heartbeats.enabled"] else []

    def alter_offsets(self, offsets: Sequence[Mapping[str, Any]]) -> bool:
        check_offsets(offsets, ("sourceClusterAlias", "targetClusterAlias"), partition=False, only_zero=True)
        return True
