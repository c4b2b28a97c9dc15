"""The parts of a running proxy, put together."""

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, Producer
from prometheus_client.core import Metric

from millstream.http.metrics import counter, gauge
from millstream.rest import producer
from millstream.rest.cluster_queries import Kafka
from millstream.rest.consumer_instances import Instances
from millstream.rest.librdkafka_config import known, translated
from millstream.rest.producer import Producing
from millstream.rest.rest_config import RestConfig
from millstream.rest.schemas import Schemas
from millstream.serdes.client import SchemaRegistry

# librdkafka's names
CONSUMER_DEFAULTS = {
    "auto.offset.reset": "latest",
    "enable.auto.commit": "true",
    "queued.min.messages": "1000",
    "fetch.queue.backoff.ms": "50",
    "partition.assignment.strategy": "range,roundrobin",
}


class RestService:
    def __init__(self, config: RestConfig) -> None:
        self.config = config
        self.kafka = Kafka(config.client())
        client = {"bootstrap.servers": config.bootstrap, "client.id": "rest-proxy"}
        chosen = translated(config.for_clients("producer."))
        producer_config = known(Producer, {**client, **producer.DEFAULTS, **chosen})
        self.producing = Producing(producer_config, flush_timeout=3.0)
        self.schemas = Schemas(_registry(config))
        self.instances = Instances(config, self.kafka, _consumer(config, client))

    async def start(self) -> str:
        self.instances.start()
        return f"bootstrap.servers={self.config.bootstrap}"

    def collect_metrics(self) -> Iterator[Metric]:
        """What `/metrics` shows of the proxy itself."""
        made = self.producing.tally
        given, expired = self.instances.records_given, self.instances.expired
        yield counter("millstream_rest_records_produced_total", "Records that Kafka took.", made.delivered)
        yield counter("millstream_rest_records_refused_total", "Records that it did not take.", made.refused)
        yield counter("millstream_rest_records_consumed_total", "Records given to consumers.", given)
        yield gauge("millstream_rest_consumer_instances", "Consumer instances.", len(self.instances))
        yield counter("millstream_rest_consumer_instances_expired_total", "Closed unused.", expired)

    async def stop(self) -> None:
        await self.instances.close()
        self.producing.close()
        self.schemas.close()
        self.kafka.close()


def _consumer(config: RestConfig, client: dict[str, str]) -> dict[str, Any]:
    # An instance that nobody uses is closed by the proxy, so its membership must last as long.
    interval = max(300_000, config.value("consumer.instance.timeout.ms") + 60_000)
    ahead = {"queued.max.messages.kbytes": config.value("consumer.prefetch.kbytes")}
    chosen = translated(config.for_clients("consumer."))
    given = {**client, **CONSUMER_DEFAULTS, **ahead, "max.poll.interval.ms": interval, **chosen}
    # What counts as read is for the proxy to say.
    return known(Consumer, given) | {"enable.auto.offset.store": False}


def _registry(config: RestConfig) -> SchemaRegistry:
    user, _, password = (config.secret("schema.registry.basic.auth.user.info") or "").partition(":")
    return SchemaRegistry(
        config.value("schema.registry.url"),
        user=user or None,
        password=password,
        ca_file=config.value("schema.registry.ssl.truststore.location"),
        timeout=config.value("schema.registry.request.timeout.ms") / 1000,
    )
