"""Change capture: Debezium's records, and each change once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from millstream.connect.api import SinkContext, SourceContext
from millstream.connect.connectors.jdbc.sink import JdbcSinkTask
from millstream.connect.connectors.postgres_cdc.source import PostgresCdcSource, PostgresCdcTask
from millstream.connect.data.record import SinkRecord, SourceRecord
from millstream.connect.data.struct import validate_value
from millstream.connect.errors import ConnectError, RetriableError
from millstream.connect.transforms.plugins import make_transform
from tests.connect.conftest import Worker
from tests.connect.test_worker import consume
from tests.support.databases import PASSWORD, USER, PostgresServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres
_numbers = itertools.count(1)


class Shop:
    """A schema of its own in the server, and a task that captures it."""

    def __init__(self, server: PostgresServer) -> None:
        number = next(_numbers)
        self.name, self.server = f"shop{number}", server
        self.connection = psycopg.connect(server.conninfo, autocommit=True)
        self.execute(f"CREATE SCHEMA {self.name}; SET search_path = {self.name}")
        self.settings = {
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.dbname": "postgres",
            "topic.prefix": "cdc",
            "slot.name": f"slot{number}",
            "publication.name": f"publication{number}",
            "schema.include.list": self.name,
        }
        self.offset: dict[str, Any] | None = None

    def execute(self, sql: str) -> None:
        self.connection.execute(sql.encode())

    @contextmanager
    def task(self, **more: str) -> Iterator[Capturing]:
        settings = self.settings | {name.replace("_", "."): value for name, value in more.items()}
        task = PostgresCdcTask()
        task.start(settings, SourceContext(lambda _: self.offset))
        try:
            yield Capturing(self, task)
        finally:
            task.stop()

    def close(self) -> None:
        slot = self.settings["slot.name"]
        # The server may not have noticed yet that the task is gone.
        active = "SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = %s"
        wait_until(lambda: not self.connection.execute(active, [slot]).fetchall())
        self.connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            [slot],
        )
        self.connection.close()


class Capturing:
    def __init__(self, shop: Shop, task: PostgresCdcTask) -> None:
        self.shop, self.task = shop, task

    def poll(self) -> list[SourceRecord]:
        """What is returned counts as written, but the task is not told so."""
        try:
            records = list(self.task.poll())
        except RetriableError as error:
            assert "in use" in str(error)  # by the one before, for a moment
            return []
        for record in records:
            if record.value is not None:
                assert record.value_schema is not None
                validate_value(record.value_schema, record.value)
            self.shop.offset = dict(record.source_offset or {})
        return records

    def take(self, count: int) -> list[SourceRecord]:
        found: list[SourceRecord] = []

        def enough() -> bool:
            found.extend(self.poll())
            return len(found) >= count

        wait_until(enough)
        return found

    def ready(self) -> None:
        """The slot is there: what is done now is captured."""
        self.poll()


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[Shop]:
    one = Shop(postgres)
    yield one
    one.close()


def row(record: SourceRecord, which: str = "after") -> dict[str, Any] | None:
    struct = record.value.get(which)
    return None if struct is None else {field.name: struct.get(field.name) for field in struct.schema.fields}


def test_a_snapshot_and_then_changes(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL)")
    shop.execute("INSERT INTO items VALUES (1, 'bell'), (2, 'saddle')")
    with shop.task() as cdc:
        first = cdc.take(2)
        assert [(one.value.get("op"), row(one)) for one in first] == [
            ("r", {"id": 1, "name": "bell"}),
            ("r", {"id": 2, "name": "saddle"}),
        ]
        assert [one.value.get("source").get("snapshot") for one in first] == ["first", "last"]
        cdc.poll()
        shop.execute("INSERT INTO items VALUES (3, 'lamp')")
        shop.execute("UPDATE items SET name = 'horn' WHERE id = 1")
        shop.execute("DELETE FROM items WHERE id = 2")
        made, changed, gone, tombstone = cdc.take(4)
    topic = f"cdc.{shop.name}.items"
    assert made.topic == topic
    assert (made.value.get("op"), row(made, "before"), row(made)) == ("c", None, {"id": 3, "name": "lamp"})
    assert (changed.value.get("op"), row(changed)) == ("u", {"id": 1, "name": "horn"})
    assert (gone.value.get("op"), row(gone, "before"), row(gone)) == ("d", {"id": 2, "name": ""}, None)
    assert tombstone.value is None
    assert tombstone.key.get("id") == gone.key.get("id") == 2
    assert made.key_schema is not None
    assert made.value_schema is not None
    assert made.key_schema.name == f"{topic}.Key"
    assert made.value_schema.name == f"{topic}.Envelope"
    assert made.value.get("after").schema.name == f"{topic}.Value"
    source = made.value.get("source")
    assert source.schema.name == "io.debezium.connector.postgresql.Source"
    assert (source.get("connector"), source.get("name"), source.get("db")) == (
        "postgresql",
        "cdc",
        "postgres",
    )
    assert (source.get("schema"), source.get("table"), source.get("snapshot")) == (
        shop.name,
        "items",
        "false",
    )
    assert source.get("lsn") > 0
    assert source.get("txId") > 0
    offset = dict(made.source_offset or {})
    assert made.source_partition == {"server": "cdc"}
    assert offset["lsn"] == source.get("lsn")


def test_rows_of_changes_are_what_a_jdbc_sink_takes(shop: Shop) -> None:
    """Debezium's ExtractNewRecordState between the two: the other table is the same, deletions included."""
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL)")
    shop.execute("INSERT INTO items VALUES (1, 'bell'), (2, 'saddle')")
    with shop.task() as cdc:
        changes = cdc.take(2)
        cdc.poll()
        shop.execute("INSERT INTO items VALUES (3, 'lamp')")
        shop.execute("UPDATE items SET name = 'horn' WHERE id = 1")
        shop.execute("DELETE FROM items WHERE id = 2")
        changes += cdc.take(4)
    transform = make_transform("ExtractNewRecordState", {"add.fields": "op"})
    rows = [one for one in map(transform.apply, changes) if one is not None]
    assert len(rows) == len(changes) - 1, "the tombstone goes: the deletion has become one"
    sink = JdbcSinkTask()
    settings = {
        "connection.url": f"jdbc:postgresql://127.0.0.1:{shop.server.port}/postgres",
        "connection.user": USER,
        "connection.password": PASSWORD,
        "table.name.format": f"{shop.name}.copied",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "auto.create": "true",
    }
    sink.start(settings, SinkContext(lambda record, error: pytest.fail(str(error))))
    sink.put(
        [
            SinkRecord(
                topic=one.topic,
                partition=0,
                key_schema=one.key_schema,
                key=one.key,
                value_schema=one.value_schema,
                value=one.value,
                offset=number,
            )
            for number, one in enumerate(rows)
        ]
    )
    sink.stop()
    copied = shop.connection.execute("SELECT id, name, __op FROM copied ORDER BY id").fetchall()
    assert copied == [(1, "horn", "u"), (3, "lamp", "c")]


