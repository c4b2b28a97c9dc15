"""The partitions that `millstream console-consumer` reads, and the position in each."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.message_formatter import ConsumerRecord, consumer_record
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client import Cluster
    from millstream.client.cluster import Topic
    from millstream.client.fetch import Fetched

BY_DURATION = "by_duration:"  # a value of auto.offset.reset: so long ago


class PartitionConsumer:
    """The partitions being read and the position in each."""

    joins_group = False

    def __init__(
        self, cluster: "Cluster", fetcher: Any, metadata_max_age: float, settings: Mapping[str, str]
    ) -> None:
        self.cluster = cluster
        self.fetcher = fetcher
        self._metadata_max_age = metadata_max_age
        # Kafka's consumer creates missing topics by default; a mistyped name would become a topic.
        self._create = settings.get("allow.auto.create.topics", "false").lower() == "true"
        self.positions: dict[TopicPartition, int] = {}
        self._reset = "latest"
        self._matching_partitions: Callable[[], set[TopicPartition]] = set
        self._any_topic = False
        self._refreshed_at = time.monotonic()

    def subscribe(self, topic: str, include: str, partition: int | None) -> None:
        cluster = self.cluster
        if topic:
            found = self._existing_topic(topic)
            if partition is not None:
                if partition not in found.partitions:
                    count = len(found.partitions)
                    raise CommandFailed(f"topic {topic} has no partition {partition}: it has {count}, from 0")
                self._matching_partitions = lambda: {TopicPartition(topic, partition)}
            else:
                self._matching_partitions = lambda: {
                    TopicPartition(topic, number) for number in cluster.topic(topic).partitions
                }
            return
        matcher = cluster_access.topic_matcher(include)
        cluster.refresh()
        self._matching_partitions = lambda: {
            TopicPartition(name, index)
            for name, found in cluster.topics.items()
            if matcher.fullmatch(name)
            for index in found.partitions
        }
        self._any_topic = True

    def _existing_topic(self, topic: str) -> "Topic":
        from millstream.settings.suggestions import did_you_mean
        from millstream.wire.errors import ErrorCode, KafkaError

        try:
            return self.cluster.topic(topic, self._create)
        except KafkaError as error:
            if error.code is not ErrorCode.unknown_topic_or_partition or self._create:
                raise
            self.cluster.refresh()
            raise CommandFailed(
                f"topic {topic} does not exist{did_you_mean(topic, self.cluster.topics)} "
                "(allow.auto.create.topics=true creates it)"
            ) from None

    def seek(self, where: str) -> None:
        topic_partitions = self._matching_partitions()
        if where.isdecimal():
            self.positions = dict.fromkeys(topic_partitions, int(where))
            return
        self._reset = where
        self.positions = self._reset_offsets(topic_partitions, where)

    def seek_to_time(self, moment: int) -> None:
        """With the first record at or after it; where there is none, with what comes."""
        self.positions = self._offsets_at(self._matching_partitions(), moment)

    def _offsets_at(self, topic_partitions: set[TopicPartition], moment: int) -> dict[TopicPartition, int]:
        from millstream.client import list_offsets

        found = list_offsets(self.cluster, dict.fromkeys(topic_partitions, moment))
        later = {
            topic_partition: answer.offset for topic_partition, answer in found.items() if answer.offset >= 0
        }
        return {**later, **self._reset_offsets(topic_partitions - later.keys(), "latest")}

    def _offsets_ago(self, topic_partitions: set[TopicPartition], duration: str) -> dict[TopicPartition, int]:
        from millstream.cli.consumer_groups_reset import parse_duration

        return self._offsets_at(
            topic_partitions, max(0, round(time.time() * 1000) - parse_duration(duration))
        )

    def _reset_offsets(self, topic_partitions: set[TopicPartition], where: str) -> dict[TopicPartition, int]:
        from millstream.client import EARLIEST, LATEST, list_offsets

        if where.startswith(BY_DURATION):
            return self._offsets_ago(topic_partitions, where.removeprefix(BY_DURATION))
        moment = EARLIEST if where == "earliest" else LATEST
        committed = self.fetcher.read_committed
        found = list_offsets(self.cluster, dict.fromkeys(topic_partitions, moment), read_committed=committed)
        return {topic_partition: answer.offset for topic_partition, answer in found.items()}

    def refresh_assignment(self) -> None:
        """Partitions that are new since the start are read from their beginning."""
        if time.monotonic() - self._refreshed_at < self._metadata_max_age and self.positions:
            return
        self._refreshed_at = time.monotonic()
        self.cluster.refresh(None if self._any_topic else {topic for topic, _ in self.positions})
        new = self._matching_partitions() - self.positions.keys()
        if new:
            self.positions.update(self._reset_offsets(new, "earliest"))

    def poll(self, max_wait_ms: int) -> "list[Fetched]":
        from millstream.wire.errors import ErrorCode

        self.refresh_assignment()
        if not self.positions:
            time.sleep(max_wait_ms / 1000)
            return []
        good = []
        for fetched in self.fetcher.poll(self.positions, max_wait_ms):
            topic_partition = TopicPartition(fetched.topic, fetched.partition)
            if fetched.error is ErrorCode.offset_out_of_range:
                old = self.positions[topic_partition]
                self.positions.update(self._reset_offsets({topic_partition}, self._reset))
                new = self.positions[topic_partition]
                print(
                    f"Offset {old} of {topic_partition} is out of range: going on at {new}",
                    file=sys.stderr,
                )
            elif fetched.error is not ErrorCode.none:
                raise CommandFailed(f"{topic_partition}: the broker answers {fetched.error.name.upper()}")
            else:
                good.append(fetched)
        return good

    def records(self, fetched: "Fetched", skip_errors: bool) -> Iterator[ConsumerRecord]:
        """The records of an answer that have not been read yet; moves the position behind each."""
        from millstream.client.fetch import next_offset, visible_batches
        from millstream.wire.errors import KafkaError
        from millstream.wire.records import iter_records

        topic_partition = TopicPartition(fetched.topic, fetched.partition)
        start = self.positions[topic_partition]
        for header, batch in visible_batches(fetched, start, self.fetcher.read_committed):
            try:
                for record in iter_records(batch):
                    if record.offset < start:
                        continue
                    self.positions[topic_partition] = record.offset + 1
                    yield consumer_record(topic_partition, header, record)
            except KafkaError as error:
                where = f"{topic_partition} at offset {header.base_offset}"
                if not skip_errors:
                    raise CommandFailed(f"cannot read the batch of {where}: {error.message}") from None
                print(f"Skipped a batch of {where}: {error.message}", file=sys.stderr)
        self.positions[topic_partition] = max(self.positions[topic_partition], next_offset(fetched, start))

    def close(self) -> None:
        """Nothing is left behind: without a group nobody remembers what was read."""


def whole_number(name: str, text: str, largest: int = shared_options.LARGEST_INT64) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{name}={text} is not a number of 0 or more")
    if int(text) > largest:
        raise UsageError(f"{name}={text} is larger than {largest}")
    return int(text)
