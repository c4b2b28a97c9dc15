"""What is sent: values of a size, lines of a file or numbers, as finished record batches.

A record in a batch is a few bytes around its value that depend on the value's length and on its offset_delta
in the batch only. So values are wrapped once, and a batch is put together from wrapped values: no work per
record but one append.
"""

import itertools
import random
import time
from collections.abc import Iterator, Sequence

from millstream.wire.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader, crc_of
from millstream.wire.compression import NONE, compress
from millstream.wire.varint import varint

POOL_BYTES = 8 * 1024 * 1024
POOL_RECORDS = 2_000
MAX_RECORDS = 1 << 20  # records in one batch at most

Wrapped = tuple[bytes, int]  # a record from its key on, and the length of its value


def wrap(value: bytes) -> Wrapped:
    return b"\x01" + varint(len(value)) + value + b"\x00", len(value)  # no key, no headers


def random_values(size: int, seed: int = 0) -> list[bytes]:
    """Capital letters, as Kafka's tool sends them."""
    chosen = random.Random(seed)
    count = max(1, min(POOL_RECORDS, POOL_BYTES // max(size, 1)))
    letters = bytes(range(65, 91))
    return [bytes(chosen.choices(letters, k=size)) for _ in range(count)]


class Payloads:
    """An endless supply of wrapped values, most of them as long as `typical`."""

    def __init__(self, values: Iterator[bytes], typical: float) -> None:
        self._values = map(wrap, values)
        self.typical = typical

    @classmethod
    def of_size(cls, size: int) -> "Pool":
        return Pool(random_values(size))

    @classmethod
    def numbers(cls) -> "Payloads":
        return cls((str(number).encode() for number in itertools.count()), 7)

    def take(self, count: int) -> Sequence[Wrapped]:
        return list(itertools.islice(self._values, count))


class Pool(Payloads):
    """The same values over and over, wrapped once, starting at a random one each time."""

    def __init__(self, values: Sequence[bytes]) -> None:
        super().__init__(iter(()), sum(map(len, values)) / len(values))
        self._pool = [wrap(value) for value in values]

    def take(self, count: int) -> Sequence[Wrapped]:
        pool = self._pool
        start = random.randrange(len(pool))
        found = pool[start : start + count]
        while len(found) < count:
            found += pool[: count - len(found)]
        return found


class BatchMaker:
    """Batches of wrapped values, stamped and compressed."""

    def __init__(self, codec: int = NONE, level: int | None = None) -> None:
        self._codec = codec
        self._level = level
        self._offset_deltas = [varint(number) for number in range(1024)]
        self._heads: dict[int, bytes] = {}

    def records_that_fit(self, values: Payloads, batch_size: int) -> int:
        """How many records fill a batch of a size, going by the values that come."""
        around = 9 if values.typical < 4096 else 11
        return max(1, min(MAX_RECORDS, int((batch_size - HEADER_SIZE) // (values.typical + around))))

    def batch(
        self, values: Sequence[Wrapped], producer_id: int = -1, epoch: int = -1, sequence: int = -1
    ) -> bytearray:
        count = len(values)
        offset_deltas = self._offset_deltas
        while len(offset_deltas) < count:
            offset_deltas.append(varint(len(offset_deltas)))
        heads = self._heads
        parts: list[bytes] = []
        for offset_delta, (body, _) in zip(offset_deltas, values, strict=False):
            size = 2 + len(offset_delta) + len(body)  # attributes and timestamp delta are one byte each
            head = heads.get(size)
            if head is None:
                head = heads[size] = varint(size) + b"\0\0"
            parts += (head, offset_delta, body)
        payload = b"".join(parts)
        if self._codec != NONE:
            payload = compress(self._codec, payload, self._level)
        now = int(time.time() * 1000)
        out = bytearray(HEADER_SIZE)
        out += payload
        fields = BatchHeader(
            base_offset=0,
            length=len(out) - LENGTH_END,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=self._codec,
            last_offset_delta=count - 1,
            base_timestamp=now,
            max_timestamp=now,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            record_count=count,
        )
        HEADER.pack_into(out, 0, *fields)
        out[CRC_START - 4 : CRC_START] = crc_of(out).to_bytes(4, "big")
        return out
