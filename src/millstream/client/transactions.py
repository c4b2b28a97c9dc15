"""Transactions as administrators see them: which there are, what their producers wrote, and how to end one by
force.

A transaction is known in two places: its coordinator knows its state and its partitions, the leader of a
partition knows which producers have a transaction open there. One that only the second place knows is
hanging: nobody will end it.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.coordinators import TRANSACTION, Coordinators
from millstream.client.errors import check, describe
from millstream.client.messages import exchange
from millstream.client.producer import init_producer_id
from millstream.client.range_assignor import partitions_by_topic
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import BAD_FRAME, INT16, INT32, read_compact_string, read_count, skip_tags
from millstream.wire.topic_partition import TopicPartition
from millstream.wire.varint import Malformed


class TransactionListing(NamedTuple):
    coordinator: int
    transactional_id: str
    producer_id: int
    state: str


class TransactionState(NamedTuple):
    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """A producer in one partition; -1 for what it has not done yet."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int | None


class Transactions:
    """The calls about the transactions of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._coordinators = Coordinators(cluster, TRANSACTION)

    def listed(
        self,
        *,
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactions of all coordinators; of some producers, open for some time, with an id that
        matches."""
        self.cluster.refresh([])
        found = []
        for node_id in sorted(self.cluster.nodes):
            answer = self.cluster.persistently(
                partial(self._list, node_id, list(producer_ids), longer_than_ms, pattern)
            )
            found += [
                TransactionListing(
                    node_id, str(state.transactional_id), int(state.producer_id), state.transaction_state
                )
                for state in answer.transaction_states
            ]
        return found

    def _list(
        self, node_id: int, producer_ids: Sequence[int], longer_than_ms: int, pattern: str | None
    ) -> Any:
        connection = self.cluster.connection(node_id)
        connection.version(
            "list_transactions", at_least=2 if pattern is not None else 1 if longer_than_ms >= 0 else 0
        )
        answer = connection.request(
            "list_transactions",
            state_filters=[],
            producer_id_filters=producer_ids,
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        check(answer.error_code, subject=f"the transactions of broker {node_id}")
        return answer

    def describe(self, transactional_id: str) -> TransactionState:
        """What the coordinator knows."""

        def request(connection: Connection) -> TransactionState:
            form = exchange("describe_transactions", connection.version("describe_transactions", up_to=0))
            body = form.encode({"transactional_ids": [transactional_id]})
            connection.send(form.key, form.version, form.flexible, [body])
            coordinator = self._coordinators.node(transactional_id).id
            try:
                return _read_described(connection.receive(), transactional_id, coordinator)
            except BAD_FRAME as error:
                raise KafkaError(
                    ErrorCode.unknown_server_error,
                    f"the broker's answer to describe_transactions makes no sense ({error})",
                ) from None

        return self._coordinators.call(transactional_id, request)

    def producers(
        self, topic_partitions: Iterable[TopicPartition], broker: int | None = None
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """The producers that partitions remember, as their leaders (or one broker) know them."""
        wanted = list(topic_partitions)
        groups = {broker: wanted} if broker is not None else self.cluster.by_leader(wanted)
        found: dict[TopicPartition, list[ProducerState] | KafkaError] = {}
        for node_id, group in groups.items():
            topics = [
                {"name": name, "partition_indexes": numbers}
                for name, numbers in partitions_by_topic(group).items()
            ]
            answer = self.cluster.persistently(partial(self._producers, node_id, topics))
            for topic in answer.topics:
                for partition in topic.partitions:
                    topic_partition = TopicPartition(str(topic.name), int(partition.partition_index))
                    if partition.error_code is not ErrorCode.none:
                        text = describe(
                            partition.error_code,
                            partition.error_message,
                            f"partition {topic_partition[0]}-{topic_partition[1]}",
                        )
                        found[topic_partition] = KafkaError(partition.error_code, text)
                    else:
                        found[topic_partition] = [
                            _producer(producer) for producer in partition.active_producers
                        ]
        return found

    def _producers(self, node_id: int, topics: Any) -> Any:
        if node_id not in self.cluster.nodes:
            self.cluster.refresh([])
        return self.cluster.connection(node_id).request("describe_producers", topics=topics)

    def abort(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker into one partition, in the name of a coordinator of that epoch."""
        marker = {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "transaction_result": False,
            "topics": [{"name": topic_partition[0], "partition_indexes": [topic_partition[1]]}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": 0,
        }

        def act() -> None:
            leader = self.cluster.leader(*topic_partition).leader
            answer = self.cluster.connection(leader).request("write_txn_markers", markers=[marker])
            for outcome in answer.markers:
                for topic in outcome.topics:
                    for partition in topic.partitions:
                        check(
                            partition.error_code,
                            subject=f"partition {topic.name}-{partition.partition_index}",
                        )

        self.cluster.persistently(act)

    def terminate(self, transactional_id: str) -> None:
        """Take the transactional id over, as a new producer would: what was open is aborted, the old producer
        fenced."""
        self._coordinators.call(
            transactional_id,
            lambda connection: init_producer_id(connection, transactional_id, transaction_timeout_ms=1),
        )


def _producer(producer: Any) -> ProducerState:
    start = int(producer.current_txn_start_offset)
    return ProducerState(
        int(producer.producer_id),
        int(producer.producer_epoch),
        int(producer.coordinator_epoch),
        int(producer.last_sequence),
        int(producer.last_timestamp),
        start if start >= 0 else None,
    )


_DESCRIBED = struct.Struct(">iqqh")  # timeout, start time, producer id and epoch


def _read_described(body: memoryview, transactional_id: str, coordinator: int) -> TransactionState:
    """An answer about one id, read by hand: kio refuses a start time of -1, which is what an id without a
    transaction has."""
    count, at = read_count(body, skip_tags(body, 0) + 4, True)  # behind the throttle time
    if count != 1:
        raise Malformed(f"{count} answers to one question")
    check(ErrorCode(INT16.unpack_from(body, at)[0]), subject=f"transactional id {transactional_id}")
    _, at = read_compact_string(body, at + 2)
    state, at = read_compact_string(body, at)
    timeout_ms, start_ms, producer_id, epoch = _DESCRIBED.unpack_from(body, at)
    topics, at = read_count(body, at + _DESCRIBED.size, True)
    topic_partitions: list[TopicPartition] = []
    for _ in range(topics):
        name, at = read_compact_string(body, at)
        indexes, at = read_count(body, at, True)
        for _ in range(indexes):
            topic_partitions.append(TopicPartition((name or b"").decode(), INT32.unpack_from(body, at)[0]))
            at += 4
        at = skip_tags(body, at)
    return TransactionState(
        coordinator,
        transactional_id,
        producer_id,
        epoch,
        (state or b"").decode(),
        timeout_ms,
        start_ms if start_ms >= 0 else None,
        tuple(topic_partitions),
    )
