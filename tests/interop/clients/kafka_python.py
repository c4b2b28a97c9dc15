"""kafka-python, in pure Python."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigSourceType
from kafka.errors import BrokerResponseError, for_code
from kafka.partitioner import DefaultPartitioner, Partitioner, StickyPartitioner

from .base import ACKS_ALL, Client, Config, Record, Refused

WAIT = 20.0


class RoundRobin(Partitioner):
    """A custom partitioner: the key plays no part."""

    def __init__(self) -> None:
        self.next = -1

    def partition(self, topic: str, *keys_values_and_cluster: Any) -> int:
        partitions = sorted(keys_values_and_cluster[-1].partitions_for_topic(topic))
        self.next = (self.next + 1) % len(partitions)
        return int(partitions[self.next])


@contextmanager
def refusals() -> Any:
    try:
        yield
    except BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error


class KafkaPython(Client):
    name = "kafka-python"
    partitioners: Mapping[str, Callable[[], Partitioner]] = {
        "murmur2": DefaultPartitioner,
        "sticky": StickyPartitioner,
        "round_robin": RoundRobin,
    }

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self.admin.close()

    def producer(self, **settings: Any) -> KafkaProducer:
        return KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, **settings)

    def consumer(self, **settings: Any) -> KafkaConsumer:
        settings = {"group_id": None, "enable_auto_commit": False, "auto_offset_reset": "none", **settings}
        return KafkaConsumer(bootstrap_servers=self.bootstrap, **settings)

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
        settings: dict[str, Any] = (
            {} if partitioner is None else {"partitioner": self.partitioners[partitioner]()}
        )
        producer = self.producer(
            acks=acks,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_request_size=10_000_000,
            **settings,
        )
        try:
            with refusals():
                futures = [
                    producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                producer.flush(timeout=WAIT)
                sent = [future.get(timeout=WAIT) for future in futures]
            return [(one.partition, one.offset) for one in sent]
        finally:
            producer.close()

    def consume(self, topic: str, partition: int, *, start: int = 0, count: int = 1) -> list[Record]:
        consumer = self.consumer()
        try:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, start)
            return self.read(consumer, count)
        finally:
            consumer.close()

    @staticmethod
    def read(consumer: KafkaConsumer, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + WAIT
        while len(records) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"only {len(records)} of {count} records came")
            with refusals():
                polled = consumer.poll(timeout_ms=500, max_records=count - len(records))
            for some in polled.values():
                records += [
                    Record(
                        one.value,
                        one.key,
                        tuple(one.headers),
                        one.partition,
                        one.timestamp,
                        one.offset,
                        one.timestamp_type,
                    )
                    for one in some
                ]
        return records

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self.consumer()
        try:
            where = TopicPartition(topic, partition)
            return consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self.consumer()
        try:
            where = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({where: timestamp})[where]
            return None if found is None else found.offset
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
        new: dict[str, Any] = {"configs": dict(configs or {})}
        if assignment is None:
            new |= {"num_partitions": partitions, "replication_factor": replicas}
        else:
            new["assignments"] = assignment
        with refusals():
            self.admin.create_topics({topic: new}, validate_only=validate_only)

    def delete_topic(self, topic: str) -> None:
        with refusals():
            self.admin.delete_topics([topic])

    def create_partitions(self, topic: str, total: int) -> None:
        with refusals():
            self.admin.create_partitions({topic: total})

    def topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def describe_topic(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        (described,) = self.admin.describe_topics([topic])
        if described["error_code"]:
            raise Refused(described["error_code"])
        return {
            one["partition_index"]: (one["leader_id"], one["replica_nodes"], one["isr_nodes"])
            for one in described["partitions"]
        }

    def configs(self, kind: str, name: str) -> dict[str, Config]:
        with refusals():
            answer = self.admin.describe_configs([ConfigResource(kind.upper(), name)], config_filter="all")
        return {
            config: Config(
                one["value"],
                ConfigSourceType[one["config_source"]].value,
                one["read_only"],
                one["is_sensitive"],
            )
            for config, one in answer[kind][name].items()
        }

    def replace_configs(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        self._alter(ConfigResource(kind.upper(), name, dict(configs)), incremental=False)

    def change_configs(
        self,
        kind: str,
        name: str,
        changes: Sequence[tuple[str, str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """IncrementalAlterConfigs: (set|delete|append|subtract, name, value)."""
        configs = {config: (AlterConfigOp[operation.upper()], value) for operation, config, value in changes}
        self._alter(
            ConfigResource(kind.upper(), name, configs), incremental=True, validate_only=validate_only
        )

    def _alter(self, resource: ConfigResource, **options: Any) -> None:
        with refusals():
            answer = self.admin.alter_configs([resource], raise_on_unknown=False, **options)
        (outcome,) = (outcome for by_name in answer.values() for outcome in by_name.values())
        if outcome != "OK":  # "[Error 40] InvalidConfigurationError: ..."
            code = int(outcome.removeprefix("[Error ").split("]")[0])
            raise Refused(for_code(code).errno, outcome)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        where = TopicPartition(topic, partition)
        with refusals():
            low: int = self.admin.delete_records({where: before})[where]["low_watermark"]
        return low

    def describe_cluster(self) -> tuple[str, int, dict[int, str]]:
        cluster = self.admin.describe_cluster()
        nodes = {one["broker_id"]: f"{one['host']}:{one['port']}" for one in cluster["brokers"]}
        return cluster["cluster_id"], cluster["controller_id"], nodes
