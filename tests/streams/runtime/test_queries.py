"""Interactive queries on topics that are lists."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.client import LATEST, ClientConfig
from millstream.streams import SessionWindows, StreamsBuilder, TimeWindows, serdes
from millstream.streams.runtime import queries, topic_reader
from millstream.streams.runtime.queries import query_app
from millstream.streams.stores.layout import session_key, window_key
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

CLIENT = ClientConfig.of("127.0.0.1:1")
Raw = tuple[bytes, bytes | None, int]


def _long(number: int) -> bytes:
    return serdes.LONG.write("", number) or b""


class Topics:
    """A cluster of them."""

    def __init__(self) -> None:
        self.topics: dict[str, list[list[Raw]]] = {}
        self.ids: dict[str, uuid.UUID] = {}

    def make(self, name: str, *partitions: list[Raw]) -> None:
        self.topics[name] = list(partitions)
        self.ids[name] = uuid.uuid4()

    def refresh(self, names: list[str]) -> dict[str, KafkaError]:
        code = ErrorCode.unknown_topic_or_partition
        return {name: KafkaError(code, "no such topic") for name in names if name not in self.topics}

    def topic_id(self, name: str) -> uuid.UUID:
        return self.ids[name]

    def topic(self, name: str) -> Any:
        numbers = range(len(self.topics[name]))
        return SimpleNamespace(name=name, id=self.ids[name], partitions=dict.fromkeys(numbers))

    def list_offsets(self, _: Any, wanted: dict[TopicPartition, int], **__: Any) -> dict[TopicPartition, Any]:
        ends = {
            topic_partition: len(self.topics[topic_partition[0]][topic_partition[1]])
            for topic_partition in wanted
        }
        return {
            topic_partition: SimpleNamespace(offset=ends[topic_partition] if which == LATEST else 0)
            for topic_partition, which in wanted.items()
        }

    def read_ranges(
        self, _: Any, begin: dict[TopicPartition, int], until: dict[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, Any]]:
        for (topic, number), end in until.items():
            found = self.topics[topic][number][begin[topic, number] : end]
            if found:
                yield (topic, number), [(0, key, value, at, ()) for key, value, at in found]


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    found = Topics()
    monkeypatch.setattr(queries, "Cluster", lambda _: found)
    monkeypatch.setattr(topic_reader, "list_offsets", found.list_offsets)
    monkeypatch.setattr(topic_reader, "read_ranges", found.read_ranges)
    return found


def _client(builder: StreamsBuilder) -> Any:
    from fastapi.testclient import TestClient

    return TestClient(query_app(builder.build(), "app", CLIENT), raise_server_exceptions=False)


def test_only_its_own_names_and_pages(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn
    from fastapi.testclient import TestClient

    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized="counts")
    served: list[Any] = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **_: served.append(app))
    queries.serve(builder.build(), "app", CLIENT, "127.0.0.1", 7070, ["stores.corp.example"])
    client = TestClient(served[0])
    for host, expected in (("evil.example", 421), ("localhost:7070", 200), ("stores.corp.example", 200)):
        assert client.get("/stores", headers={"host": host}).status_code == expected, host
    elsewhere = {"host": "localhost:7070", "origin": "http://evil.example"}
    assert client.get("/stores", headers=elsewhere).status_code == 403


def test_every_partition_has_its_own_time(topics: Topics) -> None:
    """Windows of a slow partition are there although a faster one is far ahead."""
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.windowed_by(TimeWindows.of_size(10).grace(10)).count(materialized="windows")
    grouped.windowed_by(SessionWindows.of(10).grace(10)).count(materialized="sessions")
    slow, fast = 1_000, 9_000_000
    topics.make(
        "app-windows-changelog",
        [(window_key(b"fast", fast, 0), _long(1), fast)],
        [(window_key(b"slow", slow, 0), _long(2), slow)],
    )
    topics.make(
        "app-sessions-changelog",
        [(session_key(b"fast", fast, fast + 5), _long(1), fast)],
        [(session_key(b"slow", slow, slow + 5), _long(2), slow)],
    )
    client = _client(builder)
    for store, size in (("windows", 10), ("sessions", 5)):
        for key, start, count in (("fast", fast, 1), ("slow", slow, 2)):
            found = client.get(f"/stores/{store}/windows/{key}").json()
            assert found["windows"] == [{"start": start, "end": start + size, "value": count}]
            assert found["offsets"] == {"0": 1, "1": 1}


def test_keys_of_all_partitions_in_one_order(topics: Topics) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized="counts")
    topics.make(
        "app-counts-changelog",
        [(key, _long(0), 1) for key in (b"d", b"a", b"f")],
        [(key, _long(1), 1) for key in (b"e", b"b", b"c")],
        [],
    )
    client = _client(builder)
    rows = client.get("/stores/counts/keys").json()["rows"]
    assert [(row["key"], row["value"]) for row in rows] == list(
        zip("abcdef", [0, 1, 1, 0, 1, 0], strict=True)
    )
    rows = client.get("/stores/counts/keys", params={"first": "b", "last": "e", "limit": 3}).json()["rows"]
    assert [row["key"] for row in rows] == ["b", "c", "d"]
    assert client.get("/stores/counts/keys", params={"limit": -1}).json()["rows"] == []
    assert client.get("/stores/counts/keys/c").json()["value"] == 1


@pytest.mark.parametrize(
    ("serde", "good", "bad"),
    [
        (serdes.LONG, ["5", str(-(1 << 63))], ["x", str(1 << 63), str(-(1 << 80))]),
        (serdes.INTEGER, ["5"], [str(1 << 31)]),
        (serdes.SHORT, ["-5"], ["32768"]),
        (serdes.FLOAT, ["0.5"], ["1e300", "x"]),
        (serdes.BOOLEAN, ["true", "false"], ["yes", "True", "1"]),
        (serdes.UUID, ["12345678-1234-5678-1234-567812345678"], ["1234"]),
        (serdes.JSON, ['{"a":1}'], ["{", str(1 << 90)]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_keys_in_paths(topics: Topics, serde: serdes.Serde, good: list[str], bad: list[str]) -> None:
    builder = StreamsBuilder(key=serde)
    grouped = builder.stream("in").group_by_key()
    grouped.count(materialized="counts")
    grouped.windowed_by(TimeWindows.of_size(10)).count(materialized="windows")
    topics.make("app-counts-changelog", [])
    topics.make("app-windows-changelog", [])
    client = _client(builder)
    for text in bad:
        assert client.get(f"/stores/counts/keys/{text}").status_code == 400, text
        assert client.get("/stores/counts/keys", params={"last": text}).status_code == 400, text
        assert client.get(f"/stores/windows/windows/{text}").status_code == 400, text
    for text in good:
        assert client.get(f"/stores/counts/keys/{text}").status_code == 404, text
        assert client.get(f"/stores/windows/windows/{text}").json()["windows"] == [], text


@pytest.mark.parametrize("records", [1, 5])  # fewer than before, and more
def test_after_a_reset_nothing_old_is_left(topics: Topics, records: int) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized="counts")
    client = _client(builder)
    assert client.get("/stores/counts/keys/old").status_code == 503  # it has not been started
    topics.make("app-counts-changelog", [(key, _long(7), 1) for key in (b"old", b"both")])
    assert client.get("/stores/counts/keys/old").json()["value"] == 7
    topics.make("app-counts-changelog", [(b"both", _long(number), 1) for number in range(records)])
    assert client.get("/stores/counts/keys/old").status_code == 404
    found = client.get("/stores/counts/keys/both").json()
    assert (found["value"], found["offsets"]) == (records - 1, {"0": records})
    del topics.topics["app-counts-changelog"]
    assert client.get("/stores/counts/keys/both").status_code == 503


def test_global_tables(topics: Topics) -> None:
    builder = StreamsBuilder()
    shops = builder.global_table("shops", materialized="shops-by-number")
    builder.stream("in").join(shops, lambda order, shop: shop, key=lambda key, order: key).to("out")
    topics.make("shops", [(b"2", b"Mill", 5)], [(b"1", b"Dam", 6), (b"3", b"Gone", 7), (b"3", None, 8)])
    client = _client(builder)
    assert [store["name"] for store in client.get("/stores").json()["stores"]] == ["shops-by-number"]
    found = client.get("/stores/shops-by-number/keys/2").json()
    assert (found["value"], found["timestamp"], found["offsets"]) == ("Mill", 5, {"0": 1, "1": 3})
    topics.topics["shops"][0].append((b"2", b"Weir", 9))
    rows = client.get("/stores/shops-by-number/keys").json()["rows"]
    assert [(row["key"], row["value"]) for row in rows] == [("1", "Dam"), ("2", "Weir")]
