"""confluent-kafka, which is librdkafka."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .base import ACKS_ALL, CREATE_TIME, LOG_APPEND_TIME, Client, Config, Record, Refused

WAIT = 20.0


@contextmanager
def refusals() -> Any:
    try:
        yield
    except KafkaException as error:
        raise Refused(error.args[0].code(), error.args[0].str()) from error


def result_of(futures: Mapping[Any, "Future[Any]"]) -> Any:
    (future,) = futures.values()
    with refusals():
        return future.result(WAIT)


class Confluent(Client):
    name = "confluent"
    partitioners = {
        name: name
        for name in (
            "random",
            "consistent",
            "consistent_random",
            "murmur2",
            "murmur2_random",
            "fnv1a",
            "fnv1a_random",
        )
    }

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def producer(self, **settings: Any) -> Producer:
        return Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "message.timeout.ms": 20000, **settings}
        )

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "consumes-by-assignment",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **settings,
            }
        )

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        acks: int = ACKS_ALL,
        compression: str = "none",
        idempotent: bool = False,
        partitioner: str | None = None,
    ) -> list[tuple[int, int]]:
        settings: dict[str, Any] = {
            "acks": acks,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "message.max.bytes": 10_000_000,
        }
        if partitioner is not None:
            settings["partitioner"] = self.partitioners[partitioner]
        producer = self.producer(**settings)
        delivered: dict[int, tuple[int, int]] = {}
        errors = []

        def on_delivery(index: int) -> Any:
            def callback(error: Any, message: Message) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offset = message.offset()  # None where acks is 0
                    delivered[index] = (message.partition(), -1 if offset is None else offset)

            return callback

        for index, record in enumerate(records):
            where = {} if record.partition is None else {"partition": record.partition}
            when = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=on_delivery(index),
                **where,
                **when,
            )
        producer.flush(WAIT)
        if errors:
            raise Refused(errors[0].code(), errors[0].str())
        return [delivered[index] for index in range(len(records))]

    def consume(self, topic: str, partition: int, *, start: int = 0, count: int = 1) -> list[Record]:
        consumer = self.consumer()
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            return self.read(consumer, count)
        finally:
            consumer.close()

    @staticmethod
    def read(consumer: Consumer, count: int) -> list[Record]:
        records: list[Record] = []
        while len(records) < count:
            message = consumer.poll(WAIT)
            if message is None:
                raise AssertionError(f"only {len(records)} of {count} records came")
            if message.error():
                raise Refused(message.error().code(), message.error().str())
            kind, timestamp = message.timestamp()
            records.append(
                Record(
                    message.value(),
                    message.key(),
                    message.headers() or (),
                    message.partition(),
                    timestamp,
                    message.offset(),
                    LOG_APPEND_TIME if kind == TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME,
                )
            )
        return records

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self.consumer()
        try:
            with refusals():
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT)
            return low, high
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self.consumer()
        try:
            with refusals():
                (found,) = consumer.offsets_for_times(
                    [TopicPartition(topic, partition, timestamp)], timeout=WAIT
                )
            return found.offset if found.offset >= 0 else None
        finally:
            consumer.close()

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        if assignment is not None:
            new = NewTopic(
                topic,
                len(assignment),
                replica_assignment=[assignment[p] for p in sorted(assignment)],
                config=configs or {},
            )
        else:
            new = NewTopic(topic, partitions, replicas, config=dict(configs or {}))
        result_of(self.admin.create_topics([new], validate_only=validate_only))

    def delete_topic(self, topic: str) -> None:
        result_of(self.admin.delete_topics([topic], operation_timeout=10))

    def create_partitions(self, topic: str, total: int) -> None:
        result_of(self.admin.create_partitions([NewPartitions(topic, total)]))

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=WAIT).topics)

    def describe_topic(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        described = result_of(self.admin.describe_topics(TopicCollection([topic])))
        return {
            partition.id: (
                partition.leader.id,
                [node.id for node in partition.replicas],
                [node.id for node in partition.isr],
            )
            for partition in described.partitions
        }

    def serves(self, topic: str) -> bool:
        """True when each partition has a leader that knows it; Kafka takes a moment after the topic is
        made."""
        asked = {
            TopicPartition(topic, partition): OffsetSpec.latest() for partition in self.describe_topic(topic)
        }
        with refusals():
            return all(future.result(WAIT).offset == 0 for future in self.admin.list_offsets(asked).values())

    @staticmethod
    def resource(kind: str, name: str, **more: Any) -> ConfigResource:
        return ConfigResource(ResourceType[kind.upper()], name, **more)

    def configs(self, kind: str, name: str) -> dict[str, Config]:
        described = result_of(self.admin.describe_configs([self.resource(kind, name)]))
        return {
            entry.name: Config(entry.value, entry.source, entry.is_read_only, entry.is_sensitive)
            for entry in described.values()
        }

    def replace_configs(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        result_of(self.admin.alter_configs([self.resource(kind, name, set_config=dict(configs))]))

    def change_configs(
        self,
        kind: str,
        name: str,
        changes: Sequence[tuple[str, str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """IncrementalAlterConfigs: (set|delete|append|subtract, name, value)."""
        entries = [
            ConfigEntry(config, value, incremental_operation=AlterConfigOpType[operation.upper()])
            for operation, config, value in changes
        ]
        resource = self.resource(kind, name, incremental_configs=entries)
        result_of(self.admin.incremental_alter_configs([resource], validate_only=validate_only))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        low: int = result_of(
            self.admin.delete_records([TopicPartition(topic, partition, before)])
        ).low_watermark
        return low

    def describe_cluster(self) -> tuple[str, int, dict[int, str]]:
        cluster = self.admin.describe_cluster().result(WAIT)
        nodes = {node.id: f"{node.host}:{node.port}" for node in cluster.nodes}
        return cluster.cluster_id, cluster.controller.id, nodes
