"""How many records a second each walk over a batch passes, on one core, beside the strict reader that builds
records.

python benchmarks/record_walk.py [--records 100000] [--value-bytes 100]

A walk that reads short varints in line is worth its code only while it is faster than that by half, and
the exit status says so.
"""

import argparse
import time
from collections.abc import Callable

from millstream.wire.batch import HEADER_SIZE, read_header
from millstream.wire.record_walk import (
    check_records,
    collect_keys,
    keys_and_values,
    newest_timestamp,
    record_spans,
)
from millstream.wire.records import Record, encode_batch, iter_records

IN_LINE = ("newest_timestamp", "collect_keys", "record_spans", "keys_and_values")
WORTH_IT = 1.5


def rate(walk: Callable[[], object], count: int) -> float:
    best = 0.0
    for _ in range(5):
        began = time.process_time()
        walk()
        best = max(best, count / (time.process_time() - began))
    return best


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    options = parser.parse_known_args()[0]
    count, value = options.records, b"v" * options.value_bytes
    time_ms = 1_767_225_600_000
    batch = bytes(
        encode_batch(
            [Record(number, time_ms + number // 10, b"key-%d" % number, value) for number in range(count)]
        )
    )
    header, data = read_header(batch), batch[HEADER_SIZE:]
    walks: dict[str, Callable[[], object]] = {
        "iter_records": lambda: list(iter_records(batch, check_crc=False)),
        "check_records": lambda: check_records(batch),
        "newest_timestamp": lambda: newest_timestamp(batch),
        "collect_keys": lambda: collect_keys(header, data, [], []),
        "record_spans": lambda: record_spans(header, data),
        "keys_and_values": lambda: keys_and_values(batch, 0, len(batch), 0, 0, count),
    }
    rates = {name: rate(walk, count) for name, walk in walks.items()}
    for name, found in rates.items():
        print(f"{found:>12,.0f} records/s  {found / rates['iter_records']:5.1f} x  {name}")
    return 0 if all(rates[name] > WORTH_IT * rates["iter_records"] for name in IN_LINE) else 1


if __name__ == "__main__":
    raise SystemExit(main())
