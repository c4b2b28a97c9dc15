"""Interactive queries on topics that are lists."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.client import LATEST, ClientConfig
from millstream.http.host_names import HostNames
from millstream.http.serving import HttpService
from millstream.streams import Materialized, SessionWindows, StreamsBuilder, TimeWindows, serdes
from millstream.streams.runtime import topic_reader
from millstream.streams.runtime.queries import query_service
from millstream.streams.stores.layout import session_key, window_key
from millstream.streams.views import topic_view
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

CLIENT = ClientConfig.of("127.0.0.1:1")
Raw = tuple[bytes, bytes | None, int]


def _long(number: int) -> bytes:
    return serdes.LONG.write("", number) or b""


class Reads(list[Any]):
    def __init__(self, found: list[Raw], first: int) -> None:
        super().__init__((first + n, *raw, ()) for n, raw in enumerate(found))
        self.offsets = range(first, first + len(found))
        self.last_offset = first + len(found) - 1


class Topics:
    """A cluster of them."""

    def close(self) -> None:
        pass

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
                first = begin[TopicPartition(topic, number)]
                yield TopicPartition(topic, number), Reads(found, first)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    found = Topics()
    monkeypatch.setattr(topic_view, "Cluster", lambda _: found)
    monkeypatch.setattr(topic_reader, "list_offsets", found.list_offsets)
    monkeypatch.setattr(topic_reader, "read_ranges", found.read_ranges)
    return found


Ask = Callable[..., Any]


def client_of(service: HttpService) -> Any:
    from fastapi.testclient import TestClient

    return TestClient(service.app, "http://localhost", raise_server_exceptions=False)


@pytest.fixture
def ask(topics: Topics, tmp_path: Path) -> Iterator[Ask]:
    with contextlib.ExitStack() as open_services:

        def client(builder: StreamsBuilder, *allowed_hosts: str) -> Any:
            hosts = HostNames(["127.0.0.1"], allowed_hosts, setting="allowed_hosts")
            service = query_service(builder.build(), "app", CLIENT, tmp_path, hosts)
            open_services.callback(lambda: asyncio.run(service.stop()))
            return open_services.enter_context(client_of(service))

        yield client


def _counts() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized="counts")
    return builder


def test_only_its_own_names_and_pages(topics: Topics, ask: Ask) -> None:
    client = ask(_counts(), "stores.corp.example")
    for host, expected in (("evil.example", 421), ("localhost:7070", 200), ("stores.corp.example", 200)):
        assert client.get("/stores", headers={"host": host}).status_code == expected, host
    elsewhere = {"host": "localhost:7070", "origin": "http://evil.example"}
    assert client.get("/stores", headers=elsewhere).status_code == 403


def test_errors_and_metrics_are_those_of_the_other_services(topics: Topics, ask: Ask) -> None:
    client = ask(_counts())
    refused = client.get("/stores/nothing/keys/a")
    assert refused.status_code == 404
    assert refused.json() == {"error_code": 404, "message": "there is no store nothing; there are counts"}
    wrong = client.get("/stores/counts/keys", params={"limit": "many"})
    assert (wrong.status_code, wrong.json()["error_code"]) == (422, 422)
    assert wrong.json()["message"].startswith("limit: ")
    assert client.get("/stores", headers={"accept": "text/csv"}).status_code == 406
    assert client.get("/elsewhere").json()["error_code"] == 404
    page = client.get("/metrics").text
    assert 'route="/stores/{name}/keys/{key}",service="queries",status="404"' in page


def test_it_listens_until_a_signal_comes(tmp_path: Path) -> None:
    """In a process of its own, as one is meant to be run: no store is read, so no broker is needed."""
    import httpx

    script = (
        "from millstream.streams import Streams, StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('in').group_by_key().count(materialized='counts')\n"
        f"app = Streams(builder.build(), 'app', bootstrap_servers='127.0.0.1:1', state={str(tmp_path)!r})\n"
        "app.serve_queries(port=0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            assert ready.startswith("millstream queries ready listeners=http://127.0.0.1:")
            address = ready.split("listeners=")[1].split()[0]
            stores = httpx.get(f"{address}/stores").json()["stores"]
            assert [store["name"] for store in stores] == ["counts"]
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_every_partition_has_its_own_time(topics: Topics, ask: Ask) -> None:
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
    client = ask(builder)
    for store, size in (("windows", 10), ("sessions", 5)):
        for key, start, count in (("fast", fast, 1), ("slow", slow, 2)):
            found = client.get(f"/stores/{store}/windows/{key}").json()
            assert found["windows"] == [{"start": start, "end": start + size, "value": count}]
            assert found["offsets"] == {"0": 1, "1": 1}


def test_keys_of_all_partitions_in_one_order(topics: Topics, ask: Ask) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized="counts")
    topics.make(
        "app-counts-changelog",
        [(key, _long(0), 1) for key in (b"d", b"a", b"f")],
        [(key, _long(1), 1) for key in (b"e", b"b", b"c")],
        [],
    )
    client = ask(builder)
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
def test_keys_in_paths(
    topics: Topics, ask: Ask, serde: serdes.Serde, good: list[str], bad: list[str]
) -> None:
    builder = StreamsBuilder(key=serde)
    grouped = builder.stream("in").group_by_key()
    grouped.count(materialized="counts")
    grouped.windowed_by(TimeWindows.of_size(10)).count(materialized="windows")
    topics.make("app-counts-changelog", [])
    topics.make("app-windows-changelog", [])
    client = ask(builder)
    for text in bad:
        assert client.get(f"/stores/counts/keys/{text}").status_code == 400, text
        assert client.get("/stores/counts/keys", params={"last": text}).status_code == 400, text
        assert client.get(f"/stores/windows/windows/{text}").status_code == 400, text
    for text in good:
        assert client.get(f"/stores/counts/keys/{text}").status_code == 404, text
        assert client.get(f"/stores/windows/windows/{text}").json()["windows"] == [], text


@pytest.mark.parametrize("records", [1, 5])  # fewer than before, and more
def test_after_a_reset_nothing_old_is_left(topics: Topics, ask: Ask, records: int) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized="counts")
    client = ask(builder)
    assert client.get("/stores/counts/keys/old").status_code == 503  # it has not been started
    topics.make("app-counts-changelog", [(key, _long(7), 1) for key in (b"old", b"both")])
    assert client.get("/stores/counts/keys/old").json()["value"] == 7
    topics.make("app-counts-changelog", [(b"both", _long(number), 1) for number in range(records)])
    assert client.get("/stores/counts/keys/old").status_code == 404
    found = client.get("/stores/counts/keys/both").json()
    assert (found["value"], found["offsets"]) == (records - 1, {"0": records})
    del topics.topics["app-counts-changelog"]
    assert client.get("/stores/counts/keys/both").status_code == 503


def test_global_tables(topics: Topics, ask: Ask) -> None:
    builder = StreamsBuilder()
    shops = builder.global_table("shops", materialized="shops-by-number")
    builder.stream("in").join(shops, lambda order, shop: shop, key=lambda key, order: key).to("out")
    topics.make("shops", [(b"2", b"Mill", 5)], [(b"1", b"Dam", 6), (b"3", b"Gone", 7), (b"3", None, 8)])
    client = ask(builder)
    assert [store["name"] for store in client.get("/stores").json()["stores"]] == ["shops-by-number"]
    found = client.get("/stores/shops-by-number/keys/2").json()
    assert (found["value"], found["timestamp"], found["offsets"]) == ("Mill", 5, {"0": 1, "1": 3})
    topics.topics["shops"][0].append((b"2", b"Weir", 9))
    rows = client.get("/stores/shops-by-number/keys").json()["rows"]
    assert [(row["key"], row["value"]) for row in rows] == [("1", "Dam"), ("2", "Weir")]


def test_versions_of_a_key(topics: Topics, ask: Ask) -> None:
    builder = StreamsBuilder()
    builder.table("prices", materialized=Materialized("by-time", history=100))
    topics.make(
        "app-by-time-changelog",
        [(b"a", b"1", 10), (b"a", b"3", 60), (b"a", b"2", 30), (b"b", b"x", 30), (b"b", None, 50)],
    )
    client = ask(builder)
    assert client.get("/stores/by-time/keys/a").json()["value"] == "3"
    found = client.get("/stores/by-time/keys/a", params={"as_of": 45}).json()
    assert (found["value"], found["timestamp"], found["offsets"]) == ("2", 30, {"0": 5})
    assert client.get("/stores/by-time/keys/a", params={"as_of": 5}).status_code == 404
    assert client.get("/stores/by-time/keys/b").status_code == 404
    versions = client.get("/stores/by-time/versions/a", params={"first": 30, "last": 70}).json()["versions"]
    assert versions == [
        {"value": "3", "timestamp": 60, "valid_to": None},
        {"value": "2", "timestamp": 30, "valid_to": 60},
    ]
    assert client.get("/stores/by-time/keys").status_code == 400


def test_only_a_versioned_store_has_a_past(topics: Topics, ask: Ask) -> None:
    builder = StreamsBuilder()
    builder.table("rows", materialized="plain")
    topics.make("app-plain-changelog", [(b"a", b"1", 10)])
    client = ask(builder)
    assert client.get("/stores/plain/keys/a", params={"as_of": 10}).status_code == 400
    assert client.get("/stores/plain/versions/a").status_code == 400
