"""Produce's fast path: taken by requests that repeat an earlier one, by nothing that differs in a single
bit."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.apis.produce_fast_path import MAX_TEMPLATES, ProduceFastPath
from millstream.broker.partition import Partition
from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog
from millstream.wire.batch import HEADER_SIZE, TRANSACTIONAL
from millstream.wire.produce import PartitionResult, RequestTemplate, pack_produce_response, read_produce

from ...storage.batches import batch
from ..raw_frames import request

TOPIC_ID = uuid.uuid4()
BODY = 8 + 2 + 3 + 1  # header with client id "raw" and no tags


def frame(version: int, records: bytes, acks: int = -1, correlation: int = 7, index: int = 0) -> bytearray:
    name = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders"}
    data = {**name, "partition_data": [{"index": index, "records": bytes(records)}]}
    framed = request(
        "produce", version, correlation, transactional_id=None, acks=acks, timeout=1500, topic_data=[data]
    )
    return bytearray(framed[4:])


class Client:
    """A connection that has sent one produce request, and may send more like it."""

    def __init__(self, folder: Path, version: int, config: LogConfig | None = None) -> None:
        self.log = PartitionLog.open(folder / "orders-0", config or LogConfig())
        self.partition = Partition("orders", TOPIC_ID, 0, self.log)
        self.partition.become_leader(3, (1,), (1,))
        self.version = version
        self.answers: list[bytes] = []
        self.api = None  # it is its own handler
        self.fast_path = ProduceFastPath(self)  # type: ignore[arg-type]
        self.learn(self.batch(100))

    def batch(self, size: int, **fields: Any) -> memoryview:
        return batch(size=size, timestamp=int(time.time() * 1000), **fields)

    def learn(self, records: memoryview, index: int = 0) -> None:
        sent = memoryview(frame(self.version, records, index=index))
        template = RequestTemplate.of(read_produce(sent, BODY, self.version), sent, self.version)
        assert template is not None
        self.fast_path.learn(template, self.partition)

    def send(self, data: bytes) -> None:
        self.answers.append(data)

    def try_handle(self, data: bytes) -> bool:
        """What the broker makes of a frame that lies among other bytes."""
        view = memoryview(bytearray(b"before" + data + b"\0behind"))
        return self.fast_path.try_handle(self, view, 6, 6 + len(data))  # type: ignore[arg-type]


@pytest.fixture(params=[9, 11, 13])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path, request.param)
    yield made
    made.log.close(clean=False)


LENGTHS_THAT_CHANGE = [68, 125, 126, 127, 128, 129, 16381, 16382, 16383, 16384, 16385, 2097149, 2097150]


def test_batches_of_any_length_are_stored_and_answered_as_on_the_full_path(tmp_path: Path) -> None:
    config = LogConfig(max_message_bytes=4 << 20)
    client = Client(tmp_path, 11, config)
    for number, size in enumerate(LENGTHS_THAT_CHANGE):
        records = client.batch(size)
        assert client.try_handle(frame(11, records, correlation=number)), size
        expected = [(b"orders", [PartitionResult(0, 0, number, -1, 0)])]
        assert client.answers[-1] == pack_produce_response(number, 11, expected)
        stored = client.log.read(number, size, "hw").read()
        assert stored[16:] == bytes(records[16:])
    assert client.log.high_watermark == len(LENGTHS_THAT_CHANGE)
    assert not client.try_handle(frame(11, client.batch(2097151)))  # its length takes four bytes
    client.log.close(clean=False)


def test_an_answer_names_the_topic_as_the_request_did(client: Client) -> None:
    assert client.try_handle(frame(client.version, client.batch(200)))
    topic = TOPIC_ID.bytes if client.version >= 13 else b"orders"
    expected = [(topic, [PartitionResult(0, 0, 0, -1, 0)])]
    assert client.answers == [pack_produce_response(7, client.version, expected)]


def test_log_append_time_is_in_the_response(tmp_path: Path) -> None:
    client = Client(tmp_path, 11, LogConfig(message_timestamp_type="LogAppendTime"))
    before = int(time.time() * 1000)
    assert client.try_handle(frame(11, client.batch(200)))
    stored = client.log.active.newest()[0]
    assert stored >= before
    expected = [(b"orders", [PartitionResult(0, 0, 0, stored, 0)])]
    assert client.answers == [pack_produce_response(7, 11, expected)]
    client.log.close(clean=False)


def test_no_frame_with_another_bit_is_handled(client: Client) -> None:
    """But for the correlation id, and the leader epoch in the batch, which is the broker's to set."""
    good = frame(client.version, client.batch(150))
    stop = len(good) - 3
    start = stop - 150
    free = {4, 5, 6, 7, *range(start + 12, start + 16)}
    for at in range(len(good)):
        for bit in range(8) if at < start + HEADER_SIZE or at >= stop else (0,):
            changed = bytearray(good)
            changed[at] ^= 1 << bit
            assert client.try_handle(changed) is (at in free), f"bit {bit} of byte {at} of {len(good)}"
    assert client.log.end_offset == len(client.answers) == 8 * len(free)


def test_no_frame_of_another_length_is_handled(client: Client) -> None:
    good = frame(client.version, client.batch(150))
    for size in range(len(good)):
        assert not client.try_handle(good[:size])
    assert not client.try_handle(good + b"\0")
    assert not client.try_handle(good[:-1] + b"\x01\x05\x01x")  # a tagged field
    assert client.log.end_offset == 0


def test_what_needs_more_is_left_to_the_full_path(client: Client) -> None:
    version = client.version
    assert not client.try_handle(frame(version, client.batch(150), acks=1))
    assert not client.try_handle(frame(version, client.batch(150), index=1))
    assert not client.try_handle(frame(version, client.batch(150, producer=5, sequence=0)))  # nobody known
    assert not client.try_handle(frame(version, client.batch(150, attributes=TRANSACTIONAL)))
    assert not client.try_handle(frame(version, bytes(client.batch(150)) * 2))
    client.partition.enough_in_sync = False
    assert not client.try_handle(frame(version, client.batch(150)))
    client.partition.resign()
    assert not client.try_handle(frame(version, client.batch(150)))
    assert client.log.end_offset == 0 and not client.answers


def test_a_connection_keeps_a_limited_number_of_templates(client: Client) -> None:
    for index in range(3 * MAX_TEMPLATES):
        client.learn(client.batch(100), index)
        assert len(client.fast_path._templates) <= MAX_TEMPLATES
    assert client.try_handle(frame(client.version, client.batch(100), index=index))
