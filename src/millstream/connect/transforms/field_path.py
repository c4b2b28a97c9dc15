"""Where a field is: by its name, or by a path into nested structs (KIP-821: `field.syntax.version=V2`).

In a path dots separate names. A name with dots stands between backticks, and a backtick that would end such
a name has a backslash before it.
"""

from __future__ import annotations

from typing import Any

from millstream.connect.config.config_def import CaseInsensitiveValidString, ConfigError, ConfigKey
from millstream.connect.data.schema import Field, Schema
from millstream.connect.data.struct import Struct
from millstream.connect.transforms.base import require_map, require_struct
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

FIELD_SYNTAX_VERSION = ConfigKey(
    "field.syntax.version",
    SettingType.STRING,
    "V1",
    Importance.HIGH,
    "V1: a field is named by its name. V2: by a path of names with dots between them; a name that has dots "
    "itself stands between backticks.",
    CaseInsensitiveValidString(("V1", "V2")),
)
_NESTED = "nested field access"


class FieldPath:
    def __init__(self, text: str, version: str) -> None:
        self.steps = _steps(text) if version.upper() == "V2" else [text]

    def field_of(self, schema: Schema) -> Field | None:
        for step in self.steps[:-1]:
            field = schema.field(step)
            if field is None:
                return None
            schema = field.schema
        return schema.field(self.steps[-1])

    def value_of_struct(self, struct: Struct, with_default: bool) -> Any:
        for step in self.steps[:-1]:
            if struct.schema.field(step) is None:
                return None
            inner = struct.get(step)
            if inner is None:
                return None
            struct = require_struct(inner, _NESTED)
        field = struct.schema.field(self.steps[-1])
        return None if field is None else struct.read(field, with_default)

    def value_of_map(self, value: dict[str, Any]) -> Any:
        for step in self.steps[:-1]:
            inner = value.get(step)
            if inner is None:
                return None
            value = require_map(inner, _NESTED)
        return value.get(self.steps[-1])


def _steps(path: str) -> list[str]:
    if not path:
        raise ConfigError("A path of fields is empty")
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] == "`":
            step, at = _quoted(path, at)
        else:
            dot = path.find(".", at)
            end = len(path) if dot < 0 else dot
            step, at = path[at:end], end + 1
        steps.append(step)
    if path.endswith("."):
        steps.append("")
    return steps


def _quoted(path: str, start: int) -> tuple[str, int]:
    """A name between backticks and where the next one begins. A backtick ends the name only before a dot, or
    at the end of the path."""
    name, at, begin = "", start + 1, start + 1
    while True:
        at = path.find("`", at)
        escaped = at > 0 and path[at - 1] == "\\"
        last = at == len(path) - 1
        if at < 0 or (last and escaped):
            raise ConfigError(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at "
                f"position {start} to escape it"
            )
        if last:
            return name + path[begin:at], at + 1
        if path[at + 1] != ".":
            at += 1
        elif escaped:
            name += path[begin : at - 1] + "`"
            at += 1
            begin = at
        else:
            return name + path[begin:at], at + 2
