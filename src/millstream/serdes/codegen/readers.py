"""From the three schema languages to classes."""

import re
from typing import Any

from millstream.schemas import ParsedSchema
from millstream.schemas.avro import AvroSchema
from millstream.schemas.avro_model import AvroField, AvroType
from millstream.schemas.json_references import Documents
from millstream.schemas.json_schema import JsonSchema
from millstream.schemas.proto_model import SCALARS, Enum, Field, Message, map_types
from millstream.schemas.protobuf import ProtobufSchema
from millstream.serdes.codegen.model import NO_DEFAULT, EnumClass, FieldClass, Module, RecordClass, optional

AVRO_TYPES = {
    "null": "None",
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "bytes": "bytes",
    "string": "str",
    "fixed": "bytes",
}
AVRO_LOGICAL = {
    "decimal": "decimal.Decimal",
    "uuid": "uuid.UUID",
    "date": "datetime.date",
    "time-millis": "datetime.time",
    "time-micros": "datetime.time",
    "timestamp-millis": "datetime.datetime",
    "timestamp-micros": "datetime.datetime",
    "local-timestamp-millis": "datetime.datetime",
    "local-timestamp-micros": "datetime.datetime",
}
JSON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
PROTO_TYPES = {
    **{name: "int" for name in SCALARS},
    "double": "float",
    "float": "float",
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
}
PROTO_KNOWN = {
    "google.protobuf.Timestamp": "datetime.datetime",
    "google.protobuf.Duration": "datetime.timedelta",
    "google.protobuf.Struct": "dict[str, Any]",
    "google.protobuf.StringValue": "str",
    "google.protobuf.BytesValue": "bytes",
    "google.protobuf.BoolValue": "bool",
    **{f"google.protobuf.{wrapped}Value": "int" for wrapped in ("Int32", "Int64", "UInt32", "UInt64")},
    **{f"google.protobuf.{wrapped}Value": "float" for wrapped in ("Float", "Double")},
}


def read(schema: ParsedSchema) -> Module:
    """ValueError if the schema describes no record."""
    if isinstance(schema, AvroSchema):
        module = _Avro(schema).module
    elif isinstance(schema, JsonSchema):
        module = _Json(schema).module
    else:
        assert isinstance(schema, ProtobufSchema)
        module = _Protobuf(schema).module
    if not any(isinstance(one, RecordClass) for one in module.classes):
        raise ValueError("the schema describes no record, so there is no class to make")
    return module


class _Avro:
    def __init__(self, schema: AvroSchema) -> None:
        self.module = Module()
        python_type = self._type(schema.root)
        self.module.root = python_type if schema.root.type == "record" else ""

    def _type(self, avro_type: AvroType) -> str:
        logical = avro_type.properties.get("logicalType")
        if logical in AVRO_LOGICAL and avro_type.type in ("bytes", "fixed", "string", "int", "long"):
            return AVRO_LOGICAL[logical]
        if avro_type.type == "array":
            return f"list[{self._type(avro_type.inner)}]"
        if avro_type.type == "map":
            return f"dict[str, {self._type(avro_type.inner)}]"
        if avro_type.type == "union":
            names = list(dict.fromkeys(self._type(one) for one in avro_type.branches if one.type != "null"))
            joined = " | ".join(names) or "None"
            return optional(joined) if any(one.type == "null" for one in avro_type.branches) else joined
        if avro_type.type not in ("record", "enum"):
            return AVRO_TYPES[avro_type.type]
        known = avro_type.full_name in self.module.taken
        name = self.module.class_name(avro_type.full_name)
        if not known:
            if avro_type.type == "enum":
                self.module.classes.append(EnumClass(name, list(avro_type.symbols), avro_type.doc or ""))
            else:
                fields = [self._field(one) for one in avro_type.fields]
                self.module.classes.append(RecordClass(name, fields, avro_type.doc or ""))
        return name

    def _field(self, one: AvroField) -> FieldClass:
        text = self._type(one.type)
        default = NO_DEFAULT
        if one.has_default:
            default = _avro_default(self.module, one.type, one.default)
        return FieldClass(one.name, text, default, one.doc or "")


def _avro_default(module: Module, avro_type: AvroType, value: Any) -> str:
    if avro_type.type == "union":
        avro_type = next((one for one in avro_type.branches if _fits(one, value)), avro_type.branches[0])
    if avro_type.properties.get("logicalType") in AVRO_LOGICAL and value is not None:
        return NO_DEFAULT  # a number or text in the schema, another type in Python
    if value is None or isinstance(value, bool | int | float):
        return (
            repr(float(value)) if avro_type.type in ("float", "double") and value is not None else repr(value)
        )
    if avro_type.type == "enum":
        return f"{module.class_name(avro_type.full_name)}({value!r})"
    if avro_type.type in ("bytes", "fixed"):
        return repr(str(value).encode("latin-1"))
    if isinstance(value, str):
        return repr(value)
    if value == []:
        return "field(default_factory=list)"
    if value == {} and avro_type.type == "map":
        return "field(default_factory=dict)"
    if avro_type.type == "record":
        return f"field(default_factory=lambda: {module.class_name(avro_type.full_name)}.from_dict({value!r}))"
    return f"field(default_factory=lambda: {value!r})"


def _fits(avro_type: AvroType, value: Any) -> bool:
    from millstream.schemas.avro_model import fits

    return fits(avro_type, value)


