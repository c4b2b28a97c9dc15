"""Clients that work while the broker breaks, and write down what they see (history.py). Each is a thread with
a client of confluent-kafka.

    PlainWriter     an idempotent producer: plain records
    LedgerWriter    a transactional producer: transactions of some records over some partitions, some of them
                    aborted
    GroupReader     one member of a group (of either protocol) that subscribes, reads, commits after every
                    batch, and leaves
                    and comes back now and then
    LedgerReader    reads committed records by assignment, from the beginning on
    Transformer     reads plain records in a group and writes one derived record for each, in transactions
                    with its offsets
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from millstream.wire.topic_partition import TopicPartition

from .history import (
    ABORTED,
    COMMITTED,
    Commit,
    Fetched,
    History,
    Reading,
    Records,
    Stall,
    Transaction,
    derived_key,
    key,
    transaction_id,
    transaction_key,
)

FILLER = bytes(range(256)) * 2
CALL_TIMEOUT = 5.0  # one try of a call to the broker
PATIENCE = 60.0  # all tries of a call: no fault lasts so long
QUIET = {"log_level": 0}

Result = TypeVar("Result")


def value_of(record_key: int) -> bytes:
    """The value that stands for a key: the key, and bytes that depend on it."""
    return (
        record_key.to_bytes(8, "big")
        + FILLER[record_key & 0xFF : (record_key & 0xFF) + 20 + record_key % 101]
    )


def key_in(value: bytes) -> int:
    record_key = int.from_bytes(value[:8], "big")
    if value != value_of(record_key):
        raise AssertionError(f"these are not the bytes that were written: {value!r}")
    return record_key


class Worker(threading.Thread):
    """A client that works until `stop`. What ends it before is kept in `failure`."""

    def __init__(self, name: str, bootstrap: str, history: History, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.history = history
        self.random = random.Random(f"{seed} {name}")
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.errors: list[str] = []  # what the client library told between
        self.acked: dict[
            TopicPartition, Records
        ] = {}  # collected at the end: two threads must not write into one list of records

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error
            self.history.stalls.append(Stall(self.name, f"{type(error).__name__}: {error}"))

    def acknowledged(self, topic_partition: TopicPartition, offset: int, record_key: int) -> None:
        self.acked.setdefault(topic_partition, Records()).add(offset, record_key)

    def work(self) -> None:
        raise AssertionError("every worker has its own work")

    def stop(self) -> None:
        self.stopping.set()

    def settings(self, **more: object) -> dict[str, Any]:
        own = {name.replace("_", "."): value for name, value in more.items()}
        return {
            "bootstrap.servers": self.bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.interval.ms": 5000,
            "error_cb": lambda error: self.errors.append(str(error)),
            **QUIET,
            **own,
        }

    def persist(self, call: Callable[[], Result]) -> Result:
        """`call()`, again while it fails in a way that passes."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return call()
            except KafkaException as problem:
                error = problem.args[0]
                hopeless = error.fatal() or error.txn_requires_abort()
                if hopeless or time.monotonic() > deadline or not _passes(error):
                    raise
                time.sleep(0.02)


def _passes(error: Any) -> bool:
    return error.retriable() or error.code() in PASSING


# Local and remote errors that only say that the broker is away or not yet ready: timed out (here and there),
# transport, all brokers down, coordinator loading, not available, moved; rebalance under way; offsets not
# stable yet.
PASSING = frozenset({-185, -195, -187, 7, 14, 15, 16, 27, 88})


