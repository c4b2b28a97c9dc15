"""The settings that every connector has, every source, and every sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connect.config.config_def import (
    REQUIRED,
    CaseInsensitiveValidString,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigValue,
    NonEmptyString,
    Range,
    ValidList,
    ValidString,
)
from millstream.connect.config.java_regex import ValidRegex, compile_regex
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _unique(name: str, value: Any) -> None:
    if value is None:
        raise ConfigError.of(name, "null", "entry must be non null")
    if len(set(value)) != len(value):
        raise ConfigError.of(name, value, "Duplicate alias provided.")


def _named(name: str, value: Any) -> None:
    if value is not None and not value:
        raise ConfigError.of(name, value, "String may not be empty")
    if value is not None and any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value):
        found = ", ".join(str(ord(char)) for char in value if ord(char) < 32 or 127 <= ord(char) < 160)
        raise ConfigError.of(
            name,
            value,
            f"String may not contain control sequences but had the following ASCII chars: {found}",
        )


def _key(name: str, kind: Type, default: Any, importance: Importance, doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(name, kind, default, importance, doc, **more)


_COMMON = [
    _key(
        "name",
        Type.STRING,
        REQUIRED,
        HIGH,
        "The name of the connector, the only one of its kind.",
        validator=CheckedBy(_named, "non-empty string without ISO control characters"),
        group="Common",
        order=1,
        width="MEDIUM",
        display_name="Connector name",
    ),
    _key(
        "connector.class",
        Type.STRING,
        REQUIRED,
        HIGH,
        "The class of the connector: its whole name, or the last part of it without `Connector`.",
        group="Common",
        order=2,
        width="LONG",
        display_name="Connector class",
    ),
    _key(
        "connector.plugin.version",
        Type.STRING,
        None,
        MEDIUM,
        "The version of the connector: one, or a range such as `[1.0,2.0)`.",
        group="Common",
        order=3,
        width="MEDIUM",
        display_name="Connector version",
    ),
    _key(
        "tasks.max",
        Type.INT,
        1,
        HIGH,
        "How many tasks the connector has at most.",
        validator=Range(1),
        group="Common",
        order=4,
        width="SHORT",
        display_name="Tasks max",
    ),
    _key(
        "tasks.max.enforce",
        Type.BOOLEAN,
        True,
        LOW,
        "Whether a connector that deals more tasks than tasks.max fails.",
        group="Common",
        order=5,
        width="SHORT",
        display_name="Enforce tasks max",
    ),
    *(
        one
        for what, order in (("key", 6), ("value", 8), ("header", 10))
        for one in (
            _key(
                f"{what}.converter",
                Type.CLASS,
                None,
                LOW,
                f"How {what}s become bytes; by default as the worker says.",
                group="Common",
                order=order,
                width="SHORT",
                display_name=f"{what.capitalize()} converter class",
            ),
            _key(
                f"{what}.converter.plugin.version",
                Type.STRING,
                None,
                LOW,
                f"The version of the converter of {what}s.",
                group="Common",
                order=order + 1,
                width="SHORT",
                display_name=f"{what.capitalize()} converter version",
            ),
        )
    ),
    _key(
        "transforms",
        Type.LIST,
        (),
        LOW,
        "Names of the transforms, in the order in which they are applied.",
        validator=CheckedBy(_unique, "non-null string, unique transformation aliases"),
        group="Transforms",
        order=12,
        width="LONG",
        display_name="Transforms",
    ),
    _key(
        "predicates",
        Type.LIST,
        (),
        LOW,
        "Names of the predicates that transforms use.",
        validator=CheckedBy(_unique, "non-null string, unique predicate aliases"),
        group="Predicates",
        order=13,
        width="LONG",
        display_name="Predicates",
    ),
    _key(
        "config.action.reload",
        Type.STRING,
        "restart",
        LOW,
        "What happens when a secret that the settings refer to has changed: none or restart.",
        validator=ValidString(("none", "restart")),
        group="Common",
        order=14,
        width="MEDIUM",
        display_name="Reload Action",
    ),
    _key(
        "errors.retry.timeout",
        Type.LONG,
        0,
        MEDIUM,
        "For how many milliseconds a failed operation is tried again; 0 for never, -1 for ever.",
        group="Error Handling",
        order=1,
        width="MEDIUM",
        display_name="Retry Timeout for Errors",
    ),
    _key(
        "errors.retry.delay.max.ms",
        Type.LONG,
        60000,
        MEDIUM,
        "The longest pause between two tries.",
        group="Error Handling",
        order=2,
        width="MEDIUM",
        display_name="Maximum Delay Between Retries for Errors",
    ),
    _key(
        "errors.tolerance",
        Type.STRING,
        "none",
        MEDIUM,
        "`none`: a record that cannot be processed fails the task. `all`: it is left out.",
        validator=ValidString(("none", "all")),
        group="Error Handling",
        order=3,
        width="SHORT",
        display_name="Error Tolerance",
    ),
    _key(
        "errors.log.enable",
        Type.BOOLEAN,
        False,
        MEDIUM,
        "Whether failures that are tolerated are logged.",
        group="Error Handling",
        order=4,
        width="SHORT",
        display_name="Log Errors",
    ),
    _key(
        "errors.log.include.messages",
        Type.BOOLEAN,
        False,
        MEDIUM,
        "Whether the log names the record as well.",
        group="Error Handling",
        order=5,
        width="SHORT",
        display_name="Log Error Details",
    ),
]

_SINK = [
    _key(
        "topics",
        Type.LIST,
        (),
        HIGH,
        "The topics to read.",
        validator=ValidList(),
        group="Common",
        order=4,
        width="LONG",
        display_name="Topics",
    ),
    _key(
        "topics.regex",
        Type.STRING,
        "",
        HIGH,
        "A pattern of the names of the topics to read, instead of `topics`.",
        validator=ValidRegex(),
        group="Common",
        order=4,
        width="LONG",
        display_name="Topics regex",
    ),
    _key(
        "errors.deadletterqueue.topic.name",
        Type.STRING,
        "",
        MEDIUM,
        "The topic for records that could not be processed; empty for none.",
        group="Error Handling",
        order=6,
        width="MEDIUM",
        display_name="Dead Letter Queue Topic Name",
    ),
    _key(
        "errors.deadletterqueue.topic.replication.factor",
        Type.SHORT,
        3,
        MEDIUM,
        "Replicas of that topic if it has to be created, at most as many as there are brokers.",
        group="Error Handling",
        order=7,
        width="MEDIUM",
        display_name="Dead Letter Queue Topic Replication Factor",
    ),
    _key(
        "errors.deadletterqueue.context.headers.enable",
        Type.BOOLEAN,
        False,
        MEDIUM,
        "Whether dead letters say in headers what went wrong and where.",
        group="Error Handling",
        order=8,
        width="MEDIUM",
        display_name="Enable Error Context Headers",
    ),
]

_SOURCE = [
    _key(
        "topic.creation.groups",
        Type.LIST,
        (),
        LOW,
        "Names of groups of topics that are created with settings of their own.",
        validator=CheckedBy(_unique, "non-null string, unique topic creation groups"),
        group="Topic Creation",
        order=1,
        width="LONG",
        display_name="Topic Creation Groups",
    ),
    _key(
        "exactly.once.support",
        Type.STRING,
        "requested",
        MEDIUM,
        "`required` refuses a connector that cannot deliver exactly once.",
        validator=CaseInsensitiveValidString(("REQUIRED", "REQUESTED")),
        group="Exactly Once Support",
        order=2,
        width="SHORT",
        display_name="Exactly once support",
    ),
    _key(
        "transaction.boundary",
        Type.STRING,
        "poll",
        MEDIUM,
        "What a transaction holds: the records of a `poll`, of an `interval`, or what the connector says.",
        validator=CaseInsensitiveValidString(("INTERVAL", "POLL", "CONNECTOR")),
        group="Exactly Once Support",
        order=3,
        width="SHORT",
        display_name="Transaction Boundary",
    ),
    _key(
        "transaction.boundary.interval.ms",
        Type.LONG,
        None,
        LOW,
        "The interval.",
        group="Exactly Once Support",
        order=4,
        width="SHORT",
        display_name="Transaction boundary interval",
    ),
    _key(
        "offsets.storage.topic",
        Type.STRING,
        None,
        LOW,
        "The topic for this connector's offsets, instead of the worker's.",
        validator=NonEmptyString(),
        group="offsets.topic",
        order=1,
        width="LONG",
        display_name="Offsets topic",
    ),
]

SINK_CONFIG = ConfigDef([*_COMMON, *_SINK])
SOURCE_CONFIG = ConfigDef([*_COMMON, *_SOURCE])


def check_sink(settings: Mapping[str, Any], found: dict[str, ConfigValue]) -> None:
    """The rules for topics that concern several settings. Adds to `found`."""
    topics, regex = _text(settings, "topics"), _text(settings, "topics.regex")
    dead_letters = _text(settings, "errors.deadletterqueue.topic.name")
    is_sound = not found["topics.regex"].errors

    def refuse(message: str, *names: str) -> None:
        for name in names:
            found[name].errors.append(message)

    if topics and regex:
        refuse(
            "topics and topics.regex are mutually exclusive options, but both are set.",
            "topics",
            "topics.regex",
        )
    if not topics and not regex:
        refuse("Must configure one of topics or topics.regex", "topics", "topics.regex")
    if dead_letters and topics and dead_letters in [name.strip() for name in topics.split(",")]:
        names = ", ".join(name.strip() for name in topics.split(","))
        refuse(
            f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
            f"('topics=[{names}]') consumed by the connector",
            "topics",
        )
    # JSON may have halves of characters, which RE2 does not take.
    whole = dead_letters.encode(errors="replace").decode()
    if dead_letters and regex and is_sound and compile_regex(regex).fullmatch(whole):
        refuse(
            f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics "
            f"('topics.regex={regex}') consumed by the connector",
            "topics.regex",
        )


def _text(settings: Mapping[str, Any], name: str) -> str:
    return str(settings.get(name) or "").strip()
