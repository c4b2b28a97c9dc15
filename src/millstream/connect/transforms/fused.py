"""Several transforms in a row as one generated function.

A chain of transforms makes a record and a struct for each of its steps, and checks every field again at each.
Here the steps are gone through once, for the schemas of a record, with names of variables in the place of
values; what comes out is Python source: take the fields of the struct apart, check them, compute, make one
struct and one record. Taken for HoistField, InsertField, ReplaceField, Cast, ValueToKey, ExtractField and
RegexRouter, without a predicate and of values with a schema.

The steps themselves stay the truth. Where the function meets what it was not made for (a null, a struct of
another schema, a value that does not fit), it says so by `SLOW`, and the steps do it one by one, with their
errors; so do chains that cannot be written as a function. `tests/connect/test_fused.py` holds both to the
same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from millstream.connect.data import logical
from millstream.connect.data.logical import from_millis
from millstream.connect.data.record import Record, SinkRecord, SourceRecord
from millstream.connect.data.schema import INTEGERS, Field, Schema, Type
from millstream.connect.data.struct import Struct, validate_value
from millstream.connect.errors import ConnectError
from millstream.connect.transforms.base import KeyOrValueTransform, Target, Transform
from millstream.connect.transforms.cast import Cast, cast
from millstream.connect.transforms.fields import (
    ExtractField,
    HoistField,
    InsertField,
    ReplaceField,
    ValueToKey,
)
from millstream.connect.transforms.routing import RegexRouter

SLOW: Any = object()
"""What a function returns for a record that the steps have to do."""
FUSABLE = (Cast, ExtractField, HoistField, InsertField, RegexRouter, ReplaceField, ValueToKey)
_KEPT = 16
_NESTED = (Type.ARRAY, Type.MAP, Type.STRUCT)
_CLASSES = {
    Type.FLOAT32: "float",
    Type.FLOAT64: "float",
    Type.BOOLEAN: "bool",
    Type.STRING: "str",
    Type.BYTES: "bytes",
}
_FIELDS = {
    SourceRecord: ("source_partition", "source_offset"),
    SinkRecord: (
        "offset",
        "timestamp_type",
        "original_topic",
        "original_partition",
        "original_offset",
        "wire",
    ),
}

Function = Callable[[Any], Any]


class NotFusable(Exception):
    """These steps, with these schemas, stay steps."""


class FusedSteps:
    """Some transforms in a row. Functions are made for the schemas that come."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self._transforms = transforms
        self._functions: dict[tuple[Any, ...], Function | None] = {}
        # Of the record before, whose schemas are nearly always the very same objects.
        self._last: tuple[Any, Any, Any, Function | None] = (None, None, None, None)

    def apply(self, record: Any) -> Any:
        made_of, key, value, function = self._last
        if type(record) is not made_of or record.key_schema is not key or record.value_schema is not value:
            function = self._function(type(record), record.key_schema, record.value_schema)
        if function is not None:
            try:
                done = function(record)
            except Exception:
                done = SLOW
            if done is not SLOW:
                return done
        for transform in self._transforms:
            record = transform.apply(record)
            if record is None:
                return None
        return record

    def _function(self, record_class: type, key: Schema | None, value: Schema | None) -> Function | None:
        try:
            found = self._functions[record_class, key, value]
        except KeyError:
            found = self._make(record_class, key, value)
        self._last = (record_class, key, value, found)
        return found

    def _make(self, record_class: type, key: Schema | None, value: Schema | None) -> Function | None:
        if len(self._functions) >= _KEPT:
            self._functions.clear()
        try:
            made = FusedSource(record_class, key, value).function(self._transforms)
        except (NotFusable, ConnectError, ValueError):
            made = None
        self._functions[record_class, key, value] = made
        return made


class Shape:
    """A key or value while the function is written: `whole` is an expression, or `fields` has one for each
    field of the struct."""

    def __init__(self, schema: Schema | None, whole: str = "", fields: list[str] | None = None) -> None:
        self.schema, self.whole, self.fields = schema, whole, fields


