"""What statements are checked against, besides the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.sql.functions.table import FunctionTable

if TYPE_CHECKING:
    from millstream.serdes.client import SchemaRegistry

DEFAULT_KEY_FORMAT = "ksql.persistence.default.format.key"
DEFAULT_VALUE_FORMAT = "ksql.persistence.default.format.value"
WRAP_SINGLE_VALUES = "ksql.persistence.wrap.single.values"
TOPIC_PREFIX = "ksql.output.topic.name.prefix"


@dataclass(frozen=True)
class Environment:
    """`settings` are ksqlDB's, by name, those of the session in front of the server's. `partitions_of` gives
    the number of partitions of a topic, or None if there is no such topic."""

    functions: FunctionTable
    registry: SchemaRegistry | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    partitions_of: Callable[[str], int | None] = lambda _topic: None

    def setting(self, name: str, default: Any = None) -> Any:
        return self.settings.get(name, default)

    def flag(self, name: str, default: bool) -> bool:
        value = self.settings.get(name, default)
        return value if isinstance(value, bool) else str(value).lower() == "true"
