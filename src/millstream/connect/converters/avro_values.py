"""Values between Connect and Avro's bytes: for each pair of schemas one function, put together once.

fastavro writes and reads the bytes, by a schema of ours in which every type and field has a number for a
name, logical types are gone (they are converted here), and each branch of a union with several branches is a
record around it: on the wire a record is its fields, so the bytes are the same, and the branch is known.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from millstream.connect.converters.avro_schemas import (
    ANYTHING_TYPE,
    AvroOptions,
    FromAvro,
    has_text_keys,
    is_union,
)
from millstream.connect.converters.names import scrubbed
from millstream.connect.data import logical
from millstream.connect.data.java_names import class_name
from millstream.connect.data.schema import INTEGERS, Schema, Type
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError
from millstream.schemas.avro_model import AvroField, AvroType

Function = Callable[[Any], Any]
# No number is too long for it.
_EXACT = Context(prec=999_999_999, Emin=-999_999_999, Emax=999_999_999)


def simple_union(avro_type: AvroType) -> AvroType | None:
    """The type of `[null, type]`, which needs no wrapping."""
    if avro_type.type != "union" or len(avro_type.branches) != 2:
        return None
    others = [branch for branch in avro_type.branches if branch.type != "null"]
    return others[0] if len(others) == 1 else None


class WireSchema:
    """The schema that fastavro gets, and the names of its types."""

    def __init__(self, root: AvroType) -> None:
        import fastavro

        self.names: dict[int, str] = {}
        self._count = 0
        self._types: list[AvroType] = [root]  # keeps them alive: names go by identity
        self.parsed = fastavro.parse_schema(self._made(root))
        self._read = fastavro.schemaless_reader
        self._write = fastavro.schemaless_writer

    def read(self, body: memoryview) -> Any:
        return self._read(
            io.BytesIO(body), self.parsed, None, return_record_name=True, return_record_name_override=True
        )

    def write(self, value: Any) -> bytes:
        out = io.BytesIO()
        self._write(out, self.parsed, value)
        return out.getvalue()

    def branch(self, union: AvroType, index: int) -> str:
        return f"{self.names[id(union)]}_{index}"

    def _made(self, avro_type: AvroType) -> Any:
        kind = avro_type.type
        if kind == "union":
            if simple_union(avro_type) is not None:
                return [self._made(branch) for branch in avro_type.branches]
            name = self._name(avro_type)
            return [
                "null"
                if branch.type == "null"
                else {
                    "type": "record",
                    "name": f"{name}_{index}",
                    "fields": [{"name": "v", "type": self._made(branch)}],
                }
                for index, branch in enumerate(avro_type.branches)
            ]
        if kind in ("array", "map"):
            inside = "items" if kind == "array" else "values"
            return {"type": kind, inside: self._made(avro_type.inner)}
        if kind not in ("record", "enum", "fixed"):
            return kind
        if id(avro_type) in self.names:
            return self.names[id(avro_type)]
        made: dict[str, Any] = {"type": kind, "name": self._name(avro_type)}
        if kind == "record":
            made["fields"] = [
                {"name": f"f{index}", "type": self._made(one.type)}
                for index, one in enumerate(avro_type.fields)
            ]
        elif kind == "enum":
            made["symbols"] = list(avro_type.symbols)
        else:
            made["size"] = avro_type.size
        return made

    def _name(self, avro_type: AvroType) -> str:
        self._count += 1
        self._types.append(avro_type)
        name = self.names[id(avro_type)] = f"T{self._count}"
        return name


# --- from Connect -------------------------------------------------------------------------------------------


class Encoders:
    """Functions from Connect's values to those that fastavro writes."""

    def __init__(self, wire: WireSchema, options: AvroOptions, *, with_default: bool) -> None:
        self._wire = wire
        self._options = options
        self._with_default = with_default

    def of(self, schema: Schema, avro_type: AvroType) -> Function:
        """For values that are not null."""
        inner = simple_union(avro_type)
        if inner is not None:
            encode = self.of(schema, inner)
            if inner.type != "record":
                return encode
            # Saves fastavro from trying whether the value fits.
            name = self._wire.names[id(inner)]
            return lambda value: (name, encode(value))
        if avro_type.type == "union":
            return self._union(schema, avro_type)
        if schema.name in logical.LOGICAL_NAMES:
            return _logical_encoder(schema, avro_type)
        kind = schema.type
        if kind is Type.STRUCT:
            return self._struct(schema, avro_type)
        if kind is Type.ARRAY:
            return self._array(schema, avro_type)
        if kind is Type.MAP:
            return self._map(schema, avro_type)
        return _checked(schema)

    def or_null(self, schema: Schema, avro_type: AvroType) -> Function:
        encode = self.of(schema, avro_type)
        default = schema.default if self._with_default else None
        optional = schema.optional

        def encode_or_null(value: Any) -> Any:
            if value is None:
                if default is not None:
                    return encode(default)
                if not optional:
                    raise DataError("Found null value for non-optional schema")
                return None
            return encode(value)

        return encode_or_null

    def _struct(self, schema: Schema, avro_type: AvroType) -> Function:
        if avro_type.type != "record":
            raise DataError(f"a struct cannot be written as Avro's {avro_type.type}")
        fields = {scrubbed(one.name) if self._options.scrub else one.name: one for one in schema.fields}
        names: dict[str, Any] = {"schema": schema, "mismatch": _mismatch, "null": _null}
        lines = []
        entries = []
        for index, target in enumerate(avro_type.fields):
            source = fields.get(target.name)
            if source is None:
                # Only where the schema is not made from Connect's: the newest of a subject.
                names[f"d{index}"] = _constant(target)
                entries.append(f"'f{index}': d{index}")
                continue
            names[f"e{index}"] = self.of(source.schema, target.type)
            lines.append(f"    x{index} = v[{source.index}]")
            default = source.schema.default if self._with_default else None
            if default is not None:
                names[f"d{index}"] = default
                lines.append(f"    if x{index} is None: x{index} = d{index}")
            if source.schema.optional:
                lines.append(f"    if x{index} is not None: x{index} = e{index}(x{index})")
            else:
                lines.append(f"    x{index} = null() if x{index} is None else e{index}(x{index})")
            entries.append(f"'f{index}': x{index}")
        text = "\n".join(
            [
                "def encode(struct):",
                "    if struct.schema is not schema and struct.schema != schema: mismatch()",
                "    v = struct.values",
                *lines,
                f"    return {{{', '.join(entries)}}}",
            ]
        )
        exec(text, names)  # noqa: S102  # made from numbers only
        made: Function = names["encode"]
        return made

    def _union(self, schema: Schema, avro_type: AvroType) -> Function:
        members = FromAvro(self._options)
        by_name = {
            members.member_name(branch): (self._wire.branch(avro_type, index), branch)
            for index, branch in enumerate(avro_type.branches)
            if branch.type != "null"
        }
        if not is_union(schema):
            # The newest schema of a subject may have a union where the connector's has a plain type.
            for name, branch in by_name.values():
                if _fits(schema, branch):
                    encode = self.of(schema, branch)
                    return lambda value: (name, {"v": encode(value)})
            raise DataError(f"no branch of the union takes {schema}")
        encoders = []
        for one in schema.fields:
            found = by_name.get(one.name)
            if found is None:
                raise DataError(f"the union has no branch {one.name}")
            encoders.append((one.index, found[0], self.of(one.schema, found[1])))

        def encode_union(struct: Struct) -> Any:
            for index, name, encode in encoders:
                value = struct.values[index]
                if value is not None:
                    return name, {"v": encode(value)}
            if not schema.optional:
                raise DataError("Found null value for non-optional schema")
            return None

        return encode_union

    def _array(self, schema: Schema, avro_type: AvroType) -> Function:
        assert schema.value_schema is not None
        encode = self.or_null(schema.value_schema, avro_type.inner)
        return lambda values: [encode(one) for one in values]

    def _map(self, schema: Schema, avro_type: AvroType) -> Function:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        if has_text_keys(schema, self._options):
            encode = self.or_null(schema.value_schema, avro_type.inner)
            return lambda entries: {key: encode(one) for key, one in entries.items()}
        key, value = (one.type for one in avro_type.inner.fields)
        encode_key = self.or_null(schema.key_schema, key)
        encode_value = self.or_null(schema.value_schema, value)
        return lambda entries: [
            {"f0": encode_key(one), "f1": encode_value(other)} for one, other in entries.items()
        ]


