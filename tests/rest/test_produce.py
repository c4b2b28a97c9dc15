"""Version 2: producing in all formats, and what the records are on the wire."""

import base64
import json
from collections.abc import Callable
from typing import Any

import fastavro
import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from .rest_client import RunningRest, media_type

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": ["null", "int", "long", "double"]},
        {"name": "raw", "type": "bytes"},
    ],
}
PROTO = 'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n  string customer_name = 2;\n}\n'
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


def on_the_wire(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.consume(count - len(found), 10)
        return found
    finally:
        consumer.close()


def refused(answer: httpx.Response) -> tuple[int, int]:
    body = answer.json()
    assert set(body) == {"error_code", "message"}, body
    return answer.status_code, body["error_code"]


def test_json(rest: RunningRest, bootstrap: str, topic: str) -> None:
    big = 12345678901234567890123
    records = [{"key": "k", "value": {"a": [1, None, "ü"]}}, {"value": big}, {"key": 1, "value": None}]
    answer = rest.produce(topic, "json", records)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.kafka.v2+json"
    assert answer.json() == {
        "offsets": [{"partition": 0, "offset": n, "error_code": None, "error": None} for n in range(3)],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    first, second, third = on_the_wire(bootstrap, topic, 3)
    assert (json.loads(first.key()), json.loads(first.value())) == ("k", {"a": [1, None, "ü"]})
    assert second.key() is None and json.loads(second.value()) == big
    assert third.value() is None


def test_binary(rest: RunningRest, bootstrap: str, topic: str) -> None:
    data = bytes(range(256))
    answer = rest.produce(topic, "binary", [{"key": "YQ==", "value": base64.b64encode(data).decode()}])
    assert answer.json()["offsets"][0]["offset"] == 0
    (record,) = on_the_wire(bootstrap, topic, 1)
    assert (record.key(), record.value()) == (b"a", data)


def test_avro(rest: RunningRest, bootstrap: str, topic: str) -> None:
    value = {"id": 1 << 40, "note": {"string": "x"}, "price": {"long": 5}, "raw": "\u00ff\u0000"}
    schemas = {"key_schema": '"string"', "value_schema": json.dumps(AVRO)}
    answer = rest.produce(topic, "avro", [{"key": "k", "value": value}], **schemas).json()
    ids = {"key_schema_id": answer["key_schema_id"], "value_schema_id": answer["value_schema_id"]}
    assert all(isinstance(one, int) for one in ids.values())
    again = rest.produce(topic, "avro", [{"key": "k", "value": value}], **ids).json()
    assert again["offsets"][0]["offset"] == 1 and again["value_schema_id"] == ids["value_schema_id"]
    for record in on_the_wire(bootstrap, topic, 2):
        data = record.value()
        assert data[:5] == b"\0" + ids["value_schema_id"].to_bytes(4, "big")
        import io

        parsed = fastavro.parse_schema(AVRO)
        read = fastavro.schemaless_reader(io.BytesIO(data[5:]), parsed, None)
        assert read == {"id": 1 << 40, "note": "x", "price": 5, "raw": b"\xff\0"}


def test_protobuf_and_json_schema(rest: RunningRest, new_topic: Callable[..., str]) -> None:
    answer = rest.produce(
        new_topic(), "protobuf", [{"value": {"id": "7", "customerName": "a"}}], value_schema=PROTO
    )
    assert answer.json()["offsets"][0]["offset"] == 0, answer.text
    topic = new_topic()
    schema = json.dumps(JSON_SCHEMA)
    answer = rest.produce(topic, "jsonschema", [{"value": {"id": 1}}], value_schema=schema)
    assert answer.json()["offsets"][0]["offset"] == 0, answer.text
    bad = rest.produce(topic, "jsonschema", [{"value": {"id": "one"}}], value_schema=schema)
    assert refused(bad) == (400, 400)


def test_to_a_partition(rest: RunningRest, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    headers = {"Content-Type": media_type("json")}
    body = {"records": [{"value": 1}, {"value": 2, "partition": None}]}
    answer = rest.http.post(f"/topics/{topic}/partitions/2", json=body, headers=headers)
    assert [one["partition"] for one in answer.json()["offsets"]] == [2, 2]
    answer = rest.http.post(f"/topics/{topic}/partitions/3", json=body, headers=headers)
    assert refused(answer) == (404, 40402)
    answer = rest.produce(topic, "json", [{"value": 1, "partition": 1}, {"value": 1, "partition": 99}])
    good, bad = answer.json()["offsets"]
    assert good["partition"] == 1 and good["error_code"] is None
    assert bad["partition"] is None and bad["error_code"] == 50003 and bad["error"]


def test_a_record_that_is_too_large(rest: RunningRest, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="1000")
    answer = rest.produce(topic, "json", [{"value": "x" * 2000}])
    assert answer.status_code == 200
    assert answer.json()["offsets"][0]["error_code"] == 50002


def test_keys_go_where_java_sends_them(rest: RunningRest, new_topic: Callable[..., str]) -> None:
    from millstream.wire.murmur2 import partition_for

    topic = new_topic(5)
    keys = [f"key-{n}" for n in range(20)]
    answer = rest.produce(topic, "json", [{"key": key, "value": 1} for key in keys])
    expected = [partition_for(json.dumps(key).encode(), 5) for key in keys]
    assert [one["partition"] for one in answer.json()["offsets"]] == expected


@pytest.mark.parametrize(
    ("form", "body", "expected"),
    [
        ("json", {"records": []}, (422, 422)),
        ("json", {}, (422, 422)),
        ("json", {"records": [1]}, (422, 422)),
        ("json", {"records": [{"value": 1, "more": 2}]}, (422, 422)),
        ("json", {"records": [{"value": 1}], "more": 2}, (422, 422)),
        ("json", {"records": [{"value": 1, "partition": -1}]}, (422, 422)),
        ("json", {"records": [{"value": 1, "partition": "0"}]}, (422, 422)),
        ("json", [], (400, 400)),
        ("binary", {"records": [{"value": 1}]}, (400, 400)),
        ("binary", {"records": [{"value": "*"}]}, (400, 400)),
        ("avro", {"records": [{"value": 1}]}, (422, 42202)),
        ("avro", {"records": [{"key": 1, "value": 1}], "value_schema": '"int"'}, (422, 42201)),
        ("avro", {"records": [{"value": "x"}], "value_schema": '"int"'}, (400, 400)),
        ("avro", {"records": [{"value": 1}], "value_schema": '"nothing"'}, (422, 42205)),
        ("avro", {"records": [{"value": 1}], "value_schema": 1}, (422, 422)),
        ("avro", {"records": [{"value": 1}], "value_schema_id": 2**31 - 1}, (422, 42207)),
        ("avro", {"records": [{"value": 1}], "value_schema_id": "1"}, (422, 422)),
        ("protobuf", {"records": [{"value": 1}], "value_schema": "message {"}, (422, 42205)),
        ("protobuf", {"records": [{"value": {"no": 1}}], "value_schema": PROTO}, (400, 400)),
        ("jsonschema", {"records": [{"value": 1}], "value_schema": "{"}, (422, 42205)),
    ],
)
def test_refused(rest: RunningRest, topic: str, form: str, body: Any, expected: tuple[int, int]) -> None:
    answer = rest.http.post(f"/topics/{topic}", json=body, headers={"Content-Type": media_type(form)})
    assert refused(answer) == expected, answer.text


def test_an_incompatible_schema(rest: RunningRest, topic: str) -> None:
    rest.produce(topic, "avro", [{"value": 1}], value_schema='"int"')
    answer = rest.produce(topic, "avro", [{"value": "x"}], value_schema='"string"')
    assert refused(answer) == (422, 42207)
    assert "ncompatible" in answer.json()["message"]


def test_an_id_of_another_subject(rest: RunningRest, new_topic: Callable[..., str]) -> None:
    topic, other = new_topic(), new_topic()
    made = rest.produce(other, "avro", [{"value": 1}], value_schema='"int"').json()["value_schema_id"]
    answer = rest.produce(topic, "avro", [{"value": 1}], value_schema_id=made)
    assert refused(answer) == (422, 42207) and f"{topic}-value" in answer.json()["message"]
    answer = rest.produce(other, "avro", [{"key": 1, "value": 1}], key_schema_id=made, value_schema_id=made)
    assert refused(answer) == (422, 42207) and f"{other}-key" in answer.json()["message"]
    # The refusal is not kept: once the subject has the schema, its id is good.
    rest.produce(topic, "avro", [{"value": 1}], value_schema='"int"')
    assert rest.produce(topic, "avro", [{"value": 2}], value_schema_id=made).status_code == 200


def test_topics_that_cannot_be(rest: RunningRest) -> None:
    assert refused(rest.produce("not a topic!", "json", [{"value": 1}])) == (404, 40401)
