"""What PRINT makes of bytes, and what it says about their format."""

from __future__ import annotations

import struct

from millstream.serdes.codec import Encoder
from millstream.sql.push import Raw
from millstream.sql.results import ResultColumn, ResultStream
from millstream.sql.server.topic_printer import TopicPrinter
from millstream.sql.types import STRING
from tests.sql.formats.registry_stub import MemoryRegistry


def printed(
    *records: tuple[bytes | None, bytes | None],
    registry: MemoryRegistry | None = None,
    limit: int | None = None,
) -> list[str]:
    """The lines, those of records without their times."""
    result = ResultStream("print", (ResultColumn("LINE", STRING),))
    printer = TopicPrinter(result, 1, limit, registry)
    for key, value in records:
        printer.deliver("t", 0, 0, Raw(key, value, 1_000, ()))
    return [str(row[0]).removeprefix("rowtime: 1970/01/01 00:00:01.000 Z, ") for row in result.take()[0]]


def test_text_and_json() -> None:
    assert printed((b"18", b'{"a":1}'), (b"User_1", b'{"a":2}')) == [
        "Key format: JSON or KAFKA_STRING",
        "Value format: JSON or KAFKA_STRING",
        'key: 18, value: {"a":1}, partition: 0',
        "Key format: KAFKA_STRING",
        'key: User_1, value: {"a":2}, partition: 0',
    ]


def test_numbers() -> None:
    lines = printed((struct.pack(">i", 5), struct.pack(">q", 200)), (b"abcd", struct.pack(">d", 1.5)))
    assert lines == [
        "Key format: KAFKA_INT or KAFKA_STRING",
        "Value format: KAFKA_BIGINT or KAFKA_DOUBLE",
        "key: 5, value: 200, partition: 0",
        "key: abcd, value: 4609434218613702656, partition: 0",
    ]


def test_nothing_and_everything() -> None:
    assert printed((None, b"x"), (None, b"\xff\x00a"), limit=5) == [
        "Key format: ¯\\_(ツ)_/¯ - no data processed",
        "Value format: KAFKA_STRING",
        "key: <null>, value: x, partition: 0",
        "Value format: MIXED",
        "key: <null>, value: \\xFF\\x00a, partition: 0",
    ]


def test_what_is_nested_very_deeply_is_text() -> None:
    assert printed((None, b"[" * 100_000 + b"]" * 100_000))[1] == "Value format: KAFKA_STRING"


def test_the_limit_counts_records() -> None:
    assert len(printed((b"a", b"x"), (b"b", b"y"), (b"c", b"z"), limit=2)) == 4


def test_windows_only_where_there_are_times() -> None:
    start, end = (1_600_000_000_000).to_bytes(8, "big"), (1_600_000_001_000).to_bytes(8, "big")
    assert printed((b"a" + start, None))[0] == "Key format: HOPPING(KAFKA_STRING) or TUMBLING(KAFKA_STRING)"
    assert "key: [a@1600000000000/-]" in printed((b"a" + start, None))[2]
    assert "key: [a@1600000000000/1600000001000]" in printed((b"a" + end + start, None))[2]
    assert printed((b"a long enough key", None))[0] == "Key format: KAFKA_STRING"


def test_values_of_a_registered_schema() -> None:
    registry = MemoryRegistry()
    schema = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "int"]}]}'
    found = printed((None, Encoder(registry, schema).encode("t", {"a": 5})), registry=registry)
    assert found[1].startswith("Value format: AVRO")
    assert found[2] == 'key: <null>, value: {"a": 5}, partition: 0'
