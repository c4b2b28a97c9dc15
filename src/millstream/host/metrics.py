"""What units do, for people: a page for Prometheus, and records in `__millstream_pipelines`.

Lanes tell the planner once a second what their units have done; everything here comes from that. Spark knows
nothing of units, so its own metrics say nothing about them.

    millstream.host.metrics.listener    where the page is served, `host:port`; nowhere by default
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Protocol

from millstream.client import ClientConfig
from millstream.host.planner import FAILED, RUNNING
from millstream.host.unit import UnitState
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from millstream.spark.runner.status_records import QueryStatus, Status

log = logging.getLogger("millstream.host")

States = Mapping[str, UnitState]


class Planned(Protocol):
    """What the page needs of a planner."""

    @property
    def lane_count(self) -> int: ...

    def applications(self) -> list[str]: ...

    def states(self, application: str) -> dict[str, UnitState]: ...

    def standby_states(self, application: str) -> dict[str, UnitState]: ...


_FAMILIES: tuple[tuple[str, str, Callable[[UnitState], float]], ...] = (
    ("records_read_total", "Records that a unit has read.", lambda unit: unit.status.read),
    ("records_written_total", "Records that it has written.", lambda unit: unit.status.written),
    ("records_restored_total", "Records of changelogs.", lambda unit: unit.status.restored),
    ("commits_total", "Transactions that it has committed.", lambda unit: unit.status.commits),
    ("lag_records", "Records that it has not read yet.", lambda unit: unit.status.lag),
    (
        "commit_latency_seconds",
        "How long its last commit took.",
        lambda unit: unit.status.commit_ms / 1000,
    ),
    ("state_bytes", "The size of its stores on disk.", lambda unit: unit.status.state_bytes),
    ("running", "1 if it runs, 0 if not.", lambda unit: float(unit.state == RUNNING)),
    ("failed", "1 if it has failed for good.", lambda unit: float(unit.state == FAILED)),
)


def render(planned: Planned) -> str:
    """The page, in Prometheus' text format. Counters begin anew when a unit moves, as those of a process
    do."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    class Families(Collector):
        def collect(self) -> Iterator[Metric]:
            lanes = "Lanes that are connected to the planner."
            yield GaugeMetricFamily("millstream_host_lanes", lanes, value=planned.lane_count)
            units = [
                (application, name, state)
                for application in planned.applications()
                for of in (planned.states(application), planned.standby_states(application))
                for name, state in of.items()
            ]
            for name, text, value in _FAMILIES:
                family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                made = family(f"millstream_host_unit_{name}", text, labels=("application", "unit"))
                for application, unit, state in units:
                    made.add_metric((application, unit), value(state))
                yield made

    registry = CollectorRegistry()
    registry.register(Families())
    return generate_latest(registry).decode()


class MetricsPage:
    """`GET /metrics` at an address, until it is closed."""

    def __init__(self, listener: str, planned: Planned) -> None:
        host, colon, port = listener.rpartition(":")
        if not colon or not port.isdecimal():
            raise ValueError(f"millstream.host.metrics.listener is host:port, not {listener}")

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                body = render(planned).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="host-metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


REPORT_EVERY = 1.0


class StatusReporter:
    """Reports an application in `__millstream_pipelines` as pipelines are, each unit as one of its queries,
    and hears the stop command there. Everything in a thread of its own: a cluster that is away delays
    reports, nothing else."""

    def __init__(
        self, client: ClientConfig, name: str, states: Callable[[], States], stop: Callable[[], None]
    ) -> None:
        self._client, self._name, self._states, self._stop = client, name, states, stop
        self._run, self._started = uuid.uuid4().hex, _now()
        self._ended: tuple[str, str | None] | None = None
        self._before: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}
        self._thread = threading.Thread(target=self._report, name=f"host-status-{name}", daemon=True)
        self._thread.start()

    def end(self, state: str, error: str | None = None, timeout: float = 2.0) -> None:
        """A last report."""
        self._ended = (state, error)
        self._thread.join(timeout)

    def _report(self) -> None:
        from millstream.spark.runner.status_records import Command
        from millstream.spark.runner.status_topic import StatusTopic, create_status_topic

        while self._ended is None:
            try:
                with StatusTopic(self._client, create_status_topic(self._client)) as topic:
                    due = 0.0
                    while True:
                        ended = self._ended
                        # Not whenever something comes: its own report does.
                        if ended is not None or time.monotonic() >= due:
                            due = time.monotonic() + REPORT_EVERY
                            topic.publish(self._status(ended))
                        if ended is not None:
                            return
                        left = max(0.0, due - time.monotonic())
                        for found in topic.poll(min(1000, math.ceil(1000 * left))):
                            if isinstance(found, Command) and found.run == self._run:
                                log.warning("%s is told to stop", self._name)
                                threading.Thread(target=self._stop, daemon=True).start()
            except KafkaError as error:
                log.info("%s cannot report: %s", self._name, error)
                time.sleep(1.0)

    def _status(self, ended: tuple[str, str | None] | None) -> Status:
        from millstream.spark.runner import status_records as records

        states = self._states()
        running = bool(states) and all(unit.state == RUNNING for unit in states.values())
        errors = [f"{name}: {unit.error}" for name, unit in states.items() if unit.error]
        state = records.RUNNING if running else records.STARTING
        error = errors[0] if errors else None
        if ended is not None:
            state, error = ended[0], ended[1] or error
        return records.Status(
            self._name,
            self._run,
            state,
            app="host",
            host=socket.gethostname(),
            pid=os.getpid(),
            started=self._started,
            updated=_now(),
            last_error=error,
            queries=[self._query(name, unit) for name, unit in states.items()],
        )

    def _query(self, name: str, unit: UnitState) -> QueryStatus:
        from millstream.spark.runner.status_records import QueryStatus

        now, status = time.monotonic(), unit.status
        at, read = self._before.get(name, (now, status.read))
        if now - at >= 1.0 or name not in self._before:
            self._rates[name] = max(0, status.read - read) / (now - at) if now > at else 0.0
            self._before[name] = (now, status.read)
        return QueryStatus(
            name,
            unit.state,
            batch=status.commits,
            batch_ms=round(status.commit_ms),
            rows=status.read,
            input_rate=self._rates[name],
            process_rate=self._rates[name],
            lag=status.lag,
            state_bytes=status.state_bytes,
            updated=_now(),
        )


def _now() -> int:
    return round(time.time() * 1000)
