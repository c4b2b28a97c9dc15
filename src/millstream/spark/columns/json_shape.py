"""The shape that a JSON Schema gives to a column.

Objects with properties are structs, objects of one kind of value are maps, arrays are arrays, integers are
longs, numbers are doubles. What a schema leaves open (no type, several types, a type that contains itself) is
kept as JSON text in a string, so nothing is lost.
"""

import json
from typing import Any

import pyarrow as pa

CONNECT_TYPES = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}
SCALARS = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


class JsonShape:
    """A JSON Schema as an Arrow type, and where in it values are kept as JSON text."""

    def __init__(self, text: str, resolved: dict[str, str] | None = None) -> None:
        self._documents = {name: json.loads(other) for name, other in (resolved or {}).items()}
        self._root = json.loads(text)
        self._ids: dict[str, Any] = {}
        for document in (*self._documents.values(), self._root):
            own = document.get("$id", document.get("id")) if isinstance(document, dict) else None
            if isinstance(own, str):
                self._ids[own] = document
        self.open = False  # whether anything is kept as JSON text
        self.shape = self._shape(self._root, self._root, ())
        self.may_be_null = self._takes_null(self._root, self._root)
        self.type = _arrow(self.shape)

    def _shape(self, schema: Any, document: Any, inside: tuple[int, ...]) -> Any:
        """("struct", {...}, required) | ("map", shape) | ("list", shape) | an Arrow type | "text"."""
        if not isinstance(schema, dict):
            return self._text()
        if id(schema) in inside or len(inside) > 64:
            return self._text()
        inside = (*inside, id(schema))
        if "$ref" in schema:
            target, home = self._followed(schema["$ref"], document)
            return self._shape(target, home, inside) if target is not None else self._text()
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                others = [
                    one
                    for one in schema[keyword]
                    if not (isinstance(one, dict) and one.get("type") == "null")
                ]
                return self._shape(others[0], document, inside) if len(others) == 1 else self._text()
        if "allOf" in schema:
            return self._all_of(schema, document, inside)
        json_type = schema.get("type")
        if isinstance(json_type, list):
            json_types = [one for one in json_type if one != "null"]
            json_type = (
                "number"
                if set(json_types) == {"integer", "number"}
                else json_types[0]
                if len(json_types) == 1
                else None
            )
        if json_type is None and "properties" in schema:
            json_type = "object"
        if (
            json_type is None
            and isinstance(schema.get("enum"), list)
            and all(isinstance(symbol, str) for symbol in schema["enum"])
        ):
            json_type = "string"
        if str(schema.get("connect.type")) in CONNECT_TYPES:
            return CONNECT_TYPES[schema["connect.type"]]
        if json_type in SCALARS:
            return SCALARS[json_type]
        if json_type == "array" and isinstance(schema.get("items"), dict):
            return ("list", self._shape(schema["items"], document, inside))
        if json_type == "object":
            if schema.get("properties"):
                fields = {
                    name: self._shape(one, document, inside) for name, one in schema["properties"].items()
                }
                return ("struct", fields, _required(schema))
            if isinstance(schema.get("additionalProperties"), dict):
                return ("map", self._shape(schema["additionalProperties"], document, inside))
        return self._text()

    def _takes_null(self, schema: Any, document: Any, steps: int = 0) -> bool:
        """Whether the schema allows a null. It does where it says nothing; properties mean an object here
        (see `_shape`)."""
        if not isinstance(schema, dict) or steps > 64:
            return True
        if "$ref" in schema:
            target, home = self._followed(schema["$ref"], document)
            return self._takes_null(target, home, steps + 1)
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                return any(self._takes_null(one, document, steps + 1) for one in schema[keyword])
        json_type = schema.get("type")
        if json_type is None:
            if "properties" in schema or None not in schema.get("enum", (None,)):
                return False
            return all(self._takes_null(one, document, steps + 1) for one in schema.get("allOf", ()))
        return json_type == "null" or (isinstance(json_type, list) and "null" in json_type)

    def _all_of(self, schema: Any, document: Any, inside: tuple[int, ...]) -> Any:
        fields: dict[str, Any] = {}
        required = _required(schema)
        own = {key: value for key, value in schema.items() if key != "allOf"}
        branches = [*schema["allOf"], own] if "properties" in own else list(schema["allOf"])
        shapes = [self._shape(one, document, inside) for one in branches]
        if len(shapes) == 1:
            return shapes[0]
        for shape in shapes:
            if not (isinstance(shape, tuple) and shape[0] == "struct"):
                return self._text()
            fields |= shape[1]
            required |= shape[2]
        return ("struct", fields, required)

    def _text(self) -> str:
        self.open = True
        return "text"

    def _followed(self, reference: str, document: Any) -> tuple[Any, Any]:
        where, _, pointer = reference.partition("#")
        if where:
            document = self._documents.get(where, self._ids.get(where))
        found = document
        for step in filter(None, pointer.split("/")):
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, dict):
                found = found.get(step)
            else:
                return None, None
        return found, document


def _required(schema: Any) -> frozenset[str]:
    names = schema.get("required")
    return (
        frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()
    )


def _arrow(shape: Any) -> pa.DataType:
    if shape == "text":
        return pa.string()
    if isinstance(shape, tuple):
        shape_type, inner = shape[:2]
        if shape_type == "struct":
            return pa.struct([(name, _arrow(one)) for name, one in inner.items()])
        if shape_type == "list":
            return pa.list_(pa.field("element", _arrow(inner)))
        return pa.map_(pa.string(), pa.field("value", _arrow(inner)))
    return shape
