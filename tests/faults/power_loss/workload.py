"""A real broker under load, with everything recorded: its disk writes, and the answers its clients get.

Every write is flushed before it is acknowledged (`log.flush.interval.messages=1`), so every acknowledgement
is a promise that holds after a power failure. Segments are tiny and metadata snapshots frequent, so that a
few seconds hold many rolls, compactions and snapshots.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from millstream.testing import Broker

from .trace import Promises

PLAIN, COMPACTED, TRANSACTIONAL = "orders", "accounts", "payments"
PARTITIONS = 3
SNAPSHOT_ENTRIES = 12
SETTINGS = {
    "log.flush.interval.messages": 1,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "log.cleaner.backoff.ms": 200,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 500,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}
TINY_SEGMENTS = {"internal.segment.bytes": "6000", "index.interval.bytes": "200"}

_LAUNCH = (
    "import sys; from millstream.cluster.driver import Controller; "
    f"Controller.__init__.__defaults__ = ({SNAPSHOT_ENTRIES},); "
    "from millstream.testing._child import main; sys.argv[0] = 'broker'; main()"
)


@contextlib.contextmanager
def recorded_broker(folder: Path) -> Iterator[tuple[Broker, Path]]:
    """A broker on `folder`/data whose changes of files are written to `folder`/trace."""
    data, trace = folder / "data", folder / "trace"
    recording = Path(__file__).parent / "recording"
    environment = {
        "MILLSTREAM_TRACE_ROOT": str(data.resolve()),
        "MILLSTREAM_TRACE_FILE": str(trace.resolve()),
        "PYTHONPATH": os.pathsep.join([str(recording), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    broker = Broker(
        SETTINGS, data_dir=data, command=[sys.executable, "-c", _LAUNCH, "broker"], env=environment
    )
    try:
        broker.start()
        yield broker, trace
    finally:
        if broker.running:
            broker.kill()
        broker.close()


class Load:
    """Several clients at once, until `stop`. What they are told goes into the trace."""

    def __init__(self, bootstrap: str, promises: Promises) -> None:
        self._bootstrap = bootstrap
        self._promises = promises
        self._stopped = threading.Event()
        self._problems: list[str] = []
        self._threads: list[threading.Thread] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def start(self) -> None:
        self._create(PLAIN, PARTITIONS, TINY_SEGMENTS)
        self._create(TRANSACTIONAL, PARTITIONS, TINY_SEGMENTS)
        compacted = {
            **TINY_SEGMENTS,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "500",
        }
        self._create(COMPACTED, PARTITIONS, compacted)
        works: list[Callable[[], None]] = [self._produce, self._produce, self._produce_keys]
        works += [self._transact, self._commit_offsets, self._administrate]
        for number, work in enumerate(works):
            thread = threading.Thread(target=self._guarded, args=(work,), name=f"load-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)
        assert not self._problems, self._problems

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._problems.append(f"{work.__name__}: {error!r}")

    # -- the clients -------------------------------------------------------------------------------

    def _delivered(self, error: object, message: Message) -> None:
        assert error is None, error
        self._promises.acknowledged(
            "record",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            key=(message.key() or b"").decode(),
            value=(message.value() or b"").decode(),
        )

    def _produce(self) -> None:
        name = uuid.uuid4().hex[:6]
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        for number in self._numbers():
            producer.produce(PLAIN, f"{name}-{number}-{'x' * (number % 97)}", on_delivery=self._delivered)
            producer.poll(0.004)
        assert producer.flush(60) == 0

    def _produce_keys(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 2})
        for number in self._numbers():
            producer.produce(
                COMPACTED, str(number), key=f"account-{number % 40}", on_delivery=self._delivered
            )
            producer.poll(0.006)
        assert producer.flush(60) == 0

    def _transact(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": "payments"})
        producer.init_transactions(60)
        for number in self._numbers():
            sent: list[tuple[int, int, str]] = []

            def delivered(error: object, message: Message, sent: list[tuple[int, int, str]] = sent) -> None:
                sent.append((message.partition(), message.offset(), (message.value() or b"").decode()))

            producer.begin_transaction()
            for part in range(3):
                producer.produce(
                    TRANSACTIONAL, f"{number}-{part}", partition=part % PARTITIONS, on_delivery=delivered
                )
            # The second one is: a slow machine gets no further than a few.
            if number % 5 == 1:
                producer.flush(60)
                producer.abort_transaction(60)
                self._promises.acknowledged("aborted", topic=TRANSACTIONAL, records=sent)
            else:
                producer.commit_transaction(60)
                self._promises.acknowledged("committed", topic=TRANSACTIONAL, records=sent)
            # The pace of the load.
            time.sleep(0.03)

    def _commit_offsets(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "readers"})
        for number in self._numbers():
            partition = number % PARTITIONS
            consumer.commit(offsets=[TopicPartition(PLAIN, partition, number)], asynchronous=False)
            self._promises.acknowledged(
                "offset", group="readers", topic=PLAIN, partition=partition, offset=number
            )
            # The pace of the load.
            time.sleep(0.03)
        consumer.close()

    def _administrate(self) -> None:
        for number in self._numbers():
            topic = f"short-lived-{number}"
            self._create(topic, 2, {})
            value = str(100_000 + number)
            entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(
                ConfigResource.Type.TOPIC, PLAIN if number % 2 else topic, incremental_configs=[entry]
            )
            for future in self._admin.incremental_alter_configs([resource]).values():
                future.result(60)
            self._promises.acknowledged("config", topic=resource.name, name="retention.ms", value=value)
            if number % 3:
                self._promises.acknowledged("deleting", topic=topic)
                for future in self._admin.delete_topics([topic]).values():
                    future.result(60)
                self._promises.acknowledged("deleted", topic=topic)
            # The pace of the load.
            time.sleep(0.1)

    # -- small things ------------------------------------------------------------------------------

    def _numbers(self) -> Iterator[int]:
        number = 0
        while not self._stopped.is_set():
            yield number
            number += 1

    def _create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        for future in self._admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
            future.result(60)
        self._promises.acknowledged("created", topic=topic, partitions=partitions)


def record(folder: Path, seconds: float) -> Path:
    """Runs the load for so long against a recorded broker; the trace."""
    with recorded_broker(folder) as (broker, trace):
        promises = Promises(trace)
        try:
            load = Load(broker.bootstrap_servers, promises)
            load.start()
            # How long to record is what the caller chose.
            time.sleep(seconds)
            load.stop()
        except KafkaException as error:
            raise AssertionError(f"{error}\n{broker.log[-4000:]}") from error
        finally:
            promises.close()
    return trace
