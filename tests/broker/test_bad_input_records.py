"""Record batches that are wrong: the producer gets Kafka's error code, and the log stays as it was.

The codes were taken from Apache Kafka 4.2 (MILLSTREAM_AGAINST=HOST:PORT runs this file there). Millstream
does not open the records of a batch unless it must, so a few lies inside a batch with a right checksum go
through: those cases name what it may answer. The checksum is the producer's own, so this is the producer's
own damage.
"""

import struct
import uuid
import zlib
from collections.abc import Callable
from typing import NamedTuple

import pytest

from millstream.wire.batch import CONTROL, TRANSACTIONAL, crc_of
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch

from .raw_frames import (
    Raw,
    Target,
    ask,
    batch,
    ends,
    fetch_fields,
    new_topic,
    produce,
    produce_code,
    produce_fields,
    target,
)

__all__ = ["target"]  # the fixture

OK, CORRUPT, INVALID, UNKNOWN = 0, 2, 87, -1
LENGTH, MAGIC, ATTRIBUTES, LAST_DELTA, BASE_TIME, MAX_TIME = 8, 16, 21, 23, 27, 35
PRODUCER, EPOCH, SEQUENCE, COUNT, RECORDS = 43, 51, 53, 57, 61


def changed(*changes: tuple[int, str, int], count: int = 1, codec: int = 0) -> bytes:
    """A right batch with some fields overwritten and the checksum made right again."""
    out = batch(count, codec=codec)
    for at, form, value in changes:
        struct.pack_into(form, out, at, value)
    struct.pack_into(">I", out, 17, crc_of(out))
    return bytes(out)


def old_message(magic: int) -> bytes:
    """A message set of the days before record batches."""
    moment = struct.pack(">q", 1_700_000_000_000) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + moment + struct.pack(">i1si1s", 1, b"k", 1, b"v")
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def broken_checksum() -> bytes:
    out = batch()
    out[-1] ^= 1
    return bytes(out)


def with_magic(magic: int) -> bytes:
    out = batch()
    out[MAGIC] = magic
    return bytes(out)


class Case(NamedTuple):
    records: Callable[[], bytes]
    kafka: int
    ours: tuple[int, ...] = ()


CASES = {
    "a wrong checksum": Case(broken_checksum, CORRUPT),
    "magic 0 in a batch": Case(lambda: with_magic(0), INVALID),
    "magic 1 in a batch": Case(lambda: with_magic(1), INVALID),
    "magic 3": Case(lambda: with_magic(3), CORRUPT),
    "a message set of magic 0": Case(lambda: old_message(0), INVALID),
    "a message set of magic 1": Case(lambda: old_message(1), INVALID),
    "nothing": Case(lambda: b"", INVALID),
    "five bytes": Case(lambda: b"12345", INVALID),
    "a hundred bytes": Case(lambda: b"\x01" * 100, INVALID, (INVALID, CORRUPT)),
    "two batches": Case(lambda: bytes(batch() + batch()), INVALID),
    "a batch cut short": Case(lambda: bytes(batch()[:-3]), INVALID, (INVALID, CORRUPT)),
    "a negative length": Case(lambda: changed((LENGTH, ">i", -1)), CORRUPT),
    "a length of 0": Case(lambda: changed((LENGTH, ">i", 0)), CORRUPT),
    "a length shorter than a header": Case(lambda: changed((LENGTH, ">i", 48)), CORRUPT),
    "a length of 2 GB": Case(lambda: changed((LENGTH, ">i", 2**31 - 1)), UNKNOWN, (INVALID, CORRUPT)),
    "no records": Case(lambda: changed((COUNT, ">i", 0)), INVALID),
    "-1 records": Case(lambda: changed((COUNT, ">i", -1)), INVALID),
    "more records than there are": Case(lambda: changed((COUNT, ">i", 2)), INVALID),
    "fewer records than there are": Case(lambda: changed((COUNT, ">i", 1), count=2), INVALID),
    "two billion records": Case(lambda: changed((COUNT, ">i", 2**31 - 1)), INVALID),
    "a last offset too high": Case(lambda: changed((LAST_DELTA, ">i", 5)), INVALID),
    "a negative last offset": Case(lambda: changed((LAST_DELTA, ">i", -1)), INVALID),
    "ten records claimed, one there": Case(
        lambda: changed((LAST_DELTA, ">i", 9), (COUNT, ">i", 10)), INVALID
    ),
    "a control batch": Case(lambda: changed((ATTRIBUTES, ">h", CONTROL)), INVALID),
    "codec 5": Case(lambda: changed((ATTRIBUTES, ">h", 5)), UNKNOWN, (76, CORRUPT, INVALID)),
    "codec 7": Case(lambda: changed((ATTRIBUTES, ">h", 7)), UNKNOWN, (76, CORRUPT, INVALID)),
    "plain records said to be gzip": Case(
        lambda: changed((ATTRIBUTES, ">h", 1)), UNKNOWN, (CORRUPT, INVALID, OK)
    ),
    "plain records said to be snappy": Case(
        lambda: changed((ATTRIBUTES, ">h", 2)), UNKNOWN, (CORRUPT, INVALID, OK)
    ),
    "plain records said to be lz4": Case(
        lambda: changed((ATTRIBUTES, ">h", 3)), UNKNOWN, (CORRUPT, INVALID, OK)
    ),
    "plain records said to be zstd": Case(
        lambda: changed((ATTRIBUTES, ">h", 4)), UNKNOWN, (CORRUPT, INVALID, OK)
    ),
    "a base offset of 77": Case(lambda: changed((0, ">q", 77)), INVALID, (INVALID, OK)),
    "a producer id without an epoch": Case(lambda: changed((PRODUCER, ">q", 5)), INVALID),
    "a producer id without a sequence": Case(lambda: changed((PRODUCER, ">q", 5), (EPOCH, ">h", 0)), INVALID),
    "a record size that lies": Case(lambda: changed((RECORDS, ">b", 2)), INVALID, (INVALID, OK)),
    "a key longer than its record": Case(lambda: changed((RECORDS + 4, ">b", 0x7E)), INVALID, (INVALID, OK)),
    "a timestamp type that is the broker's to set": Case(
        lambda: changed((ATTRIBUTES, ">h", 8)), OK, (OK, 32)
    ),
    "no timestamps": Case(lambda: changed((BASE_TIME, ">q", -1), (MAX_TIME, ">q", -1)), OK),
}


