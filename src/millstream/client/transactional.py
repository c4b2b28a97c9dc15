"""A producer whose batches are in a transaction, in the form of the protocol that every broker since Kafka
0.11 speaks; or in the second one, if the producer may and the cluster has `transaction.version` 2 (KIP-890).

`begin` takes the transactional id: whoever had it before is fenced from then on, and what he left open is
undone. It returns when the end of his last transaction is in every log that it touched, so what is read
afterwards is final. Batches go out as with any producer; partitions are announced to the coordinator before
the first one. `commit` or `abort` ends the transaction.

A transaction can be ended by another process than the one that wrote into it: `handle` names it in plain
values, and `TransactionalProducer.resume` continues with it. So one process can commit what others have
prepared, and all those at once that one coordinator keeps (`end_all`).

In the second form each end gives the producer another epoch, so nothing that belongs to one transaction can
be taken for a part of the next one. Then batches and offsets need not be announced, and sequence numbers
begin at 0 in every transaction.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.coordinators import GROUP, TRANSACTION, Coordinators
from millstream.client.errors import check, describe
from millstream.client.groups import offsets_by_topic
from millstream.client.messages import Exchange, exchange
from millstream.client.producer import Batch, Producer, Sending, Sent, init_producer_id
from millstream.client.range_assignor import partitions_by_topic
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

# The coordinator still writes the end of the last transaction, which takes milliseconds.
BUSY_PAUSE = 0.01
Result = TypeVar("Result")

# Versions of the first transactional protocol.
_INIT, _END = 4, 4
ADD_PARTITIONS_VERSION, ADD_OFFSETS_VERSION, COMMIT_OFFSETS_VERSION, PRODUCE_VERSION = 3, 3, 3, 11
# Of the second one, which needs a feature level that not every cluster has.
FEATURE, SECOND = "transaction.version", 2
_END_SECOND, COMMIT_OFFSETS_SECOND, PRODUCE_SECOND = 5, 5, 12

_FENCED = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
        ErrorCode.unknown_producer_id,
    }
)


def is_fenced(error: KafkaError) -> bool:
    """Whether the transaction belongs to someone else by now, or was aborted because it took too long."""
    return error.code in _FENCED


class Handle(NamedTuple):
    """A transaction as its coordinator knows it, with the next sequence number of each partition still to be
    written. `version`: of the protocol."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequences: tuple[tuple[str, int, int], ...] = ()
    version: int = 1


