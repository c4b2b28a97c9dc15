"""Between Connect's schemas and JSON Schemas, by the rules of Confluent's JsonSchemaData.

An optional value is `oneOf` null and the type; widths of numbers, maps, versions and parameters are in
`connect.*` properties, the order of fields in `connect.index`. A schema that refers to itself is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.connect.data import logical
from millstream.connect.data.schema import INTEGERS, REQUIRED, Schema, Type
from millstream.connect.errors import DataError
from millstream.schemas.json_text import loads

NAMESPACE = "io.confluent.connect.json"
ENUM, ONE_OF = f"{NAMESPACE}.Enum", f"{NAMESPACE}.OneOf"
_NULL_SYMBOL = "<NULL>"
_NUMBERS = {
    kind.value: kind
    for kind in (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64, Type.BYTES)
}
Default = Callable[[Schema, Any], Any]


@dataclass(frozen=True, slots=True)
class JsonOptions:
    additional_properties: bool = True
    optional_for_nonrequired: bool = False
    numeric_decimals: bool = False
    flatten_singletons: bool = True


def is_union(schema: Schema) -> bool:
    return schema.name == ONE_OF


def has_text_keys(schema: Schema) -> bool:
    key = schema.key_schema
    return key is not None and key.type is Type.STRING and not key.optional


# --- to JSON Schema -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class ToJsonSchema:
    """`default` turns a default into JSON."""

    options: JsonOptions
    default: Default

    def document(self, schema: Schema, index: int | None = None) -> dict[str, Any]:
        at = {} if index is None else {"connect.index": index}
        if is_union(schema):
            branches: list[dict[str, Any]] = [{"type": "null"}] if schema.optional else []
            branches += [
                self.document(one.schema.replace(optional=False), one.index) for one in schema.fields
            ]
            return {"oneOf": branches, **at}
        if schema.optional:
            return {"oneOf": [{"type": "null"}, self.document(schema.replace(optional=False))], **at}
        made = self._base(schema)
        if schema.name is not None:
            made["title"] = schema.name
        if schema.doc is not None:
            made["description"] = schema.doc
        if schema.default is not None:
            made["default"] = self.default(schema, schema.default)
        if schema.version is not None:
            made["connect.version"] = schema.version
        parameters = {
            name: text for name, text in (schema.parameters or {}).items() if not name.startswith(NAMESPACE)
        }
        if parameters:
            made["connect.parameters"] = parameters
        return made | at

    def _base(self, schema: Schema) -> dict[str, Any]:
        kind = schema.type
        if kind in INTEGERS:
            return {"type": "integer", "connect.type": kind.value}
        if kind in (Type.FLOAT32, Type.FLOAT64):
            return {"type": "number", "connect.type": kind.value}
        if kind is Type.BOOLEAN:
            return {"type": "boolean"}
        if kind is Type.STRING:
            prefix = f"{ENUM}."
            parameters = schema.parameters or {}
            if ENUM not in parameters:
                return {"type": "string"}
            symbols = [name.removeprefix(prefix) for name in parameters if name.startswith(prefix)]
            return {"enum": [None if one == _NULL_SYMBOL else one for one in symbols]}
        if kind is Type.BYTES:
            numeric = schema.name == logical.DECIMAL and self.options.numeric_decimals
            return {"type": "number" if numeric else "string", "connect.type": "bytes"}
        if kind is Type.ARRAY:
            assert schema.value_schema is not None
            return {"type": "array", "items": self.document(schema.value_schema)}
        if kind is Type.MAP:
            return self._map(schema)
        made: dict[str, Any] = {
            "type": "object",
            "properties": {one.name: self.document(one.schema, one.index) for one in schema.fields},
        }
        if not self.options.additional_properties:
            made["additionalProperties"] = False
        return made

    def _map(self, schema: Schema) -> dict[str, Any]:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        if has_text_keys(schema):
            return {
                "type": "object",
                "additionalProperties": self.document(schema.value_schema),
                "connect.type": "map",
            }
        entry = {
            "key": self.document(schema.key_schema, 0),
            "value": self.document(schema.value_schema, 1),
        }
        return {
            "type": "array",
            "items": {"type": "object", "properties": entry},
            "connect.type": "map",
        }


# --- from JSON Schema ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class FromJsonSchema:
    """`resolved` has the texts of referenced schemas by name; `default` turns a default into a value."""

    options: JsonOptions
    root: Any
    resolved: Mapping[str, str]
    default: Default
    _open: list[int] = field(default_factory=list)

    def schema(self, version: int | None = None) -> Schema:
        return self._schema(self.root, self.root, optional=False, version=version)

    def _schema(self, node: Any, root: Any, *, optional: bool, version: int | None = None) -> Schema:
        if node is True or node == {}:
            raise DataError("a schema that allows everything has no counterpart in Connect")
        if not isinstance(node, dict):
            raise DataError("Unsupported schema type")
        if isinstance(node.get("$ref"), str):
            target, target_root = self._follow(node["$ref"], root)
            if id(target) in self._open:
                raise DataError(f"the schema {node['$ref']} contains itself; such schemas are not supported")
            self._open.append(id(target))
            found = self._schema(target, target_root, optional=optional, version=version)
            self._open.pop()
            return found
        if isinstance(node.get("type"), list):
            kinds = node["type"]
            rest = {name: value for name, value in node.items() if name != "type"}
            return self._one_of([rest | {"type": one} for one in kinds], {}, root, optional, version)
        for word in ("oneOf", "anyOf"):
            if isinstance(node.get(word), list):
                return self._one_of(node[word], node, root, optional, version)
        if isinstance(node.get("allOf"), list):
            return self._schema(self._merged(node, root), root, optional=optional, version=version)
        kind, attributes = self._attributes(node, root)
        return self._finished(kind, attributes, node, optional, version)

    def _finished(
        self,
        kind: Type,
        attributes: dict[str, Any],
        node: dict[str, Any],
        optional: bool,
        version: int | None,
    ) -> Schema:
        if isinstance(node.get("title"), str):
            attributes.setdefault("name", node["title"])
        if isinstance(node.get("description"), str):
            attributes["doc"] = node["description"]
        own = node.get("connect.version")
        attributes["version"] = own if isinstance(own, int) else version
        if isinstance(node.get("connect.parameters"), dict):
            kept = {name: str(text) for name, text in node["connect.parameters"].items()}
            attributes["parameters"] = attributes.get("parameters", {}) | kept
        attributes["optional"] = optional or attributes.get("optional", False)
        schema = Schema(kind, **attributes)
        if node.get("default") is None:
            return schema
        return schema.replace(default=self.default(schema, node["default"]))

    def _attributes(self, node: dict[str, Any], root: Any) -> tuple[Type, dict[str, Any]]:
        kind, connect = node.get("type"), node.get("connect.type")
        symbols = node.get("enum", [node["const"]] if "const" in node else None)
        if isinstance(symbols, list) and kind in (None, "string"):
            names = [
                _NULL_SYMBOL if one is None else one if isinstance(one, str) else str(one) for one in symbols
            ]
            return Type.STRING, {"parameters": {ENUM: ""} | {f"{ENUM}.{name}": name for name in names}}
        if kind == "boolean":
            return Type.BOOLEAN, {}
        if kind in ("integer", "number"):
            default = Type.INT64 if kind == "integer" else Type.FLOAT64
            return _NUMBERS.get(str(connect), default), {}
        if kind == "string":
            return Type.BYTES if connect == "bytes" else Type.STRING, {}
        if kind == "array":
            items = node.get("items")
            if not isinstance(items, dict):
                raise DataError("Array schema did not specify the items type")
            if connect == "map":
                entry = items.get("properties", {})
                return Type.MAP, {
                    part: self._schema(entry.get(part), root, optional=False) for part in ("key", "value")
                }
            return Type.ARRAY, {"value": self._schema(items, root, optional=False)}
        if kind == "object" or "properties" in node:
            if connect == "map":
                value = self._schema(node.get("additionalProperties"), root, optional=False)
                return Type.MAP, {"key": REQUIRED[Type.STRING], "value": value}
            return Type.STRUCT, {"fields": self._fields(node, root)}
        raise DataError(f"Unsupported schema type {kind}")

    def _fields(self, node: dict[str, Any], root: Any) -> list[tuple[str, Schema]]:
        required = set(node.get("required", ()))
        indexed: dict[int, tuple[str, Any]] = {}
        for name, inner in node.get("properties", {}).items():
            index = inner.get("connect.index") if isinstance(inner, dict) else None
            indexed[index if isinstance(index, int) else len(indexed)] = (name, inner)
        return [
            (
                name,
                self._schema(
                    inner,
                    root,
                    optional=self.options.optional_for_nonrequired and name not in required,
                ),
            )
            for _, (name, inner) in sorted(indexed.items())
        ]

    def _one_of(
        self, branches: list[Any], node: dict[str, Any], root: Any, optional: bool, version: int | None
    ) -> Schema:
        if len(branches) == 1 and self.options.flatten_singletons:
            return self._schema(branches[0], root, optional=False)
        others = [one for one in branches if not (isinstance(one, dict) and one.get("type") == "null")]
        if len(branches) == 2 and len(others) == 1:
            return self._schema(others[0], root, optional=True, version=version)
        fields = [
            (f"{ONE_OF}.field.{index}", self._schema(one, root, optional=True))
            for index, one in enumerate(others)
        ]
        attributes = {"name": ONE_OF, "fields": fields, "optional": len(others) < len(branches)}
        return self._finished(Type.STRUCT, attributes, node, optional, version)

    def _merged(self, node: dict[str, Any], root: Any) -> dict[str, Any]:
        """`allOf`: the properties of all parts in one object; otherwise the part that says most."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        parts = []
        for part in [{name: value for name, value in node.items() if name != "allOf"}, *node["allOf"]]:
            if isinstance(part, dict) and isinstance(part.get("$ref"), str):
                part = self._follow(part["$ref"], root)[0]
            if isinstance(part, dict) and isinstance(part.get("allOf"), list):
                part = self._merged(part, root)
            if not isinstance(part, dict):
                continue
            properties |= part.get("properties", {})
            required += part.get("required", [])
            parts.append(part)
        kept = {name: node[name] for name in ("title", "description", "default") if name in node}
        if properties:
            return {"type": "object", "properties": properties, "required": required} | kept
        for word in ("oneOf", "anyOf"):
            for part in parts:
                if word in part:
                    return part | kept
        merged: dict[str, Any] = {}
        for part in parts:
            merged |= part
        if merged.get("type") in ("integer", "number") or "const" in merged:
            merged = {name: value for name, value in merged.items() if name not in ("enum", "const")}
        return merged

    def _follow(self, reference: str, root: Any) -> tuple[Any, Any]:
        name, _, pointer = reference.partition("#")
        document = root
        if name:
            text = self.resolved.get(name)
            if text is None:
                raise DataError(f"the schema refers to {name}, which it does not list")
            document = loads(text)
        found = document
        for step in filter(None, pointer.split("/")):
            word = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or word not in found:
                raise DataError(f"the schema refers to {reference}, which is not there")
            found = found[word]
        return found, document
