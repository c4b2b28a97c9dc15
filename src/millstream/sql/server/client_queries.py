"""Queries whose rows go to a client: pull, push, and PRINT.

Pull queries on tables read a view, which is opened with the first of them and kept; pull queries on streams
read the topic from its beginning to its end. Push queries run until the client goes.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from millstream.client import ClientConfig
from millstream.sql import ast, statements
from millstream.sql.analysis import Analysis, SelectColumn
from millstream.sql.catalog import WINDOW_BOUNDS, Source
from millstream.sql.code import Names
from millstream.sql.engine import plan_query
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError
from millstream.sql.functions.isolated import FunctionLost, user_names
from millstream.sql.prepared_pulls import Lookup, PreparedPulls
from millstream.sql.processing_log import processing_log
from millstream.sql.pull import PullQuery, check_pull, plan_pull
from millstream.sql.push import Raw, TopologyRunner, TransientQuery
from millstream.sql.results import ResultColumn, ResultStream, Row, Tombstone
from millstream.sql.row_functions import projection
from millstream.sql.server.topic_printer import TopicPrinter
from millstream.sql.table_queries import is_table_query, plan_table_query
from millstream.sql.types import STRING
from millstream.sql.views import TableView, ViewUnavailable
from millstream.streams.topology import Topology
from millstream.streams.windows import Windowed

if TYPE_CHECKING:
    from millstream.sql.server.service import SqlService

log = logging.getLogger("millstream.sql")

Json = dict[str, Any]


class ClientQueries:
    def __init__(self, service: SqlService) -> None:
        self._service = service
        self._open: dict[str, ResultStream] = {}
        self._views: dict[str, TableView] = {}
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._prepared = PreparedPulls()

    @property
    def _client(self) -> ClientConfig:
        return self._service.client

    def count(self) -> int:
        return len(self._open)

    def close(self) -> None:
        for result in list(self._open.values()):
            result.close()
        with self._lock:
            views, self._views = self._views, {}
        for view in views.values():
            view.close()

    def close_query(self, query_id: str) -> bool:
        found = self._open.get(query_id)
        if found is not None:
            found.end("Query closed")
            found.close()
        return found is not None

    def open(self, statement: statements.Select, properties: Json) -> ResultStream:
        environment = self._service.environment(properties)
        if statement.query.emit is None:
            return self._pull(statement, environment, properties)
        return self._push(statement, environment, "push")

    # Pull

    def _pull(self, statement: statements.Select, environment: Environment, properties: Json) -> ResultStream:
        if not environment.flag("ksql.pull.queries.enable", True):
            raise SqlError("Pull queries are disabled. Set ksql.pull.queries.enable=true to enable them.")
        catalog = self._service.catalog
        if is_table_query(statement.query, catalog, environment):
            return self._table_query(statement.query, environment)
        source = check_pull(statement.query, catalog, environment)
        if source.kind == "STREAM":
            return self._push(statement, environment, "pull")
        planned = plan_pull(statement.query, source, catalog, environment)
        # The fast path runs in the event loop, where user code must not run.
        if not _calls(statement.query, user_names()):
            self._prepared.put(statement.text, properties, catalog, statement.query, planned)
        return self._looked_up(planned)

    def prepared(self, sql: str, properties: Json) -> ResultStream | None:
        """The rows of a lookup whose like has been asked for before."""
        planned = self._prepared.get(sql, properties, self._service.catalog)
        return None if planned is None else self._looked_up(planned)

    def lookup(self, sql: str, properties: Json) -> tuple[Lookup, bytes, TableView] | None:
        """The same, without reading anything: its plan, its key and the view that is open already. Tables
        with windows have more than one row for a key."""
        found = self._prepared.find(sql, properties, self._service.catalog)
        if found is None or found[0].query.source.window is not None:
            return None
        view = self._views.get(found[0].query.source.name)
        return None if view is None else (*found, view)

    def written_to(self, topic: str) -> None:
        """Rows were inserted here: the next query has to see them."""
        for view in list(self._views.values()):
            if view.topic == topic:
                view.written_to()

    def _looked_up(self, planned: PullQuery) -> ResultStream:
        view = self.view(planned.source)
        return self._read([view], planned.columns, lambda: planned.rows(view), few=planned.keys is not None)

    def _table_query(self, query: ast.Query, environment: Environment) -> ResultStream:
        catalog = self._service.catalog
        planned = plan_table_query(query, catalog, environment)
        views = {alias: self.view(catalog.sources[name]) for alias, name in planned.aliases.items()}
        return self._read(list(views.values()), planned.columns, lambda: planned.rows(views))

    @staticmethod
    def _read(
        views: list[TableView],
        columns: tuple[ResultColumn, ...],
        rows: Callable[[], Iterator[Row]],
        *,
        few: bool = False,
    ) -> ResultStream:
        """Rows of views that have caught up; `few`: at once, without a thread for them."""
        result = ResultStream(f"query_{time.time_ns() // 1_000_000}", columns, max_rows=100_000)

        def read() -> None:
            try:
                for view in views:
                    view.catch_up()
                for row in rows():
                    if not result.put(row):
                        return
                result.end()
            except (ViewUnavailable, SqlError, FunctionLost) as error:
                result.end(error=str(error))
            except Exception as error:
                log.exception("a pull query failed")
                result.end(error=str(error) or type(error).__name__)

        if few:
            read()
        else:
            threading.Thread(target=read, name="pull-query", daemon=True).start()
        return result

    def view(self, source: Source) -> TableView:
        with self._lock:
            found = self._views.get(source.name)
            if found is None:
                size = 0
                if source.window is not None:
                    size = 16 if source.window.type == "SESSION" else 8
                headers = bool(source.schema.headers)
                # By name: two tables may read one topic.
                name = f"{quote(source.name, safe='')}.{'header-view' if headers else 'view'}"
                folder = self._service.state_dir / "views" / name
                found = self._views[source.name] = TableView(
                    folder,
                    self._client,
                    source.topic,
                    window_bytes=size,
                    lease=self._service.config.value("ksql.query.pull.max.staleness.ms") / 1000,
                    headers=headers,
                )
            return found

    def forget(self, name: str) -> None:
        """A table was dropped."""
        with self._lock:
            view = self._views.pop(name, None)
        if view is not None:
            view.delete()

    # Push

    def _push(self, statement: statements.Select, environment: Environment, kind: str) -> ResultStream:
        if kind == "push" and self.count() >= self._service.config.value("ksql.max.push.queries"):
            raise SqlError(
                "Maximum number of push queries exceeded: close one, or raise ksql.max.push.queries"
            )
        query_id = f"transient_{statement.query.source.name}_{uuid.uuid4().hex[:12]}"
        sink = processing_log(
            self._client, self._service.config.processing_log, environment.settings, query_id
        )
        planner, flow, types = plan_query(statement.query, self._service.catalog, environment, sink)
        names = Names()
        coded = [
            (column.name, planner.code(flow, column.expression, names), planner.shown(column.expression))
            for column, _ in types
        ]
        make = projection(coded, names, sink)
        columns = tuple(ResultColumn(column.name, type_) for column, type_ in types)
        result = ResultStream(query_id, columns, limit=statement.query.limit, lasting=True)
        if statement.query.limit == 0:
            result.end("Limit Reached")
            return result
        stream = flow.stream if flow.stream is not None else flow.table.to_stream()  # type: ignore[union-attr]

        gone = _tombstones(planner.analysis, [column for column, _ in types])

        # Of a table: a row that a condition left out was never there for the client, and cannot go.
        there: set[Any] = set()

        def emit(key: Any, value: Any) -> None:
            if value is not None:
                if flow.stream is None:
                    there.add(_identity(key))
                result.put(make(value))
            elif flow.stream is None and _identity(key) in there:
                there.discard(_identity(key))
                result.put(gone(key))

        stream.for_each(emit)
        topology = planner.builder.build()
        self._run(topology, query_id, result, statement, environment, kind)
        return result

    def _run(
        self,
        topology: Topology,
        query_id: str,
        result: ResultStream,
        statement: statements.Select,
        environment: Environment,
        kind: str,
    ) -> None:
        topics = {
            topic
            for node in topology.nodes.values()
            if node.type == "source"
            for topic in node.topics
            if topic not in topology.internal
        }
        runner = TopologyRunner(topology, query_id, "", _nothing)
        begin = str(environment.setting("auto.offset.reset", "latest")).lower()
        query = TransientQuery(
            runner,
            self._client,
            topics,
            begin=begin,
            stopped=lambda: result.done,
            failed=lambda message: result.end(error=message),
            ended=lambda: result.end("Query Completed"),
            bounded=kind == "pull",
            budget=self._service.config.value("ksql.query.push.max.bytes"),
        )
        if kind == "push":
            self._open[query_id] = result
            result.on_close.append(lambda: self._closed(query_id))
        query.start()

    def _closed(self, query_id: str) -> None:
        self._open.pop(query_id, None)

    # PRINT

    def print(self, statement: statements.Print) -> ResultStream:
        """A topic's records as text, each with what its bytes seem to be."""
        if self._service.partitions_of(statement.topic) is None:
            raise SqlError(
                f"Could not find topic '{statement.topic}', or the KSQL user does not have permissions"
            )
        query_id = f"print_{next(self._numbers)}"
        result = ResultStream(query_id, (ResultColumn("LINE", STRING),))
        printer = TopicPrinter(result, statement.interval or 1, statement.limit, self._service.registry)
        query = TransientQuery(
            printer,  # type: ignore[arg-type]
            self._client,
            [statement.topic],
            begin="earliest" if statement.from_beginning else "latest",
            stopped=lambda: result.done,
            failed=lambda message: result.end(error=message),
        )
        query.start()
        return result