class TransactionalProducer(Producer):
    """One transactional id. `begin` before anything else. `shared`: several have their commits in its
    transactions (`transaction_commits`). `newest`: of the protocol; the first one is needed if others end
    what this one has written, because nobody would tell this one its next epoch."""

    newest_version: int = PRODUCE_VERSION

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = 60_000,
        timeout_ms: int = 30_000,
        create_topics: bool = True,
        shared: bool = False,
        newest: int = 1,
    ) -> None:
        super().__init__(cluster, timeout_ms=timeout_ms, create_topics=create_topics)
        self.transactional_id: str = transactional_id
        self.shared = shared
        self.version, self._newest = 1, newest
        self._transaction_timeout_ms = transaction_timeout_ms
        self._coordinators = Coordinators(cluster, TRANSACTION)
        self._groups = Coordinators(cluster, GROUP)
        self.announced: set[TopicPartition] = set()

    @classmethod
    def resume(cls, cluster: Cluster, handle: Handle) -> "TransactionalProducer":
        """Go on with a transaction that is open."""
        producer = cls(cluster, handle.transactional_id)
        producer.producer_id, producer.producer_epoch = handle.producer_id, handle.producer_epoch
        producer._sequences = {
            TopicPartition(topic, partition): number for topic, partition, number in handle.sequences
        }
        producer.announced = set(producer._sequences)
        producer._speak(handle.version)
        return producer

    def handle(self, topic_partitions: Iterable[TopicPartition] = ()) -> Handle:
        """The open transaction, to be resumed elsewhere; `topic_partitions` is where more will go."""
        numbers = tuple(
            (*topic_partition, self._sequences.get(topic_partition, 0))
            for topic_partition in topic_partitions
        )
        return Handle(self.transactional_id, self.producer_id, self.producer_epoch, numbers, self.version)

    # --- the transaction ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take over the transactional id with a new epoch."""

        def init(connection: Connection) -> tuple[int, int]:
            self._speak(min(self._newest, max(1, connection.features.get(FEATURE, 1))))
            return init_producer_id(
                connection, self.transactional_id, self._transaction_timeout_ms, up_to=_INIT
            )

        self.go_on_as(*self._patiently(init))
        self.announced.clear()

    def go_on_as(self, producer_id: int, producer_epoch: int) -> None:
        """With the identity that the coordinator has given to this producer."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._sequences.clear()

    def _speak(self, version: int) -> None:
        self.version = version
        self.newest_version = PRODUCE_SECOND if version >= SECOND else PRODUCE_VERSION

    def announce(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction; batches do so by themselves."""
        new = [
            topic_partition for topic_partition in topic_partitions if topic_partition not in self.announced
        ]
        if not new:
            return

        def request(connection: Connection) -> None:
            fields = self.partitions_fields(new)
            answer = connection.request("add_partitions_to_txn", up_to=ADD_PARTITIONS_VERSION, **fields)
            self.partitions_answered(answer, new)

        self._patiently(request)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Make a group's offsets, and the texts that go with some of them, part of the transaction: they are
        there with its records, or neither is. For a group without members."""

        def commit(connection: Connection) -> None:
            fields = self.offsets_fields(group, offsets, metadata or {})
            answer = connection.request("txn_offset_commit", up_to=COMMIT_OFFSETS_VERSION, **fields)
            self.offsets_answered(answer)

        self.announce_group(group)
        self._groups.call(group, commit)

    def announce_group(self, group: str) -> None:
        """Make the group part of the transaction. What this producer committed or aborted before is complete
        then, everywhere."""

        def announce(connection: Connection) -> None:
            fields = self.group_fields(group)
            answer = connection.request("add_offsets_to_txn", up_to=ADD_OFFSETS_VERSION, **fields)
            check(answer.error_code, subject=f"group {group} in {self.transactional_id}")

        self._patiently(announce)

    def commit(self) -> None:
        self._end(True)

    def abort(self) -> None:
        self._end(False)

    def begin_next(self) -> None:
        """After `commit`: the next transaction, under the same epoch."""
        self.announced.clear()

    def give_up(self) -> None:
        """Nobody knows how its last transaction ended: what is left to do with the id is to take it over."""
        self._forget()
        self.announced.clear()

    def check_usable(self) -> None:
        if self.producer_id < 0:
            self._begin()

    def start(self, batches: Mapping[TopicPartition, Batch]) -> Sending:
        for topic in {topic for topic, _ in batches}:
            self._cluster.topic(topic, create=self._create_topics)
        self.announce(batches)
        return super().start(batches)

    # --- requests and answers, for whoever sends them ahead (`transaction_commits`) -------------------------

    def coordinator(self) -> int:
        """The broker that keeps the transaction."""
        return self._coordinators.node(self.transactional_id).id

    def group_coordinator(self, group: str) -> int:
        return self._groups.node(group).id

    def partitions_fields(self, topic_partitions: Iterable[TopicPartition]) -> dict[str, Any]:
        return {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.producer_epoch,
            "v3_and_below_topics": [
                {"name": name, "partitions": numbers}
                for name, numbers in partitions_by_topic(topic_partitions).items()
            ],
        }

    def partitions_answered(self, answer: Any, topic_partitions: Iterable[TopicPartition]) -> None:
        results = [
            (topic.name, result)
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
        # The partition that is at fault tells more than those that were not looked at because of it.
        results.sort(key=lambda found: found[1].partition_error_code is ErrorCode.operation_not_attempted)
        for name, result in results:
            check(result.partition_error_code, subject=f"partition {name}-{result.partition_index}")
        self.announced.update(topic_partitions)

    def group_fields(self, group: str) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "group_id": group,
        }

    def offsets_fields(
        self, group: str, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str]
    ) -> dict[str, Any]:
        return {
            **self.group_fields(group),
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": offsets_by_topic(offsets, metadata),
        }

    def offsets_answered(self, answer: Any) -> None:
        for topic in answer.topics:
            for result in topic.partitions:
                check(result.error_code, subject=f"offset of {topic.name}-{result.partition_index}")

    def settle_all(
        self, batches: Mapping[TopicPartition, Batch], answer: Any
    ) -> dict[TopicPartition, Sent | KafkaError]:
        """The outcome of each batch, with the sequence numbers moved on for those that were written."""
        outcomes = self.outcomes_in(answer)
        for topic_partition, outcome in outcomes.items():
            # A shared producer outlives a batch that was refused, and those behind it: all are aborted.
            if isinstance(outcome, Sent) or not (outcome.code.retriable or self.shared):
                self.settle(topic_partition, batches[topic_partition], outcome)
        return outcomes

    def _end(self, committed: bool) -> None:
        identities: dict[str, tuple[int, int]] = {}
        for error in end_all(self._cluster, [self.handle()], committed, identities=identities).values():
            raise error
        for identity in identities.values():
            self.go_on_as(*identity)

    def _patiently(self, act: Callable[[Connection], Result]) -> Result:
        """`act` with the coordinator, again at once while it is busy with the last transaction."""
        deadline = time.monotonic() + self._cluster.config.total_timeout
        while True:
            try:
                return self._coordinators.call(
                    self.transactional_id, lambda connection: _unless_busy(act, connection)
                )
            except _Busy as busy:
                if time.monotonic() > deadline:
                    raise busy.error from None
                time.sleep(BUSY_PAUSE)

    def _begin(self) -> None:
        raise KafkaError(
            ErrorCode.invalid_txn_state, f"the transaction of {self.transactional_id} is not open any more"
        )


class _Busy(Exception):
    def __init__(self, error: KafkaError) -> None:
        self.error = error


def _unless_busy(act: Callable[[Connection], Result], connection: Connection) -> Result:
    try:
        return act(connection)
    except KafkaError as error:
        if error.code is ErrorCode.concurrent_transactions:
            raise _Busy(error) from None
        raise


# --- many transactions at once ------------------------------------------------------------------------------


def send_all(
    cluster: Cluster, topic_partition: TopicPartition, batches: Sequence[tuple[Handle, Batch]]
) -> dict[str, KafkaError]:
    """One more batch for each of these transactions, all into one partition that they have announced, all
    requests ahead of their answers. Returns what went wrong, by transactional id; errors that pass are tried
    again."""
    left = {handle.transactional_id: (handle, batch) for handle, batch in batches}
    failed: dict[str, KafkaError] = {}
    retry = cluster.retry()
    while left:
        passing: KafkaError | None = None
        for name, error in _send_round(cluster, topic_partition, list(left.values())).items():
            if error is not None and error.code.retriable and getattr(error, "again", True):
                passing = error
                continue
            del left[name]
            if error is not None:
                failed[name] = error
        if passing is not None:
            retry.pause(passing)
            cluster.refresh([topic_partition[0]])
    return failed


def _send_round(
    cluster: Cluster, topic_partition: TopicPartition, batches: Sequence[tuple[Handle, Batch]]
) -> dict[str, KafkaError | None]:
    outcomes: dict[str, KafkaError | None] = {}
    producers = [(TransactionalProducer.resume(cluster, handle), batch) for handle, batch in batches]
    try:
        (node,) = cluster.by_leader([topic_partition])
        connection = cluster.connection(node)
        for producer, batch in producers:
            producer.stamp(topic_partition, batch)
            producer.pack_and_send(connection, {topic_partition: batch})
        for producer, _ in producers:
            form = exchange("produce", connection.version("produce", up_to=PRODUCE_VERSION))
            answer = producer.outcomes_in(form.decode(connection.receive()))[topic_partition]
            outcomes[producer.transactional_id] = answer if isinstance(answer, KafkaError) else None
    except KafkaError as error:
        for producer, _ in producers:
            outcomes.setdefault(producer.transactional_id, error)
    return outcomes


def end_all(
    cluster: Cluster,
    handles: Sequence[Handle],
    committed: bool,
    known: Mapping[str, int] | None = None,
    identities: dict[str, tuple[int, int]] | None = None,
) -> dict[str, KafkaError]:
    """Commit or abort transactions, all requests ahead of their answers. Returns what went wrong, by
    transactional id. Errors that pass are tried again; ending a transaction twice in the same way is not an
    error. `known` are the brokers that keep the transactions, as far as the caller knows them: looking one up
    is a round trip. `identities` gets producer id and epoch of those who have others from now on."""
    identities = {} if identities is None else identities
    coordinators = Coordinators(cluster, TRANSACTION, known=known)
    left = {handle.transactional_id: handle for handle in handles}
    failed: dict[str, KafkaError] = {}
    retry = cluster.retry()
    while left:
        passing: KafkaError | None = None
        ended = _end_round(cluster, coordinators, list(left.values()), committed, identities)
        for name, error in ended.items():
            if error is not None and (error.code.retriable and getattr(error, "again", True)):
                passing = error
                continue
            del left[name]
            if error is not None:
                failed[name] = error
        if passing is None:
            continue
        if passing.code is ErrorCode.concurrent_transactions:
            if time.monotonic() > retry.deadline:
                raise passing
            time.sleep(BUSY_PAUSE)
            continue
        retry.pause(passing)
        coordinators = Coordinators(cluster, TRANSACTION)
    return failed


def _end_round(
    cluster: Cluster,
    coordinators: Coordinators,
    handles: Sequence[Handle],
    committed: bool,
    identities: dict[str, tuple[int, int]],
) -> dict[str, KafkaError | None]:
    outcomes: dict[str, KafkaError | None] = {}
    by_node: dict[int, list[Handle]] = {}
    for handle in handles:
        try:
            by_node.setdefault(coordinators.node(handle.transactional_id).id, []).append(handle)
        except KafkaError as error:
            outcomes[handle.transactional_id] = error
    for node, group in by_node.items():
        try:
            connection = cluster.connection(node)
            forms = [_end_form(connection, handle) for handle in group]
            connection.hold()
            for handle, form in zip(group, forms, strict=True):
                body = form.encode(
                    {
                        "transactional_id": handle.transactional_id,
                        "producer_id": handle.producer_id,
                        "producer_epoch": handle.producer_epoch,
                        "committed": committed,
                    }
                )
                connection.send(form.key, form.version, form.flexible, [body])
            connection.flush()
            for handle, form in zip(group, forms, strict=True):
                answer = form.decode(connection.receive())
                code = answer.error_code
                if code is ErrorCode.none and handle.version >= SECOND:
                    identity = int(answer.producer_id), int(answer.producer_epoch)
                    identities[handle.transactional_id] = identity
                subject = f"transactional id {handle.transactional_id}"
                outcomes[handle.transactional_id] = (
                    None if code is ErrorCode.none else KafkaError(code, describe(code, subject=subject))
                )
        except KafkaError as error:
            for handle in group:
                outcomes.setdefault(handle.transactional_id, error)
    return outcomes


def _end_form(connection: Connection, handle: Handle) -> Exchange:
    """In the second protocol nothing but its own version will do: the epoch has to change."""
    second = handle.version >= SECOND
    version = connection.version(
        "end_txn", at_least=_END_SECOND if second else 0, up_to=_END_SECOND if second else _END
    )
    return exchange("end_txn", version)
