"""Offsets of some groups, as checkpoints and as committed offsets.

A checkpoint is written when it is news: the group has got further in the target, or has gone back in the
source. What was written before is read from the topic at the start, so that a task which begins anew, with
few offset syncs left of the past, does not send a group back.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence

from millstream.client import Cluster
from millstream.client.groups import Committed, Groups
from millstream.connect.api import Settings, SourceContext, SourceTask
from millstream.connect.connectors.mirror.config import CHECKPOINT, cluster, offset_syncs_topic
from millstream.connect.connectors.mirror.mirror_records import Checkpoint, OffsetSync
from millstream.connect.connectors.mirror.naming import NameFilter, replication_policy
from millstream.connect.connectors.mirror.offset_syncs import FollowedTopic, OffsetSyncs
from millstream.connect.data.record import SourceRecord
from millstream.connect.data.schema import REQUIRED, Type
from millstream.connect.errors import RetriableError
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.connect")

ASSIGNED_GROUPS = "task.assigned.groups"
WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
_BYTES = REQUIRED[Type.BYTES]


class MirrorCheckpointTask(SourceTask):
    steady = True

    def __init__(self) -> None:
        self._clusters: list[Cluster] = []
        self._checkpoints: dict[str, dict[TopicPartition, Checkpoint]] = {}
        self._offset_syncs = OffsetSyncs()

    def start(self, settings: Settings, context: SourceContext) -> None:
        parsed = CHECKPOINT.parse(settings)
        self._policy = replication_policy(parsed)
        self._alias = parsed["source.cluster.alias"]
        self._topic_chosen = NameFilter(parsed["topics"], parsed["topics.exclude"])
        self._groups = [name for name in settings[ASSIGNED_GROUPS].split(",") if name]
        self._checkpoints = {group: {} for group in self._groups}
        self._topic = self._policy.checkpoints_topic(self._alias)
        self._interval = float(parsed["emit.checkpoints.interval.seconds"])
        self._sync_interval = float(parsed["sync.group.offsets.interval.seconds"])
        self._syncs_offsets = parsed["sync.group.offsets.enabled"]
        source, target = (cluster(settings, side, "admin") for side in ("source", "target"))
        self._clusters = [source, target]
        self._source, self._target = Groups(source), Groups(target)
        home = source if parsed["offset-syncs.topic.location"] == "source" else target
        self._syncs_topic = FollowedTopic(home, offset_syncs_topic(parsed, self._policy))
        self._written: FollowedTopic | None = FollowedTopic(target, self._topic)
        self._due = self._sync_due = time.monotonic()

    def poll(self) -> Sequence[SourceRecord]:
        now = time.monotonic()
        found: list[SourceRecord] = []
        try:
            if now >= self._due:
                found = self._news()
                self._due = time.monotonic() + self._interval
            if self._syncs_offsets and now >= self._sync_due:
                self._commit_in_target()
                self._sync_due = time.monotonic() + self._sync_interval
        except KafkaError as error:
            raise RetriableError(f"offsets of groups cannot be mirrored now: {error}") from None
        due = min(self._due, self._sync_due) if self._syncs_offsets else self._due
        self.idle_ms = max(0.0, due - time.monotonic()) * 1000
        return found

    # --- checkpoints ----------------------------------------------------------------------------------------

    def _news(self) -> list[SourceRecord]:
        self._read_own_topics()
        news: list[Checkpoint] = []
        for group in self._groups:
            known = self._checkpoints[group]
            for checkpoint in self._translated(group):
                if is_news(known.get(checkpoint.topic_partition), checkpoint):
                    known[checkpoint.topic_partition] = checkpoint
                    news.append(checkpoint)
        return [self._record(checkpoint) for checkpoint in news]

    def _read_own_topics(self) -> None:
        if self._written is not None:
            for record in self._written.new_records():
                checkpoint = Checkpoint.read(record.key, record.value)
                if checkpoint is not None and checkpoint.group in self._checkpoints:
                    self._checkpoints[checkpoint.group][checkpoint.topic_partition] = checkpoint
            self._written = None
        for record in self._syncs_topic.new_records():
            sync = OffsetSync.read(record.key, record.value)
            if sync is not None:
                self._offset_syncs.add(sync)

    def _translated(self, group: str) -> list[Checkpoint]:
        found = []
        for which, entry in self._source.committed(group).items():
            if not isinstance(entry, Committed) or entry.offset < 0 or not self._topic_chosen(which.topic):
                continue
            downstream = self._offset_syncs.downstream(which, entry.offset)
            if downstream is not None and downstream >= 0:
                remote = TopicPartition(self._policy.remote_topic(self._alias, which.topic), which.partition)
                found.append(Checkpoint(group, remote, entry.offset, downstream, entry.metadata))
        return found

    def _record(self, checkpoint: Checkpoint) -> SourceRecord:
        topic, partition = checkpoint.topic_partition
        return SourceRecord(
            topic=self._topic,
            partition=0,
            key_schema=_BYTES,
            key=checkpoint.key,
            value_schema=_BYTES,
            value=checkpoint.value,
            timestamp=int(time.time() * 1000),
            source_partition={"group": checkpoint.group, "topic": topic, "partition": partition},
            source_offset={"offset": 0},
        )

    # --- committed offsets of the target --------------------------------------------------------------------

    def _commit_in_target(self) -> None:
        """Forward only: a group that has been here already knows better."""
        for group, found in self._target.describe(self._groups).items():
            if isinstance(found, KafkaError):
                if found.code is not ErrorCode.group_id_not_found:
                    log.warning("group %s of the target cannot be looked at: %s", group, found)
                    continue
            elif found.state not in WITHOUT_MEMBERS:
                continue
            there = self._target.committed(group)
            wanted = {
                which: checkpoint.downstream
                for which, checkpoint in self._checkpoints[group].items()
                if not isinstance(entry := there.get(which), Committed)
                or entry.offset < checkpoint.downstream
            }
            if not wanted:
                continue
            for which, error in self._target.commit(group, wanted).items():
                if error is not None:
                    log.warning("the offset of group %s in %s-%d stays: %s", group, *which, error)

    def stop(self) -> None:
        for one in self._clusters:
            with contextlib.suppress(KafkaError, OSError):
                one.close()


def is_news(known: Checkpoint | None, found: Checkpoint) -> bool:
    """The group has got further in the target, or has gone back in the source."""
    return known is None or found.downstream > known.downstream or found.upstream < known.upstream
