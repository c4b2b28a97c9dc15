"""Configurations that Kafka's workers were asked to validate, and ours are too (`vectors/validation`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FILE = "org.apache.kafka.connect.file.FileStream"
TRANSFORMS = "org.apache.kafka.connect.transforms."
JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
Settings = dict[str, str | None]

SOURCE = {"connector.class": f"{FILE}SourceConnector", "name": "v", "topic": "t", "file": "/x"}
SINK = {"connector.class": f"{FILE}SinkConnector", "name": "v", "topics": "t", "file": "/x"}


def cases() -> Iterator[Settings]:
    for bare in (SOURCE, SINK):
        yield {"connector.class": bare["connector.class"]}
        yield bare
        for more in _common():
            yield bare | more
        for more in _plugins():
            yield bare | more
    for more in _source():
        yield SOURCE | more
    for more in _sink():
        yield SINK | more
    for more in _nulls():
        yield SOURCE | more
        yield SINK | more
    without_topics = {name: text for name, text in SINK.items() if name != "topics"}
    for regex in ("", "x.*", "x|t"):
        yield without_topics | {"topics.regex": regex}
        yield without_topics | {"topics.regex": regex, "errors.deadletterqueue.topic.name": "t"}


def _common() -> Iterator[Settings]:
    """One setting at a time."""
    values = {
        "tasks.max": ("0", "-1", "x", "", "2", "99999999999", "1.5"),
        "tasks.max.enforce": ("x", "FALSE", ""),
        "name": ("", "a\u0001b", " a", "\u00e9"),
        "key.converter": ("none.Such", "StringConverter", "JsonConverter", "Json", STRING, JSON, ""),
        "value.converter": (f"{FILE}SourceConnector", "none", STRING, ""),
        "header.converter": ("none", "org.apache.kafka.connect.storage.SimpleHeaderConverter", JSON),
        "config.action.reload": ("x", "NONE", "none", "restart"),
        "errors.retry.timeout": ("-1", "-2", "x", "1000"),
        "errors.retry.delay.max.ms": ("x", "0", "-5"),
        "errors.tolerance": ("ALL", "some", "all", ""),
        "errors.log.enable": ("yes", "True", "1"),
        "errors.log.include.messages": ("TRUE", "nope"),
        "unknown.setting": ("x",),
        "connector.plugin.version": ("4.3.1", "[4.0,5.0)", "[4.3.1]"),
    }
    for name, texts in values.items():
        for text in texts:
            yield {name: text}
    for name, text in (
        ("schemas.enable", "x"),
        ("schemas.enable", "FALSE"),
        ("decimal.format", "hex"),
        ("decimal.format", "numeric"),
        ("schemas.cache.size", "x"),
        ("replace.null.with.default", "x"),
    ):
        for what in ("key", "value", "header"):
            yield {f"{what}.converter": JSON, f"{what}.converter.{name}": text}
    yield {"key.converter": STRING, "key.converter.plugin.version": "4.3.1"}
    yield {"tasks.max": "0", "errors.tolerance": "some", "key.converter": "none.Such", "transforms": "a,a"}


def _plugins() -> Iterator[Settings]:
    given: dict[str, tuple[Settings, ...]] = {
        "Cast$Value": ({}, {"spec": ""}, {"spec": "x:int8"}, {"spec": "x:bytes"}, {"spec": "int8,int16"}),
        "DropHeaders": ({}, {"headers": "a"}, {"headers": "a,,b"}, {"headers": ""}),
        "ExtractField$Key": ({}, {"field": "x"}, {"field": "x", "field.syntax.version": "V3"}),
        "Filter": ({},),
        "Flatten$Value": ({}, {"delimiter": ""}, {"delimiter": "_"}),
        "HeaderFrom$Value": (
            {},
            {"fields": "x,y", "headers": "z", "operation": "move"},
            {"fields": "x", "headers": "z", "operation": "steal"},
        ),
        "HoistField$Key": ({}, {"field": "x"}, {"field": ""}),
        "InsertField$Value": ({}, {"static.field": "x"}, {"static.field": "x", "static.value": "y"}),
        "InsertHeader": ({}, {"header": "h"}, {"header": "h", "value.literal": "1"}),
        "MaskField$Value": ({}, {"fields": ""}, {"fields": "a", "replacement": ""}),
        "RegexRouter": ({}, {"regex": "x"}, {"regex": "x", "replacement": "y"}),
        "ReplaceField$Value": ({}, {"renames": "x"}, {"renames": "x:y"}, {"include": "a", "exclude": "b"}),
        "SetSchemaMetadata$Value": ({}, {"schema.version": "x"}, {"schema.name": "n"}),
        "TimestampConverter$Value": (
            {},
            {"target.type": "x"},
            {"target.type": "string"},
            {"target.type": "unix", "unix.precision": "days"},
        ),
        "TimestampRouter": ({}, {"topic.format": "x"}),
        "ValueToKey": (
            {},
            {"fields": "a"},
            {"fields": ""},
            {"replace.null.with.default": "x", "fields": "a"},
        ),
        "Cast": ({},),
        "predicates.HasHeaderKey": ({},),
    }
    for name, configs in given.items():
        for config in configs:
            own = {f"transforms.a.{key}": text for key, text in config.items()}
            yield {"transforms": "a", "transforms.a.type": TRANSFORMS + name, **own}
    one = {"transforms": "a", "transforms.a.type": f"{TRANSFORMS}Filter"}
    tombstone = {"predicates": "p", "predicates.p.type": f"{TRANSFORMS}predicates.RecordIsTombstone"}
    yield from (
        {"transforms": "a"},
        {"transforms": "a,b"},
        {"transforms": ""},
        {"transforms": "a,a", "transforms.a.type": f"{TRANSFORMS}Filter"},
        {"transforms": " a , b ", "transforms.a.type": f"{TRANSFORMS}Filter", "transforms.b.type": "none"},
        {"transforms": "a", "transforms.a.type": ""},
        {"transforms": "a", "transforms.a.type": f"{FILE}SinkConnector"},
        one | {"transforms.a.predicate": "p"},
        one | {"transforms.a.predicate": "p", "predicates": "p"},
        one | {"transforms.a.predicate": "p"} | tombstone,
        one | {"transforms.a.predicate": "p", "transforms.a.negate": "x"} | tombstone,
        one | {"transforms.a.predicate": "p", "transforms.a.negate": "true"} | tombstone,
        one | {"transforms.a.negate": "true"},
        one | {"transforms.a.plugin.version": "4.3.1"},
        tombstone,
        {"predicates": "p,p", "predicates.p.type": f"{TRANSFORMS}predicates.RecordIsTombstone"},
        {"predicates": "p", "predicates.p.type": "none"},
        {"predicates": "p", "predicates.p.type": f"{TRANSFORMS}Filter"},
        {"predicates": "p", "predicates.p.type": f"{TRANSFORMS}predicates.HasHeaderKey"},
        {
            "predicates": "p",
            "predicates.p.type": f"{TRANSFORMS}predicates.HasHeaderKey",
            "predicates.p.name": "",
        },
        {"predicates": "p", "predicates.p.type": f"{TRANSFORMS}predicates.TopicNameMatches"},
    )


def _source() -> Iterator[Settings]:
    default = {"topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1"}
    yield from (
        {"exactly.once.support": "x"},
        {"exactly.once.support": "REQUIRED"},
        {"exactly.once.support": "requested"},
        {"transaction.boundary": "x"},
        {"transaction.boundary": "connector"},
        {"transaction.boundary": "Interval", "transaction.boundary.interval.ms": "5"},
        {"transaction.boundary.interval.ms": "x"},
        {"offsets.storage.topic": ""},
        {"offsets.storage.topic": " "},
        {"offsets.storage.topic": "mine"},
        {"batch.size": "x"},
        {"batch.size": "2147483648"},
        {"topic": ""},
        {"topic": " "},
        {"file": ""},
        {"topics": "x"},
        {"topic.creation.groups": "a"},
        {"topic.creation.groups": "a,a", **default},
        default,
        {"topic.creation.groups": "a", **default, "topic.creation.a.include": "x.*"},
        {"errors.deadletterqueue.topic.name": "x"},
    )


def _sink() -> Iterator[Settings]:
    dead_letters = "errors.deadletterqueue."
    yield from (
        {"topics": ""},
        {"topics": "a,,b"},
        {"topics": "a,a"},
        {"topics": "a, b"},
        {"topics.regex": "x"},
        {f"{dead_letters}topic.name": "t"},
        {f"{dead_letters}topic.name": "u"},
        {f"{dead_letters}topic.replication.factor": "x"},
        {f"{dead_letters}topic.replication.factor": "40000"},
        {f"{dead_letters}context.headers.enable": "maybe"},
        {f"{dead_letters}context.headers.enable": "true"},
        {"file": ""},
        {"exactly.once.support": "x"},
    )


def _nulls() -> Iterator[Settings]:
    """Settings that are there without a value: common ones, the connector's own, a plugin's, unknown ones."""
    for name in (
        "name",
        "tasks.max",
        "tasks.max.enforce",
        "transforms",
        "errors.tolerance",
        "config.action.reload",
        "connector.plugin.version",
        "topic",
        "topics",
        "batch.size",
        "file",
        "unknown.setting",
        "key.converter",
        "key.converter.schemas.enable",
        "exactly.once.support",
        "errors.deadletterqueue.topic.name",
    ):
        yield {name: None}
    cast = {"transforms": "a", "transforms.a.type": f"{TRANSFORMS}Cast$Value"}
    yield cast | {"transforms.a.spec": None}
    yield {"transforms": "a", "transforms.a.type": None}
    yield cast | {"transforms.a.spec": "x:int8", "transforms.a.predicate": None}
    yield {"tasks.max": None, "unknown.setting": None, "file": None}


def _definition(definition: dict[str, Any] | None) -> list[Any]:
    """Nothing of a setting that no plugin knows."""
    if definition is None:
        return []
    names = ("type", "required", "default_value", "importance", "group", "width", "display_name")
    return [definition[name] for name in names]


def compact(body: dict[str, Any]) -> dict[str, Any]:
    """Of what a worker answers: the count of errors, and each setting without its description, its place in
    its group (for transforms, the order of Java's hashes) and what is recommended (which depends on what is
    installed)."""
    return {
        "error_count": body["error_count"],
        "configs": {
            config["value"]["name"]: [
                *_definition(config["definition"]),
                config["value"]["value"],
                config["value"]["errors"],
                config["value"]["visible"],
            ]
            for config in body["configs"]
        },
    }
