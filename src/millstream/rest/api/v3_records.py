"""Version 3: records, as a stream. One connection can carry records for hours: JSON objects follow each other
in the request, results follow each other in the answer, in the same order, each as soon as it is known.

Records that arrive together are sent together.
"""

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any, NamedTuple

import orjson
from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from millstream.rest import errors
from millstream.rest.api.links import links
from millstream.rest.api.responses import JSON, json_body, service_of, v3
from millstream.rest.clients import RestClients
from millstream.rest.errors import RestError
from millstream.rest.formats import PLAIN, WITH_SCHEMA, encode_binary
from millstream.rest.json_stream import BadStream, JsonStream
from millstream.rest.producer import Header, Record, Sent
from millstream.rest.schemas import SUBJECTS, Wish

router = APIRouter(prefix="/v3/clusters/{cluster_id}/topics/{topic_name}", tags=["v3 records"])

FIELDS = frozenset({"partition_id", "headers", "key", "value", "timestamp"})
DATA = frozenset(
    {"type", "subject", "subject_name_strategy", "schema_id", "schema_version", "schema", "data"}
)
MAX_IN_FLIGHT = 32  # parts of a stream that are sent and not answered yet
AT_ONCE = 1000  # records sent together
LONGEST_ID = 80


class Prepared(NamedTuple):
    record: Record
    key: dict[str, Any] | None
    value: dict[str, Any] | None


@router.post("/records")
async def produce_records(cluster_id: str, topic_name: str, request: Request) -> Response:
    """Records to a topic: one, or a stream of them."""
    await links(request)
    return Stream(request, cluster_id, topic_name)


@router.post("/records:batch")
async def produce_batch(cluster_id: str, topic_name: str, request: Request) -> Response:
    """Some records to a topic, each with an id for its result."""
    await links(request)
    body = await json_body(request)
    service = service_of(request)
    entries = _entries(body, service.config.value("api.v3.produce.batch.maximum.entries"))
    bodies = [{name: value for name, value in one.items() if name != "id"} for one in entries]
    results = await (await _begin(service, cluster_id, topic_name, bodies))
    successes, failures = [], []
    for entry, result in zip(entries, results, strict=True):
        if result["error_code"] == 200:
            del result["error_code"]
            successes.append({"id": entry["id"], **result})
        else:
            failures.append({"id": entry["id"], **result})
    return v3({"successes": successes, "failures": failures}, 207)


def _entries(body: Any, limit: int) -> list[dict[str, Any]]:
    if not isinstance(body, dict) or not isinstance(body.get("entries"), list):
        raise errors.http_error(400, "the body must be a JSON object with a list of entries")
    entries: list[Any] = body["entries"]
    seen = set()
    for one in entries:
        given = one.get("id") if isinstance(one, dict) else None
        if not isinstance(given, str) or not 0 < len(given) <= LONGEST_ID:
            raise errors.invalid_batch("Batch entry identifier is not a valid string.")
        if given in seen:
            raise errors.invalid_batch("Batch entry IDs are not distinct.")
        seen.add(given)
    if not entries:
        raise errors.invalid_batch("Empty batch.")
    if len(entries) > limit:
        raise errors.invalid_batch("Too many entries in batch.")
    return entries