@pytest.fixture(scope="module")
def topic(target: Target) -> str:
    name = f"bad-records-{uuid.uuid4().hex[:8]}"
    new_topic(target.bootstrap, name)
    return name


@pytest.mark.parametrize("what", list(CASES))
def test_a_bad_batch(target: Target, topic: str, what: str) -> None:
    case = CASES[what]
    before = ends(target.bootstrap, topic)
    code = produce_code(target.bootstrap, topic, case.records())
    if target.is_millstream:
        assert code in (case.ours or (case.kafka,))
    else:
        assert code == case.kafka
    if code != OK:
        assert ends(target.bootstrap, topic) == before
    target.is_fine()


@pytest.mark.parametrize("what", ["a wrong checksum", "magic 3", "a batch cut short"])
def test_a_broken_batch_leaves_one_line_in_the_log(target: Target, topic: str, what: str) -> None:
    with target.one_log_line():
        produce_code(target.bootstrap, topic, CASES[what].records())


def test_a_hundred_broken_batches_on_one_connection_do_not_end_it(target: Target, topic: str) -> None:
    with Raw(target.bootstrap) as connection:
        for _ in range(100):
            answer = connection.ask("produce", 9, **produce_fields(topic, broken_checksum()))
            assert answer.responses[0].partition_responses[0].error_code == CORRUPT
        answer = connection.ask("produce", 9, **produce_fields(topic, bytes(batch())))
        assert answer.responses[0].partition_responses[0].error_code == OK


@pytest.mark.parametrize(("acks", "code"), [(2, 21), (-2, 21)])
def test_acks_that_do_not_exist(target: Target, topic: str, acks: int, code: int) -> None:
    assert produce_code(target.bootstrap, topic, bytes(batch()), acks=acks) == code


@pytest.mark.parametrize("partition", [9, -1, 2**31 - 1])
def test_partitions_that_do_not_exist(target: Target, topic: str, partition: int) -> None:
    code = produce_code(target.bootstrap, topic, bytes(batch()), partition=partition)
    assert code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("name", ["never-created", "no such name", ""])
def test_topics_that_do_not_exist(target: Target, name: str) -> None:
    assert produce_code(target.bootstrap, name, bytes(batch())) == ErrorCode.unknown_topic_or_partition


