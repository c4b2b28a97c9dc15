"""Version 3: records as a stream."""

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from .rest_client import RunningRest
from .test_produce import AVRO, PROTO, on_the_wire, refused


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line]


def test_one_record(rest: RunningRest, bootstrap: str, cluster: str, topic: str) -> None:
    body = {
        "partition_id": 0,
        "headers": [{"name": "h", "value": "AQ=="}, {"name": "h"}],
        "key": {"type": "BINARY", "data": "YQ=="},
        "value": {"type": "JSON", "data": {"a": 1}},
        "timestamp": "2021-02-05T19:14:42.123Z",
    }
    answer = rest.http.post(f"{cluster}/topics/{topic}/records", json=body)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert lines(answer.text) == [
        {
            "error_code": 200,
            "cluster_id": cluster.rpartition("/")[2],
            "topic_name": topic,
            "partition_id": 0,
            "offset": 0,
            "timestamp": "2021-02-05T19:14:42.123Z",
            "key": {"type": "BINARY", "size": 1},
            "value": {"type": "JSON", "size": 7},
        }
    ]
    (record,) = on_the_wire(bootstrap, topic, 1)
    assert (record.key(), record.value(), record.timestamp()[1]) == (b"a", b'{"a":1}', 1612552482123)
    assert record.headers() == [("h", b"\1"), ("h", None)]


def test_many_records_with_errors_between(rest: RunningRest, cluster: str, topic: str) -> None:
    items = [
        {"value": {"type": "STRING", "data": "one"}},
        {"value": {"type": "BINARY", "data": 1}},
        {"partition_id": 9, "value": {"type": "STRING", "data": "x"}},
        {"partition_id": -1, "value": {"type": "STRING", "data": "x"}},
        {"value": {"type": "NOTHING", "data": "x"}},
        {"value": {"type": "JSON", "schema_id": 1, "data": "x"}},
        {"value": {"schema_id": 2**31 - 1, "data": "x"}},
        {"timestamp": "yesterday"},
        {"more": 1},
        7,
        {"headers": [1]},
        {"value": {"type": "STRING", "data": "two"}},
        {},
    ]
    content = "\n".join(json.dumps(one) for one in items)
    answer = rest.http.post(
        f"{cluster}/topics/{topic}/records", content=content, headers={"Content-Type": "application/json"}
    )
    results = lines(answer.text)
    codes = [200, 400, 40403, 40402, 400, 400, 422, 400, 400, 400, 400, 200, 200]
    assert [one["error_code"] for one in results] == codes
    assert results[1]["message"] == "Bad Request: data=1 is not a base64 string."
    assert results[6]["message"].startswith("Error: 42207 : ")
    assert [one.get("offset") for one in results if one["error_code"] == 200] == [0, 1, 2]


