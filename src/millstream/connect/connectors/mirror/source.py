"""MirrorSourceConnector: topics of another cluster, with their partitions, settings and ACLs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.client import Cluster
from millstream.connect.api import Settings, SourceConnector
from millstream.connect.config.config_def import ConfigValue
from millstream.connect.connectors.mirror.config import (
    SOURCE,
    cluster,
    offset_syncs_topic,
    reads_committed,
    unreachable,
)
from millstream.connect.connectors.mirror.offsets import check_offsets
from millstream.connect.connectors.mirror.periodic import Job, Periodic
from millstream.connect.connectors.mirror.source_task import ASSIGNED, MirrorSourceTask
from millstream.connect.connectors.mirror.topics import MirroredTopics, create_compacted
from millstream.wire.errors import KafkaError


class MirrorSource(SourceConnector):
    task = MirrorSourceTask
    config = SOURCE

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._clusters: list[Cluster] = []
        self._periodic: Periodic | None = None
        self._topics: MirroredTopics | None = None

    def start(self) -> None:
        parsed = SOURCE.parse(self.settings)
        if not parsed["enabled"]:
            return
        source, target = (cluster(self.settings, side, "admin") for side in ("source", "target"))
        self._clusters = [source, target]
        topics = self._topics = MirroredTopics(parsed, source, target)
        side = "source"
        try:
            source.refresh()
            side = "target"
            target.refresh()
            if parsed["emit.offset-syncs.enabled"]:
                side = parsed["offset-syncs.topic.location"]
                create_compacted(
                    source if side == "source" else target,
                    offset_syncs_topic(parsed, topics.policy),
                    parsed["offset-syncs.topic.replication.factor"],
                )
            side = "source"
            topics.refresh()
        except KafkaError as error:
            self.stop()
            raise unreachable(self.settings, side, error) from None
        jobs = [
            Job(
                "copying settings of topics", *_times(parsed, "sync.topic.configs"), topics.sync_configs, True
            ),
            Job("copying ACLs", *_times(parsed, "sync.topic.acls"), topics.sync_acls, True),
            Job("looking for topics", *_times(parsed, "refresh.topics"), self._refresh),
        ]
        self._periodic = Periodic(
            self.settings.get("name", "mirror"), [job for job in jobs if job.seconds >= 0]
        )
        self._periodic.start()

    def _refresh(self) -> None:
        assert self._topics is not None
        if self._topics.refresh():
            self.request_task_reconfiguration()

    def task_settings(self, max_tasks: int) -> list[Settings]:
        dealt = [] if self._topics is None else self._topics.dealt(max_tasks)
        return [
            self.settings
            | {
                ASSIGNED: ",".join(f"{topic}-{number}" for topic, number in partitions),
                "task.index": str(index),
            }
            for index, partitions in enumerate(dealt)
        ]

    def stop(self) -> None:
        if self._periodic is not None:
            self._periodic.stop()
            self._periodic = None
        for one in self._clusters:
            with contextlib.suppress(KafkaError, OSError):
                one.close()
        self._clusters = []

    def alter_offsets(self, offsets: Sequence[Mapping[str, Any]]) -> bool:
        check_offsets(offsets, ("cluster", "topic"), partition=True, only_zero=False)
        return True

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, ConfigValue]:
        found = super().validate(settings)
        if settings.get("emit.offset-syncs.enabled") == "false" and any(
            name.startswith(("offset-syncs-", "offset-syncs.topic.")) for name in settings
        ):
            found["emit.offset-syncs.enabled"].errors.append(
                "MirrorSourceConnector can't setup offset-syncs feature while emit.offset-syncs.enabled set "
                "to false"
            )
        if settings.get("exactly.once.support") == "required" and not reads_committed(settings):
            found["source.cluster.alias"].errors.append(
                "MirrorSourceConnector can only provide exactly-once guarantees when its source consumer is "
                "configured with isolation.level set to 'read_committed'; otherwise, records from aborted "
                "and uncommitted transactions will be replicated from the source cluster to the target "
                "cluster."
            )
        return found


def _times(parsed: Mapping[str, Any], what: str) -> tuple[float]:
    """Below zero where it is switched off."""
    return (float(parsed[f"{what}.interval.seconds"] if parsed[f"{what}.enabled"] else -1),)
