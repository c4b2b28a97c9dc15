"""Protobuf messages as Python values and back.

Numbers are numbers, bytes are bytes, enums are their constants' names (a number that has no name stays a
number), messages are dicts with the fields' names, maps are dicts. A field that knows whether it is set is
left out when it is not. Timestamps are datetimes, durations timedeltas, wrappers the value inside, Struct and
Any what JSON makes of them.
"""

import datetime
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

_WRAPPERS = {
    f"google.protobuf.{type_name}Value"
    for type_name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_AS_JSON = {
    f"google.protobuf.{type_name}" for type_name in ("Struct", "Value", "ListValue", "Any", "FieldMask")
}
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def to_python(message: Any) -> Any:
    type_name = message.DESCRIPTOR.full_name
    if type_name == TIMESTAMP:
        return EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if type_name == DURATION:
        return datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if type_name in _WRAPPERS:
        return message.value
    if type_name in _AS_JSON:
        return json_format.MessageToDict(message)
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            values = getattr(message, field.name)
            if _is_map(field):
                value_field = field.message_type.fields_by_name["value"]
                found[field.name] = {key: _value(value_field, values[key]) for key in values}
            else:
                found[field.name] = [_value(field, one) for one in values]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _value(field, getattr(message, field.name))
    return found


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return to_python(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else value
    return value


def fill(message: Any, value: Any) -> Any:
    """Put a Python value into a message; ValueError or TypeError where it does not fit."""
    type_name = message.DESCRIPTOR.full_name
    if type_name == TIMESTAMP and isinstance(value, datetime.datetime):
        since = value.astimezone(datetime.UTC) - EPOCH
        message.seconds, message.nanos = since.days * 86400 + since.seconds, since.microseconds * 1000
    elif type_name == DURATION and isinstance(value, datetime.timedelta):
        message.FromTimedelta(value)
    elif type_name in _WRAPPERS and not isinstance(value, dict):
        message.value = value
    elif type_name in _AS_JSON or (type_name in (TIMESTAMP, DURATION) and isinstance(value, str)):
        json_format.ParseDict(value, message)
    elif isinstance(value, dict):
        for name, item in value.items():
            _set(message, name, item)
    else:
        raise TypeError(f"{type_name} needs a dict, not {type(value).__name__}")
    return message


def _set(message: Any, name: str, value: Any) -> None:
    descriptor = message.DESCRIPTOR
    field = descriptor.fields_by_name.get(name) or descriptor.fields_by_camelcase_name.get(name)
    if field is None:
        raise ValueError(f"{descriptor.full_name} has no field {name}")
    if value is None:
        return
    target = getattr(message, field.name)
    if field.is_repeated:
        if _is_map(field):
            value_field = field.message_type.fields_by_name["value"]
            for key, item in value.items():
                if value_field.message_type is not None:
                    fill(target[key], item)
                else:
                    target[key] = _scalar(value_field, item)
        else:
            for item in value:
                if field.message_type is not None:
                    fill(target.add(), item)
                else:
                    target.append(_scalar(field, item))
    elif field.message_type is not None:
        target.SetInParent()
        fill(target, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise ValueError(f"{field.enum_type.full_name} has no constant {value}")
        return named.number
    if field.cpp_type in _INTEGERS and isinstance(value, str):
        return int(value)
    return value


_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}
