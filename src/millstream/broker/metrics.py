"""What `/metrics` shows, in Prometheus' text format, under the names that users of Kafka exporters know.

Nothing is counted twice: the numbers live where the work is done (logs, partitions, connections, the table of
APIs) and are gathered when somebody asks.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.broker import quotas
from millstream.broker.telemetry.page import add_clients

if TYPE_CHECKING:
    from millstream.broker.replication.replica_manager import ReplicaManager
    from millstream.broker.server import Broker

Sample = tuple[str, float | int]  # labels as text, value


class Page:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, metric_type: str, help: str, samples: Iterable[Sample]) -> None:
        self._lines.append(f"# HELP {name} {help}")
        self._lines.append(f"# TYPE {name} {metric_type}")
        for labels, value in samples:
            self._lines.append(f"{name}{{{labels}}} {value}" if labels else f"{name} {value}")

    def one(self, name: str, metric_type: str, help: str, value: float | int) -> None:
        self.add(name, metric_type, help, [("", value)])

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render(broker: Broker) -> str:
    page = Page()
    _topics(page, broker)
    _requests(page, broker)
    _replicas(page, broker)
    _logs(page, broker)
    _log_cleaner(page, broker)
    _network(page, broker)
    _groups(page, broker)
    _transactions(page, broker)
    _security(page, broker)
    _logins(page, broker)
    if broker.telemetry is not None:
        add_clients(page, broker.telemetry)
    _process(page, broker)
    return page.text()


def _security(page: Page, broker: Broker) -> None:
    """At most 1,000 entities: clients choose their ids."""
    found = list(quotas.rows(broker.quotas))
    for name, help, at in (
        ("rate", "What clients with a quota use: bytes or percent a second; of changes, what is left.", 3),
        ("bound", "Their quotas.", 4),
        ("throttled_seconds_total", "For how long they were told to wait.", 5),
    ):
        samples = [
            (f'quota="{row[0]}",user="{_label(row[1])}",client_id="{_label(row[2])}"', float(row[at]))
            for row in found
        ]
        page.add(f"millstream_quota_{name}", "counter" if at == 5 else "gauge", help, samples)
    page.one(
        "millstream_quota_muted_connections",
        "gauge",
        "Connections that are not listened to because they exceed a quota.",
        broker.quotas.muted,
    )
    if broker.audit is not None:
        for name, help, value in (
            ("events", "Events written to the audit log.", broker.audit.written),
            ("dropped", "Events that are missing from it.", broker.audit.dropped),
            ("failures", "Times that it could not be written.", broker.audit.failures),
        ):
            page.one(f"millstream_audit_{name}_total", "counter", help, value)
    if broker.rights is not None:
        page.one("millstream_acls", "gauge", "Access control lists.", len(broker.rights.index.acls))
        page.one(
            "millstream_denied_requests_total",
            "counter",
            "Operations that were refused for lack of a right.",
            broker.rights.denied,
        )


def _topics(page: Page, broker: Broker) -> None:
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
        samples = [(f'topic="{_label(topic)}"', value) for topic, value in sorted(values.items())]
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


def _requests(page: Page, broker: Broker) -> None:
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


def _logins(page: Page, broker: Broker) -> None:
    security = broker.security
    if security is None:
        return
    page.add(
        "millstream_certificate_expires_seconds",
        "gauge",
        "Seconds until the certificate of a listener expires.",
        [(f'listener="{_label(name)}"', round(tls.expires_in())) for name, tls in security.tls.items()],
    )
    page.add(
        "millstream_certificate_reloads_total",
        "counter",
        "New keys and certificates of a listener that came into use.",
        [(f'listener="{_label(name)}"', tls.reloads) for name, tls in security.tls.items()],
    )
    page.one(
        "millstream_unfinished_login_bytes",
        "gauge",
        "Memory held by unfinished messages of logins.",
        security.login_budget.used,
    )
    handshakes = security.handshakes
    for name, metric_type, help, value in (
        ("tls_handshakes_total", "counter", "TLS handshakes that succeeded.", handshakes.done),
        ("tls_handshakes_failed_total", "counter", "TLS handshakes that failed.", handshakes.failed),
        ("tls_handshakes_open", "gauge", "TLS handshakes under way.", handshakes.half_open),
        ("login_failures_total", "counter", "Logins and handshakes refused.", security.failures.total),
        (
            "logins_turned_away_total",
            "counter",
            "Connections closed at once because of earlier failures from their address.",
            security.failures.turned_away,
        ),
    ):
        page.one(f"millstream_{name}", metric_type, help, value)
    for name, help, attribute in (
        ("logins_total", "Logins that succeeded.", "successes"),
        ("logins_again_total", "Logins of connections that were logged in already.", "again"),
        ("sessions_expired_total", "Sessions closed because they did not log in again.", "expired"),
    ):
        page.add(
            f"millstream_{name}",
            "counter",
            help,
            [
                (f'listener="{_label(listener)}"', getattr(login, attribute))
                for listener, login in security.logins.items()
            ],
        )


def _replicas(page: Page, broker: Broker) -> None:
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


def _logs(page: Page, broker: Broker) -> None:
    rows = [
        (f'topic="{_label(partition.topic)}",partition="{partition.index}"', partition.log)
        for partition in broker.partitions
    ]
    page.add("kafka_log_log_size", "gauge", "Bytes in the log.", [(labels, log.size) for labels, log in rows])
    page.add(
        "kafka_log_log_logstartoffset",
        "gauge",
        "First offset.",
        [(labels, log.start_offset) for labels, log in rows],
    )
    page.add(
        "kafka_log_log_logendoffset",
        "gauge",
        "Next offset.",
        [(labels, log.end_offset) for labels, log in rows],
    )
    page.add(
        "kafka_log_log_numlogsegments",
        "gauge",
        "Segments.",
        [(labels, len(log.segments)) for labels, log in rows],
    )
    offline = broker.log_dirs.offline
    page.one(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "gauge",
        "Data folders out of service.",
        len(offline),
    )
    page.add(
        "kafka_log_logmanager_logdirectoryoffline",
        "gauge",
        "1 for a data folder that is out of service.",
        [(f'logdirectory="{_label(path)}"', int(path in offline)) for path in broker.log_dirs.paths],
    )


def _log_cleaner(page: Page, broker: Broker) -> None:
    cleaner = broker.log_cleaner
    last = cleaner.last.values()
    before = sum(summary.bytes_before for summary in last)
    stuck: dict[str, list[int]] = {path: [] for path in broker.log_dirs.paths}
    for log in cleaner.uncleanable:
        stuck[broker.log_dirs.folder_of(log)].append(log.size)
    for name, help, value in (
        (
            "logcleaner_max_buffer_utilization_percent",
            "How full the key map was in the last cleaner.",
            100 * max([summary.map_utilization for summary in last], default=0.0),
        ),
        (
            "logcleaner_cleaner_recopy_percent",
            "Share of the bytes that the last cleaning kept.",
            100 * sum(summary.bytes_after for summary in last) / before if before else 0.0,
        ),
        (
            "logcleaner_max_clean_time_secs",
            "How long the last cleaning took.",
            max([summary.seconds for summary in last], default=0.0),
        ),
        (
            "logcleaner_max_compaction_delay_secs",
            "By how much max.compaction.lag.ms is exceeded.",
            cleaner.max_delay_ms / 1000,
        ),
        (
            "logcleanermanager_max_dirty_percent",
            "Dirty share of the dirtiest log.",
            100 * cleaner.max_dirty_ratio,
        ),
        (
            "logcleanermanager_time_since_last_run_ms",
            "Since the cleaner last looked for work.",
            1000 * (time.monotonic() - cleaner.last_run),
        ),
    ):
        page.one(f"kafka_log_{name}", "gauge", help, round(value, 3))
    page.add(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "gauge",
        "Partitions that cannot be compacted.",
        [(f'logdirectory="{_label(path)}"', len(sizes)) for path, sizes in stuck.items()],
    )
    page.add(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        "gauge",
        "Bytes in partitions that cannot be compacted.",
        [(f'logdirectory="{_label(path)}"', sum(sizes)) for path, sizes in stuck.items()],
    )
    for name, help, total in (
        ("cleanings", "Logs compacted.", cleaner.cleanings),
        ("failures", "Cleanings that did not succeed.", cleaner.failures),
        ("read_bytes", "Bytes read by compaction.", cleaner.bytes_read),
        ("written_bytes", "Bytes written by compaction.", cleaner.bytes_written),
    ):
        page.one(f"millstream_cleaner_{name}_total", "counter", help, total)


def _groups(page: Page, broker: Broker) -> None:
    states: dict[str, int] = {}
    offsets = 0
    for shard in broker.groups.runtime.ready_shards():
        offsets += shard.offsets.count
        for state, count in shard.states().items():
            states[state] = states.get(state, 0) + count
    manager = "kafka_coordinator_group_groupmetadatamanager"
    page.one(f"{manager}_numgroups", "gauge", "Groups.", sum(states.values()))
    page.one(f"{manager}_numoffsets", "gauge", "Committed offsets.", offsets)
    page.add(
        "millstream_groups",
        "gauge",
        "Groups by state.",
        [(f'state="{state}"', count) for state, count in sorted(states.items())],
    )


def _network(page: Page, broker: Broker) -> None:
    admission = broker.admission
    by_listener: dict[str, int] = dict.fromkeys((acceptor.context.name for acceptor in broker.acceptors), 0)
    for connection in admission.open:
        by_listener[connection.context.name] += 1
    page.add(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Open connections.",
        [(f'listener="{_label(name)}"', count) for name, count in by_listener.items()],
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


def _transactions(page: Page, broker: Broker) -> None:
    transactions = broker.transactions
    states: dict[str, int] = {}
    for shard in transactions.runtime.shards.values():
        for state, count in shard.states().items():
            states[state.label] = states.get(state.label, 0) + count
    page.add(
        "millstream_transactional_ids",
        "gauge",
        "Transactional ids coordinated here, by state.",
        [(f'state="{state}"', count) for state, count in sorted(states.items())],
    )
    page.add(
        "millstream_transactions_ended_total",
        "counter",
        "Transactions that were ended here, by result.",
        [('result="commit"', transactions.committed), ('result="abort"', transactions.aborted)],
    )
    page.one(
        "millstream_transactions_timed_out_total",
        "counter",
        "Transactions that were aborted because they were open for too long.",
        transactions.timed_out,
    )
    page.one(
        "millstream_transactions_completing",
        "gauge",
        "Decided transactions whose markers are still being written.",
        sum(len(shard.completions) for shard in transactions.runtime.shards.values()),
    )


def _process(page: Page, broker: Broker) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    page.one("process_cpu_seconds_total", "counter", "CPU time.", round(usage.ru_utime + usage.ru_stime, 3))
    page.one("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes())
    page.one(
        "process_open_fds",
        "gauge",
        "Open files.",
        len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
    )
    page.one("process_start_time_seconds", "gauge", "Start of the process.", round(broker.started_at, 3))
    page.one(
        "millstream_uptime_seconds",
        "gauge",
        "Seconds since the start.",
        round(time.time() - broker.started_at, 3),
    )
    page.one(
        "millstream_loop_lag_seconds",
        "gauge",
        "How late the loop's timer was, the worst of late.",
        round(broker.loop_lag, 6),
    )


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
