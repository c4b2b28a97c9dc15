"""A batch of Avro bodies into one Arrow array: room for the loop, the loop, its buffers as arrays."""

from typing import Any

import numpy as np
import pyarrow as pa

from millstream.spark.columns.avro import loop
from millstream.spark.columns.avro.program import (
    Constant,
    Leaf,
    Node,
    Program,
    Repeated,
    Struct,
    TooRich,
    compile_check,
    compile_program,
)
from millstream.spark.columns.avro.types import MAX_MILLIS, AvroSchemas, arrow_type, type_name
from millstream.spark.columns.outcome import Decoded, by_halves

Numbers = np.ndarray[Any, np.dtype[np.int64]]
MAX_STRING_BYTES = 2**31 - 1  # in one Arrow string array


class AvroDecoder:
    """Bodies of one writer's schema, read by one reader's schema."""

    def __init__(self, writer: AvroSchemas, reader: AvroSchemas) -> None:
        self.type = arrow_type(reader)
        self._slow: Any = None
        try:
            self._program: Program = compile_program(writer, reader)
        except TooRich:
            from millstream.spark.columns.avro.values import AvroValues

            self._slow = AvroValues(writer, reader, self.type)
            self._check = _check_of(writer)

    def decode(self, data: np.ndarray[Any, np.dtype[np.uint8]], starts: Numbers, ends: Numbers) -> Decoded:
        """The bodies `data[starts[n]:ends[n]]`. Rows that could not be decoded are null, with the reason
        beside."""
        if self._slow is not None:
            return self._slowly(data, starts, ends)
        bad: dict[int, str] = {}

        def at_once(rows: range) -> pa.Array:
            first, end = rows.start, rows.stop
            outcome = np.zeros(len(rows), np.uint8)
            filled = _run(self._program, data, starts[first:end], ends[first:end], outcome)
            try:
                array = filled.array(self._program.root)
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise _Unfit(_reason(error)) from None
            decoded = _with_outcome(Decoded(array, {}), outcome)
            bad.update((first + row, reason) for row, reason in decoded.bad.items())
            return decoded.array

        return Decoded(by_halves(range(len(starts)), at_once, self.type, bad), bad)

    def _slowly(self, data: np.ndarray[Any, Any], starts: Numbers, ends: Numbers) -> Decoded:
        """fastavro takes a branch or symbol of -1 for the last one; the compiled loop does not let that
        through."""
        decoded: Decoded = self._slow.decode(data, starts, ends)
        if self._check is None:
            return decoded
        outcome = np.zeros(len(starts), np.uint8)
        _run(self._check, data, starts, ends, outcome)
        return _with_outcome(decoded, outcome)


def _check_of(writer: AvroSchemas) -> Program | None:
    try:
        return compile_check(writer)
    except TooRich:  # a type that contains itself
        return None


def _with_outcome(decoded: Decoded, outcome: np.ndarray[Any, np.dtype[np.uint8]]) -> Decoded:
    """What the loop found wrong is bad, whatever there was made of it."""
    wrong = np.flatnonzero(outcome)
    if not len(wrong):
        return decoded
    reasons = {int(row): loop.REASONS[outcome[row]] for row in wrong}
    return Decoded(_without(decoded.array, outcome != loop.GOOD), decoded.bad | reasons)


class _Unfit(ValueError):
    """A value of the right form that cannot be: text that is not UTF-8, a decimal with too many digits, a
    time that no timestamp reaches."""


def _reason(error: pa.ArrowInvalid) -> str:
    return loop.REASONS[loop.BAD_DECIMAL if "ecimal" in str(error) else loop.BAD_TEXT]


def _run(
    program: Program,
    data: np.ndarray[Any, Any],
    starts: Numbers,
    ends: Numbers,
    outcome: np.ndarray[Any, Any],
) -> "_Filled":
    rows = len(starts)
    room = np.full(program.levels, 4 * rows + 64, np.int64)
    room[0] = rows
    while True:
        sizes = room[program.level_of]
        base = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
        store = np.zeros(int(sizes.sum()), np.int64)
        cursor = np.zeros(program.levels, np.int64)
        outcome[:] = 0
        state, level = loop.run(
            data,
            starts,
            ends,
            program.code,
            program.table,
            base,
            program.level_of,
            room,
            cursor,
            store,
            outcome,
        )
        if state != loop.FULL:
            cursor[0] = rows
            return _Filled(data, store, base, cursor, program.level_of)
        room[level] *= 4


