"""What clients send and get: by topic, by API, by connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.broker.metrics.page import Page, label

if TYPE_CHECKING:
    from millstream.broker.server import Broker


def add_topics(page: Page, broker: Broker) -> None:
    messages: dict[str, int] = {}
    bytes_in: dict[str, int] = {}
    bytes_out: dict[str, int] = {}
    for partition in broker.partitions:
        topic = partition.topic
        messages[topic] = messages.get(topic, 0) + partition.messages_in
        bytes_in[topic] = bytes_in.get(topic, 0) + partition.bytes_in
        bytes_out[topic] = bytes_out.get(topic, 0) + partition.bytes_out
    for name, help, values in (
        ("messagesin", "Records appended.", messages),
        ("bytesin", "Bytes appended.", bytes_in),
        ("bytesout", "Bytes fetched.", bytes_out),
    ):
        samples = [(f'topic="{label(topic)}"', value) for topic, value in sorted(values.items())]
        page.add(
            f"kafka_server_brokertopicmetrics_{name}_total",
            "counter",
            help,
            [*samples, ("", sum(values.values()))],
        )
    page.one(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "counter",
        "Partitions of produce requests that were refused.",
        broker.produce.failed,
    )
    page.one(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        "counter",
        "Partitions of fetch requests that were refused.",
        broker.fetch.failed,
    )


def add_requests(page: Page, broker: Broker) -> None:
    served = [api for api in broker.dispatcher.apis.values() if api.requests]
    page.add(
        "kafka_network_requestmetrics_requests_total",
        "counter",
        "Requests by API.",
        [(f'request="{api.name}"', api.requests) for api in served],
    )
    page.add(
        "kafka_network_requestmetrics_localtimems_total",
        "counter",
        "Milliseconds the loop spent in requests, by API.",
        [(f'request="{api.name}"', round(api.seconds * 1000, 3)) for api in served],
    )
    page.one(
        "millstream_malformed_requests_total",
        "counter",
        "Requests that could not be served.",
        broker.dispatcher.malformed,
    )


def add_network(page: Page, broker: Broker) -> None:
    admission = broker.admission
    by_listener: dict[str, int] = dict.fromkeys((acceptor.context.name for acceptor in broker.acceptors), 0)
    for connection in admission.open:
        by_listener[connection.context.name] += 1
    page.add(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Open connections.",
        [(f'listener="{label(name)}"', count) for name, count in by_listener.items()],
    )
    page.one(
        "kafka_server_socket_server_metrics_connection_creation_total",
        "counter",
        "Connections accepted.",
        admission.accepted,
    )
    page.one(
        "millstream_connections_refused_total",
        "counter",
        "Connections refused by a limit.",
        admission.refused,
    )
    page.one(
        "millstream_unfinished_request_bytes",
        "gauge",
        "Memory held by unfinished requests.",
        broker.budget.used,
    )
    page.one(
        "kafka_server_delayedoperationpurgatory_purgatorysize_fetch",
        "gauge",
        "Fetches that wait.",
        len(broker.fetch.parked),
    )
    page.one(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "gauge",
        "Fetch sessions.",
        len(broker.sessions),
    )
    page.one(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "gauge",
        "Partitions in fetch sessions.",
        broker.sessions.partition_count,
    )
    page.one(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
        "counter",
        "Fetch sessions thrown out.",
        broker.sessions.evicted,
    )
    page.one(
        "millstream_cold_reads_total",
        "counter",
        "Slices read from the disk before sending.",
        broker.fetch.cold_reads,
    )
