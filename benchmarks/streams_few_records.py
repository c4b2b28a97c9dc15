"""Few records, one at a time or in columns: where the break-even is.

    python benchmarks/streams_few_records.py

Reading is from the bytes of an answer to (offset, key, value, timestamp, headers); writing from what a task
sends to finished batches for 20 partitions. Records of 100 bytes. `plain_records.FEW` comes from here.
"""

import sys
import time
from collections.abc import Callable

import millstream.wire.arrow.encode  # noqa: F401 - loaded before the clock runs
from millstream.client.fetch import Fetched
from millstream.streams.runtime import plain_records, record_collector
from millstream.streams.runtime.fetched_records import records_of
from millstream.streams.runtime.record_collector import RecordCollector
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch

REPEATS = 200


def microseconds(act: Callable[[], None]) -> float:
    act()
    began = time.perf_counter()
    for _ in range(REPEATS):
        act()
    return (time.perf_counter() - began) / REPEATS * 1e6


def main() -> int:
    print(f"{'records':>8} {'read: plain':>12} {'columns':>8} {'write: plain':>13} {'columns':>8}   us")
    for count in (1, 3, 8, 15, 30, 60):
        batch = encode_batch([Record(n, 1000 + n, b"%d" % n, b"x" * 100) for n in range(count)])
        answer = Fetched("t", 0, ErrorCode.none, count, count, 0, (), memoryview(batch))

        def read(answer: Fetched = answer) -> None:
            for records in records_of(answer, 0, chunk_bytes=1 << 20)[0]:
                list(records)

        def write(count: int = count) -> None:
            collector = RecordCollector()
            for number in range(count):
                collector.send("t", b"%d" % number, b"x" * 100, 1000 + number, (), None)
            list(collector.batches(lambda _: 20, 0, True))

        found = []
        for act in (read, write):
            for few in (1000, 0):
                plain_records.FEW = record_collector.FEW = few
                found.append(microseconds(act))
        print(f"{count:8} {found[0]:12.0f} {found[1]:8.0f} {found[2]:13.0f} {found[3]:8.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
