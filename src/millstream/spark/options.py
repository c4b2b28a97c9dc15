"""Options of `format("millstream")`: the names of Spark's Kafka connector, checked before anything runs.

Spark hands options over with their names in lower case. `Options` knows the proper spelling of each, so that
a message names the option as the user's documentation does, and an option that nobody knows is an error with
the nearest known name: a misspelt option must not be a silent default. What begins with `kafka.` is a
property of a Kafka client.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.client.client_properties import CLIENT_PROPERTIES
from millstream.client.config import ClientConfig, parse_addresses
from millstream.settings.suggestions import did_you_mean
from millstream.spark.errors import OptionError

KAFKA = "kafka."
SERVERS = "kafka.bootstrap.servers"
CONNECTOR = "connector"
# What Spark itself hands on, and who reads.
EVERYWHERE = (
    "path",
    "checkpointLocation",
    "queryName",
    CONNECTOR,
)

LIST_NO_COLUMNS = (
    "; if this is a table: create it without a list of columns, because Spark keeps the options of others "
    "from sources written in Python"
)

_DURATION = re.compile(
    r"^\s*(\d+)\s*(ms|us|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)?\s*$", re.I
)
_UNITS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Options:
    """The options of one reader or writer. `known` are the names that it takes; `use` is "read" or
    "write"."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], use: str) -> None:
        spelling = {name.lower(): name for name in (*EVERYWHERE, *known)}
        spelling |= {f"{KAFKA}{name}": f"{KAFKA}{name}" for name in CLIENT_PROPERTIES}
        self.given: dict[str, str] = {}
        for name, value in given.items():
            proper = spelling.get(name.lower())
            if proper is None:
                hint = did_you_mean(name, spelling.values())
                raise OptionError(f"unknown option '{name}' of format(\"millstream\") for {use}ing{hint}")
            self.given[proper] = str(value)
        if self.choice(CONNECTOR, ("python", "jvm"), "python") == "jvm":
            raise OptionError(
                f"option '{CONNECTOR}': Spark's own connector is another format: use format(\"kafka\") with "
                "the setting "
                "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 and the same options"
            )
        if SERVERS not in self.given:
            table = "" if given else LIST_NO_COLUMNS
            raise OptionError(f"option '{SERVERS}' is missing: where are the brokers? (host:port,...){table}")

    # --- values ---------------------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def text(self, name: str, default: str = "") -> str:
        return self.given.get(name, default).strip()

    def number(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number, at least `least`."""
        if name not in self.given:
            return default
        try:
            value = int(self.given[name])
        except ValueError:
            raise OptionError(f"option '{name}' must be a whole number, not '{self.given[name]}'") from None
        if value < least:
            raise OptionError(f"option '{name}' must be at least {least}, not {value}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise OptionError(f"option '{name}' must be true or false, not '{self.given[name]}'")
        return value == "true"

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.text(name, default).lower()
        if value not in allowed:
            raise OptionError(f"option '{name}' must be {' or '.join(allowed)}, not '{self.given[name]}'")
        return value

    def milliseconds(self, name: str, default: int) -> int:
        """A time with a unit, as Spark writes them: 500ms, 30s, 15m, 1h; without one, milliseconds."""
        if name not in self.given:
            return default
        found = _DURATION.match(self.given[name])
        if found is None:
            raise OptionError(
                f"option '{name}' must be a time such as 500ms, 30s or 15m, not '{self.given[name]}'"
            )
        unit = (found.group(2) or "ms").lower()
        factor = _UNITS.get(unit) or _UNITS[unit[0] if not unit.startswith("milli") else "ms"]
        return round(int(found.group(1)) * factor)

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.given[name])
        except ValueError:
            raise OptionError(f"option '{name}' is not valid JSON: {self.given[name][:80]}") from None

    # --- the Kafka client -----------------------------------------------------------------------------------

    @property
    def properties(self) -> dict[str, str]:
        """What was given as `kafka.<name>`, by <name>."""
        return {name[len(KAFKA) :]: value for name, value in self.given.items() if name.startswith(KAFKA)}

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Properties of a Kafka client that make no sense here, each with what to do instead."""
        for name, reason in reasons.items():
            if KAFKA + name in self.given:
                raise OptionError(f"option '{KAFKA}{name}' is not supported: {reason}")

    def client(self, client_id: str = "millstream-spark") -> ClientConfig:
        """How to reach the cluster: addresses, patience, TLS and SASL."""
        properties = self.properties
        servers = properties.pop("bootstrap.servers")
        try:
            parse_addresses(servers)
        except ValueError as error:
            raise OptionError(f"option '{SERVERS}': {error}") from None
        try:
            return ClientConfig.of(servers, properties, client_id)
        except ValueError as error:
            raise OptionError(f"option {KAFKA}{error}") from None
