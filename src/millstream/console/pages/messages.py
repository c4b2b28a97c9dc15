"""Messages of a topic: pages of them, one alone, the live tail, export, produce, and sending again."""

import asyncio
import csv
import io
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import PlainTextResponse, RedirectResponse

from millstream.client import Cluster, Producer
from millstream.console import formatting, message_pages
from millstream.console.context import Console, flash, get_console, render_page, render_template
from millstream.console.pages.server_sent_events import event, event_stream
from millstream.console.record_display import Message
from millstream.console.security import RequestRefused, get_session, read_change_form
from millstream.filters import BadTime, parse_time
from millstream.serdes import Encoder, RegistryRefused, RegistryUnreachable, SerdeError
from millstream.serdes.json_text import check_json, laid_out, minified
from millstream.wire.errors import KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record

router = APIRouter()
LIMITS = (25, 50, 100, 250)
MAX_EXPORTED = 10_000


def render_messages(
    request: Request, topic: str, found: list[message_pages.PartitionRecord]
) -> list[Message]:
    """Decoded and masked for whoever asks. Blocks: the registry may be asked."""
    renderer = get_console(request).renderer
    masks = renderer.masks(topic, get_session(request).unmasked)
    return [renderer.render(topic, message.partition, message.record, masks) for message in found]


