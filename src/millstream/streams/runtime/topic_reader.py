"""Reading committed records in blocks: ranges of offsets, and whole topics up to their present end."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator

from millstream.client import Cluster
from millstream.client.fetch import Fetcher
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.streams.runtime.fetched_records import SomeRecords, records_of
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.streams")

_FETCH_BYTES = 4 << 20
"""Of a partition at a time. More would not stay in the processor's cache; less is more calls than work."""

Offsets = dict[TopicPartition, int]


class TopicReader:
    """Follows all partitions of some topics: `ends`, then `read_to` those ends. Global tables and the views
    of stores are kept current this way."""

    def __init__(self, cluster: Cluster, topics: Iterable[str]) -> None:
        self._cluster, self._topics = cluster, list(topics)
        self._topic_ids: dict[str, uuid.UUID] = {}
        self.positions: Offsets = {}

    def ends(self) -> Offsets:
        """Where the partitions end now, as far as they are committed."""
        topic_partitions = [
            TopicPartition(topic, number)
            for topic in self._topics
            for number in self._cluster.topic(topic).partitions
        ]
        latest = list_offsets(self._cluster, dict.fromkeys(topic_partitions, LATEST), read_committed=True)
        return {topic_partition: end.offset for topic_partition, end in latest.items()}

    def wait(self, max_wait_ms: int) -> None:
        """Until there is more to read, but not for longer."""
        if self.positions:
            fetcher = Fetcher(self._cluster, read_committed=True, partition_max_bytes=1)
            fetcher.poll(self.positions, max_wait_ms)
        else:
            time.sleep(max_wait_ms / 1000)

    def are_others(self, ends: Offsets) -> bool:
        """Whether a topic was deleted and created again since, or cut off."""
        ids = {topic: self._cluster.topic_id(topic) for topic in self._topics}
        recreated = self._topic_ids not in ({}, ids)
        self._topic_ids = ids
        return recreated or any(offset > ends.get(which, -1) for which, offset in self.positions.items())

    def read_to(self, ends: Offsets) -> Iterator[tuple[TopicPartition, SomeRecords]]:
        """What has come since; partitions that are new begin at their first record."""
        new = [topic_partition for topic_partition in ends if topic_partition not in self.positions]
        if new:
            earliest = list_offsets(self._cluster, dict.fromkeys(new, EARLIEST))
            self.positions.update((which, begin.offset) for which, begin in earliest.items())
        yield from read_ranges(self._cluster, self.positions, ends)
        self.positions.update(ends)


def read_ranges(
    cluster: Cluster, begin: Offsets, until: Offsets
) -> Iterator[tuple[TopicPartition, SomeRecords]]:
    """The committed records of [begin, until) of each partition, in each one's order, some thousands at a
    time. What has been deleted from the beginning of a partition meanwhile is passed over."""
    fetcher = Fetcher(cluster, read_committed=True, partition_max_bytes=_FETCH_BYTES)
    left = {which: offset for which, offset in begin.items() if offset < until.get(which, offset)}
    while left:
        for fetched in fetcher.poll(left):
            topic_partition = TopicPartition(fetched.topic, fetched.partition)
            if fetched.error is ErrorCode.offset_out_of_range:
                _pass_over_deleted(cluster, topic_partition, left, until)
                continue
            if fetched.error is not ErrorCode.none:
                raise KafkaError(fetched.error, f"{topic_partition} cannot be read")
            if topic_partition not in left:
                continue
            start, end = left[topic_partition], until[topic_partition]
            found, after = records_of(fetched, start, end, chunk_bytes=_FETCH_BYTES)
            for records in found:
                yield topic_partition, records
            if after >= end:
                del left[topic_partition]
            else:
                left[topic_partition] = after


def _pass_over_deleted(
    cluster: Cluster, topic_partition: TopicPartition, left: Offsets, until: Offsets
) -> None:
    """To the first record that is left, as consumers do that begin at the earliest one."""
    first = list_offsets(cluster, {topic_partition: EARLIEST})[topic_partition].offset
    if first <= left[topic_partition]:
        text = f"{topic_partition} ends before offset {left[topic_partition]}"
        raise KafkaError(ErrorCode.offset_out_of_range, text)
    log.warning(
        "records %d to %d of %s were deleted before they were read",
        left[topic_partition],
        first - 1,
        topic_partition,
    )
    left[topic_partition] = first
    if first >= until[topic_partition]:
        del left[topic_partition]
