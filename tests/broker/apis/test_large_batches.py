"""Batches that the log has to look into and that are large, or become so: a thread opens them, one at a time,
and the loop serves other clients meanwhile. A real dispatcher, handler and log; connections of our own."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.apis import produce, produce_in_slices
from millstream.broker.apis.batch_opener import BATCHES_AT_ONCE
from millstream.broker.apis.produce import ProduceHandler
from millstream.broker.network.dispatch import Api, Dispatcher
from millstream.broker.partition import Partition
from millstream.settings.log_config import LogConfig
from millstream.storage import validate
from millstream.storage.log import PartitionLog
from millstream.wire.batch import read_header
from millstream.wire.compression import CODEC_NAMES, GZIP, NONE, ZSTD, compress
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch, iter_records

from ...storage.batches import contents, sealed
from ..raw_frames import request

TOPIC = "orders"
WAIT = 30.0
VERSION = 12


class Connection:
    """What the handler sees of a connection."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.loop = asyncio.get_running_loop()
        self.dispatcher = dispatcher
        self.peer = "127.0.0.1:50000"
        self.client_id = ""
        self.closed = ""
        self.parked = False
        self.fast_path: Any = None
        self.sent: list[bytes] = []
        self.answered = asyncio.Event()

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        self.answered.set()

    def park(self, pending: object) -> None:
        self.parked = True

    def resume(self) -> None:
        self.parked = False

    def keep_frame(self, frame: memoryview) -> Any:
        return SimpleNamespace(frame=memoryview(bytes(frame)), give_back=lambda: None)

    def close(self, reason: str = "") -> None:
        self.closed = reason or "closed"
        self.answered.set()


class Hosted:
    """What the handler sees of the partitions."""

    by_name: dict[bytes, dict[int, Partition]]

    def __len__(self) -> int:
        return sum(map(len, self.by_name.values()))

    def lacks_log(self, _topic: bytes, _index: int) -> bool:
        return False


class MiniBroker:
    def __init__(self, folder: Path, partitions: int = 1, **settings: Any) -> None:
        config = replace(LogConfig(cleanup_policy=frozenset({"compact"})), **settings)
        self.logs = [PartitionLog.open(folder / f"{TOPIC}-{index}", config) for index in range(partitions)]
        hosted = {}
        for index, log in enumerate(self.logs):
            hosted[index] = Partition(TOPIC, uuid.UUID(int=7), index, log)
            hosted[index].become_leader(0, (1,), (1,))
        table: Any = Hosted()
        table.by_name = {TOPIC.encode(): hosted}
        self.handler = ProduceHandler(table, asyncio.get_running_loop())
        self.handler.api = Api(0, "Produce", 3, 13, raw=self.handler.handle)
        self.dispatcher = Dispatcher()
        self.dispatcher.serve(self.handler.api)

    def connect(self) -> Connection:
        return Connection(self.dispatcher)

    def send(self, connection: Connection, *batches: bytes, correlation: int = 1) -> None:
        partitions = [{"index": index, "records": data} for index, data in enumerate(batches)]
        frame = request(
            "produce",
            VERSION,
            correlation,
            transactional_id=None,
            acks=-1,
            timeout=5000,
            topic_data=[{"name": TOPIC, "partition_data": partitions}],
        )[4:]
        scratch = memoryview(bytearray(frame))
        self.dispatcher.dispatch(connection, scratch, 0, len(frame))  # type: ignore[arg-type]
        scratch[:] = bytes(len(frame))  # the buffer is used for other requests

    def values(self, index: int = 0) -> list[bytes | None]:
        return [record.value for _, data in contents(self.logs[index]) for record in iter_records(data)]

    def close(self) -> None:
        self.dispatcher.close()
        for log in self.logs:
            log.close(clean=False)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MiniBroker]:
    made = MiniBroker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads, other than the loop's, that open batches. Two at once are an error."""
    threads: list[str] = []
    at_work = threading.Lock()
    prepare = validate.prepare

    def counting(batch: memoryview, config: LogConfig, now_ms: int, *limits: validate.Limits) -> memoryview:
        if threading.current_thread() is threading.main_thread():
            return prepare(batch, config, now_ms, *limits)
        assert at_work.acquire(blocking=False), "two threads open batches"
        try:
            threads.append(threading.current_thread().name)
            return prepare(batch, config, now_ms)
        finally:
            at_work.release()

    monkeypatch.setattr(validate, "prepare", counting)
    return threads


def plain(value: bytes = b"v", count: int = 1, codec: int = NONE, key: bytes | None = b"k") -> bytes:
    return bytes(encode_batch([Record(number, 1, key, value) for number in range(count)], codec))


def bomb(codec: int, size: int = 20 << 20) -> bytes:
    """One record of `size` bytes, in very few."""
    data = plain(bytes(size), codec=codec)
    assert len(data) < size // 15
    return data


async def answer(connection: Connection) -> bytes:
    await asyncio.wait_for(connection.answered.wait(), WAIT)
    assert not connection.closed, connection.closed
    return connection.sent[-1]


def error_of(response: bytes) -> int:
    """Of a response with one topic and one partition, whose index is 0."""
    at = response.index(TOPIC.encode()) + len(TOPIC) + 1 + 4
    return int.from_bytes(response[at : at + 2], "big", signed=True)