def partition_of(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _positions(text: str) -> message_pages.Positions:
    """`0:15,1:22`; what is not of that form is left out."""
    found = {}
    for item in text.split(","):
        partition, _, offset = item.partition(":")
        if partition.isdecimal() and offset.isdecimal() and len(offset) < 19 and len(partition) < 10:
            found[int(partition)] = int(offset)
    return found


def _packed(positions: message_pages.Positions) -> str:
    return ",".join(f"{index}:{offset}" for index, offset in sorted(positions.items()))


def _read(cluster: Cluster, topic: str, query: dict[str, str], limit: int) -> message_pages.MessagePage:
    partition, committed = partition_of(query["partition"]), bool(query["committed"])
    if query["after"]:
        return message_pages.page_after(
            cluster, topic, _positions(query["after"]), limit, partition=partition, committed=committed
        )
    if query["before"]:
        return message_pages.page_before(
            cluster, topic, _positions(query["before"]), limit, partition=partition, committed=committed
        )
    if query["seek"] == "start":
        return message_pages.page_after(cluster, topic, None, limit, partition=partition, committed=committed)
    if query["seek"] == "offset":
        text = query["at"].strip().replace(" ", "").replace("\u202f", "")
        if not text.isdecimal() or len(text) > 18:
            raise RequestRefused(400, f"'{query['at'][:40]}' is not an offset: use a whole number.")
        ends = message_pages.log_bounds(cluster, topic, partition).ends
        start = {index: min(int(text), end) for index, end in ends.items()}
        return message_pages.page_after(
            cluster, topic, start, limit, partition=partition, committed=committed
        )
    if query["seek"] == "time":
        try:
            moment = parse_time(query["at"])
        except BadTime as error:
            raise RequestRefused(400, f"{error}.") from None
        start = message_pages.offsets_at_time(cluster, topic, partition, max(0, moment))
        return message_pages.page_after(
            cluster, topic, start, limit, partition=partition, committed=committed
        )
    return message_pages.page_before(cluster, topic, None, limit, partition=partition, committed=committed)


def _page_query(request: Request) -> dict[str, str]:
    names = ("seek", "at", "partition", "after", "before", "limit", "committed")
    return {name: request.query_params.get(name, "")[:2000] for name in names}


def _limit(query: dict[str, str], maximum: int = LIMITS[-1]) -> int:
    return (
        min(int(query["limit"]), maximum)
        if query["limit"].isdecimal() and 0 < len(query["limit"]) < 6 and int(query["limit"])
        else 50
    )


@router.get("/topics/{name}/messages")
async def message_page(request: Request, name: str) -> Response:
    console = get_console(request)
    query = _page_query(request)
    wrong, status = "", 200

    def read(cluster: Cluster) -> tuple[message_pages.MessagePage, list[Message], list[int]]:
        page = _read(cluster, name, query, _limit(query))
        return page, render_messages(request, name, page.messages), list(cluster.topics[name].partitions)

    try:
        page, messages, partitions = await console.pool.run(read)
    except RequestRefused as error:
        wrong, status = error.message, error.status
        page, messages = message_pages.MessagePage([], {}, {}, False, False), []
        partitions = await console.pool.run(
            lambda cluster: list(message_pages.get_topic(cluster, name).partitions)
        )
    kept = {"partition": query["partition"], "limit": query["limit"], "committed": query["committed"]}
    base = f"/topics/{formatting.path_segment(name)}/messages?"
    return render_page(
        request,
        "messages.html",
        status,
        name=name,
        tab="messages",
        query=query,
        messages=messages,
        partitions=partitions,
        page=page,
        notes=list(dict.fromkeys(page.notes)),
        limits=LIMITS,
        wrong=wrong,
        older=base + formatting.query(before=_packed(page.older), **kept) if page.has_older else "",
        newer=base + formatting.query(after=_packed(page.newer), **kept) if page.has_newer else "",
        export=formatting.query(**{name: value for name, value in query.items() if value}),
    )


@router.get("/topics/{name}/export")
async def export(request: Request, name: str, form: str = "jsonl") -> Response:
    """What the page shows, or up to 10,000 messages from there on, as a file; masked like the page."""
    query = _page_query(request)

    def read(cluster: Cluster) -> list[Message]:
        found: list[message_pages.PartitionRecord] = []
        wanted = _limit(query, MAX_EXPORTED)
        page = _read(cluster, name, query, min(wanted, 1000))
        found += page.messages
        onward = bool(query["after"]) or query["seek"] in ("start", "offset", "time")
        partition, committed = partition_of(query["partition"]), bool(query["committed"])
        while len(found) < wanted and page.messages and (page.has_newer if onward else page.has_older):
            more = min(1000, wanted - len(found))
            if onward:
                page = message_pages.page_after(
                    cluster, name, page.newer, more, partition=partition, committed=committed
                )
            else:
                page = message_pages.page_before(
                    cluster, name, page.older, more, partition=partition, committed=committed
                )
            found += page.messages
        return render_messages(request, name, found)

    messages = await get_console(request).pool.run(read)
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(["partition", "offset", "timestamp", "key", "value", "headers"])
        for message in messages:
            headers = json.dumps(dict(message.headers), ensure_ascii=False)
            writer.writerow(
                [
                    message.partition,
                    message.offset,
                    message.utc_timestamp,
                    _cell(message.exported_key),
                    _cell(message.exported_value),
                    headers,
                ]
            )
        return _download(out.getvalue(), f"{name}.csv", "text/csv; charset=utf-8")
    lines = "".join(message.export() + "\n" for message in messages)
    return _download(lines, f"{name}.jsonl", "application/x-ndjson; charset=utf-8")


def _cell(text: str | None) -> str:
    """Spreadsheets run what begins like a formula."""
    return "" if text is None else "'" + text if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _download(content: str | bytes, filename: str, kind: str) -> Response:
    return Response(
        content, media_type=kind, headers={"content-disposition": f'attachment; filename="{filename}"'}
    )


@router.get("/topics/{name}/messages/{partition}/{offset}")
async def one_message(request: Request, name: str, partition: int, offset: int) -> Response:
    def read(cluster: Cluster) -> Message:
        record = message_pages.record_at(cluster, name, partition, offset)
        return render_messages(request, name, [message_pages.PartitionRecord(partition, record)])[0]

    message = await get_console(request).pool.run(read)
    return render_page(request, "message.html", name=name, tab="messages", message=message)


@router.get("/topics/{name}/messages/{partition}/{offset}/raw")
async def raw(request: Request, name: str, partition: int, offset: int, part: str = "value") -> Response:
    """The bytes of a key or a value. Not where a rule hides any of it."""
    console = get_console(request)
    masks = console.renderer.masks(name, get_session(request).unmasked)
    if masks.key if part == "key" else masks.value:
        raise RequestRefused(403, "A masking rule applies here, so there is no download.")
    record = await console.pool.run(lambda cluster: message_pages.record_at(cluster, name, partition, offset))
    data = record.key if part == "key" else record.value
    return _download(
        data or b"",
        f"{name}-{partition}-{offset}.{'key' if part == 'key' else 'value'}",
        "application/octet-stream",
    )


@router.get("/topics/{name}/tail")
async def tail(request: Request, name: str, partition: str = "") -> Response:
    console = get_console(request)
    if console.tails >= console.settings.value("tail.concurrent"):
        return PlainTextResponse("Too many live tails are open.\n", 429)
    return event_stream(request, _tail(request, console, name, partition_of(partition)))


async def _tail(request: Request, console: Console, name: str, partition: int | None) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[str, Any, int]] = asyncio.Queue(50)
    stopped = False

    def put(kind: str, content: Any, skipped: int = 0) -> None:
        async def wait() -> None:
            await queue.put((kind, content, skipped))

        waiting = asyncio.run_coroutine_threadsafe(wait(), loop)
        try:
            waiting.result(10)
        except (TimeoutError, RuntimeError):
            waiting.cancel()  # nobody reads any more

    def deliver(found: list[message_pages.PartitionRecord], skipped: int) -> None:
        put("rows", render_messages(request, name, found), skipped)

    def follow() -> None:
        cluster = Cluster(console.settings.client("millstream-console-tail"))
        try:
            message_pages.tail(
                cluster,
                name,
                partition,
                deliver,
                lambda: stopped or console.ending.is_set(),
                lambda: put("open", None),
            )
        except KafkaError as error:
            put("problem", error.message)
        finally:
            cluster.close()

    console.tails += 1
    threading.Thread(target=follow, name="console-tail", daemon=True).start()
    try:
        while True:
            kind, content, skipped = await queue.get()
            if kind == "open":
                yield event("started", "{}")
                continue
            if kind == "problem":
                yield event("problem", {"text": f"The live tail ended: {content}."})
                return
            rows = render_template(request, "message_rows.html", name=name, messages=list(reversed(content)))
            yield event("rows", {"html": rows, "skipped": skipped, "count": len(content)})
    finally:
        stopped = True
        console.tails -= 1


