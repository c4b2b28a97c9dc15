"""MirrorCheckpointConnector: where groups of another cluster would go on in this one.

Each group's offsets are looked up in the offset syncs of the mirror and written to
`<alias>.checkpoints.internal`, from which clients that move read them. With `sync.group.offsets.enabled` they
are committed for the group, too, as long as it has no members here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.client import Cluster
from millstream.client.groups import Committed, Groups
from millstream.connect.api import Settings, SourceConnector
from millstream.connect.connectors.mirror.checkpoint_task import ASSIGNED_GROUPS, MirrorCheckpointTask
from millstream.connect.connectors.mirror.config import CHECKPOINT, cluster, unreachable
from millstream.connect.connectors.mirror.naming import NameFilter, replication_policy
from millstream.connect.connectors.mirror.offsets import check_offsets
from millstream.connect.connectors.mirror.periodic import Job, Periodic
from millstream.connect.connectors.mirror.topics import create_compacted
from millstream.wire.errors import KafkaError

log = logging.getLogger("millstream.connect")

_PROTOCOLS = ("consumer", "")
"""Groups with members, and those that only commit. Connect's workers, for one, are something else."""


class MirrorCheckpoint(SourceConnector):
    task = MirrorCheckpointTask
    config = CHECKPOINT

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._source: Cluster | None = None
        self._periodic: Periodic | None = None
        self._groups: list[str] = []

    def start(self) -> None:
        parsed = CHECKPOINT.parse(self.settings)
        if not (
            parsed["enabled"] and parsed["emit.checkpoints.enabled"] and parsed["emit.offset-syncs.enabled"]
        ):
            return
        self._chosen = NameFilter(parsed["groups"], parsed["groups.exclude"])
        self._topic_chosen = NameFilter(parsed["topics"], parsed["topics.exclude"])
        topic = replication_policy(parsed).checkpoints_topic(parsed["source.cluster.alias"])
        with cluster(self.settings, "target", "admin") as target:
            try:
                create_compacted(target, topic, parsed["checkpoints.topic.replication.factor"])
            except KafkaError as error:
                raise unreachable(self.settings, "target", error) from None
        self._source = cluster(self.settings, "source", "admin")
        try:
            self._groups = self._found()
        except KafkaError as error:
            self.stop()
            raise unreachable(self.settings, "source", error) from None
        seconds = parsed["refresh.groups.interval.seconds"]
        jobs = [Job("looking for groups", float(seconds), self._refresh)]
        self._periodic = Periodic(
            self.settings.get("name", "checkpoints"), jobs if parsed["refresh.groups.enabled"] else []
        )
        self._periodic.start()

    def _found(self) -> list[str]:
        """Groups that have committed something of what is mirrored."""
        assert self._source is not None
        self._source.refresh([])
        groups = Groups(self._source)
        names = [one.group_id for one in groups.listed() if one.protocol_type in _PROTOCOLS]
        found = []
        for name in sorted(filter(self._chosen, names)):
            try:
                committed = groups.committed(name)
            except KafkaError as error:
                log.warning("group %s of the source cannot be asked for its offsets: %s", name, error)
                continue
            if any(
                isinstance(entry, Committed) and self._topic_chosen(which.topic)
                for which, entry in committed.items()
            ):
                found.append(name)
        return found

    def _refresh(self) -> None:
        found = self._found()
        if found != self._groups:
            self._groups = found
            self.request_task_reconfiguration()

    def task_settings(self, max_tasks: int) -> list[Settings]:
        count = min(max_tasks, len(self._groups))
        return [
            self.settings | {ASSIGNED_GROUPS: ",".join(self._groups[index::count]), "task.index": str(index)}
            for index in range(count)
        ]

    def stop(self) -> None:
        if self._periodic is not None:
            self._periodic.stop()
            self._periodic = None
        if self._source is not None:
            with contextlib.suppress(KafkaError, OSError):
                self._source.close()
            self._source = None

    def alter_offsets(self, offsets: Sequence[Mapping[str, Any]]) -> bool:
        check_offsets(offsets, ("group", "topic"), partition=True, only_zero=True)
        return True