def _mismatch() -> None:
    raise DataError("Mismatching struct schema")


def _null() -> None:
    raise DataError("Found null value for non-optional schema")


def _constant(target: AvroField) -> Any:
    if not target.has_default:
        raise DataError(f"the connector's records have no field {target.name}, which has no default")
    if target.default is None or target.type.type in ("string", "int", "long", "boolean", "float", "double"):
        return target.default
    raise DataError(f"the default of field {target.name} cannot be written: it is not a plain value")


_FITTING = {
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
    Type.ARRAY: "array",
    Type.MAP: "map",
    Type.STRUCT: "record",
}


def _fits(schema: Schema, branch: AvroType) -> bool:
    return branch.type == _FITTING.get(schema.type, "int")


def _checked(schema: Schema) -> Function:
    kind = schema.type
    bits = INTEGERS.get(kind)
    python: Any = {Type.STRING: str, Type.BYTES: bytes, Type.BOOLEAN: bool}.get(kind, float)
    if bits is None:

        def same(value: Any) -> Any:
            if type(value) is not python and not isinstance(value, python):
                raise DataError(f"Invalid type for {kind}: class {class_name(value)}")
            return value

        return same
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def whole(value: Any) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise DataError(f"Invalid type for {kind}: class {class_name(value)}")
        return value

    return whole