def test_a_topic_id_that_does_not_exist(target: Target) -> None:
    data = [{"topic_id": uuid.uuid4(), "partition_data": [{"index": 0, "records": bytes(batch())}]}]
    answer = ask(target.bootstrap, "produce", 13, acks=-1, timeout=1000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.unknown_topic_id


def test_zstd_is_for_those_who_know_it(target: Target, topic: str) -> None:
    assert (
        produce_code(target.bootstrap, topic, bytes(batch(codec=4)), 6)
        == ErrorCode.unsupported_compression_type
    )
    assert produce_code(target.bootstrap, topic, bytes(batch(codec=4)), 7) == OK


def test_a_compacted_topic_wants_keys(target: Target) -> None:
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    new_topic(target.bootstrap, name, cleanup_policy="compact")
    for codec in range(5):
        keyless = encode_batch([Record(0, 1_700_000_000_000, None, b"v", ())], codec)
        assert produce_code(target.bootstrap, name, bytes(keyless)) == INVALID
    assert ends(target.bootstrap, name) == 0


def test_sequence_numbers(target: Target) -> None:
    name = f"sequences-{uuid.uuid4().hex[:8]}"
    new_topic(target.bootstrap, name)

    def send(sequence: int, epoch: int = 0, producer: int = 4_000_000) -> tuple[int, int]:
        records = batch(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(target.bootstrap, name, bytes(records))
        return int(answer.error_code), int(answer.base_offset)

    out_of_order, fenced = ErrorCode.out_of_order_sequence_number, ErrorCode.invalid_producer_epoch
    assert send(0) == (OK, 0)
    assert send(1) == (OK, 1)
    assert send(1) == (OK, 1)  # a retry: acknowledged again, not written again
    assert send(0) == (OK, 0)
    assert send(3) == (out_of_order, -1)
    assert send(2) == (OK, 2)
    assert send(5, epoch=1) == (out_of_order, -1)  # a new epoch starts at 0
    assert send(0, epoch=1) == (OK, 3)
    assert send(3, epoch=0) == (fenced, -1)
    assert send(7, producer=4_000_001) == (OK, 4)  # somebody the broker has forgotten goes on where he was
    assert ends(target.bootstrap, name) == 5


def test_a_transaction_nobody_began(target: Target, topic: str) -> None:
    records = changed((ATTRIBUTES, ">h", TRANSACTIONAL))
    code = produce_code(target.bootstrap, topic, records)
    assert code in (ErrorCode.transactional_id_authorization_failed, ErrorCode.invalid_record, 48, 53)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"fetch_offset": -1}, 1),
        ({"fetch_offset": 10**9}, 1),
        ({"partition": 9}, 3),
        ({"partition": -1}, 3),
        ({"current_leader_epoch": 5}, 75),
        ({"partition_max_bytes": 0}, 0),
    ],
    ids=str,
)
def test_a_bad_fetch(target: Target, topic: str, changes: dict[str, int], code: int) -> None:
    produce_code(target.bootstrap, topic, bytes(batch()))
    fields = fetch_fields(topic)
    fields["topics"][0]["partitions"][0] |= changes
    answer = ask(target.bootstrap, "fetch", 12, **fields)
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == code
    if code == 0:  # always at least one batch, so that a reader gets on
        assert partition.records


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"session_id": 12345, "session_epoch": 1}, ErrorCode.fetch_session_id_not_found),
        ({"max_bytes": 0}, 0),
        ({"max_wait": -1}, 0),
        ({"min_bytes": -1}, 0),
    ],
    ids=str,
)
def test_a_fetch_that_is_bad_as_a_whole(
    target: Target, topic: str, changes: dict[str, int], code: int
) -> None:
    produce_code(target.bootstrap, topic, bytes(batch()))
    answer = ask(target.bootstrap, "fetch", 12, **fetch_fields(topic) | changes)
    assert answer.error_code == code


def test_a_fetch_session_out_of_step(target: Target, topic: str) -> None:
    opened = ask(target.bootstrap, "fetch", 12, **fetch_fields(topic) | {"session_epoch": 0})
    assert opened.session_id != 0
    skipped = {"session_id": opened.session_id, "session_epoch": 7, "topics": []}
    answer = ask(target.bootstrap, "fetch", 12, **fetch_fields(topic) | skipped)
    assert answer.error_code == ErrorCode.invalid_fetch_session_epoch
