"""Between Connect's schemas and Avro's, by the rules of Confluent's AvroData.

What Avro cannot say is kept in properties (`connect.type`, `connect.name`, `connect.version`,
`connect.parameters`, `connect.default`) and found there again; what Connect cannot say is kept in parameters
that begin with `io.confluent.connect.avro`. A record type that contains itself is refused: Connect's schemas
here are values, not graphs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.connect.converters.names import scrubbed, split_name
from millstream.connect.data import logical
from millstream.connect.data.schema import REQUIRED, Schema, Type
from millstream.connect.data.struct import Struct, validate_value
from millstream.connect.errors import DataError
from millstream.schemas.avro_model import MISSING, AvroField, AvroType, Parser, fits
from millstream.schemas.json_text import loads

NAMESPACE = "io.confluent.connect.avro"
DEFAULT_NAME = "ConnectDefault"
UNION, ENUM, ANYTHING = f"{NAMESPACE}.Union", f"{NAMESPACE}.Enum", f"{NAMESPACE}.Anything"
_RECORD_DOC, _FIELD_DOC = f"{NAMESPACE}.record.doc", f"{NAMESPACE}.field.doc."
_ENUM_DOC, _ENUM_DEFAULT = f"{NAMESPACE}.enum.doc.", f"{NAMESPACE}.enum.default."
_FIELD_DEFAULT = f"{NAMESPACE}.field.default"
_PRECISION, _FIXED_SIZE = "connect.decimal.precision", "connect.fixed.size"
_DEFAULT_PRECISION = 64
_SIMPLE = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_LOGICAL = {logical.DATE: "date", logical.TIME: "time-millis", logical.TIMESTAMP: "timestamp-millis"}
_FROM_LOGICAL = {
    ("int", "date"): logical.DATE_SCHEMA,
    ("int", "time-millis"): logical.TIME_SCHEMA,
    ("long", "timestamp-millis"): logical.TIMESTAMP_SCHEMA,
}
_FROM_SIMPLE = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
    "fixed": Type.BYTES,
}
ANYTHING_TYPE = Parser(check_defaults=False).parse(
    loads(
        '{"type":"record","name":"Anything","namespace":"io.confluent.connect.avro","fields":['
        + "".join(
            f'{{"name":"{name}","type":["null","{name}"],"default":null}},'
            for name in ("boolean", "bytes", "double", "float", "int", "long", "string")
        )
        + '{"name":"array","type":["null",{"type":"array","items":"Anything"}],"default":null},'
        '{"name":"map","type":["null",{"type":"array","items":{"type":"record","name":"MapEntry","fields":['
        '{"name":"key","type":"Anything"},{"name":"value","type":"Anything"}]}}],"default":null}]}'
    )
)
"""What a value without a schema is written as."""


@dataclass(frozen=True, slots=True)
class AvroOptions:
    enhanced: bool = False
    meta_data: bool = True
    scrub: bool = False
    optional_map_keys: bool = False
    flatten_singletons: bool = True


def is_union(schema: Schema) -> bool:
    return schema.name == UNION


def is_enum(schema: Schema) -> bool:
    return schema.type is Type.STRING and ENUM in (schema.parameters or {})


def is_fixed(schema: Schema) -> bool:
    return schema.type is Type.BYTES and schema.name is not None and _FIXED_SIZE in (schema.parameters or {})


def has_text_keys(schema: Schema, options: AvroOptions) -> bool:
    key = schema.key_schema
    return key is not None and key.type is Type.STRING and (not key.optional or options.optional_map_keys)


# --- to Avro ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ToAvro:
    """One conversion. Types that occur twice are one type; types without a name are numbered."""

    options: AvroOptions
    _unnamed: int = 0
    _made: dict[Schema, AvroType] = field(default_factory=dict)
    _named: dict[str, Schema] = field(default_factory=dict)

    def type_of(self, schema: Schema) -> AvroType:
        if is_union(schema):
            branches = [AvroType("null")] if schema.optional else []
            branches += [self.type_of(one.schema.replace(optional=False)) for one in schema.fields]
            return AvroType("union", branches=branches)
        base = self._base(schema.replace(optional=False) if schema.optional else schema)
        if not schema.optional:
            return base
        first_null = schema.default is None or schema.type is Type.STRUCT
        branches = [AvroType("null"), base] if first_null else [base, AvroType("null")]
        return AvroType("union", branches=branches)

    def _base(self, schema: Schema) -> AvroType:
        known = self._made.get(schema)
        if known is not None and known.name:
            return known
        made = self._plain(schema)
        if self.options.meta_data:
            self._add_meta_data(made, schema)
        if schema.name in _LOGICAL:
            made.properties["logicalType"] = _LOGICAL[schema.name]
        elif schema.name == logical.DECIMAL:
            made.properties["logicalType"] = "decimal"
        for name, text in (schema.parameters or {}).items():
            if name.startswith("avro"):
                made.properties.setdefault(name, text)
        self._made[schema] = made
        return made

    def _plain(self, schema: Schema) -> AvroType:
        kind = schema.type
        parameters = schema.parameters or {}
        if kind is Type.STRING and self.options.enhanced and is_enum(schema):
            return self._enum(schema, parameters)
        if kind is Type.BYTES:
            made = AvroType("bytes")
            if is_fixed(schema):
                made = AvroType("fixed", *self._name(schema), size=int(parameters[_FIXED_SIZE]))
            if schema.name == logical.DECIMAL:
                made.properties["scale"] = logical.scale_of(schema)
                made.properties["precision"] = int(parameters.get(_PRECISION, _DEFAULT_PRECISION))
            return made
        if kind is Type.ARRAY:
            return AvroType("array", child=self._inner(schema.value_schema))
        if kind is Type.MAP:
            if has_text_keys(schema, self.options):
                return AvroType("map", child=self._inner(schema.value_schema))
            return AvroType("array", child=self._map_entry(schema))
        if kind is Type.STRUCT:
            made = AvroType("record", *self._name(schema), doc=parameters.get(_RECORD_DOC))
            for one in schema.fields:
                name = scrubbed(one.name) if self.options.scrub else one.name
                made.fields.append(self._field(name, one.schema, parameters.get(_FIELD_DOC + one.name)))
            return made
        return AvroType(_SIMPLE[kind])

    def _inner(self, schema: Schema | None) -> AvroType:
        return ANYTHING_TYPE if schema is None else self.type_of(schema)

    def _enum(self, schema: Schema, parameters: dict[str, str]) -> AvroType:
        namespace, name = split_name(parameters[ENUM], scrub=False)
        prefix = f"{ENUM}."
        symbols = [one.removeprefix(prefix) for one in parameters if one.startswith(prefix)]
        _, own = split_name(schema.name or parameters[ENUM], scrub=self.options.scrub)
        return AvroType(
            "enum",
            name,
            namespace,
            doc=parameters.get(_ENUM_DOC + own),
            symbols=symbols,
            default=parameters.get(_ENUM_DEFAULT + own),
        )

    def _map_entry(self, schema: Schema) -> AvroType:
        entry = AvroType("record", "MapEntry", NAMESPACE)
        if schema.name is not None:
            namespace, name = split_name(schema.name, scrub=self.options.scrub)
            entry = AvroType("record", name, namespace, properties={"connect.internal.type": "MapEntry"})
        entry.fields = [
            self._field(name, inner, None)
            for name, inner in (("key", schema.key_schema), ("value", schema.value_schema))
            if inner is not None
        ]
        return entry

    def _field(self, name: str, schema: Schema, doc: str | None) -> AvroField:
        made = AvroField(name, self.type_of(schema), doc)
        if schema.default is not None:
            default = _default_to_json(schema, schema.default, self.options)
            if fits(made.type, default):
                made.default = default
        elif schema.optional:
            made.default = None
        return made

    def _name(self, schema: Schema) -> tuple[str, str]:
        if schema.name is None:
            self._unnamed += 1
            return DEFAULT_NAME + (str(self._unnamed) if self._unnamed > 1 else ""), NAMESPACE
        known = self._named.setdefault(schema.name, schema)
        if known.replace(default=None) != schema.replace(default=None):
            raise DataError(f"Can't redefine: {schema.name}")
        namespace, name = split_name(schema.name, scrub=self.options.scrub)
        return name, namespace

    def _add_meta_data(self, made: AvroType, schema: Schema) -> None:
        properties = made.properties
        if schema.doc is not None:
            properties["connect.doc"] = schema.doc
        if schema.version is not None:
            properties["connect.version"] = schema.version
        parameters = {
            name: text for name, text in (schema.parameters or {}).items() if name != _FIELD_DEFAULT
        }
        if parameters:
            properties["connect.parameters"] = parameters
        if schema.default is not None and _FIELD_DEFAULT not in (schema.parameters or {}):
            properties["connect.default"] = _default_to_json(schema, schema.default, self.options)
        if schema.name is not None:
            properties["connect.name"] = schema.name
        if schema.type in (Type.INT8, Type.INT16):
            properties["connect.type"] = schema.type.value


def _default_to_json(schema: Schema, value: Any, options: AvroOptions) -> Any:
    if value is None:
        return None
    if schema.name == logical.DATE:
        return logical.date_to_days(value)
    if schema.name == logical.TIME:
        return logical.time_to_millis(value)
    if schema.name == logical.TIMESTAMP:
        return logical.to_millis(value)
    if schema.name == logical.DECIMAL:
        value = logical.decimal_to_bytes(schema, value)
    if schema.type is Type.BYTES:
        return value.decode("latin-1")
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [_default_to_json(schema.value_schema, one, options) for one in value]
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        entries = [
            (
                _default_to_json(schema.key_schema, key, options),
                _default_to_json(schema.value_schema, one, options),
            )
            for key, one in value.items()
        ]
        return dict(entries) if has_text_keys(schema, options) else [list(entry) for entry in entries]
    if schema.type is Type.STRUCT:
        found = {
            scrubbed(one.name) if options.scrub else one.name: _default_to_json(
                one.schema, value.read(one, True), options
            )
            for one in schema.fields
        }
        return next(iter(found.values()), None) if is_union(schema) else found
    return value


# --- from Avro ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FromAvro:
    options: AvroOptions
    _open: list[str] = field(default_factory=list)

    def schema_of(self, avro_type: AvroType, version: int | None = None) -> Schema:
        return self._schema(avro_type, optional=False, default=MISSING, version=version)

    def member_name(self, avro_type: AvroType) -> str:
        """The field of a union's struct that a branch has."""
        if avro_type.type in ("record", "enum", "fixed"):
            return avro_type.full_name if self.options.enhanced else avro_type.name
        return avro_type.type

    def _schema(
        self, avro_type: AvroType, *, optional: bool, default: Any = MISSING, version: int | None = None
    ) -> Schema:
        if avro_type.type == "union":
            branches = avro_type.branches
            others = [branch for branch in branches if branch.type != "null"]
            if len(branches) == 1 and self.options.flatten_singletons:
                return self._schema(branches[0], optional=False)
            if len(branches) == 2 and len(others) == 1:
                return self._schema(others[0], optional=True)
        if avro_type.type == "null":
            raise DataError("Standalone null schemas are not supported by this converter")
        kind, attributes = self._attributes(avro_type)
        self._add_meta_data(avro_type, attributes, version, default)
        attributes["optional"] = optional or attributes.get("optional", False)
        schema = Schema(kind, **attributes)
        given = avro_type.properties.get("connect.default", MISSING) if default is MISSING else default
        if given is MISSING or given is None:
            return schema
        try:
            value = _default_from_json(schema, given, self)
            validate_value(schema, value)
        except (DataError, TypeError, ValueError, AttributeError):
            # As in Confluent's converter: a default that does not fit is left out.
            return schema
        return schema.replace(default=value)

    def _attributes(self, avro_type: AvroType) -> tuple[Type, dict[str, Any]]:
        kind, properties = avro_type.type, avro_type.properties
        logical_type = properties.get("logicalType")
        if kind in ("bytes", "fixed"):
            return Type.BYTES, self._bytes(avro_type)
        if (kind, logical_type) in _FROM_LOGICAL:
            known = _FROM_LOGICAL[kind, str(logical_type)]
            return known.type, {"name": known.name, "version": known.version}
        if kind == "int" and logical_type is None and "connect.type" in properties:
            if properties["connect.type"] not in ("int8", "int16"):
                raise DataError("Connect type annotation for Avro int field is null")
            return Type(properties["connect.type"]), {}
        if kind in _FROM_SIMPLE:
            return _FROM_SIMPLE[kind], {}
        if kind == "array":
            entry = avro_type.inner
            if _is_map_entry(entry):
                inner = {one.name: self._schema(one.type, optional=False) for one in entry.fields}
                if inner.keys() != {"key", "value"}:
                    raise DataError(
                        "Found map encoded as array of key-value pairs, but array elements do not match the "
                        "expected format."
                    )
                return Type.MAP, inner
            return Type.ARRAY, {"value": self._schema(entry, optional=False)}
        if kind == "map":
            return Type.MAP, {
                "key": REQUIRED[Type.STRING],
                "value": self._schema(avro_type.inner, optional=False),
            }
        if kind == "enum":
            return Type.STRING, {"name": avro_type.full_name, "parameters": self._enum_parameters(avro_type)}
        return Type.STRUCT, self._union(avro_type) if kind == "union" else self._record(avro_type)

    def _bytes(self, avro_type: AvroType) -> dict[str, Any]:
        properties = avro_type.properties
        attributes: dict[str, Any] = {"parameters": {}}
        if properties.get("logicalType") == "decimal":
            attributes |= {"name": logical.DECIMAL, "version": 1}
            attributes["parameters"]["scale"] = str(properties.get("scale", 0))
            precision = properties.get("precision", _DEFAULT_PRECISION)
            if precision != _DEFAULT_PRECISION:
                attributes["parameters"][_PRECISION] = str(precision)
        elif avro_type.type == "fixed":
            attributes["name"] = avro_type.full_name
        if avro_type.type == "fixed":
            attributes["parameters"][_FIXED_SIZE] = str(avro_type.size)
        return attributes

    def _record(self, avro_type: AvroType) -> dict[str, Any]:
        if avro_type.full_name in self._open:
            raise DataError(
                f"the record type {avro_type.full_name} contains itself; such schemas are not supported"
            )
        self._open.append(avro_type.full_name)
        parameters: dict[str, str] = {}
        fields = []
        if self.options.meta_data and avro_type.doc is not None:
            parameters[_RECORD_DOC] = avro_type.doc
        for one in avro_type.fields:
            if self.options.meta_data and one.doc is not None:
                parameters[_FIELD_DOC + one.name] = one.doc
            fields.append((one.name, self._schema(one.type, optional=False, default=one.default)))
        self._open.pop()
        return {"fields": fields, "name": avro_type.full_name, "parameters": parameters}

    def _union(self, avro_type: AvroType) -> dict[str, Any]:
        fields = [
            (self.member_name(branch), self._schema(branch, optional=True))
            for branch in avro_type.branches
            if branch.type != "null"
        ]
        if len({name for name, _ in fields}) != len(fields):
            raise DataError("Multiple union schemas map to the Connect union field name")
        nullable = any(branch.type == "null" for branch in avro_type.branches)
        return {"name": UNION, "fields": fields, "optional": nullable}

    def _enum_parameters(self, avro_type: AvroType) -> dict[str, str]:
        parameters: dict[str, str] = {}
        if self.options.meta_data:
            if avro_type.doc is not None:
                parameters[_ENUM_DOC + avro_type.name] = avro_type.doc
            if avro_type.default is not None:
                parameters[_ENUM_DEFAULT + avro_type.name] = avro_type.default
        return (
            parameters
            | {ENUM: avro_type.full_name}
            | {f"{ENUM}.{symbol}": symbol for symbol in avro_type.symbols}
        )

    def _add_meta_data(
        self, avro_type: AvroType, attributes: dict[str, Any], version: int | None, default: Any
    ) -> None:
        properties = avro_type.properties
        parameters = attributes.setdefault("parameters", {})
        if self.options.meta_data:
            if isinstance(properties.get("connect.doc"), str):
                attributes["doc"] = properties["connect.doc"]
            kept = properties.get("connect.parameters")
            if isinstance(kept, dict):
                parameters.update({name: str(text) for name, text in kept.items()})
            if default is not MISSING and "connect.default" not in properties:
                parameters[_FIELD_DEFAULT] = "true"
        own_version = properties.get("connect.version")
        if attributes.get("version") is None:
            attributes["version"] = own_version if isinstance(own_version, int) else version
        parameters.update({name: str(text) for name, text in properties.items() if name.startswith("avro")})
        name = properties.get("connect.name", attributes.get("name"))
        attributes["name"] = (
            None if name is not None and name.startswith(f"{NAMESPACE}.{DEFAULT_NAME}") else name
        )