def test_a_snapshot_says_where_tables_begin_and_end(shop: Shop) -> None:
    for name, count in (("a_many", 4), ("b_one", 1), ("c_none", 0), ("d_many", 3), ("e_none", 0)):
        shop.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        shop.execute(f"INSERT INTO {name} SELECT generate_series(1, {count})")
    with shop.task(**{"snapshot.fetch.size": "2"}) as cdc:
        found = [one.value.get("source") for one in cdc.take(8)]
    assert [(one.get("table"), one.get("snapshot")) for one in found] == [
        ("a_many", "first"),
        ("a_many", "true"),
        ("a_many", "true"),
        ("a_many", "last_in_data_collection"),
        ("b_one", "last_in_data_collection"),
        ("d_many", "first_in_data_collection"),
        ("d_many", "true"),
        ("d_many", "last"),
    ]


def test_each_change_once_although_nothing_was_confirmed(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY)")
    read: list[int] = []
    with shop.task(snapshot_mode="never") as cdc:
        cdc.ready()
    shop.execute("INSERT INTO items SELECT generate_series(1, 7)")
    shop.execute("INSERT INTO items SELECT generate_series(8, 9)")
    while len(read) < 9:
        # Each task reads three changes and is gone: in the middle of a transaction.
        with shop.task(snapshot_mode="never", max_batch_size="3") as cdc:
            read += [one.key.get("id") for one in cdc.take(1)]
    assert read == list(range(1, 10))


