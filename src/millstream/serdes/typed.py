"""The base of classes that `millstream registry codegen` makes: dataclasses that turn into plain values and
back."""

import dataclasses
import enum
import types
import typing
from typing import Any, ClassVar, Self


class Record:
    """A dataclass with its schema. SCHEMA is the text, SCHEMA_TYPE its language, NAMES the fields' names
    where Python does not allow them."""

    SCHEMA: ClassVar[str] = ""
    SCHEMA_TYPE: ClassVar[str] = "AVRO"
    NAMES: ClassVar[dict[str, str]] = {}

    def to_dict(self) -> dict[str, Any]:
        """What an Encoder takes. A field that is None is kept for Avro and left out elsewhere."""
        found = {}
        for name, _ in _fields(type(self)):
            value = _plain(getattr(self, name))
            if value is not None or self.SCHEMA_TYPE == "AVRO":
                found[self.NAMES.get(name, name)] = value
        return found

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Of what a Decoder gives. Fields that the class does not know are left out."""
        found = {}
        for name, annotation in _fields(cls):
            given = cls.NAMES.get(name, name)
            if given in value:
                found[name] = _typed(annotation, value[given])
        return cls(**found)


_known: dict[type, tuple[tuple[str, Any], ...]] = {}


def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    found = _known.get(cls)
    if found is None:
        hints = typing.get_type_hints(cls)
        found = tuple((field.name, hints[field.name]) for field in dataclasses.fields(cls))
        _known[cls] = found
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _typed(annotation: Any, value: Any) -> Any:
    """A plain value as what the annotation says, as far as the annotation says something."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _one_of(inside, value)
    if origin is list and isinstance(value, list | tuple):
        return [_typed(inside[0], item) for item in value]
    if origin is dict and isinstance(value, dict):
        return {key: _typed(inside[1], item) for key, item in value.items()}
    if isinstance(annotation, type):
        if issubclass(annotation, Record) and isinstance(value, dict):
            return annotation.from_dict(value)
        if issubclass(annotation, enum.Enum):
            return annotation(value)
    return value


def _one_of(annotations: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, dict):
        records = [
            annotation
            for annotation in annotations
            if isinstance(annotation, type) and issubclass(annotation, Record)
        ]
        fitting = [
            annotation
            for annotation in records
            if value.keys() <= {annotation.NAMES.get(name, name) for name, _ in _fields(annotation)}
        ]
        if fitting or records:
            return (fitting or records)[0].from_dict(value)
    if isinstance(value, str):
        for annotation in annotations:
            if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
                try:
                    return annotation(value)
                except ValueError:
                    continue
    for annotation in annotations:
        if typing.get_origin(annotation) in (list, dict) and isinstance(value, typing.get_origin(annotation)):
            return _typed(annotation, value)
    return value
