"""For machines: health and metrics; and a page with the metrics of all services."""

import asyncio
import ssl
import time
from functools import lru_cache
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse, PlainTextResponse

from millstream import __version__
from millstream.console.context import Console, get_console, render_page
from millstream.http.metrics import MEDIA_TYPE, gauges, merged, render
from millstream.serdes import RegistryRefused, RegistryUnreachable
from millstream.settings.redaction import hide_url_passwords

router = APIRouter()
STALE = 60.0
LARGEST = 8 << 20


@router.get("/health/live")
async def alive() -> Response:
    return JSONResponse({"status": "up"})


@router.get("/health")
@router.get("/health/ready")
async def health(request: Request) -> Response:
    """200 while the cluster can be looked at, 503 else. The registry is reported and does not decide."""
    console = get_console(request)
    if not console.sampler.rounds:
        await console.sampler.next_round(2.0)
    snapshot, error = console.sampler.snapshot, console.sampler.error
    up = error is None and snapshot.taken > 0
    body: dict[str, Any] = {
        "status": "up" if up else "down",
        "version": __version__,
        "cluster": {
            "status": "up" if up else "down",
            "id": snapshot.cluster_id,
            "brokers": len(snapshot.nodes),
            "error": error,
            "seen": round(snapshot.taken, 3) or None,
        },
    }
    if console.registry is not None:
        body["registry"] = await _registry(console)
    return JSONResponse(body, 200 if up else 503)


async def _registry(console: Console) -> dict[str, Any]:
    try:
        assert console.registry is not None
        await console.pool.run_blocking(console.registry.ping)
        return {"status": "up"}
    except (RegistryUnreachable, RegistryRefused) as error:
        return {"status": "down", "error": str(error)}


@router.get("/metrics/all")
async def all_metrics(request: Request) -> Response:
    """Those of all services on one page, each sample with its service: one address to scrape. One that is
    away is left out and has `millstream_service_up` 0."""
    pages = await service_pages(get_console(request))
    up = gauges(
        "millstream_service_up",
        "1 if the service answered with its metrics.",
        ("service",),
        [((name,), int(not error)) for name, (_, error, _) in pages.items()],
    )
    text = render([up]) + merged({name: text for name, (text, _, _) in pages.items()})
    return PlainTextResponse(text, media_type=MEDIA_TYPE)


async def service_pages(console: Console) -> dict[str, tuple[str, str, float]]:
    """Text, error, seconds of each service. Only addresses that the settings name are asked."""
    urls = console.settings.metrics_urls
    trusted = _trusted(console.settings.value("metrics.ssl.truststore.location"))
    found = await asyncio.gather(*(_ask(url, trusted) for url in urls.values()))
    return {"console": (console.metrics.render(), "", 0.0), **dict(zip(urls, found, strict=True))}


@router.get("/services")
async def services(request: Request, service: str = "console", q: str = "") -> Response:
    """What each service says about itself."""
    console = get_console(request)
    urls = console.settings.metrics_urls
    pages = await service_pages(console)
    rows = [
        {
            "name": name,
            "url": hide_url_passwords(urls.get(name, "/metrics")),
            "error": error,
            "took": took,
            "samples": sum(not line.startswith("#") and bool(line) for line in text.splitlines()),
            "memory": _value(text, "process_resident_memory_bytes"),
            "cpu": _value(text, "process_cpu_seconds_total"),
            "started": _value(text, "process_start_time_seconds"),
        }
        for name, (text, error, took) in pages.items()
    ]
    chosen = service if service in pages else "console"
    lines = [line for line in pages[chosen][0].splitlines() if line and not line.startswith("#")]
    needle = q.strip().lower()
    matching = [line.rpartition(" ") for line in lines if needle in line.lower()]
    part = request.headers.get("hx-target") == "samples"
    return render_page(
        request,
        "services_samples.html" if part else "services.html",
        services=rows,
        chosen=chosen,
        q=q,
        samples=[(name, _readable(value)) for name, _, value in matching[:300]],
        count=len(matching),
        registry=await _registry(console)
        if console.registry and "registry" not in pages and not part
        else None,
    )


@lru_cache(maxsize=1)
def _trusted(authority: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority)


async def _ask(url: str, trusted: ssl.SSLContext) -> tuple[str, str, float]:
    import httpx

    began = time.perf_counter()
    try:
        async with httpx.AsyncClient(timeout=3.0, verify=trusted) as client:
            answer = await client.get(url)
        answer.raise_for_status()
        return answer.text[:LARGEST], "", time.perf_counter() - began
    except httpx.HTTPError as error:
        return "", hide_url_passwords(str(error)) or type(error).__name__, time.perf_counter() - began


def _readable(value: str) -> str:
    """Without the exponent that Prometheus' format has from a million on."""
    try:
        return f"{float(value):.15g}"
    except ValueError:
        return value


def _value(text: str, *names: str) -> float | None:
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name in names:
            try:
                return float(value)
            except ValueError:
                return None
    return None
