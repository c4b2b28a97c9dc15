"""One round: topics of its own, clients that work, a broker or a cluster that breaks, then quiet, and the
history is complete."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.client.groups import Committed, Groups
from millstream.wire.topic_partition import TopicPartition

from .history import UNKNOWN, Fetched, History, Records, Stall
from .newer import NewerLedgerWriter
from .workload import (
    QUIET,
    GroupReader,
    LedgerReader,
    LedgerWriter,
    PlainWriter,
    Transformer,
    Worker,
    empty_records,
    key_in,
)

WAIT = 30
LONGEST_WAIT = 5.0
# How long everybody may take to reach the end once the broker is left alone: longer than the session of a.
DRAIN = 90.0
# member that died unheard, which in the newer protocol is 45 s from the last start
SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "log.segment.bytes": 1 << 20,  # so that logs roll
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}


@dataclass
class Round:
    """Names and sizes of one round."""

    number: int
    partitions: int = 3
    replicas: int = 1
    rate: int = 1500  # plain records a second; a third as many in transactions
    history: History = field(default_factory=History)

    @property
    def plain(self) -> str:
        return f"plain-{self.number}"

    @property
    def ledger(self) -> str:
        return f"ledger-{self.number}"

    @property
    def derived(self) -> str:
        return f"derived-{self.number}"

    @property
    def readers(self) -> str:
        return f"readers-{self.number}"

    @property
    def newer_readers(self) -> str:
        return f"newer-readers-{self.number}"

    @property
    def transform(self) -> str:
        return f"transform-{self.number}"

    def topic_partitions(self, topic: str) -> list[TopicPartition]:
        return [(topic, partition) for partition in range(self.partitions)]

    def all_topic_partitions(self) -> list[TopicPartition]:
        return [
            topic_partition
            for topic in (self.plain, self.ledger, self.derived)
            for topic_partition in self.topic_partitions(topic)
        ]


class Faults(Protocol):
    """What goes wrong during a round, one thing after the other."""

    @property
    def done(self) -> int:
        """How many of those that count."""

    def wait(self, longest: float) -> None: ...
    def once(self) -> None: ...


class Crew:
    """All clients of a round."""

    def __init__(self, this: Round, bootstrap: str, seed: int) -> None:
        history = this.history
        seed = seed * 1000 + this.number
        count = this.partitions
        self.round = this
        self.plain: Sequence[Worker] = [
            PlainWriter(n, this.plain, count, this.rate // 2, bootstrap, history, seed) for n in (1, 2)
        ]
        self.ledger: Sequence[Worker] = [
            LedgerWriter(1, this.ledger, count, this.rate // 6, bootstrap, history, seed),
            LedgerWriter(2, this.ledger, count, this.rate // 6, bootstrap, history, seed),
            NewerLedgerWriter(3, this.ledger, count, this.rate // 6, bootstrap, history, seed),
        ]
        self.readers: Sequence[Worker] = [
            GroupReader(n, group, this.plain, newer, bootstrap, history, seed)
            for group, newer in ((this.readers, False), (this.newer_readers, True))
            for n in (1, 2)
        ]
        self.transformer = Transformer(this.transform, this.plain, this.derived, bootstrap, history, seed)
        self.ledger_reader = LedgerReader(this.topic_partitions(this.ledger), bootstrap, history, seed)

    def everybody(self) -> list[Worker]:
        return [*self.plain, *self.ledger, *self.readers, self.transformer, self.ledger_reader]

    def start(self) -> None:
        for worker in self.everybody():
            worker.start()

    def stop(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            worker.stop()
        deadline = time.monotonic() + DRAIN
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                self.round.history.stalls.append(
                    Stall(worker.name, f"does not come to its end: {worker.errors[-3:]}")
                )

    def acked(self) -> int:
        return sum(len(records) for worker in self.everybody() for records in worker.acked.values())

    def progress(self) -> list[int]:
        """How far the work has come: plain records, transactions, transformed batches. Not the groups of
        readers: after a member's silent death they rightly wait for its session to end."""
        history = self.round.history
        plain = sum(len(records) for writer in self.plain for records in writer.acked.values())
        ended = sum(t.outcome != UNKNOWN for t in list(history.transactions.values()))
        return [plain, ended, sum(map(len, self.transformer.acked.values()))]

    def wait_for(self, before: list[int], longest: float) -> None:
        """Until each kind of work has gone on, but not for ever: on a busy machine the broker may need a
        while to be of use again, and killing it before that proves little."""
        deadline = time.monotonic() + longest
        while time.monotonic() < deadline:
            if all(now > then for now, then in zip(self.progress(), before, strict=True)):
                return
            time.sleep(0.02)

    def first_failure(self) -> BaseException | None:
        return next((w.failure for w in self.everybody() if w.failure is not None), None)


