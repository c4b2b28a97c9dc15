"""A batch of values: which decoder each gets, and what happens where there is none."""

import json

import pyarrow as pa
import pytest

from millstream.serdes import RegisteredSchema
from millstream.serdes.frame import with_id
from millstream.spark.columns.decoding import Access, BatchDecoder, Reader, Reading
from millstream.spark.errors import PipelineError

from .bodies import record

SCHEMA = json.dumps(record(("a", "int")))


def decoder(monkeypatch: pytest.MonkeyPatch, schemas: dict[int, str], corrupt: str | None) -> BatchDecoder:
    made = BatchDecoder(Reading(Access("http://127.0.0.1:1"), Reader("AVRO", SCHEMA), corrupt=corrupt))
    monkeypatch.setattr(
        made, "_written_by", lambda schema_id: RegisteredSchema(schema_id, "AVRO", schemas[schema_id])
    )
    return made


def test_a_schema_that_cannot_be_used_makes_its_records_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another registry may hold what is no schema to us."""
    schemas = {1: SCHEMA, 2: '{"type": "record"}', 3: "5", 4: "no json", 5: '"string"'}
    values = pa.array([with_id(number, b"\x02") for number in schemas])
    rows = decoder(monkeypatch, schemas, "_corrupt").decode(values).to_pylist()
    assert rows[0] == {"a": 1, "_corrupt": None}
    for number, row in enumerate(rows[1:], 2):
        assert row["a"] is None and row["_corrupt"]["error"].startswith(f"schema {number}: ")
    with pytest.raises(PipelineError, match="a record cannot be decoded: schema 2"):
        decoder(monkeypatch, schemas, None).decode(values[1:2])
