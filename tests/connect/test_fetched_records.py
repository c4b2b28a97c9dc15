"""The compiled decoder gives a sink the same records as the one that goes record by record."""

from __future__ import annotations

import random

from millstream.client.fetch import Fetched
from millstream.connect.data.fetched_records import in_columns, one_by_one
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch


def test_both_decoders_agree() -> None:
    rng = random.Random(1)
    batches = b""
    offset = 100
    for number in range(30):
        records = [
            Record(
                offset + at,
                rng.choice([0, 1_700_000_000_000 + at, 5]),
                rng.choice([None, b"", b"key"]),
                rng.choice([None, b"", b"v" * rng.randrange(300)]),
                rng.choice([(), (("h", b"1"), ("h", None)), (("ä", b""),)]),
            )
            for at in range(rng.randrange(1, 40))
        ]
        batches += bytes(encode_batch(records, transactional=number % 3 == 0, base_offset=offset))
        offset += len(records)
    for begin in (0, 100, 117, offset - 1, offset):
        fetched = Fetched("t", 0, ErrorCode.none, offset, offset, 0, [], memoryview(batches))
        expected = one_by_one(fetched, begin)
        assert in_columns(fetched, begin) == expected
        assert (begin < offset) is bool(expected)
