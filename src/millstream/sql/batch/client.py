"""BATCH statements in the server: what they name, and their rows on the way to a client.

The driver is started with the first query, which takes Spark's seconds. A connection that nobody uses keeps
it until there has been no query for `ksql.batch.idle.ms`.

`BATCH CREATE TEMPORARY VIEW v USING jdbc OPTIONS (...)` makes files and databases known. The server remembers
such a statement until it ends, or until `BATCH DROP VIEW v`.
"""

from __future__ import annotations

import base64
import json
import logging
import pickle
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from millstream.host.driver import connect
from millstream.host.link import Link, LinkClosed
from millstream.sql.catalog import Catalog, Source
from millstream.sql.catalog_json import read_type, source_json
from millstream.sql.errors import SqlError
from millstream.sql.lexer import tokens
from millstream.sql.results import ResultColumn, ResultStream
from millstream.sql.statements import Batch

log = logging.getLogger("millstream.sql")

_COMMAND = (sys.executable, "-m", "millstream.sql.batch.driver")
_VIEW = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY|TEMP)\s+VIEW\s+(`[^`]+`|\w+)\s+USING\s", re.IGNORECASE
)
_DROP = re.compile(r"\s*DROP\s+VIEW\s+(?:IF\s+EXISTS\s+)?(`[^`]+`|\w+)\s*\Z", re.IGNORECASE)


class BatchQueries:
    """options   how Spark reaches the cluster and the registry
    external  whether files, databases, programs and Java may be used"""

    def __init__(
        self,
        folder: Path,
        options: dict[str, str],
        spark_settings: dict[str, str],
        *,
        external: bool,
        idle_seconds: float,
        max_rows: int,
    ) -> None:
        self._folder, self._options, self._spark_settings = folder, options, spark_settings
        self._external, self._idle_seconds, self._max_rows = external, idle_seconds, max_rows
        self._views: dict[str, str] = {}
        self._kept: Link | None = None
        self._used = 0.0
        self._lock = threading.Lock()

    # Views of files and databases

    def define(self, statement: Batch) -> str:
        """CREATE TEMPORARY VIEW and DROP VIEW. Returns what was done."""
        made, dropped = _VIEW.match(statement.sql), _DROP.match(statement.sql)
        if made is None and dropped is None:
            raise SqlError(
                "BATCH is followed by a query, CREATE TEMPORARY VIEW ... USING ..., or DROP VIEW",
                statement.location,
            )
        if not self._external:
            raise SqlError(
                "Views of files and databases need ksql.batch.external=true in the server's settings"
            )
        if made is not None:
            name = made[1].strip("`")
            self._views[name.upper()] = statement.sql
            return f"View {name} is known to BATCH queries until this server ends"
        assert dropped is not None
        name = dropped[1].strip("`")
        if self._views.pop(name.upper(), None) is None:
            raise SqlError(f"There is no view {name}")
        return f"View {name} is forgotten"

    # Queries

    def open(self, statement: Batch, catalog: Catalog) -> ResultStream:
        """Returns when Spark has understood the query; what is wrong with it is a SqlError."""
        names = _names(statement.sql)
        link = self._connect()
        try:
            arguments = {
                "sql": statement.sql,
                "sources": [source_json(one) for one in named_sources(catalog, names)],
                "views": [text for name, text in self._views.items() if name in names],
                "options": self._options,
                "external": self._external,
                "max_rows": self._max_rows,
            }
            link.send({"number": 0, "call": "query", "arguments": arguments})
            first = link.receive()
        except LinkClosed as error:
            raise SqlError(f"Spark has ended: {error}. Its log is {self._folder / 'driver.log'}") from None
        if "columns" not in first:
            link.close()
            raise SqlError(str(first.get("error")))
        columns = tuple(ResultColumn(name, read_type(type_)) for name, type_ in first["columns"])
        result = ResultStream(f"batch_{uuid.uuid4().hex[:12]}", columns)
        result.on_close.append(link.shut)
        threading.Thread(target=self._pass_on, args=(link, result), name="batch-query", daemon=True).start()
        return result

    def _pass_on(self, link: Link, result: ResultStream) -> None:
        try:
            while True:
                message = link.receive()
                if "rows" not in message:
                    result.end(error=message.get("error"))
                    return
                rows = pickle.loads(base64.b64decode(message["rows"]))  # noqa: S301 - it knows the secret
                if not all(result.put(row) for row in rows):
                    return
        except LinkClosed as error:
            result.end(error=f"Spark has ended: {error}")
        finally:
            link.close()
            self._used = time.monotonic()

    # The driver

    def _connect(self) -> Link:
        with self._lock:
            self._used = time.monotonic()
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "spark.json").write_text(json.dumps(self._spark_settings))
            try:
                link = connect(self._folder, _COMMAND)
                if self._kept is None:
                    self._kept = connect(self._folder, _COMMAND)
                    threading.Thread(target=self._let_go, name="batch-idle", daemon=True).start()
            except (LinkClosed, OSError) as error:
                raise SqlError(f"Spark cannot be started: {error}") from None
            return link

    def _let_go(self) -> None:
        """Closes the connection that keeps the driver when nothing has been asked for a while."""
        kept = self._kept
        while kept is not None and kept is self._kept:
            if time.monotonic() - self._used > self._idle_seconds or kept.waiting():
                self.close()
                return
            time.sleep(0.2)

    def close(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()


def _names(sql: str) -> set[str]:
    """Every word that could name a source, as a catalog would have it."""
    try:
        found, _ = tokens(sql)
    except SqlError:  # Spark's language has more symbols than ksqlDB's
        return {word.upper() for word in re.findall(r"\w+", sql)} | set(re.findall(r"`([^`]+)`", sql))
    return {token.value for token in found if token.kind in ("word", "quoted")}


def named_sources(catalog: Catalog, names: Iterable[str]) -> list[Source]:
    """Spark's names have no case: `Orders` may be meant by ORDERS, unless that is a source itself."""
    wanted = set(names)
    folded = {name.upper() for name in wanted}
    found: dict[str, Source] = {}
    for name, source in sorted(catalog.sources.items()):
        if name in wanted or (name.upper() in folded and name.upper() not in catalog.sources):
            found[name.upper()] = source
    return list(found.values())


def spark_options(
    bootstrap: str, security: dict[str, str], registry: dict[str, Any] | None
) -> dict[str, str]:
    found = {"kafka.bootstrap.servers": bootstrap, "kafka.isolation.level": "read_committed"}
    found |= {f"kafka.{name}": value for name, value in security.items()}
    if registry is not None:
        found["registry"] = json.dumps(registry)
    return found
