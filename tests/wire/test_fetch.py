"""Our hand-written Fetch against kio's, an independent implementation, in every version."""

from __future__ import annotations

import importlib
import io
import struct
import uuid
from datetime import timedelta
from typing import Any

import pytest

from millstream.wire._kio import ErrorCode, entity_reader, entity_writer
from millstream.wire.fetch import FetchResult, pack_fetch_response, read_fetch
from millstream.wire.primitives import BAD_FRAME
from millstream.wire.varint import Malformed

VERSIONS = range(4, 19)
TOPIC_ID = uuid.uuid4()


def kio_module(version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.fetch.v{version}.{kind}")


def build(cls: Any, **fields: Any) -> Any:
    return cls(**{name: value for name, value in fields.items() if name in cls.__dataclass_fields__})


def encoded_request(version: int) -> bytes:
    module = kio_module(version, "request")
    partitions = tuple(
        build(
            module.FetchPartition,
            partition=index,
            current_leader_epoch=4,
            fetch_offset=1 << 40,
            last_fetched_epoch=3,
            log_start_offset=17,
            partition_max_bytes=1 << 20,
            replica_directory_id=uuid.uuid4(),
        )
        for index in (0, 300)
    )
    topic = build(module.FetchTopic, topic="orders", topic_id=TOPIC_ID, partitions=partitions)
    more: dict[str, Any] = {}
    if version >= 7:
        more["forgotten_topics_data"] = (
            build(module.ForgottenTopic, topic="gone", topic_id=TOPIC_ID, partitions=(1, 2)),
        )
    if version >= 15:
        more["replica_state"] = module.ReplicaState(replica_id=6, replica_epoch=12)
        more["cluster_id"] = "some-cluster"
    request = build(
        module.FetchRequest,
        replica_id=6,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=55 << 20,
        isolation_level=1,
        session_id=99,
        session_epoch=7,
        topics=(topic,),
        rack_id="r1",
        **more,
    )
    out = io.BytesIO()
    entity_writer(module.FetchRequest)(out, request)
    return out.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
def test_reads_what_kio_writes(version: int) -> None:
    request = read_fetch(memoryview(encoded_request(version)), 0, version)
    topic = TOPIC_ID.bytes if version >= 13 else b"orders"
    assert (request.replica_id, request.max_wait_ms, request.min_bytes) == (6, 500, 1)
    assert (request.max_bytes, request.isolation) == (55 << 20, 1)
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (99, 7)
        assert request.forgotten == [(topic if version >= 13 else b"gone", [1, 2])]
    assert request.rack == (b"r1" if version >= 11 else b"")
    ((name, partitions),) = request.topics
    assert name == topic
    assert [partition.partition for partition in partitions] == [0, 300]
    for partition in partitions:
        assert (partition.offset, partition.max_bytes) == (1 << 40, 1 << 20)
        assert partition.leader_epoch == (4 if version >= 9 else -1)
        assert partition.last_fetched_epoch == (3 if version >= 12 else -1)
        assert partition.log_start == (17 if version >= 5 else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_cut_is_noticed_or_harmless(version: int) -> None:
    body = encoded_request(version)
    whole = read_fetch(memoryview(body), 0, version)
    for end in range(len(body)):
        try:
            cut = read_fetch(memoryview(body[:end]), 0, version)
        except BAD_FRAME:
            continue
        assert cut.topics == whole.topics


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_what_we_pack(version: int) -> None:
    records = b"0123456789" * 30
    good = FetchResult(0, 0, 100, 90, 5, len(records), records)
    good.aborted = [(11, 12)]
    moved = FetchResult(300, ErrorCode.not_leader_or_follower)
    moved.leader = (2, 8)
    diverged = FetchResult(2, 0, 100, 90, 5)
    diverged.diverging = (3, 55)
    topic = TOPIC_ID.bytes if version >= 13 else b"orders"
    parts = pack_fetch_response(5, version, 0, 1234, [(topic, [good, moved, diverged])])
    assert any(part is records for part in parts)
    frame = b"".join(parts)  # type: ignore[arg-type]
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    module = kio_module(version, "response")
    body = frame[9 if version >= 12 else 8 :]
    response, size = entity_reader(module.FetchResponse)(body, 0)
    assert size == len(body)
    if version >= 7:
        assert response.session_id == 1234
    (answer,) = response.responses
    first, second, third = answer.partitions
    assert (first.high_watermark, first.last_stable_offset, bytes(first.records)) == (100, 90, records)
    assert [(a.producer_id, a.first_offset) for a in first.aborted_transactions] == [(11, 12)]
    assert second.error_code is ErrorCode.not_leader_or_follower
    assert second.aborted_transactions is None
    if version >= 5:
        assert first.log_start_offset == 5
    if version >= 12:
        assert (second.current_leader.leader_id, second.current_leader.leader_epoch) == (2, 8)
        assert (third.diverging_epoch.epoch, third.diverging_epoch.end_offset) == (3, 55)


def test_a_request_names_no_more_partitions_than_it_may() -> None:
    head = struct.pack(">iiiib", -1, 0, 0, 1, 0)
    body = head + struct.pack(">ih1si", 1, 1, b"t", 3) + struct.pack(">iqi", 0, 0, 1) * 3
    assert len(read_fetch(memoryview(body), 0, 4, 4).topics[0][1]) == 3
    with pytest.raises(Malformed, match="more than 3 topics and partitions"):
        read_fetch(memoryview(body), 0, 4, 3)
