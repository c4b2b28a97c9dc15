"""Inside a Spark task: fetch ranges of partitions and decode them.

All ranges of a task are fetched together, one request under way per leader. When an answer arrives, the
headers of its batches tell at once where to read on, so the next request is sent before this answer is
decoded: the broker works while the task does. Offsets that do not exist (compaction, transaction markers,
aborted transactions) are stepped over, since batches say where they end.

Leaders that moved and brokers that restart are tried again until nothing has come for `timeout` seconds.
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
from millstream.spark.source.read_options import ReadOptions
from millstream.wire.arrow import Answer, Chunk, Columns
from millstream.wire.client_produce_fetch import (
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
class _InFlight:
    """A fetch request without its response yet, and the position it requests of each partition."""

    connection: Connection
    version: int
    positions: dict[TopicPartition, int]


@dataclass(slots=True)
class _Fetched:
    """The records of one partition, to be decoded."""

    fetched: Fetched
    answer: Answer
    first: int
    until: int


class TaskReader:
    """Reads the ranges of one task, once."""

    def __init__(
        self, options: ReadOptions, cluster: Cluster, ranges: Sequence[Range], columns: Columns
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._columns = columns
        self._open: dict[TopicPartition, _Open] = {}
        self._later: list[Range] = []  # two ranges of one partition are read one after the other
        for piece in ranges:
            if (piece.topic, piece.partition) in self._open:
                self._later.append(piece)
            else:
                self._open[TopicPartition(piece.topic, piece.partition)] = _Open(piece.first, piece.until)
        self._in_flight: dict[int, _InFlight] = {}
        self._last_progress = time.monotonic()
        self._retry = cluster.retry(options.timeout)

    def chunks(self) -> Iterator[tuple[str, int, Chunk]]:
        """Everything in the ranges, in order within each partition."""
        while self._open:
            try:
                self._send_all()
                jobs = self._receive()
            except KafkaError as error:
                self._pause(error)
                continue
            for job in jobs:
                for chunk in job.answer.chunks(
                    job.first,
                    job.until,
                    read_committed=self._options.read_committed,
                    aborted=job.fetched.aborted,
                    columns=self._columns,
                    check_crcs=self._options.check_crcs,
                ):
                    yield job.fetched.topic, job.fetched.partition, chunk
            if not self._open and self._later:
                piece = self._later.pop(0)
                self._open[TopicPartition(piece.topic, piece.partition)] = _Open(piece.first, piece.until)

    # --- requests -------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        """A request to every leader of an open range that has none to answer."""
        requested = {
            topic_partition for request in self._in_flight.values() for topic_partition in request.positions
        }
        left = [topic_partition for topic_partition in self._open if topic_partition not in requested]
        if not left:
            return
        for node_id, topic_partitions in self._cluster.by_leader(left).items():
            if node_id not in self._in_flight:
                self._send(node_id, topic_partitions)

    def _send(self, node_id: int, topic_partitions: Sequence[TopicPartition]) -> None:
        cluster = self._cluster
        topics: dict[str, dict[int, Position]] = {}
        positions = {
            topic_partition: self._open[topic_partition].position for topic_partition in topic_partitions
        }
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
            max_bytes=self._options.fetch_bytes or FETCH_BYTES,
            partition_max_bytes=self._options.partition_bytes or self._needed(topic_partitions),
            isolation=1 if self._options.read_committed else 0,
        )
        connection.send(FETCH, version, version >= FETCH_FLEXIBLE, [body])
        self._in_flight[node_id] = _InFlight(connection, version, positions)

    def _needed(self, topic_partitions: Sequence[TopicPartition]) -> int:
        """Not much more than what is left to read: what comes after the range would be fetched for
        nothing."""
        max_bytes = 0.0
        for topic_partition in topic_partitions:
            size = _record_sizes.get(topic_partition.topic)
            if size is None:
                return FIRST_BYTES
            max_bytes = max(
                max_bytes,
                (self._open[topic_partition].until - self._open[topic_partition].position) * size * 1.1,
            )
        return max(LEAST_BYTES, min(PARTITION_BYTES, round(max_bytes)))

    # --- responses ------------------------------------------------------------------------------------------

    def _receive(self) -> list[_Fetched]:
        """The next answer; before it is returned, the request after it is on its way."""
        node_id, request = next(iter(self._in_flight.items()))
        timeout = self._cluster.config.request_timeout + MAX_WAIT_MS / 1000
        body = request.connection.receive(timeout)
        del self._in_flight[node_id]
        jobs: list[_Fetched] = []
        problem: KafkaError | None = None
        for fetched in read_fetch(request.version, body, self._cluster.topic_names):
            topic_partition = TopicPartition(fetched.topic, fetched.partition)
            if topic_partition not in request.positions:
                continue
            if fetched.error is ErrorCode.offset_out_of_range:
                self._out_of_range(topic_partition)
            elif fetched.error is not ErrorCode.none:
                subject = f"partition {fetched.topic}-{fetched.partition}"
                problem = KafkaError(fetched.error, describe(fetched.error, subject=subject))
            elif len(fetched.records):
                jobs += self._take(topic_partition, fetched)
        if jobs:
            self._last_progress = time.monotonic()
            self._retry = self._cluster.retry(self._options.timeout)
        elif problem is None:
            self._check_timeout()
        if problem is not None:
            if jobs and problem.code in MOVED:
                return jobs  # what came is good; the rest is requested again
            raise problem
        if self._open and not self._in_flight:
            try:
                self._send_all()
            except KafkaError as error:
                if not jobs:
                    raise error
        return jobs

    def _take(self, topic_partition: TopicPartition, fetched: Fetched) -> list[_Fetched]:
        """Move the position past an answer. No whole batch in it: it was too large for what was left of the
        answer."""
        answer = Answer(fetched.records)
        state = self._open.pop(topic_partition)
        after = answer.next_offset
        if after is not None and after > state.position:
            _record_sizes[topic_partition.topic] = len(fetched.records) / max(1, after - state.position)
            first, state.position = state.position, after
        else:
            first, after = state.position, None
        if state.position < state.until:
            self._open[topic_partition] = state  # at the end: in the next request the others come first
        return [] if after is None else [_Fetched(fetched, answer, first, state.until)]

    def _out_of_range(self, topic_partition: TopicPartition) -> None:
        """What was to be read is gone: deleted by retention, or the topic is another one of the same name."""
        source = Source(self._options, self._cluster)
        self._in_flight.clear()  # asking for offsets takes over the connection
        state = self._open[topic_partition]
        first = source.earliest([topic_partition])[topic_partition]
        last = source.latest([topic_partition], {topic_partition: state.position})[topic_partition]
        if first <= state.position <= last:
            time.sleep(self._options.pause)  # a broker that did not know better yet: ask again
            return
        source.lost(
            f"offset {state.position} of partition {topic_partition} is gone: it has {first} to {last}"
        )
        if first > state.position and first < state.until:
            state.position = first
        else:
            del self._open[topic_partition]

    # --- trouble --------------------------------------------------------------------------------------------

    def _pause(self, error: KafkaError) -> None:
        """Wait a little, then learn who leads what now; raise what does not pass."""
        self._in_flight.clear()
        self._retry.pause(error)
        source = Source(self._options, self._cluster)
        for topic in source.gone(topic for topic, _ in self._open):
            self._topic_gone(source, topic)

    def _topic_gone(self, source: Source, topic: str) -> None:
        source.lost(f"topic '{topic}' was deleted while it was read")
        for topic_partition in [
            topic_partition for topic_partition in self._open if topic_partition.topic == topic
        ]:
            del self._open[topic_partition]
        self._later = [piece for piece in self._later if piece.topic != topic]

    def _check_timeout(self) -> None:
        if time.monotonic() - self._last_progress > self._options.timeout:
            (topic, partition), state = next(iter(self._open.items()))
            raise KafkaError(
                ErrorCode.invalid_request,  # not one that passes: it has been waited for
                f"no records of partition {topic}-{partition} came for {self._options.timeout:g} s at offset "
                f"{state.position}, of {state.until} (option 'kafkaConsumer.pollTimeoutMs')",
            )
