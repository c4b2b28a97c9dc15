"""The JDBC sink's task: what is in the tables afterwards, and that each record is there once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from millstream.connect.api import SinkContext
from millstream.connect.connectors.jdbc.sink import JdbcSink, JdbcSinkTask
from millstream.connect.data.logical import DATE_SCHEMA, TIMESTAMP_SCHEMA, decimal_schema
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Schema, Type, struct_schema
from millstream.connect.data.struct import Struct
from millstream.connect.errors import ConnectError, RetriableError
from tests.connect.jdbc.conftest import Database
from tests.support.waiting import wait_until

STRING, INT, LONG = REQUIRED[Type.STRING], REQUIRED[Type.INT32], REQUIRED[Type.INT64]
ITEM = struct_schema([("id", LONG), ("name", OPTIONAL[Type.STRING])], name="item")


class Writing:
    def __init__(self, database: Database, settings: dict[str, str]) -> None:
        self.database = database
        self.offset = 0
        self.reported: list[tuple[int, str]] = []
        self.task = JdbcSinkTask()
        self.task.start(
            settings, SinkContext(lambda record, error: self.reported.append((record.offset, str(error))))
        )

    def record(
        self, value: Any, *, key: Any = None, schema: Schema = ITEM, offset: int | None = None
    ) -> SinkRecord:
        at = self.offset if offset is None else offset
        self.offset = at + 1
        struct = None if value is None else Struct(schema, value)
        return SinkRecord(
            topic=self.database.table,
            partition=0,
            key_schema=None if key is None else LONG,
            key=key,
            value_schema=None if value is None else schema,
            value=struct,
            offset=at,
            timestamp=1,
            original_topic=self.database.table,
            original_partition=0,
            original_offset=at,
        )

    def put(self, *values: Any) -> None:
        self.task.put([one if isinstance(one, SinkRecord) else self.record(one) for one in values])

    def rows(self, columns: str = "id, name") -> list[tuple[Any, ...]]:
        return self.database.rows(f"SELECT {columns} FROM {self.database.table} ORDER BY 1")


@contextmanager
def writing(database: Database, **more: str) -> Iterator[Writing]:
    settings = {
        **database.settings,
        "name": "out",
        "auto.create": "true",
        "retry.backoff.ms": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    errors = [error for value in JdbcSink.validate(settings).values() for error in value.errors]
    assert not errors
    one = Writing(database, settings)
    try:
        yield one
    finally:
        one.task.stop()


def test_inserts_into_a_table_that_is_made(database: Database) -> None:
    with writing(database) as out:
        out.put({"id": 1, "name": "bell"}, {"id": 2, "name": None})
        out.put({"id": 2, "name": "saddle"})
        assert sorted(out.rows(), key=str) == [(1, "bell"), (2, "saddle"), (2, None)]


def test_upsert_keeps_the_last_of_each_key(database: Database) -> None:
    with writing(
        database, insert_mode="upsert", pk_mode="record_value", pk_fields="id", batch_size="2"
    ) as out:
        out.put(*({"id": number % 3, "name": f"n{number}"} for number in range(9)))
        assert out.rows() == [(0, "n6"), (1, "n7"), (2, "n8")]
        out.put({"id": 1, "name": "new"})
        assert out.rows() == [(0, "n6"), (1, "new"), (2, "n8")]


def test_deletes_and_upserts_in_their_order(database: Database) -> None:
    settings = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true"}
    with writing(database, **settings) as out:
        item = lambda number, name: out.record({"id": number, "name": name}, key=number)  # noqa: E731
        gone = lambda number: out.record(None, key=number)  # noqa: E731
        out.put(item(1, "a"), item(2, "b"), gone(1), item(3, "c"), gone(3), item(3, "d"))
        assert out.rows() == [(2, "b"), (3, "d")]
        out.put(gone(2), gone(99))
        assert out.rows() == [(3, "d")]
    settings["insert_mode"] = "insert"
    with writing(database, **settings) as out:
        out.put(
            out.record(None, key=3), out.record({"id": 3, "name": "again"}, key=3), out.record(None, key=4)
        )
        assert out.rows() == [(3, "again")]


def test_update_changes_what_is_there(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id BIGINT PRIMARY KEY, name VARCHAR(20))")
    database.execute(f"INSERT INTO {database.table} VALUES (1, 'old')")
    with writing(database, insert_mode="update", pk_mode="record_value", pk_fields="id") as out:
        out.put({"id": 1, "name": "new"}, {"id": 2, "name": "nobody"})
        assert out.rows() == [(1, "new")]


def test_kafkas_coordinates_as_key(database: Database) -> None:
    with writing(database, pk_mode="kafka", insert_mode="upsert") as out:
        out.put({"id": 5, "name": "a"}, {"id": 6, "name": "b"})
        assert out.rows("__connect_offset, __connect_partition, __connect_topic, id") == [
            (0, 0, database.table, 5),
            (1, 0, database.table, 6),
        ]


def test_columns_are_added(database: Database) -> None:
    wider = struct_schema([
        ("id", LONG), ("name", OPTIONAL[Type.STRING]), ("size", Schema(Type.INT32, default=7)),
        ("note", OPTIONAL[Type.STRING])], name="item")  # fmt: skip
    with writing(database, auto_evolve="true") as out:
        out.put({"id": 1, "name": "a"})
        out.put(out.record({"id": 2, "name": "b", "size": 3, "note": "x"}, schema=wider))
        out.put({"id": 3, "name": "c"})
        assert out.rows("id, size, note") == [(1, 7, None), (2, 3, "x"), (3, 7, None)]
    with writing(database) as out, pytest.raises(ConnectError, match="auto-evolution is disabled"):
        more = struct_schema([*((one.name, one.schema) for one in wider.fields), ("extra", INT)])
        out.put(out.record({"id": 4, "extra": 1}, schema=more))


def test_a_missing_table(database: Database) -> None:
    with (
        writing(database, auto_create="false") as out,
        pytest.raises(ConnectError, match="is missing and auto-creation is disabled"),
    ):
        out.put({"id": 1})


def test_values_of_all_types_come_back(database: Database) -> None:
    schema = struct_schema([
        ("i8", REQUIRED[Type.INT8]), ("i16", REQUIRED[Type.INT16]), ("i32", INT), ("i64", LONG),
        ("f64", REQUIRED[Type.FLOAT64]), ("flag", REQUIRED[Type.BOOLEAN]), ("text", STRING),
        ("data", REQUIRED[Type.BYTES]), ("price", decimal_schema(2)), ("day", DATE_SCHEMA),
        ("at", TIMESTAMP_SCHEMA)])  # fmt: skip
    value = {
        "i8": 127, "i16": -32768, "i32": 2**31 - 1, "i64": -(2**63), "f64": 1.5, "flag": True,
        "text": "naïve '%", "data": b"\x00\xff", "price": Decimal("12.30"),
        "day": datetime(2026, 2, 3, tzinfo=UTC),
        "at": datetime(2026, 2, 3, 4, 5, 6, 789000, UTC)}  # fmt: skip
    with writing(database) as out:
        out.put(out.record(value, schema=schema))
    from tests.connect.jdbc.test_source import reading

    with reading(database, mode="bulk") as source:
        found = source.poll()[0].value
    for name, expected in value.items():
        assert found.get(name) == expected, name


def test_fields_that_are_wanted(database: Database) -> None:
    with writing(database, pk_mode="record_value", pk_fields="id", fields_whitelist="name") as out:
        schema = struct_schema([("id", LONG), ("name", STRING), ("secret", STRING)])
        out.put(out.record({"id": 1, "name": "a", "secret": "b"}, schema=schema))
        assert out.rows("*") == [(1, "a")]


def test_a_record_that_the_database_refuses_is_reported(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL)")
    with writing(database) as out:
        out.put(
            {"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 1, "name": "b"}, {"id": 3, "name": "c"}
        )
        assert out.rows() == [(1, "a"), (3, "c")]
        assert [offset for offset, _ in out.reported] == [1, 2]
        out.put(out.record(None))
        assert "requires records with a non-null Struct value" in out.reported[2][1]


def crash(records: Sequence[SinkRecord], out: Writing) -> None:
    """What comes again after a crash between the database's commit and Kafka's."""
    out.task.put(records)


def test_plain_inserts_exactly_once(database: Database) -> None:
    settings = {"millstream_offsets_table": f"{database.table}_offsets"}
    with writing(database, **settings) as out:
        first = [out.record({"id": number, "name": "a"}) for number in range(5)]
        crash(first, out)
    with writing(database, **settings) as out:
        crash(first[:3], out)
        crash([*first, out.record({"id": 5, "name": "a"}, offset=5)], out)
        assert [row[0] for row in out.rows()] == [0, 1, 2, 3, 4, 5]
        assert database.rows(f"SELECT connector, part, position FROM {database.table}_offsets") == [
            ("out", 0, 6)
        ]


def test_a_task_that_was_given_to_somebody_else_writes_nothing(database: Database) -> None:
    settings = {"millstream_offsets_table": f"{database.table}_offsets"}
    with writing(database, **settings) as old, writing(database, **settings) as new:
        old.put({"id": 0, "name": "old"})
        new.put(
            old.record({"id": 0, "name": "old"}, offset=0), old.record({"id": 1, "name": "new"}, offset=1)
        )
        with pytest.raises(RetriableError, match="another task has written"):
            old.put(old.record({"id": 1, "name": "zombie"}, offset=1))
        old.put(old.record({"id": 1, "name": "zombie"}, offset=1))
        assert new.rows() == [(0, "old"), (1, "new")]


def test_a_locked_database_is_tried_again(sqlite: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.connect.connectors.jdbc.sqlite._BUSY_SECONDS", 0.05)
    with writing(sqlite, max_retries="1") as out:
        out.put({"id": 1, "name": "a"})
        other = sqlite3.connect(sqlite.url.removeprefix("jdbc:sqlite:"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetriableError, match="locked"):
            out.put(out.record({"id": 2, "name": "b"}, offset=1))
        with pytest.raises(ConnectError, match=r"Exceeded max\.retries") as caught:
            out.put(out.record({"id": 2, "name": "b"}, offset=1))
        assert not isinstance(caught.value, RetriableError)
        other.execute("COMMIT")
        out.put(out.record({"id": 2, "name": "b"}, offset=1))
        assert out.rows() == [(1, "a"), (2, "b")]
        other.close()


@pytest.mark.parametrize(
    ("settings", "name", "error"),
    [
        ({"delete.enabled": "true"}, "delete.enabled", "Deletes are only supported for pk.mode record_key"),
        ({"insert.mode": "upsert"}, "pk.mode", "Primary key mode must be set"),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, "pk.fields", "Must be 3 names"),
        ({"insert.mode": "merge"}, "insert.mode", "String must be one of: insert, upsert, update"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, str], name: str, error: str) -> None:
    found = JdbcSink.validate({"connection.url": "jdbc:sqlite:x", **settings})
    assert any(error in one for one in found[name].errors), found[name].errors


ALL = struct_schema(
    [
        ("id", LONG),
        ("small", OPTIONAL[Type.INT8]),
        ("ratio", OPTIONAL[Type.FLOAT32]),
        ("price", OPTIONAL[Type.FLOAT64]),
        ("amount", decimal_schema(2)),
        ("name", OPTIONAL[Type.STRING]),
        ("raw", OPTIONAL[Type.BYTES]),
        ("paid", OPTIONAL[Type.BOOLEAN]),
        ("day", DATE_SCHEMA),
        ("moment", TIMESTAMP_SCHEMA),
    ]
)


@pytest.mark.postgres
def test_many_rows_by_copy_are_those_of_inserts(postgres_database: Database) -> None:
    odd = ["a\tb\n\\N\\.", "\\N", "", None, '{"x":"\'"}', "ä\u2028"]
    rows = [
        {
            "id": number,
            "small": number % 100 - 50 if number % 3 else None,
            "ratio": 0.1,
            "price": [1e300, -0.0, float("inf"), 2.5][number % 4],
            "amount": Decimal("-1.50"),
            "name": odd[number % len(odd)],
            "raw": bytes([number, 0, 92]),
            "paid": number % 2 == 0,
            "day": datetime(2026, 1, 2, tzinfo=UTC),
            "moment": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        }
        for number in range(60)
    ]
    names = ", ".join(ALL.fields[index].name for index in range(len(ALL.fields)))
    with writing(postgres_database) as out:
        records = [out.record(row, schema=ALL) for row in rows]
        out.put(records[0])
        plans = out.task._plans.values()
        assert all(plan.bulk is not None and plan.bulk.sql.startswith("COPY ") for plan in plans)
        out.put(*records[1:])
        by_copy = out.rows(names)
        postgres_database.execute(f"TRUNCATE {postgres_database.table}")
        for record in records:
            out.put(record)
        assert out.rows(names) == by_copy and len(by_copy) == 60


@pytest.mark.postgres
def test_what_copy_would_store_in_another_way_is_inserted(postgres_database: Database) -> None:
    """A number that INSERT rounds, rules, row security; and one row of many that the database refuses."""
    database, table = postgres_database, postgres_database.table
    schema = struct_schema([("id", LONG), ("price", REQUIRED[Type.FLOAT64])])
    database.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY CHECK (id <> 33), price INTEGER NOT NULL)")
    with writing(database) as out:
        out.put(*(out.record({"id": number, "price": 1.6}, schema=schema) for number in range(30)))
        assert out.rows("id, price") == [(number, 2) for number in range(30)]
    database.execute(f"ALTER TABLE {table} ALTER price TYPE DOUBLE PRECISION")
    with writing(database) as out:
        out.put(*(out.record({"id": number, "price": 1.5}, schema=schema) for number in range(30, 60)))
        assert [row[0] for row in out.rows("id")] == [number for number in range(60) if number != 33]
        assert [offset for offset, _ in out.reported] == [3]
    database.execute(f"CREATE TABLE {table}_kept (id BIGINT, price DOUBLE PRECISION)")
    database.execute(
        f"CREATE RULE keep AS ON INSERT TO {table} "
        f"DO INSTEAD INSERT INTO {table}_kept VALUES (NEW.id, NEW.price)"
    )
    with writing(database) as out:
        out.put(*(out.record({"id": number, "price": 1.5}, schema=schema) for number in range(60, 90)))
        assert len(out.rows("id")) == 59
        assert database.rows(f"SELECT count(*) FROM {table}_kept") == [(30,)]


@pytest.mark.postgres
def test_copy_that_is_refused_becomes_inserts(postgres_database: Database) -> None:
    """Row security: the server takes inserts of such a table, and no COPY."""
    table = postgres_database.table
    dialect = postgres_database.dialect
    dialect.execute(f"CREATE TABLE {table} (id BIGINT)")
    dialect.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    dialect.execute(f"CREATE POLICY all_rows ON {table} USING (true)")
    dialect.execute(f"CREATE ROLE writer_{table}")
    dialect.execute(f"GRANT INSERT, SELECT ON {table} TO writer_{table}")
    dialect.execute(f"SET ROLE writer_{table}")
    bulk = dialect.bulk_insert(table, [("id", dialect.columns(dialect.find_table(table))[0], LONG)])
    assert bulk is not None
    for start in (0, 30):
        dialect.begin()
        rows = [[number] for number in range(start, start + 30)]
        dialect.write_many(f"INSERT INTO {table}(id) VALUES(%s)", rows, bulk)
        dialect.commit()
    assert dialect.rows(f"SELECT count(*) FROM {table}") == [(60,)]
    dialect.execute("RESET ROLE")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", (None, None, "orders")),
        ("shop.orders", (None, "shop", "orders")),
        ("plant.shop.orders", ("plant", "shop", "orders")),
        ('"shop.orders"', (None, None, "shop.orders")),
        ('shop."eu.orders"', (None, "shop", "eu.orders")),
        ('"a.b"."c.d"."e.f"', ("a.b", "c.d", "e.f")),
        ('half"quoted', (None, None, 'half"quoted')),
    ],
)
def test_names_of_tables(sqlite: Database, name: str, parts: tuple[str | None, ...]) -> None:
    found = sqlite.dialect.find_table(name)
    assert (found.catalog, found.schema, found.name) == parts


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", '"a', '""', 'a."b', "a.b.c.d", '"a"b'])
def test_names_that_no_table_has(sqlite: Database, name: str) -> None:
    with pytest.raises(ConnectError, match="Invalid fully qualified name"):
        sqlite.dialect.find_table(name)


def of_topic(record: SinkRecord, topic: str) -> SinkRecord:
    return replace(record, topic=topic, original_topic=topic)


@pytest.mark.postgres
def test_a_topic_with_dots_names_schema_and_table(postgres_database: Database) -> None:
    """As for Confluent's and Aiven's sinks: dots separate, whether they come from the format or the topic."""
    database = postgres_database
    database.execute("CREATE SCHEMA IF NOT EXISTS shop")
    table = database.table
    count = f"SELECT count(*) FROM shop.{table}"
    with writing(database) as out:
        out.put(of_topic(out.record({"id": 1, "name": "bell"}), f"shop.{table}"))
    assert database.rows(count) == [(1,)]
    catalog = database.rows("SELECT current_database()")[0][0]
    with writing(database, table_name_format=f"{catalog}.shop.${{topic}}") as out:
        out.put({"id": 2, "name": "saddle"})
    assert database.rows(count) == [(2,)]
    elsewhere = writing(database, table_name_format="elsewhere.shop.${topic}")
    with elsewhere as out, pytest.raises(ConnectError, match="cross-database"):
        out.put({"id": 3, "name": "gear"})
    with writing(database, table_name_format='"${topic}"') as out:
        out.put(of_topic(out.record({"id": 4, "name": "chain"}), f"shop.{table}"))
    assert database.rows(f'SELECT id FROM "shop.{table}"') == [(4,)]
    assert database.rows(count) == [(2,)]


@pytest.mark.postgres
def test_names_without_quotes_are_the_servers_own(postgres_database: Database) -> None:
    """PostgreSQL makes small letters of them; in quotes they would be another table."""
    database = postgres_database
    database.execute("CREATE SCHEMA IF NOT EXISTS shop")
    for setting in ({"quote_sql_identifiers": "never"}, {"sql_quote_identifiers": "false"}):
        with writing(database, table_name_format="Shop.Never_${topic}", **setting) as out:
            out.put({"id": 1, "name": "bell"})
    assert database.rows(f"SELECT count(*) FROM shop.never_{database.table}") == [(2,)]
    with writing(database, table_name_format="shop.Always_${topic}") as out:
        out.put({"id": 1, "name": "bell"})
    assert database.rows(f'SELECT count(*) FROM shop."Always_{database.table}"') == [(1,)]


def test_sqlite_has_schemas_where_databases_are_attached(sqlite: Database) -> None:
    with writing(sqlite, table_name_format="main.${topic}") as out:
        out.put({"id": 1, "name": "bell"})
        out.put({"id": 2, "name": "saddle"})
        assert out.rows("id") == [(1,), (2,)]
    with writing(sqlite) as out, pytest.raises(ConnectError, match="unknown database"):
        out.put(of_topic(out.record({"id": 3, "name": "gear"}), "nowhere.orders"))
    with writing(sqlite, table_name_format='"${topic}"') as out:
        out.put(of_topic(out.record({"id": 3, "name": "gear"}), "nowhere.orders"))
    assert sqlite.rows('SELECT id FROM "nowhere.orders"') == [(3,)]
    with writing(sqlite, table_name_format="${topic}", quote_sql_identifiers="never") as out:
        out.put(of_topic(out.record({"id": 4, "name": "chain"}), "main.Orders"))
    assert sqlite.rows("SELECT id FROM orders") == [(4,)]


def test_tables_by_name_and_by_mapping(sqlite: Database) -> None:
    with writing(sqlite, table_name_format="k.${topic}", table_name_normalize="true") as out:
        out.put(of_topic(out.record({"id": 1, "name": "bell"}), "eu.orders-1"))
    assert sqlite.rows("SELECT id FROM k_eu_orders_1") == [(1,)]
    with writing(sqlite, topics_to_tables_mapping="eu.orders-1:first,eu.orders-2:main.second") as out:
        for number in (1, 2):
            out.put(of_topic(out.record({"id": number, "name": "bell"}), f"eu.orders-{number}"))
        with pytest.raises(ConnectError, match="no table for the topic"):
            out.put(of_topic(out.record({"id": 3, "name": "bell"}), "eu.orders-3"))
    assert sqlite.rows("SELECT id FROM first UNION SELECT id FROM second") == [(1,), (2,)]
    wrong = JdbcSink.validate(sqlite.settings | {"topics.to.tables.mapping": "a:b,c"})
    assert wrong["topics.to.tables.mapping"].errors


@pytest.mark.postgres
def test_upserts_go_by_copy_with_the_result_of_upserts(postgres_database: Database) -> None:
    """Many rows at once: new ones, changed ones, several of one key, several batches in one transaction, and
    one that the database refuses."""
    database, table = postgres_database, postgres_database.table
    database.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, name VARCHAR(10) CHECK (name <> 'bad'))")
    copied = "SELECT count(*) FROM pg_class WHERE relname LIKE 'millstream!_%' ESCAPE '!'"
    with writing(
        database, insert_mode="upsert", pk_mode="record_value", pk_fields="id", batch_size="100"
    ) as out:
        out.put(*({"id": number, "name": f"a{number}"} for number in range(250)))
        assert database.rows(copied) == [(1,)]
        assert out.rows() == [(number, f"a{number}") for number in range(250)]
        changes = [{"id": number % 200, "name": f"b{number}"} for number in range(100, 500)]
        out.put(*changes)
        expected = {number: f"a{number}" for number in range(250)}
        expected |= {int(one["id"]): str(one["name"]) for one in changes}
        assert out.rows() == sorted(expected.items())
        out.put(*({"id": number, "name": "bad" if number == 30 else "c"} for number in range(60)))
        assert [offset for offset, _ in out.reported] == [680]
        expected |= {number: "c" for number in range(60) if number != 30}
        assert out.rows() == sorted(expected.items())
    wait_until(lambda: database.rows(copied) == [(0,)])  # it goes with its connection


@pytest.mark.postgres
def test_upserts_without_the_right_to_temporary_tables(postgres_database: Database) -> None:
    database, table = postgres_database, postgres_database.table
    dialect = database.dialect
    database.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY)")
    database.execute(f"CREATE ROLE upsert_{table}")
    database.execute(f"GRANT INSERT, SELECT, UPDATE ON {table} TO upsert_{table}")
    name = dialect.rows("SELECT current_database()")[0][0]
    database.execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    try:
        dialect.execute(f"SET ROLE upsert_{table}")
        columns = [("id", dialect.columns(dialect.find_table(table))[0], LONG)]
        bulk = dialect.bulk_upsert(table, columns, ["id"], [])
        assert bulk is not None
        for start in (0, 20):
            dialect.begin()
            rows = [[number] for number in range(start, start + 30)]
            dialect.write_many(dialect.upsert_sql(table, ["id"], []), rows, bulk)
            dialect.commit()
        assert dialect.rows(f"SELECT count(*) FROM {table}") == [(50,)]
    finally:
        dialect.execute("RESET ROLE")
        database.execute(f"GRANT TEMPORARY ON DATABASE {name} TO PUBLIC")