def test_what_is_confirmed_does_not_come_again(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY)")

    def confirmed() -> str:
        sql = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
        found = shop.connection.execute(sql, [shop.settings["slot.name"]]).fetchone()
        return str(found[0]) if found else ""

    with shop.task(snapshot_mode="never") as cdc:
        cdc.ready()
        before = confirmed()
        shop.execute("INSERT INTO items VALUES (1)")
        assert len(cdc.take(1)) == 1
        cdc.poll()
        assert confirmed() == before
        cdc.task.committed()
        wait_until(lambda: confirmed() != before)


def test_a_snapshot_that_was_interrupted_is_taken_again(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY)")
    shop.execute("INSERT INTO items SELECT generate_series(1, 10)")
    with shop.task(snapshot_fetch_size="4") as cdc:
        assert [one.key.get("id") for one in cdc.take(1)] == [1, 2, 3]
    shop.execute("INSERT INTO items VALUES (11)")
    with shop.task(snapshot_fetch_size="4") as cdc:
        assert [one.key.get("id") for one in cdc.take(11)] == list(range(1, 12))
        shop.execute("INSERT INTO items VALUES (12)")
        assert [one.key.get("id") for one in cdc.take(1)] == [12]
    with shop.task() as cdc:
        shop.execute("INSERT INTO items VALUES (13)")
        assert [(one.value.get("op"), one.key.get("id")) for one in cdc.take(1)] == [("c", 13)]


def test_another_key_is_a_deletion_and_an_insertion(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    with shop.task(snapshot_mode="never") as cdc:
        cdc.ready()
        shop.execute("INSERT INTO items VALUES (1, 'a')")
        shop.execute("UPDATE items SET id = 2")
        _, gone, tombstone, made = cdc.take(4)
    assert [gone.value.get("op"), tombstone.value, made.value.get("op")] == ["d", None, "c"]
    assert [gone.key.get("id"), made.key.get("id")] == [1, 2]
    assert [one.headers[0].name for one in (gone, made)] == ["__debezium.newkey", "__debezium.oldkey"]


def test_the_whole_row_before_and_large_values(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, big text, small int)")
    shop.execute("ALTER TABLE items ALTER COLUMN big SET STORAGE EXTERNAL")
    with shop.task(snapshot_mode="never") as cdc:
        cdc.ready()
        shop.execute("INSERT INTO items VALUES (1, repeat('x', 9000), 1)")
        shop.execute("UPDATE items SET small = 2")
        shop.execute("ALTER TABLE items REPLICA IDENTITY FULL")
        shop.execute("UPDATE items SET small = 3")
        _, unavailable, whole = cdc.take(3)
    assert (row(unavailable) or {})["big"] == "__debezium_unavailable_value"
    assert (row(whole) or {})["big"] == "x" * 9000
    assert (row(whole, "before") or {})["small"] == 2


def test_types(shop: Shop) -> None:
    shop.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    uuid = "00000000-0000-0000-0000-00000000000a"
    columns = {
        "i2": ("smallint", "7", None, 7),
        "i8": ("bigint", "-9", None, -9),
        "f8": ("double precision", "1.5", None, 1.5),
        "ok": ("boolean", "true", None, True),
        "n": ("numeric(8,2)", "12.5", "org.apache.kafka.connect.data.Decimal", Decimal("12.50")),
        "d": ("date", "'1970-01-11'", "io.debezium.time.Date", 10),
        "t": ("time", "'00:00:01.5'", "io.debezium.time.MicroTime", 1_500_000),
        "ts": ("timestamp", "'1970-01-01 00:00:01.5'", "io.debezium.time.MicroTimestamp", 1_500_000),
        "ts3": ("timestamp(3)", "'1970-01-01 00:00:01.5'", "io.debezium.time.Timestamp", 1500),
        "tz": ("timestamptz", "'2026-01-01 12:00:00+02'", "io.debezium.time.ZonedTimestamp",
               "2026-01-01T10:00:00Z"),
        "u": ("uuid", f"'{uuid}'", "io.debezium.data.Uuid", uuid),
        "j": ("jsonb", "'{\"a\": 1}'", "io.debezium.data.Json", '{"a": 1}'),
        "e": ("mood", "'sad'", "io.debezium.data.Enum", "sad"),
        "b": ("bytea", "'\\x00ff'", None, b"\x00\xff"),
        "a": ("int[]", "'{1,2}'", None, "{1,2}"),
        "nothing": ("text", "NULL", None, None),
    }  # fmt: skip
    listed = ", ".join(f"{name} {kind}" for name, (kind, *_) in columns.items())
    values = ", ".join(value for _, value, *_ in columns.values())
    shop.execute(f"CREATE TABLE typed (id int PRIMARY KEY, {listed})")
    shop.execute(f"INSERT INTO typed VALUES (1, {values})")
    with shop.task() as cdc:
        records = cdc.take(1)
        cdc.poll()
        shop.execute(f"INSERT INTO typed VALUES (2, {values})")
        records += cdc.take(1)
    for record in records:
        after = record.value.get("after")
        for name, (_, _, schema_name, expected) in columns.items():
            assert after.get(name) == expected, name
            assert after.schema.field(name).schema.name == schema_name, name
            assert after.schema.field(name).schema.optional


@pytest.mark.parametrize(("mode", "expected"), [("string", "1.5"), ("double", 1.5)])
def test_decimals_in_other_ways(shop: Shop, mode: str, expected: Any) -> None:
    shop.execute("CREATE TABLE typed (id int PRIMARY KEY, n numeric)")
    shop.execute("INSERT INTO typed VALUES (1, 1.5)")
    with shop.task(decimal_handling_mode=mode) as cdc:
        assert cdc.take(1)[0].value.get("after").get("n") == expected
    shop.offset = None
    with shop.task() as cdc:
        variable = cdc.take(1)[0].value.get("after").get("n")
        assert (variable.get("scale"), variable.get("value")) == (1, b"\x0f")


def test_only_what_is_wanted_and_columns_that_come(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, secret text); CREATE TABLE other (id int)")
    only = {
        "table_include_list": rf"{shop.name}\.items",
        "column_exclude_list": r".*\.secret",
        "publication_autocreate_mode": "filtered",
    }
    with shop.task(snapshot_mode="never", **only) as cdc:
        cdc.ready()
        shop.execute("INSERT INTO other VALUES (1)")
        shop.execute("INSERT INTO items VALUES (1, 'x')")
        shop.execute("ALTER TABLE items ADD COLUMN size int")
        shop.execute("INSERT INTO items VALUES (2, 'x', 5)")
        shop.execute("TRUNCATE items")
        first, second = cdc.take(2)
        assert (row(first) or {})["id"] == 1
        assert "secret" not in (row(first) or {})
        assert row(second) == {"id": 2, "size": 5}
        found = shop.connection.execute(
            "SELECT tablename FROM pg_publication_tables WHERE pubname = %s",
            [shop.settings["publication.name"]],
        ).fetchall()
        assert found == [("items",)]


def test_a_slot_has_one_reader(shop: Shop) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY)")
    with shop.task(snapshot_mode="never") as cdc:
        cdc.ready()
        with (
            shop.task(snapshot_mode="never") as other,
            pytest.raises(RetriableError, match="in use by somebody"),
        ):
            other.task.poll()


