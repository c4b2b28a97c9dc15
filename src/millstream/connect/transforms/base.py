"""What transforms and predicates have in common.

A transform of the key or of the value is one class here and two in Kafka: `Cast$Key` and `Cast$Value`. Each
does two things, by whether there is a schema: with one the value is a struct, without one a dict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

from millstream.connect.config.config_def import ConfigDef, ConfigKey
from millstream.connect.data.java_names import class_name
from millstream.connect.data.record import Record
from millstream.connect.data.schema import Schema, Type
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

AnyRecord = TypeVar("AnyRecord", bound=Record)
Target = Literal["key", "value"]

REPLACE_NULL_WITH_DEFAULT = ConfigKey(
    "replace.null.with.default",
    SettingType.BOOLEAN,
    True,
    Importance.MEDIUM,
    "Whether a field that is null counts as its default, where it has one.",
)


class Transform(ABC):
    """Makes a new record out of a record, or none: then the record is dropped."""

    config: ClassVar[ConfigDef]

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = self.config.parse(settings)

    @abstractmethod
    def apply(self, record: AnyRecord) -> AnyRecord | None: ...

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """The connector stops."""


class KeyOrValueTransform(Transform):
    """A transform of the key or of the value."""

    def __init__(self, settings: Mapping[str, Any], target: Target) -> None:
        super().__init__(settings)
        self.target = target
        self._schema_name = f"{target}_schema"
        self.with_default = bool(self.settings.get(REPLACE_NULL_WITH_DEFAULT.name, True))
        # A connector sees few schemas, each very often.
        self.updated_schema = lru_cache(maxsize=16)(self.update_schema)

    def read(self, record: Record) -> tuple[Schema | None, Any]:
        return getattr(record, self._schema_name), getattr(record, self.target)

    def write(self, record: AnyRecord, schema: Schema | None, value: Any) -> AnyRecord:
        return record.replace(**{self._schema_name: schema, self.target: value})

    def update_schema(self, schema: Schema) -> Schema:
        """The schema of what comes out, by that of what goes in."""
        return schema


class Predicate(ABC):
    config: ClassVar[ConfigDef]

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = self.config.parse(settings)

    @abstractmethod
    def test(self, record: Record) -> bool: ...


# --- what may come in ---------------------------------------------------------------------------------------


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(
            f"Only Map objects supported in absence of schema for [{purpose}], found: {class_name(value)}"
        )
    return value


def require_struct(value: Any, purpose: str, schema: Schema | None = None) -> Struct:
    if not isinstance(value, Struct):
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {class_name(value, schema)}")
    return value


def struct_like(schema: Schema, fields: list[tuple[str, Schema]], **attributes: Any) -> Schema:
    """A struct with these fields, and the name, version, doc and parameters of another."""
    return Schema(
        Type.STRUCT,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
        fields=fields,
        **attributes,
    )
