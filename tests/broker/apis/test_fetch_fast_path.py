"""Fetch's fast path: the same bytes as the full path gives, for requests that repeat the last one in every
bit."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.apis import fetch_fast_path
from millstream.broker.apis.fetch import FetchHandler
from millstream.broker.apis.fetch_fast_path import FetchFastPath
from millstream.broker.apis.fetch_sessions import FetchSessions
from millstream.broker.network.file_range import FileRange
from millstream.broker.partition import Partition
from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog

from ...storage.batches import batch
from ..raw_frames import request

TOPIC_ID = uuid.uuid4()
CLIENT_ID_SIZE = 3
SIZE = 20_000  # of a batch
BATCHES = 30


def frame(version: int, offset: int, *, correlation: int = 7, **options: Any) -> bytearray:
    name = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "orders"}
    partition = {
        "partition": 0,
        "fetch_offset": offset,
        "current_leader_epoch": options.pop("epoch", 3),
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": options.pop("partition_max", 100_000),
    }
    fields: dict[str, Any] = {
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**name, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
        **({"replica_id": -1} if version < 15 else {}),
        **options,
    }
    return bytearray(request("fetch", version, correlation, **fields)[4:])


class Client:
    """A connection that fetches from one partition; keeps what it is sent, with the records read from the
    file."""

    def __init__(self, folder: Path, version: int) -> None:
        self.log = PartitionLog.open(folder / "orders-0", LogConfig(segment_bytes=SIZE * 20))
        self.partition = Partition("orders", TOPIC_ID, 0, self.log)
        self.partition.become_leader(3, (1,), (1,))
        for _ in range(BATCHES):
            self.log.append_leader(
                batch(size=SIZE, timestamp=int(time.time() * 1000)), 3, int(time.time() * 1000)
            )
        self.log.set_high_watermark(self.log.end_offset - 2)
        table = {b"orders": {0: self.partition}, TOPIC_ID.bytes: {0: self.partition}}
        partitions: Any = SimpleNamespace(by_name=table, by_id=table)
        self.handler = FetchHandler(partitions, FetchSessions(10), 55 << 20, 10)
        self.handler.api = SimpleNamespace()  # type: ignore[assignment]
        self.version = version
        self.loop = SimpleNamespace(time=lambda: 1.0)
        self.peer = "test"
        self.fast_path: Any = None
        self.answers: list[bytes] = []

    def send_parts(self, parts: list[Any]) -> None:
        sent = []
        for part in parts:
            if isinstance(part, FileRange):
                sent.append(part.segment.read(part.position, part.size))
                part.release()
            else:
                sent.append(bytes(part))
        self.answers.append(b"".join(sent))

    def send(self, data: bytes) -> None:
        self.answers.append(data)

    def full_path(self, data: bytes) -> bytes:
        correlation = int.from_bytes(data[4:8], "big")
        frame = memoryview(data)
        self.handler.handle(self, frame, CLIENT_ID_SIZE, self.version, correlation)  # type: ignore[arg-type]
        return self.answers.pop()

    def try_handle(self, data: bytes) -> bool:
        """What the broker makes of a frame that lies among other bytes."""
        view = memoryview(bytearray(b"before" + data + b"\0behind"))
        taken: bool = self.fast_path.try_handle(self, view, 6, 6 + len(data))
        return taken


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[int], Client]]:
    made: list[Client] = []

    def connect(version: int) -> Client:
        client = Client(tmp_path / str(len(made)), version)
        made.append(client)
        return client

    yield connect
    for client in made:
        assert not any(segment.refs for segment in client.log.segments), "a file is held for ever"
        client.log.close(clean=False)


@pytest.mark.parametrize("version", range(12, 19))
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize(
    "limits", [{}, {"partition_max": 20_000}, {"max_bytes": 50_000}, {"min_bytes": 70_000}]
)
def test_the_answer_is_that_of_the_full_path(
    connect: Callable[[int], Client], version: int, isolation: int, limits: dict[str, int]
) -> None:
    client = connect(version)
    client.full_path(frame(version, 0, isolation_level=isolation, **limits))
    assert isinstance(client.fast_path, FetchFastPath)
    taken = 0
    for offset in range(client.log.high_watermark):
        asked = frame(version, offset, correlation=offset + 1, isolation_level=isolation, **limits)
        if client.try_handle(asked):
            fast = client.answers.pop()
            assert fast == client.full_path(asked)
            taken += 1
    assert taken > 10


def test_no_request_with_another_bit_is_handled(connect: Callable[[int], Client]) -> None:
    client = connect(16)
    asked = frame(16, 0)
    client.full_path(asked)
    offset = len(asked) - 29
    for at in range(len(asked)):
        for bit in range(8):
            changed = bytearray(asked)
            changed[at] ^= 1 << bit
            free = 4 <= at < 8 or (at == offset + 7 and bit < 5)  # correlation id; offsets that are there
            assert client.try_handle(changed) is free, f"bit {bit} of byte {at} of {len(asked)}"
    for size in range(len(asked)):
        assert not client.try_handle(asked[:size])
    assert not client.try_handle(asked + b"\0")
    assert len(client.answers) == 8 * 4 + 5


def test_what_needs_more_is_left_to_the_full_path(connect: Callable[[int], Client]) -> None:
    client = connect(16)
    client.full_path(frame(16, 0, min_bytes=30_000))
    assert client.try_handle(frame(16, 0, min_bytes=30_000))
    high = client.log.high_watermark
    for offset in (-1, high - 1, high, high + 1, 10**12):  # out of range, too little, nothing
        assert not client.try_handle(frame(16, offset, min_bytes=30_000))
    client.partition.leader_epoch = 4
    assert not client.try_handle(frame(16, 0, min_bytes=30_000))
    client.partition.leader_epoch = 3
    client.partition.leads = False
    assert not client.try_handle(frame(16, 0, min_bytes=30_000))
    assert len(client.answers) == 1


def test_an_aborted_transaction_is_left_to_the_full_path(
    connect: Callable[[int], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(16)
    client.full_path(frame(16, 0, isolation_level=1))
    aborted = [SimpleNamespace(producer_id=5, first_offset=1)]
    monkeypatch.setattr(PartitionLog, "aborted_transactions", lambda *_: aborted)
    assert not client.try_handle(frame(16, 0, isolation_level=1))


def test_what_is_not_in_memory_is_brought_there_first(
    connect: Callable[[int], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(16)
    expected = client.full_path(frame(16, 0))
    warmed: list[FileRange] = []

    def send(connection: Client, parts: list[Any], cold: list[FileRange]) -> None:
        warmed.extend(cold)
        connection.send_parts(parts)

    client.handler.send = send  # type: ignore[method-assign, assignment]
    monkeypatch.setattr(fetch_fast_path, "not_in_memory", lambda _: True)
    assert client.try_handle(frame(16, 0))
    assert len(warmed) == 1 and client.answers == [expected]


@pytest.mark.parametrize(
    "different", [{"session_epoch": 0}, {"rack_id": "here"}], ids=["a session", "a rack"]
)
def test_other_requests_are_no_templates(connect: Callable[[int], Client], different: dict[str, Any]) -> None:
    client = connect(16)
    client.full_path(frame(16, 0, **different))
    assert client.fast_path is None