def _logical_encoder(schema: Schema, avro_type: AvroType) -> Function:
    if schema.name == logical.DECIMAL:
        size = avro_type.size if avro_type.type == "fixed" else 0

        def decimal(value: Any) -> bytes:
            if not isinstance(value, Decimal):
                raise DataError(
                    f"Invalid type for Decimal, expected BigDecimal but was class {class_name(value)}"
                )
            data = logical.decimal_to_bytes(schema, value)
            if not size:
                return data
            if len(data) > size:
                raise DataError(
                    f"Unscaled value byte array length {len(data)} is greater than fixed size {size}"
                )
            return (b"\xff" if data[0] > 127 else b"\0") * (size - len(data)) + data

        return decimal
    convert = {
        logical.DATE: logical.date_to_days,
        logical.TIME: logical.time_to_millis,
        logical.TIMESTAMP: logical.to_millis,
    }[schema.name or ""]
    short = (schema.name or "").rpartition(".")[2]

    def moment(value: Any) -> int:
        try:
            return convert(value)
        except (TypeError, AttributeError):
            raise DataError(
                f"Invalid type for {short}, expected Date but was class {class_name(value)}"
            ) from None

    return moment


# --- to Connect ---------------------------------------------------------------------------------------------


class Decoders:
    """Functions from what fastavro reads to Connect's values; None where the value is the same."""

    def __init__(self, options: AvroOptions) -> None:
        self._options = options

    def of(self, schema: Schema, avro_type: AvroType) -> Function | None:
        inner = simple_union(avro_type)
        if inner is not None:
            decode = self.of(schema, inner)
            if decode is None:
                return None
            present = decode
            return lambda value: None if value is None else present(value)
        if avro_type.type == "union":
            if not is_union(schema):  # one branch, flattened
                only = self.of(schema, avro_type.branches[0]) or _same
                return lambda value: only(value["v"])
            return self._union(schema, avro_type)
        if schema.name in logical.LOGICAL_NAMES:
            return _logical_decoder(schema)
        if schema.type is Type.STRUCT:
            return self._struct(schema, avro_type)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            decode = self.of(schema.value_schema, avro_type.inner)
            return None if decode is None else lambda values: [decode(one) for one in values]
        if schema.type is Type.MAP:
            return self._map(schema, avro_type)
        return None

    def _struct(self, schema: Schema, avro_type: AvroType) -> Function:
        decoders = [
            self.of(one.schema, target.type)
            for one, target in zip(schema.fields, avro_type.fields, strict=True)
        ]
        if not any(decoders):
            return lambda record: Struct(schema, list(record.values()))
        names: dict[str, Any] = {f"d{index}": decode for index, decode in enumerate(decoders)}
        names |= {"Struct": Struct, "schema": schema}
        values = [
            f"r['f{index}']" if decode is None else f"d{index}(r['f{index}'])"
            for index, decode in enumerate(decoders)
        ]
        return eval(f"lambda r: Struct(schema, [{', '.join(values)}])", names)  # type: ignore[no-any-return]  # noqa: S307

    def _union(self, schema: Schema, avro_type: AvroType) -> Function:
        decoders: dict[str, tuple[int, Function | None]] = {}
        count = len(schema.fields)
        index = 0
        for number, branch in enumerate(avro_type.branches):
            if branch.type == "null":
                continue
            decoders[str(number)] = (index, self.of(schema.fields[index].schema, branch))
            index += 1
        only = next(iter(decoders.values())) if len(decoders) == 1 else None

        def decode_union(value: Any) -> Struct | None:
            if value is None:
                return None
            if only is None:
                name, record = value
                position, decode = decoders[name.rpartition("_")[2]]
            else:
                record = value
                position, decode = only
            values: list[Any] = [None] * count
            values[position] = record["v"] if decode is None else decode(record["v"])
            return Struct(schema, values)

        return decode_union

    def _map(self, schema: Schema, avro_type: AvroType) -> Function | None:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        if avro_type.type == "map":
            decode = self.of(schema.value_schema, avro_type.inner)
            if decode is None:
                return None
            return lambda entries: {key: decode(one) for key, one in entries.items()}
        key, value = (one.type for one in avro_type.inner.fields)
        decode_key = self.of(schema.key_schema, key) or _same
        decode_value = self.of(schema.value_schema, value) or _same
        return lambda entries: {decode_key(one["f0"]): decode_value(one["f1"]) for one in entries}


