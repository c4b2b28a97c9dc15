"""`/metrics` of an HTTP service, in Prometheus' text format: its requests, its process, and what it adds of
its own.

Requests are counted outside the application, so refused ones count as well, and under their route's template,
so that names of topics and subjects neither show nor pile up. The page itself is served out there, too: it is
no part of the API and its OpenAPI page.
"""

import os
import resource
import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATH = "/metrics"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})

# A *_created gauge for each counter would double the page; Prometheus' text format has no use for them.
disable_created_metrics()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """The metrics of one service. `collect` makes the families that are its own, at each scrape."""

    def __init__(self, service: str, collect: Callable[[], Iterable[Metric]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Families(collect))
        self._service = service
        self._requests = Counter(
            "millstream_http_requests_total",
            "Requests by route and status.",
            ("service", "method", "route", "status"),
            registry=self._registry,
        )
        self._durations = Histogram(
            "millstream_http_request_duration_seconds",
            "How long requests took, by route.",
            ("service", "method", "route"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        started = time.time()
        self._registry.register(_Families(lambda: _process(started)))

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(self._service, method, route, status).inc()
        self._durations.labels(self._service, method, route).observe(seconds)

    def render(self) -> str:
        return generate_latest(self._registry).decode()


def render(families: Iterable[Metric]) -> str:
    """Families that belong to no service."""
    registry = CollectorRegistry()
    registry.register(_Families(lambda: families))
    return generate_latest(registry).decode()


class _Families(Collector):
    """Families that are computed when the page is requested."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value=value)


def counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(name, documentation, value=value)


def gauges(
    name: str,
    documentation: str,
    labels: tuple[str, ...],
    samples: Iterable[tuple[tuple[object, ...], float]],
) -> Metric:
    """A gauge with labels: each sample is the values of its labels, and its own."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, value in samples:
        family.add_metric([str(text) for text in values], value)
    return family


def count_requests(app: ASGIApp, metrics: ServiceMetrics) -> ASGIApp:
    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def send_watched(event: Message) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)

        method, path = scope["method"], scope["path"]
        try:
            await app(scope, receive, send_watched)
        finally:
            route = PATH if path == PATH else getattr(scope.get("route"), "path_format", "other")
            known_method = method if method in METHODS else "other"
            metrics.count(known_method, route, status, time.perf_counter() - started)

    return count


def with_metrics_page(app: ASGIApp, metrics: ServiceMetrics) -> ASGIApp:
    async def serve_page(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] not in ("GET", "HEAD"):
            await app(scope, receive, send)
            return
        body = metrics.render().encode()
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})

    return serve_page


def merged(pages: dict[str, str]) -> str:
    """The pages of several services as one: a family begins once, and each sample names its service.

    Samples pass through as text. prometheus_client's parser would rename counters that do not end in _total,
    and take seconds for the page of a large cluster.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for service, text in pages.items():
        family = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                _, keyword, family, *_ = line.split(" ", 3)
                head = heads.setdefault(family, [])
                if not any(known.split(" ", 2)[1] == keyword for known in head):
                    head.append(line)
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(_labelled(line, service))
    return "".join("\n".join((*head, *samples.get(family, ()))) + "\n" for family, head in heads.items())


def _labelled(line: str, service: str) -> str:
    label = f'service="{service}"'
    name, brace, labels = line.partition("{")
    if not brace:
        name, _, value = line.partition(" ")
        return f"{name}{{{label}}} {value}"
    if labels.startswith('service="') or ',service="' in labels:
        return line
    return f"{name}{{{label}{'' if labels.startswith('}') else ','}{labels}"


def _process(started: float) -> Iterable[Metric]:
    """As prometheus_client's ProcessCollector has it, but also where there is no /proc."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = round(usage.ru_utime + usage.ru_stime, 3)
    yield counter("process_cpu_seconds_total", "CPU time.", cpu)
    yield gauge("process_resident_memory_bytes", "Resident memory.", _resident_bytes(usage.ru_maxrss))
    yield gauge("process_start_time_seconds", "Start of the service.", round(started, 3))


def _resident_bytes(peak_kilobytes: int) -> int:
    """Falls back to the peak where the system does not say what is resident now."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_kilobytes * 1024