def _is_map_entry(avro_type: AvroType) -> bool:
    return avro_type.type == "record" and (
        avro_type.full_name == f"{NAMESPACE}.MapEntry"
        or avro_type.properties.get("connect.internal.type") == "MapEntry"
    )


def _default_from_json(schema: Schema, value: Any, names: FromAvro) -> Any:
    """A default, as JSON has it, as Connect has it."""
    if value is None:
        return None
    if schema.name == logical.DATE:
        return logical.days_to_date(value)
    if schema.name == logical.TIME:
        return logical.millis_to_time(value)
    if schema.name == logical.TIMESTAMP:
        return logical.from_millis(value)
    if schema.type is Type.BYTES:
        data = value.encode("latin-1")
        return logical.decimal_from_bytes(schema, data) if schema.name == logical.DECIMAL else data
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [_default_from_json(schema.value_schema, one, names) for one in value]
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        entries = value.items() if isinstance(value, dict) else value
        return {
            _default_from_json(schema.key_schema, key, names): _default_from_json(
                schema.value_schema, one, names
            )
            for key, one in entries
        }
    if schema.type is Type.STRUCT:
        if is_union(schema):  # a default is of the first branch
            first = schema.fields[0]
            return Struct(schema, {first.name: _default_from_json(first.schema, value, names)})
        return Struct(
            schema,
            [
                _default_from_json(one.schema, value[one.name], names)
                if one.name in value
                else one.schema.default
                for one in schema.fields
            ],
        )
    if schema.type in (Type.FLOAT32, Type.FLOAT64):
        return float(value)
    return value