def test_schemas(rest: RunningRest, cluster: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    path = f"{cluster}/topics/{topic}/records"

    def produce(value: dict[str, Any]) -> dict[str, Any]:
        (result,) = lines(rest.http.post(path, json={"value": value}).text)
        return result

    data = {"id": 1, "note": None, "price": {"double": 1.5}, "raw": ""}
    made = produce({"type": "AVRO", "schema": json.dumps(AVRO), "data": data})
    assert made["error_code"] == 200, made
    described = made["value"]
    assert (described["type"], described["subject"], described["schema_version"]) == (
        "AVRO",
        f"{topic}-value",
        1,
    )
    for value in (
        {"data": data},
        {"schema_id": described["schema_id"], "data": data},
        {"schema_version": 1, "data": data},
        {"subject": f"{topic}-value", "schema_version": 1, "data": data},
        {"subject": f"{topic}-value", "data": data},
    ):
        assert produce(value)["value"] == described, value
    by_record = produce(
        {"type": "AVRO", "subject_name_strategy": "RECORD_NAME", "schema": json.dumps(AVRO), "data": data}
    )
    assert by_record["value"]["subject"] == "shop.Order"
    by_subject = produce({"type": "PROTOBUF", "subject": f"{topic}-p", "schema": PROTO, "data": {"id": 1}})
    assert by_subject["value"]["type"] == "PROTOBUF"
    for value, code in (
        ({"schema_id": 1, "schema_version": 1, "data": 1}, 400),
        ({"type": "AVRO", "data": 1}, 400),
        ({"schema": '"int"', "data": 1}, 400),
        ({"type": "AVRO", "schema": "nonsense", "data": 1}, 422),
        ({"subject_name_strategy": "RECORD_NAME", "data": 1}, 400),
        ({"subject": "a", "subject_name_strategy": "RECORD_NAME", "data": 1}, 400),
        ({"subject": "no-such-subject", "data": 1}, 422),
        ({"data": {"id": "x"}}, 400),
    ):
        assert produce(value)["error_code"] == code, value


def test_results_come_while_the_request_is_open(rest: RunningRest, cluster: str, topic: str) -> None:
    parts = urlsplit(rest.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    connection.putrequest("POST", f"{cluster}/topics/{topic}/records")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()

    def send(data: bytes) -> None:
        connection.send(b"%x\r\n%s\r\n" % (len(data), data))

    record = b'{"value": {"type": "STRING", "data": "\xc3\xbc"}}'
    half = record.index(b"\xc3") + 1  # in the middle of a character
    send(record + record[:half])
    answer = connection.getresponse()
    assert json.loads(answer.readline())["offset"] == 0
    send(record[half:])
    assert json.loads(answer.readline())["offset"] == 1
    send(record * 3)
    assert [json.loads(answer.readline())["offset"] for _ in range(3)] == [2, 3, 4]
    send(b"{nonsense")
    connection.send(b"0\r\n\r\n")
    assert json.loads(answer.readline())["error_code"] == 400
    assert answer.read() == b""
    connection.close()


def test_a_long_stream(rest: RunningRest, cluster: str, topic: str) -> None:
    def content() -> Iterator[bytes]:
        for start in range(0, 5000, 50):
            yield b"".join(
                json.dumps({"value": {"type": "STRING", "data": str(n)}}).encode()
                for n in range(start, start + 50)
            )

    path = f"{cluster}/topics/{topic}/records"
    answer = rest.http.post(path, content=content(), headers={"Content-Type": "application/json"})
    assert [one["offset"] for one in lines(answer.text)] == list(range(5000))


def test_batch(rest: RunningRest, cluster: str, topic: str) -> None:
    path = f"{cluster}/topics/{topic}/records:batch"
    entries = [
        {"id": "1", "value": {"type": "STRING", "data": "a"}},
        {"id": "2", "value": {"type": "BINARY", "data": 1}},
    ]
    answer = rest.http.post(path, json={"entries": entries})
    assert answer.status_code == 207
    body = answer.json()
    assert [(one["id"], one["offset"]) for one in body["successes"]] == [("1", 0)]
    failure = {"id": "2", "error_code": 400, "message": "Bad Request: data=1 is not a base64 string."}
    assert body["failures"] == [failure]
    for bad in ([], [{"id": "1"}, {"id": "1"}], [{"id": ""}], [{"id": str(n)} for n in range(11)]):
        assert refused(rest.http.post(path, json={"entries": bad})) == (422, 42208)


def test_refused(rest: RunningRest, cluster: str, topic: str) -> None:
    path = f"{cluster}/topics/{topic}/records"
    assert refused(rest.http.post(path)) == (422, 42206)
    kind = {"Content-Type": "application/vnd.kafka.json.v2+json"}
    assert refused(rest.http.post(path, content="{}", headers=kind)) == (415, 415)
    wrong = path.replace(cluster.rpartition("/")[2], "other")
    assert refused(rest.http.post(wrong, json={})) == (404, 404)
    answer = rest.http.post(path.replace(topic, "not a topic!"), json={})
    assert [one["error_code"] for one in lines(answer.text)] == [40403]


@pytest.mark.parametrize("size", [1_000_000, 11_000_000])
def test_large_records(rest: RunningRest, cluster: str, topic: str, size: int) -> None:
    data = base64.b64encode(bytes(size * 3 // 4)).decode()
    answer = rest.http.post(
        f"{cluster}/topics/{topic}/records", json={"value": {"type": "STRING", "data": data}}
    )
    (result,) = lines(answer.text)
    assert result["error_code"] == (200 if size < 1_040_000 else 400), result
