"""The process: CPU, memory, files, and how late its loop is."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING

from millstream.broker.metrics.page import Page

if TYPE_CHECKING:
    from millstream.broker.server import Broker


def add_process(page: Page, broker: Broker) -> None:
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
