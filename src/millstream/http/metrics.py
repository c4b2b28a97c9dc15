"""`/metrics` of an HTTP service, in Prometheus' text format: its requests, its process, and what it adds of its own.

Requests are counted outside of the application, so refused ones count as well, and under their route's template, so that
names of topics and subjects neither show nor pile up. The page itself is answered out there, too: it is no part of the API
and its OpenAPI page.
"""

import bisect
import os
import resource
import time
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATH = "/metrics"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)  # seconds
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
Sample = tuple[dict[str, str | int], float | int]


class Page:
    """The text, family by family."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def begin(self, name: str, kind: str, help: str) -> None:
        self._lines += (f"# HELP {name} {help}", f"# TYPE {name} {kind}")

    def sample(self, name: str, labels: dict[str, str | int], value: float | int) -> None:
        inner = ",".join(f'{key}="{_escaped(str(text))}"' for key, text in labels.items())
        self._lines.append(f"{name}{{{inner}}} {value}" if inner else f"{name} {value}")

    def add(self, name: str, kind: str, help: str, samples: Iterable[Sample]) -> None:
        self.begin(name, kind, help)
        for labels, value in samples:
            self.sample(name, labels, value)

    def one(self, name: str, kind: str, help: str, value: float | int) -> None:
        self.add(name, kind, help, [({}, value)])

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


class Metrics:
    """What one service has to tell. `own` adds its families to a page."""

    def __init__(self, service: str, own: Callable[[Page], None]) -> None:
        self._service = service
        self._own = own
        self._started = time.time()
        self._counts: dict[tuple[str, str, int], int] = {}
        self._times: dict[tuple[str, str], list[float]] = {}  # requests by duration, then all their seconds

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        times = self._times.get(key[:2])
        if times is None:
            times = self._times[key[:2]] = [0.0] * (len(BOUNDS) + 2)
        times[bisect.bisect_left(BOUNDS, seconds)] += 1
        times[-1] += seconds

    def render(self) -> str:
        page = Page()
        self._own(page)
        self._requests(page)
        _process(page, self._started)
        return page.text()

    def _requests(self, page: Page) -> None:
        page.begin("millstream_http_requests_total", "counter", "Requests by route and status.")
        for (method, route, status), count in list(self._counts.items()):
            labels: dict[str, str | int] = {"service": self._service, "method": method, "route": route}
            page.sample("millstream_http_requests_total", {**labels, "status": status}, count)
        page.begin(
            "millstream_http_request_duration_seconds", "histogram", "How long requests took, by route."
        )
        for (method, route), times in list(self._times.items()):
            labels = {"service": self._service, "method": method, "route": route}
            so_far = 0
            for bound, there in zip((*BOUNDS, "+Inf"), times[:-1], strict=True):
                so_far += int(there)
                name = "millstream_http_request_duration_seconds_bucket"
                page.sample(name, {**labels, "le": str(bound)}, so_far)
            page.sample("millstream_http_request_duration_seconds_sum", labels, round(times[-1], 6))
            page.sample("millstream_http_request_duration_seconds_count", labels, so_far)


def counted(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """The application, with its requests counted."""

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method, path = scope["method"], scope["path"]
        try:
            await app(scope, receive, seen)
        finally:
            route = PATH if path == PATH else getattr(scope.get("route"), "path_format", "other")
            metrics.count(
                method if method in METHODS else "other", route, status, time.perf_counter() - began
            )

    return around


def with_page(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """The application, with the page beside it."""

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] not in ("GET", "HEAD"):
            await app(scope, receive, send)
            return
        body = metrics.render().encode()
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})

    return around


def merged(pages: dict[str, str]) -> str:
    """The pages of several services as one: a family begins once, and each sample says whose it is."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for service, text in pages.items():
        family = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                _, word, family, *_ = line.split(" ", 3)
                head = heads.setdefault(family, [])
                if not any(one.split(" ", 2)[1] == word for one in head):
                    head.append(line)
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(_labelled(line, service))
    return "".join("\n".join((*head, *samples.get(family, ()))) + "\n" for family, head in heads.items())


def _labelled(line: str, service: str) -> str:
    label = f'service="{_escaped(service)}"'
    name, brace, labels = line.partition("{")
    if not brace:
        name, _, value = line.partition(" ")
        return f"{name}{{{label}}} {value}"
    if labels.startswith('service="') or ',service="' in labels:
        return line
    return f"{name}{{{label}{'' if labels.startswith('}') else ','}{labels}"


def _process(page: Page, started: float) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = round(usage.ru_utime + usage.ru_stime, 3)
    page.one("process_cpu_seconds_total", "counter", "CPU time.", cpu)
    page.one("process_resident_memory_bytes", "gauge", "Resident memory.", _resident(usage.ru_maxrss))
    page.one("process_start_time_seconds", "gauge", "Start of the service.", round(started, 3))


def _resident(most_kilobytes: int) -> int:
    """Where the system does not tell, the most that it ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return most_kilobytes * 1024


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
