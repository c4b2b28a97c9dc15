"""The batches of a coordinator's log, as it reads them at a start: nothing but offsets, keys and values.

The records themselves are found by `wire.record_walk.keys_and_values`. The log is the broker's own and was checked when it
was opened, so lengths are checked to stay inside of the batch, and that is all.
"""

from __future__ import annotations

import struct

from millstream.wire.batch import HEADER_SIZE, LENGTH_END
from millstream.wire.errors import ErrorCode, KafkaError

# base offset, length, attributes, producer id, record count
HEAD = struct.Struct(">qi9xh20xq6xi")


def batch_size(length: int, left: int) -> int:
    """Bytes of a batch with this length field, of `left` that are there."""
    size = length + LENGTH_END
    if not HEADER_SIZE <= size <= left:
        raise KafkaError(ErrorCode.corrupt_message, f"a batch claims {size} bytes, {left} are left")
    return size
