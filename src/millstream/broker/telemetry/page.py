"""What clients say of themselves, on the page of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.broker.metrics.page import Page
    from millstream.broker.telemetry.manager import Telemetry


def add_clients(page: Page, telemetry: Telemetry) -> None:
    instances, series = telemetry.instances, telemetry.series
    for name, metric_type, help, value in (
        ("subscriptions", "gauge", "Subscriptions to metrics of clients.", len(instances.subscriptions)),
        ("instances", "gauge", "Clients that asked which metrics to push.", len(instances.known)),
        ("series", "gauge", "Series that clients pushed.", series.count),
        ("pushes_total", "counter", "Pushes that were taken.", series.pushes),
        ("unreadable_pushes_total", "counter", "Pushes that could not be read.", series.refused),
        ("throttled_total", "counter", "Requests that came before their time.", instances.throttled),
        (
            "unknown_subscriptions_total",
            "counter",
            "Pushes for a subscription that has changed.",
            instances.unknown_subscriptions,
        ),
        ("dropped_values_total", "counter", "Values beyond the limits.", series.dropped),
    ):
        page.one(f"millstream_client_metrics_{name}", metric_type, help, value)
    page.add(
        "kafka_client_info",
        "gauge",
        "Clients that push metrics, and who they are.",
        [(client.info, 1) for client in series.clients.values()],
    )
    for counters in (False, True):
        for name, samples in series.by_name(counters):
            page.add(name, "counter" if counters else "gauge", "Pushed by clients.", samples)
