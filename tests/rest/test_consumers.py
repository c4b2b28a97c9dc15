"""Version 2: consumer instances from their creation to their end."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.waiting import wait_until

from .rest_client import V2, RunningRest, media_type
from .test_produce import AVRO, JSON_SCHEMA, PROTO, refused


def fill(rest: RunningRest, topic: str, count: int, start: int = 0) -> None:
    answer = rest.produce(topic, "json", [{"key": n, "value": n} for n in range(start, start + count)])
    assert answer.status_code == 200
    assert all(one["error_code"] is None for one in answer.json()["offsets"])


def topic_partitions(topic: str, *partitions: int) -> dict[str, Any]:
    return {"partitions": [{"topic": topic, "partition": number} for number in partitions]}


def test_create(rest: RunningRest, group: str) -> None:
    body = {"name": "one", "format": "json"}
    answer = rest.http.post(f"/consumers/{group}", json=body, headers={"Content-Type": V2})
    assert answer.json() == {
        "instance_id": "one",
        "base_uri": f"{rest.url}/consumers/{group}/instances/one",
    }
    again = rest.http.post(f"/consumers/{group}", json=body, headers={"Content-Type": V2})
    assert refused(again) == (409, 40902)
    assert rest.http.delete(f"/consumers/{group}/instances/one").status_code == 204
    assert refused(rest.http.delete(f"/consumers/{group}/instances/one")) == (404, 40403)
    unnamed = rest.http.post(f"/consumers/{group}", headers={"Content-Type": V2}).json()
    assert unnamed["instance_id"].startswith("rest-consumer-")
    assert rest.http.delete(unnamed["base_uri"]).status_code == 204


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"format": "xml"}, (422, 422)),
        ({"auto.offset.reset": "sometimes"}, (422, 42204)),
        ({"auto.commit.enable": "maybe"}, (422, 42204)),
        ({"fetch.min.bytes": -5}, (422, 40001)),
        ({"fetch.min.bytes": "1"}, (422, 422)),
        ({"consumer.request.timeout.ms": -1}, (422, 42204)),
        ({"nonsense": 1}, (422, 422)),
        ([], (400, 400)),
    ],
)
def test_create_refused(rest: RunningRest, group: str, options: Any, expected: tuple[int, int]) -> None:
    answer = rest.http.post(f"/consumers/{group}", json=options, headers={"Content-Type": V2})
    assert refused(answer) == expected


def test_read_and_commit(rest: RunningRest, group: str, topic: str) -> None:
    fill(rest, topic, 3)
    consumer = rest.consumer(group, **{"auto.commit.enable": "false"})
    consumer.subscribe(topic)
    found = consumer.read(3)
    assert found == [{"topic": topic, "key": n, "value": n, "partition": 0, "offset": n} for n in range(3)]
    asked = topic_partitions(topic, 0)
    assert consumer.get("/offsets", asked).json() == {"offsets": []}
    assert consumer.post("/offsets").status_code == 200
    expected = [{"topic": topic, "partition": 0, "offset": 3, "metadata": ""}]
    assert consumer.get("/offsets", asked).json() == {"offsets": expected}
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 0, "metadata": "hello"}]}
    assert consumer.post("/offsets", body).status_code == 200
    expected = [{"topic": topic, "partition": 0, "offset": 1, "metadata": "hello"}]
    assert consumer.get("/offsets", asked).json() == {"offsets": expected}
    assert refused(consumer.get("/offsets")) == (404, 40402)
    assert consumer.delete().status_code == 204
    second = rest.consumer(group)
    second.subscribe(topic)
    assert [one["offset"] for one in second.read(2)] == [1, 2]
    second.delete()


def test_commit_without_body_is_what_was_read(rest: RunningRest, group: str, topic: str) -> None:
    """Not what was fetched: with max_bytes there is more in the proxy than the client has seen."""
    fill(rest, topic, 10)
    consumer = rest.consumer(group, **{"auto.commit.enable": "false"})
    consumer.subscribe(topic)
    first = consumer.read(1, max_bytes=5)
    assert len(first) < 10
    consumer.post("/offsets")
    committed = consumer.get("/offsets", topic_partitions(topic, 0)).json()["offsets"][0]["offset"]
    assert committed == len(first)
    assert [one["offset"] for one in first + consumer.read(10 - len(first), max_bytes=5)] == list(range(10))
    consumer.delete()


def test_auto_commit(rest: RunningRest, group: str, topic: str) -> None:
    """What a client was given counts when it comes again, or says goodbye."""
    fill(rest, topic, 2)
    consumer = rest.consumer(group)
    consumer.subscribe(topic)
    consumer.read(2)
    consumer.delete()
    fill(rest, topic, 1, start=2)
    second = rest.consumer(group)
    second.subscribe(topic)
    assert [one["offset"] for one in second.read(1)] == [2]
    second.delete()


def test_one_record_is_more_than_max_bytes(rest: RunningRest, group: str, topic: str) -> None:
    rest.produce(topic, "json", [{"value": "x" * 1000}, {"value": "y"}])
    consumer = rest.consumer(group)
    consumer.subscribe(topic)
    assert len(consumer.read(1, max_bytes=10)) == 1
    assert consumer.read(1, max_bytes=10)[0]["value"] == "y"
    consumer.delete()


def test_subscriptions(rest: RunningRest, group: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    consumer = rest.consumer(group)
    assert consumer.get("/subscription").json() == {"topics": []}
    assert consumer.records().json() == []
    consumer.subscribe(topic)
    assert consumer.get("/subscription").json() == {"topics": [topic]}
    assert refused(consumer.post("/subscription", {"topic_pattern": "t-.*"})) == (409, 40903)
    assert refused(consumer.post("/assignments", topic_partitions(topic, 0))) == (409, 40903)
    fill(rest, topic, 1)
    consumer.read(1)
    assert consumer.get("/assignments").json() == topic_partitions(topic, 0)
    assert rest.http.delete(f"{consumer.uri}/subscription").status_code == 204
    assert consumer.get("/subscription").json() == {"topics": []}
    assert consumer.post("/assignments", topic_partitions(topic, 0)).status_code == 204
    assert refused(consumer.post("/subscription", {"topics": [topic]})) == (409, 40903)
    assert refused(consumer.post("/subscription", {})) == (422, 422)
    assert refused(consumer.post("/subscription", {"topics": [1]})) == (422, 422)
    assert refused(consumer.post("/subscription")) == (422, 42206)
    consumer.delete()


def test_pattern(rest: RunningRest, group: str, new_topic: Callable[..., str]) -> None:
    topic, other = new_topic(), new_topic()
    for name in (topic, other):
        fill(rest, name, 1)
    consumer = rest.consumer(group)
    assert consumer.post("/subscription", {"topic_pattern": f"{topic[:-1]}."}).status_code == 204
    assert consumer.get("/subscription").json() == {"topics": [topic]}
    assert [one["topic"] for one in consumer.read(1)] == [topic]
    assert refused(consumer.post("/subscription", {"topic_pattern": "("})) == (422, 42206)
    consumer.delete()


def test_positions(rest: RunningRest, group: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    records = [{"value": n, "partition": n % 2} for n in range(10)]
    rest.produce(topic, "json", records)
    consumer = rest.consumer(group)
    assert refused(consumer.post("/positions/beginning", topic_partitions(topic, 0))) == (409, 40903)
    assert consumer.post("/assignments", topic_partitions(topic, 0, 1)).status_code == 204
    assert consumer.get("/assignments").json() == topic_partitions(topic, 0, 1)
    assert len(consumer.read(10)) == 10
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 3}]}
    assert consumer.post("/positions", body).status_code == 204
    assert [one["offset"] for one in consumer.read(2)] == [3, 4]
    assert consumer.post("/positions/beginning", topic_partitions(topic, 1)).status_code == 204
    assert [one["value"] for one in consumer.read(5)] == [1, 3, 5, 7, 9]
    assert consumer.post("/positions/beginning", topic_partitions(topic, 0)).status_code == 204
    assert consumer.post("/positions/end", topic_partitions(topic, 0)).status_code == 204
    rest.produce(topic, "json", [{"value": "new", "partition": 0}])
    assert [one["value"] for one in consumer.read(1)] == ["new"]
    times = {"timestamps": [{"topic": topic, "partition": 1, "timestamp": "2020-01-01T00:00:00Z"}]}
    assert consumer.post("/positions", times).status_code == 204
    assert [one["value"] for one in consumer.read(5)] == [1, 3, 5, 7, 9]
    assert refused(
        consumer.post("/positions", {"offsets": [{"topic": topic, "partition": 9, "offset": 1}]})
    ) == (
        409,
        40903,
    )
    negative = {"offsets": [{"topic": topic, "partition": 0, "offset": -4}]}
    assert refused(consumer.post("/positions", negative)) == (422, 422)
    consumer.delete()


def test_two_instances_share_a_topic(rest: RunningRest, group: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    first, second = rest.consumer(group), rest.consumer(group)
    for one in (first, second):
        one.subscribe(topic)

    def shared() -> bool:
        for one in (first, second):
            one.records(timeout=50)
        return all(len(one.get("/assignments").json()["partitions"]) == 1 for one in (first, second))

    wait_until(shared)
    rest.produce(topic, "json", [{"value": n, "partition": n % 2} for n in range(10)])
    parts = [{one["partition"] for one in each.read(5)} for each in (first, second)]
    assert sorted(parts, key=min) == [{0}, {1}]
    first.delete()
    second.delete()


@pytest.mark.parametrize("form", ["avro", "protobuf", "jsonschema"])
def test_formats_with_schemas(rest: RunningRest, group: str, topic: str, form: str) -> None:
    schema = {"avro": json.dumps(AVRO), "protobuf": PROTO, "jsonschema": json.dumps(JSON_SCHEMA)}[form]
    value: Any = {"id": 1, "note": {"string": "x"}, "price": {"int": 5}, "raw": "\u00ff"}
    if form == "protobuf":
        value = {"id": "1", "customerName": "x"}
    key_schema = {"avro": '"string"', "protobuf": PROTO, "jsonschema": '{"type": "string"}'}[form]
    key = value if form == "protobuf" else "k"
    records = [{"key": key, "value": value}, {"key": key, "value": None}]
    answer = rest.produce(topic, form, records, value_schema=schema, key_schema=key_schema)
    assert answer.status_code == 200, answer.text
    consumer = rest.consumer(group, form)
    consumer.subscribe(topic)
    found = consumer.read(2)
    assert [one["value"] for one in found] == [value, None]
    assert [one["key"] for one in found] == [key, key]
    consumer.delete()


def test_binary_and_accept(rest: RunningRest, group: str, topic: str) -> None:
    rest.produce(topic, "binary", [{"key": "YQ==", "value": "/w=="}])
    consumer = rest.consumer(group, "binary")
    consumer.subscribe(topic)
    assert consumer.read(1)[0]["value"] == "/w=="
    assert refused(consumer.records(media_type("json"))) == (406, 40601)
    assert consumer.records(V2).status_code == 200
    assert consumer.records("*/*").headers["content-type"] == media_type("binary")
    assert consumer.records("application/json").headers["content-type"] == "application/json"
    assert refused(consumer.records("text/html")) == (406, 406)
    consumer.delete()
    consumer = rest.consumer(group, "json")
    assert refused(consumer.records(V2)) == (406, 40601)
    consumer.delete()


def test_a_record_that_cannot_be_read(rest: RunningRest, group: str, topic: str) -> None:
    """What comes before it is given out; it stays where it is until the client goes past it."""
    rest.produce(topic, "json", [{"value": 1}])
    rest.produce(topic, "binary", [{"value": "/w=="}])
    rest.produce(topic, "json", [{"value": 3}])
    consumer = rest.consumer(group)
    consumer.subscribe(topic)
    assert consumer.read(1)[0]["value"] == 1
    for _ in range(2):
        assert refused(consumer.records()) == (408, 40801)
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 2}]}
    assert consumer.post("/positions", body).status_code == 204
    assert consumer.read(1)[0]["value"] == 3
    consumer.delete()
    by_schema = rest.consumer(f"{group}-avro", "avro")
    by_schema.subscribe(topic)
    answer = None

    def tells() -> bool:
        nonlocal answer
        answer = by_schema.records()
        return answer.status_code != 200

    wait_until(tells)
    assert answer is not None and refused(answer) == (408, 40801)
    by_schema.delete()


def test_numbers_keep_their_digits(rest: RunningRest, group: str, topic: str) -> None:
    rest.produce(topic, "json", [{"value": 12345678901234567890123}])
    consumer = rest.consumer(group)
    consumer.subscribe(topic)
    assert consumer.read(1)[0]["value"] == 12345678901234567890123
    consumer.delete()


def test_idle_instances_end(bootstrap: str, registry: Any, group: str, topic: str) -> None:
    settings = {"consumer.instance.timeout.ms": 1500, "consumer.instances.max": 2}
    with RunningRest(bootstrap, registry.url, settings) as rest:
        fill(rest, topic, 1)
        first, _ = rest.consumer(group), rest.consumer(group)

        def create() -> httpx.Response:
            return rest.http.post(
                f"/consumers/{group}", json={"format": "json"}, headers={"Content-Type": V2}
            )

        assert refused(create()) == (429, 429)
        first.subscribe(topic)
        first.read(1)
        # Room for one more when the unused instance has ended, for another when `first` has. Asking `first`
        # would keep it alive.
        for _ in range(2):
            wait_until(lambda: create().status_code == 200)
        assert refused(first.records()) == (404, 40403)


def test_minimum_and_waiting(rest: RunningRest, group: str, topic: str) -> None:
    consumer = rest.consumer(group, **{"fetch.min.bytes": 100, "consumer.request.timeout.ms": 300})
    consumer.subscribe(topic)
    fill(rest, topic, 1)
    assert len(consumer.read(1)) == 1  # too little, but the time is up
    consumer.delete()
