"""How many records a second an expression of `--where` goes through, on one core: JSON of about 200 bytes.

python benchmarks/filter_expressions.py [--records 100000]
"""

import argparse
import json
import time

from millstream.filters import compile_filter
from millstream.wire.records import Record

EXPRESSIONS = (
    'value.status == "CRITICAL"',
    'value.status == "CRITICAL" and value.amount > 50',
    'value.device.tags contains "b" and value.status in ["CRITICAL", "BAD"]',
    'value.device.name matches "^dev-3"',
    'lower(value.status) == "critical"',
    'headers.source != "test" or key startswith "key-9"',
    'value contains "dev-36"',
    'timestamp > "2026-01-01"',
)
LEAST = 10_000  # what the console and the command line are built for


def sample(number: int) -> Record:
    value = {
        "id": number,
        "status": "CRITICAL" if number % 50 == 0 else "OK",
        "amount": number % 1000 / 7,
        "device": {"name": f"dev-{number % 37}", "tags": ["a", "b"]},
        "note": "lorem ipsum dolor sit amet " * 3,
    }
    key = b"key-%d" % (number % 100)
    return Record(number, 1_767_225_600_000 + number, key, json.dumps(value).encode(), [("source", b"test")])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    count = parser.parse_known_args()[0].records
    records = [sample(number) for number in range(count)]
    slow = 0
    for text in EXPRESSIONS:
        matches = compile_filter(text)
        began = time.perf_counter()
        found = sum(map(matches, records))
        rate = count / (time.perf_counter() - began)
        slow += rate < LEAST
        print(f"{rate:>12,.0f} records/s  {found:>7} found  {text}")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