class _Filled:
    """The store after the loop, as arrays."""

    def __init__(
        self, data: np.ndarray[Any, Any], store: Numbers, base: Numbers, lengths: Numbers, level_of: Numbers
    ) -> None:
        self._data = data
        self._store = store
        self._base = base
        self._lengths = lengths
        self._level_of = level_of

    def slot(self, number: int) -> Numbers:
        start = int(self._base[number])
        return self._store[start : start + int(self._lengths[self._level_of[number]])]

    def array(self, node: Node) -> pa.Array:
        if isinstance(node, Leaf):
            return self._leaf(node)
        if isinstance(node, Constant):
            return node.value.take(pa.array(np.zeros(int(self._lengths[node.level]), np.int64)))
        valid = None if node.valid < 0 else self.slot(node.valid)
        if isinstance(node, Struct):
            fields = [self.array(inner) for _, inner in node.fields]
            arrow_fields = [
                pa.field(name, one.type) for (name, _), one in zip(node.fields, fields, strict=True)
            ]
            length = int(self._lengths[node.level])
            return pa.Array.from_buffers(pa.struct(arrow_fields), length, [_bits(valid)], children=fields)
        return self._repeated(node, valid)

    def _repeated(self, node: Repeated, valid: Numbers | None) -> pa.Array:
        counts = self.slot(node.count)
        offsets = _offsets(counts)
        items = self.array(node.item)
        if node.key is None:
            arrow_type: pa.DataType = pa.list_(pa.field("element", items.type))
            children = [items]
        else:
            arrow_type = pa.map_(pa.string(), pa.field("value", items.type))
            keys = self.array(node.key)
            pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", items.type)])
            children = [pa.Array.from_buffers(pair, len(keys), [None], children=[keys, items])]
        return pa.Array.from_buffers(
            arrow_type, len(counts), [_bits(valid), pa.py_buffer(offsets)], children=children
        )

    def _leaf(self, leaf: Leaf) -> pa.Array:
        cells = self.slot(leaf.slot)
        valid = None if leaf.valid < 0 else self.slot(leaf.valid)
        avro_type = type_name(leaf.schema)
        logical = leaf.schema.get("logicalType", "") if isinstance(leaf.schema, dict) else ""
        if avro_type in ("string", "bytes", "fixed"):
            return self._bytes(leaf, cells, self.slot(leaf.slot + 1), valid)
        if avro_type == "enum":
            indices = pa.array(cells.astype(np.int32), mask=None if valid is None else valid == 0)
            symbols = pa.array(leaf.schema["symbols"], pa.string())
            return pa.DictionaryArray.from_arrays(indices, symbols).cast(pa.string())
        values: np.ndarray[Any, Any]
        if avro_type == "double":
            values = cells.view(np.float64)
        elif avro_type == "float":
            values = cells.astype(np.uint32).view(np.float32)
        elif avro_type == "boolean":
            return pa.array(cells != 0, mask=None if valid is None else valid == 0)
        elif avro_type == "int":
            values = cells.astype(np.int32)
        else:
            values = _as_micros(cells) if logical.endswith("timestamp-millis") else cells
        return pa.Array.from_buffers(
            leaf.type, len(values), [_bits(valid), pa.py_buffer(np.ascontiguousarray(values))]
        )

    def _bytes(self, leaf: Leaf, starts: Numbers, lengths: Numbers, valid: Numbers | None) -> pa.Array:
        if pa.types.is_decimal(leaf.type):
            wide = np.zeros(16 * len(starts), np.uint8)
            if loop.widen(self._data, starts, lengths, wide) >= 0:
                raise _Unfit(loop.REASONS[loop.BAD_DECIMAL])
            return pa.Array.from_buffers(leaf.type, len(starts), [_bits(valid), pa.py_buffer(wide)])
        if int(lengths.sum()) > MAX_STRING_BYTES:
            raise pa.ArrowInvalid("more than 2 GB of text in one batch")
        offsets = _offsets(lengths)
        out = np.empty(int(offsets[-1]), np.uint8)
        loop.gather(self._data, starts, lengths, offsets, out)
        buffers = [_bits(valid), pa.py_buffer(offsets), pa.py_buffer(out)]
        if type_name(leaf.schema) == "fixed" and pa.types.is_string(leaf.type):  # a uuid in 16 bytes
            import uuid

            raw = pa.Array.from_buffers(pa.binary(), len(starts), buffers)
            texts = [
                None if one is None or len(one) != 16 else str(uuid.UUID(bytes=one))
                for one in raw.to_pylist()
            ]
            return pa.array(texts, pa.string())
        return pa.Array.from_buffers(leaf.type, len(starts), buffers)


def _as_micros(millis: Numbers) -> Numbers:
    if len(millis) and (millis.max() > MAX_MILLIS or millis.min() < -MAX_MILLIS):
        raise _Unfit("a timestamp is out of range")
    return millis * 1000


def _offsets(counts: Numbers) -> np.ndarray[Any, np.dtype[np.int32]]:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _bits(valid: Numbers | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid.astype(np.uint8), bitorder="little"))


def _without(array: pa.Array, bad: np.ndarray[Any, Any]) -> pa.Array:
    """The array with its bad rows null."""
    import pyarrow.compute as pc

    return pc.if_else(pa.array(bad), pa.scalar(None, array.type), array)
