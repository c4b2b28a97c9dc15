"""The search sink against a server of our own; tests/interop has a real OpenSearch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from millstream.connect.config.config_def import ConfigError
from millstream.connect.data import logical
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Type, map_schema, struct_schema
from millstream.connect.data.struct import Struct
from millstream.connect.errors import ConnectError, RetriableError
from millstream.testing.connect import SinkRun
from tests.connect.search_server import SearchServer

OPENSEARCH = "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector"
ELASTICSEARCH = "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"


@pytest.fixture
def server() -> Iterator[SearchServer]:
    with SearchServer() as made:
        yield made


def sink_to(server: SearchServer, *, tolerate: bool = False, **more: str) -> SinkRun:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    return SinkRun(OPENSEARCH, {"connection.url": server.url, **settings}, tolerate=tolerate)


def test_keys_are_ids_and_the_newest_record_wins(server: SearchServer) -> None:
    sink = sink_to(server, behavior_on_null_values="delete")
    for key, value in (("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 3}), ("b", None), ("gone", None)):
        sink.send(value, key=key, topic="Orders")
    sink.run()
    assert server.documents == {"orders": {"a": {"n": 3}}}
    # All of it again, from the beginning: nothing changes, an old record does not come back.
    sink.committed.clear()
    again = sink.restarted()
    again.run()
    assert server.documents == {"orders": {"a": {"n": 3}}}
    assert again.lag == 0


def test_places_are_ids_where_keys_are_ignored(server: SearchServer) -> None:
    sink = sink_to(server, key_ignore="true", topic_index_map="test:other")
    sink.send({"n": 1}, key="same")
    sink.send({"n": 2}, key="same")
    sink.run()
    assert server.documents == {"other": {"test+0+0": {"n": 1}, "test+0+1": {"n": 2}}}


def test_upserts_keep_other_fields(server: SearchServer) -> None:
    sink = SinkRun(ELASTICSEARCH, {"connection.url": server.url, "write.method": "upsert"})
    sink.send({"a": 1}, key=7)
    sink.send({"b": 2}, key=7)
    sink.run()
    assert server.documents == {"test": {"7": {"a": 1, "b": 2}}}


def test_a_schema_becomes_the_mapping_of_a_new_index(server: SearchServer) -> None:
    schema = struct_schema(
        [
            ("id", REQUIRED[Type.INT32]),
            ("name", OPTIONAL[Type.STRING]),
            ("price", logical.decimal_schema(2)),
            ("day", logical.DATE_SCHEMA),
            ("tags", map_schema(REQUIRED[Type.STRING], REQUIRED[Type.INT64])),
        ]
    )
    day = datetime(2026, 11, 17, tzinfo=UTC)
    sink = sink_to(server)
    sink.send(Struct(schema, [1, "bell", Decimal("9.50"), day, {"x": 1}]), key="k", value_schema=schema)
    sink.run()
    assert server.documents["test"]["k"] == {
        "id": 1,
        "name": "bell",
        "price": 9.5,
        "day": "2026-11-17",
        "tags": {"x": 1},
    }
    properties = server.mappings["test"]["properties"]
    assert {name: found["type"] for name, found in properties.items()} == {
        "id": "integer",
        "name": "text",
        "price": "double",
        "day": "date",
    }
    ignoring = sink_to(server, schema_ignore="true")
    ignoring.send(
        Struct(schema, [1, None, Decimal("9.50"), day, {}]), key="k", topic="t2", value_schema=schema
    )
    ignoring.run()
    assert server.mappings["t2"] is None


def test_documents_that_are_refused(server: SearchServer) -> None:
    values: list[tuple[object, object]] = [
        ("a", {"n": 1}),
        ("b", {"poison": 1}),
        ("c", "text"),
        (None, {"n": 2}),
    ]
    tolerant = sink_to(server, tolerate=True)
    quiet = sink_to(server, behavior_on_malformed_documents="ignore")
    strict = sink_to(server)
    for sink in (tolerant, quiet, strict):
        for key, value in values:
            sink.send(value, key=key)
    tolerant.run()
    assert sorted(record.offset for record, _ in tolerant.rejected) == [1, 2, 3]
    assert server.documents == {"test": {"a": {"n": 1}}}
    quiet.run()
    assert quiet.lag == 0
    with pytest.raises(ConnectError):
        strict.run()


def test_a_busy_server_gets_the_rest_later(server: SearchServer) -> None:
    server.busy = 3
    sink = sink_to(server, batch_size="10", max_retries="2", tolerate=True)
    for number in range(4):
        sink.send({"n": number}, key=str(number))
    sink.send({"poison": 1}, key="p")
    with pytest.raises(RetriableError) as raised:
        sink.run()
    assert raised.value.delay == 0.1
    sink.run()
    assert server.bulks == [5, 3]
    assert {document["n"] for document in server.documents["test"].values()} == {0, 1, 2, 3}
    assert len(sink.rejected) == 1


def test_a_server_that_is_away_and_another_one(server: SearchServer) -> None:
    sink = sink_to(server, connection_url=f"http://127.0.0.1:1,{server.url}")
    sink.send({"n": 1}, key="a")
    with pytest.raises(RetriableError):
        sink.run()
    sink.run()
    assert server.documents == {"test": {"a": {"n": 1}}}
    lost = sink_to(server, connection_url="http://127.0.0.1:1", max_retries="1")
    lost.send({"n": 1}, key="a")
    for kind in (RetriableError, ConnectError):
        with pytest.raises(kind) as raised:
            lost.run()
    assert not isinstance(raised.value, RetriableError)


def test_full_batches_go_at_once_and_a_failure_takes_no_record_twice(server: SearchServer) -> None:
    sink = sink_to(server, batch_size="3", key_ignore="true")
    records = [sink.send({"n": number}) for number in range(4)]
    sink.step()
    server.busy = 1
    sink.task.put(records[:3])
    assert server.bulks == [3]
    with pytest.raises(RetriableError):
        server.busy = 1
        sink.task.put(records[3:])
    sink.task.put(records[3:])
    sink.task.flush({})
    assert server.bulks == [3, 1, 1, 1]
    assert len(server.documents["test"]) == 4


def test_data_streams(server: SearchServer) -> None:
    sink = SinkRun(
        ELASTICSEARCH,
        {
            "connection.url": server.url,
            "data.stream.type": "LOGS",
            "data.stream.dataset": "app",
            "key.ignore": "true",
        },
    )
    sink.send({"n": 1}, timestamp=5)
    sink.run()
    sink.committed.clear()
    sink.restarted().run()
    assert server.documents == {"logs-app-test": {"test+0+0": {"n": 1, "@timestamp": 5}}}


def test_wrong_settings(server: SearchServer) -> None:
    for settings, text in (
        ({"connection_url": "nonsense"}, "malformed URL"),
        ({"write_method": "replace"}, "must be one of"),
        ({"topic_index_map": "x"}, "topic:index"),
    ):
        with pytest.raises(ConfigError, match=text):
            sink_to(server, **settings)
