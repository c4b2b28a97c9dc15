"""What a converter is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from millstream.connect.config.config_def import REQUIRED, ConfigDef, ConfigKey, ValidString
from millstream.connect.data.record import SchemaAndValue
from millstream.connect.data.schema import Schema
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

CONVERTER_TYPE = ConfigKey(
    "converter.type",
    Type.STRING,
    REQUIRED,
    Importance.LOW,
    "What is converted. Connect sets it.",
    ValidString(("key", "value", "header")),
)
Converted: TypeAlias = tuple[Schema | None, Any] | None
"""One of a block: a schema and a value, or None for data that `to_connect` has to look at."""


class Variables(NamedTuple):
    """A value inside of a generated function: of a struct the `fields`, else the `whole`, each a variable or
    the name of one of the `constants`."""

    whole: str
    fields: Sequence[str] | None
    constants: Mapping[str, Any]


class Writing(NamedTuple):
    """Source that writes such a value: `conditions` under which it can (else `from_connect` has to look), an
    expression of its bytes, and the objects that both name."""

    conditions: Sequence[str]
    expression: str
    objects: Mapping[str, Any]


class Converter(ABC):
    """Made for the keys, for the values or for the headers of one connector."""

    config: ClassVar[ConfigDef] = ConfigDef()

    def __init__(self, settings: Mapping[str, Any], *, is_key: bool = False) -> None:
        self.settings = self.config.parse(settings)
        self.is_key = is_key

    @abstractmethod
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None: ...

    @abstractmethod
    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue: ...

    def writing(self, schema: Schema | None, variables: Variables) -> Writing | None:
        """What `from_connect` does, for a loop that is generated for values of one schema. None: it cannot be
        written so, or not by this converter."""
        return None

    def to_connect_many(self, topic: str, many: Sequence[bytes | None]) -> list[Converted]:
        """What `to_connect` makes of each, up to the first that it refuses: whoever asks for that one alone
        learns why. It may have waited for a server, so the others wait until that is known."""
        found: list[Converted] = []
        for data in many:
            try:
                found.append(self.to_connect(topic, data))
            except Exception:
                return found + [None] * (len(many) - len(found))
        return found

    def from_connect_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return self.from_connect(topic, schema, value)

    def to_connect_header(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        return self.to_connect(topic, data)

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """The connector stops."""
