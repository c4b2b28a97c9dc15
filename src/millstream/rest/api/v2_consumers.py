"""Version 2: consumer instances."""

import asyncio
import datetime
from typing import Any

import orjson
from confluent_kafka import Message
from fastapi import APIRouter, Request, Response

from millstream.http.negotiation import preferred
from millstream.rest import errors
from millstream.rest.api.responses import (
    EMBEDDED,
    JSON,
    V2,
    base_url,
    checked_object,
    done,
    json_object,
    list_of,
    number_of,
    query_number,
    service_of,
    text_of,
    url,
    v2,
)
from millstream.rest.consumer_instance import Instance
from millstream.rest.formats import decode_binary, decode_json
from millstream.rest.schemas import Schemas
from millstream.wire.topic_partition import TopicPartition

router = APIRouter(prefix="/consumers/{group}", tags=["v2 consumers"])
ONE = "/instances/{instance}"
TYPES = {form: media_type for media_type, form in EMBEDDED.items()}
MAX_INLINE = 1 << 18  # bytes of records that are turned into JSON at once; more of them in a thread
MAX_PARTITIONS = 10_000


def _instance(request: Request) -> Instance:
    return service_of(request).instances.get(request.path_params["group"], request.path_params["instance"])


@router.post("")
async def create(group: str, request: Request) -> Response:
    """A new consumer instance."""
    body = await request.body()
    options: Any = {}
    if body.strip():
        try:
            options = orjson.loads(body)
        except ValueError as error:
            raise errors.http_error(400, f"the body is not JSON: {error}") from None
    if options is None:
        options = {}
    if not isinstance(options, dict):
        raise errors.http_error(400, "the body must be a JSON object")
    made = await service_of(request).instances.create(group, options)
    address = url(base_url(request), "consumers", group, "instances", made.name)
    return v2({"instance_id": made.name, "base_uri": address})


@router.delete(ONE)
async def delete(group: str, instance: str, request: Request) -> Response:
    """End an instance."""
    await service_of(request).instances.delete(group, instance)
    return done()


# Which partitions


@router.post(f"{ONE}/subscription")
async def subscribe(group: str, instance: str, request: Request) -> Response:
    """Read topics, by name or by a pattern, together with the other members of the group."""
    body = await json_object(request, frozenset({"topics", "topic_pattern"}))
    found = _instance(request)
    topics = list_of(body, "topics")
    if any(not isinstance(one, str) or not one for one in topics) or len(topics) > MAX_PARTITIONS:
        raise errors.unprocessable("topics: expected names of topics")
    pattern = text_of(body, "topic_pattern")
    if body.get("topics") is not None:
        await found.subscribe(topics)
    elif pattern is not None:
        await service_of(request).instances.subscribe_to_pattern(found, pattern)
    else:
        raise errors.unprocessable("topics or topic_pattern is needed")
    return done()


@router.get(f"{ONE}/subscription")
async def subscription(group: str, instance: str, request: Request) -> Response:
    """The topics that the instance reads."""
    return v2({"topics": _instance(request).topics})


@router.delete(f"{ONE}/subscription")
async def unsubscribe(group: str, instance: str, request: Request) -> Response:
    """Read nothing any more."""
    await _instance(request).unsubscribe()
    return done()


@router.post(f"{ONE}/assignments")
async def assign(group: str, instance: str, request: Request) -> Response:
    """Read these partitions, whatever the group does."""
    body = await json_object(request, frozenset({"partitions"}))
    topic_partitions = _topic_partitions(body, "partitions")
    await _instance(request).assign(topic_partitions)
    return done()


@router.get(f"{ONE}/assignments")
async def assignments(group: str, instance: str, request: Request) -> Response:
    """The partitions that the instance reads."""
    topic_partitions = await _instance(request).assignment()
    return v2(
        {"partitions": [{"topic": topic, "partition": partition} for topic, partition in topic_partitions]}
    )


# Positions


@router.post(f"{ONE}/positions")
async def seek(group: str, instance: str, request: Request) -> Response:
    """Go on at these offsets, or at these moments in time."""
    body = await json_object(request, frozenset({"offsets", "timestamps"}))
    fields = frozenset({"topic", "partition", "offset", "metadata"})
    offsets = [
        (*_topic_partition(one, fields), number_of(one, "offset", 64, needed=True))
        for one in list_of(body, "offsets")
    ]
    if any(offset < 0 for *_, offset in offsets):  # type: ignore[operator]
        raise errors.unprocessable("seek offset must not be a negative number")
    fields = frozenset({"topic", "partition", "timestamp", "metadata"})
    times = [(*_topic_partition(one, fields), _moment(one)) for one in list_of(body, "timestamps")]
    found = _instance(request)
    if offsets:
        await found.seek(offsets)  # type: ignore[arg-type]
    if times:
        await found.seek_to_times(times)
    return done()


@router.post(f"{ONE}/positions/beginning")
async def seek_to_beginning(group: str, instance: str, request: Request) -> Response:
    """Go back to the oldest record of these partitions."""
    body = await json_object(request, frozenset({"partitions"}))
    await _instance(request).seek_to_edge(_topic_partitions(body, "partitions"), end=False)
    return done()


@router.post(f"{ONE}/positions/end")
async def seek_to_end(group: str, instance: str, request: Request) -> Response:
    """Go on with what comes after the newest record of these partitions."""
    body = await json_object(request, frozenset({"partitions"}))
    await _instance(request).seek_to_edge(_topic_partitions(body, "partitions"), end=True)
    return done()


# Offsets


