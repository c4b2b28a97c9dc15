"""Settings of change capture: Debezium's names."""

from __future__ import annotations

import re
from typing import Any

from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    NonEmptyString,
    Range,
    ValidString,
)
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
SNAPSHOT_MODES = ("initial", "always", "initial_only", "never", "no_data")


def _slot_name(name: str, value: Any) -> None:
    if not re.fullmatch("[a-z0-9_]{1,63}", value):
        raise ConfigError.of(
            name,
            value,
            "Valid replication slot name must contain only digits, lowercase characters and underscores",
        )


def _patterns(name: str, value: Any) -> None:
    for one in value:
        try:
            re.compile(one)
        except re.error as error:
            raise ConfigError.of(name, one, f"not a regular expression: {error}") from None


_LIST = CheckedBy(_patterns, "regular expressions")

CONFIG = ConfigDef(
    [
        ConfigKey(
            "topic.prefix",
            Type.STRING,
            REQUIRED,
            HIGH,
            "Names the source: topics are PREFIX.SCHEMA.TABLE.",
            NonEmptyString(),
        ),
        ConfigKey("database.hostname", Type.STRING, REQUIRED, HIGH, "The server.", NonEmptyString()),
        ConfigKey("database.port", Type.INT, 5432, HIGH, "Its port.", Range(0, 65535)),
        ConfigKey(
            "database.user",
            Type.STRING,
            REQUIRED,
            HIGH,
            "A user with the attribute REPLICATION who may read the tables.",
            NonEmptyString(),
        ),
        ConfigKey("database.password", Type.PASSWORD, None, HIGH, "The user's password."),
        ConfigKey("database.dbname", Type.STRING, REQUIRED, HIGH, "The database.", NonEmptyString()),
        ConfigKey("database.sslmode", Type.STRING, "prefer", MEDIUM, "Encryption, in libpq's words."),
        ConfigKey(
            "plugin.name",
            Type.STRING,
            "pgoutput",
            MEDIUM,
            "What turns the log into messages: `pgoutput`, which PostgreSQL brings (Debezium: decoderbufs).",
            ValidString(("pgoutput",)),
        ),
        ConfigKey(
            "slot.name",
            Type.STRING,
            "debezium",
            MEDIUM,
            "The replication slot, in which the server keeps how far this connector is. Made if missing.",
            CheckedBy(_slot_name, "digits, lowercase characters and underscores"),
        ),
        ConfigKey(
            "slot.drop.on.stop",
            Type.BOOLEAN,
            False,
            MEDIUM,
            "Whether the slot goes when the task stops. What happens meanwhile is lost then.",
        ),
        ConfigKey(
            "publication.name", Type.STRING, "dbz_publication", MEDIUM, "Which tables the server sends."
        ),
        ConfigKey(
            "publication.autocreate.mode",
            Type.STRING,
            "all_tables",
            MEDIUM,
            "What a missing publication is made of: `all_tables`, `filtered` (those that are captured); "
            "`disabled`: it has to be there.",
            ValidString(("all_tables", "disabled", "filtered")),
        ),
        *(
            ConfigKey(
                f"{what}.{which}.list",
                Type.LIST,
                (),
                MEDIUM,
                f"Regular expressions of {what}s that are {'' if which == 'include' else 'not '}captured"
                f"{' (SCHEMA.TABLE)' if what == 'table' else ''}.",
                _LIST,
            )
            for what in ("schema", "table")
            for which in ("include", "exclude")
        ),
        ConfigKey(
            "column.exclude.list",
            Type.LIST,
            (),
            MEDIUM,
            "Regular expressions of columns that are left out (SCHEMA.TABLE.COLUMN).",
            _LIST,
        ),
        ConfigKey(
            "snapshot.mode",
            Type.STRING,
            "initial",
            MEDIUM,
            "`initial`: the rows that are there, at the first start. `always`: at each start. "
            "`initial_only`: them alone. `no_data` or `never`: changes alone.",
            ValidString(SNAPSHOT_MODES),
        ),
        ConfigKey(
            "snapshot.fetch.size", Type.INT, 10240, LOW, "Rows of a snapshot that are read at once.", Range(1)
        ),
        ConfigKey("max.batch.size", Type.INT, 2048, LOW, "Changes that a poll returns.", Range(1)),
        ConfigKey(
            "tombstones.on.delete", Type.BOOLEAN, True, MEDIUM, "Whether a tombstone follows a deletion."
        ),
        ConfigKey(
            "decimal.handling.mode",
            Type.STRING,
            "precise",
            MEDIUM,
            "What becomes of numeric columns.",
            ValidString(("precise", "double", "string")),
        ),
        ConfigKey(
            "time.precision.mode",
            Type.STRING,
            "adaptive",
            MEDIUM,
            "Debezium's types for time, or Connect's.",
            ValidString(("adaptive", "adaptive_time_microseconds", "connect")),
        ),
        ConfigKey(
            "binary.handling.mode",
            Type.STRING,
            "bytes",
            LOW,
            "What becomes of bytea columns.",
            ValidString(("bytes", "base64", "hex")),
        ),
    ]
)
