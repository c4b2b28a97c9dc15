"""JSON bodies into Arrow columns, by the shape that a JSON Schema gives them.

Objects with properties are structs, objects of one kind of value are maps, arrays are arrays, integers are longs, numbers are
doubles. What a schema leaves open (no type, several types, a type that contains itself) is kept as JSON text in a
string, so nothing is lost. Whole batches go through Arrow's JSON reader; only where that finds a batch not to be as it
should are the bodies taken one by one.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from millstream.pipeline.columns.outcome import Decoded

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
        self.type = _arrow(self.shape)

    def _shape(self, schema: Any, document: Any, inside: tuple[int, ...]) -> Any:
        """("struct", {...}) | ("map", shape) | ("list", shape) | an Arrow type | "text"."""
        if not isinstance(schema, dict):
            return self._text()
        if id(schema) in inside or len(inside) > 64:
            return self._text()
        inside = (*inside, id(schema))
        if "$ref" in schema:
            target, home = self._followed(schema["$ref"], document)
            return self._shape(target, home, inside) if target is not None else self._text()
        for word in ("oneOf", "anyOf"):
            if word in schema:
                others = [
                    one for one in schema[word] if not (isinstance(one, dict) and one.get("type") == "null")
                ]
                return self._shape(others[0], document, inside) if len(others) == 1 else self._text()
        if "allOf" in schema:
            return self._all_of(schema, document, inside)
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [one for one in kind if one != "null"]
            kind = "number" if set(kinds) == {"integer", "number"} else kinds[0] if len(kinds) == 1 else None
        if kind is None and "properties" in schema:
            kind = "object"
        if (
            kind is None
            and isinstance(schema.get("enum"), list)
            and all(isinstance(e, str) for e in schema["enum"])
        ):
            kind = "string"
        if schema.get("connect.type") in CONNECT_TYPES:
            return CONNECT_TYPES[schema["connect.type"]]
        if kind in SCALARS:
            return SCALARS[kind]
        if kind == "array" and isinstance(schema.get("items"), dict):
            return ("list", self._shape(schema["items"], document, inside))
        if kind == "object":
            if schema.get("properties"):
                fields = {
                    name: self._shape(one, document, inside) for name, one in schema["properties"].items()
                }
                return ("struct", fields)
            if isinstance(schema.get("additionalProperties"), dict):
                return ("map", self._shape(schema["additionalProperties"], document, inside))
        return self._text()

    def _all_of(self, schema: Any, document: Any, inside: tuple[int, ...]) -> Any:
        fields: dict[str, Any] = {}
        own = {key: value for key, value in schema.items() if key != "allOf"}
        parts = [*schema["allOf"], own] if "properties" in own else list(schema["allOf"])
        shapes = [self._shape(part, document, inside) for part in parts]
        if len(shapes) == 1:
            return shapes[0]
        for shape in shapes:
            if not (isinstance(shape, tuple) and shape[0] == "struct"):
                return self._text()
            fields |= shape[1]
        return ("struct", fields)

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


def _arrow(shape: Any) -> pa.DataType:
    if shape == "text":
        return pa.string()
    if isinstance(shape, tuple):
        kind, inner = shape
        if kind == "struct":
            return pa.struct([(name, _arrow(one)) for name, one in inner.items()])
        if kind == "list":
            return pa.list_(pa.field("element", _arrow(inner)))
        return pa.map_(pa.string(), pa.field("value", _arrow(inner)))
    return shape


class JsonDecoder:
    def __init__(self, reader: JsonShape) -> None:
        self.type = reader.type
        self._shape = reader.shape
        # Arrow's reader knows neither maps nor text for what is not text.
        plain = not reader.open and pa.types.is_struct(self.type) and not _has_map(self.type)
        self._schema = pa.schema(list(self.type)) if plain and self.type.num_fields else None

    def decode(self, data: np.ndarray[Any, Any], starts: Any, ends: Any) -> Decoded:
        quick = self._at_once(data, starts, ends) if self._schema is not None else None
        return quick if quick is not None else self._one_by_one(data, starts, ends)

    def _at_once(self, data: np.ndarray[Any, Any], starts: Any, ends: Any) -> Decoded | None:
        view = memoryview(data)  # type: ignore[arg-type]
        lines = b"\n".join(
            [view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        )
        if lines.count(b"\n") != len(starts) - 1:
            return None  # a body of several lines, or of none
        try:
            table = arrow_json.read_json(
                pa.BufferReader(lines),
                read_options=arrow_json.ReadOptions(
                    use_threads=False, block_size=max(len(lines) + 1, 1 << 16)
                ),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(starts):
            return None
        columns = [
            column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns
        ]
        return Decoded(pa.StructArray.from_arrays(columns, fields=list(self.type)), {})

    def _one_by_one(self, data: np.ndarray[Any, Any], starts: Any, ends: Any) -> Decoded:
        import orjson

        view = memoryview(data)  # type: ignore[arg-type]
        rows: list[Any] = []
        bad: dict[int, str] = {}
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            try:
                rows.append(_shaped(orjson.loads(view[start:end]), self._shape, ""))
            except ValueError as error:
                rows.append(None)
                bad[row] = str(error)
        return Decoded(pa.array(rows, self.type), bad)


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    if pa.types.is_list(kind):
        return _has_map(kind.value_type)
    return pa.types.is_struct(kind) and any(_has_map(field.type) for field in kind)


def _shaped(value: Any, shape: Any, where: str) -> Any:
    if value is None:
        return None
    if shape == "text":
        import orjson

        return orjson.dumps(value).decode()
    if not isinstance(shape, tuple):
        return _scalar(value, shape, where)
    kind, inner = shape
    if kind == "list":
        if not isinstance(value, list):
            raise ValueError(f"{where or 'the value'} is not an array")
        return [_shaped(item, inner, where) for item in value]
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the value'} is not an object")
    if kind == "struct":
        return {name: _shaped(value.get(name), one, name) for name, one in inner.items()}
    return [(key, _shaped(item, inner, where)) for key, item in value.items()]


def _scalar(value: Any, kind: pa.DataType, where: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_string(kind):
        if isinstance(value, str):
            return value
    elif pa.types.is_boolean(kind):
        if isinstance(value, bool):
            return value
    elif pa.types.is_floating(kind):
        if number:
            return float(value)
    elif number and value == int(value):
        size = kind.bit_width - 1
        if -(1 << size) <= value < 1 << size:
            return int(value)
    raise ValueError(f"{where or 'the value'} is not a {kind}")
