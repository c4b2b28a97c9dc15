"""Searching a whole topic on the server, with hits and progress that arrive while it runs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.console import formatting
from millstream.console.console_config import CLIENT
from millstream.console.context import Console, console_of, draw, render
from millstream.console.message_pages import topic_of
from millstream.console.pages.messages import partition_of, shown
from millstream.console.pages.streams import event, stream
from millstream.console.search import Search, forget_old
from millstream.console.search_worker import PARTS
from millstream.console.security import Refused, form_of, session_of
from millstream.filters import BadTime, FilterError, compile_filter, parse_time

router = APIRouter()
HITS_AN_EVENT = 100
# Seconds in which hits gather, so that a page gets a few large events and not many small ones.
GATHERING = 0.15


@router.get("/topics/{name}/search")
async def search_page(request: Request, name: str) -> Response:
    return await _page(
        request, name, {"parts": ",".join(PARTS), "text": request.query_params.get("text", "")[:500]}
    )


async def _page(
    request: Request, name: str, given: dict[str, str], wrong: str = "", status: int = 200
) -> Response:
    topic = await console_of(request).pool.run(lambda cluster: topic_of(cluster, name))
    return draw(
        request,
        "search.html",
        status,
        name=name,
        tab="search",
        given=given,
        wrong=wrong,
        partitions=list(topic.partitions),
        search=None,
        messages=[],
    )


@router.post("/topics/{name}/search")
async def start_search(request: Request, name: str) -> Response:
    """A form like any other (so it needs the token), but nothing is changed by it."""
    console = console_of(request)
    form = await form_of(request)
    form["parts"] = ",".join(part for part in PARTS if form.get(f"in_{part}"))
    try:
        task = _task(request, console, name, form)
        forget_old(console.searches)
        if sum(not one.ended for one in console.searches.values()) >= console.settings.value(
            "search.concurrent"
        ):
            raise Refused(429, "As many searches run as may at a time. Cancel one, or wait.")
    except Refused as error:
        return await _page(request, name, form, error.message, error.status)
    await console.pool.run(lambda cluster: topic_of(cluster, name))
    search = Search({**task, "given": form}, session_of(request).id)
    console.searches[search.id] = search
    search.start()
    return RedirectResponse(f"/topics/{formatting.part(name)}/search/{search.id}", 303)


def _task(request: Request, console: Console, name: str, form: dict[str, str]) -> dict[str, Any]:
    text, expression = form.get("text", ""), form.get("expression", "").strip()
    if not text and not expression:
        raise Refused(400, "Write a text or an expression to look for.")
    if text and not form["parts"]:
        raise Refused(400, "Choose where to look: key, value or header.")
    if expression:
        try:
            compile_filter(expression)
        except FilterError as error:
            raise Refused(400, f"The expression makes no sense: {error.pointing()}") from None
    times: dict[str, int | None] = {"since": None, "until": None}
    for field in times:
        if form.get(field, "").strip():
            try:
                times[field] = max(0, parse_time(form[field]))
            except BadTime as error:
                raise Refused(400, f"{error}.") from None
    unmasked = session_of(request).unmasked
    return {
        "bootstrap": console.settings.bootstrap,
        "client": console.settings.with_prefix(CLIENT),
        "registry": console.settings.value("schema.registry.url"),
        "masks": "" if unmasked else console.masks.text,
        "secret": console.masks.secret.hex(),
        "topic": name,
        "partition": partition_of(form.get("partition", "")),
        "text": text,
        "parts": form["parts"].split(","),
        "any_case": bool(form.get("any_case")),
        "expression": expression,
        "max_hits": console.settings.value("search.max.hits"),
        **times,
    }


def _search(request: Request, search_id: str) -> Search:
    found: Search | None = console_of(request).searches.get(search_id)
    if found is None or found.owner != session_of(request).id:
        raise Refused(404, "This search is over and forgotten. Start it again.")
    return found


@router.get("/topics/{name}/search/{search_id}")
async def search_results(request: Request, name: str, search_id: str) -> Response:
    console = console_of(request)
    search = _search(request, search_id)
    messages = (
        await console.pool.thread(lambda: shown(request, name, list(search.hits))) if search.ended else []
    )
    return draw(
        request,
        "search.html",
        name=name,
        tab="search",
        given=search.task["given"],
        wrong="",
        partitions=sorted({int(one) for one in _partitions(console, name)}),
        search=search,
        messages=messages,
    )


def _partitions(console: Console, name: str) -> list[int]:
    topic = console.sampler.snapshot.topics.get(name)
    return list(topic.partitions) if topic is not None else []


@router.get("/searches/{search_id}/events")
async def search_events(request: Request, search_id: str) -> Response:
    search = _search(request, search_id)
    return stream(request, _events(request, search))


async def _events(request: Request, search: Search) -> AsyncIterator[str]:
    console = console_of(request)
    sent = 0
    name = search.task["topic"]
    async for _ in search.changes():
        while sent < len(search.hits):
            part = search.hits[sent : sent + HITS_AN_EVENT]
            sent += len(part)
            messages = await console.pool.thread(lambda part=part: shown(request, name, part))  # type: ignore[misc]
            rows = render(request, "message_rows.html", name=name, messages=messages)
            yield event("rows", {"html": rows, "count": len(part)})
        yield event("status", {"html": render(request, "search_status.html", search=search)})
        if not search.ended:
            await asyncio.sleep(GATHERING)
    yield event("end", {})


@router.post("/searches/{search_id}/cancel")
async def cancel(request: Request, search_id: str) -> Response:
    await form_of(request)
    search = _search(request, search_id)
    search.cancel()
    if request.headers.get("hx-request"):
        return Response(status_code=204)
    return RedirectResponse(f"/topics/{formatting.part(search.task['topic'])}/search/{search_id}", 303)
