"""The process with Spark that runs BATCH queries; `client` starts it (`host/driver.py` says how).

Each connection runs one query after the other. A query has a session of its own, in which the sources that it
names are temporary views. Spark delivers a partition of the result at a time, from memory: results have a
limit. A client that closes its connection cancels the job; a job that Spark cannot interrupt does not keep
the process when all clients have gone.

Spark could do much more than read topics: read files, open databases, run programs (TRANSFORM), call Java
(reflect). Unless the server's settings allow that, it is refused here, by what Spark's own parser has found.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import pickle
import re
import secrets
import select
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from millstream.host.call_server import Call, CallServer
from millstream.host.driver import publish
from millstream.host.link import Link, LinkClosed, Message

IDLE_SECONDS = 5.0
_ROWS = 1000
_COMMANDS = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
)
_EXTERNAL = re.compile(r"ScriptTransformation|\b(try_)?reflect\b|\bjava_method\b", re.IGNORECASE)


class NotAllowed(Exception):
    """A statement that this server does not run."""


class BatchServer(CallServer):
    """One call: `query`. Its rows are messages before its answer."""

    def __init__(self, session: Any, secret: bytes) -> None:
        self._session = session
        self._abandoned = 0
        super().__init__("sql-batch", secret)

    @contextlib.contextmanager
    def connection(self, link: Link) -> Iterator[Call]:
        yield functools.partial(self._call, link)

    @property
    def idle_seconds(self) -> float:
        """How long nobody has waited for anything: queries whose clients have gone do not count."""
        return 0.0 if self._clients > self._abandoned else time.monotonic() - self._idle_since

    @contextlib.contextmanager
    def _abandoning(self) -> Iterator[None]:
        """A client has gone, and its query goes on."""
        with self._lock:
            self._abandoned += 1
            self._idle_since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._abandoned -= 1

    def _call(self, link: Link, name: str, arguments: dict[str, Any]) -> Any:
        if name != "query":
            raise ValueError(f"{name} is no call")
        group = uuid.uuid4().hex
        context = self._session.sparkContext
        with self._cancelled_without_client(link, lambda: context.cancelJobGroup(group)):
            context.setJobGroup(group, "BATCH", interruptOnCancel=True)
            try:
                return self._query(link, arguments)
            except LinkClosed:
                raise
            except Exception as error:
                raise ValueError(_explained(error)) from None

    @contextlib.contextmanager
    def _cancelled_without_client(self, link: Link, cancel: Callable[[], None]) -> Iterator[None]:
        """Calls `cancel` when the client has gone. One that waits for its answer says nothing: when there is
        something to read, the connection has ended."""
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                if select.select([link], [], [], 0.2)[0]:
                    with self._abandoning():
                        # Again and again: the query may be about to start its next job.
                        while not done.wait(0.2):
                            cancel()

        watcher = threading.Thread(target=watch, name="batch-watch", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def _query(self, link: Link, arguments: Message) -> int:
        from millstream.sql.batch.source import SqlDataSource
        from millstream.sql.batch.spark_types import row_converter
        from millstream.sql.catalog_json import type_json

        session = self._session.newSession()
        session.conf.set("spark.sql.runSQLOnFiles", str(arguments["external"]).lower())
        session.conf.set("spark.sql.maxPlanStringLength", "10000000")
        session.dataSource.register(SqlDataSource)
        for source in arguments["sources"]:
            _make_view(session, source, arguments["options"])
        for statement in arguments["views"]:
            session.sql(statement)
        _check(session, arguments["sql"], arguments["external"])
        frame = session.sql(arguments["sql"])
        types, convert = row_converter([field.dataType for field in frame.schema.fields])
        columns = [[name, type_json(type_)] for name, type_ in zip(frame.columns, types, strict=True)]
        link.send({"columns": columns})
        max_rows, count = int(arguments["max_rows"]), 0
        gone: LinkClosed | None = None
        # To the end in any case: PySpark waits for ever when it is left with rows that nobody takes.
        for rows in _chunks(map(convert, frame.limit(max_rows + 1).toLocalIterator())):
            try:
                if gone is None:
                    link.send({"rows": base64.b64encode(pickle.dumps(rows[: max_rows - count])).decode()})
            except LinkClosed as error:
                gone = error
            count += len(rows)
        if gone is not None:
            raise gone
        if count > max_rows:
            raise NotAllowed(
                f"The result has more than {max_rows} rows: write LIMIT, or raise ksql.batch.max.rows"
            )
        return count


def _make_view(session: Any, source: dict[str, Any], options: dict[str, str]) -> None:
    from millstream.sql.batch.source import DELETED, KEY, NAME

    reader = session.read.format(NAME).option("source", json.dumps(source))
    for name, value in options.items():
        reader = reader.option(name, value)
    frame = reader.option("subscribe", source["topic"]).load()
    if source["kind"] == "TABLE":
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        newest = Window.partitionBy("ROWPARTITION", KEY).orderBy(F.desc("ROWOFFSET"))
        ranked = frame.withColumn("__rank", F.row_number().over(newest))
        frame = ranked.where(f"__rank = 1 AND NOT {DELETED}").drop("__rank", KEY, DELETED)
    frame.createOrReplaceTempView("`" + source["name"].replace("`", "``") + "`")


def _check(session: Any, sql: str, external: bool) -> None:
    """Queries only; what reaches beyond topics only where that is allowed."""
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    shown = str(plan.treeString())
    loader = session.sparkContext._jvm.java.lang.Class
    explains = plan.getClass().getSimpleName() == "ExplainCommand"
    is_command = any(loader.forName(name).isInstance(plan) for name in _COMMANDS) and not explains
    if is_command or "InsertInto" in shown:
        raise NotAllowed("BATCH runs queries: SELECT, WITH, VALUES, or EXPLAIN of one")
    if not external and _EXTERNAL.search(shown):
        raise NotAllowed(
            "This query calls programs or Java. The server allows that only with ksql.batch.external=true"
        )


def _chunks(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """The first row at once, then more and more together."""
    chunk: list[Any] = []
    size = 1
    for row in rows:
        chunk.append(row)
        if len(chunk) >= size:
            yield chunk
            chunk, size = [], min(_ROWS, size * 4)
    if chunk:
        yield chunk


def _explained(error: Exception) -> str:
    """What Spark says to its user, without plans and Java's stacks."""
    from millstream.spark.errors import explain

    found = explain(error)
    if found is not None:
        return found
    text = str(error).split("\n\nJVM stacktrace")[0]
    causes = re.findall(r"^Caused by: [\w.$]+: (.+)$", text, re.MULTILINE)
    if causes:  # what went wrong in a task, behind Spark's account of who had to hear of it
        return str(causes[-1])
    return re.split(r";\n'|\n\tat ", text)[0].strip() or type(error).__name__


def main(folder: Path) -> None:
    os.environ["TZ"] = "UTC"  # PySpark gives timestamps in the time zone of its process
    time.tzset()
    from millstream.spark.session import spark

    settings_file = folder / "spark.json"
    settings = json.loads(settings_file.read_text()) if settings_file.exists() else {}
    session = spark("millstream-sql-batch", settings)
    secret = secrets.token_bytes(32)
    server = BatchServer(session, secret)
    publish(folder, server, secret)
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: ended.append(number))
    # Spark gives up by itself when it runs out of memory; the next query starts another one.
    while not ended and server.idle_seconds < IDLE_SECONDS and session.sparkContext._jsc is not None:
        if session.sparkContext._jsc.sc().isStopped():
            break
        time.sleep(0.2)
    (folder / "driver.json").unlink(missing_ok=True)
    server.close()
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
