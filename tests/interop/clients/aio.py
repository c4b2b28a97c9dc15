"""aiokafka, on asyncio. It speaks the older, non-flexible versions of most messages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, for_code
from aiokafka.partitioner import DefaultPartitioner

from .base import ACKS_ALL, Client, Config, Record, Refused

WAIT = 20.0


@contextmanager
def refusals() -> Any:
    try:
        yield
    except BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error


def check(code: int, message: str | None = None) -> None:
    if code:
        raise Refused(for_code(code).errno, message or "")


class AioKafka(Client):
    name = "aiokafka"
    partitioners: Mapping[str, Callable[..., int]] = {
        "murmur2": DefaultPartitioner(),
        "last": lambda key, everywhere, available: max(everywhere),
    }

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            with refusals():
                yield admin
        finally:
            await admin.close()

    @asynccontextmanager
    async def consumer(self, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
        settings = {"auto_offset_reset": "none", **settings}
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, **settings)
        await consumer.start()
        try:
            with refusals():
                yield consumer
        finally:
            await consumer.stop()

    @asynccontextmanager
    async def producer(self, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, **settings)
        await producer.start()
        try:
            with refusals():
                yield producer
        finally:
            await producer.stop()

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
        async def run() -> list[tuple[int, int]]:
            settings: dict[str, Any] = (
                {} if partitioner is None else {"partitioner": self.partitioners[partitioner]}
            )
            if compression != "none":
                settings["compression_type"] = compression
            async with self.producer(
                acks=acks, enable_idempotence=idempotent, max_request_size=10_000_000, **settings
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                await producer.flush()
                sent = await asyncio.wait_for(asyncio.gather(*futures), WAIT)
            if acks == 0:  # nothing comes back, not even the partition
                return [(-1, -1)] * len(sent)
            return [(one.partition, one.offset) for one in sent]

        return asyncio.run(run())

    def consume(self, topic: str, partition: int, *, start: int = 0, count: int = 1) -> list[Record]:
        async def run() -> list[Record]:
            async with self.consumer() as consumer:
                where = TopicPartition(topic, partition)
                consumer.assign([where])
                consumer.seek(where, start)
                return [await asyncio.wait_for(self.one(consumer), WAIT) for _ in range(count)]

        return asyncio.run(run())

    @staticmethod
    async def one(consumer: AIOKafkaConsumer) -> Record:
        one = await consumer.getone()
        return Record(
            one.value,
            one.key,
            tuple(one.headers),
            one.partition,
            one.timestamp,
            one.offset,
            one.timestamp_type,
        )

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        async def run() -> tuple[int, int]:
            async with self.consumer() as consumer:
                where = TopicPartition(topic, partition)
                return (await consumer.beginning_offsets([where]))[where], (
                    await consumer.end_offsets([where])
                )[where]

        return asyncio.run(run())

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        async def run() -> int | None:
            async with self.consumer() as consumer:
                where = TopicPartition(topic, partition)
                found = (await consumer.offsets_for_times({where: timestamp}))[where]
                return None if found is None else found.offset

        return asyncio.run(run())

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
        async def run() -> None:
            if assignment is None:
                new = NewTopic(topic, partitions, replicas, topic_configs=dict(configs or {}))
            else:
                new = NewTopic(
                    topic, -1, -1, replica_assignments=assignment, topic_configs=dict(configs or {})
                )
            async with self._admin() as admin:
                answer = await admin.create_topics([new], validate_only=validate_only)
                check(*answer.topic_errors[0][1:])

        asyncio.run(run())

    def delete_topic(self, topic: str) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                answer = await admin.delete_topics([topic])
                check(answer.topic_error_codes[0][1])

        asyncio.run(run())

    def create_partitions(self, topic: str, total: int) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                answer = await admin.create_partitions({topic: NewPartitions(total)})
                check(*answer.topic_errors[0][1:])

        asyncio.run(run())

    def topics(self) -> set[str]:
        async def run() -> set[str]:
            async with self._admin() as admin:
                return set(await admin.list_topics())

        return asyncio.run(run())

    def describe_topic(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        async def run() -> dict[int, tuple[int, list[int], list[int]]]:
            async with self._admin() as admin:
                (described,) = await admin.describe_topics([topic])
                check(described["error_code"])
                return {
                    one["partition"]: (one["leader"], one["replicas"], one["isr"])
                    for one in described["partitions"]
                }

        return asyncio.run(run())

    def configs(self, kind: str, name: str) -> dict[str, Config]:
        async def run() -> dict[str, Config]:
            async with self._admin() as admin:
                resource = ConfigResource(ConfigResourceType[kind.upper()], name)
                (answer,) = await admin.describe_configs([resource])
                ((code, message, _, _, entries),) = answer.resources
                check(code, message)
                return {
                    config: Config(value, source, read_only, sensitive)
                    for config, value, read_only, source, sensitive, *_ in entries
                }

        return asyncio.run(run())

    def replace_configs(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                (answer,) = await admin.alter_configs(
                    [ConfigResource(ConfigResourceType[kind.upper()], name, dict(configs))]
                )
                check(*answer.resources[0][:2])

        asyncio.run(run())

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        async def run() -> int:
            async with self._admin() as admin:
                where = TopicPartition(topic, partition)
                return (await admin.delete_records({where: RecordsToDelete(before_offset=before)}))[where]

        return asyncio.run(run())

    def describe_cluster(self) -> tuple[str, int, dict[int, str]]:
        async def run() -> tuple[str, int, dict[int, str]]:
            async with self._admin() as admin:
                cluster = await admin.describe_cluster()
                nodes = {one["node_id"]: f"{one['host']}:{one['port']}" for one in cluster["brokers"]}
                return cluster["cluster_id"], cluster["controller_id"], nodes

        return asyncio.run(run())
