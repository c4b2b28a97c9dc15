"""How many records a second one core turns into columns: Avro, JSON Schema and Protobuf, and Avro beside
fastavro.

The same records (six fields: two strings, an enum, a double, an optional string, a timestamp) in each
language, as they lie in a batch of 65,536 rows. Ours is what runs in a Spark task; the peer is the usual way,
fastavro into Python dicts and Arrow out of these.

    python benchmarks/pipeline_columns.py [--rows 65536] [--rounds 7]
"""

import argparse
import io
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from millstream.serdes import RegisteredSchema
from millstream.serdes.bodies import ProtobufBody
from millstream.spark.columns.decoding import Reader, decoder_of

AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "stage", "type": "string"},
        {
            "name": "level",
            "type": {"type": "enum", "name": "Level", "symbols": ["info", "warning", "critical"]},
        },
        {"name": "reading", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NEWER = {**AVRO, "fields": [*AVRO["fields"][1:], {"name": "added", "type": "int", "default": 3}]}  # type: ignore[misc]
STRINGS = {name: {"type": "string"} for name in ("id", "stage", "level", "note")}
JSON = {"type": "object", "properties": {**STRINGS, "reading": {"type": "number"}, "at": {"type": "integer"}}}
PROTO = """syntax = "proto3";
enum Level { info = 0; warning = 1; critical = 2; }
message Event {
  string id = 1; string stage = 2; Level level = 3; double reading = 4;
  optional string note = 5; int64 at = 6;
}"""


def rows_of(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"event-{n:08}",
            "stage": ("frame", "motor", "battery")[n % 3],
            "level": ("info", "warning", "critical")[n % 3],
            "reading": n * 0.5,
            "note": None if n % 2 else "all well",
            "at": 1_700_000_000_000 + n,
        }
        for n in range(count)
    ]


def packed(bodies: list[bytes]) -> tuple[Any, Any, Any]:
    edges = np.cumsum([0, *map(len, bodies)]).astype(np.int64)
    return np.frombuffer(b"".join(bodies), np.uint8), edges[:-1].copy(), edges[1:].copy()


def avro_bodies(rows: list[dict[str, Any]]) -> list[bytes]:
    schema = fastavro.parse_schema(AVRO)
    found = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        found.append(out.getvalue())
    return found


def ours(kind: str, text: str, bodies: list[bytes], reader: str | None = None) -> Callable[[], int]:
    decoder = decoder_of(Reader(kind, reader or text), RegisteredSchema(1, kind, text))
    given = packed(bodies)

    def run() -> int:
        decoded = decoder.decode(*given)
        assert not decoded.bad
        return len(decoded.array)

    return run


def peer(bodies: list[bytes]) -> Callable[[], int]:
    schema = fastavro.parse_schema(AVRO)
    kind = decoder_of(Reader("AVRO", json.dumps(AVRO)), RegisteredSchema(1, "AVRO", json.dumps(AVRO))).type

    def run() -> int:
        return len(pa.array([fastavro.schemaless_reader(io.BytesIO(body), schema) for body in bodies], kind))

    return run


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    given = parser.parse_args()
    rows = rows_of(given.rows)
    bodies = avro_bodies(rows)
    proto = ProtobufBody(RegisteredSchema(1, "PROTOBUF", PROTO))
    loads = {
        "avro": ours("AVRO", json.dumps(AVRO), bodies),
        "avro, newer reader": ours("AVRO", json.dumps(AVRO), bodies, json.dumps(NEWER)),
        "avro by fastavro": peer(bodies),
        "json schema": ours("JSON", json.dumps(JSON), [json.dumps(row).encode() for row in rows]),
        "protobuf": ours(
            "PROTOBUF", PROTO, [proto.encode({k: v for k, v in row.items() if v is not None}) for row in rows]
        ),
    }
    spent: dict[str, list[float]] = {name: [] for name in loads}
    for number in range((3 if given.quick else given.rounds) + 1):
        for name, run in loads.items():
            began = time.process_time()
            count = run()
            if number:
                spent[name].append(count / (time.process_time() - began))
    for name, rates in spent.items():
        print(
            f"{name:20} {median(rates):12,.0f} rows per CPU second ({min(rates):,.0f} to {max(rates):,.0f})"
        )
    print(f"avro against fastavro: {median(spent['avro']) / median(spent['avro by fastavro']):.1f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