def _tombstones(analysis: Analysis, columns: list[SelectColumn]) -> Callable[[Any], Tombstone]:
    """From the key of a row that is gone, what a push query shows of it."""
    slots: list[int | str | None] = []
    for column in columns:
        node = column.expression
        own = [slot for slot, viable in enumerate(analysis.key_expressions) if node in viable]
        bound = node.name if isinstance(node, ast.Column) and node.name in WINDOW_BOUNDS else None
        slots.append(own[0] if own else bound)

    def gone(key: Any) -> Tombstone:
        bounds: dict[str, int] = {}
        if isinstance(key, Windowed):
            bounds = {"WINDOWSTART": key.window.start, "WINDOWEND": key.window.end}
            key = key.key
        return Tombstone(
            bounds.get(slot) if isinstance(slot, str) else None if slot is None or not key else key[slot]
            for slot in slots
        )

    return gone


def _calls(query: ast.Query, names: frozenset[str]) -> bool:
    nodes = [item.expression for item in query.select if item.expression is not None]
    return any(
        isinstance(part, ast.Call) and part.name.upper() in names for node in nodes for part in ast.walk(node)
    )


def _identity(key: Any) -> Any:
    """A key that can be looked up: those with lists or maps in them by their text."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


def _nothing(_record: Raw) -> None:
    pass