def _same(value: Any) -> Any:
    return value


def _logical_decoder(schema: Schema) -> Function:
    if schema.name == logical.DATE:
        return logical.days_to_date
    if schema.name == logical.TIME:
        return logical.millis_to_time
    if schema.name == logical.TIMESTAMP:
        return logical.from_millis
    scale = -logical.scale_of(schema)
    return lambda data: _EXACT.scaleb(Decimal(int.from_bytes(data, "big", signed=True)), scale)


# --- without a schema ---------------------------------------------------------------------------------------

_ANYTHING = {one.name: f"f{index}" for index, one in enumerate(ANYTHING_TYPE.fields)}


def to_anything(value: Any) -> dict[str, Any]:
    """A value without a schema as the record that can hold any."""
    found: dict[str, Any] = dict.fromkeys(_ANYTHING.values())
    if value is None:
        return found
    if isinstance(value, bool):
        found[_ANYTHING["boolean"]] = value
    elif isinstance(value, int):
        found[_ANYTHING["long"]] = value
    elif isinstance(value, float):
        found[_ANYTHING["double"]] = value
    elif isinstance(value, str):
        found[_ANYTHING["string"]] = value
    elif isinstance(value, bytes):
        found[_ANYTHING["bytes"]] = value
    elif isinstance(value, list):
        found[_ANYTHING["array"]] = [to_anything(one) for one in value]
    elif isinstance(value, dict):
        found[_ANYTHING["map"]] = [
            {"f0": to_anything(key), "f1": to_anything(one)} for key, one in value.items()
        ]
    else:
        raise DataError(f"Unknown Java type for schemaless data: class {class_name(value)}")
    return found


def from_anything(record: dict[str, Any]) -> Any:
    for name, field in _ANYTHING.items():
        value = record[field]
        if value is None:
            continue
        if name == "array":
            return [from_anything(one) for one in value]
        if name == "map":
            return {from_anything(one["f0"]): from_anything(one["f1"]) for one in value}
        return value
    return None
