"""Batches out of partitions.

A `Fetcher` asks all leaders at once and waits for their answers, as long as `max_wait_ms` if there is nothing
to read. It returns what came: whole batches as views of the received bytes. The caller keeps its positions,
since only the caller knows what it has done with the records; `visible_batches` walks an answer by a
consumer's rules.
"""

from collections.abc import Iterator, Mapping

from millstream.client.cluster import MOVED, Cluster, Retry
from millstream.client.connection import Connection
from millstream.client.errors import describe
from millstream.client.messages import NO_ID
from millstream.wire.batch import BatchHeader
from millstream.wire.client_produce_fetch import (
    CONSUMER,
    FETCH,
    FETCH_FLEXIBLE,
    FETCH_NEWEST,
    FETCH_TOPIC_IDS,
    Position,
    pack_fetch,
    read_fetch,
)
from millstream.wire.client_produce_fetch import Fetched as Fetched
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import ABORT_MARKER, control_type, iter_batches, iter_records
from millstream.wire.topic_partition import TopicPartition


class Fetcher:
    """Fetches from any number of partitions, whoever leads them."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        read_committed: bool = False,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        rack: str = "",
        replica_id: int = CONSUMER,
    ) -> None:
        self._cluster = cluster
        self.read_committed = read_committed
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._rack = rack
        self._replica_id = replica_id
        self._retry: Retry | None = None

    def poll(self, positions: Mapping[TopicPartition, int], max_wait_ms: int = 500) -> list[Fetched]:
        """One round. Partitions whose leader moved are missing from the answer and found again by the next
        round; if that goes on for longer than the client's patience, the error is raised. Other errors of a
        partition (offset_out_of_range above all) are in its answer, for the caller to decide."""
        cluster = self._cluster
        in_flight: list[tuple[Connection, int]] = []
        problem: KafkaError | None = None
        for node_id, partitions in cluster.by_leader(positions).items():
            try:
                in_flight.append(
                    self.send_to(node_id, {which: positions[which] for which in partitions}, max_wait_ms)
                )
            except KafkaError as error:
                problem = error
        found: list[Fetched] = []
        for connection, version in in_flight:
            try:
                body = connection.receive(cluster.config.request_timeout + max_wait_ms / 1000)
                for answer in read_fetch(version, body, cluster.topic_names):
                    if answer.error in MOVED:
                        subject = f"partition {answer.topic}-{answer.partition}"
                        problem = KafkaError(answer.error, describe(answer.error, subject=subject))
                    else:
                        found.append(answer)
            except KafkaError as error:
                problem = error
        if problem is None:
            self._retry = None
        else:
            self._retry = self._retry or cluster.retry()
            self._retry.pause(problem)
            problems = cluster.refresh({topic for topic, _ in positions})
            for gone in problems.values():
                if gone.code is ErrorCode.unknown_topic_or_partition:
                    raise gone
        return found

    def send_to(
        self, node_id: int, positions: Mapping[TopicPartition, int], max_wait_ms: int
    ) -> tuple[Connection, int]:
        cluster = self._cluster
        topics: dict[str, dict[int, Position]] = {}
        for (topic, partition), offset in positions.items():
            topics.setdefault(topic, {})[partition] = Position(offset)
        ids = {topic: cluster.topic_id(topic) for topic in topics}
        newest = FETCH_TOPIC_IDS - 1 if NO_ID in ids.values() else FETCH_NEWEST
        connection = cluster.connection(node_id)
        version = connection.version("fetch", up_to=newest)
        body = pack_fetch(
            version,
            topics,
            ids,
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            partition_max_bytes=self._partition_max_bytes,
            isolation=1 if self.read_committed else 0,
            rack=self._rack,
            replica_id=self._replica_id,
        )
        connection.send(FETCH, version, version >= FETCH_FLEXIBLE, [body])
        return connection, version


def visible_batches(
    fetched: Fetched, from_offset: int, read_committed: bool = False
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of an answer that hold records for a reader at `from_offset`: no transaction markers, and
    for `read_committed` nothing of aborted transactions. The first batch may begin before `from_offset`."""
    waiting = sorted(fetched.aborted, key=lambda entry: entry[1], reverse=True)
    aborted: set[int] = set()
    for header, batch in iter_batches(fetched.records):
        if read_committed:
            while waiting and waiting[-1][1] <= header.last_offset:
                aborted.add(waiting.pop()[0])
            if header.is_control and header.producer_id in aborted:
                for marker in iter_records(batch):
                    if control_type(marker.key) == ABORT_MARKER:
                        aborted.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborted:
                continue
        if header.is_control or header.last_offset < from_offset:
            continue
        yield header, batch


def next_offset(fetched: Fetched, from_offset: int) -> int:
    """Where to read on after everything in this answer, hidden batches included."""
    after = from_offset
    for header, _ in iter_batches(fetched.records):
        after = max(after, header.next_offset)
    return after
