"""What `/metrics` shows, in Prometheus' text format, under the names that users of Kafka exporters know.

Nothing is counted twice: the numbers live where the work is done (logs, partitions, connections, the table of
APIs) and are gathered when somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.broker.metrics.coordinators import add_groups, add_transactions
from millstream.broker.metrics.logs import add_log_cleaner, add_logs
from millstream.broker.metrics.page import Page
from millstream.broker.metrics.process import add_process
from millstream.broker.metrics.replicas import add_replicas
from millstream.broker.metrics.requests import add_network, add_requests, add_topics
from millstream.broker.metrics.security import add_logins, add_security
from millstream.broker.telemetry.page import add_clients

if TYPE_CHECKING:
    from millstream.broker.server import Broker


def render(broker: Broker) -> str:
    page = Page()
    add_topics(page, broker)
    add_requests(page, broker)
    add_replicas(page, broker)
    add_logs(page, broker)
    add_log_cleaner(page, broker)
    add_network(page, broker)
    add_groups(page, broker)
    add_transactions(page, broker)
    add_security(page, broker)
    add_logins(page, broker)
    if broker.telemetry is not None:
        add_clients(page, broker.telemetry)
    add_process(page, broker)
    return page.text()
