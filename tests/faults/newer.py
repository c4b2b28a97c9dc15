"""A transactional producer that speaks the newer protocol (transaction.version 2), which librdkafka does not:
a produce adds its partition to the transaction by itself, and every end raises the producer's epoch.

It is written out here request by request, so that what is asked again after a fault is exactly what a client
may ask again: the same batch with the same sequence number, the same end with the same epoch. Each
transaction also commits an offset for a group of the writer's own, which counts its transactions.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from millstream.client import ClientConfig, Cluster
from millstream.client.connection import Connection
from millstream.client.coordinators import GROUP, TRANSACTION, Coordinators
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

from .history import (
    ABORTED,
    COMMITTED,
    Commit,
    Fetched,
    History,
    Transaction,
    transaction_id,
    transaction_key,
)
from .workload import CALL_TIMEOUT, PATIENCE, Worker, value_of

PRODUCE, END, OFFSETS = 12, 5, 5  # the first versions of the newer protocol

# A broker that stands still is given up soon.
SHORT = {"request.timeout.ms": "5000", "default.api.timeout.ms": "5000"}

# Errors that pass by themselves.
PASSING = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
        ErrorCode.unstable_offset_commit,
    }
)

Result = TypeVar("Result")


class NewerLedgerWriter(Worker):
    def __init__(
        self, number: int, topic: str, partitions: int, rate: int, bootstrap: str, history: History, seed: int
    ) -> None:
        super().__init__(f"newer-ledger-{number}", bootstrap, history, seed)
        self.number = number
        self.topic = topic
        self.partitions = partitions
        self.rate = rate
        self.transactional_id = f"{topic}-{number}"
        self.group = f"{topic}-counted-{number}"
        self._cluster = Cluster(ClientConfig.of(bootstrap, SHORT, self.name))
        self._coordinators: dict[int, Coordinators] = {}
        self._producer = (-1, -1)

    def work(self) -> None:
        done = 0
        while not self.stopping.is_set():
            if self._producer[0] < 0:
                self._begin()
            number = transaction_id(self.number, done)
            done += 1
            transaction = self.history.transactions[number] = Transaction()
            began = time.monotonic()
            try:
                self._one(number, transaction, done)
            except KafkaError as problem:
                # How it ended is open if a commit was under way, and shows in the log.
                self.errors.append(f"transaction {number:#x}: {problem}")
                self._producer = (-1, -1)
            if self.random.random() < 0.1:
                self._look()
            # The pace of the load.
            time.sleep(max(0.0, len(transaction.keys) / self.rate - (time.monotonic() - began)))
        self._cluster.close()

    # --- one transaction ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        answer = self._ask(
            lambda: self._coordinator(TRANSACTION, self.transactional_id).request(
                "init_producer_id",
                transactional_id=self.transactional_id,
                transaction_timeout=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
        )
        self._producer = (answer.producer_id, answer.producer_epoch)

    def _one(self, number: int, transaction: Transaction, count: int) -> None:
        wanted = self.random.random() < 0.75
        topic_partition = (self.topic, 0)
        sequences: dict[int, int] = {}
        index = 0
        for _ in range(self.random.randint(1, 4)):
            keys = [transaction_key(number, index + more) for more in range(self.random.randint(1, 20))]
            index += len(keys)
            partition = self.random.randrange(self.partitions)
            transaction.keys += keys
            sequence = sequences.get(partition, 0)
            sequences[partition] = sequence + len(keys)
            base = self._produce(partition, keys, sequence)
            for offset, record_key in enumerate(keys, base):
                self.acknowledged((self.topic, partition), offset, record_key)
        started = time.monotonic()
        self._send_offset(topic_partition, count)
        if wanted:
            transaction.commit_started = time.monotonic()
        try:
            self._end(wanted)
            transaction.outcome = COMMITTED if wanted else ABORTED
        finally:
            if wanted:
                finished = time.monotonic() if transaction.outcome == COMMITTED else None
                self.history.commits.append(Commit(self.group, topic_partition, count, started, finished))

    def _produce(self, partition: int, keys: list[int], sequence: int) -> int:
        now = time.time_ns() // 1_000_000
        producer_id, epoch = self._producer
        batch = encode_batch(
            [Record(at, now, None, value_of(record_key), ()) for at, record_key in enumerate(keys)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )

        def ask() -> Any:
            leader = self._cluster.leader(self.topic, partition).leader
            answer = self._cluster.connection(leader).request(
                "produce",
                within=CALL_TIMEOUT,
                up_to=PRODUCE,
                transactional_id=self.transactional_id,
                acks=-1,
                timeout=round(CALL_TIMEOUT * 1000),
                topic_data=[
                    {
                        "name": self.topic,
                        "partition_data": [{"index": partition, "records": bytes(batch)}],
                    }
                ],
            )
            return answer.responses[0].partition_responses[0]

        return int(self._ask(ask).base_offset)

    def _send_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        def ask() -> Any:
            answer = self._coordinator(GROUP, self.group).request(
                "txn_offset_commit",
                within=CALL_TIMEOUT,
                up_to=OFFSETS,
                transactional_id=self.transactional_id,
                group_id=self.group,
                producer_id=self._producer[0],
                producer_epoch=self._producer[1],
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[
                    {
                        "name": topic_partition[0],
                        "partitions": [
                            {
                                "partition_index": topic_partition[1],
                                "committed_offset": offset,
                                "committed_leader_epoch": -1,
                                "committed_metadata": "",
                            }
                        ],
                    }
                ],
            )
            return answer.topics[0].partitions[0]

        self._ask(ask)

    def _end(self, commit: bool) -> None:
        answer = self._ask(
            lambda: self._coordinator(TRANSACTION, self.transactional_id).request(
                "end_txn",
                within=CALL_TIMEOUT,
                transactional_id=self.transactional_id,
                producer_id=self._producer[0],
                producer_epoch=self._producer[1],
                committed=commit,
            )
        )
        self._producer = (answer.producer_id, answer.producer_epoch)

    def _look(self) -> None:
        """Where the group is."""
        started = time.monotonic()
        asked = {"name": self.topic, "partition_indexes": [0]}

        def ask() -> Any:
            answer = self._coordinator(GROUP, self.group).request(
                "offset_fetch",
                within=CALL_TIMEOUT,
                up_to=7,
                group_id=self.group,
                topics=[asked],
                require_stable=True,
            )
            if answer.error_code:
                raise KafkaError(ErrorCode(answer.error_code))
            return answer.topics[0].partitions[0]

        known = self._ask(ask)
        topic_partition = (self.topic, 0)
        self.history.fetched.append(
            Fetched(self.group, topic_partition, known.committed_offset, started, time.monotonic())
        )

    # --- asking ---------------------------------------------------------------------------------------------

    def _coordinator(self, key_type: int, key: str) -> Connection:
        known = self._coordinators.setdefault(key_type, Coordinators(self._cluster, key_type, timeout=0))
        return self._cluster.connection(known.node(key).id)

    def _ask(self, act: Callable[[], Result]) -> Result:
        """The answer, asked for again while the error passes, wherever it has to be asked by then; KafkaError
        if it does not pass."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if not self._cluster.topics:
                    self._cluster.refresh([self.topic])
                answer = act()
                code = ErrorCode(getattr(answer, "error_code", 0))
                if code is ErrorCode.none:
                    return answer
                raise KafkaError(code)
            except KafkaError as problem:
                if problem.code not in PASSING or time.monotonic() > deadline:
                    raise
                self._coordinators.clear()
                self._cluster.topics.clear()
                time.sleep(0.02)
