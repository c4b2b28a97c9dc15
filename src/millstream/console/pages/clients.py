"""Consumers that push metrics: which is slow, and why."""

from fastapi import APIRouter, Request, Response

from millstream.console.client_telemetry import consumers
from millstream.console.context import get_console, render_page
from millstream.console.pages.monitoring import service_pages

router = APIRouter()


@router.get("/clients")
async def clients(request: Request, q: str = "") -> Response:
    console = get_console(request)
    pages = [text for text, _, _ in (await service_pages(console)).values()]
    lags = {group: position.lag for group, position in console.sampler.positions.items()}
    found = consumers(pages, lags)
    needle = q.strip().lower()
    shown = [
        one
        for one in found
        if needle in f"{one.client_id} {one.group} {one.principal} {one.verdict[1]}".lower()
    ]
    part = request.headers.get("hx-target") == "consumers"
    return render_page(
        request,
        "clients_rows.html" if part else "clients.html",
        consumers=shown[:500],
        count=len(shown),
        all_count=len(found),
        asked=any("\nmillstream_client_metrics_subscriptions " in f"\n{text}" for text in pages),
        q=q,
    )
