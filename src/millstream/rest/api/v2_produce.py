"""Version 2: records to a topic or to a partition."""

from typing import Any

from fastapi import APIRouter, Request, Response

from millstream.rest import errors
from millstream.rest.api.responses import EMBEDDED, json_body, path_number, service_of, v2
from millstream.rest.clients import RestClients
from millstream.rest.formats import PLAIN
from millstream.rest.producer import Record
from millstream.rest.schemas import Chosen, Wish

router = APIRouter(tags=["v2 records"])

FIELDS = frozenset({"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"})
RECORD = frozenset({"key", "value", "partition"})
MAX_INLINE = 200  # records with schemas; more of them are encoded in a thread


@router.post("/topics/{topic}")
async def produce(topic: str, request: Request) -> Response:
    """Records to a topic; each may name its partition."""
    return await _produce(request, topic, None)


@router.post("/topics/{topic}/partitions/{partition}")
async def produce_to_partition(topic: str, partition: str, request: Request) -> Response:
    """Records to one partition."""
    return await _produce(request, topic, path_number(partition))


async def _produce(request: Request, topic: str, partition: int | None) -> Response:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = EMBEDDED.get(content_type)
    if form is None:
        raise errors.http_error(415, "HTTP 415 Unsupported Media Type")
    body = await json_body(request)
    items = _checked(body)
    service = service_of(request)
    key_id = value_id = None
    if form in PLAIN:
        encode = PLAIN[form]
        records = [
            Record(encode(one.get("key")), encode(one.get("value")), one.get("partition", partition))
            for one in items
        ]
    else:
        key = await _schema(service, body, topic, form, is_key=True)
        value = await _schema(service, body, topic, form, is_key=False)
        key_id, value_id = key and key.id, value and value.id
        if len(items) > MAX_INLINE:
            records = await service.schemas.run(lambda: _encoded(items, key, value, partition))
        else:
            records = _encoded(items, key, value, partition)
    count = service.kafka.known_partitions(topic)
    if count is None:
        count = await service.kafka.partitions(topic, create=True)
    if count is None:
        raise errors.topic_not_found()
    if partition is not None and partition >= count:
        service.kafka.forget(topic)
        raise errors.partition_not_found()
    status = 200
    offsets: list[dict[str, Any]] = []
    for sent in await service.producing.send(topic, records):
        if isinstance(sent, tuple):
            offsets.append({"partition": sent[0], "offset": sent[1], "error_code": None, "error": None})
        else:
            code, message = errors.in_record(sent)
            status = {40101: 401, 40301: 403}.get(code, status)
            offsets.append({"partition": None, "offset": None, "error_code": code, "error": message})
    return v2({"offsets": offsets, "key_schema_id": key_id, "value_schema_id": value_id}, status)


def _checked(body: Any) -> list[dict[str, Any]]:
    if not isinstance(body, dict):
        raise errors.http_error(400, "the body must be a JSON object")
    if not body.keys() <= FIELDS:
        raise errors.unprocessable(f"Unrecognized field: {sorted(body.keys() - FIELDS)[0]}")
    records = body.get("records")
    if records is not None and not isinstance(records, list):
        raise errors.unprocessable("records: expected a list")
    if not records:
        raise errors.unprocessable("records must not be empty")
    for one in records:
        if type(one) is not dict:
            raise errors.unprocessable("records: expected objects with key, value and partition")
        if not one.keys() <= RECORD:
            raise errors.unprocessable(f"Unrecognized field: {sorted(one.keys() - RECORD)[0]}")
        if "partition" in one:
            partition = one["partition"]
            if partition is None:
                del one["partition"]
            elif type(partition) is not int or not 0 <= partition < 1 << 31:
                raise errors.unprocessable(f"Invalid partition: {partition}. It has to be a number from 0.")
    return records


async def _schema(
    service: RestClients, body: dict[str, Any], topic: str, form: str, *, is_key: bool
) -> Chosen | None:
    name = "key_schema" if is_key else "value_schema"
    text, schema_id = body.get(name), body.get(f"{name}_id")
    if schema_id is not None and (type(schema_id) is not int or not 0 <= schema_id < 1 << 31):
        raise errors.unprocessable(f"{name}_id: expected a number")
    if text is not None and not isinstance(text, str):
        raise errors.unprocessable(f"{name}: expected a string, the schema's text")
    if schema_id is not None and text is not None:
        raise errors.bad_request(f"only one of {name} and {name}_id can be used")
    if schema_id is None and text is None:
        return None
    return await service.schemas.choose(Wish(topic, is_key, form if text else None, id=schema_id, text=text))


def _encoded(
    items: list[dict[str, Any]], key: Chosen | None, value: Chosen | None, partition: int | None
) -> list[Record]:
    records = []
    for one in items:
        given_key, given_value = one.get("key"), one.get("value")
        if given_key is not None and key is None:
            raise errors.key_schema_missing()
        if given_value is not None and value is None:
            raise errors.value_schema_missing()
        records.append(
            Record(
                None if given_key is None or key is None else key.encode(given_key),
                None if given_value is None or value is None else value.encode(given_value),
                one.get("partition", partition),
            )
        )
    return records