class _Json:
    def __init__(self, schema: JsonSchema) -> None:
        self.module = Module()
        document = schema.document if isinstance(schema.document, dict) else {}
        self._documents = Documents(document, schema.resolved, "$id")
        self._seen: dict[int, str] = {}
        title = document.get("title")
        python_type = self._type(self._documents.root.schema, str(title or "Root"), self._documents.base)
        self.module.root = python_type if any(one.name == python_type for one in self.module.classes) else ""

    def _type(self, schema: Any, hint: str, base: str) -> str:
        if not isinstance(schema, dict):
            return "Any"
        if "$ref" in schema:
            found = self._documents.find(str(schema["$ref"]), base)
            return self._type(
                found.schema,
                str(schema["$ref"]).rstrip("/").rpartition("/")[2].removesuffix(".json") or hint,
                found.base,
            )
        if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]) and schema["enum"]:
            return self._once(schema, hint, lambda name: EnumClass(name, list(schema["enum"]), _doc(schema)))
        for keyword in ("oneOf", "anyOf"):
            if isinstance(schema.get(keyword), list):
                parts = [
                    self._type(one, f"{hint}{number}", base) for number, one in enumerate(schema[keyword], 1)
                ]
                return _union(parts)
        json_type = schema.get("type")
        if isinstance(json_type, list):
            return _union([self._type({**schema, "type": one}, hint, base) for one in json_type])
        if json_type == "array":
            return f"list[{self._type(schema.get('items', True), f'{hint}Item', base)}]"
        if json_type == "object" or "properties" in schema:
            if not schema.get("properties"):
                more = schema.get("additionalProperties", True)
                return f"dict[str, {self._type(more, f'{hint}Value', base)}]"
            return self._once(
                schema, hint, lambda name: RecordClass(name, self._fields(schema, base), _doc(schema))
            )
        return JSON_TYPES.get(str(json_type), "Any")

    def _once(self, schema: Any, hint: str, make: Any) -> str:
        if id(schema) not in self._seen:
            title = schema.get("title")
            words = re.split(r"\W+|_", title if isinstance(title, str) else hint)
            full_name = "".join(word[:1].upper() + word[1:] for word in words)
            name = self.module.class_name(f"{id(schema)}.{full_name}")
            self._seen[id(schema)] = name
            self.module.classes.append(make(name))
        return self._seen[id(schema)]

    def _fields(self, schema: Any, base: str) -> list[FieldClass]:
        required = set(schema.get("required") or ())
        fields = []
        for name, one in schema["properties"].items():
            python_type = self._type(one, name, base)
            default = NO_DEFAULT
            given = one.get("default") if isinstance(one, dict) else None
            if (
                given is not None
                and not isinstance(given, dict | list)
                and python_type in ("str", "int", "float", "bool")
            ):
                default = repr(given)
            elif name not in required:
                python_type, default = optional(python_type), "None"
            fields.append(FieldClass(name, python_type, default, _doc(one)))
        return fields


def _union(types: list[str]) -> str:
    names = list(dict.fromkeys(name.removesuffix(" | None") for name in types if name != "None"))
    if "Any" in names:
        return "Any"
    joined = " | ".join(names) or "None"
    return optional(joined) if any(name == "None" or name.endswith("| None") for name in types) else joined


def _doc(schema: Any) -> str:
    text = schema.get("description") if isinstance(schema, dict) else None
    return text if isinstance(text, str) else ""


class _Protobuf:
    def __init__(self, schema: ProtobufSchema) -> None:
        self.module = Module()
        self._names = schema.names
        package = schema.file.package or ""
        for declared in schema.file.types:
            name = self._add(declared, f"{package}.{declared.name}" if package else declared.name)
            if isinstance(declared, Message) and not self.module.root:
                self.module.root = name

    def _add(self, declared: Message | Enum, full_name: str) -> str:
        known = full_name in self.module.taken
        name = self.module.class_name(full_name)
        if known:
            return name
        if isinstance(declared, Enum):
            self.module.classes.append(EnumClass(name, [one.name for one in declared.constants]))
            return name
        made = RecordClass(name)
        for nested in declared.types:
            if not (isinstance(nested, Message) and nested.is_map_entry):
                self._add(nested, f"{full_name}.{nested.name}")
        made.fields = [self._field(one, full_name, in_oneof=False) for one in declared.fields]
        for oneof in declared.oneofs:
            made.fields += [self._field(one, full_name, in_oneof=True) for one in oneof.fields]
        self.module.classes.append(made)
        return name

    def _field(self, one: Field, scope: str, *, in_oneof: bool) -> FieldClass:
        pair = map_types(one.type)
        found = self._names.resolve(one.type, scope) if pair is None and one.type not in SCALARS else None
        if found is not None and isinstance(found.type, Message) and found.type.is_map_entry:
            pair = map_types(found.type.map_type)
        if pair is not None:
            python_type = f"dict[{PROTO_TYPES.get(pair[0], 'str')}, {self._type(pair[1], scope)}]"
            return FieldClass(one.name, python_type, "field(default_factory=dict)")
        python_type = self._type(one.type, scope)
        if one.label == "repeated":
            return FieldClass(one.name, f"list[{python_type}]", "field(default_factory=list)")
        if in_oneof or one.label == "optional" or (found is not None and isinstance(found.type, Message)):
            return FieldClass(one.name, optional(python_type), "None")
        if found is not None:
            first = (
                found.type.constants[0].name if isinstance(found.type, Enum) and found.type.constants else ""
            )
            return FieldClass(one.name, python_type, f"{python_type}({first!r})")
        return FieldClass(one.name, python_type, f"{python_type}()")

    def _type(self, name: str, scope: str) -> str:
        if name in SCALARS:
            return PROTO_TYPES[name]
        found = self._names.resolve(name, scope)
        if found is None:
            return "Any"
        if found.full_name in PROTO_KNOWN:
            return PROTO_KNOWN[found.full_name]
        return self._add(found.type, found.full_name)
