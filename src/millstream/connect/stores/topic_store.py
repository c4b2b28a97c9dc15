"""A compacted topic as a store: read whole at first, followed by a thread, and read back after each write.

`apply` is called for every record in the order of its partition, by one thread at a time.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from millstream.client import (
    EARLIEST,
    LATEST,
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    Producer,
    TransactionalProducer,
    list_offsets,
    visible_batches,
)
from millstream.client.admin import TOPIC
from millstream.client.fetch import next_offset
from millstream.client.transactional import is_fenced
from millstream.connect.errors import ConnectError
from millstream.connect.stores.config_state import Pair
from millstream.wire.errors import KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record, encode_batch, iter_records
from millstream.wire.topic_partition import TopicPartition

Apply = Callable[[bytes | None, bytes | None], None]
READ_SECONDS = 30.0
CREATED_SECONDS = 30.0
DECIDE_TRIES = 10


class Store(Protocol):
    def start(self) -> None: ...

    def append(self, pairs: Sequence[Pair]) -> None: ...

    def decide(self, decide: Callable[[], Sequence[Pair]]) -> None: ...

    def read_to_end(self) -> None: ...

    def close(self) -> None: ...


def make_sure_of_topic(
    cluster: Cluster, topic: str, partitions: int, replicas: int, purpose: str, *, one_partition: bool = False
) -> None:
    """Create it compacted, or check that it is: Kafka's workers refuse a topic that would lose records."""
    if topic in cluster.refresh({topic}):
        new = NewTopic(
            topic, partitions, min(replicas, max(1, len(cluster.nodes))), {"cleanup.policy": "compact"}
        )
        try:
            Admin(cluster).create_if_missing(new)
        except KafkaError as error:
            raise ConnectError(f"topic {topic} cannot be created: {error}") from None
        wait_for_topic(cluster, topic)
    found = cluster.topic(topic)
    if one_partition and len(found.partitions) != 1:
        raise ConnectError(
            f"Topic '{topic}' supplied via the '{purpose}' property is required to have a single partition "
            "in order to guarantee consistency of connector configurations, but found "
            f"{len(found.partitions)} partitions."
        )
    described = Admin(cluster).describe_configs([(TOPIC, topic)])[TOPIC, topic]
    if isinstance(described, KafkaError):
        return  # a cluster that does not tell
    policy = next((entry.value for entry in described if entry.name == "cleanup.policy"), "compact")
    if policy != "compact":
        raise ConnectError(
            f"Topic '{topic}' supplied via the '{purpose}' property is required to have "
            "'cleanup.policy=compact' to guarantee consistency and durability of connector data, but found "
            f"the topic currently has 'cleanup.policy={policy}'. Continuing would likely result in "
            "eventually losing connector data and problems restarting this Connect cluster in the future. "
            "Change the topic to use 'cleanup.policy=compact'."
        )


def wait_for_topic(cluster: Cluster, topic: str) -> None:
    """A topic that was just created: Apache Kafka's brokers hear of it after the answer."""
    deadline = time.monotonic() + CREATED_SECONDS
    while topic in cluster.refresh({topic}) and time.monotonic() < deadline:
        time.sleep(0.05)