class PlainWriter(Worker):
    def __init__(
        self, number: int, topic: str, partitions: int, rate: int, bootstrap: str, history: History, seed: int
    ) -> None:
        super().__init__(f"writer-{number}", bootstrap, history, seed)
        self.number = number
        self.topic = topic
        self.partitions = partitions
        self.rate = rate

    def work(self) -> None:
        producer = Producer(
            self.settings(enable_idempotence=True, linger_ms=2, message_timeout_ms=round(PATIENCE * 1000))
        )
        written = 0
        began = time.monotonic()
        while not self.stopping.is_set():
            for _ in range(self.random.randint(1, 100)):
                record_key = key(self.number, written)
                self._produce(producer, record_key, self.random.randrange(self.partitions))
                written += 1
            producer.poll(0)
            ahead = written / self.rate - (time.monotonic() - began)
            if ahead < -1:
                began = time.monotonic() - written / self.rate  # what was missed is not made up for
            # The pace of the load.
            time.sleep(min(0.2, max(0.001, ahead)))
        left = producer.flush(PATIENCE)
        if left:
            self.history.stalls.append(Stall(self.name, f"{left} records are not acknowledged"))

    def _produce(self, producer: Producer, record_key: int, partition: int) -> None:
        while True:
            try:
                producer.produce(
                    self.topic, value_of(record_key), partition=partition, on_delivery=self._delivered
                )
                return
            except BufferError:
                producer.poll(0.05)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.history.stalls.append(Stall(self.name, f"a record was given up: {error}"))
            return
        self.acknowledged((self.topic, message.partition()), message.offset(), key_in(message.value()))


class Transactional(Worker):
    """What workers with transactions share: a producer that is made again when it is beyond repair."""

    transactional_id: str
    timeout_ms = 60_000
    more_settings: dict[str, object] = {}

    def producer(self) -> Producer:
        made = Producer(
            self.settings(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                linger_ms=2,
                **self.more_settings,
            )
        )
        self.persist(lambda: made.init_transactions(CALL_TIMEOUT))
        return made

    def end(self, producer: Producer, commit: bool) -> bool:
        """Commit or abort; a commit that cannot be becomes an abort. Whether it was committed."""
        try:
            if commit:
                self.persist(lambda: producer.commit_transaction(CALL_TIMEOUT))
                return True
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
        self.persist(lambda: producer.abort_transaction(CALL_TIMEOUT))
        return False


class LedgerWriter(Transactional):
    def __init__(
        self, number: int, topic: str, partitions: int, rate: int, bootstrap: str, history: History, seed: int
    ) -> None:
        super().__init__(f"ledger-{number}", bootstrap, history, seed)
        self.number = number
        self.topic = topic
        self.partitions = partitions
        self.rate = rate
        self.transactional_id = f"{topic}-{number}"

    def work(self) -> None:
        producer: Producer | None = None
        done = 0
        while not self.stopping.is_set():
            if producer is None:
                producer = self.producer()
            number = transaction_id(self.number, done)
            done += 1
            transaction = self.history.transactions[number] = Transaction()
            began = time.monotonic()
            try:
                self._one(producer, number, transaction)
            except KafkaException as problem:
                # Beyond repair: how it ended is open if a commit was under way, and shows in the log.
                self.errors.append(f"transaction {number:#x}: {problem}")
                producer = None
            pause = len(transaction.keys) / self.rate - (time.monotonic() - began)
            # The pace of the load.
            time.sleep(max(0.0, pause))

    def _one(self, producer: Producer, number: int, transaction: Transaction) -> None:
        wanted = self.random.random() < 0.75
        producer.begin_transaction()
        try:
            for index in range(self.random.randint(1, 60)):
                record_key = transaction_key(number, index)
                transaction.keys.append(record_key)
                partition = self.random.randrange(self.partitions)
                producer.produce(
                    self.topic, value_of(record_key), partition=partition, on_delivery=self._delivered
                )
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
            wanted = False
        if self.random.random() < 0.3:
            # So that some transactions are written long before they end.
            producer.flush(CALL_TIMEOUT)
            time.sleep(self.random.random() * 0.2)
        if wanted:
            transaction.commit_started = time.monotonic()
        committed = self.end(producer, wanted)
        transaction.outcome = COMMITTED if committed else ABORTED

    def _delivered(self, error: Any, message: Message) -> None:
        if error is None:
            self.acknowledged((self.topic, message.partition()), message.offset(), key_in(message.value()))


