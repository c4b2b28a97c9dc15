"""Avro schemas as objects: parsed with Java Avro's rules, written with Java Avro's order of attributes.

Names live in one table per schema. It begins with the types of the schemas referred to; a type may be used
once it is defined, inside its own definition too.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from millstream.schemas.json_text import dumps
from millstream.schemas.schema import InvalidSchema

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
SCHEMA_WORDS = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
FIELD_WORDS = frozenset({"default", "doc", "name", "order", "type", "aliases"})
ORDERS = {"ascending", "descending", "ignore"}


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()  # a field without a default; None is a default


@dataclass(slots=True, eq=False)
class AvroType:
    """One type. Which attributes matter depends on `type`; branches are a union's, child an array's or
    map's."""

    type: str
    name: str = ""
    namespace: str = ""
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)  # full names
    fields: "list[AvroField]" = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    default: str | None = None
    size: int = 0
    child: "AvroType | None" = None
    branches: "list[AvroType]" = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)
    is_error: bool = False

    @property
    def full_name(self) -> str:
        if not self.name:
            return self.type
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def inner(self) -> "AvroType":
        assert self.child is not None
        return self.child


@dataclass(slots=True, eq=False)
class AvroField:
    name: str
    type: AvroType
    doc: str | None = None
    default: Any = MISSING
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