@router.get("/topics/{name}/produce")
async def produce_page(request: Request, name: str) -> Response:
    given = {"key": "", "value": "", "headers": "", "partition": "", "form": "text"}
    copied = request.query_params.get("copy", "").partition("-")
    if copied[0].isdecimal() and copied[2].isdecimal() and len(copied[2]) < 19:
        given.update(await _copied(request, name, int(copied[0]), int(copied[2])))
    return await _produce_page(request, name, given)


async def _copied(request: Request, name: str, partition: int, offset: int) -> dict[str, str]:
    def read(cluster: Cluster) -> dict[str, str]:
        record = message_pages.record_at(cluster, name, partition, offset)
        message = render_messages(request, name, [message_pages.PartitionRecord(partition, record)])[0]
        schema = message.value.form in ("avro", "json", "protobuf") and message.value.schema_id
        value = message.value.text
        if schema and record.value is not None and not message.value.masked:
            value = get_console(request).renderer.text_to_edit(record.value, tuple(record.headers))
        elif message.value.cut or message.key.cut:
            raise RequestRefused(413, "The message is too long to be edited here: it is not shown in full.")
        elif message.value.json:
            value = laid_out(message.value.json, 10 * len(message.value.text))
        return {
            "key": message.key.text,
            "value": value,
            "headers": "\n".join(f"{key}: {value}" for key, value in message.headers),
            "form": "schema" if schema else {"null": "null", "json": "json"}.get(message.value.form, "text"),
        }

    return await get_console(request).pool.run(read)


