"""What a converter is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from millstream.connect.config.config_def import ConfigDef
from millstream.connect.data.record import SchemaAndValue
from millstream.connect.data.schema import Schema

Converted: TypeAlias = tuple[Schema | None, Any] | None
"""One of a block: a schema and a value, or None for data that `to_connect` has to look at."""


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