class TopicStore:
    """`transactional_id`: several processes decide and append by turns (`decide`); the one whose view is old
    is fenced before it can write."""

    def __init__(
        self, client: ClientConfig, topic: str, apply: Apply, *, transactional_id: str | None = None
    ) -> None:
        self._client, self._topic, self._apply = client, topic, apply
        self._reading, self._writing = Cluster(client), Cluster(client)
        self._transactional_id = transactional_id
        self._producer = Producer(self._writing)
        self._write_lock = threading.Lock()
        self._moved = threading.Condition()
        self._positions: dict[TopicPartition, int] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._follow, name=f"store-{topic}", daemon=True)

    def start(self) -> None:
        """Returns when everything that the topic holds now has been applied."""
        for cluster in (self._reading, self._writing):  # either may ask another broker than its creator did
            wait_for_topic(cluster, self._topic)
        partitions = [
            TopicPartition(self._topic, number) for number in self._reading.topic(self._topic).partitions
        ]
        starts = list_offsets(self._reading, dict.fromkeys(partitions, EARLIEST))
        self._positions = {which: at.offset for which, at in starts.items()}
        self._thread.start()
        with self._write_lock:
            if self._transactional_id is not None:
                # Ends what a process that was killed has left open, which would hide everything behind it.
                self._producer = TransactionalProducer(self._writing, self._transactional_id)
                self._producer.begin()
            self._wait_for(self._ends())

    def append(self, pairs: Sequence[Pair]) -> None:
        """Returns when the records have been applied."""
        if self._transactional_id is not None:
            self.decide(lambda: pairs)
        else:
            self._append(pairs)

    def decide(self, decide: Callable[[], Sequence[Pair]]) -> None:
        """Append what `decide` returns, which has seen everything that was written before. It is asked again
        where another process was faster, and may raise."""
        if self._transactional_id is None:
            self.read_to_end()
            self._append(decide())
            return
        with self._write_lock:
            for attempt in range(DECIDE_TRIES):
                # An epoch that is still ours says that nobody else has written since.
                if not isinstance(self._producer, TransactionalProducer):
                    self._producer = TransactionalProducer(self._writing, self._transactional_id)
                    self._producer.begin()
                self._wait_for(self._ends())
                pairs = decide()
                if not pairs:
                    return
                try:
                    ends = self._commit(self._producer, pairs)
                except KafkaError as error:
                    self._producer = Producer(self._writing)
                    if not is_fenced(error):
                        raise
                    # Two that fence each other at once would do so for ever.
                    time.sleep(random.uniform(0, min(0.01 * 2**attempt, 1.0)))
                    continue
                self._wait_for(ends)
                return
        raise ConnectError(f"topic {self._topic}: other workers write to it all the time; try again")

    def _commit(self, producer: TransactionalProducer, pairs: Sequence[Pair]) -> dict[TopicPartition, int]:
        by_partition = self._by_partition(pairs)
        producer.begin_next()
        sent = producer.send_batches(
            {which: encode_batch(held, transactional=True) for which, held in by_partition.items()}
        )
        producer.commit()
        return {which: sent[which].offset + len(held) for which, held in by_partition.items()}

    def _by_partition(self, pairs: Sequence[Pair]) -> dict[TopicPartition, list[Record]]:
        now = int(time.time() * 1000)
        count = len(self._writing.topic(self._topic).partitions)
        by_partition: dict[TopicPartition, list[Record]] = {}
        for key, value in pairs:
            which = TopicPartition(self._topic, partition_for(key, count))
            by_partition.setdefault(which, []).append(Record(0, now, key, value))
        return by_partition

    def _append(self, pairs: Sequence[Pair]) -> None:
        by_partition = self._by_partition(pairs)
        with self._write_lock:
            sent = self._producer.send_batches(
                {which: encode_batch(held) for which, held in by_partition.items()}
            )
            self._wait_for({which: sent[which].offset + len(held) for which, held in by_partition.items()})

    def read_to_end(self) -> None:
        with self._write_lock:
            self._wait_for(self._ends())

    def _ends(self) -> dict[TopicPartition, int]:
        found = list_offsets(self._writing, dict.fromkeys(self._positions, LATEST))
        return {which: at.offset for which, at in found.items()}

    def _wait_for(self, ends: Mapping[TopicPartition, int]) -> None:
        def reached() -> bool:
            return self._stopped or all(self._positions[which] >= end for which, end in ends.items())

        with self._moved:
            if not self._moved.wait_for(reached, READ_SECONDS):
                raise ConnectError(
                    f"topic {self._topic} could not be read to its end in {READ_SECONDS:.0f} s"
                )

    def _follow(self) -> None:
        fetcher = Fetcher(self._reading, read_committed=True)
        while not self._stopped:
            try:
                answers = fetcher.poll(self._positions, 250)
            except (KafkaError, OSError):
                if self._stopped:
                    return
                time.sleep(0.2)  # the pace of trying again while no broker answers
                continue
            for fetched in answers:
                which = TopicPartition(fetched.topic, fetched.partition)
                position = self._positions[which]
                for _, batch in visible_batches(fetched, position, read_committed=True):
                    for record in iter_records(batch):
                        if record.offset >= position:
                            self._apply(record.key, record.value)
                with self._moved:
                    self._positions[which] = next_offset(fetched, position)
                    self._moved.notify_all()

    def close(self) -> None:
        self._stopped = True
        with self._moved:
            self._moved.notify_all()
        self._thread.join(10)
        for cluster in (self._reading, self._writing):
            with contextlib.suppress(OSError):
                cluster.close()


class MemoryStore:
    """The same without a topic: a standalone worker keeps nothing."""

    def __init__(self, apply: Apply) -> None:
        self._apply = apply

    def start(self) -> None:
        """Nothing to read."""

    def append(self, pairs: Sequence[Pair]) -> None:
        for key, value in pairs:
            self._apply(key, value)

    def decide(self, decide: Callable[[], Sequence[Pair]]) -> None:
        self.append(decide())

    def read_to_end(self) -> None:
        """Nothing to read."""

    def close(self) -> None:
        """Nothing to close."""