@pytest.mark.parametrize("codec", range(1, 5), ids=CODEC_NAMES[1:])
async def test_others_are_served_while_a_thread_opens_a_bomb(
    broker: MiniBroker, opened: list[str], codec: int
) -> None:
    attacker, other = broker.connect(), broker.connect()
    broker.send(attacker, bomb(codec))
    assert attacker.parked and not attacker.sent
    broker.send(other, plain(b"served"))
    assert len(other.sent) == 1, "in the same turn"
    assert error_of(await answer(attacker)) == ErrorCode.none
    assert not attacker.parked
    assert opened == ["large-request_0"]
    assert broker.values() == [b"served", bytes(20 << 20)]


async def test_one_at_a_time(broker: MiniBroker, opened: list[str]) -> None:
    attackers = [broker.connect() for _ in range(8)]
    data = bomb(ZSTD, 4 << 20)
    for attacker in attackers:
        broker.send(attacker, data)
    for attacker in attackers:
        assert error_of(await answer(attacker)) == ErrorCode.none
    assert len(opened) == 8
    assert broker.logs[0].end_offset == 8


async def test_who_has_left_costs_nothing(broker: MiniBroker, opened: list[str]) -> None:
    attackers = [broker.connect() for _ in range(8)]
    for attacker in attackers:
        broker.send(attacker, bomb(ZSTD, 4 << 20))
    for attacker in attackers[1:]:
        attacker.close()
    assert error_of(await answer(attackers[0])) == ErrorCode.none
    await asyncio.gather(*broker.handler.tasks)
    assert len(opened) == 1
    assert broker.logs[0].end_offset == 1


async def test_very_many_records(broker: MiniBroker, opened: list[str]) -> None:
    client = broker.connect()
    broker.send(client, plain(b"", 5000))
    assert error_of(await answer(client)) == ErrorCode.none
    assert len(opened) == 1
    client = broker.connect()
    broker.send(client, plain(b"", 5000, key=None))
    assert error_of(await answer(client)) == ErrorCode.invalid_record
    assert broker.logs[0].end_offset == 5000


async def test_a_few_records_are_opened_at_once(broker: MiniBroker, opened: list[str]) -> None:
    client = broker.connect()
    for codec in range(5):
        broker.send(client, plain(b"value", 1000, codec))
    assert len(client.sent) == 5
    assert not opened


async def test_many_small_batches_are_a_large_one(tmp_path: Path, opened: list[str]) -> None:
    partitions = BATCHES_AT_ONCE + 3
    broker = MiniBroker(tmp_path, partitions)
    client = broker.connect()
    broker.send(client, *[plain(b"%d" % index, codec=ZSTD) for index in range(partitions)])
    assert client.parked
    await answer(client)
    assert len(opened) == 3
    assert [broker.values(index) for index in range(partitions)] == [
        [b"%d" % index] for index in range(partitions)
    ]
    broker.close()


async def test_a_request_in_slices(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One topic goes on over several slices."""
    monkeypatch.setattr(produce, "MANY_PARTITIONS", 10)
    monkeypatch.setattr(produce_in_slices, "ELEMENTS_PER_SLICE", 8)
    broker = MiniBroker(tmp_path, 20)
    client = broker.connect()
    batches = [bomb(ZSTD, 4 << 20) if index % 5 == 3 else plain(b"%d" % index) for index in range(20)]
    broker.send(client, *batches)
    await answer(client)
    assert len(opened) == 4
    for index in range(20):
        assert broker.values(index) == [bytes(4 << 20) if index % 5 == 3 else b"%d" % index]
    broker.close()


async def test_another_codec_and_the_time_of_the_log(tmp_path: Path, opened: list[str]) -> None:
    broker = MiniBroker(
        tmp_path,
        cleanup_policy=frozenset({"delete"}),
        compression_type="gzip",
        message_timestamp_type="LogAppendTime",
    )
    client = broker.connect()
    broker.send(client, bomb(ZSTD, 4 << 20))
    assert error_of(await answer(client)) == ErrorCode.none
    ((header, _),) = contents(broker.logs[0])
    assert header.codec == GZIP and header.max_timestamp > 1
    assert len(opened) == 1
    broker.close()


async def test_a_header_without_its_newest_timestamp(tmp_path: Path, opened: list[str]) -> None:
    """Such a batch is opened in any topic."""
    broker = MiniBroker(tmp_path, cleanup_policy=frozenset({"delete"}))
    data = bytearray(bomb(ZSTD, 4 << 20))
    data[35:43] = (-1).to_bytes(8, "big", signed=True)
    client = broker.connect()
    broker.send(client, bytes(sealed(data)))
    assert error_of(await answer(client)) == ErrorCode.none
    ((header, _),) = contents(broker.logs[0])
    assert header.max_timestamp == 1
    assert len(opened) == 1
    broker.close()


async def test_settings_that_change_meanwhile(broker: MiniBroker, opened: list[str]) -> None:
    client = broker.connect()
    broker.send(client, bomb(ZSTD, 4 << 20))
    broker.logs[0].config = replace(broker.logs[0].config, max_message_bytes=100)
    assert error_of(await answer(client)) == ErrorCode.message_too_large
    assert broker.logs[0].end_offset == 0


async def test_what_is_no_stream_at_all_is_refused(broker: MiniBroker, opened: list[str]) -> None:
    records = compress(ZSTD, bytes(20 << 20))
    data = bytearray(plain(codec=ZSTD))[:61] + records[: len(records) // 2]
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    client = broker.connect()
    broker.send(client, bytes(sealed(data)))
    assert error_of(await answer(client)) == ErrorCode.corrupt_message
    assert read_header(data).record_count == 1
    assert broker.logs[0].end_offset == 0
