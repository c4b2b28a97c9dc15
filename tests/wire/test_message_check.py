"""The walk before kio reads: right requests pass unchanged, impossible ones are stopped, unknown tags are cut
out."""

import random
import struct
from datetime import timedelta
from typing import Any

import pytest

from millstream.wire._kio import api_key_map, entity_reader, load_request_schema, schema_name_map
from millstream.wire.message_check import LONGEST_MS, MAX_ELEMENTS, message_checker
from millstream.wire.messages import codec
from millstream.wire.varint import Malformed

from .samples import sample_body

# Of each API the oldest and the newest version: the first use of a schema costs kio some milliseconds.
SCHEMAS = [
    (key, version)
    for key, name in api_key_map.items()
    for version in {min(schema_name_map[name]), max(schema_name_map[name])}
]


@pytest.mark.parametrize(("key", "version"), SCHEMAS)
def test_a_right_request_passes_unchanged_and_every_cut_of_it_is_stopped(key: int, version: int) -> None:
    schema = load_request_schema(key, version)
    check = message_checker(schema)
    body = sample_body(schema)
    assert check(body) == body
    assert check(body + b"more") == body + b"more"  # what follows is nobody's business
    for size in range(len(body)):
        with pytest.raises(Malformed):
            check(body[:size])


@pytest.mark.parametrize("version", [1, 2])
def test_the_longest_periods_can_be_read(version: int) -> None:
    """Clients say Long.MAX_VALUE for as long as can be."""
    before = b"\x03ab" if version == 2 else struct.pack(">i", 2) + b"ab"
    after = b"\0" if version == 2 else b""
    ms = timedelta(milliseconds=1)
    for period in (2**63 - 1, -(2**63), LONGEST_MS + 1, -LONGEST_MS - 1):
        body = before + struct.pack(">q", period) + after
        request = codec(39, version).read(memoryview(body), 0)
        assert request.hmac == b"ab"
        assert request.renew_period // ms == (LONGEST_MS if period > 0 else -LONGEST_MS)
    for period in (-1, 0, LONGEST_MS, -LONGEST_MS):
        body = before + struct.pack(">q", period) + after
        assert codec(39, version).read(memoryview(body), 0).renew_period // ms == period
    with pytest.raises(Malformed):
        message_checker(load_request_schema(39, version))(body[:-4])


def test_what_passes_can_be_read() -> None:
    """Damaged at random: kio may still refuse what passed, but only with an exception of the ordinary
    kind."""
    chance = random.Random(7)
    read = 0
    for key, version in chance.sample(SCHEMAS, 40):
        schema = load_request_schema(key, version)
        check, reader, body = message_checker(schema), entity_reader(schema), sample_body(schema)
        for _ in range(100):
            damaged = bytearray(body)
            for _ in range(chance.randint(1, 3)):
                if damaged:
                    at = chance.randrange(len(damaged))
                    damaged[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 3))
            try:
                reader(check(bytes(damaged)), 0)
                read += 1
            except Exception:  # noqa: S112, any of kio's many
                continue
    assert read > 100


METADATA_1, METADATA_9 = load_request_schema(3, 1), load_request_schema(3, 9)
PRODUCE_3 = load_request_schema(0, 3)


@pytest.mark.parametrize(
    ("schema", "body", "why"),
    [
        (METADATA_1, struct.pack(">i", 2**31 - 1), "2147483647 elements announced, 0 bytes left"),
        (METADATA_1, struct.pack(">i", -2), "an array of -2"),
        (METADATA_1, struct.pack(">ih", 1, -1), "null where null may not be"),
        (METADATA_1, struct.pack(">ih", 1, -5), "a length of -5"),
        (METADATA_1, struct.pack(">ih", 1, 9) + b"abc", "9 bytes announced, 3 left"),
        (METADATA_1, b"", "ends too early"),
        (METADATA_9, b"\xff\xff\xff\xff\x0f", "elements announced"),
        (METADATA_9, b"\xff\xff\xff\xff\xff\xff", "varint"),
        (METADATA_9, b"\x02\x00\x00\0\0\0\0", "null where null may not be"),
        (METADATA_9, b"\x01\0\0\0\x01\x07\x7f", "reaches past the frame"),
        (PRODUCE_3, struct.pack(">hhii", -1, 1, 1000, -1), "null where null may not be"),
    ],
)
def test_an_impossible_request_is_stopped(schema: Any, body: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        message_checker(schema)(body)


def test_there_is_an_end_to_the_elements_of_one_request() -> None:
    """Many small ones fit a frame and would be a hundred times as large in memory."""
    with pytest.raises(Malformed, match="more than"):
        message_checker(METADATA_1)(struct.pack(">i", MAX_ELEMENTS + 1) + bytes(2 * (MAX_ELEMENTS + 1)))


def test_null_passes_where_it_may_stand() -> None:
    body = struct.pack(">i", -1)
    assert message_checker(METADATA_1)(body) == body


def test_tags_that_nobody_knows_are_cut_out() -> None:
    whole = sample_body(METADATA_9)
    assert whole.endswith(b"\x00")
    tagged = whole[:-1] + b"\x02" + b"\x07\x03abc" + b"\x0a\x00"
    assert message_checker(METADATA_9)(tagged) == whole
    inside = b"\x02\x05name\x01\x09\x01x" + b"\x01\x01\x01" + b"\x00"  # in the one topic
    assert message_checker(METADATA_9)(inside) == b"\x02\x05name\x00" + b"\x01\x01\x01" + b"\x00"


def test_known_tags_stay_and_are_walked() -> None:
    fetch = load_request_schema(1, 12)  # cluster_id is tag 0
    whole = sample_body(fetch)
    assert message_checker(fetch)(whole) == whole
    known = b"\x00\x05\x05name"
    assert known in whole
    unknown_too = whole.replace(b"\x01" + known, b"\x02" + known + b"\x63\x01x")
    assert unknown_too != whole
    assert message_checker(fetch)(unknown_too) == whole
    with pytest.raises(Malformed, match="tagged field"):
        message_checker(fetch)(whole.replace(known, b"\x00\x05\x04name"))
