"""Replicas that this broker hosts, and what the controller knows of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.broker.metrics.page import Page

if TYPE_CHECKING:
    from millstream.broker.replication.replica_manager import ReplicaManager
    from millstream.broker.server import Broker


def add_replicas(page: Page, broker: Broker) -> None:
    image = broker.image
    leading = sum(1 for partition in broker.partitions if partition.leads)
    count = len(broker.partitions)
    page.one("kafka_server_replicamanager_partitioncount", "gauge", "Partitions hosted.", count)
    page.one("kafka_server_replicamanager_leadercount", "gauge", "Partitions led.", leading)
    page.one(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
        "Partitions led with fewer in-sync replicas than replicas.",
        sum(1 for found in broker.partitions if found.leads and len(found.isr) < len(found.replicas)),
    )
    page.one(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "gauge",
        "Partitions led that refuse acks=all.",
        sum(1 for partition in broker.partitions if partition.leads and not partition.enough_in_sync),
    )
    page.one(
        "kafka_server_replicamanager_atminisrpartitioncount",
        "gauge",
        "Partitions led with as few in-sync replicas as acks=all needs.",
        sum(1 for found in broker.partitions if found.leads and found.at_min_isr),
    )
    page.one(
        "kafka_server_replicamanager_offlinereplicacount",
        "gauge",
        "Replicas that cannot be used.",
        sum(1 for found in broker.partitions if found.log.offline is not None)
        + len(broker.partitions.without_log),
    )
    if "replicas" in broker.__dict__:
        _replication(page, broker.replicas)
    page.one(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "gauge",
        "1 where the controller runs.",
        int(broker.controller.leading),
    )
    page.one("kafka_controller_kafkacontroller_globaltopiccount", "gauge", "Topics.", len(image.topics_by_id))
    page.one(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "gauge",
        "Partitions.",
        sum(map(len, image.partitions.values())),
    )
    page.one(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "gauge",
        "Partitions without leader.",
        sum(1 for record in image.all_partitions() if record.leader < 0) + len(broker.partitions.without_log),
    )
    page.one("millstream_metadata_version", "gauge", "Position in the metadata log.", image.version)


def _replication(page: Page, replicas: ReplicaManager) -> None:
    for name, help, value in (
        ("isrshrinks", "Changes of ISRs by which a replica left.", replicas.isr_shrinks),
        ("isrexpands", "Changes of ISRs by which a replica joined.", replicas.isr_expands),
        ("failedisrupdates", "Changes of ISRs that were not accepted.", replicas.failed_isr_updates),
    ):
        page.one(f"kafka_server_replicamanager_{name}_total", "counter", help, value)
    page.add(
        "kafka_server_replicafetchermanager_maxlag",
        "gauge",
        "Records that the partition furthest behind has yet to fetch, by leader.",
        [(f'broker="{leader}"', fetcher.max_lag) for leader, fetcher in replicas.fetchers.items()],
    )
    page.add(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "counter",
        "Bytes that were fetched from leaders, by leader.",
        [(f'broker="{leader}"', fetcher.bytes_in) for leader, fetcher in replicas.fetchers.items()],
    )
