"""The hand-written Produce and Fetch against kio, in every version, and against the broker's own halves."""

import io
import uuid

import pytest

from millstream.wire._kio import entity_reader, entity_writer, load_request_schema, load_response_schema
from millstream.wire.client_produce_fetch import (
    CONSUMER,
    DEBUGGING_REPLICA,
    FETCH_NEWEST,
    PRODUCE_NEWEST,
    Position,
    pack_fetch,
    pack_produce,
    read_fetch,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.fetch import FetchResult, pack_fetch_response
from millstream.wire.fetch import read_fetch as read_fetch_request
from millstream.wire.produce import read_produce
from millstream.wire.records import Record, encode_batch

ID = uuid.UUID("11111111-2222-3333-4444-555555555555")
BATCH = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v" * 300)])


@pytest.mark.parametrize("version", range(3, PRODUCE_NEWEST + 1))
def test_produce_request(version):
    parts = pack_produce(version, {"orders": {0: BATCH, 3: BATCH}}, {"orders": ID}, -1, 1500)
    assert any(part is BATCH for part in parts), "the batch itself is a part, not a copy"
    body = b"".join(bytes(part) for part in parts)
    request, size = entity_reader(load_request_schema(0, version))(memoryview(body), 0)
    assert size == len(body)
    assert (request.acks, request.timeout.total_seconds(), request.transactional_id) == (-1, 1.5, None)
    (topic,) = request.topic_data
    assert topic.topic_id == ID if version >= 13 else topic.name == "orders"
    assert [(p.index, bytes(p.records)) for p in topic.partition_data] == [(0, BATCH), (3, BATCH)]
    ours = read_produce(memoryview(body), 0, version)
    assert [(i, bytes(r)) for _, ps in ours.topics for i, r in ps] == [(0, BATCH), (3, BATCH)]


@pytest.mark.parametrize("version", range(4, FETCH_NEWEST + 1))
def test_fetch_request(version):
    body = pack_fetch(
        version,
        {"orders": {0: Position(7), 2: Position(1 << 40, 5)}},
        {"orders": ID},
        max_wait_ms=250,
        min_bytes=1,
        max_bytes=1 << 20,
        partition_max_bytes=1 << 16,
        isolation=1,
        rack="r1",
    )
    request, size = entity_reader(load_request_schema(1, version))(memoryview(body), 0)
    assert size == len(body)
    assert (request.max_wait.total_seconds(), request.min_bytes, request.max_bytes) == (0.25, 1, 1 << 20)
    assert request.isolation_level == 1
    (topic,) = request.topics
    assert topic.topic_id == ID if version >= 13 else topic.topic == "orders"
    assert [(p.partition, p.fetch_offset) for p in topic.partitions] == [(0, 7), (2, 1 << 40)]
    if version >= 9:
        assert [p.current_leader_epoch for p in topic.partitions] == [-1, 5]
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (0, -1)
    if version >= 11:
        assert request.rack_id == "r1"
    ours = read_fetch_request(memoryview(body), 0, version)
    assert [(p[0], p.offset) for _, ps in ours.topics for p in ps] == [(0, 7), (2, 1 << 40)]
    assert ours.replica_id == -1


def kio_fetch_answer(version, records, error=0):
    module = __import__(f"kio.schema.fetch.v{version}.response", fromlist=["*"])
    part = {
        "partition_index": 2,
        "error_code": ErrorCode(error),
        "high_watermark": 100,
        "last_stable_offset": 90,
        "log_start_offset": 5,
        "aborted_transactions": (module.AbortedTransaction(producer_id=8, first_offset=50),),
        "preferred_read_replica": -1,
        "records": records,
    }
    names = module.PartitionData.__dataclass_fields__
    partition = module.PartitionData(**{k: v for k, v in part.items() if k in names})
    which = {"topic_id": ID} if version >= 13 else {"topic": "orders"}
    from datetime import timedelta

    top = {
        "throttle_time": timedelta(0),
        "error_code": ErrorCode.none,
        "session_id": 0,
        "responses": (module.FetchableTopicResponse(**which, partitions=(partition,)),),
    }
    names = module.FetchResponse.__dataclass_fields__
    out = io.BytesIO()
    if version >= 12:
        out.write(b"\0")
    entity_writer(load_response_schema(1, version))(
        out, module.FetchResponse(**{k: v for k, v in top.items() if k in names})
    )
    return memoryview(out.getvalue())


@pytest.mark.parametrize("version", range(4, FETCH_NEWEST + 1))
def test_fetch_answer_of_kio(version):
    body = kio_fetch_answer(version, bytes(BATCH))
    (found,) = read_fetch(version, body, {ID: "orders"})
    assert (found.topic, found.partition, found.error) == ("orders", 2, ErrorCode.none)
    assert (found.high_watermark, found.last_stable_offset) == (100, 90)
    assert found.log_start_offset == (5 if version >= 5 else -1)
    assert list(found.aborted) == [(8, 50)]
    assert bytes(found.records) == BATCH
    assert found.records.obj is body.obj, "records are a view of what was received"
    (found,) = read_fetch(version, kio_fetch_answer(version, None, error=1), {ID: "orders"})
    assert found.error is ErrorCode.offset_out_of_range
    assert len(found.records) == 0


@pytest.mark.parametrize("version", range(4, FETCH_NEWEST + 1))
def test_fetch_answer_of_the_broker(version):
    topic = ID.bytes if version >= 13 else b"orders"
    result = FetchResult(1, 0, 100, 90, 5, len(BATCH), BATCH)
    result.leader = (3, 4)
    empty = FetchResult(2, 6)
    parts = pack_fetch_response(77, version, 0, 0, [(topic, [result, empty])])
    body = memoryview(b"".join(bytes(part) for part in parts))[8:]
    first, second = read_fetch(version, body, {ID: "orders"})
    assert (first.topic, first.partition, bytes(first.records)) == ("orders", 1, bytes(BATCH))
    assert second.error is ErrorCode.not_leader_or_follower


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_cut_off_fetch_answer_is_a_kafka_error(version):
    body = kio_fetch_answer(version, bytes(BATCH))
    for size in range(0, len(body) - 1, 7):
        try:
            read_fetch(version, body[:size], {ID: "orders"})
        except KafkaError:
            continue
        pytest.fail(f"{size} of {len(body)} bytes were taken for an answer")


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("replica_id", [CONSUMER, DEBUGGING_REPLICA])
def test_the_broker_reads_who_fetches(version: int, replica_id: int) -> None:
    body = pack_fetch(
        version,
        {"orders": {0: Position(5)}},
        {"orders": uuid.UUID(int=7)},
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1000,
        partition_max_bytes=100,
        isolation=0,
        replica_id=replica_id,
    )
    assert read_fetch_request(memoryview(body), 0, version).replica_id == replica_id
