"""Which schema each value of a batch was written with, and where its body is: for all values at once.

Confluent's frame is a zero byte and four bytes of schema id in front of the body. Newer clients may write a
one byte and the schema's guid instead, and may put either into a header (`__value_schema_id`,
`__key_schema_id`), with the value being the body alone.
"""

import uuid
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.int64]]

NULL, UNFRAMED, FIRST_GUID = -1, -2, -10
ID_SIZE, GUID_SIZE = 5, 17
ID_BYTE, GUID_BYTE = 0, 1


class Frames(NamedTuple):
    """`schema` has a number per row: an id, NULL, UNFRAMED, or FIRST_GUID - n for the n-th of `guids`."""

    data: np.ndarray[Any, np.dtype[np.uint8]]
    starts: Numbers  # of bodies; of the whole value where it is not framed
    ends: Numbers
    schema: Numbers
    guids: list[str]

    def schema_id(self, number: int) -> int | str:
        """The id or guid behind a number of `schema`."""
        return number if number >= 0 else self.guids[FIRST_GUID - number]


def bytes_of(values: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], Numbers]:
    """The bytes of a binary array, and where each value begins (one more than there are values)."""
    if pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type):
        width: Any = np.int64
    elif pa.types.is_binary(values.type) or pa.types.is_string(values.type):
        width = np.int32
    else:
        values = values.cast(pa.binary())
        width = np.int32
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    if not len(edges):
        edges = np.zeros(1, np.int64)
    empty = data is None or data.size == 0
    return np.zeros(1, np.uint8) if empty else np.frombuffer(data, np.uint8), edges


def frames(values: pa.Array, headers: pa.Array | None = None, key: bool = False) -> Frames:
    data, edges = bytes_of(values)
    starts, ends = edges[:-1].copy(), edges[1:].copy()
    schema = np.full(len(values), UNFRAMED, np.int64)
    guids: list[str] = []
    long_enough = np.flatnonzero(ends - starts >= ID_SIZE)
    at = starts[long_enough]
    framed = data[at] == ID_BYTE
    rows, at = long_enough[framed], at[framed]
    if len(rows):
        parts = [data[at + byte].astype(np.int64) << (8 * (4 - byte)) for byte in range(1, ID_SIZE)]
        schema[rows] = parts[0] | parts[1] | parts[2] | parts[3]
        starts[rows] += ID_SIZE
    for row in long_enough[~framed].tolist():
        begin = int(starts[row])
        if data[begin] == GUID_BYTE and ends[row] - begin >= GUID_SIZE:
            schema[row] = _guid(guids, data[begin + 1 : begin + GUID_SIZE].tobytes())
            starts[row] += GUID_SIZE
    if headers is not None:
        _from_headers(
            headers, b"__key_schema_id" if key else b"__value_schema_id", edges, starts, schema, guids
        )
    if values.null_count:
        schema[np.asarray(values.is_null())] = NULL
    return Frames(data, starts, ends, schema, guids)


def _from_headers(
    headers: pa.Array, wanted: bytes, edges: Numbers, starts: Numbers, schema: Numbers, guids: list[str]
) -> None:
    """Rows whose headers name the schema: all of their value is the body."""
    import pyarrow.compute as pc

    flat = headers.flatten()
    if not len(flat):
        return
    hits = pc.equal(flat.field("key").cast(pa.binary()), wanted)
    rows = (
        headers.flatten_parent_indices()
        if hasattr(headers, "flatten_parent_indices")
        else pc.list_parent_indices(headers)
    )
    for row, content in zip(
        rows.filter(hits).to_pylist(), flat.field("value").filter(hits).to_pylist(), strict=True
    ):
        if content and content[0] == ID_BYTE and len(content) == ID_SIZE:
            schema[row] = int.from_bytes(content[1:], "big")
        elif content and content[0] == GUID_BYTE and len(content) == GUID_SIZE:
            schema[row] = _guid(guids, content[1:])
        else:
            continue
        starts[row] = edges[row]


def _guid(guids: list[str], raw: bytes) -> int:
    text = str(uuid.UUID(bytes=raw))
    if text not in guids:
        guids.append(text)
    return FIRST_GUID - guids.index(text)