class Parser:
    """Parses texts that may use each other's types; `names` are all types defined so far."""

    def __init__(
        self, *, check_defaults: bool, check_names: bool = True, check_namespaces: bool = True
    ) -> None:
        self.names: dict[str, AvroType] = {}
        self._check_defaults = check_defaults
        self.check_names = check_names
        self.check_namespaces = check_namespaces
        self._unchecked: list[tuple[AvroField, str]] = []

    def parse(self, value: Any) -> AvroType:
        parsed = self._type(value, "")
        # A default is checked when all types are complete: a field may have the type that it is inside of.
        for one, owner in self._unchecked:
            if not fits(one.type, one.default):
                raise InvalidSchema(
                    f"Invalid default for field {one.name} of {owner}: {dumps(one.default)} not a "
                    f"{write(one.type)}"
                )
        self._unchecked.clear()
        return parsed

    def _type(self, value: Any, namespace: str) -> AvroType:
        if isinstance(value, str):
            return self._by_name(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace)
        if not isinstance(value, dict):
            raise InvalidSchema(f"Schema not yet supported or not a schema: {dumps(value)}")
        type_name = value.get("type")
        if isinstance(type_name, dict | list):
            return self._type(type_name, namespace)
        if not isinstance(type_name, str):
            raise InvalidSchema(f"No type: {dumps(value)}")
        if type_name in PRIMITIVES:
            return AvroType(type_name, properties=_properties(value))
        if type_name in NAMED:
            return self._named(type_name, value, namespace)
        if type_name in ("array", "map"):
            inside = "items" if type_name == "array" else "values"
            if inside not in value:
                raise InvalidSchema(f"{type_name.capitalize()} has no {inside} type: {dumps(value)}")
            return AvroType(
                type_name, child=self._type(value[inside], namespace), properties=_properties(value)
            )
        return self._by_name(type_name, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for candidate in _candidates(name, namespace):
            if candidate in self.names:
                return self.names[candidate]
        raise InvalidSchema(f"Undefined schema: {_candidates(name, namespace)[0]}")

    def _union(self, value: list[Any], namespace: str) -> AvroType:
        union = AvroType("union")
        seen = set()
        for item in value:
            branch = self._type(item, namespace)
            if branch.type == "union":
                raise InvalidSchema(f"Nested union: {dumps(value)}")
            if branch.full_name in seen:
                raise InvalidSchema(f"Duplicate in union: {branch.full_name}")
            seen.add(branch.full_name)
            union.branches.append(branch)
        return union

    def _named(self, type_name: str, value: dict[str, Any], enclosing: str) -> AvroType:
        name, namespace = self._full_name(value, enclosing)
        made = AvroType(
            "record" if type_name == "error" else type_name, name, namespace, is_error=type_name == "error"
        )
        made.doc = value["doc"] if isinstance(value.get("doc"), str) else None
        made.aliases = [_qualify(alias, namespace) for alias in _texts(value, "aliases")]
        if made.full_name in self.names:
            raise InvalidSchema(f"Can't redefine: {made.full_name}")
        self.names[made.full_name] = made
        if made.type == "record":
            self._fields(made, value)
        elif type_name == "enum":
            self._symbols(made, value)
        else:
            size = value.get("size")
            if isinstance(size, bool) or not isinstance(size, int):
                raise InvalidSchema(f"Invalid or no size: {dumps(value)}")
            if size < 0:
                raise InvalidSchema(f"Malformed data. Length is negative: {size}")
            made.size = size
        made.properties = _properties(value, {"default"} if type_name == "enum" else set())
        return made

    def _full_name(self, value: dict[str, Any], enclosing: str) -> tuple[str, str]:
        name = value.get("name")
        if not isinstance(name, str):
            raise InvalidSchema(f"No name in schema: {dumps(value)}")
        space = value.get("namespace")
        if "." in name:
            namespace, _, name = name.rpartition(".")
        else:
            namespace = space if isinstance(space, str) else enclosing
        checked = [*filter(None, namespace.split("."))] if self.check_namespaces else []
        if self.check_names:
            checked.append(name)
        for part in checked:
            if not NAME.match(part):
                raise InvalidSchema(f"Illegal character in name: {part}" if part else "Empty name")
        if not namespace and name in PRIMITIVES:
            raise InvalidSchema(f"Schemas may not be named after primitives: {name}")
        return name, namespace

    def _fields(self, record: AvroType, value: dict[str, Any]) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"Record has no fields: {dumps(value)}")
        seen = set()
        for item in fields:
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                raise InvalidSchema(f"No field name: {dumps(item)}")
            name = item["name"]
            if self.check_names and not NAME.match(name):
                raise InvalidSchema(f"Illegal character in name: {name}" if name else "Empty name")
            if name in seen:
                raise InvalidSchema(f"Duplicate field {name} in record {record.full_name}")
            seen.add(name)
            if "type" not in item:
                raise InvalidSchema(f"No field type: {dumps(item)}")
            field_type = self._type(item["type"], record.namespace)
            made = AvroField(name, field_type, item["doc"] if isinstance(item.get("doc"), str) else None)
            if "order" in item:
                order = str(item["order"]).lower()
                if order not in ORDERS:
                    raise InvalidSchema(f"Invalid order of field {name}: {item['order']}")
                made.order = order
            if "default" in item:
                made.default = item["default"]
                if self._check_defaults:
                    self._unchecked.append((made, record.full_name))
            made.aliases = _texts(item, "aliases")
            made.properties = {key: entry for key, entry in item.items() if key not in FIELD_WORDS}
            record.fields.append(made)

    def _symbols(self, enum: AvroType, value: dict[str, Any]) -> None:
        symbols = value.get("symbols")
        if not isinstance(symbols, list):
            raise InvalidSchema(f"Enum has no symbols: {dumps(value)}")
        for symbol in symbols:
            if not isinstance(symbol, str) or (self.check_names and not NAME.match(symbol)):
                raise InvalidSchema(f"Illegal character in symbol: {symbol}")
            if symbol in enum.symbols:
                raise InvalidSchema(f"Duplicate enum symbol: {symbol}")
            enum.symbols.append(symbol)
        default = value.get("default")
        if isinstance(default, str):
            if default not in enum.symbols:
                raise InvalidSchema(
                    f"The Enum Default: {default} is not in the enum symbol set: {enum.symbols}"
                )
            enum.default = default


def _candidates(name: str, namespace: str) -> list[str]:
    if "." in name or not namespace:
        return [name]
    return [f"{namespace}.{name}", name]


