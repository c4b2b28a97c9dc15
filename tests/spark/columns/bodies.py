"""Bodies as the decoders take them: one buffer, and where each begins and ends."""

import io
import json
from typing import Any

import fastavro
import numpy as np

from millstream.spark.columns.avro import AvroDecoder, AvroSchemas
from millstream.spark.columns.outcome import Decoded


def packed(bodies: list[bytes]) -> tuple[Any, Any, Any]:
    edges = np.cumsum([0, *map(len, bodies)]).astype(np.int64)
    data = np.frombuffer(b"".join(bodies) or b"\0", np.uint8)
    return data, edges[:-1].copy(), edges[1:].copy()


def avro_body(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decode_avro(writer: Any, bodies: list[bytes], reader: Any = None) -> Decoded:
    schemas = AvroSchemas.of(json.dumps(writer))
    reading = schemas if reader is None else AvroSchemas.of(json.dumps(reader))
    return AvroDecoder(schemas, reading).decode(*packed(bodies))


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    made = [{"name": f[0], "type": f[1], **(f[2] if len(f) > 2 else {})} for f in fields]
    return {"type": "record", "name": name, "fields": made}
