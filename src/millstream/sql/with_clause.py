"""The properties of WITH (...): which there are, and what they say about formats, windows and topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from millstream.sql import ast
from millstream.sql.catalog import Timestamp, WindowInfo
from millstream.sql.environment import (
    DEFAULT_KEY_FORMAT,
    DEFAULT_VALUE_FORMAT,
    Environment,
)
from millstream.sql.errors import SqlError, sql_error
from millstream.sql.formats import FORMATS, Format, format_of
from millstream.sql.formats.table import (
    DELIMITER,
    FULL_SCHEMA_NAME,
    NULLABLE,
    SCHEMA_ID,
    UNWRAP_PRIMITIVES,
)
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
_SIZE = re.compile(r"\s*(\d+)\s+([A-Za-z]+)\s*\Z")


@dataclass(frozen=True, slots=True)
class With:
    """Checked properties."""

    values: dict[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    @staticmethod
    def of_source(properties: Properties) -> With:
        return With(_checked(properties, _SOURCE))

    @staticmethod
    def of_sink(properties: Properties) -> With:
        return With(_checked(properties, _COMMON))

    @staticmethod
    def of_insert(properties: Properties) -> With:
        return With(_checked(properties, _INSERT))

    # Formats ------------------------------------------------------------------------------------------------

    def _name(self, part: str) -> str | None:
        both, own = self.get("FORMAT"), self.get(part + "_FORMAT")
        if both is not None and own is not None:
            raise sql_error("FORMAT twice", part=part)
        found = own or both
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
        if kind is None:
            if size is not None:
                raise sql_error("WINDOW_SIZE without WINDOW_TYPE")
            return None
        kind = kind.upper()
        if kind not in ("TUMBLING", "HOPPING", "SESSION"):
            raise sql_error("WINDOW_TYPE", type=kind)
        if kind == "SESSION":
            if size is not None:
                raise sql_error("WINDOW_SIZE of sessions")
            return WindowInfo("SESSION")
        if size is None:
            raise sql_error("no WINDOW_SIZE", type=kind)
        match = _SIZE.match(size)
        unit = "" if match is None else match[2].upper().removesuffix("S")
        if match is None or unit not in ast.UNITS:
            raise sql_error("WINDOW_SIZE", size=size)
        return WindowInfo(kind, int(match[1]) * ast.UNITS[unit])


def _checked(properties: Properties, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    unknown = [name for name in properties if name.upper() not in known]
    if unknown:
        if "KEY" in unknown:
            raise sql_error("KEY property")
        raise sql_error("unknown property", names=", ".join(name.upper() for name in unknown))
    for name, expression in properties.items():
        upper = name.upper()
        value = expression.value if isinstance(expression, ast.Literal) else None
        found[upper] = _converted(upper, value, known[upper], expression)
    return found


def _converted(name: str, value: Any, wanted: type, expression: ast.Expression) -> Any:
    if value is None:
        return None
    if wanted is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
    elif wanted is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        try:
            return int(str(value))
        except ValueError:
            pass
    elif isinstance(value, str):
        return value
    raise sql_error(
        "property type", expression.location, name=name, value=_text(value), type=wanted.__name__.upper()
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
