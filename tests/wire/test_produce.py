"""Our hand-written Produce against kio's, an independent implementation, in every version."""

from __future__ import annotations

import importlib
import io
import uuid
from datetime import timedelta
from typing import Any

import pytest

from millstream.wire._kio import ErrorCode, entity_reader, entity_writer
from millstream.wire.primitives import BAD_FRAME
from millstream.wire.produce import (
    BEHIND_RECORDS,
    PartitionResult,
    RequestTemplate,
    pack_produce_response,
    read_produce,
)

VERSIONS = range(3, 14)
TOPIC_ID = uuid.uuid4()
BATCH = bytes(range(256)) * 3


def kio_module(version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.produce.v{version}.{kind}")


def encoded_request(version: int, transactional_id: str | None = None) -> bytes:
    module = kio_module(version, "request")
    name = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "töpic"}
    data = module.TopicProduceData(
        partition_data=(
            module.PartitionProduceData(index=0, records=BATCH),
            module.PartitionProduceData(index=7, records=None),
            module.PartitionProduceData(index=200, records=b""),
        ),
        **name,
    )
    request = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout=timedelta(milliseconds=1500),
        topic_data=(data, data),
    )
    out = io.BytesIO()
    entity_writer(module.ProduceRequest)(out, request)
    return out.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "pay"])
def test_reads_what_kio_writes(version: int, transactional_id: str | None) -> None:
    body = encoded_request(version, transactional_id)
    request = read_produce(memoryview(b"head" + body), 4, version)
    assert request.transactional_id == (transactional_id.encode() if transactional_id else None)
    assert (request.acks, request.timeout_ms) == (-1, 1500)
    expected = TOPIC_ID.bytes if version >= 13 else "töpic".encode()
    assert [topic for topic, _ in request.topics] == [expected, expected]
    for _, partitions in request.topics:
        assert [(index, records if records is None else bytes(records)) for index, records in partitions] == [
            (0, BATCH),
            (7, None),
            (200, b""),
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_any_cut_is_a_bad_frame(version: int) -> None:
    body = encoded_request(version, "pay")
    for end in range(len(body) - 1):
        try:
            read_produce(memoryview(body[:end]), 0, version)
        except BAD_FRAME:
            continue
        assert version >= 9 and end >= len(body) - 2, f"cut at {end} went unnoticed"


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_what_we_pack(version: int) -> None:
    topic = TOPIC_ID.bytes if version >= 13 else b"orders"
    results = [
        PartitionResult(0, 0, 42, -1, 3),
        PartitionResult(1, ErrorCode.message_too_large, message="too large"),
        PartitionResult(300, ErrorCode.not_leader_or_follower, leader=(5, 9)),
        PartitionResult(
            2, ErrorCode.invalid_record, message="no key", records=((0, "a"), (7, "b"), (300, "c"))
        ),
    ]
    frame = pack_produce_response(77, version, [(topic, results)])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    module = kio_module(version, "response")
    body = frame[9 if version >= 9 else 8 :]
    response, size = entity_reader(module.ProduceResponse)(body, 0)
    assert size == len(body)
    (answer,) = response.responses
    first, second, third, fourth = answer.partition_responses
    assert (first.index, first.error_code, first.base_offset) == (0, ErrorCode.none, 42)
    assert second.error_code is ErrorCode.message_too_large
    if version >= 5:
        assert first.log_start_offset == 3
    if version >= 8:
        assert (second.error_message, second.record_errors) == ("too large", ())
        assert (fourth.error_message, len(fourth.record_errors)) == ("no key", 3)
        named = [(one.batch_index, one.batch_index_error_message) for one in fourth.record_errors]
        assert named == [(0, "a"), (7, "b"), (300, "c")]
    if version >= 10:
        assert (third.current_leader.leader_id, third.current_leader.leader_epoch) == (5, 9)


def whole_frame(version: int, correlation_id: int, records: bytes, acks: int = -1) -> memoryview:
    """A frame with one topic and one partition, as a producer sends it over and over."""
    module = kio_module(version, "request")
    name = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders"}
    data = module.TopicProduceData(
        partition_data=(module.PartitionProduceData(index=3, records=records),), **name
    )
    request = module.ProduceRequest(
        transactional_id=None, acks=acks, timeout=timedelta(milliseconds=1500), topic_data=(data,)
    )
    out = io.BytesIO()
    out.write(b"\0\0" + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + b"\0\x02me\0")
    entity_writer(module.ProduceRequest)(out, request)
    return memoryview(out.getvalue())


@pytest.mark.parametrize("version", [9, 11, 13])
def test_a_repeated_request_is_recognised_and_answered_the_same(version: int) -> None:
    first = whole_frame(version, 1, b"a" * 100)
    template = RequestTemplate.of(read_produce(first, 13, version), first, version)
    assert template is not None
    for size in (1, 99, 127, 128, 20_000):
        frame = whole_frame(version, 2, b"b" * size)
        assert bytes(frame[8 : template.prefix_end]) == template.prefix
        assert bytes(frame[-BEHIND_RECORDS - size : -BEHIND_RECORDS]) == b"b" * size
    topic = TOPIC_ID.bytes if version >= 13 else b"orders"
    expected = pack_produce_response(7, version, [(topic, [PartitionResult(3, 0, 500, -1, 4)])])
    assert template.pack(7, 500, -1, 4) == expected
    other = whole_frame(version, 2, b"a" * 100, acks=1)
    assert bytes(other[8 : template.prefix_end]) != template.prefix


def test_only_a_simple_request_has_a_template() -> None:
    body = memoryview(b"\0" * 13 + encoded_request(11))
    assert RequestTemplate.of(read_produce(body, 13, 11), body, 11) is None