class Stream(Response):
    """An answer that is written while the request is still being read."""

    def __init__(self, request: Request, cluster_id: str, topic: str) -> None:
        super().__init__()
        self._request = request
        self._service = service_of(request)
        self._cluster_id = cluster_id
        self._topic = topic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        waiting: asyncio.Queue[Awaitable[list[Any]] | None] = asyncio.Queue(MAX_IN_FLIGHT)
        parts = self._parts(receive)
        first = await anext(parts, None)
        if first is None:
            error = errors.invalid_payload("Request body is empty. Data is required.")
            await v3(error.body(), error.status)(scope, receive, send)
            return
        headers = [(b"content-type", JSON.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        writing = asyncio.create_task(self._write(waiting, send))
        try:
            await waiting.put(await self._begin(first))
            async for part in parts:
                await waiting.put(await self._begin(part))
        finally:
            while not writing.done() and waiting.full():  # noqa: ASYNC110 - no event tells that the writer has failed
                await asyncio.sleep(0.01)
            if not writing.done():
                waiting.put_nowait(None)
            await writing

    async def _parts(self, receive: Receive) -> AsyncIterator[list[Any]]:
        """What has arrived, in lists; an error as the last item ends the stream."""
        config = self._service.config
        stream = JsonStream(config.value("max.request.size"))
        until = time.monotonic() + config.value("streaming.connection.max.duration.ms") / 1000
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            more = message.get("more_body", False)
            try:
                found = stream.feed(message.get("body", b""), last=not more)
            except BadStream as error:
                yield [*error.found, errors.bad_request(f"Error processing JSON: {error}")]
                return
            for start in range(0, len(found), AT_ONCE):
                yield found[start : start + AT_ONCE]
            if more and time.monotonic() > until:
                late = "Streaming connection open for longer than allowed. Connection will be closed."
                yield [RestError(408, 408, late)]
                return

    async def _begin(self, items: list[Any]) -> Awaitable[list[Any]]:
        return await _begin(self._service, self._cluster_id, self._topic, items)

    async def _write(self, waiting: "asyncio.Queue[Awaitable[list[Any]] | None]", send: Send) -> None:
        while (part := await waiting.get()) is not None:
            body = b"".join(orjson.dumps(one) + b"\r\n" for one in await part)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _begin(service: RestClients, cluster_id: str, topic: str, items: list[Any]) -> Awaitable[list[Any]]:
    """Put records in line; to be awaited for a result for each item. An item is a request for a record, or an
    error."""
    results: list[Any] = [None] * len(items)
    ready: list[tuple[int, Prepared]] = []
    missing = await _missing(service, topic)
    for index, item in enumerate(items):
        try:
            if isinstance(item, RestError):
                raise item
            if missing is not None:
                raise missing
            ready.append((index, await _prepare(service, topic, item)))
        except RestError as error:
            results[index] = in_stream(error)
    sending = await service.producing.begin(topic, [one.record for _, one in ready])

    async def finish() -> list[Any]:
        for (index, one), outcome in zip(ready, await sending.outcome(), strict=True):
            if isinstance(outcome, Sent):
                results[index] = _result(cluster_id, topic, one, outcome)
            else:
                results[index] = in_stream(errors.for_client(outcome))
        return results

    return finish()


async def _missing(service: RestClients, topic: str) -> RestError | None:
    """Why there is no such topic, if there is none."""
    try:
        found = service.kafka.known_partitions(topic) or await service.kafka.partitions(topic, create=True)
    except RestError as error:
        return error
    return None if found else errors.unknown_topic()


def in_stream(error: RestError) -> dict[str, Any]:
    """An error as the result of a record. What is wrong with the data says so twice, as Confluent's proxy
    does."""
    if error.status == 422 and error.code > 42200:
        return {"error_code": 422, "message": f"Error: {error.code} : {error.message}"}
    return error.body()


def _result(cluster_id: str, topic: str, one: Prepared, sent: Sent) -> dict[str, Any]:
    moment = datetime.datetime.fromtimestamp(sent.timestamp / 1000, datetime.UTC)
    made = {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": sent.partition,
        "offset": sent.offset,
        "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    if one.key is not None:
        made["key"] = one.key
    if one.value is not None:
        made["value"] = one.value
    return made


# One record


async def _prepare(service: RestClients, topic: str, body: Any) -> Prepared:
    if not isinstance(body, dict):
        raise errors.bad_request("a record is a JSON object")
    if not body.keys() <= FIELDS:
        raise errors.bad_request(f"Unrecognized field: {sorted(body.keys() - FIELDS)[0]}")
    partition = body.get("partition_id")
    if partition is not None:
        if type(partition) is not int or partition >= 1 << 31:
            raise errors.bad_request("partition_id is not a number of a partition")
        if partition < 0:
            raise errors.partition_not_found()
    key_data, key = await _data(service, topic, body.get("key"), is_key=True)
    value_data, value = await _data(service, topic, body.get("value"), is_key=False)
    given = body.get("headers")
    headers = (
        None if not given else [_header(one) for one in given] if isinstance(given, list) else _no_list()
    )
    timestamp = body.get("timestamp")
    milliseconds = 0 if timestamp is None else _milliseconds(timestamp)
    return Prepared(Record(key_data, value_data, partition, milliseconds, headers), key, value)


async def _data(
    service: RestClients, topic: str, given: Any, *, is_key: bool
) -> tuple[bytes | None, dict[str, Any] | None]:
    """The bytes of a key or a value, and what the answer says about them."""
    if given is None:
        return None, None
    if not isinstance(given, dict):
        raise errors.bad_request("key and value are JSON objects with type and data")
    if not given.keys() <= DATA:
        raise errors.bad_request(f"Unrecognized field: {sorted(given.keys() - DATA)[0]}")
    form = given.get("type")
    if form is not None:
        form = form.upper() if isinstance(form, str) else form
        if form not in PLAIN and form not in WITH_SCHEMA:
            raise errors.bad_request(f"type: {form} is none of {', '.join((*PLAIN, *sorted(WITH_SCHEMA)))}")
    if form in PLAIN:
        for name in ("subject", "subject_name_strategy", "schema_id", "schema_version", "schema"):
            if given.get(name) is not None:
                raise errors.bad_request(f"'type={form}' cannot be used with '{name}'.")
        data = PLAIN[form](given.get("data"))
        return data, {"type": form, "size": len(data or b"")}
    chosen = await service.schemas.choose(_wish(given, topic, form, is_key))
    value = given.get("data")
    data = None if value is None else chosen.encode(value)
    described = {
        "type": chosen.form,
        "subject": chosen.subject,
        "schema_id": chosen.id,
        "schema_version": chosen.version,
        "size": len(data or b""),
    }
    return data, described


def _wish(given: dict[str, Any], topic: str, form: str | None, is_key: bool) -> Wish:
    subject, strategy = given.get("subject"), given.get("subject_name_strategy")
    schema_id, version, text = given.get("schema_id"), given.get("schema_version"), given.get("schema")
    if subject is not None and strategy is not None:
        raise errors.bad_request("Only one of 'subject_name_strategy' or 'subject' can be used.")
    if sum(one is not None for one in (schema_id, version, text)) > 1:
        raise errors.bad_request("Only one of 'schema_id', 'schema_version' or 'schema' can be used.")
    if form is not None and text is None:
        raise errors.bad_request(f"'type={form}' needs 'schema'; an id or a version knows its type.")
    if form is None and text is not None:
        raise errors.bad_request("'schema' needs 'type'.")
    for name, value, expected in (
        ("subject", subject, str),
        ("subject_name_strategy", strategy, str),
        ("schema", text, str),
        ("schema_id", schema_id, int),
        ("schema_version", version, int),
    ):
        if value is not None and type(value) is not expected:
            raise errors.bad_request(f"{name} is not what was expected")
    for number in (schema_id, version):
        if number is not None and not 0 <= number < 1 << 31:
            raise errors.bad_request(f"{number} is out of range")
    if strategy is not None and strategy not in SUBJECTS:
        raise errors.bad_request(f"subject_name_strategy is none of {', '.join(SUBJECTS)}")
    return Wish(topic, is_key, form, schema_id, version, text, subject, strategy, describe=True)


def _header(one: Any) -> Header:
    if (
        not isinstance(one, dict)
        or not isinstance(one.get("name"), str)
        or not one.keys() <= {"name", "value"}
    ):
        raise errors.bad_request("headers are objects with name and value (base64)")
    try:
        one["name"].encode()
    except UnicodeEncodeError:
        raise errors.bad_request("the name of a header is not valid Unicode") from None
    return one["name"], encode_binary(one.get("value"))


def _no_list() -> Any:
    raise errors.bad_request("headers is not a list")


def _milliseconds(value: Any) -> int:
    try:
        moment = datetime.datetime.fromisoformat(value)
        milliseconds = round(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        raise errors.bad_request("timestamp is not a time as 2026-01-31T12:00:00Z") from None
    if milliseconds <= 0:
        raise errors.bad_request("timestamp is before 1970")
    return milliseconds