def test_settings_that_make_no_sense(shop: Shop) -> None:
    wrong = shop.settings | {"slot.name": "No-Slot", "snapshot.mode": "sometimes", "table.include.list": "("}
    found = PostgresCdcSource.validate(wrong)
    assert {name for name, value in found.items() if value.errors} == {
        "slot.name",
        "snapshot.mode",
        "table.include.list",
    }
    with (
        shop.task(publication_autocreate_mode="disabled") as cdc,
        pytest.raises(ConnectError, match="is missing"),
    ):
        cdc.task.poll()


def test_through_a_worker_that_is_replaced(
    make_worker: Callable[..., Worker], connect_broker: str, shop: Shop
) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    shop.execute("INSERT INTO items VALUES (1, 'before')")
    config = shop.settings | {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "value.converter": "JsonConverter",
        "key.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "key.converter.schemas.enable": "false",
    }
    worker = make_worker()
    worker.http.put("/connectors/cdc/config", json=config).raise_for_status()
    topic = f"cdc.{shop.name}.items"
    assert len(consume(connect_broker, topic, 1)) == 1
    shop.execute("INSERT INTO items SELECT number, 'n' FROM generate_series(2, 500) number")
    worker.stop()
    shop.execute("DELETE FROM items WHERE id = 2")
    again = make_worker()
    found = consume(connect_broker, topic, 502)
    assert len(found) == 502
    assert [key for key, _ in found[:500]] == [b'{"id":%d}' % number for number in range(1, 501)]
    assert [key for key, _ in found[500:]] == [b'{"id":2}'] * 2
    assert found[-1][1] is None
    again.stop()