@router.post(f"{ONE}/offsets")
async def commit(group: str, instance: str, request: Request) -> Response:
    """Commit these offsets (of the last records that were processed), or without a body all that was read."""
    body = await json_object(request, frozenset({"offsets"}), optional=True)
    if body.get("offsets") is None:
        offsets = None
    else:
        fields = frozenset({"topic", "partition", "offset", "metadata"})
        offsets = []
        for one in list_of(body, "offsets"):
            topic, partition = _topic_partition(one, fields)
            offset = number_of(one, "offset", 64, needed=True)
            assert offset is not None
            if not -1 <= offset < (1 << 63) - 1:
                raise errors.unprocessable("offset must not be a negative number")
            offsets.append((topic, partition, offset + 1, text_of(one, "metadata")))
    await _instance(request).commit(offsets)
    return v2([])


@router.get(f"{ONE}/offsets")
async def committed(group: str, instance: str, request: Request) -> Response:
    """What the group has committed for the partitions in the body."""
    body = await json_object(request, frozenset({"partitions"}), optional=True)
    if body.get("partitions") is None:
        raise errors.partition_not_found()
    found = await _instance(request).committed(_topic_partitions(body, "partitions"))
    return v2(
        {
            "offsets": [
                {"topic": topic, "partition": partition, "offset": offset, "metadata": metadata}
                for topic, partition, offset, metadata in found
            ]
        }
    )


# Records


@router.get(f"{ONE}/records")
async def records(group: str, instance: str, request: Request) -> Response:
    """The next records."""
    service = service_of(request)
    found = _instance(request)
    media_type = _media_type(request, found)
    timeout = query_number(request, "timeout", -1)
    max_bytes = query_number(request, "max_bytes", -1)
    wait = found.options.wait if timeout <= 0 else min(timeout / 1000, found.options.wait)
    limit = service.instances.max_bytes
    if max_bytes > 0:
        limit = min(max_bytes, limit)
    schemas = service.schemas

    async def render(messages: list[Message]) -> tuple[bytes, int]:
        if found.options.form == "JSON":
            body, count = await _render(messages, decode_json)
        elif found.options.form == "BINARY":
            body, count = await _render(messages, decode_binary)
        else:
            body, count = await _render_by_schema(messages, schemas)
        service.instances.tally.records_given += count
        return body, count

    body = await found.read(wait, limit, render)
    return Response(body, media_type=media_type)


def _media_type(request: Request, instance: Instance) -> str:
    """The type of the answer. A client that names a format has to name that of the instance."""
    own = TYPES[instance.options.form]
    offered = (own, JSON, V2) if instance.options.form == "BINARY" else (own, JSON)
    chosen = preferred(",".join(request.headers.getlist("accept")), offered, own)
    if chosen is None:
        raise errors.format_mismatch()
    return chosen


async def _render_by_schema(messages: list[Message], schemas: Schemas) -> tuple[bytes, int]:
    data = [one for message in messages for one in (message.key(), message.value()) if one]
    await schemas.prepare(data)
    return await _render(messages, schemas.decode, always_in_thread=True)


async def _render(
    messages: list[Message], decode: Any, *, always_in_thread: bool = False
) -> tuple[bytes, int]:
    size = sum(len(one.value() or b"") + len(one.key() or b"") for one in messages)
    if messages and (always_in_thread or size > MAX_INLINE):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, _as_json, messages, decode)
    return _as_json(messages, decode)


def _as_json(messages: list[Message], decode: Any) -> tuple[bytes, int]:
    rows: list[dict[str, Any]] = []
    for message in messages:
        key, value = message.key(), message.value()
        try:
            rows.append(
                {
                    "topic": message.topic(),
                    "key": None if key is None else decode(key),
                    "value": None if value is None else decode(value),
                    "partition": message.partition(),
                    "offset": message.offset(),
                }
            )
        except (ValueError, KeyError) as error:
            if rows:
                break  # these first; the one that cannot be read is the next answer
            raise errors.cannot_deserialize(
                f"Error deserializing the record of {message.topic()}-{message.partition()} at offset "
                f"{message.offset()}: {error}. To go on, seek past it."
            ) from None
    try:
        return orjson.dumps(rows), len(rows)
    except TypeError:  # numbers of more than 64 bits
        import json

        return json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogatepass"), len(rows)


# Parts of bodies


def _topic_partition(one: Any, fields: frozenset[str]) -> TopicPartition:
    item = checked_object(one, fields, "a partition")
    topic, partition = text_of(item, "topic", needed=True), number_of(item, "partition", needed=True)
    assert topic is not None and partition is not None
    if not topic:
        raise errors.unprocessable("topic must not be empty")
    if partition < 0:
        raise errors.unprocessable(f"Invalid partition: {partition}. It has to be a number from 0.")
    return TopicPartition(topic, partition)


def _topic_partitions(body: dict[str, Any], name: str) -> list[TopicPartition]:
    items = list_of(body, name, needed=True)
    if len(items) > MAX_PARTITIONS:
        raise errors.unprocessable(f"{name}: more than {MAX_PARTITIONS}")
    return [_topic_partition(one, frozenset({"topic", "partition"})) for one in items]


def _moment(one: dict[str, Any]) -> int:
    """Milliseconds; a number, or ISO 8601."""
    value = one.get("timestamp")
    if type(value) is int and 0 <= value < 1 << 53:
        return value
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None:
            return int(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() * 1000)
    raise errors.unprocessable("timestamp: expected a time as 2026-01-31T12:00:00Z, or milliseconds")
