"""The formats by name: which can unwrap a single column, which know a registry, which types they take.

A `Format` is a name and its properties, as DESCRIBE and the plan show it; it is what goes with a source
through the catalog. It knows no columns: `rows.py` makes a serde of a format and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from millstream.sql.errors import SqlError
from millstream.sql.types import ArrayType, Base, MapType, SqlType, StructType

# Properties, as ksqlDB calls them.
DELIMITER = "delimiter"
FULL_SCHEMA_NAME = "fullSchemaName"
SCHEMA_ID = "schemaId"
UNWRAP_PRIMITIVES = "unwrapPrimitives"
NULLABLE = "nullableRepresentation"
SUBJECT = "subjectName"

AVRO_NAMESPACE = "io.confluent.ksql.avro_schemas"
DEFAULT_AVRO_NAME = f"{AVRO_NAMESPACE}.KsqlDataSourceSchema"


@dataclass(frozen=True, slots=True)
class Traits:
    """What a format can do."""

    wraps: bool
    unwraps: bool
    infers: bool
    """Schemas come from the registry, and sinks register theirs."""
    properties: frozenset[str] = frozenset()
    inherited: frozenset[str] = frozenset()
    """Properties that a sink takes over from its source's format of the same name."""


_CONNECT = frozenset({FULL_SCHEMA_NAME, SCHEMA_ID})
_PROTOBUF = frozenset({UNWRAP_PRIMITIVES, NULLABLE})

FORMATS: Mapping[str, Traits] = {
    "AVRO": Traits(True, True, True, _CONNECT),
    "JSON": Traits(True, True, False),
    "JSON_SR": Traits(True, True, True, _CONNECT),
    "PROTOBUF": Traits(True, False, True, _CONNECT | _PROTOBUF | {SUBJECT}, frozenset({FULL_SCHEMA_NAME})),
    "PROTOBUF_NOSR": Traits(True, True, False, _PROTOBUF),
    "DELIMITED": Traits(False, True, False, frozenset({DELIMITER})),
    "KAFKA": Traits(False, True, False),
    "NONE": Traits(False, False, False),
}


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def traits(self) -> Traits:
        return FORMATS[self.name]

    def get(self, name: str, default: str | None = None) -> str | None:
        for own, value in self.properties:
            if own == name:
                return value
        return default

    def with_property(self, name: str, value: str) -> Format:
        kept = tuple(pair for pair in self.properties if pair[0] != name)
        return Format(self.name, (*kept, (name, value)))

    def without(self, *names: str) -> Format:
        return Format(self.name, tuple(pair for pair in self.properties if pair[0] not in names))

    @property
    def schema_id(self) -> int | None:
        found = self.get(SCHEMA_ID)
        return None if found is None else int(found)

    def unwraps_by_default(self, columns: int, *, is_key: bool) -> bool:
        """Keys of one column are never wrapped where the format has the choice; values are."""
        if columns != 1 or not self.traits.unwraps:
            return False
        return is_key or not self.traits.wraps


def format_of(name: str, properties: Mapping[str, str] | None = None) -> Format:
    """A format by the name that a statement gives; SqlError if there is none, or it has no such property."""
    traits = FORMATS.get(name.upper())
    if traits is None:
        raise SqlError(f"Unknown format: {name.upper()}")
    found = properties or {}
    for own, value in found.items():
        if own == FULL_SCHEMA_NAME and own in traits.properties and not value.strip():
            shown = ", ".join(f"{name}={text.strip()}" for name, text in found.items())
            raise SqlError(f"{FULL_SCHEMA_NAME} cannot be empty. Format configuration: {{{shown}}}")
    unknown = [own for own in found if own not in traits.properties]
    if unknown:
        raise SqlError(f"{name.upper()} does not support the following configs: [{', '.join(unknown)}]")
    if DELIMITER in found:
        delimiter_of(found[DELIMITER])
    if NULLABLE in found:
        found = {**found, NULLABLE: found[NULLABLE].lower()}
    return Format(name.upper(), tuple(found.items()))


_NAMED_DELIMITERS = {"TAB": "\t", "SPACE": " "}


