"""Searching a whole topic on the server, with hits and progress that arrive while it runs."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.console import formatting
from millstream.console.console_config import CLIENT
from millstream.console.context import Console, get_console, render_page, render_template
from millstream.console.message_pages import get_topic
from millstream.console.pages.messages import partition_of, render_messages
from millstream.console.pages.server_sent_events import event, event_stream
from millstream.console.search import Search, drop_old_searches
from millstream.console.search_worker import PARTS
from millstream.console.security import RequestRefused, get_session, read_form
from millstream.filters import BadTime, FilterError, compile_filter, parse_time

router = APIRouter()
HITS_AN_EVENT = 100
# Seconds in which hits gather, so that a page gets a few large events and not many small ones.
EVENT_INTERVAL = 0.15


@router.get("/topics/{name}/search")
async def search_page(request: Request, name: str) -> Response:
    return await _page(
        request, name, {"parts": ",".join(PARTS), "text": request.query_params.get("text", "")[:500]}
    )


async def _page(
    request: Request, name: str, given: dict[str, str], wrong: str = "", status: int = 200
) -> Response:
    topic = await get_console(request).pool.run(lambda cluster: get_topic(cluster, name))
    return render_page(
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
    console = get_console(request)
    form = await read_form(request)
    form["parts"] = ",".join(chunk for chunk in PARTS if form.get(f"in_{chunk}"))
    try:
        task = _task(request, console, name, form)
        drop_old_searches(console.searches)
        if sum(not one.ended for one in console.searches.values()) >= console.settings.value(
            "search.concurrent"
        ):
            raise RequestRefused(429, "As many searches run as may at a time. Cancel one, or wait.")
    except RequestRefused as error:
        return await _page(request, name, form, error.message, error.status)
    await console.pool.run(lambda cluster: get_topic(cluster, name))
    search = Search({**task, "given": form}, get_session(request).id)
    console.searches[search.id] = search
    search.start()
    return RedirectResponse(f"/topics/{formatting.path_segment(name)}/search/{search.id}", 303)


def _task(request: Request, console: Console, name: str, form: dict[str, str]) -> dict[str, Any]:
    text, expression = form.get("text", ""), form.get("expression", "").strip()
    if not text and not expression:
        raise RequestRefused(400, "Write a text or an expression to look for.")
    if text and not form["parts"]:
        raise RequestRefused(400, "Choose where to look: key, value or header.")
    if expression:
        try:
            compile_filter(expression)
        except FilterError as error:
            raise RequestRefused(400, f"The expression makes no sense: {error.pointing()}") from None
    times: dict[str, int | None] = {"since": None, "until": None}
    for field in times:
        if form.get(field, "").strip():
            try:
                times[field] = max(0, parse_time(form[field]))
            except BadTime as error:
                raise RequestRefused(400, f"{error}.") from None
    unmasked = get_session(request).unmasked
    return {
        "bootstrap": console.settings.bootstrap,
        "client": console.settings.with_prefix(CLIENT),
        "registry": console.settings.registry_url,
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
    found: Search | None = get_console(request).searches.get(search_id)
    if found is None or found.owner != get_session(request).id:
        raise RequestRefused(404, "This search is over and forgotten. Start it again.")
    return found


@router.get("/topics/{name}/search/{search_id}")
async def search_results(request: Request, name: str, search_id: str) -> Response:
    console = get_console(request)
    search = _search(request, search_id)
    messages = (
        await console.pool.run_blocking(lambda: render_messages(request, name, list(search.hits)))
        if search.ended
        else []
    )
    return render_page(
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
    return event_stream(request, _events(request, search))


async def _events(request: Request, search: Search) -> AsyncIterator[str]:
    console = get_console(request)
    sent = 0
    name = search.task["topic"]
    async for _ in search.changes():
        while sent < len(search.hits):
            chunk = search.hits[sent : sent + HITS_AN_EVENT]
            sent += len(chunk)
            messages = await console.pool.run_blocking(partial(render_messages, request, name, chunk))
            rows = render_template(request, "message_rows.html", name=name, messages=messages)
            yield event("rows", {"html": rows, "count": len(chunk)})
        yield event("status", {"html": render_template(request, "search_status.html", search=search)})
        if not search.ended:
            await asyncio.sleep(EVENT_INTERVAL)
    yield event("end", {})


@router.post("/searches/{search_id}/cancel")
async def cancel(request: Request, search_id: str) -> Response:
    await read_form(request)
    search = _search(request, search_id)
    search.cancel()
    if request.headers.get("hx-request"):
        return Response(status_code=204)
    return RedirectResponse(
        f"/topics/{formatting.path_segment(search.task['topic'])}/search/{search_id}", 303
    )
