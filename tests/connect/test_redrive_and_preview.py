"""Dead letters once more, and what a configuration would do before it is created."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.connect.api import SinkTask, SourceContext, SourceTask
from millstream.connect.data.record import SinkRecord, SourceRecord
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Type, struct_schema
from millstream.connect.data.struct import Struct
from millstream.connect.plugins import find_connector
from millstream.connect.runtime.redrive import COUNT_HEADER, belongs, count_redrive, original
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
    dead_letters = {"errors.deadletterqueue.topic.name": "redriven-letters"}
    worker.http.put("/connectors/r/config", json=sink(copied, "redriven", **TOLERANT, **dead_letters))
    wait_until(lambda: lines(copied) == ["a", "b"])
    # Letters go out with the commit that passes their records.
    wait_until(lambda: end_offset(connect_broker, "redriven-letters") >= 2)
    assert worker.http.get("/connectors/r/redrive").status_code == 404
    # What they needed was another converter.
    plain = {**sink(copied, "redriven", **TOLERANT, **dead_letters), "value.converter": "StringConverter"}
    worker.http.put("/connectors/r/config", json=plain)
    answer = worker.http.post("/connectors/r/redrive")
    assert answer.status_code == 202
    assert answer.json()["topic"] == "redriven-letters"
    assert answer.json()["dead_letters"] >= 2
    wait_until(lambda: lines(copied) == ["a", "b", "not json", "nor this"])
    wait_until(lambda: worker.http.get("/connectors/r/redrive").json()["done"])
    send(connect_broker, "redriven", b"after")
    wait_until(lambda: lines(copied)[4:] == ["after"])
    assert worker.http.delete("/connectors/r/redrive").status_code == 204
    wait_until(lambda: worker.states("r") == ["RUNNING", "RUNNING"])
    assert lines(copied) == ["a", "b", "not json", "nor this", "after"]


def test_letters_are_chosen_by_an_expression(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    send(connect_broker, "picked", b'"a"', b"first", b"second", b"third")
    copied = tmp_path / "out.txt"
    worker = make_worker()
    dead_letters = {"errors.deadletterqueue.topic.name": "picked-letters"}
    worker.http.put("/connectors/p/config", json=sink(copied, "picked", **TOLERANT, **dead_letters))
    wait_until(lambda: lines(copied) == ["a"])
    wait_until(lambda: end_offset(connect_broker, "picked-letters") >= 3)
    plain = {**sink(copied, "picked", **TOLERANT, **dead_letters), "value.converter": "StringConverter"}
    worker.http.put("/connectors/p/config", json=plain)
    for body, words in (
        ({"where": "value ~~ 3"}, "where: "),
        ({"where": 5}, "has to be an object"),
        ([], "has to be an object"),
    ):
        answer = worker.http.post("/connectors/p/redrive", json=body)
        assert answer.status_code == 400 and words in answer.json()["message"]
    where = 'value == "second" and offset == 2 and headers["__connect.errors.stage"] != null'
    assert worker.http.post("/connectors/p/redrive", json={"where": where}).status_code == 202
    wait_until(lambda: worker.http.get("/connectors/p/redrive").json()["done"])
    wait_until(lambda: lines(copied) == ["a", "second"])
    # The others are still there, for the next one.
    assert worker.http.post("/connectors/p/redrive").status_code == 202
    wait_until(lambda: sorted(lines(copied)) == ["a", "first", "second", "third"])
    wait_until(lambda: worker.http.get("/connectors/p/redrive").json()["done"])
    assert sorted(lines(copied)) == ["a", "first", "second", "third"]


def test_what_fails_again_is_a_letter_again(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    send(connect_broker, "hopeless", b"not json")
    worker = make_worker()
    dead_letters = {"errors.deadletterqueue.topic.name": "hopeless-letters"}
    settings = sink(tmp_path / "out.txt", "hopeless", **TOLERANT, **dead_letters)
    worker.http.put("/connectors/h/config", json=settings)
    for _ in range(2):
        wait_until(lambda: worker.http.post("/connectors/h/redrive").json().get("dead_letters", 0) > 0)
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
    source, before = original(which, letter)
    assert source == TopicPartition("t", 3)
    assert (before.offset, before.headers, before.key) == (42, (("own", b"1"),), b"k")
    assert belongs(letter, "x")
    assert not belongs(letter, "y")
    assert count_redrive(count_redrive(letter)).headers == (("own", b"1"), (COUNT_HEADER, b"2"))
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


PREVIEWS = [
    (
        "JdbcSink",
        {
            "connection.url": "jdbc:sqlite:{folder}/never.db",
            "insert.mode": "upsert",
            "pk.mode": "record_value",
            "pk.fields": "id",
        },
        ['INSERT INTO "orders"("id","name") VALUES(?,?) ON CONFLICT', "with (1, 'a') and 1 more", "refuse 2"],
    ),
    (
        "FileSink",
        {"store.url": "{folder}/never", "format.class": "ParquetFormat", "flush.size": "10"},
        ["write 2 of 10 records to topics/orders/partition=0/orders+0+", "refuse orders-0@2: it has no"],
    ),
    (
        "io.confluent.connect.http.HttpSinkConnector",
        {"http.api.url": "http://nowhere.invalid/${topic}", "behavior.on.null.values": "delete"},
        ['POST http://nowhere.invalid/orders {"id":1,"name":"a"}', "DELETE http://nowhere.invalid/orders"],
    ),
    (
        "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector",
        {"connection.url": "http://nowhere.invalid", "key.ignore": "true", "behavior.on.null.values": "fail"},
        ['"_index":"orders"', '{"id":1,"name":"a"}', "refuse 2: a record without a value is no document"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("plugin", "settings", "words"), PREVIEWS, ids=[one[0] for one in PREVIEWS])
def test_preview_of_what_other_sinks_would_do(
    plugin: str, settings: dict[str, str], words: list[str], tmp_path: Path
) -> None:
    """Nobody is asked: neither the database nor the server is there."""
    schema = struct_schema([("id", REQUIRED[Type.INT32]), ("name", OPTIONAL[Type.STRING])])
    values = [Struct(schema, [1, "a"]), Struct(schema, [2, "b"]), None]
    records = [
        SinkRecord(topic="orders", partition=0, offset=at, value=value, value_schema=schema, timestamp=0)
        for at, value in enumerate(values)
    ]
    own = {name: text.replace("{folder}", str(tmp_path)) for name, text in settings.items()}
    given = {"name": "p", "connector.class": plugin, "topics": "orders", **own}
    task = find_connector(plugin, ()).task()
    assert isinstance(task, SinkTask)
    said = "\n".join(task.preview(records, given))
    for text in words:
        assert text in said
    assert list(tmp_path.iterdir()) == []


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
        "from tests.connect.test_redrive_and_preview import ByHundreds\n"
        "class Hundreds(SourceConnector):\n"
        "    task = ByHundreds\n"
        "    config = ConfigDef()\n"
        "    defines_transactions = True\n"
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