class Subscriber(Worker):
    """What members of a group share: partitions come and go, and reading begins where the group is."""

    group: str
    topic: str
    consumer: Consumer
    newer = False  # the newer group protocol, in which partitions come and go one by one

    def begin(self) -> None:
        self.readings: dict[TopicPartition, Reading] = {}
        classic = {
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 500,
            "partition_assignment_strategy": "range",
        }
        self.consumer = Consumer(
            self.settings(
                group_id=self.group,
                enable_auto_commit=False,
                auto_offset_reset="error",
                isolation_level="read_committed",
                fetch_wait_max_ms=50,
                fetch_error_backoff_ms=20,
                **({"group_protocol": "consumer"} if self.newer else classic),
            )
        )
        self.consumer.subscribe(
            [self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.go_on_at(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self.newer:
            for each in partitions:
                self.readings.pop((each.topic, each.partition), None)
            consumer.incremental_unassign(partitions)
            return
        self.readings.clear()
        consumer.unassign()

    def go_on_at(self, partitions: list[TopicPartition]) -> None:
        """Ask where the group is, and read from there."""
        started = time.monotonic()
        committed = (
            self.persist(lambda: self.consumer.committed(partitions, CALL_TIMEOUT)) if partitions else []
        )
        finished = time.monotonic()
        starts = []
        if not self.newer:
            self.readings.clear()
        for each in committed:
            if each.error is not None:
                raise KafkaException(each.error)
            topic_partition = (each.topic, each.partition)
            known = max(each.offset, -1)
            self.history.fetched.append(Fetched(self.group, topic_partition, known, started, finished))
            reading = Reading(f"{self.group}/{self.name}", topic_partition, max(known, 0))
            self.readings[topic_partition] = reading
            self.history.readings.append(reading)
            starts.append(Position(each.topic, each.partition, reading.start))
        if self.newer:
            self.consumer.incremental_assign(starts)
        else:
            self.consumer.assign(starts)

    def poll(self) -> list[tuple[TopicPartition, int, int]]:
        """What came, written down: place, offset, key."""
        found = []
        messages = self.consumer.consume(500, 0.1)
        now = time.monotonic()
        for message in messages:
            if message.error() is not None:
                self.errors.append(str(message.error()))
                if not _passes(message.error()):
                    self.history.stalls.append(Stall(self.name, f"reading: {message.error()}"))
                continue
            topic_partition = (message.topic(), message.partition())
            reading = self.readings.get(topic_partition)
            if reading is None:
                continue
            offset, record_key = message.offset(), key_in(message.value())
            reading.add(offset, record_key, now)
            found.append((topic_partition, offset, record_key))
        return found

    def finish(self) -> None:
        with contextlib.suppress(KafkaException, RuntimeError):
            self.consumer.close()


class GroupReader(Subscriber):
    def __init__(
        self, number: int, group: str, topic: str, newer: bool, bootstrap: str, history: History, seed: int
    ) -> None:
        super().__init__(f"{group}-{number}", bootstrap, history, seed)
        self.newer = newer
        self.group = group
        self.topic = topic

    def work(self) -> None:
        self.begin()
        stays_until = self._next_leave()
        while not self.stopping.is_set():
            if time.monotonic() > stays_until:  # so that the group is divided anew now and then
                self.finish()
                self.begin()
                stays_until = self._next_leave()
            ends: dict[TopicPartition, int] = {}
            for topic_partition, offset, _ in self.poll():
                ends[topic_partition] = offset + 1
            if ends:
                self._commit(ends)
        self.finish()

    def _next_leave(self) -> float:
        return time.monotonic() + self.random.uniform(3, 15)

    def _commit(self, ends: dict[TopicPartition, int]) -> None:
        offsets = [Position(*topic_partition, offset) for topic_partition, offset in ends.items()]
        started = time.monotonic()
        refused: set[TopicPartition] = set()
        try:
            for each in self.consumer.commit(offsets=offsets, asynchronous=False) or ():
                if each.error is not None:
                    refused.add((each.topic, each.partition))
        except KafkaException as problem:
            self.errors.append(str(problem))
            refused = set(ends)
        finished = time.monotonic()
        for topic_partition, offset in ends.items():
            self.history.commits.append(
                Commit(
                    self.group,
                    topic_partition,
                    offset,
                    started,
                    None if topic_partition in refused else finished,
                )
            )


class LedgerReader(Worker):
    def __init__(
        self, topic_partitions: Sequence[TopicPartition], bootstrap: str, history: History, seed: int
    ) -> None:
        super().__init__("ledger-reader", bootstrap, history, seed)
        self.readings = {
            topic_partition: Reading(self.name, topic_partition, 0) for topic_partition in topic_partitions
        }
        history.readings += self.readings.values()

    def work(self) -> None:
        consumer = Consumer(
            self.settings(
                group_id="by-assignment",
                enable_auto_commit=False,
                auto_offset_reset="error",
                isolation_level="read_committed",
                fetch_wait_max_ms=50,
            )
        )
        consumer.assign([Position(*topic_partition, 0) for topic_partition in self.readings])
        while not self.stopping.is_set():
            messages = consumer.consume(500, 0.1)
            now = time.monotonic()
            for message in messages:
                if message.error() is not None:
                    if not _passes(message.error()):
                        self.history.stalls.append(Stall(self.name, f"reading: {message.error()}"))
                    continue
                topic_partition = (message.topic(), message.partition())
                self.readings[topic_partition].add(message.offset(), key_in(message.value()), now)
        consumer.close()

    def last(self, topic_partition: TopicPartition) -> int:
        offsets = self.readings[topic_partition].records.offsets
        return offsets[-1] if offsets else -1


class Transformer(Subscriber, Transactional):
    # Of one broker: all other clients have the default, which forgets it while it is away and starts from the
    # bootstrap address; librdkafka 2.16 would send the offsets of a transaction to the forgotten one and wait
    # for ever. Of several: it waits for one that has left until the state of another connection changes
    # (its issue 5511).
    more_settings = {"metadata_recovery_strategy": "none", "connections_max_idle_ms": 1000}

    def __init__(
        self, group: str, topic: str, output: str, bootstrap: str, history: History, seed: int
    ) -> None:
        super().__init__("transformer", bootstrap, history, seed)
        self.group = group
        self.topic = topic
        self.output = output
        self.transactional_id = group
        self._delivered: list[tuple[TopicPartition, int, int]] = []

    def work(self) -> None:
        self.begin()
        producer: Producer | None = None
        while not self.stopping.is_set():
            if producer is None:
                producer = self.producer()
                self.go_on_at(self.consumer.assignment())
            found = self.poll()
            if not found:
                continue
            try:
                if not self._one(producer, found):
                    self.go_on_at(self.consumer.assignment())
            except KafkaException as problem:
                self.errors.append(str(problem))
                producer = None
        self.finish()

    def _one(self, producer: Producer, found: list[tuple[TopicPartition, int, int]]) -> bool:
        """One transaction; False if it was aborted."""
        ends: dict[TopicPartition, int] = {}
        self._delivered = []
        producer.begin_transaction()
        wanted = self.random.random() < 0.9
        started = time.monotonic()
        try:
            for topic_partition, offset, _ in found:
                ends[topic_partition] = offset + 1
                record_key = derived_key(topic_partition[1], offset)
                producer.produce(
                    self.output, value_of(record_key), partition=topic_partition[1], on_delivery=self._note
                )
            offsets = [Position(*topic_partition, offset) for topic_partition, offset in ends.items()]
            metadata = self.consumer.consumer_group_metadata()
            self.persist(lambda: producer.send_offsets_to_transaction(offsets, metadata, CALL_TIMEOUT))
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
            wanted = False
        finished = None
        try:
            committed = self.end(producer, wanted)
            finished = time.monotonic() if committed else None
        finally:
            for topic_partition, offset in ends.items():
                self.history.commits.append(Commit(self.group, topic_partition, offset, started, finished))
        if committed:
            for topic_partition, offset, record_key in self._delivered:
                self.acknowledged(topic_partition, offset, record_key)
        return committed

    def _note(self, error: Any, message: Message) -> None:
        if error is None:
            topic_partition = (self.output, message.partition())
            self._delivered.append((topic_partition, message.offset(), key_in(message.value())))


def empty_records(topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Records]:
    return {topic_partition: Records() for topic_partition in topic_partitions}
