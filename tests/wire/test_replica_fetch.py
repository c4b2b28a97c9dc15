"""A follower's fetch against kio's reading of it, and responses that the broker packs."""

from __future__ import annotations

import uuid

import pytest

from millstream.wire._kio import entity_reader, load_request_schema
from millstream.wire.fetch import FetchResult, pack_fetch_response, read_fetch
from millstream.wire.replica_fetch import Position, ReplicaFetch, pack_replica_fetch, read_replica_fetch
from millstream.wire.varint import Malformed

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
REQUEST = ReplicaFetch(
    5,
    6,
    [
        ((A.bytes, 0), Position(3, 100, 2, 10)),
        ((B.bytes, 7), Position(4, 0, -1, 0)),
        ((A.bytes, 300), Position(3, 1 << 40, 3, 5)),
    ],
    [(B.bytes, 1), (B.bytes, 2)],
)
LIMITS = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 10 << 20, "partition_max_bytes": 1 << 20}


def test_kio_reads_what_we_pack() -> None:
    body = pack_replica_fetch(REQUEST, 2, 1 << 33, **LIMITS)
    request = entity_reader(load_request_schema(1, 17))(body, 0)[0]
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 1 << 33)
    assert (request.session_id, request.session_epoch) == (5, 6)
    assert [(topic.topic_id, len(topic.partitions)) for topic in request.topics] == [(A, 2), (B, 1)]
    first = request.topics[0].partitions[0]
    assert (first.partition, first.current_leader_epoch, first.fetch_offset) == (0, 3, 100)
    assert (first.last_fetched_epoch, first.log_start_offset, first.partition_max_bytes) == (2, 10, 1 << 20)
    assert [(gone.topic_id, gone.partitions) for gone in request.forgotten_topics_data] == [(B, (1, 2))]


def test_the_broker_reads_what_we_pack() -> None:
    request = read_fetch(memoryview(pack_replica_fetch(REQUEST, 2, 9, **LIMITS)), 0, 17)
    assert (request.replica_id, request.replica_epoch) == (2, 9)
    assert request.topics[0][1][1].offset == 1 << 40
    assert request.forgotten == [(B.bytes, [1, 2])]


def response() -> bytes:
    with_records = FetchResult(0, 0, 120, 110, 10, 5, b"batch")
    with_records.aborted = [(1, 2), (3, 4)]
    diverging = FetchResult(1, 0, 120, 110, 10)
    diverging.diverging = (2, 90)
    failed = FetchResult(2, 74, log_start=3)
    failed.leader = (1, 9)
    parts = pack_fetch_response(8, 17, 0, 77, [(A.bytes, [with_records, diverging]), (B.bytes, [failed])])
    return b"".join(parts)[8:]  # type: ignore[arg-type]


def test_responses() -> None:
    read = read_replica_fetch(memoryview(response()))
    assert (read.error, read.session_id) == (0, 77)
    first, second, third = read.partitions
    assert (first.key, first.high_watermark, first.log_start) == ((A.bytes, 0), 120, 10)
    assert bytes(first.records) == b"batch" and first.diverging is None
    assert second.diverging == (2, 90) and not len(second.records)
    assert (third.key, third.error, third.log_start) == ((B.bytes, 2), 74, 3)


def test_a_response_that_is_cut_off_is_malformed() -> None:
    whole = response()
    for end in range(len(whole) - 1):
        with pytest.raises(Malformed):
            read_replica_fetch(memoryview(whole)[:end])
