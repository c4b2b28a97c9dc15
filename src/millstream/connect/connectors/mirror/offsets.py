"""Offsets of the three connectors that a user wants to set, checked in Kafka's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.connect.errors import ConnectError

_LARGEST_PARTITION = 2**31 - 1


def check_offsets(
    offsets: Sequence[Mapping[str, Any]], texts: Sequence[str], *, partition: bool, only_zero: bool
) -> None:
    """ConnectError for what makes no sense. An offset of null is taken for anything: it only deletes."""
    for entry in offsets:
        where, offset = entry.get("partition"), entry.get("offset")
        if offset is None:
            continue
        if where is None:
            raise ConnectError("Source partitions may not be null")
        for name in texts:
            if not isinstance(_required(where, name), str):
                raise _invalid(where, name, "which must be a string")
        if partition:
            number = _required(where, "partition")
            if type(number) is not int or number > _LARGEST_PARTITION:
                raise _invalid(where, "partition", "which must be an integer")
            if number < 0:
                raise _invalid(where, "partition", "which cannot be negative")
        _check_offset(where, offset, only_zero)


def _check_offset(where: Mapping[str, Any], offset: Mapping[str, Any], only_zero: bool) -> None:
    said = f"Source offset {_printed(offset)} for source partition {_printed(where)}"
    if "offset" not in offset:
        raise ConnectError(f"{said} is missing the 'offset' key, which is required")
    value = offset["offset"]
    said += f" has an invalid value {value} for the 'offset' key"
    if type(value) is not int:
        raise ConnectError(f"{said}, which must be an integer")
    if only_zero and value:
        raise ConnectError(f"{said}; the only accepted value is 0")
    if value < 0:
        raise ConnectError(f"{said}, which cannot be negative")


def _required(where: Mapping[str, Any], name: str) -> Any:
    if name not in where:
        raise ConnectError(
            f"Source partition {_printed(where)} is missing the '{name}' key, which is required"
        )
    return where[name]


def _invalid(where: Mapping[str, Any], name: str, what: str) -> ConnectError:
    return ConnectError(
        f"Source partition {_printed(where)} has an invalid value {where[name]} for the '{name}' key, {what}"
    )


def _printed(fields: Mapping[str, Any]) -> str:
    """As Java prints a map."""
    return "{" + ", ".join(f"{name}={value}" for name, value in fields.items()) + "}"
