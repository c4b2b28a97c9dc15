"""Classes made from schemas: they can be imported, type-checked in use, and go through encoder and
decoder."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millstream.registry.main import main
from millstream.schemas import parse
from millstream.serdes import Decoder, Encoder, SchemaRegistry
from millstream.serdes.codegen import generate
from tests.registry.client import Api, record
from tests.support.running import RunningRegistry

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "doc": 'An "order" with\nlines.',
        "fields": [
            {"name": "id", "type": "long", "doc": "its number"},
            {"name": "class", "type": "string", "default": "a"},
            {
                "name": "state",
                "type": {"type": "enum", "name": "State", "symbols": ["NEW", "None"]},
                "default": "NEW",
            },
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "sku", "type": "string"}],
                    },
                },
                "default": [],
            },
            {"name": "next", "type": ["null", "Order"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "either", "type": ["int", "string"], "default": 3},
            {"name": "raw", "type": "bytes", "default": "ÿ"},
            {"name": "more", "type": {"type": "map", "values": "double"}, "default": {}},
        ],
    }
)
PROTO = """
syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; State state = 2; repeated Line lines = 3; map<string, Line> by = 4;
  optional string from = 5;
  google.protobuf.Timestamp at = 6; oneof pay { string card = 7; Line cash = 8;
    } message Line { string sku = 1; } }
enum State { NEW = 0; DONE = 1; }
"""
JSON_SCHEMA = json.dumps(
    {
        "title": "an order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "first-name": {"type": "string"},
            "state": {"enum": ["new", "done it"]},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
            "maybe": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "count": {"type": "integer", "default": 1},
            "free": {"type": "object"},
        },
        "required": ["id"],
        "definitions": {
            "line": {
                "type": "object",
                "properties": {"sku": {"type": "string"}, "parent": {"$ref": "#/definitions/line"}},
            }
        },
    }
)


def imported(kind: str, text: str) -> tuple[ModuleType, str]:
    source = generate(parse(kind, text), "a test")
    module = ModuleType("generated")
    sys.modules["generated"] = module
    exec(compile(source, "generated.py", "exec"), module.__dict__)  # noqa: S102
    return module, source


def round_trip(registry: RunningRegistry, kind: str, name: str, values: dict[str, Any]) -> Any:
    text = {"AVRO": AVRO, "PROTOBUF": PROTO, "JSON": JSON_SCHEMA}[kind]
    module, _ = imported(kind, text)
    made = getattr(module, name).from_dict(values)
    schemas = SchemaRegistry(registry.url)
    topic = f"codegen-{kind}"
    data = Encoder(schemas, made.SCHEMA, made.SCHEMA_TYPE).encode(topic, made)
    again = getattr(module, name).from_dict(Decoder(schemas).decode(data))
    assert again == made
    return made


def test_avro(registry: RunningRegistry) -> None:
    import datetime
    import decimal

    at = datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)
    values = {
        "id": 1,
        "lines": [{"sku": "x"}],
        "at": at,
        "price": decimal.Decimal("1.50"),
        "next": {"id": 2, "at": at, "price": decimal.Decimal("0.00")},
    }
    made = round_trip(registry, "AVRO", "Order", values)
    assert made.class_ == "a" and made.state == "NEW" and made.lines[0].sku == "x"
    assert made.next.either == 3 and made.raw == b"\xff"
    assert made.to_dict()["class"] == "a"


def test_protobuf(registry: RunningRegistry) -> None:
    made = round_trip(
        registry,
        "PROTOBUF",
        "Order",
        {
            "id": 5,
            "state": "DONE",
            "lines": [{"sku": "x"}],
            "by": {"k": {"sku": "y"}},
            "from": "z",
            "cash": {"sku": "c"},
        },
    )
    assert made.from_ == "z" and made.by["k"].sku == "y" and made.card is None and made.cash.sku == "c"


def test_json(registry: RunningRegistry) -> None:
    made = round_trip(
        registry,
        "JSON",
        "AnOrder",
        {"id": 5, "first-name": "x", "state": "done it", "lines": [{"sku": "a", "parent": {"sku": "b"}}]},
    )
    assert (
        made.first_name == "x" and made.lines[0].parent.sku == "b" and made.count == 1 and made.maybe is None
    )


def test_the_text_is_clean(tmp_path: Path) -> None:
    for kind, text in (("AVRO", AVRO), ("PROTOBUF", PROTO), ("JSON", JSON_SCHEMA)):
        path = tmp_path / f"made_{kind.lower()}.py"
        path.write_text(generate(parse(kind, text)))
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "E9,F", "--no-cache", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


def test_command(
    registry: RunningRegistry, api: Api, subject: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "order.avsc"
    source.write_text(AVRO)
    target = tmp_path / "order.py"
    assert main(["codegen", str(source), "-o", str(target)]) == 0
    assert "class Order(Record):" in target.read_text()
    api.register(subject, record("Thing", {"name": "a", "type": "int"}))
    assert main(["codegen", "--registry", registry.url, "--subject", subject]) == 0
    assert "class Thing(Record):" in capsys.readouterr().out
    assert main(["codegen", "--registry", registry.url, "--subject", "none"]) == 1
    source.write_text('"string"')
    assert main(["codegen", str(source)]) == 1
    assert "no record" in capsys.readouterr().err
