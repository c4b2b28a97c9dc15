"""The partitions that `millstream console-consumer` reads, and the position in each."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from millstream.cli import common
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.message_formatter import Shown
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client import Cluster
    from millstream.client.fetch import Fetched

BY_DURATION = "by_duration:"  # a value of auto.offset.reset: so long ago


class Reading:
    """The partitions being read and the position in each."""

    def __init__(self, cluster: "Cluster", fetcher: Any, look_around: float) -> None:
        self.cluster = cluster
        self.fetcher = fetcher
        self._look_around = look_around
        self.positions: dict[TopicPartition, int] = {}
        self._reset = "latest"
        self._places: Callable[[], set[TopicPartition]] = set
        self._any_topic = False
        self._looked = time.monotonic()

    def find_topics(self, topic: str, include: str, partition: int | None) -> None:
        cluster = self.cluster
        if topic:
            found = cluster.topic(topic, create=True)
            if partition is not None:
                if partition not in found.partitions:
                    count = len(found.partitions)
                    raise CommandFailed(f"topic {topic} has no partition {partition}: it has {count}, from 0")
                self._places = lambda: {TopicPartition(topic, partition)}
            else:
                self._places = lambda: {TopicPartition(topic, n) for n in cluster.topic(topic).partitions}
            return
        matcher = common.topic_matcher(include)
        cluster.refresh()
        self._places = lambda: {
            TopicPartition(name, n)
            for name, t in cluster.topics.items()
            if matcher.fullmatch(name)
            for n in t.partitions
        }
        self._any_topic = True

    def start_at(self, where: str) -> None:
        places = self._places()
        if where.isdecimal():
            self.positions = dict.fromkeys(places, int(where))
            return
        self._reset = where
        self.positions = self._lookup(places, where)

    def start_at_time(self, moment: int) -> None:
        """With the first record at or after it; where there is none, with what comes."""
        self.positions = self._lookup_at(self._places(), moment)

    def _lookup_at(self, places: set[TopicPartition], moment: int) -> dict[TopicPartition, int]:
        from millstream.client import list_offsets

        found = list_offsets(self.cluster, dict.fromkeys(places, moment))
        later = {place: answer.offset for place, answer in found.items() if answer.offset >= 0}
        return {**later, **self._lookup(places - later.keys(), "latest")}

    def _lookup_ago(self, places: set[TopicPartition], duration: str) -> dict[TopicPartition, int]:
        from millstream.cli.consumer_groups_reset import parse_duration

        return self._lookup_at(places, max(0, round(time.time() * 1000) - parse_duration(duration)))

    def _lookup(self, places: set[TopicPartition], where: str) -> dict[TopicPartition, int]:
        from millstream.client import EARLIEST, LATEST, list_offsets

        if where.startswith(BY_DURATION):
            return self._lookup_ago(places, where.removeprefix(BY_DURATION))
        moment = EARLIEST if where == "earliest" else LATEST
        committed = self.fetcher.read_committed
        found = list_offsets(self.cluster, dict.fromkeys(places, moment), read_committed=committed)
        return {place: answer.offset for place, answer in found.items()}

    def look_around(self) -> None:
        """Partitions that are new since the start are read from their beginning."""
        if time.monotonic() - self._looked < self._look_around and self.positions:
            return
        self._looked = time.monotonic()
        self.cluster.refresh(None if self._any_topic else {topic for topic, _ in self.positions})
        new = self._places() - self.positions.keys()
        if new:
            self.positions.update(self._lookup(new, "earliest"))

    def poll(self, max_wait_ms: int) -> "list[Fetched]":
        from millstream.wire.errors import ErrorCode

        self.look_around()
        if not self.positions:
            time.sleep(max_wait_ms / 1000)
            return []
        good = []
        for fetched in self.fetcher.poll(self.positions, max_wait_ms):
            place = TopicPartition(fetched.topic, fetched.partition)
            if fetched.error is ErrorCode.offset_out_of_range:
                old = self.positions[place]
                self.positions.update(self._lookup({place}, self._reset))
                new = self.positions[place]
                print(
                    f"Offset {old} of {place[0]}-{place[1]} is out of range: going on at {new}",
                    file=sys.stderr,
                )
            elif fetched.error is not ErrorCode.none:
                raise CommandFailed(f"{place[0]}-{place[1]}: the broker answers {fetched.error.name.upper()}")
            else:
                good.append(fetched)
        return good

    def records(self, fetched: "Fetched", skip_errors: bool) -> Iterator[Shown]:
        """The records of an answer that have not been read yet; moves the position behind each."""
        from millstream.client.fetch import next_offset, visible_batches
        from millstream.wire.batch import LOG_APPEND_TIME
        from millstream.wire.errors import KafkaError
        from millstream.wire.records import iter_records

        place = TopicPartition(fetched.topic, fetched.partition)
        start = self.positions[place]
        for header, batch in visible_batches(fetched, start, self.fetcher.read_committed):
            kind = "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime"
            try:
                for record in iter_records(batch):
                    if record.offset < start:
                        continue
                    self.positions[place] = record.offset + 1
                    yield Shown(
                        *place,
                        record.offset,
                        header.leader_epoch,
                        record.timestamp,
                        kind,
                        record.key,
                        record.value,
                        tuple(record.headers),
                    )
            except KafkaError as error:
                where = f"{place[0]}-{place[1]} at offset {header.base_offset}"
                if not skip_errors:
                    raise CommandFailed(f"cannot read the batch of {where}: {error.message}") from None
                print(f"Skipped a batch of {where}: {error.message}", file=sys.stderr)
        self.positions[place] = max(self.positions[place], next_offset(fetched, start))

    def close(self) -> None:
        """Nothing is left behind: without a group nobody remembers what was read."""


def whole_number(name: str, text: str, largest: int = common.LARGEST_INT64) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{name}={text} is not a number of 0 or more")
    if int(text) > largest:
        raise UsageError(f"{name}={text} is larger than {largest}")
    return int(text)
