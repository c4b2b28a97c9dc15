"""What connectors and tasks do, for Prometheus: the names that JMX exporters give Kafka Connect's metrics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from millstream.connect.api import SinkConnector
from millstream.connect.config.config_def import ConfigError
from millstream.connect.herder import Herder

_STATES = ("RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING")


def collect(herder: Herder) -> Iterable[Metric]:
    labels = ("connector", "task")
    read = CounterMetricFamily(
        "kafka_connect_task_records_read", "Records read by tasks here.", labels=labels
    )
    written = CounterMetricFamily(
        "kafka_connect_task_records_written", "Records that they have passed on.", labels=labels
    )
    commits = CounterMetricFamily("kafka_connect_task_commits", "Commits of tasks here.", labels=labels)
    lag = GaugeMetricFamily("kafka_connect_sink_task_lag", "Records that a sink is behind.", labels=labels)
    for name, tasks in herder.worker.metrics().items():
        for number, status in tasks.items():
            values = (name, str(number))
            read.add_metric(values, status.read)
            written.add_metric(values, status.written)
            commits.add_metric(values, status.commits)
            if _is_sink(herder, name):
                lag.add_metric(values, status.lag)
    connectors = GaugeMetricFamily("kafka_connect_connectors", "Connectors by state.", labels=("state",))
    task_states = GaugeMetricFamily("kafka_connect_tasks", "Tasks by state.", labels=("state",))
    for state in _STATES:
        held = list(herder.statuses.connectors.values())
        connectors.add_metric((state,), sum(one.state == state for one in held))
        all_tasks = [one for tasks in list(herder.statuses.tasks.values()) for one in list(tasks.values())]
        task_states.add_metric((state,), sum(one.state == state for one in all_tasks))
    return [read, written, commits, lag, connectors, task_states]


def _is_sink(herder: Herder, name: str) -> bool:
    try:
        return issubclass(herder.class_of(herder.configs.connectors.get(name, {})), SinkConnector)
    except ConfigError:
        return False
