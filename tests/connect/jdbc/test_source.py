"""The JDBC source's task: what it reads in each mode, and that no row is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from millstream.connect.api import SourceContext
from millstream.connect.connectors.jdbc.source import JdbcSource, JdbcSourceTask
from millstream.connect.connectors.jdbc.source_offset import Gap, SourceOffset
from millstream.connect.data.record import SourceRecord
from millstream.connect.data.struct import validate_value
from millstream.connect.errors import ConnectError
from tests.connect.jdbc.conftest import Database
from tests.support.waiting import wait_until

Offsets = dict[str, dict[str, Any]]


class Reading:
    """A task, and what it has read. `again` is the next one, after the offsets of this one."""

    def __init__(self, settings: dict[str, str], offsets: Offsets) -> None:
        self.settings, self.offsets = settings, offsets
        self.task = JdbcSourceTask()
        self.task.start(
            settings, SourceContext(lambda partition: offsets.get(str(sorted(partition.items()))))
        )

    def poll(self) -> list[SourceRecord]:
        records = list(self.task.poll())
        for record in records:
            assert record.value_schema is not None
            validate_value(record.value_schema, record.value)
            if record.source_partition is not None:
                self.offsets[str(sorted(record.source_partition.items()))] = dict(record.source_offset or {})
        return records

    def values(self, name: str, count: int) -> list[Any]:
        """Of so many records."""
        found: list[SourceRecord] = []

        def enough() -> bool:
            found.extend(self.poll())
            return len(found) >= count

        wait_until(enough)
        return [record.value.get(name) for record in found]

    def again(self) -> Reading:
        self.task.stop()
        return Reading(self.settings, self.offsets)


@contextmanager
def reading(database: Database, offsets: Offsets | None = None, **more: str) -> Iterator[Reading]:
    settings = {
        **database.settings,
        "topic.prefix": "db-",
        "table.whitelist": database.table,
        "poll.interval.ms": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    settings = {name: value for name, value in settings.items() if value}
    errors = [error for value in JdbcSource.validate(settings).values() for error in value.errors]
    assert not errors
    one = Reading(settings, {} if offsets is None else offsets)
    try:
        yield one
    finally:
        one.task.stop()


def test_bulk_reads_everything_again_and_again(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (name VARCHAR(20))")
    for number in range(7):
        database.execute(f"INSERT INTO {database.table} VALUES (?)", [f"n{number}"])
    with reading(database, mode="bulk", batch_max_rows="3") as one:
        assert sorted(one.values("name", 7)) == [f"n{number}" for number in range(7)]
        assert sorted(one.values("name", 7)) == [f"n{number}" for number in range(7)]
        assert one.offsets == {}


def test_incrementing_goes_on_behind_the_last_id(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id {database.type('id')}, name VARCHAR(20))")
    for number in range(5):
        database.execute(f"INSERT INTO {database.table} (name) VALUES (?)", [f"n{number}"])
    with reading(database, mode="incrementing", batch_max_rows="2") as one:
        assert one.values("id", 5) == [1, 2, 3, 4, 5]
        assert one.poll() == []
        database.execute(f"INSERT INTO {database.table} (name) VALUES (?)", ["late"])
        two = one.again()
        records = two.poll()
        assert [record.value.get("name") for record in records] == ["late"]
        assert records[0].topic == f"db-{database.table}"
        assert records[0].value_schema is not None
        assert records[0].value_schema.name == database.table
        assert records[0].key is None
        partition = dict(records[0].source_partition or {})
        assert partition["protocol"] == "1"
        assert partition["table"].split(".")[-1] == database.table
        assert dict(records[0].source_offset or {}) == {"incrementing": 6}
        two.task.stop()


def test_an_id_that_commits_late_is_not_lost(server_database: Database) -> None:
    database = server_database
    database.execute(f"CREATE TABLE {database.table} (id {database.type('id')}, name VARCHAR(20))")
    slow = database.connect()
    slow.begin()
    database.execute(f"INSERT INTO {database.table} (name) VALUES ('first')")
    slow.execute(f"INSERT INTO {database.table} (name) VALUES ('slow')")
    database.execute(f"INSERT INTO {database.table} (name) VALUES ('fast')")
    with reading(database, mode="incrementing") as one:
        assert one.values("name", 2) == ["first", "fast"]
        assert one.poll() == []
        slow.commit()
        two = one.again()
        assert two.values("name", 1) == ["slow"]
        assert two.poll() == []
        assert list(two.offsets.values()) == [{"incrementing": 3}]
        two.task.stop()
    slow.close()


def test_rows_with_the_same_timestamp_stay_together(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (name VARCHAR(20), at {database.type('moment')})")
    times = ["2026-01-01 10:00:00"] * 2 + ["2026-01-01 10:00:01"] * 5 + ["2026-01-01 10:00:02"]
    for number, when in enumerate(times):
        database.execute(f"INSERT INTO {database.table} VALUES (?, ?)", [f"n{number}", when])
    read: list[str] = []
    offsets: Offsets = {}
    # As if it crashed after each poll: a new task each time.
    for _ in range(4):
        with reading(
            database, offsets, mode="timestamp", timestamp_column_name="at", batch_max_rows="3"
        ) as one:
            read += [record.value.get("name") for record in one.poll()]
    assert sorted(read) == [f"n{number}" for number in range(8)]
    assert list(offsets.values()) == [{"timestamp": 1767261602000, "timestamp_nanos": 0}]


def test_a_second_that_is_not_over_is_waited_for(database: Database) -> None:
    """A column that tells seconds apart can get further rows of the same second."""
    database.execute(f"CREATE TABLE {database.table} (name VARCHAR(20), at {database.type('second')})")
    now = database.dialect.now()

    def insert(name: str) -> None:
        when = now.replace(tzinfo=None, microsecond=0).isoformat(" ")
        database.execute(f"INSERT INTO {database.table} VALUES (?, ?)", [name, when])

    with reading(database, mode="timestamp", timestamp_column_name="at") as one:
        insert("a")
        read = [record.value.get("name") for record in one.poll()]
        insert("b")
        read += one.values("name", 2 - len(read))
        assert sorted(read) == ["a", "b"]


def test_a_timestamp_that_commits_late_is_not_lost(server_database: Database) -> None:
    database = server_database
    now = "clock_timestamp()" if database.kind == "postgres" else "UTC_TIMESTAMP(6)"
    database.execute(f"CREATE TABLE {database.table} (name VARCHAR(20), at {database.type('moment')})")
    slow = database.connect()
    slow.begin()
    slow.execute(f"INSERT INTO {database.table} VALUES ('slow', {now})")
    database.execute(f"INSERT INTO {database.table} VALUES ('fast', {now})")
    zone = {"db.timezone": "UTC"}
    with reading(database, mode="timestamp", timestamp_column_name="at", **zone) as one:
        assert one.poll() == []
        slow.commit()
        assert one.values("name", 2) == ["slow", "fast"]
    slow.close()


def test_timestamp_and_id_see_changes(database: Database) -> None:
    columns = f"id {database.type('id')}, name VARCHAR(20), at {database.type('moment')}"
    database.execute(f"CREATE TABLE {database.table} ({columns})")
    for number in range(5):
        database.execute(
            f"INSERT INTO {database.table} (name, at) VALUES (?, ?)",
            [f"n{number}", "2026-01-01 10:00:00.500"],
        )
    settings = {"mode": "timestamp+incrementing", "timestamp_column_name": "at", "batch_max_rows": "2"}
    with reading(database, **settings) as one:
        assert one.values("id", 5) == [1, 2, 3, 4, 5]
        database.execute(
            f"UPDATE {database.table} SET name = 'new', at = ? WHERE id = 2", ["2026-01-01 10:00:01.250"]
        )
        two = one.again()
        record = two.poll()[0]
        assert (record.value.get("id"), record.value.get("name")) == (2, "new")
        assert record.value.get("at") == datetime(2026, 1, 1, 10, 0, 1, 250000, UTC)
        assert dict(record.source_offset or {}) == {
            "incrementing": 2,
            "timestamp": 1767261601250,
            "timestamp_nanos": 250_000_000,
        }
        assert two.poll() == []
        two.task.stop()


def test_only_rows_after_an_initial_time(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (name VARCHAR(20), at {database.type('moment')})")
    for year in (2024, 2025, 2026):
        database.execute(
            f"INSERT INTO {database.table} VALUES (?, ?)", [f"y{year}", f"{year}-01-01 00:00:00"]
        )
    settings = {"mode": "timestamp", "timestamp_column_name": "at", "timestamp_initial": "1719792000000"}
    with reading(database, **settings) as one:
        assert one.values("name", 2) == ["y2025", "y2026"]


def test_a_query_with_conditions_of_its_own(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id {database.type('id')}, name VARCHAR(20))")
    for number in range(6):
        database.execute(f"INSERT INTO {database.table} (name) VALUES (?)", [f"n{number % 2}"])
    query = f"SELECT id, name, id * 2 AS twice FROM {database.table} WHERE name LIKE '%1'"
    settings = {
        "mode": "incrementing",
        "incrementing_column_name": "id",
        "table_whitelist": "",
        "query": query,
    }
    with reading(database, **settings) as one:
        records = one.poll()
        assert [record.value.get("twice") for record in records] == [4, 8, 12]
        assert records[0].topic == "db-"
        assert records[0].source_partition == {"query": "query"}
        assert one.poll() == []
    with reading(database, mode="bulk", table_whitelist="", query=query) as one:
        assert one.values("id", 3) == [2, 4, 6]


def test_tables_come_and_go(database: Database) -> None:
    other = f"{database.table}_new"
    database.execute(f"CREATE TABLE {database.table} (id {database.type('id')}, name VARCHAR(20))")
    database.execute(f"INSERT INTO {database.table} (name) VALUES ('a')")
    settings = {
        "mode": "incrementing",
        "table_whitelist": f"{database.table},{other}",
        "table_poll_interval_ms": "0",
    }
    with reading(database, **settings) as one:
        assert one.values("name", 1) == ["a"]
        database.execute(f"CREATE TABLE {other} (id {database.type('id')}, name VARCHAR(20))")
        database.execute(f"INSERT INTO {other} (name) VALUES ('b')")
        assert one.values("name", 1) == ["b"]
        database.execute(f"DROP TABLE {other}")
        assert one.poll() == []
        database.execute(f"INSERT INTO {database.table} (name) VALUES ('c')")
        assert one.values("name", 1) == ["c"]


def test_a_table_that_vanishes_between_two_looks(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id {database.type('id')}, name VARCHAR(20))")
    database.execute(f"INSERT INTO {database.table} (name) VALUES ('a')")
    with reading(database, mode="incrementing") as one:
        assert one.values("name", 1) == ["a"]
        database.execute(f"DROP TABLE {database.table}")
        assert one.poll() == []
        assert one.poll() == []


def test_a_new_column_is_noticed(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (id {database.type('id')}, name VARCHAR(20))")
    database.execute(f"INSERT INTO {database.table} (name) VALUES ('a')")
    with reading(database, mode="incrementing") as one:
        assert one.values("name", 1) == ["a"]
        database.execute(f"ALTER TABLE {database.table} ADD COLUMN size INT")
        database.execute(f"INSERT INTO {database.table} (name, size) VALUES ('b', 7)")
        assert one.values("size", 1) == [7]


def test_tables_are_dealt_to_tasks() -> None:
    settings = {"connection.url": "jdbc:sqlite:x", "mode": "bulk", "topic.prefix": ""}
    assert len(JdbcSource({**settings, "table.whitelist": "a,b"}).task_settings(5)) == 2
    assert len(JdbcSource({**settings, "query": "select 1"}).task_settings(5)) == 1
    assert len(JdbcSource(settings).task_settings(5)) == 5


def test_every_table_has_one_task(sqlite: Database) -> None:
    names = [f"table{number}" for number in range(20)]
    for name in names:
        sqlite.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)")
        sqlite.execute(f"INSERT INTO {name} VALUES (1)")
    base = {**sqlite.settings, "mode": "incrementing", "incrementing.column.name": "id", "topic.prefix": ""}
    topics: list[str] = []
    for settings in JdbcSource(base).task_settings(3):
        one = Reading(settings, {})
        while records := one.poll():
            topics += [record.topic for record in records]
        one.task.stop()
    assert sorted(topics) == sorted(names)


@pytest.mark.parametrize(
    ("settings", "name", "error"),
    [
        ({"mode": "sometimes"}, "mode", "String must be one of: bulk, timestamp"),
        (
            {"mode": "timestamp"},
            "timestamp.column.name",
            "timestamp.column.name is required in mode timestamp",
        ),
        (
            {"mode": "bulk", "query": "select 1", "table.whitelist": "t"},
            "query",
            "Do not specify table.whitelist",
        ),
        (
            {"mode": "bulk", "connection.url": "jdbc:oracle:thin:secret"},
            "connection.url",
            "begin with one of",
        ),
        ({"mode": "bulk", "db.timezone": "Mars/Olympus"}, "db.timezone", "Invalid time zone"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, str], name: str, error: str) -> None:
    found = JdbcSource.validate({"connection.url": "jdbc:sqlite:x", "topic.prefix": "p", **settings})
    assert any(error in one for one in found[name].errors), found[name].errors
    assert "secret" not in "".join(found["connection.url"].errors)


def test_a_nullable_id_is_refused(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.table} (number INT, name VARCHAR(20))")
    for column, error in (
        ("number", "because this column is nullable"),
        ("nothing", "has no column nothing"),
    ):
        with (
            reading(database, mode="incrementing", incrementing_column_name=column) as one,
            pytest.raises(ConnectError, match=error),
        ):
            one.poll()


@pytest.mark.parametrize(
    ("mapping", "kinds"),
    [
        ("none", (Decimal, Decimal, Decimal)),
        ("precision_only", (int, Decimal, Decimal)),
        ("best_fit", (int, float, Decimal)),
        ("best_fit_eager_double", (int, float, float)),
    ],
)
def test_numeric_mapping(database: Database, mapping: str, kinds: tuple[type, ...]) -> None:
    database.execute(
        f"CREATE TABLE {database.table} (a NUMERIC(6,0), b NUMERIC(8,2), c NUMERIC(30,4), PRIMARY KEY (a))"
    )
    database.execute(f"INSERT INTO {database.table} VALUES (12, 3.5, 4.25)")
    with reading(database, mode="bulk", numeric_mapping=mapping) as one:
        value = one.poll()[0].value
    assert tuple(type(value.get(name)) for name in "abc") == kinds
    assert [float(value.get(name)) for name in "abc"] == [12, 3.5, 4.25]


@pytest.mark.parametrize("offset", [
    SourceOffset(),
    SourceOffset(7),
    SourceOffset(-7, gaps=(Gap(-12, -9, 5), Gap(1, 3, 6), Gap(-2, 4, 6))),
    SourceOffset(3, datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)),
    SourceOffset(None, datetime(1965, 1, 2, 3, 4, 5, 678901, UTC)),
])  # fmt: skip
def test_an_offset_is_read_as_it_was_written(offset: SourceOffset) -> None:
    assert SourceOffset.from_map(offset.to_map()) == offset


def test_gaps_close_and_are_forgotten() -> None:
    offset = SourceOffset(3).after_ids([4, 8, 10], 1000, keep_gaps=True)
    assert offset == SourceOffset(10, gaps=(Gap(5, 7, 1000), Gap(9, 9, 1000)))
    offset = offset.after_ids([6, 9], 2000, keep_gaps=True)
    assert offset.gaps == (Gap(5, 5, 1000), Gap(7, 7, 1000))
    assert offset.without_old_gaps(1001).gaps == ()
