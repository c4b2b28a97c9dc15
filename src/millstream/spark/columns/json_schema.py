"""JSON bodies into Arrow columns and back, by the shape that a JSON Schema gives them (see `json_shape`).

Whole batches go through Arrow's JSON reader; only where that finds a batch not to be as it should are the
bodies taken one by one.
"""

import json
import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from millstream.spark.columns.json_shape import JsonShape
from millstream.spark.columns.outcome import Decoded, by_halves, reason_of

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


class JsonDecoder:
    def __init__(self, reader: JsonShape) -> None:
        self.type = reader.type
        self._shape = reader.shape
        self._may_be_null = reader.may_be_null
        self._open = reader.open
        # Arrow's reader knows neither maps nor text for what is not text.
        plain = not reader.open and pa.types.is_struct(self.type) and not _has_map(self.type)
        self._schema = pa.schema(list(self.type)) if plain and self.type.num_fields else None

    def decode(self, data: np.ndarray[Any, Any], starts: Any, ends: Any) -> Decoded:
        quick = self._at_once(data, starts, ends) if self._schema is not None else None
        return quick if quick is not None else self._one_by_one(data, starts, ends)

    def _at_once(self, data: np.ndarray[Any, Any], starts: Any, ends: Any) -> Decoded | None:
        """All bodies as lines of one text, or None where these could not be told apart again.

        Arrow's reader takes one object after the other and does not care for lines. So every body must begin
        with `{` and end with `}`, and hold no line feed: between `}` and `{` an object can only end, so no
        object reaches over two bodies, and each body has at least one. As many objects as bodies then means
        one in each.
        """
        if not len(starts) or (ends <= starts).any():
            return None
        if (data[starts] != ord("{")).any() or (data[ends - 1] != ord("}")).any():
            return None  # nor does Arrow survive a null in the first line
        view = memoryview(data)  # type: ignore[arg-type]
        lines = b"\n".join(
            [view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        )
        if lines.count(b"\n") != len(starts) - 1 or b"\0" in lines or not _is_utf8(lines):
            return None
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
                body = view[start:end]
                long = self._open and _LONG_NUMBER.search(body) is not None
                value = _exactly(str(body, "utf-8")) if long else orjson.loads(body)
                if value is None and not self._may_be_null:
                    raise ValueError("the value is null, which the schema does not allow")
                rows.append(_shaped(value, self._shape, ""))
            except Exception as error:  # whatever strange bodies make the libraries raise
                rows.append(None)
                bad[row] = reason_of(error)
        return Decoded(by_halves(rows, lambda some: pa.array(some, self.type), self.type, bad), bad)


def _is_utf8(text: bytes) -> bool:
    """Arrow's check of one long string: without making a Python string of it."""
    whole = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(np.array([0, len(text)], np.int64)), pa.py_buffer(text)]
    )
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_map(arrow_type: pa.DataType) -> bool:
    if pa.types.is_map(arrow_type):
        return True
    if pa.types.is_list(arrow_type):
        return _has_map(arrow_type.value_type)
    return pa.types.is_struct(arrow_type) and any(_has_map(field.type) for field in arrow_type)


def _shaped(value: Any, shape: Any, where: str) -> Any:
    if value is None:
        return None
    if shape == "text":
        return _json_text(value, where)
    if not isinstance(shape, tuple):
        return _scalar(value, shape, where)
    shape_type, inner = shape[:2]
    if shape_type == "list":
        if not isinstance(value, list):
            raise ValueError(f"{where or 'the value'} is not an array")
        return [_shaped(item, inner, where) for item in value]
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the value'} is not an object")
    if shape_type == "struct":
        return {name: _shaped(value.get(name), one, name) for name, one in inner.items()}
    return [(key, _shaped(item, inner, where)) for key, item in value.items()]


def _json_text(value: Any, where: str) -> str:
    import orjson

    try:
        return orjson.dumps(value).decode()
    except TypeError:  # numbers of more than 64 bits, and it reads deeper than it writes
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError(f"{where or 'the value'} is nested too deeply") from None


def _exactly(text: str) -> Any:
    """orjson makes doubles of integers that need more than 64 bits. Where JSON text is a value, none of it
    may get lost."""

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise ValueError(f"{number} is not a number that JSON has, or too large for a double")
        return value

    return json.loads(text, parse_constant=finite, parse_float=finite)


def _scalar(value: Any, arrow_type: pa.DataType, where: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_string(arrow_type):
        if isinstance(value, str):
            return value
    elif pa.types.is_boolean(arrow_type):
        if isinstance(value, bool):
            return value
    elif pa.types.is_floating(arrow_type):
        if number:
            return float(value)
    elif number and value == int(value):
        size = arrow_type.bit_width - 1
        if -(1 << size) <= value < 1 << size:
            return int(value)
    raise ValueError(f"{where or 'the value'} is not a {arrow_type}")


def unshaped(value: Any, shape: Any, where: str = "") -> Any:
    """The way back: a value of a column as JSON has it. What is kept as JSON text is what the text says, and
    a null is left out where the schema does not insist on the property."""
    if value is None:
        return None
    if shape == "text":
        try:
            return _exactly(value)
        except ValueError as error:
            raise ValueError(f"{where or 'the value'} is not JSON text: {error}") from None
    if not isinstance(shape, tuple):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{where or 'the value'} is {value}, which JSON does not have")
        return value
    if shape[0] == "list":
        return [unshaped(item, shape[1], where) for item in value]
    if shape[0] == "map":
        return {key: unshaped(item, shape[1], where) for key, item in value.items()}
    _, fields, required = shape
    return {
        name: unshaped(value.get(name), one, name)
        for name, one in fields.items()
        if value.get(name) is not None or name in required
    }
