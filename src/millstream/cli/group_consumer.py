"""`millstream console-consumer --group`: reading as a member of a group, beside any other clients that are in
it."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed
from millstream.cli.partition_consumer import PartitionConsumer, whole_number
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client import Cluster
    from millstream.client.fetch import Fetched


class GroupConsumer(PartitionConsumer):
    """Reads the partitions that the group gives to it, from where the group is, and commits what has been
    read."""

    joins_group = True

    def __init__(
        self,
        cluster: "Cluster",
        fetcher: Any,
        metadata_max_age: float,
        group: str,
        settings: Mapping[str, str],
    ) -> None:
        from millstream.client.groups import Groups
        from millstream.client.membership import ConsumerMembership

        super().__init__(cluster, fetcher, metadata_max_age, settings)
        self.group = group
        self._groups = Groups(cluster)
        self._commits = settings.get("enable.auto.commit", "true").lower() == "true"
        self._interval = _number(settings, "auto.commit.interval.ms", 5000) / 1000
        self._next_commit = time.monotonic() + self._interval
        self._committed: dict[TopicPartition, int] = {}
        self._manual_partition = False
        self._membership = ConsumerMembership(
            cluster,
            group,
            self._partition_counts,
            session_timeout_ms=_number(settings, "session.timeout.ms", 45_000),
            rebalance_timeout_ms=_number(settings, "max.poll.interval.ms", 300_000),
            heartbeat_interval_ms=_number(settings, "heartbeat.interval.ms", 3_000),
            instance_id=settings.get("group.instance.id"),
        )

    def subscribe(self, topic: str, include: str, partition: int | None) -> None:
        super().subscribe(topic, include, partition)
        # Then nobody is asked for it, but offsets are committed.
        self._manual_partition = partition is not None

    def seek(self, where: str) -> None:
        if self._manual_partition:
            super().seek(where)
            self._committed = dict(self.positions)
        else:
            self._reset = where

    def refresh_assignment(self) -> None:
        if self._manual_partition:
            super().refresh_assignment()
            return
        if time.monotonic() - self._refreshed_at >= self._metadata_max_age:
            self._refreshed_at = time.monotonic()
            self.cluster.refresh(None if self._any_topic else self._partition_counts())
        if self._membership.must_rejoin():
            self.commit()
            self._begin(self._membership.join())

    def poll(self, max_wait_ms: int) -> "list[Fetched]":
        if time.monotonic() >= self._next_commit:
            self.commit()
        return super().poll(max_wait_ms)

    def commit(self) -> None:
        """What has been read since the last time."""
        self._next_commit = time.monotonic() + self._interval
        new = {
            topic_partition: offset
            for topic_partition, offset in self.positions.items()
            if self._committed.get(topic_partition) != offset
        }
        if not self._commits or not new:
            return
        if self._manual_partition:
            for (topic, partition), error in self._groups.commit(self.group, new).items():
                if error is not None:
                    raise CommandFailed(f"cannot commit the offset of {topic}-{partition}: {error.message}")
        elif not self._membership.commit(new):
            return
        self._committed.update(new)

    def close(self) -> None:
        self.commit()
        if not self._manual_partition:
            self._membership.leave()

    # --- inside ---------------------------------------------------------------------------------------------

    def _partition_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for topic, _ in self._matching_partitions():
            counts[topic] = counts.get(topic, 0) + 1
        return counts

    def _begin(self, topic_partitions: tuple[TopicPartition, ...]) -> None:
        """Where the group has been before, go on there; elsewhere as auto.offset.reset says."""
        from millstream.client.groups import Committed

        known = self._groups.committed(self.group, topic_partitions) if topic_partitions else {}
        found = {
            topic_partition: entry.offset
            for topic_partition, entry in known.items()
            if isinstance(entry, Committed)
        }
        new = set(topic_partitions) - found.keys()
        if new and self._reset == "none":
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(new))
            raise CommandFailed(
                f"group {self.group} has no offset for {names}, and auto.offset.reset is none"
            )
        self._committed = dict(found)
        self.positions = {**found, **(self._reset_offsets(new, self._reset) if new else {})}


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    return whole_number(name, settings.get(name, str(default)), shared_options.LARGEST_INT32)
