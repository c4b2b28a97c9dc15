"""The three databases, each behind the same few methods."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.connect.connectors.jdbc.dialect import Dialect, make_dialect
from tests.support.databases import (
    PASSWORD,
    USER,
    MariaDbServer,
    PostgresServer,
    mariadb_server,
    postgres_server,
)

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    with mariadb_server() as server:
        yield server


class Database:
    """`table` is a new name for each test. `execute` is done for good when it returns."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self.table = f"t{next(_numbers)}"
        self.dialect = self.connect()

    def connect(self) -> Dialect:
        dialect = make_dialect(self.url, USER, PASSWORD)
        dialect.connect()
        return dialect

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return self.dialect.execute(sql.replace("?", self.dialect.mark), parameters)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.dialect.rows(sql, parameters)]

    @property
    def settings(self) -> dict[str, str]:
        return {"connection.url": self.url, "connection.user": USER, "connection.password": PASSWORD}

    def type(self, name: str) -> str:
        """Of a column: `id` counts up, `moment` has microseconds where there are such."""
        moment, second = {
            "sqlite": ("TIMESTAMP NOT NULL", "TIMESTAMP NOT NULL"),
            "postgres": ("TIMESTAMP NOT NULL", "TIMESTAMP(0) NOT NULL"),
            "mariadb": ("DATETIME(6) NOT NULL", "DATETIME NOT NULL"),
        }[self.kind]
        counting = {
            "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
            "postgres": "BIGSERIAL PRIMARY KEY",
            "mariadb": "BIGINT AUTO_INCREMENT PRIMARY KEY",
        }
        return {"id": counting[self.kind], "moment": moment, "second": second}[name]


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Database]:
    database = Database("sqlite", f"jdbc:sqlite:{tmp_path / 'shop.db'}")
    yield database
    database.dialect.close()


def _server_database(kind: str, url: str) -> Iterator[Database]:
    database = Database(kind, url)
    yield database
    database.dialect.close()


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[Database]:
    yield from _server_database("postgres", postgres.url)


@pytest.fixture
def mariadb_database(mariadb: MariaDbServer) -> Iterator[Database]:
    yield from _server_database("mariadb", mariadb.url)


KINDS = [
    pytest.param("sqlite", id="sqlite"),
    pytest.param("postgres_database", id="postgres", marks=pytest.mark.postgres),
    pytest.param("mariadb_database", id="mariadb", marks=pytest.mark.mariadb),
]


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=KINDS[1:])
def server_database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found
