"""What is known about one setting: a row of the table, Kafka's `ConfigDef.ConfigKey`.

Defaults are kept as text, exactly what DescribeConfigs shows, and parsed like anything a user writes.
`synonyms` belong to topic settings: the broker settings that give the default, in order of precedence, each
with the factor that turns its unit into the topic setting's (`log.retention.hours` x 3,600,000 =
`retention.ms`).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from millstream.settings.values import Check, Type, Value, parse


class Mode(Enum):
    """How a broker setting can change while the broker runs."""

    READ_ONLY = "read-only"  # only by a restart
    PER_BROKER = "per-broker"  # for one broker, by its id
    CLUSTER_WIDE = "cluster-wide"  # for one broker or as the default of all


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Synonym(NamedTuple):
    name: str
    factor: int = 1


class ConfigKey(NamedTuple):
    name: str
    type: Type
    default: str | None
    doc: str
    check: Check | None = None
    importance: Importance = Importance.MEDIUM
    mode: Mode = Mode.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    # Why the setting is accepted but does nothing; empty when it does something.
    no_effect: str = ""
    hidden: bool = False  # described only where somebody has set it

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    def parse(self, text: str, name: str | None = None) -> Value:
        """The typed and checked value. `name` is the name as given, which may have a listener's prefix."""
        name = name or self.name
        value = parse(name, self.type, text)
        if self.check is not None:
            self.check(name, value)
        return value

    def default_value(self) -> Value:
        return None if self.default is None else parse(self.name, self.type, self.default)


HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Mode.READ_ONLY, Mode.PER_BROKER, Mode.CLUSTER_WIDE
BOOLEAN, STRING, INT, SHORT, LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG
DOUBLE, LIST, CLASS, PASSWORD = Type.DOUBLE, Type.LIST, Type.CLASS, Type.PASSWORD

MAX_INT = "2147483647"
MAX_LONG = "9223372036854775807"
