"""Transactions in raw requests, so that a test decides about every field and sees every answer.

The same calls work against any broker: the expected answers of `test_transaction_answers.py` were taken from
Apache Kafka by running it with MILLSTREAM_AGAINST=HOST:PORT.
"""

import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from millstream.wire.errors import ErrorCode
from millstream.wire.primitives import read_compact_string, read_count
from millstream.wire.records import Record, encode_batch, iter_records
from tests.support.waiting import wait_until

from ...raw_frames import Raw, new_topic, request

TRANSACTION = 1
WAIT = 20.0
TRY_AGAIN = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.not_leader_or_follower,
    ErrorCode.not_enough_replicas,
)
Partition = tuple[str, int]


class Identity(NamedTuple):
    """What InitProducerId answers."""

    error: ErrorCode
    id: int
    epoch: int


class Fetched(NamedTuple):
    values: list[bytes]
    offsets: list[int]
    high_watermark: int
    last_stable: int
    aborted: list[tuple[int, int]]  # producer id, first offset
    error: ErrorCode


class Described(NamedTuple):
    error_code: ErrorCode
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: set[Partition]


def name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def batch(
    identity: Identity, sequence: int = 0, values: tuple[bytes, ...] = (b"v",), transactional: bool = True
) -> bytearray:
    now = int(time.time() * 1000)
    rows = [Record(at, now, b"k", value, ()) for at, value in enumerate(values)]
    return encode_batch(
        rows,
        producer_id=identity.id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


class Client(Raw):
    """One connection, with a method for each request of the transaction protocol."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.bootstrap = bootstrap

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic, all of whose partitions have a leader already (Kafka needs a moment for it)."""
        topic = name("topic")
        new_topic(self.bootstrap, topic, partitions, **configs)
        for partition in range(partitions):
            wait_until(
                lambda: self.end_offset(topic, committed=False, partition=partition) >= 0,  # noqa: B023
                "a partition without leader",
            )
        return topic

    def coordinator(self, transactional_id: str) -> None:
        """Find it, which creates the transaction log, and wait until it answers."""

        def answers() -> bool:
            answer = self.ask(
                "find_coordinator", 4, key_type=TRANSACTION, coordinator_keys=[transactional_id]
            )
            return answer.coordinators[0].error_code is ErrorCode.none and (
                self.describe(transactional_id)[0].error_code not in TRY_AGAIN
            )

        wait_until(answers, "no coordinator")

    def coordinator_of_group(self, group: str) -> None:
        """Ask for it until it is there, which creates the offsets topic."""
        wait_until(
            lambda: self.ask("find_coordinator", 3, key=group, key_type=0).error_code is ErrorCode.none,
            "no coordinator",
        )

    def try_init(
        self,
        transactional_id: str | None,
        *,
        known: tuple[int, int] = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 5,
        **fields: Any,
    ) -> Identity:
        answer = self.ask(
            "init_producer_id",
            version,
            transactional_id=transactional_id,
            transaction_timeout=timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
            **({"enable2_pc": False, "keep_prepared_txn": False} | fields),
        )
        return Identity(answer.error_code, answer.producer_id, answer.producer_epoch)

    def init(self, transactional_id: str, **options: Any) -> Identity:
        """As a client does it: find the coordinator, ask again as long as it says so."""
        self.coordinator(transactional_id)
        return self.patiently(lambda: self.try_init(transactional_id, **options))

    def patiently(self, ask: Any) -> Any:
        """What `ask` returns once that is no error which passes."""

        def once() -> Any:
            answer = ask()
            error = answer if isinstance(answer, ErrorCode) else answer.error
            return (answer,) if error not in TRY_AGAIN else None

        return wait_until(once)[0]

    def try_add(
        self, transactional_id: str, identity: Identity, *partitions: Partition, version: int = 3
    ) -> dict[Partition, ErrorCode]:
        """AddPartitionsToTxn as clients send it (version 3 and below)."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        answer = self.ask(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity.id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": parts} for topic, parts in topics.items()],
        )
        return {
            (topic.name, part.partition_index): part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }

    def add(self, transactional_id: str, identity: Identity, *partitions: Partition) -> None:
        def once() -> ErrorCode:
            errors = set(self.try_add(transactional_id, identity, *partitions).values())
            return errors.pop() if len(errors) == 1 else ErrorCode.unknown_server_error

        error = self.patiently(once)
        assert error is ErrorCode.none, error

    def try_add_batched(
        self, transactions: list[tuple[str, Identity, bool, list[Partition]]], version: int = 5
    ) -> dict[tuple[str, str, int], ErrorCode]:
        """AddPartitionsToTxn as brokers send it: (transactional id, identity, verify only, partitions)
        each."""
        answer = self.ask(
            "add_partitions_to_txn",
            version,
            transactions=[
                {
                    "transactional_id": transactional_id,
                    "producer_id": identity.id,
                    "producer_epoch": identity.epoch,
                    "verify_only": verify_only,
                    "topics": [{"name": topic, "partitions": [index]} for topic, index in partitions],
                }
                for transactional_id, identity, verify_only, partitions in transactions
            ],
        )
        assert answer.error_code is ErrorCode.none, answer
        return {
            (result.transactional_id, topic.name, part.partition_index): part.partition_error_code
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for part in topic.results_by_partition
        }

    def try_add_offsets(
        self, transactional_id: str, identity: Identity, group: str, version: int = 4
    ) -> ErrorCode:
        return self.ask(  # type: ignore[no-any-return]
            "add_offsets_to_txn",
            version,
            transactional_id=transactional_id,
            producer_id=identity.id,
            producer_epoch=identity.epoch,
            group_id=group,
        ).error_code

    def try_end(self, transactional_id: str, identity: Identity, commit: bool, version: int = 4) -> Identity:
        answer = self.ask(
            "end_txn",
            version,
            transactional_id=transactional_id,
            producer_id=identity.id,
            producer_epoch=identity.epoch,
            committed=commit,
        )
        if version < 5:
            return Identity(answer.error_code, -1, -1)
        return Identity(answer.error_code, answer.producer_id, answer.producer_epoch)

    def end(self, transactional_id: str, identity: Identity, commit: bool, version: int = 4) -> Identity:
        ended = self.patiently(lambda: self.try_end(transactional_id, identity, commit, version))
        assert ended.error is ErrorCode.none, ended
        return ended  # type: ignore[no-any-return]

    def try_produce(
        self,
        transactional_id: str | None,
        batches: dict[Partition, bytes | bytearray],
        version: int = 11,
        acks: int = -1,
    ) -> dict[Partition, Any]:
        """Produce by topic name (version 12 and below); the answer per partition."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), records in batches.items():
            topics.setdefault(topic, []).append({"index": index, "records": bytes(records)})
        answer = self.ask(
            "produce",
            version,
            transactional_id=transactional_id,
            acks=acks,
            timeout=5000,
            topic_data=[{"name": topic, "partition_data": parts} for topic, parts in topics.items()],
        )
        return {
            (topic.name, part.index): part for topic in answer.responses for part in topic.partition_responses
        }

    def produce_code(
        self,
        transactional_id: str | None,
        topic: str,
        records: bytes | bytearray,
        version: int = 11,
        partition: int = 0,
    ) -> ErrorCode:
        answer = self.try_produce(transactional_id, {(topic, partition): records}, version)
        return answer[topic, partition].error_code  # type: ignore[no-any-return]

    def produce(
        self,
        transactional_id: str | None,
        topic: str,
        records: bytes | bytearray,
        version: int = 11,
        partition: int = 0,
    ) -> None:
        error = self.patiently(
            lambda: self.produce_code(transactional_id, topic, records, version, partition)
        )
        assert error is ErrorCode.none, error

    def try_markers(
        self,
        producer: Identity,
        commit: bool,
        coordinator_epoch: int,
        *partitions: Partition,
        version: int = 1,
        transaction_version: int = 0,
    ) -> dict[Partition, ErrorCode]:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        answer = self.ask(
            "write_txn_markers",
            version,
            markers=[
                {
                    "producer_id": producer.id,
                    "producer_epoch": producer.epoch,
                    "transaction_result": commit,
                    "topics": [
                        {"name": topic, "partition_indexes": indexes} for topic, indexes in topics.items()
                    ],
                    "coordinator_epoch": coordinator_epoch,
                    "transaction_version": transaction_version,
                }
            ],
        )
        return {
            (topic.name, part.partition_index): part.error_code
            for marker in answer.markers
            for topic in marker.topics
            for part in topic.partitions
        }

    def commit_offset(
        self, transactional_id: str, identity: Identity, group: str, topic: str, offset: int
    ) -> None:
        """TxnOffsetCommit 5, which makes the group's partition part of the transaction."""

        def once() -> ErrorCode:
            answer = self.ask(
                "txn_offset_commit",
                5,
                transactional_id=transactional_id,
                group_id=group,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": 0,
                                "committed_offset": offset,
                                "committed_leader_epoch": -1,
                                "committed_metadata": "",
                            }
                        ],
                    }
                ],
            )
            return answer.topics[0].partitions[0].error_code  # type: ignore[no-any-return]

        error = self.patiently(once)
        assert error is ErrorCode.none, error

    def committed_offset(self, group: str, topic: str) -> int:
        """-1: none."""
        wanted = [{"name": topic, "partition_indexes": [0]}]

        def once() -> Any:
            answer = self.ask("offset_fetch", 7, group_id=group, topics=wanted, require_stable=False)
            return answer if answer.error_code not in TRY_AGAIN else None

        answer = wait_until(once)
        return int(answer.topics[0].partitions[0].committed_offset)

    def describe(self, *transactional_ids: str) -> list[Described]:
        """DescribeTransactions, read by hand: kio cannot read a start time of -1, which is what Kafka says in
        Empty."""
        self.send(request("describe_transactions", 0, transactional_ids=list(transactional_ids)))
        frame = self.receive()
        assert frame is not None
        return list(read_described(memoryview(frame)[5:]))

    def state(self, transactional_id: str) -> str:
        return self.describe(transactional_id)[0].state

    def wait_for_state(self, transactional_id: str, *states: str) -> None:
        wait_until(lambda: self.state(transactional_id) in states, lambda: self.state(transactional_id))

    def fetch(
        self, topic: str, offset: int = 0, *, committed: bool = True, partition: int = 0, wait_ms: int = 0
    ) -> Fetched:
        answer = self.ask(
            "fetch",
            11,
            replica_id=-1,
            max_wait=wait_ms,
            min_bytes=1,
            max_bytes=50_000_000,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "log_start_offset": -1,
                            "partition_max_bytes": 50_000_000,
                        }
                    ],
                }
            ],
            forgotten_topics_data=[],
            rack_id="",
        )
        return fetched(answer.responses[0].partitions[0])

    def committed_values(self, topic: str, partition: int = 0) -> list[bytes]:
        """What a read_committed consumer hands to its user, aborted records left out."""
        return visible(self.fetch(topic, partition=partition))

    def end_offset(self, topic: str, *, committed: bool, partition: int = 0) -> int:
        answer = self.ask(
            "list_offsets",
            7,
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
                    ],
                }
            ],
        )
        return int(answer.topics[0].partitions[0].offset)


