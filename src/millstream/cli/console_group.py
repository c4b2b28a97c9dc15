"""`millstream console-consumer --group`: reading as a member of a group, beside any other clients that are in
it."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.cli import common
from millstream.cli.console_positions import Reading, whole_number
from millstream.cli.errors import CommandFailed
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client import Cluster
    from millstream.client.fetch import Fetched


class GroupReading(Reading):
    """Reads the partitions that the group gives to it, from where the group is, and commits what has been
    read."""

    def __init__(
        self, cluster: "Cluster", fetcher: Any, look_around: float, group: str, settings: Mapping[str, str]
    ) -> None:
        from millstream.client.groups import Groups
        from millstream.client.membership import ConsumerMembership

        super().__init__(cluster, fetcher, look_around)
        self.group = group
        self._groups = Groups(cluster)
        self._commits = settings.get("enable.auto.commit", "true").lower() == "true"
        self._interval = _number(settings, "auto.commit.interval.ms", 5000) / 1000
        self._next_commit = time.monotonic() + self._interval
        self._committed: dict[TopicPartition, int] = {}
        self._by_hand = False
        self._membership = ConsumerMembership(
            cluster,
            group,
            self._partition_counts,
            session_timeout_ms=_number(settings, "session.timeout.ms", 45_000),
            rebalance_timeout_ms=_number(settings, "max.poll.interval.ms", 300_000),
            heartbeat_interval_ms=_number(settings, "heartbeat.interval.ms", 3_000),
            instance_id=settings.get("group.instance.id"),
        )

    def find_topics(self, topic: str, include: str, partition: int | None) -> None:
        super().find_topics(topic, include, partition)
        self._by_hand = partition is not None  # then nobody is asked for it, but offsets are committed

    def start_at(self, where: str) -> None:
        if self._by_hand:
            super().start_at(where)
            self._committed = dict(self.positions)
        else:
            self._reset = where

    def look_around(self) -> None:
        if self._by_hand:
            super().look_around()
            return
        if time.monotonic() - self._looked >= self._look_around:
            self._looked = time.monotonic()
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
            place: offset for place, offset in self.positions.items() if self._committed.get(place) != offset
        }
        if not self._commits or not new:
            return
        if self._by_hand:
            for (topic, partition), error in self._groups.commit(self.group, new).items():
                if error is not None:
                    raise CommandFailed(f"cannot commit the offset of {topic}-{partition}: {error.message}")
        elif not self._membership.commit(new):
            return
        self._committed.update(new)

    def close(self) -> None:
        self.commit()
        if not self._by_hand:
            self._membership.leave()

    # --- inside ---------------------------------------------------------------------------------------------

    def _partition_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for topic, _ in self._places():
            counts[topic] = counts.get(topic, 0) + 1
        return counts

    def _begin(self, places: tuple[TopicPartition, ...]) -> None:
        """Where the group has been before, go on there; elsewhere as auto.offset.reset says."""
        from millstream.client.groups import Committed

        known = self._groups.committed(self.group, places) if places else {}
        found = {place: entry.offset for place, entry in known.items() if isinstance(entry, Committed)}
        new = set(places) - found.keys()
        if new and self._reset == "none":
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(new))
            raise CommandFailed(
                f"group {self.group} has no offset for {names}, and auto.offset.reset is none"
            )
        self._committed = dict(found)
        self.positions = {**found, **(self._lookup(new, self._reset) if new else {})}


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    return whole_number(name, settings.get(name, str(default)), common.LARGEST_INT32)