class FusedSource:
    """The text of a function, as it grows: `lines` of a body that has `record`, and the objects that they
    name."""

    def __init__(self, record_class: type, key: Schema | None, value: Schema | None) -> None:
        if record_class not in _FIELDS:
            raise NotFusable
        self._class = record_class
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {
            "made": record_class,
            "create": object.__new__,
            "Struct": Struct,
            "SLOW": SLOW,
            "validate": validate_value,
            "cast": cast,
            "from_millis": from_millis,
            "Decimal": Decimal,
            "datetime": datetime,
        }
        self.constants: dict[str, Any] = {}
        self.shapes: dict[Target, Shape] = {
            "key": Shape(key, "record.key"),
            "value": Shape(value, "record.value"),
        }
        self.topic = "record.topic"
        self._count = 0

    def take(self, transforms: Sequence[Transform]) -> None:
        for transform in transforms:
            self._step(transform)

    def function(self, transforms: Sequence[Transform]) -> Function:
        self.take(transforms)
        arguments = {
            "topic": self.topic,
            "partition": "record.partition",
            "timestamp": "record.timestamp",
            "headers": "record.headers",
        }
        for target, shape in self.shapes.items():
            arguments[f"{target}_schema"] = self.object(shape.schema)
            arguments[target] = self._struct(shape)
        arguments |= {name: f"record.{name}" for name in _FIELDS[self._class]}
        # Field by field: the constructor takes longer to sort its arguments.
        self.lines.append("new = create(made)")
        self.lines += [f"new.{name} = {text}" for name, text in arguments.items()]
        body = "".join(f"    {line}\n" for line in [*self.lines, "return new"])
        space = dict(self.objects)
        exec(compile(f"def fused(record):\n{body}", "<fused transforms>", "exec"), space)  # noqa: S102
        found: Function = space["fused"]
        return found

    # --- pieces of source -----------------------------------------------------------------------------------

    def _name(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def object(self, thing: Any) -> str:
        """The name under which the function knows an object."""
        if thing is None:
            return "None"
        for name, known in self.objects.items():
            if known is thing:
                return name
        name = self._name("o")
        self.objects[name] = thing
        return name

    def _constant(self, value: Any) -> str:
        name = self._name("c")
        self.objects[name] = self.constants[name] = value
        return name

    def variable(self, expression: str) -> str:
        name = self._name()
        self.lines.append(f"{name} = {expression}")
        return name

    def _struct(self, shape: Shape) -> str:
        if shape.fields is None:
            return shape.whole
        # Without the constructor, which looks again whether the schema is one of structs.
        struct = self.variable("create(Struct)")
        self.lines.append(f"{struct}.schema = {self.object(shape.schema)}")
        self.lines.append(f"{struct}.values = [{', '.join(shape.fields)}]")
        return struct

    def _check(self, schema: Schema, name: str) -> None:
        """What a struct checks of a field that is put into it."""
        if schema.type in _NESTED:
            self.lines.append(f"validate({self.object(schema)}, {name})")
            return
        if schema.name in logical.LOGICAL_NAMES:
            kind = "Decimal" if schema.name == logical.DECIMAL else "datetime"
            fits = f"isinstance({name}, {kind})"
        elif schema.type in INTEGERS:
            limit = 1 << (INTEGERS[schema.type] - 1)
            fits = f"type({name}) is int and {-limit} <= {name} < {limit}"
        else:
            fits = f"isinstance({name}, {_CLASSES[schema.type]})"
        null = f"{name} is None or " if schema.optional else ""
        self.lines.append(f"if not ({null}{fits}): return SLOW")

    def fields(self, target: Target, *, check: bool = True) -> tuple[Schema, list[str]]:
        """The fields of a struct, each in a variable, checked unless whoever reads them does that."""
        shape = self.shapes[target]
        schema = shape.schema
        if schema is None or schema.type is not Type.STRUCT:
            raise NotFusable
        if shape.fields is None:
            struct, known = self.variable(shape.whole), self.object(schema)
            self.lines.append(f"if type({struct}) is not Struct: return SLOW")
            self.lines.append(
                f"if {struct}.schema is not {known} and {struct}.schema != {known}: return SLOW"
            )
            names = [self._name() for _ in schema.fields]
            if names:
                self.lines.append(f"{', '.join(names)}, = {struct}.values")
            for field, name in zip(schema.fields, names, strict=True):
                if check:
                    self._check(field.schema, name)
            self.shapes[target] = Shape(schema, fields=names)
            return schema, names
        return schema, shape.fields

    def _read(self, field: Field, names: list[str], with_default: bool) -> str:
        name = names[field.index]
        if field.schema.default is None or not with_default:
            return name
        if name in self.constants:
            return name if self.constants[name] is not None else self._constant(field.schema.default)
        default = self.object(field.schema.default)
        return self.variable(f"{default} if {name} is None else {name}")

    # --- steps ----------------------------------------------------------------------------------------------

    def _step(self, transform: Transform) -> None:
        if isinstance(transform, RegexRouter):
            self._route(transform)
        elif isinstance(transform, ValueToKey):
            self._value_to_key(transform)
        elif isinstance(transform, KeyOrValueTransform):
            if isinstance(transform, HoistField):
                self._hoist(transform)
            elif isinstance(transform, InsertField):
                self._insert(transform)
            elif isinstance(transform, ReplaceField):
                self._replace(transform)
            elif isinstance(transform, Cast):
                self._cast(transform)
            elif isinstance(transform, ExtractField):
                self._extract(transform)
            else:
                raise NotFusable
        else:
            raise NotFusable

    def _route(self, transform: RegexRouter) -> None:
        routed = lru_cache(maxsize=1000)(lambda topic: transform.apply(Record(topic=topic)).topic)
        self.topic = self.variable(f"{self.object(routed)}({self.topic})")

    def _hoist(self, transform: HoistField) -> None:
        shape = self.shapes[transform.target]
        if shape.schema is None or shape.fields is not None:
            raise NotFusable
        name = self.variable(shape.whole)
        self._check(shape.schema, name)
        self.shapes[transform.target] = Shape(transform.updated_schema(shape.schema), fields=[name])

    def _insert(self, transform: InsertField) -> None:
        schema, names = self.fields(transform.target)
        kept = [self._read(field, names, transform.with_default) for field in schema.fields]
        kept += self._inserted(transform)
        self.shapes[transform.target] = Shape(transform.updated_schema(schema), fields=kept)

    def _inserted(self, transform: InsertField) -> list[str]:
        """In the order of the fields in the schema."""
        found = []
        insertion = transform.insertions
        if insertion["topic"] is not None:
            found.append(self.topic)
        if insertion["partition"] is not None:
            partition = self.variable("record.partition")
            null = f"{partition} is not None and " if insertion["partition"].optional else ""
            self.lines.append(f"if {null}type({partition}) is not int: return SLOW")
            found.append(partition)
        if insertion["offset"] is not None:
            if self._class is not SinkRecord:
                raise NotFusable
            found.append("record.offset")
        if insertion["timestamp"] is not None:
            stamp = self.variable("record.timestamp")
            self.lines.append(f"if type({stamp}) is not int: return SLOW")
            found.append(self.variable(f"from_millis({stamp})"))
        if insertion["static"] is not None:
            found.append(self._constant(transform.settings["static.value"]))
        return found

    def _replace(self, transform: ReplaceField) -> None:
        schema, names = self.fields(transform.target)
        updated = transform.updated_schema(schema)
        kept = []
        for field in updated.fields:
            original = schema.field(transform.original(field.name))
            if original is None or original.schema != field.schema:
                raise NotFusable  # names that are exchanged: an error, or a check that the steps make
            kept.append(self._read(original, names, transform.with_default))
        self.shapes[transform.target] = Shape(updated, fields=kept)

    def _cast(self, transform: Cast) -> None:
        if transform.whole is not None:
            raise NotFusable
        schema, names = self.fields(transform.target)
        updated = transform.updated_schema(schema)
        changed = []
        for field in schema.fields:
            name = self._read(field, names, transform.with_default)
            kind = transform.casts.get(field.name)
            changed.append(name if kind is None else self._as(field.schema, name, kind))
        self.shapes[transform.target] = Shape(updated, fields=changed)

    def _as(self, schema: Schema, name: str, kind: Type) -> str:
        if name in self.constants:
            return self._constant(cast(schema, self.constants[name], kind))
        before, after = INTEGERS.get(schema.type), INTEGERS.get(kind)
        if schema.name is None and before is not None and after is not None and before <= after:
            return name
        return self.variable(f"cast({self.object(schema)}, {name}, {self.object(kind)})")

    def _value_to_key(self, transform: ValueToKey) -> None:
        schema, names = self.fields("value")
        key = transform.key_schema(schema)
        if len(key.fields) != len(transform.settings["fields"]):
            raise NotFusable
        found = []
        for field in key.fields:
            own = schema.field(field.name)
            assert own is not None
            found.append(self._read(own, names, transform.with_default))
        self.shapes["key"] = Shape(key, fields=found)

    def _extract(self, transform: ExtractField) -> None:
        if len(transform.path.steps) != 1:
            raise NotFusable
        schema, names = self.fields(transform.target)
        field = transform.path.field_of(schema)
        if field is None:
            raise NotFusable
        name = self._read(field, names, transform.with_default)
        self.shapes[transform.target] = Shape(field.schema, whole=name)
