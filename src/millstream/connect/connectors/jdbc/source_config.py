"""Settings of the JDBC source: Confluent's and Aiven's names."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.connect.api import Settings
from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigValue,
    Range,
    ValidString,
)
from millstream.connect.connectors.jdbc.url import check_url
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"
MODES = (BULK, TIMESTAMP, INCREMENTING, BOTH)
_MAPPINGS = ("none", "precision_only", "best_fit", "best_fit_eager_double")
ISOLATIONS = ("DEFAULT", "READ_UNCOMMITTED", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE")


def check_zone(name: str, value: Any) -> None:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError.of(name, value, "Invalid time zone identifier") from None


CONNECTION = [
    ConfigKey(
        "connection.url",
        Type.STRING,
        REQUIRED,
        HIGH,
        "The database: `jdbc:sqlite:FILE`, `jdbc:postgresql://HOST:PORT/DATABASE`, `jdbc:mysql://...`, "
        "`jdbc:mariadb://...`.",
        CheckedBy(check_url, ""),
        group="Database",
    ),
    ConfigKey("connection.user", Type.STRING, None, HIGH, "The database's user.", group="Database"),
    ConfigKey("connection.password", Type.PASSWORD, None, HIGH, "The user's password.", group="Database"),
    ConfigKey(
        "connection.attempts",
        Type.INT,
        3,
        LOW,
        "How often a task tries to make its first connection before it fails. Later ones are tried for ever.",
        Range(1),
        group="Database",
    ),
    ConfigKey(
        "connection.backoff.ms",
        Type.LONG,
        10000,
        LOW,
        "The pause between two attempts.",
        Range(0),
        group="Database",
    ),
    ConfigKey(
        "dialect.name",
        Type.STRING,
        "",
        LOW,
        "`SqliteDatabaseDialect`, `PostgreSqlDatabaseDialect`, `MySqlDatabaseDialect`; must fit the URL.",
        group="Database",
    ),
    ConfigKey(
        "quote.sql.identifiers",
        Type.STRING,
        "always",
        MEDIUM,
        "Whether names of tables and columns are quoted in statements.",
        ValidString(("always", "never")),
        group="Database",
    ),
    ConfigKey(
        "sql.quote.identifiers",
        Type.BOOLEAN,
        True,
        MEDIUM,
        "The same by Aiven's name: false is `never`.",
        group="Database",
    ),
    ConfigKey(
        "db.timezone",
        Type.STRING,
        "UTC",
        MEDIUM,
        "The time zone of timestamps that have none in the database.",
        CheckedBy(check_zone, "a time zone"),
        group="Database",
    ),
]

_TABLES = [
    ConfigKey(
        "table.whitelist",
        Type.LIST,
        (),
        MEDIUM,
        "The tables to copy, by name, with or without schema and catalog. By default all of them.",
        group="Tables",
    ),
    ConfigKey(
        "table.blacklist", Type.LIST, (), MEDIUM, "Tables that are not copied, instead.", group="Tables"
    ),
    ConfigKey(
        "table.include.list",
        Type.LIST,
        (),
        MEDIUM,
        "Regular expressions of the names of tables to copy, instead.",
        group="Tables",
    ),
    ConfigKey(
        "table.exclude.list",
        Type.LIST,
        (),
        MEDIUM,
        "Regular expressions of tables that are not copied, of those that are included.",
        group="Tables",
    ),
    ConfigKey(
        "table.types",
        Type.LIST,
        ("TABLE",),
        LOW,
        "Which kinds: `TABLE`, `VIEW`, and of PostgreSQL `MATERIALIZED VIEW`.",
        group="Tables",
    ),
    ConfigKey(
        "catalog.pattern",
        Type.STRING,
        None,
        MEDIUM,
        "A pattern (`%`, `_`) of the catalogs with the tables; of MySQL, the databases.",
        group="Tables",
    ),
    ConfigKey(
        "schema.pattern", Type.STRING, None, HIGH, "A pattern of the schemas with the tables.", group="Tables"
    ),
    ConfigKey(
        "table.poll.interval.ms",
        Type.LONG,
        60000,
        LOW,
        "How often new and dropped tables are looked for.",
        Range(0),
        group="Tables",
    ),
]

_MODE = [
    ConfigKey(
        "mode",
        Type.STRING,
        REQUIRED,
        HIGH,
        "`bulk`: all rows each time. `incrementing`: rows with a higher id than before. `timestamp`: rows "
        "changed after the last one. `timestamp+incrementing`: both, which is the safest.",
        ValidString(MODES),
        group="Mode",
    ),
    ConfigKey(
        "incrementing.column.name",
        Type.STRING,
        "",
        MEDIUM,
        "The column with ids that only grow; by default the one that counts up by itself.",
        group="Mode",
    ),
    ConfigKey(
        "timestamp.column.name",
        Type.LIST,
        (),
        MEDIUM,
        "Columns with the time of the last change; of several, the first that is not null.",
        group="Mode",
    ),
    ConfigKey(
        "timestamp.initial",
        Type.LONG,
        None,
        LOW,
        "Rows after this time (milliseconds since 1970) at first; -1 for now. By default all.",
        group="Mode",
    ),
    ConfigKey(
        "timestamp.delay.interval.ms",
        Type.LONG,
        0,
        HIGH,
        "How old a row has to be before it is copied, so that transactions which began earlier can end. What "
        "the database shows of open transactions is waited for in any case.",
        Range(0),
        group="Mode",
    ),
    ConfigKey(
        "millstream.incrementing.gap.ms",
        Type.LONG,
        60000,
        MEDIUM,
        "For how long ids that are missing below the highest one are asked for again: their transactions may "
        "commit later.",
        Range(0),
        group="Mode",
    ),
    ConfigKey(
        "validate.non.null",
        Type.BOOLEAN,
        True,
        LOW,
        "Whether a table is refused whose id can be null, or all of its timestamps.",
        group="Mode",
    ),
    ConfigKey(
        "query",
        Type.STRING,
        "",
        MEDIUM,
        "A statement whose rows are copied, instead of tables. The topic is `topic.prefix` alone.",
        group="Mode",
    ),
    ConfigKey(
        "query.suffix", Type.STRING, "", LOW, "What stands at the end of each statement.", group="Mode"
    ),
]

_CONNECTOR = [
    ConfigKey(
        "topic.prefix",
        Type.STRING,
        REQUIRED,
        HIGH,
        "What a topic's name begins with; the table's name follows.",
        group="Connector",
    ),
    ConfigKey(
        "poll.interval.ms",
        Type.LONG,
        5000,
        HIGH,
        "How often each table is asked for new rows, once it has no more.",
        Range(0),
        group="Connector",
    ),
    ConfigKey(
        "batch.max.rows",
        Type.INT,
        5000,
        LOW,
        "How many rows are read at once (Confluent: 100). Rows with the same timestamp stay together.",
        Range(1),
        group="Connector",
    ),
    ConfigKey(
        "numeric.mapping",
        Type.STRING,
        None,
        LOW,
        "What becomes of decimals: `none`: Connect's Decimal. `precision_only`: integers where nothing is "
        "behind the point. `best_fit`: doubles as well. `best_fit_eager_double`: doubles of any precision.",
        CheckedBy(
            lambda name, value: None if value is None else ValidString(_MAPPINGS)(name, str(value).lower()),
            "[none, precision_only, best_fit, best_fit_eager_double]",
        ),
        group="Connector",
    ),
    ConfigKey(
        "numeric.precision.mapping",
        Type.BOOLEAN,
        False,
        LOW,
        "Older name of `numeric.mapping=precision_only`.",
        group="Connector",
    ),
    ConfigKey(
        "transaction.isolation.mode",
        Type.STRING,
        "DEFAULT",
        LOW,
        "What statements see of open transactions.",
        ValidString(ISOLATIONS),
        group="Connector",
    ),
]

SOURCE = ConfigDef([*CONNECTION, *_TABLES, *_MODE, *_CONNECTOR])


def validate_source(settings: Settings) -> dict[str, ConfigValue]:
    """With the rules that concern several settings."""
    found = SOURCE.validate(settings)

    def refuse(name: str, text: str) -> None:
        found[name].errors.append(text)

    mode = found["mode"].value
    lists = ("table.whitelist", "table.blacklist", "table.include.list", "table.exclude.list")
    given = [name for name in lists if settings.get(name)]
    if settings.get("query") and given:
        refuse("query", f"Do not specify {given[0]} together with query")
    if "table.whitelist" in given and len(given) > 1:
        refuse("table.whitelist", f"{given[0]} and {given[1]} are exclusive")
    if mode in (TIMESTAMP, BOTH) and not found["timestamp.column.name"].value:
        refuse("timestamp.column.name", f"timestamp.column.name is required in mode {mode}")
    if mode in (TIMESTAMP, BULK) and settings.get("incrementing.column.name"):
        refuse(
            "incrementing.column.name", f"Incrementing column configs should not be provided with mode {mode}"
        )
    if mode in (INCREMENTING, BULK) and settings.get("timestamp.column.name"):
        refuse("timestamp.column.name", f"Timestamp column configs should not be provided with mode {mode}")
    if (
        settings.get("query")
        and mode in (INCREMENTING, BOTH)
        and not settings.get("incrementing.column.name")
    ):
        refuse("incrementing.column.name", f"incrementing.column.name is required for a query in mode {mode}")
    return found


def numeric_mapping(parsed: dict[str, Any]) -> str:
    if parsed["numeric.mapping"] is not None:
        return str(parsed["numeric.mapping"]).lower()
    return "precision_only" if parsed["numeric.precision.mapping"] else "none"
