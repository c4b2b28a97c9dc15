"""Inside a Spark task: fetch ranges of partitions and decode them.

All ranges of a task are fetched together, one request under way per leader. When an answer arrives, the headers of its
batches tell at once where to read on, so the next request is sent before this answer is decoded: the broker works while
the task does. Offsets that do not exist (compaction, transaction markers, aborted transactions) are stepped over, since
batches say where they end.

Leaders that moved and brokers that restart are tried again until nothing has come for `patience` seconds.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millstream.client import Cluster
from millstream.client.cluster import MOVED
from millstream.client.connection import Connection
from millstream.client.errors import describe
from millstream.client.messages import NO_ID
from millstream.spark.source.offsets import Source
from millstream.spark.source.plan import Range
from millstream.spark.source.read_options import SourceSettings
from millstream.wire.arrow import Answer, Chunk, Columns
from millstream.wire.client_messages import (
    FETCH,
    FETCH_FLEXIBLE,
    FETCH_NEWEST,
    FETCH_TOPIC_IDS,
    Fetched,
    Position,
    pack_fetch,
    read_fetch,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

FETCH_BYTES = 16 << 20
PARTITION_BYTES = 4 << 20
FIRST_BYTES = 1 << 20  # while nothing is known about how large the records are
LEAST_BYTES = 64 << 10
MAX_WAIT_MS = 500

_record_sizes: dict[str, float] = {}  # bytes per offset of a topic, as last seen by this worker


@dataclass(slots=True)
class _Open:
    """A range that is not read to its end yet."""

    position: int
    until: int


@dataclass(slots=True)
class _Asked:
    """A request under way, with the position asked for of each partition."""

    connection: Connection
    version: int
    positions: dict[TopicPartition, int]


@dataclass(slots=True)
class _Job:
    """A part of an answer to decode."""

    fetched: Fetched
    answer: Answer
    first: int
    until: int


class TaskReader:
    """Reads the ranges of one task, once."""

    def __init__(
        self, settings: SourceSettings, cluster: Cluster, ranges: Sequence[Range], columns: Columns
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._columns = columns
        self._open: dict[TopicPartition, _Open] = {}
        self._later: list[Range] = []  # two ranges of one partition are read one after the other
        for r in ranges:
            if (r.topic, r.partition) in self._open:
                self._later.append(r)
            else:
                self._open[TopicPartition(r.topic, r.partition)] = _Open(r.first, r.until)
        self._asked: dict[int, _Asked] = {}
        self._last_progress = time.monotonic()
        self._retry = cluster.retry(settings.patience)

    def chunks(self) -> Iterator[tuple[str, int, Chunk]]:
        """Everything in the ranges, in order within each partition."""
        while self._open:
            try:
                self._ask_all()
                jobs = self._receive()
            except KafkaError as error:
                self._pause(error)
                continue
            for job in jobs:
                for chunk in job.answer.chunks(
                    job.first,
                    job.until,
                    read_committed=self._settings.read_committed,
                    aborted=job.fetched.aborted,
                    columns=self._columns,
                    check_crcs=self._settings.check_crcs,
                ):
                    yield job.fetched.topic, job.fetched.partition, chunk
            if not self._open and self._later:
                r = self._later.pop(0)
                self._open[TopicPartition(r.topic, r.partition)] = _Open(r.first, r.until)

    # --- asking --------------------------------------------------------------------------------------------------------

    def _ask_all(self) -> None:
        """A request to every leader of an open range that has none to answer."""
        under_way = {place for asked in self._asked.values() for place in asked.positions}
        left = [place for place in self._open if place not in under_way]
        if not left:
            return
        for node_id, places in self._cluster.by_leader(left).items():
            if node_id not in self._asked:
                self._ask(node_id, places)

    def _ask(self, node_id: int, places: Sequence[TopicPartition]) -> None:
        cluster = self._cluster
        topics: dict[str, dict[int, Position]] = {}
        positions = {place: self._open[place].position for place in places}
        for (topic, partition), position in positions.items():
            topics.setdefault(topic, {})[partition] = Position(position)
        ids = {topic: cluster.topic_id(topic) for topic in topics}
        connection = cluster.connection(node_id)
        version = connection.version(
            "fetch", up_to=FETCH_TOPIC_IDS - 1 if NO_ID in ids.values() else FETCH_NEWEST
        )
        body = pack_fetch(
            version,
            topics,
            ids,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._settings.fetch_bytes or FETCH_BYTES,
            partition_max_bytes=self._settings.partition_bytes or self._needed(places),
            isolation=1 if self._settings.read_committed else 0,
        )
        connection.send(FETCH, version, version >= FETCH_FLEXIBLE, [body])
        self._asked[node_id] = _Asked(connection, version, positions)

    def _needed(self, places: Sequence[TopicPartition]) -> int:
        """Not much more than what is left to read: what comes after the range would be fetched for nothing."""
        most = 0.0
        for place in places:
            size = _record_sizes.get(place[0])
            if size is None:
                return FIRST_BYTES
            most = max(most, (self._open[place].until - self._open[place].position) * size * 1.1)
        return max(LEAST_BYTES, min(PARTITION_BYTES, round(most)))

    # --- answers -------------------------------------------------------------------------------------------------------

    def _receive(self) -> list[_Job]:
        """The next answer; before it is returned, the request after it is on its way."""
        node_id, asked = next(iter(self._asked.items()))
        patience = self._cluster.config.request_timeout + MAX_WAIT_MS / 1000
        body = asked.connection.receive(patience)
        del self._asked[node_id]
        jobs: list[_Job] = []
        problem: KafkaError | None = None
        for fetched in read_fetch(asked.version, body, self._cluster.topic_names):
            place = (fetched.topic, fetched.partition)
            if place not in asked.positions:
                continue
            if fetched.error is ErrorCode.offset_out_of_range:
                self._out_of_range(place)
            elif fetched.error is not ErrorCode.none:
                subject = f"partition {fetched.topic}-{fetched.partition}"
                problem = KafkaError(fetched.error, describe(fetched.error, subject=subject))
            elif len(fetched.records):
                jobs += self._take(place, fetched)
        if jobs:
            self._last_progress = time.monotonic()
            self._retry = self._cluster.retry(self._settings.patience)
        elif problem is None:
            self._check_patience()
        if problem is not None:
            if jobs and problem.code in MOVED:
                return jobs  # what came is good; the rest is asked for again
            raise problem
        if self._open and not self._asked:
            try:
                self._ask_all()
            except KafkaError as error:
                if not jobs:
                    raise error
        return jobs

    def _take(self, place: TopicPartition, fetched: Fetched) -> list[_Job]:
        """Move the position past an answer. No whole batch in it: it was too large for what was left of the answer."""
        answer = Answer(fetched.records)
        state = self._open.pop(place)
        after = answer.next_offset
        if after is not None and after > state.position:
            _record_sizes[place[0]] = len(fetched.records) / max(1, after - state.position)
            first, state.position = state.position, after
        else:
            first, after = state.position, None
        if state.position < state.until:
            self._open[place] = state  # at the end: in the next request the others come first
        return [] if after is None else [_Job(fetched, answer, first, state.until)]

    def _out_of_range(self, place: TopicPartition) -> None:
        """What was to be read is gone: deleted by retention, or the topic is another one of the same name."""
        source = Source(self._settings, self._cluster)
        self._asked.clear()  # asking for offsets takes over the connection
        state = self._open[place]
        first = source.earliest([place])[place]
        last = source.latest([place], {place: state.position})[place]
        if first <= state.position <= last:
            time.sleep(self._settings.pause)  # a broker that did not know better yet: ask again
            return
        name = f"{place[0]}-{place[1]}"
        source.lost(f"offset {state.position} of partition {name} is gone: it has {first} to {last}")
        if first > state.position and first < state.until:
            state.position = first
        else:
            del self._open[place]

    # --- trouble -------------------------------------------------------------------------------------------------------

    def _pause(self, error: KafkaError) -> None:
        """Wait a little, then learn who leads what now; raise what does not pass."""
        self._asked.clear()
        self._retry.pause(error)
        source = Source(self._settings, self._cluster)
        for topic in source.gone(topic for topic, _ in self._open):
            self._topic_gone(source, topic)

    def _topic_gone(self, source: Source, topic: str) -> None:
        source.lost(f"topic '{topic}' was deleted while it was read")
        for place in [place for place in self._open if place[0] == topic]:
            del self._open[place]
        self._later = [r for r in self._later if r.topic != topic]

    def _check_patience(self) -> None:
        if time.monotonic() - self._last_progress > self._settings.patience:
            (topic, partition), state = next(iter(self._open.items()))
            raise KafkaError(
                ErrorCode.invalid_request,  # not one that passes: it has been waited for
                f"no records of partition {topic}-{partition} came for {self._settings.patience:g} s at offset "
                f"{state.position}, of {state.until} (option 'kafkaConsumer.pollTimeoutMs')",
            )
