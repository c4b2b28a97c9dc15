"""Produce as a client sees it: acknowledgements, idempotence, limits, settings that change what is stored."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from millstream.testing import Broker
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch, iter_batches, iter_records

from ..conftest import Wire


def stored(wire: Wire, topic: str) -> list[Any]:
    """The batches of partition 0: (header, records)."""
    answer = wire.fetch({topic: {0: 0}}, partition_max=50 << 20).responses[0].partitions[0]
    return [
        (header, list(iter_records(batch))) for header, batch in iter_batches(bytes(answer.records or b""))
    ]


def produce_raw(wire: Wire, topic: str, data: bytes, version: int = 12, acks: int = -1) -> Any:
    answer = wire.ask(
        "produce",
        up_to=version,
        transactional_id=None,
        acks=acks,
        timeout=5000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": data}]}],
    )
    return answer.responses[0].partition_responses[0]


def test_a_repeated_batch_is_acknowledged_but_written_once(wire: Wire) -> None:
    topic = wire.create()
    identity = {
        "producer_id": wire.ask(
            "init_producer_id",
            transactional_id=None,
            transaction_timeout=0,
            producer_id=-1,
            producer_epoch=-1,
        ).producer_id,
        "producer_epoch": 0,
    }
    first = wire.produce(topic, b"a", b"b", base_sequence=0, **identity)
    again = wire.produce(topic, b"a", b"b", base_sequence=0, **identity)
    assert (first.error_code, again.error_code) == (0, 0)
    assert first.base_offset == again.base_offset == 0
    gap = wire.produce(topic, b"z", base_sequence=7, **identity)
    assert gap.error_code is ErrorCode.out_of_order_sequence_number
    following = wire.produce(topic, b"c", base_sequence=2, **identity)
    assert following.base_offset == 2
    assert [r.value for _, records in stored(wire, topic) for r in records] == [b"a", b"b", b"c"]


def test_producer_state_survives_a_restart(connect: Callable[[Broker], Wire]) -> None:
    with Broker() as broker:
        mine = connect(broker)
        topic = mine.create()
        identity: dict[str, Any] = {"producer_id": 4711, "producer_epoch": 3}
        mine.produce(topic, b"a", base_sequence=0, **identity)
        for restart in (broker.restart, lambda: (broker.kill(), broker.start())):
            restart()
            mine = connect(broker)
            again = mine.produce(topic, b"a", base_sequence=0, **identity)
            assert (again.error_code, again.base_offset) == (0, 0)
        stale = mine.produce(topic, b"x", base_sequence=1, producer_id=4711, producer_epoch=2)
        assert stale.error_code is ErrorCode.invalid_producer_epoch


def test_producer_ids_are_never_given_twice(connect: Callable[[Broker], Wire]) -> None:
    seen: set[int] = set()
    with Broker() as broker:
        for _ in range(2):
            mine = connect(broker)
            for _ in range(5):
                seen.add(
                    mine.ask(
                        "init_producer_id",
                        transactional_id=None,
                        transaction_timeout=0,
                        producer_id=-1,
                        producer_epoch=-1,
                    ).producer_id
                )
            broker.kill()
            broker.start()
    assert len(seen) == 10


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_make_no_sense(wire: Wire, acks: int) -> None:
    topic = wire.create()
    assert wire.produce(topic, b"a", acks=acks).error_code is ErrorCode.invalid_required_acks
    assert stored(wire, topic) == []


def test_too_large_is_refused_and_nothing_is_written(wire: Wire) -> None:
    topic = wire.create(max_message_bytes="2000")
    assert wire.produce(topic, b"x" * 3000).error_code is ErrorCode.message_too_large
    assert wire.produce(topic, b"x" * 1000).error_code == 0
    assert len(stored(wire, topic)) == 1


def test_log_append_time(wire: Wire) -> None:
    topic = wire.create(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    data = encode_batch([Record(0, 1000, b"k", b"v", ())])
    answer = produce_raw(wire, topic, bytes(data))
    stamp = answer.log_append_time
    milliseconds = stamp if isinstance(stamp, int) else int(stamp.timestamp() * 1000)
    ((header, (record,)),) = stored(wire, topic)
    assert header.attributes & 8
    assert header.max_timestamp == milliseconds >= before
    assert record.timestamp == milliseconds


@pytest.mark.parametrize(
    ("wanted", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)]
)
@pytest.mark.parametrize("sent", [0, 3])
def test_the_topic_decides_the_codec(wire: Wire, wanted: str, codec: int, sent: int) -> None:
    topic = wire.create(compression_type=wanted)
    data = encode_batch([Record(0, 5, None, b"value %d" % n, (("h", None),)) for n in range(50)], sent)
    assert produce_raw(wire, topic, bytes(data)).error_code == 0
    ((header, records),) = stored(wire, topic)
    assert header.codec == codec
    assert [r.value for r in records] == [b"value %d" % n for n in range(50)]
    assert records[0].headers == (("h", None),)


@pytest.mark.parametrize("codec", range(5))
def test_the_producers_codec_is_kept_byte_for_byte(wire: Wire, codec: int) -> None:
    topic = wire.create()
    data = bytes(encode_batch([Record(0, 5, b"k", b"value %d" % n, ()) for n in range(50)], codec))
    assert produce_raw(wire, topic, data).error_code == 0
    answer = wire.fetch({topic: {0: 0}}).responses[0].partitions[0]
    assert bytes(answer.records)[16:] == data[16:]  # all but offset, length and leader epoch


def test_a_compacted_topic_refuses_records_without_key(wire: Wire) -> None:
    topic = wire.create(cleanup_policy="compact")
    keys = (b"k", None, b"", None)
    data = encode_batch([Record(0, 5, key, b"v", ()) for key in keys])
    answer = produce_raw(wire, topic, bytes(data))
    assert answer.error_code is ErrorCode.invalid_record
    assert [one.batch_index for one in answer.record_errors] == [1, 3]
    assert wire.produce(topic, b"fine").error_code == 0


def test_records_out_of_their_time_are_named(wire: Wire) -> None:
    """A producer that is told which ones can send the others again."""
    topic = wire.create(message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="60000")
    now = int(time.time() * 1000)
    for codec in (0, 1):
        for off, outside in (((0, 3_600_000, 5), [1]), ((-3_600_000, 0, -3_600_000), [0, 2])):
            data = encode_batch([Record(0, now + by, b"k", b"v", ()) for by in off], codec)
            answer = produce_raw(wire, topic, bytes(data))
            assert answer.error_code is ErrorCode.invalid_timestamp
            assert [one.batch_index for one in answer.record_errors] == outside
    assert wire.produce(topic, b"fine").error_code == 0


def test_flush_messages_acknowledges_after_the_fsync(wire: Wire) -> None:
    topic = wire.create(flush_messages="1")
    for number in range(20):
        assert wire.produce(topic, b"%d" % number, acks=-1 if number % 2 else 1).base_offset == number
    assert len(stored(wire, topic)) == 20


def test_produce_by_topic_id(wire: Wire) -> None:
    import uuid

    topic = wire.create()
    known = wire.metadata(topic)
    topic_id = known.topics[0].topic_id
    data = bytes(encode_batch([Record(0, 5, b"k", b"v", ())]))

    def send(id: uuid.UUID) -> Any:
        answer = wire.ask(
            "produce",
            transactional_id=None,
            acks=-1,
            timeout=1000,
            topic_data=[{"topic_id": id, "partition_data": [{"index": 0, "records": data}]}],
        )
        return answer.responses[0].partition_responses[0]

    for _ in range(3):
        assert send(topic_id).error_code == 0
    assert send(uuid.uuid4()).error_code is ErrorCode.unknown_topic_id
    wire.ask("delete_topics", topics=[{"name": topic, "topic_id": None}], timeout=5000)
    assert send(topic_id).error_code is ErrorCode.unknown_topic_id


def test_settings_of_a_topic_take_effect_at_once(wire: Wire) -> None:
    topic = wire.create()
    assert wire.produce(topic, b"x" * 3000).error_code == 0
    change = {"name": "max.message.bytes", "config_operation": 0, "value": "2000"}
    answer = wire.ask(
        "incremental_alter_configs",
        resources=[{"resource_type": 2, "resource_name": topic, "configs": [change]}],
        validate_only=False,
    )
    assert answer.responses[0].error_code == 0
    assert wire.produce(topic, b"x" * 3000).error_code is ErrorCode.message_too_large
