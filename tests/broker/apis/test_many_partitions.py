"""Produce and Fetch of very many partitions take another way, in slices, with the same answers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.apis import fetch, produce
from millstream.broker.network.connection import Connection
from millstream.broker.server import Broker
from millstream.client.messages import Exchange
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.settings.resolve import BrokerSettings
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch
from tests.support.waiting import wait_until_async

PARTITIONS = 600
PRODUCE, FETCH = Exchange("produce", 9), Exchange("fetch", 12)
BATCH = encode_batch([Record(0, 1_700_000_000_000, b"key", b"value", ())])


class Client:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.loop = asyncio.get_running_loop()
        ours, self.socket = socket.socketpair()
        ours.setblocking(False)
        self.socket.setblocking(False)
        context = broker.acceptors[0].context
        self.connection = Connection(ours, "127.0.0.1:1", context, broker.dispatcher, self.loop)

    async def send(self, exchange: Exchange, **fields: Any) -> None:
        body = struct.pack(">hhihB", exchange.key, exchange.version, 7, -1, 0) + exchange.encode(fields)
        await self.loop.sock_sendall(self.socket, struct.pack(">i", len(body)) + body)

    async def receive(self) -> bytes:
        size = struct.unpack(">i", await self._read(4))[0]
        return await self._read(size)

    async def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await asyncio.wait_for(self.loop.sock_recv(self.socket, size - len(data)), 60)
            assert more, "the connection was closed"
            data += more
        return data

    async def ask(self, exchange: Exchange, **fields: Any) -> Any:
        await self.send(exchange, **fields)
        return exchange.decode(memoryview(await self.receive())[4:])

    async def produce(self, topics: dict[str, int], acks: int = -1) -> Any:
        return await self.ask(
            PRODUCE,
            transactional_id=None,
            acks=acks,
            timeout=1000,
            topic_data=[
                {
                    "name": name,
                    "partition_data": [{"index": index, "records": BATCH} for index in range(count)],
                }
                for name, count in topics.items()
            ],
        )

    def fetch_fields(self, topics: dict[str, int], **fields: Any) -> dict[str, Any]:
        wanted = [
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": index,
                        "current_leader_epoch": -1,
                        "fetch_offset": 0,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                    for index in range(count)
                ],
            }
            for name, count in topics.items()
        ]
        return {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 50 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": wanted,
            "forgotten_topics_data": [],
            "rack_id": "",
            **fields,
        }

    def waiting(self) -> int:
        """In how many partitions a fetch waits for records."""
        return sum(1 for partition in self.broker.partitions if partition.fetch_waiters)

    def close(self) -> None:
        self.connection.close()
        self.socket.close()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    broker = Broker(BrokerSettings(settings))
    await broker.start()
    await broker.controller.submit(CreateTopics([NewTopic("wide", PARTITIONS, 1), NewTopic("small", 2, 1)]))
    client = Client(broker)
    yield client
    client.close()
    await broker.stop()


async def test_produce_writes_all_and_answers_in_order(client: Client) -> None:
    response = await client.produce({"small": 3, "wide": PARTITIONS, "missing": 2})
    assert [topic.name for topic in response.responses] == ["small", "wide", "missing"]
    small, wide, missing = response.responses
    unknown = ErrorCode.unknown_topic_or_partition
    assert [each.error_code for each in small.partition_responses] == [0, 0, unknown]
    assert [each.index for each in wide.partition_responses] == list(range(PARTITIONS))
    assert {each.error_code for each in wide.partition_responses} == {0}
    assert {each.error_code for each in missing.partition_responses} == {unknown}
    assert {partition.log.end_offset for partition in client.broker.partitions} == {1}
    # The next request of the connection is served.
    again = await client.produce({"wide": 1})
    assert again.responses[0].partition_responses[0].base_offset == 1


async def test_fetch_answers_what_the_other_way_answers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.produce({"wide": PARTITIONS, "small": 2})
    topics = {"missing": 3, "wide": PARTITIONS + 5, "small": 2}
    for version_fields in ({}, {"isolation_level": 1}, {"max_bytes": 5 * len(BATCH)}):
        monkeypatch.setattr(fetch, "LARGE_FRAME", 1024)
        await client.send(FETCH, **client.fetch_fields(topics, **version_fields))
        in_slices = await client.receive()
        monkeypatch.setattr(fetch, "LARGE_FRAME", 1 << 30)
        await client.send(FETCH, **client.fetch_fields(topics, **version_fields))
        assert await client.receive() == in_slices
    assert in_slices.count(b"value") == 5


async def test_a_session_of_many_partitions_is_read_in_slices(client: Client) -> None:
    everything = client.fetch_fields({"wide": PARTITIONS}, session_epoch=0)
    first = await client.ask(FETCH, **everything)
    assert len(first.responses[0].partitions) == PARTITIONS
    session = {"session_id": first.session_id, "session_epoch": 1}
    await client.produce({"wide": 3})
    news = await client.ask(FETCH, **client.fetch_fields({}, **session))
    assert [each.partition_index for each in news.responses[0].partitions] == [0, 1, 2]
    forgotten = [{"topic": "wide", "partitions": range(PARTITIONS)}]
    session["session_epoch"] = 2
    end = await client.ask(FETCH, **client.fetch_fields({}, **session, forgotten_topics_data=forgotten))
    assert (end.session_id, end.responses) == (0, ())


async def test_a_fetch_that_waits_is_answered_by_an_append(client: Client) -> None:
    patient = client.fetch_fields({"wide": PARTITIONS}, max_wait=60_000)
    other = Client(client.broker)
    await client.send(FETCH, **patient)
    await wait_until_async(lambda: client.waiting() == PARTITIONS)
    await other.produce({"wide": 1})
    response = FETCH.decode(memoryview(await client.receive())[4:])
    assert [each.partition_index for each in response.responses[0].partitions if each.records] == [0]
    assert client.waiting() == 0 and not client.broker.fetch.parked
    other.close()


async def test_a_fetch_that_waits_is_answered_when_its_time_is_over(client: Client) -> None:
    response = await client.ask(FETCH, **client.fetch_fields({"wide": PARTITIONS}, max_wait=1))
    assert len(response.responses[0].partitions) == PARTITIONS
    assert client.waiting() == 0


async def test_a_client_that_leaves_is_not_waited_for(client: Client) -> None:
    await client.send(FETCH, **client.fetch_fields({"wide": PARTITIONS}, max_wait=60_000))
    await wait_until_async(lambda: client.waiting() == PARTITIONS)
    client.close()
    await wait_until_async(lambda: client.waiting() == 0 and not client.broker.fetch.tasks)
    assert not client.broker.fetch.parked


def test_slices_of_a_produce_request_have_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from millstream.broker.apis import produce_in_slices as module

    monkeypatch.setattr(module, "ELEMENTS_PER_SLICE", 4)
    topics: list[Any] = [
        (b"a", [(n, None) for n in range(5)]),
        (b"b", []),
        (b"c", [(0, None)]),
        (b"d", [(n, None) for n in range(3)]),
    ]
    slices = list(module.slices_of(topics))
    assert all(sum(1 + len(batches) for _, batches in each) <= 4 for _, each in slices)
    merged: dict[int, list[int]] = {}
    for first, each in slices:
        for number, (topic, batches) in enumerate(each, first):
            assert topic == topics[number][0]
            merged.setdefault(number, []).extend(index for index, _ in batches)
    assert merged == {number: [index for index, _ in batches] for number, (_, batches) in enumerate(topics)}
    assert produce.MANY_PARTITIONS < PARTITIONS