def prepare(this: Round, bootstrap: str) -> None:
    """Make the topics, and tell the history what they are."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    topics = (this.plain, this.ledger, this.derived)
    for future in admin.create_topics(
        [NewTopic(topic, this.partitions, this.replicas) for topic in topics]
    ).values():
        future.result(WAIT)
    history = this.history
    history.acked = empty_records(this.all_topic_partitions())
    history.transactional = {this.ledger}
    history.derived = {this.derived: (this.plain, this.transform)}
    history.groups = {this.readers: this.plain, this.newer_readers: this.plain}


def finish(this: Round, crew: Crew, bootstrap: str) -> None:
    """The broker is left alone: everybody comes to the end, and the logs are read once more from the
    start."""
    history = this.history
    crew.stop([*crew.plain, *crew.ledger])
    with Cluster(ClientConfig.of(bootstrap, client_id="judge")) as cluster:
        cluster.refresh([this.plain, this.ledger, this.derived])
        groups = Groups(cluster)
        plain = this.topic_partitions(this.plain)
        ends = _offsets(cluster, plain, committed=False)
        for group in (this.readers, this.newer_readers, this.transform):
            _until(
                history,
                f"group {group}",
                lambda group=group: {  # type: ignore[misc]
                    topic_partition: (known, ends[topic_partition])
                    for topic_partition, known in _committed(groups, group, plain).items()
                    if known != ends[topic_partition]
                },
            )
        crew.stop([*crew.readers, crew.transformer])
        topic_partitions = this.all_topic_partitions()
        _until(history, "last stable offset", lambda: _unstable(cluster, topic_partitions))
        history.ends = _offsets(cluster, topic_partitions, committed=True)
        history.final = read_all(bootstrap, history.ends)
        last = {topic_partition: r.offsets[-1] for topic_partition, r in history.final.items() if len(r)}
        reader = crew.ledger_reader
        _until(
            history,
            reader.name,
            lambda: {
                topic_partition: (reader.last(topic_partition), last[topic_partition])
                for topic_partition in this.topic_partitions(this.ledger)
                if topic_partition in last and reader.last(topic_partition) < last[topic_partition]
            },
        )
        crew.stop([reader])
        for worker in crew.everybody():
            for topic_partition, records in worker.acked.items():
                history.acked[topic_partition].extend(records)
        followed = {group: plain for group in (this.readers, this.newer_readers, this.transform)}
        for writer in crew.ledger:
            if isinstance(writer, NewerLedgerWriter):
                followed[writer.group] = [(this.ledger, 0)]
        for group, topic_partitions in followed.items():
            started = time.monotonic()
            for topic_partition, offset in _committed(groups, group, topic_partitions).items():
                history.fetched.append(Fetched(group, topic_partition, offset, started, time.monotonic()))


def remove(this: Round, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for future in admin.delete_topics([this.plain, this.ledger, this.derived]).values():
        future.result(WAIT)


def play(
    this: Round,
    bootstrap: str,
    faults: Faults,
    count: int,
    seed: int,
    between: float = 1.2,
    end: float = math.inf,
    progress: Callable[[str], None] = lambda _: None,
    longest_wait: float = LONGEST_WAIT,
) -> History:
    """A whole round with (at least) so many faults that count, fewer if the clock reaches `end`. The history
    is complete and ready to be checked."""
    prepare(this, bootstrap)
    crew = Crew(this, bootstrap, seed)
    crew.start()
    wanted = faults.done + count
    while faults.done < wanted and crew.first_failure() is None and time.monotonic() < end:
        before = crew.progress()
        faults.wait(between)
        crew.wait_for(before, longest_wait)
        faults.once()
        progress(f"{faults.done} faults, {crew.acked()} records acknowledged in this round")
    faults.wait(between)
    finish(this, crew, bootstrap)
    return this.history


# --- reading the end ----------------------------------------------------------------------------------------


def _until(history: History, who: str, behind: Callable[[], dict[TopicPartition, object]]) -> None:
    """Wait until nobody is behind any more."""
    deadline = time.monotonic() + DRAIN
    while left := behind():
        if time.monotonic() > deadline:
            history.stalls.append(
                Stall(who, f"has not reached the end after {DRAIN:.0f} s (is, should be): {left}")
            )
            return
        time.sleep(0.05)


def _offsets(
    cluster: Cluster, topic_partitions: Sequence[TopicPartition], committed: bool
) -> dict[TopicPartition, int]:
    found = list_offsets(cluster, dict.fromkeys(topic_partitions, LATEST), read_committed=committed)
    return {topic_partition: answer.offset for topic_partition, answer in found.items()}


def _unstable(cluster: Cluster, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, object]:
    stable, ends = _offsets(cluster, topic_partitions, True), _offsets(cluster, topic_partitions, False)
    return {
        topic_partition: (stable[topic_partition], ends[topic_partition])
        for topic_partition in topic_partitions
        if stable[topic_partition] != ends[topic_partition]
    }


def _committed(
    groups: Groups, group: str, topic_partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    known = groups.committed(group)
    found = {}
    for topic_partition in topic_partitions:
        entry = known.get(topic_partition)
        found[topic_partition] = entry.offset if isinstance(entry, Committed) else -1
    return found


def read_all(bootstrap: str, ends: dict[TopicPartition, int]) -> dict[TopicPartition, Records]:
    """All committed records of these partitions, by a new reader."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "check.crcs": True,
            **QUIET,
        }
    )
    found = empty_records(list(ends))
    try:
        left = {topic_partition for topic_partition, end in ends.items() if end > 0}
        consumer.assign([Position(*topic_partition, 0) for topic_partition in left])
        deadline = time.monotonic() + DRAIN
        while left and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                topic_partition = (message.topic(), message.partition())
                if message.error() is None:
                    found[topic_partition].add(message.offset(), key_in(message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(topic_partition)
        if left:
            raise AssertionError(f"the end of {sorted(left)} cannot be read")
    finally:
        consumer.close()
    return found