def _qualify(alias: str, namespace: str) -> str:
    return alias if "." in alias or not namespace else f"{namespace}.{alias}"


def _texts(value: dict[str, Any], key: str) -> list[str]:
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise InvalidSchema(f"{key} not an array of strings: {dumps(value)}")
    return list(dict.fromkeys(found))


def _properties(value: dict[str, Any], more: set[str] | frozenset[str] = frozenset()) -> dict[str, Any]:
    return {key: entry for key, entry in value.items() if key not in SCHEMA_WORDS and key not in more}


def fits(avro_type: AvroType, default: Any) -> bool:
    """Whether a field of this type may have this default."""
    match avro_type.type:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int":
            return type(default) is int and -(2**31) <= default < 2**31
        case "long":
            return type(default) is int and -(2**63) <= default < 2**63
        case "float" | "double":
            return isinstance(default, int | float) and not isinstance(default, bool)
        case "string" | "bytes" | "enum" | "fixed":
            return isinstance(default, str)
        case "array":
            return isinstance(default, list) and all(fits(avro_type.inner, item) for item in default)
        case "map":
            return isinstance(default, dict) and all(fits(avro_type.inner, item) for item in default.values())
        case "union":
            return any(fits(branch, default) for branch in avro_type.branches)
    return isinstance(default, dict) and all(
        fits(one.type, default.get(one.name, one.default))
        if one.name in default or one.has_default
        else False
        for one in avro_type.fields
    )


def write(avro_type: AvroType, known: set[str] | None = None) -> str:
    """The text of a type; types named in `known` are defined elsewhere and only named."""
    return dumps(as_json(avro_type, set(known or ()), ""))


def as_json(avro_type: AvroType, known: set[str], namespace: str) -> Any:
    if avro_type.type in PRIMITIVES:
        return {"type": avro_type.type, **avro_type.properties} if avro_type.properties else avro_type.type
    if avro_type.type == "union":
        return [as_json(branch, known, namespace) for branch in avro_type.branches]
    if avro_type.type in ("array", "map"):
        inside = "items" if avro_type.type == "array" else "values"
        return {
            "type": avro_type.type,
            inside: as_json(avro_type.inner, known, namespace),
            **avro_type.properties,
        }
    if avro_type.full_name in known:
        if avro_type.namespace == namespace and avro_type.name not in PRIMITIVES:
            return avro_type.name
        return avro_type.full_name
    known.add(avro_type.full_name)
    out: dict[str, Any] = {"type": "error" if avro_type.is_error else avro_type.type, "name": avro_type.name}
    if avro_type.namespace != namespace:
        out["namespace"] = avro_type.namespace
    if avro_type.doc is not None:
        out["doc"] = avro_type.doc
    if avro_type.type == "record":
        out["fields"] = [_field_json(one, known, avro_type.namespace) for one in avro_type.fields]
    elif avro_type.type == "enum":
        out["symbols"] = avro_type.symbols
        if avro_type.default is not None:
            out["default"] = avro_type.default
    else:
        out["size"] = avro_type.size
    out.update(avro_type.properties)
    if avro_type.aliases:
        out["aliases"] = [_relative(alias, avro_type.namespace) for alias in avro_type.aliases]
    return out


def _field_json(one: AvroField, known: set[str], namespace: str) -> dict[str, Any]:
    out: dict[str, Any] = {"name": one.name, "type": as_json(one.type, known, namespace)}
    if one.doc is not None:
        out["doc"] = one.doc
    if one.has_default:
        out["default"] = one.default
    if one.order != "ascending":
        out["order"] = one.order
    if one.aliases:
        out["aliases"] = one.aliases
    out.update(one.properties)
    return out


def _relative(full_name: str, namespace: str) -> str:
    space, _, name = full_name.rpartition(".")
    return name if space == namespace and name not in PRIMITIVES else full_name
