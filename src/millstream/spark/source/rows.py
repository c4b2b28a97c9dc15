"""The columns that Spark sees: those of its own Kafka source, or the ones among them that the query selects.

Topic, partition and timestamp type are the same for many rows in a row. They are built once per worker, long
enough for the longest chunk so far, and sliced.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from millstream.wire.arrow import HEADERS, TIMESTAMP, Chunk, Columns

ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
SMALL, SMALL_BYTES = 4096, 1 << 18  # rows, bytes; chunks that are smaller in both are put together
MAX_TOGETHER, MAX_TOGETHER_BYTES = 32768, 4 << 20

_constants: dict[tuple[str, object], pa.Array] = {}


class Rows:
    """Makes record batches of Spark's schema out of decoded chunks."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.schema = pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])
        self.columns = Columns("key" in names, "value" in names, "headers" in names)

    def batch(self, topic: str, partition: int, chunk: Chunk) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [self._column(name, topic, partition, chunk) for name in self.names], schema=self.schema
        )

    def batches(self, chunks: Iterable[tuple[str, int, Chunk]]) -> Iterator[pa.RecordBatch]:
        """One record batch per chunk; small ones together, since each costs Spark the same."""
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for topic, partition, chunk in chunks:
            batch = self.batch(topic, partition, chunk)
            more = batch.nbytes
            large = chunk.rows > SMALL or more > SMALL_BYTES
            if waiting and (large or rows + chunk.rows > MAX_TOGETHER or size + more > MAX_TOGETHER_BYTES):
                yield _together(waiting)
                waiting, rows, size = [], 0, 0
            if large:
                yield batch
            else:
                waiting.append(batch)
                rows += chunk.rows
                size += more
        if waiting:
            yield _together(waiting)

    def _column(self, name: str, topic: str, partition: int, chunk: Chunk) -> pa.Array:
        if name == "topic":
            return constant(pa.string(), topic, chunk.rows)
        if name == "partition":
            return constant(pa.int32(), partition, chunk.rows)
        if name == "timestampType":
            return constant(pa.int32(), int(chunk.append_time), chunk.rows)
        return getattr(chunk, name)


def constant(arrow_type: pa.DataType, value: object, rows: int) -> pa.Array:
    """`rows` times the same value."""
    key = (str(arrow_type), value)
    found = _constants.get(key)
    if found is None or len(found) < rows:
        longer = max(rows, 1024, 0 if found is None else 2 * len(found))
        found = pa.repeat(pa.scalar(value, arrow_type), longer)
        if len(_constants) > 256:
            _constants.clear()
        _constants[key] = found
    return found.slice(0, rows)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
