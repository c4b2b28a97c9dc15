"""The properties of WITH (...): which there are, and what they say about formats, windows and topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from millstream.sql import ast
from millstream.sql.catalog import Timestamp, WindowInfo
from millstream.sql.environment import (
    DEFAULT_KEY_FORMAT,
    DEFAULT_VALUE_FORMAT,
    Environment,
)
from millstream.sql.errors import EvaluationError, SqlError, sql_error
from millstream.sql.formats import FORMATS, Format, format_of
from millstream.sql.formats.table import (
    DELIMITER,
    FULL_SCHEMA_NAME,
    NULLABLE,
    SCHEMA_ID,
    UNWRAP_PRIMITIVES,
)
from millstream.sql.java_patterns import compiled
from millstream.sql.statements import Properties

_COMMON = {
    "KAFKA_TOPIC": str,
    "PARTITIONS": int,
    "REPLICAS": int,
    "RETENTION_MS": int,
    "CLEANUP_POLICY": str,
    "FORMAT": str,
    "KEY_FORMAT": str,
    "VALUE_FORMAT": str,
    "KEY_DELIMITER": str,
    "VALUE_DELIMITER": str,
    "KEY_SCHEMA_FULL_NAME": str,
    "VALUE_SCHEMA_FULL_NAME": str,
    "VALUE_AVRO_SCHEMA_FULL_NAME": str,
    "KEY_SCHEMA_ID": int,
    "VALUE_SCHEMA_ID": int,
    "KEY_PROTOBUF_NULLABLE_REPRESENTATION": str,
    "VALUE_PROTOBUF_NULLABLE_REPRESENTATION": str,
    "WRAP_SINGLE_VALUE": bool,
    "UNWRAP_PROTOBUF_PRIMITIVES": bool,
    "TIMESTAMP": str,
    "TIMESTAMP_FORMAT": str,
}
_SOURCE = {**_COMMON, "WINDOW_TYPE": str, "WINDOW_SIZE": str, "SOURCED_BY_CONNECTOR": str}
_INSERT = {"QUERY_ID": str}
_WINDOW_TYPES = ("SESSION", "HOPPING", "TUMBLING")
_CHOICES = {
    "WINDOW_TYPE": _WINDOW_TYPES,
    "KEY_PROTOBUF_NULLABLE_REPRESENTATION": ("OPTIONAL", "WRAPPER"),
    "VALUE_PROTOBUF_NULLABLE_REPRESENTATION": ("OPTIONAL", "WRAPPER"),
}
_UNITS = "NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS"
_QUERY_IDS = ("INSERTQUERY_", "CTAS_", "CSAS_", "CST_")
_QUERY_ID = re.compile(r"[A-Za-z0-9_]+\Z")


@dataclass(frozen=True, slots=True)
class With:
    """Checked properties."""

    values: dict[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    @staticmethod
    def of_source(properties: Properties) -> With:
        given = With(_checked(properties, _SOURCE))
        if given.get("KAFKA_TOPIC") is None:
            raise sql_error("no KAFKA_TOPIC")
        given._check()
        return given

    @staticmethod
    def of_sink(properties: Properties) -> With:
        given = With(_checked(properties, _COMMON))
        given._check()
        return given

    @staticmethod
    def of_insert(properties: Properties) -> With:
        return With(_checked(properties, _INSERT))

    def _check(self) -> None:
        """What several properties say together."""
        for part in ("KEY", "VALUE"):
            if self.get("FORMAT") is not None and self.get(part + "_FORMAT") is not None:
                raise sql_error("FORMAT twice", part=part)
        if None not in (self.get("VALUE_AVRO_SCHEMA_FULL_NAME"), self.get("VALUE_SCHEMA_FULL_NAME")):
            raise sql_error("schema name twice")
        pattern = self.get("TIMESTAMP_FORMAT")
        if pattern is not None:
            try:
                compiled(pattern)
            except EvaluationError as error:
                raise sql_error("timestamp format", why=str(error)) from None
        _ = self.window
        if self.get("CLEANUP_POLICY") is not None:
            raise sql_error("CLEANUP_POLICY")

    def query_id(self) -> str | None:
        """The name that INSERT INTO gives its query."""
        found = self.get("QUERY_ID")
        if found is None:
            return None
        name = str(found).upper()
        if name.startswith(_QUERY_IDS):
            raise sql_error("reserved query id", prefixes=", ".join(_QUERY_IDS), name=name)
        if not _QUERY_ID.match(name):
            raise sql_error("query id", name=name)
        return name

    # Formats ------------------------------------------------------------------------------------------------

    def _name(self, part: str) -> str | None:
        found = self.get(part + "_FORMAT") or self.get("FORMAT")
        return None if found is None else str(found).upper()

    def format(self, part: str, default: Format | None, environment: Environment) -> Format:
        """The format of keys (`part` KEY) or values (VALUE). `default` is what a sink takes over from its
        source."""
        name = self._name(part)
        inherited: dict[str, str] = {}
        if name is None and default is None:
            setting = DEFAULT_KEY_FORMAT if part == "KEY" else DEFAULT_VALUE_FORMAT
            name = environment.setting(setting, "KAFKA" if part == "KEY" else None)
            if name is None:
                raise sql_error("no format", part=part, setting=setting)
        elif name is None and default is not None:
            name = default.name
        if default is not None and default.name == name:
            kept = default.traits.inherited | {DELIMITER}
            inherited = {own: value for own, value in default.properties if own in kept}
        return self._format(part, str(name).upper(), inherited)

    def _format(self, part: str, name: str, inherited: dict[str, str]) -> Format:
        found = dict(inherited)
        full_name = self.get(part + "_SCHEMA_FULL_NAME")
        if full_name is None and part == "VALUE":
            full_name = self.get("VALUE_AVRO_SCHEMA_FULL_NAME")
        given = {
            FULL_SCHEMA_NAME: full_name,
            SCHEMA_ID: self.get(part + "_SCHEMA_ID"),
            DELIMITER: self.get(part + "_DELIMITER"),
            NULLABLE: self.get(part + "_PROTOBUF_NULLABLE_REPRESENTATION"),
        }
        if name in FORMATS and not FORMATS[name].infers:
            given[SCHEMA_ID] = None  # refused with words of its own
        if name.startswith("PROTOBUF"):
            unwrap = self.get("UNWRAP_PROTOBUF_PRIMITIVES")
            given[UNWRAP_PRIMITIVES] = True if unwrap is None else unwrap
            nullable = given[NULLABLE]
            given[NULLABLE] = None if nullable is None else str(nullable).lower()
        elif given[NULLABLE] is not None:
            raise sql_error("protobuf only", name=part + "_PROTOBUF_NULLABLE_REPRESENTATION")
        found.update({own: _text(value) for own, value in given.items() if value is not None})
        if DELIMITER in found and given[DELIMITER] is not None:
            try:
                return format_of(name, found)
            except SqlError as error:
                raise sql_error("delimiter", part=part, why=str(error)) from None
        return format_of(name, found)

    # The rest -----------------------------------------------------------------------------------------------

    @property
    def timestamp(self) -> Timestamp | None:
        column = self.get("TIMESTAMP")
        if column is None:
            return None
        name = column[1:-1] if column.startswith("`") and column.endswith("`") else column.upper()
        return Timestamp(name, self.get("TIMESTAMP_FORMAT"))

    @property
    def window(self) -> WindowInfo | None:
        kind, size = self.get("WINDOW_TYPE"), self.get("WINDOW_SIZE")
        millis = None if size is None else _duration(size)
        kind = None if kind is None else kind.upper()
        if kind in (None, "SESSION"):
            if size is not None:
                raise sql_error("WINDOW_SIZE of sessions")
            return None if kind is None else WindowInfo("SESSION")
        if millis is None:
            raise sql_error("no WINDOW_SIZE", type=kind)
        return WindowInfo(cast(Any, kind), millis)


def _duration(text: str) -> int:
    parts = re.split(r"\s", text)
    unit = parts[-1].upper().removesuffix("S")
    why = ""
    if len(parts) != 2:
        why = f"Expected 2 tokens, got: {len(parts)}"
    elif re.fullmatch(r"[+-]?\d+", parts[0]) is None:
        why = f"Not numeric: '{parts[0]}'"
    elif unit not in ast.UNITS:
        why = f"Unknown time unit: '{parts[1].upper()}'\nSupported time units are: {_UNITS}"
    if why:
        raise sql_error("WINDOW_SIZE", size=text, why=why)
    return int(parts[0]) * ast.UNITS[unit]


def _checked(properties: Properties, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    unknown = [name for name in properties if name.upper() not in known]
    if unknown:
        if "KEY" in unknown:
            raise sql_error("KEY property")
        raise sql_error("unknown property", names=",".join(name.upper() for name in unknown))
    for name, expression in properties.items():
        upper = name.upper()
        value = expression.value if isinstance(expression, ast.Literal) else None
        found[upper] = _converted(upper, value, known[upper], expression)
    return found


def _converted(name: str, value: Any, wanted: type, expression: ast.Expression) -> Any:
    """In the type of the property, or refused as Kafka's settings are."""
    if value is None:
        return None
    if wanted is bool:
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        why = "Expected value to be either true or false"
    elif wanted is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        try:
            return int(str(value))
        except ValueError:
            why = "Not a number of type INT"
    elif not isinstance(value, str):
        java = {bool: "Boolean", int: "Integer", float: "Double"}.get(type(value), "BigDecimal")
        why = f"Expected value to be a string, but it was a java.lang.{java}"
    elif name == "KAFKA_TOPIC" and not value:
        why = "String must be non-empty"
    elif name in _CHOICES and value.upper() not in _CHOICES[name]:
        why = f"String must be one of: {', '.join(_CHOICES[name])}, null"
    else:
        return value
    raise sql_error("property value", expression.location, name=name, value=_text(value), why=why)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