async def _produce_page(
    request: Request, name: str, given: dict[str, str], wrong: str = "", status: int = 200
) -> Response:
    topic = await get_console(request).pool.run(lambda cluster: message_pages.get_topic(cluster, name))
    partitions = list(topic.partitions)
    return render_page(
        request,
        "produce.html",
        status,
        name=name,
        tab="produce",
        given=given,
        wrong=wrong,
        partitions=partitions,
    )


@router.post("/topics/{name}/produce")
async def produce(request: Request, name: str) -> Response:
    console = get_console(request)
    form = await read_change_form(request)

    def act(cluster: Cluster) -> tuple[int, int]:
        key = form.get("key", "").encode() or None
        value = _value_bytes(console, name, form)
        headers = _header_lines(form.get("headers", ""))
        topic = message_pages.get_topic(cluster, name)
        chosen = partition_of(form.get("partition", ""))
        if chosen is None:
            chosen = partition_for(key or str(time.time_ns()).encode(), len(topic.partitions))
        record = Record(0, round(time.time() * 1000), key, value, headers)
        return chosen, Producer(cluster, create_topics=False).send(name, chosen, [record]).offset

    try:
        partition, offset = await console.pool.run(act)
    except (RequestRefused, SerdeError, RegistryRefused, RegistryUnreachable, KafkaError) as error:
        text = getattr(error, "message", None) or str(error)
        return await _produce_page(request, name, form, text, 400)
    flash(request, f"Written to partition {partition} at offset {offset}.")
    return RedirectResponse(f"/topics/{formatting.path_segment(name)}/messages", 303)


def _value_bytes(console: Console, topic: str, form: dict[str, str]) -> bytes | None:
    text, kind = form.get("value", ""), form.get("form", "text")
    if kind == "null":
        return None
    if kind == "json":
        try:
            return minified(check_json(text)).encode()
        except ValueError as error:
            raise RequestRefused(400, f"The value is not JSON: {error}.") from None
    if kind == "schema":
        if console.registry is None:
            raise RequestRefused(400, "The console knows no registry (schema.registry.url).")
        try:
            check_json(text)
        except ValueError as error:
            raise RequestRefused(400, f"The value is not JSON: {error}.") from None
        return Encoder(console.registry, use_latest=True, as_text=True).encode(topic, text)
    return text.replace("\r\n", "\n").encode()


def _header_lines(text: str) -> tuple[tuple[str, bytes | None], ...]:
    found = []
    for line in text.splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            if not colon:
                raise RequestRefused(
                    400, f"Headers are written name: value, one per line; this is not: {line.strip()[:80]}"
                )
            found.append((name.strip(), value.strip().encode()))
    return tuple(found)


@router.post("/topics/{name}/messages/{partition}/{offset}/resend")
async def resend(request: Request, name: str, partition: int, offset: int) -> Response:
    """The same bytes once more, to this topic or another."""
    console = get_console(request)
    form = await read_change_form(request)
    target = form.get("target", "").strip() or name
    if target != name and console.renderer.masks(name, get_session(request).unmasked):
        raise RequestRefused(
            403, "A masking rule applies to this topic, so its messages cannot be sent to another one."
        )

    def act(cluster: Cluster) -> tuple[int, int]:
        record = message_pages.record_at(cluster, name, partition, offset)
        count = len(message_pages.get_topic(cluster, target).partitions)
        chosen = partition if partition < count else partition_for(record.key or b"", count)
        copy = Record(0, round(time.time() * 1000), record.key, record.value, record.headers)
        return chosen, Producer(cluster, create_topics=False).send(target, chosen, [copy]).offset

    chosen, written = await console.pool.run(act)
    flash(request, f"Sent again: {target}, partition {chosen}, offset {written}.")
    return RedirectResponse(f"/topics/{formatting.path_segment(target)}/messages", 303)
