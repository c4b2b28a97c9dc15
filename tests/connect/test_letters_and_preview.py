"""Dead letters once more, and what a configuration would do before it is created."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.connect.api import SourceContext, SourceTask
from millstream.connect.data.record import SourceRecord
from millstream.connect.runtime.redrive import COUNT_HEADER, belongs, counted, original
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition
from tests.connect.conftest import Worker
from tests.connect.test_worker import lines, sink, source
from tests.support.waiting import wait_until

MakeWorker = Callable[..., Worker]
TOLERANT = {
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
    "errors.tolerance": "all",
    "errors.deadletterqueue.context.headers.enable": "true",
}


def send(servers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value, headers={"own": b"kept"})
    producer.flush()


def end_offset(servers: str, topic: str) -> int:
    """0 if there is no such topic yet."""
    with Cluster(ClientConfig.of(servers)) as cluster:
        cluster.refresh()
        if topic not in cluster.topics:
            return 0
        partition = TopicPartition(topic, 0)
        return list_offsets(cluster, {partition: LATEST})[partition].offset


def test_letters_go_to_the_sink_once_more(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    send(connect_broker, "redriven", b'"a"', b"not json", b'"b"', b"nor this")
    copied = tmp_path / "out.txt"
    worker = make_worker()
    letters = {"errors.deadletterqueue.topic.name": "redriven-letters"}
    worker.http.put("/connectors/r/config", json=sink(copied, "redriven", **TOLERANT, **letters))
    wait_until(lambda: lines(copied) == ["a", "b"])
    # Letters go out with the commit that passes their records.
    wait_until(lambda: end_offset(connect_broker, "redriven-letters") >= 2)
    assert worker.http.get("/connectors/r/redrive").status_code == 404
    # What they needed was another converter.
    plain = {**sink(copied, "redriven", **TOLERANT, **letters), "value.converter": "StringConverter"}
    worker.http.put("/connectors/r/config", json=plain)
    answer = worker.http.post("/connectors/r/redrive")
    assert answer.status_code == 202
    assert answer.json()["topic"] == "redriven-letters"
    assert answer.json()["letters"] >= 2
    wait_until(lambda: lines(copied) == ["a", "b", "not json", "nor this"])
    wait_until(lambda: worker.http.get("/connectors/r/redrive").json()["done"])
    send(connect_broker, "redriven", b"after")
    wait_until(lambda: lines(copied)[4:] == ["after"])
    assert worker.http.delete("/connectors/r/redrive").status_code == 204
    wait_until(lambda: worker.states("r") == ["RUNNING", "RUNNING"])
    assert lines(copied) == ["a", "b", "not json", "nor this", "after"]


def test_what_fails_again_is_a_letter_again(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    send(connect_broker, "hopeless", b"not json")
    worker = make_worker()
    letters = {"errors.deadletterqueue.topic.name": "hopeless-letters"}
    settings = sink(tmp_path / "out.txt", "hopeless", **TOLERANT, **letters)
    worker.http.put("/connectors/h/config", json=settings)
    for _ in range(2):
        wait_until(lambda: worker.http.post("/connectors/h/redrive").json().get("letters", 0) > 0)
        wait_until(lambda: worker.http.get("/connectors/h/redrive").json()["done"])
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": connect_broker, "group.id": "hopeless-check", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["hopeless-letters"])
    found: list[dict[str, bytes]] = []

    def read() -> bool:
        for message in consumer.consume(10, timeout=1):
            found.append(dict(message.headers() or []))
        return len(found) >= 3

    wait_until(read)
    consumer.close()
    assert [one.get(COUNT_HEADER) for one in found] == [None, b"1", b"2"]
    for one in found:
        assert one["__connect.errors.topic"] == b"hopeless"
        assert one["__connect.errors.offset"] == b"0"
        assert one["own"] == b"kept"


def test_a_letter_says_what_it_was() -> None:
    which = TopicPartition("letters", 0)
    letter = Record(
        7,
        5,
        b"k",
        b"v",
        (
            ("own", b"1"),
            ("__connect.errors.topic", b"t"),
            ("__connect.errors.partition", b"3"),
            ("__connect.errors.offset", b"42"),
            ("__connect.errors.connector.name", b"x"),
        ),
    )
    place, before = original(which, letter)
    assert place == TopicPartition("t", 3)
    assert (before.offset, before.headers, before.key) == (42, (("own", b"1"),), b"k")
    assert belongs(letter, "x")
    assert not belongs(letter, "y")
    assert counted(counted(letter)).headers == (("own", b"1"), (COUNT_HEADER, b"2"))
    assert original(which, Record(7, 5, None, b"v", ()))[0] == which


def test_preview_of_a_source_and_a_sink(make_worker: MakeWorker, connect_broker: str, tmp_path: Path) -> None:
    worker = make_worker()
    written = tmp_path / "in.txt"
    written.write_text("one\ntwo\nthree\n")
    chain = {
        "transforms": "hoist,drop",
        "transforms.hoist.type": "HoistField$Value",
        "transforms.hoist.field": "line",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "never",
        "predicates": "never",
        "predicates.never.type": "RecordIsTombstone",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    path = "/connector-plugins/FileStreamSource/config/preview?records=2"
    found = worker.http.put(path, json=source(written, "never-made", **chain)).json()
    assert [one["record"]["value"] for one in found["records"]] == ["one", "two"]
    assert found["records"][0]["transforms"][0]["record"]["value"] == {"line": "one"}
    assert found["records"][0]["bytes"]["value"] == '{"line":"one"}'
    assert worker.http.get("/connectors").json() == []
    send(connect_broker, "looked-at", b"a", b"b")
    copied = tmp_path / "out.txt"
    path = "/connector-plugins/FileStreamSink/config/preview"
    found = worker.http.put(path, json=sink(copied, "looked-at")).json()
    assert found["sink"] == ["append 'a'", "append 'b'"]
    assert not copied.exists()
    wrong = worker.http.put(path, json={"connector.class": "FileStreamSink"})
    assert wrong.status_code == 400
    refused = worker.http.put(f"{path}?records=many", json=sink(copied, "looked-at"))
    assert refused.status_code == 400


def test_metrics_of_tasks(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    written = tmp_path / "in.txt"
    written.write_text("one\ntwo\n")
    worker.http.put("/connectors/m/config", json=source(written, "measured"))
    wait_until(lambda: worker.http.get("/connectors/m/metrics").json()["tasks"][:1] and _written(worker) == 2)
    page = worker.http.get("/metrics").text
    assert 'kafka_connect_task_records_written_total{connector="m",task="0"} 2.0' in page
    assert 'kafka_connect_connectors{state="RUNNING"} 1.0' in page


def _written(worker: Worker) -> int:
    return int(worker.http.get("/connectors/m/metrics").json()["tasks"][0]["written"])


class ByHundreds(SourceTask):
    """Ends a transaction after each hundred records."""

    def start(self, settings: dict[str, str], context: SourceContext) -> None:
        self._context = context
        offset = context.offset({"p": 0})
        self._next = int(offset["n"]) if offset else 0

    def poll(self) -> Sequence[SourceRecord]:
        if self._next >= 250:
            return []
        self._next += 10
        if self._next % 100 == 0:
            self._context.commit_transaction()
        return [
            SourceRecord(
                topic="hundreds",
                value=str(number),
                source_partition={"p": 0},
                source_offset={"n": number + 1},
            )
            for number in range(self._next - 10, self._next)
        ]


@pytest.mark.parametrize("boundary", ["connector", "interval"])
def test_transactions_end_where_they_are_told_to(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path, boundary: str
) -> None:
    module = tmp_path / f"hundreds_{boundary}.py"
    module.write_text(
        "from millstream.connect.api import SourceConnector\n"
        "from millstream.connect.config.config_def import ConfigDef\n"
        "from tests.connect.test_letters_and_preview import ByHundreds\n"
        "class Hundreds(SourceConnector):\n"
        "    task = ByHundreds\n"
        "    config = ConfigDef()\n"
    )
    worker = make_worker(plugin_path=str(tmp_path))
    settings = {"connector.class": f"hundreds_{boundary}.Hundreds", "transaction.boundary": boundary}
    if boundary == "interval":
        settings["transaction.boundary.interval.ms"] = "200"
    worker.http.put(f"/connectors/h-{boundary}/config", json=settings)

    def offset() -> int:
        found = worker.http.get(f"/connectors/h-{boundary}/offsets").json()["offsets"]
        return int(found[0]["offset"]["n"]) if found else 0

    # The last fifty wait for an end that the connector never names.
    wait_until(lambda: offset() == (200 if boundary == "connector" else 250))
    assert worker.states(f"h-{boundary}")[0] == "RUNNING"
