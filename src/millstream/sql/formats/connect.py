"""Kafka Connect's data model, as far as the registry's formats need it.

Confluent's converters pass every Avro, Protobuf and JSON Schema through this model on the way to SQL and
back. It decides what a column is called and which type it gets, which is why the names of its types are in
the schemas that a sink registers (`connect.name`, `connect.type`) and why it is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal[
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FLOAT32",
    "FLOAT64",
    "BOOLEAN",
    "STRING",
    "BYTES",
    "ARRAY",
    "MAP",
    "STRUCT",
]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
UNION = "io.confluent.connect.avro.Union"

INTEGERS = frozenset({"INT8", "INT16", "INT32", "INT64"})


@dataclass(frozen=True, slots=True)
class ConnectType:
    """`name` is that of a record, or of a logical type (Decimal, Date, Time, Timestamp)."""

    kind: Kind
    name: str | None = None
    optional: bool = True
    fields: tuple[ConnectField, ...] = ()
    key: ConnectType | None = None
    value: ConnectType | None = None
    precision: int = 64
    scale: int = 0

    def required(self) -> ConnectType:
        return replace(self, optional=False)

    def __iter__(self) -> Iterator[ConnectField]:
        return iter(self.fields)


@dataclass(frozen=True, slots=True)
class ConnectField:
    name: str
    type: ConnectType
    source: str = field(default="", compare=False)
    """How the schema language itself calls it, where that is another name (oneof fields)."""


INT8 = ConnectType("INT8")
INT16 = ConnectType("INT16")
INT32 = ConnectType("INT32")
INT64 = ConnectType("INT64")
FLOAT32 = ConnectType("FLOAT32")
FLOAT64 = ConnectType("FLOAT64")
BOOLEAN = ConnectType("BOOLEAN")
STRING = ConnectType("STRING")
BYTES = ConnectType("BYTES")
DATE_TYPE = ConnectType("INT32", DATE)
TIME_TYPE = ConnectType("INT32", TIME)
TIMESTAMP_TYPE = ConnectType("INT64", TIMESTAMP)


def decimal(precision: int, scale: int) -> ConnectType:
    return ConnectType("BYTES", DECIMAL, precision=precision, scale=scale)


def array(value: ConnectType) -> ConnectType:
    return ConnectType("ARRAY", value=value)


def mapping(key: ConnectType, value: ConnectType, name: str | None = None) -> ConnectType:
    return ConnectType("MAP", name, key=key, value=value)


def struct(fields: tuple[ConnectField, ...], name: str | None = None) -> ConnectType:
    return ConnectType("STRUCT", name, fields=fields)
