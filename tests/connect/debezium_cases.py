"""Events of change capture for Debezium's ExtractNewRecordState: by hand, and by a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.connect.cases import Case, Generator, field, plain_map, record, simple, struct, sv

CLASS = "io.debezium.transforms.ExtractNewRecordState"
SOURCE = struct(
    field("version", simple("string")),
    field("connector", simple("string")),
    field("ts_ms", simple("int64")),
    field("snapshot", simple("string"), optional=True, default="false"),
    field("table", simple("string")),
    field("lsn", simple("int64"), optional=True),
    field("tags", {"type": "array", "items": simple("string"), "optional": True}),
    name="io.debezium.connector.postgresql.Source",
)
TRANSACTION = struct(
    field("id", simple("string")),
    field("total_order", simple("int64")),
    field("data_collection_order", simple("int64")),
    name="event.block",
    version=1,
    optional=True,
)
FROM = {
    "version": {"str": "3.5.0.Final"},
    "connector": {"str": "postgresql"},
    "ts_ms": {"i64": 1604000000123},
    "snapshot": None,
    "table": {"str": "orders"},
    "lsn": {"i64": 24023128},
    "tags": {"list": [{"str": "a"}, {"str": "b"}]},
}
WITHIN = {"id": {"str": "571"}, "total_order": {"i64": 1}, "data_collection_order": {"i64": 2}}
ROW = struct(
    field("id", simple("int64")),
    field("name", simple("string"), optional=True),
    field("state", simple("string"), optional=True, default="new"),
    field("topic", simple("string"), optional=True),
    name="plant.shop.orders.Value",
    optional=True,
)
KEY = struct(field("id", simple("int64")), field("name", simple("string"), optional=True), name="Key")
MODES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
OPERATIONS = ("c", "u", "d", "r", "t")
NAMES = {"schema": {"type": "array", "items": simple("string"), "optional": False}}


def row(number: int = 7, **values: Any) -> Any:
    return {"struct": {"id": {"i64": number}, "name": {"str": "bell"}, "state": None, "topic": None} | values}


def event(
    operation: str,
    before: Any,
    after: Any,
    *,
    schema: dict[str, Any] = ROW,
    within: Any = WITHIN,
    **more: Any,
) -> Case:
    whole = struct(
        field("before", schema),
        field("after", schema),
        field("source", SOURCE),
        field("transaction", TRANSACTION),
        field("op", simple("string")),
        field("ts_ms", simple("int64"), optional=True),
        field("ts_us", simple("int64"), optional=True),
        name="plant.shop.orders.Envelope",
        version=2,
    )
    value = {
        "before": before,
        "after": after,
        "source": {"struct": FROM},
        "transaction": None if within is None else {"struct": within},
        "op": {"str": operation},
        "ts_ms": {"i64": 1604000000456},
        "ts_us": None,
    }
    return record(sv(whole, {"struct": value}), sv(KEY, {"struct": {"id": {"i64": 7}, "name": None}}), **more)


def events(schema: dict[str, Any] = ROW, one: Any = None, other: Any = None, **more: Any) -> Iterator[Case]:
    """A row that comes, changes and goes, a table that is emptied, a tombstone, and what is no event."""
    first, second = one or row(), other or row(topic={"str": "elsewhere"}, state={"str": "sold"})
    yield event("c", None, first, schema=schema, **more)
    yield event("u", first, second, schema=schema, **more)
    yield event("d", second, None, schema=schema, **more)
    yield event("t", None, None, schema=schema, within=None, **more)
    yield record(sv(None, None), sv(KEY, {"struct": {"id": {"i64": 7}, "name": None}}), **more)


def asked(config: dict[str, str], one: Case) -> Case:
    return {"do": "transform", "class": CLASS, "config": config, "record": one}


def by_hand() -> Iterator[Case]:
    configs: list[dict[str, str]] = [
        {},
        {"add.fields": "op,table,lsn,source.ts_ms,ts_ms,ts_us"},
        {"add.headers": "op,table,lsn,source.ts_ms,snapshot"},
        {"add.fields": "op:OPERATION, source.table:TABLE ,id,transaction.total_order"},
        {"add.fields": "op,snapshot", "add.fields.prefix": ""},
        {"add.fields": "tags,nothing,source.nothing", "add.headers": "tags,nothing"},
        {"add.headers": "op:what,transaction.id", "add.headers.prefix": "h."},
        {"add.fields": "op,op"},
        {"add.fields": "op:a:b"},
        {"add.fields": "op,,ts_ms,"},
        {"add.fields": "op:,source."},
        {"add.fields": "source.table.more"},
        {"add.fields": "nowhere.field"},
        {"add.headers": "nowhere.field"},
        {"add.fields": "transaction"},
        {"add.headers": "transaction"},
        {"add.fields": "source"},
        {"add.fields": "before.name"},
        {"route.by.field": "topic"},
        {"route.by.field": "id"},
        {"route.by.field": "none"},
        {"route.by.field": "topic", "add.fields": "op"},
        {"replace.null.with.default": "false"},
        {"drop.tombstones": "false", "delete.handling.mode": "rewrite"},
    ]
    for config in configs:
        for mode in MODES:
            for one in events():
                yield asked({"delete.tombstone.handling.mode": mode} | config, one)
    yield from (
        asked({"delete.tombstone.handling.mode": text}, next(events())) for text in ("DROP", " Drop ")
    )
    plain = [
        record(plain_map(id={"i64": 1})),
        record(sv(ROW, row())),
        record(sv(ROW, None)),
        record(sv(simple("string"), {"str": "text"})),
        record(sv(simple("string", name="x.Envelope"), {"str": "text"})),
        record(sv(struct(field("after", ROW), name="x.Envelope"), {"struct": {"after": row()}})),
        record(sv(struct(field("before", ROW), name="x.Envelope"), {"struct": {"before": row()}})),
    ]
    for one in plain:
        for config in ({}, {"add.headers": "op"}, {"add.fields": "op"}):
            yield asked(config, one)


def dropping() -> Iterator[Case]:
    base = {"drop.fields.header.name": "drop"}
    headers: list[Any] = [
        {"name": "drop", "value": {"list": [{"str": "name"}]}} | NAMES,
        {"name": "drop", "value": {"list": [{"str": "id"}, {"str": "state"}]}} | NAMES,
        {"name": "drop", "value": {"list": []}} | NAMES,
        {"name": "drop", "value": {"list": [{"str": "nothing"}, {"str": "__op"}]}} | NAMES,
        {"name": "other", "value": {"list": [{"str": "name"}]}} | NAMES,
        {"name": "drop", "schema": simple("string"), "value": {"str": "name"}},
        {"name": "drop", "schema": None, "value": None},
    ]
    for header in headers:
        for config in (
            {},
            {"drop.fields.from.key": "true"},
            {"drop.fields.keep.schema.compatible": "false"},
            {"drop.fields.from.key": "true", "drop.fields.keep.schema.compatible": "false"},
            {"add.fields": "op", "delete.tombstone.handling.mode": "rewrite"},
            {"delete.tombstone.handling.mode": "delete-to-tombstone", "drop.fields.from.key": "true"},
        ):
            for one in events(headers=[header]):
                yield asked(base | config, one)


def at_random(seed: int, count: int) -> Iterator[Case]:
    generator, chance = Generator(seed), random.Random(seed)
    fields = [
        "op",
        "ts_ms",
        "table",
        "lsn",
        "source.ts_ms",
        "snapshot",
        "transaction.id",
        "id",
        "after.id",
        "tags",
    ]
    for _ in range(count):
        schema, value = generator.struct()
        schema = schema | {"optional": True, "name": "plant.shop.some.Value"}
        config = {"delete.tombstone.handling.mode": chance.choice(MODES)}
        for what in ("add.fields", "add.headers"):
            if chance.random() < 0.6:
                config[what] = ",".join(chance.sample(fields, chance.randint(1, 4)))
        if chance.random() < 0.2:
            config["route.by.field"] = chance.choice(["name", "note", "a.b"])
        if chance.random() < 0.3:
            config["replace.null.with.default"] = "false"
        one = chance.choice(list(events(schema, value, value)))
        yield asked(config, one)


def cases() -> Iterator[Case]:
    yield from by_hand()
    yield from dropping()
    yield from at_random(5, 400)
