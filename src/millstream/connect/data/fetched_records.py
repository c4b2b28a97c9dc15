"""The records in what a partition answered: one by one where there are few, by the compiled decoder where
there are many.

The decoder takes a second to load and a third of the time for each record, so a sink that is fed in small
portions never loads it. Both give the same records.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from millstream.client.fetch import Fetched, visible_batches
from millstream.wire.records import Record, iter_records

COMPILED_FROM = 200_000
"""Bytes of an answer: a few hundred to a few thousand records."""
TimedRecord = tuple[Record, str]
"""A record, and whose its timestamp is."""
_new = tuple.__new__
_CREATE_TIME, _LOG_APPEND_TIME = "CreateTime", "LogAppendTime"


def committed_records(fetched: Fetched, begin: int) -> list[TimedRecord]:
    """Those from an offset on that are committed."""
    if len(fetched.records) >= COMPILED_FROM:
        return in_columns(fetched, begin)
    return one_by_one(fetched, begin)


def one_by_one(fetched: Fetched, begin: int) -> list[TimedRecord]:
    found: list[TimedRecord] = []
    for header, batch in visible_batches(fetched, begin, read_committed=True):
        kind = _LOG_APPEND_TIME if header.attributes & 8 else _CREATE_TIME
        found += [(one, kind) for one in iter_records(batch) if one.offset >= begin]
    return found


def in_columns(fetched: Fetched, begin: int) -> list[TimedRecord]:
    from millstream.wire.arrow import Answer, Columns

    found: list[TimedRecord] = []
    columns = Columns(headers=True)
    for chunk in Answer(fetched.records).chunks(
        begin, read_committed=True, aborted=fetched.aborted, columns=columns
    ):
        assert chunk.key is not None and chunk.value is not None and chunk.headers is not None
        kind = _LOG_APPEND_TIME if chunk.append_time else _CREATE_TIME
        stamps = (chunk.timestamp.cast("int64").to_numpy() // 1000).tolist()
        count = len(stamps)
        headers: Iterable[tuple[tuple[str, bytes | None], ...]] = itertools.repeat((), count)
        if chunk.headers.null_count != count and len(chunk.headers.flatten()):
            headers = [
                tuple((header["key"], header["value"]) for header in one or ())
                for one in chunk.headers.to_pylist()
            ]
        keys = itertools.repeat(None, count) if chunk.key.null_count == count else chunk.key.to_pylist()
        offsets = chunk.offset.to_numpy().tolist()
        read = zip(offsets, stamps, keys, chunk.value.to_pylist(), headers, strict=True)
        # Not by the constructor, which is a function of Python's around this one.
        found += [(_new(Record, fields), kind) for fields in read]
    return found