class Rows(list):  # type: ignore[type-arg]
    """Fetched values with what is needed to leave out the aborted ones."""


def fetched(part: Any) -> Fetched:
    values, offsets = Rows(), []
    values.owners = []  # type: ignore[attr-defined]
    data = memoryview(part.records or b"")
    at = 0
    while len(data) - at >= 61:
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        if size > len(data) - at:
            break
        attributes = int.from_bytes(data[at + 21 : at + 23], "big")
        owner = int.from_bytes(data[at + 43 : at + 51], "big", signed=True)
        base = int.from_bytes(data[at : at + 8], "big")
        if attributes & 0x20:
            key = next(iter(iter_records(data[at : at + size]))).key or b""
            values.owners.append((base, owner, "abort" if key[3] == 0 else "commit"))  # type: ignore[attr-defined]
        else:
            for record in iter_records(data[at : at + size]):
                values.append(record.value)
                offsets.append(record.offset)
                transactional = bool(attributes & 0x10)
                values.owners.append((record.offset, owner if transactional else -1, record.value))  # type: ignore[attr-defined]
        at += size
    aborted = [(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()]
    return Fetched(values, offsets, part.high_watermark, part.last_stable_offset, aborted, part.error_code)


def visible(answer: Fetched) -> list[bytes]:
    """The consumer's own filter: from a transaction's first offset on until its abort marker, its records are
    out."""
    waiting = sorted(answer.aborted, key=lambda entry: entry[1])
    aborting: set[int] = set()
    out = []
    for offset, owner, what in answer.values.owners:  # type: ignore[attr-defined]
        while waiting and waiting[0][1] <= offset:
            aborting.add(waiting.pop(0)[0])
        if what == "abort":
            aborting.discard(owner)
        elif what != "commit" and owner not in aborting:
            out.append(what)
    return out


def read_described(body: memoryview) -> Iterator[Described]:
    """The body of a DescribeTransactions answer."""
    count, at = read_count(body, 4, True)  # behind the throttle time
    for _ in range(count):
        (error,) = struct.unpack_from(">h", body, at)
        transactional_id, at = _text(body, at + 2)
        state, at = _text(body, at)
        timeout_ms, start_ms, producer_id, epoch = struct.unpack_from(">iqqh", body, at)
        partitions = set()
        topics, at = read_count(body, at + 22, True)
        for _ in range(topics):
            topic, at = _text(body, at)
            indexes, at = read_count(body, at, True)
            partitions |= {(topic, index) for index in struct.unpack_from(f">{indexes}i", body, at)}
            at += 4 * indexes + 1
        at += 1
        yield Described(
            ErrorCode(error), transactional_id, state, timeout_ms, start_ms, producer_id, epoch, partitions
        )


def _text(body: memoryview, at: int) -> tuple[str, int]:
    raw, at = read_compact_string(body, at)
    return (raw or b"").decode(), at
