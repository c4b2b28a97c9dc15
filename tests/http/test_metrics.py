"""The metrics page that all HTTP services share."""

import asyncio
from typing import Any

import pytest
from prometheus_client.core import Metric

from millstream.http.metrics import (
    BUCKETS,
    MEDIA_TYPE,
    ServiceMetrics,
    count_requests,
    gauges,
    merged,
    with_metrics_page,
)

from .metrics_page import samples


def own() -> list[Metric]:
    return [gauges("things", "Things.", ("name",), [(('a "b"\\\n',), 1), (("c",), 2)])]


def test_a_histogram_adds_up() -> None:
    metrics = ServiceMetrics("toy", own)
    for seconds in (0.001, 0.005, 0.006, 99.0):
        metrics.count("GET", "/a/{b}", 200, seconds)
    metrics.count("GET", "/a/{b}", 404, 0.2)
    found = samples(metrics.render())
    where = 'method="GET",route="/a/{b}",service="toy"'
    assert found[f'millstream_http_requests_total{{{where},status="200"}}'] == 4
    assert found[f'millstream_http_requests_total{{{where},status="404"}}'] == 1
    name = "millstream_http_request_duration_seconds"
    buckets = [found[f'{name}_bucket{{le="{bound}",{where}}}'] for bound in (*BUCKETS, "+Inf")]
    assert buckets == [2, 3, 3, 4, 4, 4, 5]
    assert found[f"{name}_count{{{where}}}"] == 5
    assert found[f"{name}_sum{{{where}}}"] == pytest.approx(99.212)
    assert not any("_created" in sample for sample in found)
    assert found["process_resident_memory_bytes"] > 1 << 20


def test_labels_are_escaped() -> None:
    assert 'things{name="a \\"b\\"\\\\\\n"} 1.0' in ServiceMetrics("toy", own).render()


def test_pages_of_several_services_are_one() -> None:
    one, two = ServiceMetrics("one", own), ServiceMetrics("two", own)
    one.count("GET", "/", 200, 0.1)
    two.count("GET", "/", 200, 0.1)
    text = merged({"one": one.render(), "two": two.render()})
    assert text.count("# TYPE process_cpu_seconds_total counter") == 1
    found = samples(text)
    assert found['things{name="c",service="two"}'] == 2
    assert found['millstream_http_requests_total{method="GET",route="/",service="one",status="200"}'] == 1
    foreign = '# written by hand\n# TYPE a gauge\na{} 1 1700000000\na{b="c d"} 2\n# EOF\n'
    assert merged({"x": foreign}) == '# TYPE a gauge\na{service="x"} 1 1700000000\na{service="x",b="c d"} 2\n'
    families = [line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)


def ask(app: Any, method: str, path: str) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": []}
    asyncio.run(app(scope, receive, send))
    return sent


def test_the_page_is_beside_the_application() -> None:
    class Route:
        path_format = "/things/{name}"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/things/x":
            scope["route"] = Route()
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    metrics = ServiceMetrics("toy", own)
    whole = count_requests(with_metrics_page(app, metrics), metrics)
    for method, path in (("GET", "/things/x"), ("BREW", "/pot"), ("POST", "/metrics")):
        assert ask(whole, method, path)[0]["status"] == 418
    start, body = ask(whole, "GET", "/metrics")
    assert start["status"] == 200
    assert (b"content-type", MEDIA_TYPE.encode()) in start["headers"]
    found = samples(body["body"].decode())
    name = "millstream_http_requests_total"
    assert found[f'{name}{{method="GET",route="/things/{{name}}",service="toy",status="418"}}'] == 1
    assert found[f'{name}{{method="other",route="other",service="toy",status="418"}}'] == 1
    assert ask(whole, "HEAD", "/metrics")[1]["body"] == b""
