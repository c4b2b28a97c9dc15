"""Record batches to Arrow arrays, with no work per record in Python.

    answer = Answer(records)                      # headers of all batches, in one compiled pass
    answer.next_offset                            # where to read on: known before anything is decoded
    for chunk in answer.chunks(first, until, aborted=..., columns=...):
        chunk.key, chunk.value, chunk.offset      # Arrow arrays

A chunk is a run of batches of about a megabyte, so that a large answer becomes several chunks of good size.
Batches are decompressed one by one (cramjam), then all records of a chunk are read in one compiled pass into
buffers that Arrow takes over without copying.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.wire.arrow import decode_loops
from millstream.wire.arrow.decode_loops import (
    AT,
    ATTRIBUTES,
    BASE,
    COUNT,
    CRC,
    LAST,
    PRODUCER,
    SIZE,
    SOUND,
    WIDTH,
)
from millstream.wire.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    SMALLEST_RECORD,
    TRANSACTIONAL,
)
from millstream.wire.checksum import crc32c
from millstream.wire.compression import DEFAULT_LIMIT, Buffer, decompress
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import ABORT_MARKER, control_type, iter_records

CHUNK_BYTES = 1 << 20  # what is decoded and what comes of it fit in a core's cache
LARGEST_CHUNK = (1 << 31) - 1  # Arrow's binary arrays count bytes in 32 bits
ALL_OFFSETS = (1 << 63) - 1

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

REASONS = {
    decode_loops.BAD_LENGTH: "a batch claims a size that cannot be",
    decode_loops.BAD_MAGIC: "the record format is older than v2",
    decode_loops.BAD_COUNT: "more records than offsets",
    decode_loops.BAD_SIZE: "its size cannot be",
    decode_loops.CUT_OFF: "the data ends inside it",
    decode_loops.BAD_VARINT: "a number in it is cut off or too long",
    decode_loops.BAD_DELTA: "its offset does not rise, or is outside of the batch",
    decode_loops.BAD_KEY: "the key is longer than the record",
    decode_loops.BAD_VALUE: "the value is longer than the record",
    decode_loops.BAD_HEADERS: "its headers do not fit",
    decode_loops.BAD_END: "its size is wrong",
    decode_loops.LEFT_OVER: "bytes are left after the last record",
    decode_loops.NO_ROOM: "more data than the batch can hold",
}

Table = Any  # np.ndarray[int64], a row per batch


class Columns(NamedTuple):
    """Which of the costly columns are wanted."""

    key: bool = True
    value: bool = True
    headers: bool = False


@dataclass(slots=True)
class Chunk:
    """Columns of equal length. What was not wanted is None. `append_time` says whose the timestamps are, one
    answer per chunk: a chunk never mixes the two."""

    rows: int
    offset: pa.Array
    timestamp: pa.Array
    append_time: bool
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None


class Answer:
    """The batches in what one partition answered to a fetch. A batch that is cut off at the end is left
    out."""

    def __init__(self, records: Buffer) -> None:
        self.records = memoryview(records)
        self._data = np.frombuffer(self.records, np.uint8)
        count, problem = decode_loops.count_batches(self._data)
        self.batches: Table = np.empty((count, WIDTH), np.int64)
        where = count
        if problem == SOUND:
            problem, where = decode_loops.list_batches(self._data, self.batches)
        if problem != SOUND:
            raise KafkaError(ErrorCode.corrupt_message, f"batch {where} of the answer: {REASONS[problem]}")

    @property
    def next_offset(self) -> int | None:
        """The offset after the last batch; None if there is no whole batch."""
        if not len(self.batches):
            return None
        return int(self.batches[-1, BASE] + self.batches[-1, LAST] + 1)

    def chunks(
        self,
        first: int = 0,
        until: int = ALL_OFFSETS,
        *,
        read_committed: bool = False,
        aborted: Sequence[tuple[int, int]] = (),
        columns: Columns = Columns(),  # noqa: B008  (immutable)
        check_crcs: bool = True,
        limit: int = DEFAULT_LIMIT,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[Chunk]:
        """The records with first <= offset < until: no transaction markers, and for `read_committed` nothing
        of the `aborted` transactions (producer id, first offset). `limit` bounds what one batch may hold
        decompressed."""
        batches = self.batches
        chosen = (batches[:, ATTRIBUTES] & CONTROL) == 0
        chosen &= batches[:, BASE] + batches[:, LAST] >= first
        chosen &= batches[:, BASE] < until
        if read_committed and aborted:
            chosen &= self._committed(aborted)
        visible = batches[chosen]
        if check_crcs:
            self._check_crcs(visible)
        # One type of timestamp and compressed or not: what a compiled pass wants to be the same for all of
        # its batches.
        groups = (visible[:, ATTRIBUTES] & LOG_APPEND_TIME) | ((visible[:, ATTRIBUTES] & CODEC_MASK) != 0)
        edges = np.flatnonzero(np.diff(groups)) + 1
        for run in np.split(visible, edges):
            if not len(run):
                continue
            if run[0, ATTRIBUTES] & CODEC_MASK:
                yield from self._compressed(run, first, until, columns, limit, chunk_bytes)
            else:
                yield from self._plain(run, first, until, columns, limit, chunk_bytes)

    # --- which batches --------------------------------------------------------------------------------------

    def _committed(self, aborted: Sequence[tuple[int, int]]) -> Any:
        """Which batches do not belong to an aborted transaction: one that began at a given offset lasts until
        its abort marker."""
        waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        running: set[int] = set()
        keep = np.ones(len(self.batches), np.bool_)
        for number, batch in enumerate(self.batches):
            last, attributes, producer = batch[BASE] + batch[LAST], batch[ATTRIBUTES], int(batch[PRODUCER])
            while waiting and waiting[-1][1] <= last:
                running.add(waiting.pop()[0])
            if attributes & CONTROL:
                if producer in running:
                    for marker in iter_records(self._bytes_of(batch)):
                        if control_type(marker.key) == ABORT_MARKER:
                            running.discard(producer)
            elif attributes & TRANSACTIONAL and producer in running:
                keep[number] = False
        return keep

    def _check_crcs(self, batches: Table) -> None:
        records = self.records
        for at, size, crc in batches[:, (AT, SIZE, CRC)].tolist():
            if crc32c(records[at + CRC_START : at + size]) != crc:
                base = int.from_bytes(records[at : at + 8], "big", signed=True)
                raise KafkaError(
                    ErrorCode.corrupt_message, f"the batch at offset {base}: the checksum is wrong"
                )

    def _bytes_of(self, batch: Any) -> memoryview:
        return self.records[int(batch[AT]) : int(batch[AT] + batch[SIZE])]

    # --- their records --------------------------------------------------------------------------------------

    def _plain(
        self, run: Table, first: int, until: int, columns: Columns, limit: int, chunk_bytes: int
    ) -> Iterator[Chunk]:
        starts = run[:, AT] + HEADER_SIZE
        stops = run[:, AT] + run[:, SIZE]
        sizes = np.cumsum(run[:, SIZE])
        if int(run[:, SIZE].max()) > limit:
            raise KafkaError(
                ErrorCode.invalid_record, f"the records of a batch are larger than {limit} bytes"
            )
        at = 0
        while at < len(run):
            before = int(sizes[at - 1]) if at else 0
            end = max(at + 1, int(np.searchsorted(sizes, before + chunk_bytes, "right")))
            yield from _read(self._data, run[at:end], starts[at:end], stops[at:end], first, until, columns)
            at = end

    def _compressed(
        self, run: Table, first: int, until: int, columns: Columns, limit: int, chunk_bytes: int
    ) -> Iterator[Chunk]:
        payloads: list[Buffer] = []
        total = begin = 0
        for number, (at, size, attributes, count) in enumerate(
            run[:, (AT, SIZE, ATTRIBUTES, COUNT)].tolist()
        ):
            packed = self.records[at + HEADER_SIZE : at + size]
            payload: Buffer = packed if not count else decompress(attributes & CODEC_MASK, packed, limit)
            if payloads and total + len(payload) > chunk_bytes:
                yield from _read_payloads(payloads, run[begin:number], first, until, columns)
                payloads, total, begin = [], 0, number
            payloads.append(payload)
            total += len(payload)
        yield from _read_payloads(payloads, run[begin:], first, until, columns)


def _read_payloads(
    payloads: list[Buffer], batches: Table, first: int, until: int, columns: Columns
) -> Iterator[Chunk]:
    ends = np.cumsum([len(payload) for payload in payloads], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    data = np.frombuffer(payloads[0] if len(payloads) == 1 else b"".join(payloads), np.uint8)
    yield from _read(data, batches, starts, ends, first, until, columns)


def _read(
    data: Any, batches: Table, starts: Any, stops: Any, first: int, until: int, columns: Columns
) -> Iterator[Chunk]:
    payload = int((stops - starts).sum())
    rows = int(batches[:, COUNT].sum())
    if rows * SMALLEST_RECORD > payload:
        raise KafkaError(ErrorCode.corrupt_message, f"{rows} records cannot fit in {payload} bytes")
    if payload > LARGEST_CHUNK:
        raise KafkaError(ErrorCode.invalid_record, "the records of one batch are larger than 2 GiB")
    offsets, times = np.empty(rows, np.int64), np.empty(rows, np.int64)
    keys, values = _Bytes(rows, payload, columns.key), _Bytes(rows, payload, columns.value)
    header_at, header_count = (np.empty(rows if columns.headers else 0, np.int64) for _ in range(2))
    problem, index, number, found, keys.nulls, values.nulls, keys.size, values.size = (
        decode_loops.read_records(
            data,
            np.ascontiguousarray(batches),
            np.ascontiguousarray(starts),
            np.ascontiguousarray(stops),
            first,
            until,
            columns.key,
            columns.value,
            offsets,
            times,
            keys.ends,
            keys.data,
            keys.bits,
            values.ends,
            values.data,
            values.bits,
            header_at,
            header_count,
        )
    )
    if problem != SOUND:
        which = f"record {index} of the batch at offset {batches[number, BASE]}"
        raise KafkaError(ErrorCode.invalid_record, f"{which}: {REASONS[problem]}")
    if not found:
        return
    yield Chunk(
        rows=found,
        offset=_numbers(pa.int64(), offsets, found),
        timestamp=_numbers(TIMESTAMP, times, found),
        append_time=bool(batches[0, ATTRIBUTES] & LOG_APPEND_TIME),
        key=keys.array(pa.binary(), found) if columns.key else None,
        value=values.array(pa.binary(), found) if columns.value else None,
        headers=_headers(data, header_at[:found], header_count[:found]) if columns.headers else None,
    )


class _Bytes:
    """The buffers of a binary column while it is being filled. Memory that is not written to costs
    nothing."""

    __slots__ = ("bits", "data", "ends", "nulls", "size")

    def __init__(self, rows: int, max_bytes: int, wanted: bool = True) -> None:
        rows, max_bytes = (rows, max_bytes) if wanted else (0, 0)
        self.ends = np.empty(rows + 1, np.int32)
        self.ends[0] = 0
        self.data = np.empty(max_bytes, np.uint8)
        self.bits = np.zeros((rows + 7) // 8, np.uint8)
        self.nulls = 0
        self.size = 0

    def array(self, arrow_type: pa.DataType, rows: int) -> pa.Array:
        bits = pa.py_buffer(self.bits) if self.nulls else None
        buffers = [bits, pa.py_buffer(self.ends), pa.py_buffer(self.data[: self.size])]
        return pa.Array.from_buffers(arrow_type, rows, buffers, null_count=self.nulls)


def _numbers(arrow_type: pa.DataType, values: Any, rows: int) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, rows, [None, pa.py_buffer(values)], null_count=0)


def _headers(data: Any, at: Any, counts: Any) -> pa.Array:
    """A list of (key, value) per row; null where a record has none, as in Spark's Kafka source."""
    rows, total = len(at), int(counts.sum())
    key_bytes, value_bytes = decode_loops.measure_headers(data, at, counts)
    keys, values = _Bytes(total, max(key_bytes, 0)), _Bytes(total, max(value_bytes, 0))
    list_ends = np.zeros(rows + 1, np.int32)
    list_bits = np.zeros((rows + 7) // 8, np.uint8)
    values.nulls, strange = decode_loops.read_headers(
        data, at, counts, list_ends, list_bits, keys.ends, keys.data, values.ends, values.data, values.bits
    )
    if key_bytes < 0 or strange < 0:  # cannot be: read_records has been over the same bytes
        raise KafkaError(ErrorCode.invalid_record, "the headers changed while they were read")
    keys.size, values.size = key_bytes, value_bytes
    names = keys.array(pa.binary(), total)
    if strange:  # not ASCII: make sure that it is UTF-8, as a string column must be
        names = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    else:
        names = names.view(pa.string())
    pairs = pa.StructArray.from_arrays([names, values.array(pa.binary(), total)], names=["key", "value"])
    return pa.Array.from_buffers(
        HEADERS,
        rows,
        [pa.py_buffer(list_bits), pa.py_buffer(list_ends)],
        children=[pairs],
    )


__all__ = ["ALL_OFFSETS", "HEADERS", "TIMESTAMP", "Answer", "Chunk", "Columns"]
