"""Record batches to Arrow arrays by compiled loops: for Spark tasks, the console's search and exports.

    loops    what numba compiles: headers of batches, records, headers of records
    decode   decompression, checks, and Arrow arrays around the buffers

Needs the extra `pipelines` (numba, pyarrow). The broker never imports this.
"""

from millstream.wire.arrow.decode import ALL_OFFSETS, HEADERS, TIMESTAMP, Answer, Chunk, Columns

__all__ = ["ALL_OFFSETS", "HEADERS", "TIMESTAMP", "Answer", "Chunk", "Columns", "warm_up"]


def warm_up() -> None:
    """Compile, or load from the cache on disk, everything that decoding needs."""
    from millstream.wire.records import Record, encode_batch

    batch = encode_batch([Record(0, 0, b"k", b"v", [("h", b"v")]), Record(1, 0, None, None)])
    for _ in Answer(batch).chunks(columns=Columns(headers=True)):
        pass