def delimiter_of(text: str) -> str:
    if not text.strip():
        raise SqlError(
            "Delimiter cannot be empty, if you meant to have a tab or space for delimiter, please use the "
            "special "
            "values 'TAB' or 'SPACE'\nExample valid value: ';'"
        )
    if len(text) == 1:
        return text
    if text not in _NAMED_DELIMITERS:
        raise SqlError(
            f"Invalid delimiter value: '{text}'. Delimiter must be a single character or "
            f"{','.join(_NAMED_DELIMITERS)}\nExample valid value: ';'"
        )
    return _NAMED_DELIMITERS[text]


# Types ----------------------------------------------------------------------------------------------------

_KAFKA_TYPES = frozenset({Base.INTEGER, Base.BIGINT, Base.DOUBLE, Base.STRING, Base.BYTES})
_NESTED = frozenset({Base.ARRAY, Base.MAP, Base.STRUCT})


def walk(type_: SqlType) -> Iterable[SqlType]:
    """A type and all inside it."""
    yield type_
    if isinstance(type_, ArrayType):
        yield from walk(type_.item)
    elif isinstance(type_, MapType):
        yield from walk(type_.key)
        yield from walk(type_.value)
    elif isinstance(type_, StructType):
        for _, inner in type_.fields:
            yield from walk(inner)


def supports_key_type(name: str, type_: SqlType) -> bool:
    """Whether a key column may have that type, or the key has to be written in another format."""
    if name == "NONE":
        return False
    if name == "KAFKA":
        return type_.base in _KAFKA_TYPES
    if name == "DELIMITED":
        return type_.base not in _NESTED and type_.base is not Base.DECIMAL
    return True


_MAP_KEYS: Mapping[str, str] = {
    "AVRO": "Avro only supports MAPs with STRING keys",
    "JSON": "JSON only supports MAP types with STRING keys",
    "JSON_SR": "JSON only supports MAP types with STRING keys",
    "PROTOBUF": (
        "PROTOBUF format only supports MAP types with STRING keys. "
        "See https://github.com/confluentinc/ksql/issues/6177."
    ),
    "PROTOBUF_NOSR": (
        "PROTOBUF format only supports MAP types with STRING keys. "
        "See https://github.com/confluentinc/ksql/issues/6177."
    ),
}


def _described(columns: Iterable[tuple[str, SqlType]]) -> str:
    return f"[{', '.join(f'`{name}` {type_}' for name, type_ in columns)}]"


def check_columns(
    format_: Format,
    columns: tuple[tuple[str, SqlType], ...],
    *,
    is_key: bool,
    quote: Callable[[str], str] = lambda name: f"`{name}`",
) -> None:
    """SqlError if a format cannot carry these columns."""
    if is_key:
        for name, type_ in columns:
            if any(isinstance(inner, MapType) for inner in walk(type_)):
                raise SqlError(
                    "Map keys, including types that contain maps, are not supported as they may lead to "
                    "unexpected "
                    f"behavior due to inconsistent serialization. Key column name: {quote(name)}. Column "
                    "type: "
                    f"{type_}. See https://github.com/confluentinc/ksql/issues/6621 for more."
                )
    if format_.name == "NONE":
        if columns:
            raise SqlError(
                "The 'NONE' format can only be used when no columns are defined. Got: " + _described(columns)
            )
    elif format_.name == "KAFKA":
        if len(columns) > 1:
            hint = "\nFor a key of several columns choose another format: WITH (KEY_FORMAT='JSON')." * is_key
            raise SqlError(
                f"The 'KAFKA' format only supports a single field. Got: {_described(columns)}{hint}"
            )
        for _, type_ in columns:
            if type_.base not in _KAFKA_TYPES:
                raise SqlError(f"The 'KAFKA' format does not support type '{type_.base}'")
    elif format_.name == "DELIMITED":
        for name, type_ in columns:
            if type_.base in _NESTED:
                raise SqlError(
                    f"The 'DELIMITED' format does not support type '{type_.base}', column: {quote(name)}"
                )
    else:
        for _, type_ in columns:
            for inner in walk(type_):
                if isinstance(inner, MapType) and inner.key.base is not Base.STRING:
                    raise SqlError(_MAP_KEYS[format_.name])
