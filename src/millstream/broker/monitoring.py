"""What a monitoring system asks over HTTP: `/metrics` for Prometheus, `/health` for a load balancer.

Healthy is a broker that serves, and whose partitions and data folders all can.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millstream.broker import http_endpoint
from millstream.broker.metrics.render import render
from millstream.http.host_names import HostNames

if TYPE_CHECKING:
    from millstream.broker.server import Broker

ALLOWED_HOSTS = "millstream.metrics.allowed.hosts"


async def serve_monitoring(broker: Broker, host: str, port: int) -> asyncio.Server:
    return await http_endpoint.serve(
        host,
        port,
        {
            "/metrics": lambda: (200, "text/plain; version=0.0.4", render(broker)),
            "/health": lambda: health(broker),
        },
        HostNames([host], broker.settings.items(ALLOWED_HOSTS), setting=ALLOWED_HOSTS),
    )


def health(broker: Broker) -> tuple[int, str, str]:
    offline = sum(
        1
        for partition in broker.partitions
        if (not partition.leads and partition.leader in (-1, broker.node_id))
        or partition.log.offline is not None
    )
    folders = len(broker.log_dirs.offline)
    good = broker.serving and not offline and not folders
    body = (
        f'{{"status": "{"ok" if good else "unavailable"}", "offline_partitions": {offline}, '
        f'"offline_log_dirs": {folders}}}\n'
    )
    return 200 if good else 503, "application/json", body
