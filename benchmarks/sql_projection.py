"""Filter and projection of JSON in SQL, on one core: no broker, no Spark, records from memory to memory.

    python benchmarks/sql_projection.py [--records 200000] [--check]

The same statement in three ways, taking turns: as single operators, as one generated loop a record at a time,
and as that loop over blocks. Beside them what reading the JSON alone costs (orjson). Processor time of this
process is the measure, so that a neighbour on the machine does not count; the best of five turns is shown.
--check fails when the aim of 300,000 rows/s over blocks is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from millstream.sql import engine
from millstream.sql.catalog import Catalog
from millstream.sql.environment import Environment
from millstream.sql.functions import FUNCTIONS
from millstream.sql.parser import parse_each
from millstream.streams.columns.blocks import Records
from millstream.streams.task import Errors, StreamTask
from millstream.streams.topology import Topology

AIM = 300_000
BLOCK = 10_000
SCRIPT = """
CREATE STREAM orders (k STRING KEY, id BIGINT, name STRING, region STRING, amount DOUBLE, quantity INT,
    note STRING, ts BIGINT) WITH (kafka_topic='orders', value_format='JSON');
CREATE STREAM large AS SELECT k, id, UCASE(region) AS region, amount * quantity AS total, name
    FROM orders WHERE quantity > 70;
"""


def topology() -> Topology:
    catalog, found = Catalog(), None
    for statement in parse_each(SCRIPT, {}):
        outcome = engine.apply(statement, catalog, Environment(FUNCTIONS))
        catalog, found = outcome.catalog, outcome.query
    assert found is not None
    return found.topology()


def values() -> list[bytes]:
    chance = random.Random(1)
    return [
        json.dumps(
            {
                "ID": number,
                "NAME": f"customer-{number}",
                "REGION": chance.choice(["emea", "apac", "amer"]),
                "AMOUNT": round(chance.random() * 1000, 2),
                "QUANTITY": chance.randint(1, 100),
                "NOTE": f"a text that the statement does not use, {number}",
                "TS": 1_700_000_000_000 + number,
            }
        ).encode()
        for number in range(BLOCK)
    ]


def task_of(found: Topology, written: list[int]) -> StreamTask:
    def collect(*_record: Any) -> None:
        written[0] += 1

    def collect_columns(_topic: str, keys: Any, *_columns: Any) -> None:
        written[0] += len(keys)

    return StreamTask(
        found,
        "benchmark",
        collect,
        now=lambda: 0,
        errors=Errors(reading="continue"),
        collect_columns=collect_columns,
    )


def ways(data: list[bytes], written: list[int]) -> Iterator[tuple[str, Callable[[], None]]]:
    keys = [b"k%d" % (number % 1000) for number in range(BLOCK)]
    rows = [(number, keys[number], data[number], number, ()) for number in range(BLOCK)]
    numbers = np.arange(BLOCK)
    block = Records(numbers, pa.array(keys, pa.binary()), pa.array(data, pa.binary()), numbers, None)
    loop = task_of(topology(), written)
    can_fuse, engine.can_fuse = engine.can_fuse, lambda *_: False
    apart = task_of(topology(), written)
    engine.can_fuse = can_fuse
    yield "single operators", lambda: apart.deliver_batch("orders", 0, iter(rows))
    yield "one loop, by record", lambda: loop.deliver_batch("orders", 0, iter(rows))
    yield "one loop, blocks", lambda: loop.deliver_batch("orders", 0, block)

    def read() -> None:
        for value in data:
            orjson.loads(value)

    yield "orjson.loads alone", read


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    written = [0]
    found = list(ways(values(), written))
    best = {name: float("inf") for name, _ in found}
    turns = max(options.records // BLOCK, 1)
    for _ in range(5):
        for name, run in found:
            start = time.process_time()
            for _ in range(turns):
                run()
            best[name] = min(best[name], time.process_time() - start)
    for name, seconds in best.items():
        print(f"{name:22} {turns * BLOCK / seconds:>12,.0f} rows/s")
    print(f"{written[0]:,} rows written in all")
    if options.check and turns * BLOCK / best["one loop, blocks"] < AIM:
        sys.exit(f"the aim is {AIM:,} rows/s over blocks")


if __name__ == "__main__":
    main()
