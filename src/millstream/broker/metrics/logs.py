"""Logs, data folders and the log cleaner."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.broker.metrics.page import Page, label

if TYPE_CHECKING:
    from millstream.broker.server import Broker


def add_logs(page: Page, broker: Broker) -> None:
    rows = [
        (f'topic="{label(partition.topic)}",partition="{partition.index}"', partition.log)
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
        [(f'logdirectory="{label(path)}"', int(path in offline)) for path in broker.log_dirs.paths],
    )


def add_log_cleaner(page: Page, broker: Broker) -> None:
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
        [(f'logdirectory="{label(path)}"', len(sizes)) for path, sizes in stuck.items()],
    )
    page.add(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        "gauge",
        "Bytes in partitions that cannot be compacted.",
        [(f'logdirectory="{label(path)}"', sum(sizes)) for path, sizes in stuck.items()],
    )
    for name, help, total in (
        ("cleanings", "Logs compacted.", cleaner.cleanings),
        ("failures", "Cleanings that did not succeed.", cleaner.failures),
        ("read_bytes", "Bytes read by compaction.", cleaner.bytes_read),
        ("written_bytes", "Bytes written by compaction.", cleaner.bytes_written),
    ):
        page.one(f"millstream_cleaner_{name}_total", "counter", help, total)
