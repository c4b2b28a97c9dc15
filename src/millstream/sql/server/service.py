"""A running server: the catalog from the command topic, the queries of the service, and what clients ask for.

A statement that changes something becomes a command: it is checked against the catalog at the end of the
topic, its topics and schemas are made, and it is appended; the catalog changes when the command is read back,
here as in every other server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric

from millstream.client import Admin, Cluster
from millstream.http.metrics import gauge
from millstream.patterns import compile_pattern
from millstream.serdes.client import RegistryUnreachable, SchemaRegistry
from millstream.sql import catalog_json, statements
from millstream.sql.batch.client import BatchQueries, spark_options
from millstream.sql.catalog import Catalog, QueryInfo
from millstream.sql.commands import Command, CommandTopic, CommandTopicUnusable, Fenced
from millstream.sql.engine import Outcome, apply
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError, sql_error
from millstream.sql.formats.schemas import register_source
from millstream.sql.functions.isolated import FunctionProcesses, isolated
from millstream.sql.functions.loading import load_functions
from millstream.sql.insert_values import insert, target_source
from millstream.sql.parser import SUBSTITUTING, parse, parse_each, parse_one
from millstream.sql.recipes import Recipe
from millstream.sql.results import ResultStream
from millstream.sql.server import entities
from millstream.sql.server.admin import AdminStatements
from millstream.sql.server.client_queries import ClientQueries
from millstream.sql.server.inserts import RecordProducer, RowInserter
from millstream.sql.server.log_stream import make_log_stream
from millstream.sql.server.peers import Peers, server_id, url_of_server
from millstream.sql.server.persistent import AnyHost, PersistentQueries
from millstream.sql.server.request_check import check_length, check_together
from millstream.sql.server.server_group import ServerGroup
from millstream.sql.server.source_topics import SourceTopics
from millstream.sql.server.sql_config import QUERY_LIMIT, SqlConfig
from millstream.sql.session_properties import check_denied, check_name, check_property
from millstream.wire.errors import KafkaError

log = logging.getLogger("millstream.sql")

Json = dict[str, Any]
_RETRIES = 5


class SqlService:
    def __init__(self, config: SqlConfig, port: int = 0) -> None:
        self.config = config
        self.status = "INITIALIZING"
        self.headless = bool(config.value("ksql.queries.file"))
        self.catalog = Catalog()
        self.url = url_of_server(config, port)
        self.address = self.url.partition("://")[2]
        self.peers = Peers(config)
        self.cluster_id: str | None = None
        self.client = config.client()
        self._denied: tuple[str, ...] = tuple(config.value("ksql.properties.overrides.denylist"))
        self.registry = _registry(config)
        # Lanes do not run in this folder.
        self.udf_modules = tuple(
            str(Path(name).absolute()) if name.endswith(".py") else name
            for name in config.value("ksql.udf.module")
        )
        self.functions = load_functions(self.udf_modules)
        self._processes: FunctionProcesses | None = None
        if self.udf_modules:
            self._processes = FunctionProcesses(self.udf_modules, config.value("ksql.udf.timeout.ms") / 1000)
            self.functions = isolated(self._processes)
        self._cluster = Cluster(self.client)
        # Of the cluster's connections, which belong to one thread at a time.
        self._lock = threading.RLock()
        self._topics = SourceTopics(self._cluster, self._lock)
        self._statuses: dict[str, Json] = {}
        self._properties: dict[str, Json] = {}
        self.producer = RecordProducer(self.client, lambda topic: self.queries.written_to(topic))
        self.state_dir = Path(config.value("ksql.streams.state.dir")).absolute()
        self.persistent = PersistentQueries(
            self.client,
            config.service_id,
            self.state_dir,
            self._make_host,
            {"commit.interval.ms": config.value("ksql.streams.commit.interval.ms")},
            bootstrap=config.bootstrap,
            security=config.security(),
        )
        self.queries = ClientQueries(self)
        self.batch = BatchQueries(
            self.state_dir / "batch",
            spark_options(config.bootstrap, config.security(), _registry_settings(config)),
            config.spark_settings(),
            external=config.value("ksql.batch.external"),
            idle_seconds=config.value("ksql.batch.idle.ms") / 1000,
            max_rows=config.value("ksql.batch.max.rows"),
        )
        self._admin = AdminStatements(self)
        self.group: ServerGroup | None = None
        self.commands: CommandTopic | None = None

    # Life

    def start(self) -> str:
        self._cluster.refresh([])
        self.cluster_id = self._cluster.cluster_id
        if self.headless:
            self._run_file(Path(self.config.value("ksql.queries.file")))
            self.persistent.share(lambda _: True, lambda _: True)
        else:
            self.group = ServerGroup(
                self.client,
                self.config.service_id,
                server_id(self.url),
                lambda: self.catalog.queries,
                self.persistent.shared_anew,
            )
            self.persistent.share(self.group.is_mine, self.group.may_start)
            self.commands = CommandTopic(
                self.client,
                self.config.service_id,
                self._apply,
                self.config.value("ksql.internal.topic.replicas"),
            )
            self.commands.start()
            self.group.start()
            if self.config.value("ksql.logging.processing.stream.auto.create"):
                make_log_stream(self)
        self.status = "RUNNING"
        return f"bootstrap.servers={self.config.bootstrap} ksql.service.id={self.config.service_id}"

    def stop(self) -> None:
        self.status = "TERMINATING"
        self.queries.close()
        if self._processes is not None:
            self._processes.close()
        self.batch.close()
        self.persistent.close()
        if self.group is not None:
            self.group.stop()
        self.peers.close()
        if self.commands is not None:
            self.commands.close()
        self.producer.close()
        self._cluster.close()

    def _make_host(self) -> AnyHost:
        if self.config.value("ksql.host.local"):
            from millstream.host.local import LocalHost

            return LocalHost()
        from millstream.host.driver import driver_host

        named = self.config.value("millstream.driver.dir")
        folder = Path(named) if named else self.state_dir / "host"
        return driver_host(folder, self.config.host_settings(), owner="sql")

    def health(self) -> dict[str, bool]:
        try:
            with self._lock:
                self._cluster.refresh([])
            kafka = True
        except (KafkaError, OSError):
            kafka = False
        runner = self.commands is None or self.commands.failure is None
        return {"metastore": True, "kafka": kafka, "commandRunner": runner}

    def collect_metrics(self) -> Iterator[Metric]:
        yield gauge("millstream_sql_persistent_queries", "Persistent queries.", len(self.catalog.queries))
        yield gauge("millstream_sql_push_queries", "Push queries that run.", self.queries.count())

    # What statements are checked against

    def environment(self, properties: Json | None = None) -> Environment:
        check_denied(properties or (), self._denied)
        settings = {**_plain(self.config.settings()), **_plain(properties or {})}
        return Environment(self.functions, self.registry, settings, self.partitions_of)

    def partitions_of(self, topic: str) -> int | None:
        return self._topics.partitions(topic)

    # Statements

    def execute(
        self, text: str, properties: Json, variables: Json, wait_for: int | None = None
    ) -> list[Json]:
        """An entity for each statement. SET and DEFINE hold for those behind them."""
        if wait_for is not None and wait_for >= 0:
            self._wait_for_command(int(wait_for))
        session = dict(properties)
        names = {str(name): str(value) for name, value in variables.items()}
        found: list[Json] = []
        substituting = self.environment(session).flag(SUBSTITUTING, True)
        parsed = parse(text, names, substituting=substituting)
        for statement in parsed:
            check_length(statement)
        if len(parsed) > 1 and self.commands is not None:
            self.commands.read_to_end()
            check_together(parsed, self.catalog, self.environment, session)
        for statement in parse_each(text, names, substituting=substituting):
            try:
                found += self._one(statement, session, names)
            except SqlError as error:
                if error.statement is None:
                    error.statement = statement.text
                error.entities = found
                raise
            except (KafkaError, RegistryUnreachable) as error:
                raise _server_error(str(error), statement.text) from None
        return found

    def _one(self, statement: statements.Statement, session: Json, variables: dict[str, str]) -> list[Json]:
        match statement:
            case statements.SetProperty():
                check_property(statement.name, statement.value)
                check_denied((statement.name,), self._denied)
                session[statement.name] = statement.value
                return []
            case statements.UnsetProperty():
                if statement.name is None:
                    session.clear()
                else:
                    check_name(statement.name)
                    session.pop(statement.name, None)
                return []
            case statements.Define() | statements.Undefine():
                return []
            case statements.AlterSystem():
                raise SqlError(
                    "ALTER SYSTEM is a statement of Confluent Cloud. Here, settings of all queries are in "
                    "the server's properties, and those of a session are changed with SET."
                )
            case statements.InsertValues():
                self.producer.send(insert(statement, self.catalog, self.environment(session)))
                return []
            case statements.Batch() if not statement.is_query:
                done = self.batch.define(statement)
                return [entities.entity("warning_entity", statement.text, message=done)]
            case statements.Select() | statements.Print() | statements.Batch():
                raise SqlError(
                    "The following statement types should be issued to the websocket endpoint '/query':\n\t"
                    f"{'PRINT' if isinstance(statement, statements.Print) else 'SELECT'}"
                )
        shown = self._admin.execute(statement, session, variables)
        if shown is not None:
            return [shown]
        return [self._change(statement, session)]

    def _change(self, statement: statements.Statement, session: Json) -> Json:
        if self.commands is None:
            raise SqlError("this server is headless: it takes no statements")
        for attempt in range(_RETRIES):
            try:
                with self.commands.exclusive() as append:
                    return self._decide(statement, session, append)
            except Fenced:
                time.sleep(0.05 * (attempt + 1))
            except CommandTopicUnusable as error:
                raise _server_error(str(error)) from None
        raise SqlError("other servers of this service are writing commands; try again")

    def _decide(self, statement: statements.Statement, session: Json, append: Any) -> Json:
        """With the catalog of the topic's end."""
        assert self.commands is not None
        text = statement.text
        if isinstance(statement, statements.Terminate | statements.Pause | statements.Resume):
            return self._control(statement, append)
        number = self.commands.next_offset
        environment = self.environment(session)
        outcome = apply(statement, self.catalog, environment, number=number)
        if outcome.catalog is self.catalog:  # IF NOT EXISTS, IF EXISTS
            return entities.entity("warning_entity", text, message=outcome.message)
        self._check_limit(outcome, text)
        self._prepare(statement, outcome, environment)
        command_id, plan = _plan_of(statement, outcome, self.catalog, number)
        if outcome.query is not None and self.group is not None:
            plan["server"] = self.group.choose(outcome.query.id)
        command = append(Command(command_id, text, dict(session), {}, plan))
        query_id = outcome.query.id if outcome.query is not None else None
        if outcome.delete_topic is not None:
            self._topics.delete(outcome.delete_topic)
        return entities.current_status(text, command_id, outcome.message, command.offset, query_id)

    def _check_limit(self, outcome: Outcome, text: str) -> None:
        count, limit = len(self.catalog.queries), self.config.value(QUERY_LIMIT)
        if count < len(outcome.catalog.queries) > limit:
            raise sql_error("too many queries", text=text, setting=QUERY_LIMIT, count=count, limit=limit)

    def _control(
        self, statement: statements.Terminate | statements.Pause | statements.Resume, append: Any
    ) -> Json:
        kind = type(statement).__name__.lower()
        if statement.query is None:
            wanted = sorted(self.catalog.queries)
        else:
            wanted = [_known_query(self.catalog, statement.query)]
        command_id = f"{kind}/{statement.query or 'ALL'}/execute"
        command = append(Command(command_id, statement.text, {}, {}, {kind: wanted}))
        done = {"terminate": "terminated", "pause": "paused", "resume": "resumed"}[kind]
        return entities.current_status(statement.text, command_id, f"Query {done}.", command.offset)

    # What a statement needs before it is a command

    def _prepare(self, statement: statements.Statement, outcome: Outcome, environment: Environment) -> None:
        source = outcome.source
        if source is None or isinstance(statement, statements.DropSource):
            return
        made_by_query = outcome.query is not None
        self._topics.make(source, outcome)
        if environment.registry is not None:
            register_source(environment.registry, source, replace=made_by_query)

    # Commands that were committed

    def _apply(self, command: Command) -> None:
        before = self.catalog
        self.catalog = catalog_json.apply(before, command.plan)
        status = {"status": "SUCCESS", "message": command.plan.get("message", ""), "queryId": None}
        query = command.plan.get("query")
        if query is not None:
            status["queryId"] = query["id"]
            if self.group is not None:
                self.group.name(query["id"], command.plan.get("server"))
            settings = {**_plain(self.config.settings()), **_plain(command.properties)}
            if query["id"] in before.queries:
                self.persistent.remove(query["id"], delete=False)
            self.persistent.add(query["id"], self._recipe(command, before, settings))
        for query_id in command.plan.get("terminate", ()):
            self.persistent.remove(query_id)
        for query_id in command.plan.get("pause", ()):
            self.persistent.pause(query_id)
        for query_id in command.plan.get("resume", ()):
            self.persistent.resume(query_id)
        if "drop" in command.plan:
            self.queries.forget(command.plan["drop"])
        self._statuses[command.id] = status

    def _recipe(self, command: Command, before: Catalog, settings: Json) -> Recipe:
        return Recipe(
            command.statement,
            before,
            settings,
            int(command.plan.get("number", command.offset)),
            self.registry,
            self.udf_modules,
            self.client,
            self.config.processing_log,
        )

    def _wait_for_command(self, number: int) -> None:
        if self.commands is not None and self.commands.position <= number:
            self.commands.read_to_end()

    def command_status(self, command_id: str) -> Json | None:
        return self._statuses.get(command_id)

    def command_statuses(self) -> dict[str, str]:
        return {command_id: status["status"] for command_id, status in self._statuses.items()}

    def terminate_cluster(self, topics: list[str]) -> None:
        """Stops every query and deletes what the service has made in the cluster: of the topics that its
        queries write, those that one of these expressions matches. InvalidPattern before anything is done."""
        wanted = [compile_pattern(pattern) for pattern in topics]
        self.status = "TERMINATING"
        sinks = {source.topic for source in self.catalog.sources.values() if source.by_query}
        for query_id in list(self.catalog.queries):
            self.persistent.remove(query_id)
        chosen = [topic for topic in sinks if any(each.fullmatch(topic) for each in wanted)]
        names = [*chosen, *([self.commands.name] if self.commands is not None else [])]
        with self._lock:
            Admin(self._cluster).delete_topics(names)
        self.catalog = Catalog()

    # Headless

    def _run_file(self, path: Path) -> None:
        session: Json = {}
        variables: dict[str, str] = {}
        number = 0
        for statement in parse_each(path.read_text(), variables):
            if isinstance(statement, statements.SetProperty):
                check_property(statement.name, statement.value)
                session[statement.name] = statement.value
                continue
            if isinstance(statement, statements.UnsetProperty | statements.Define | statements.Undefine):
                continue
            environment = self.environment(session)
            if isinstance(statement, statements.InsertValues):
                self.producer.send(insert(statement, self.catalog, environment))
                continue
            outcome = apply(statement, self.catalog, environment, number=number)
            self._prepare(statement, outcome, environment)
            command_id, plan = _plan_of(statement, outcome, self.catalog, number)
            self._apply(Command(command_id, statement.text, dict(session), {}, plan, number))
            number += 1

    # Queries of clients

    def query(self, sql: str, properties: Json, variables: Json) -> ResultStream:
        found = self.queries.prepared(sql, properties)
        if found is not None:
            return found
        names = {str(name): str(value) for name, value in variables.items()}
        substituting = self.environment(properties).flag(SUBSTITUTING, True)
        statement = parse_one(sql, names, substituting=substituting)
        if isinstance(statement, statements.Batch) and statement.is_query:
            return self.batch.open(statement, self.catalog)
        check_length(statement)
        if not isinstance(statement, statements.Select):
            raise SqlError(f"Statement type `{type(statement).__name__}' not supported for this resource")
        return self.queries.open(statement, properties)

    def print_topic(self, sql: str, variables: Json) -> ResultStream | None:
        try:
            statement = parse_one(sql, {str(name): str(value) for name, value in variables.items()})
        except SqlError:
            return None
        return self.queries.print(statement) if isinstance(statement, statements.Print) else None

    def close_query(self, query_id: str) -> bool:
        return self.queries.close_query(query_id)

    def inserter(self, target: str) -> RowInserter:
        name = target.strip("`") if target.startswith("`") else target.upper()
        source = target_source(name, self.catalog)
        return RowInserter(source, self.environment(), self.producer.send)


def _server_error(message: str, statement: str | None = None) -> SqlError:
    """Nothing is wrong with the statement."""
    error = SqlError(message)
    error.status, error.error_code, error.statement = 500, 50000, statement
    return error


def _registry_settings(config: SqlConfig) -> Json | None:
    urls = config.value("ksql.schema.registry.url")
    if not urls:
        return None
    secret = config.secret("ksql.schema.registry.basic.auth.user.info")
    user, _, password = (secret or "").partition(":")
    ca_file = config.value("ksql.schema.registry.ssl.truststore.location")
    return {"url": urls, "user": user or None, "password": password, "ca_file": ca_file}


def _registry(config: SqlConfig) -> SchemaRegistry | None:
    settings = _registry_settings(config)
    return None if settings is None else SchemaRegistry(**settings)


def _plain(properties: Json) -> Json:
    """Properties as ksqlDB takes them: `auto.offset.reset` with and without its prefix."""
    return {name.removeprefix("ksql.streams."): value for name, value in properties.items()}


def _known_query(catalog: Catalog, name: str) -> str:
    found = next((one for one in catalog.queries if one.upper() == name.upper()), None)
    if found is None:
        raise SqlError(f"Unknown queryId: {name}")
    return found


def _plan_of(
    statement: statements.Statement, outcome: Outcome, before: Catalog, number: int
) -> tuple[str, Json]:
    """The command's id, and what it changes."""
    plan: Json = {"number": number, "message": outcome.message}
    source = outcome.source
    match statement:
        case statements.CreateType():
            type_ = outcome.catalog.type(statement.name)
            assert type_ is not None
            plan["type"] = [statement.name, catalog_json.type_json(type_)]
            return f"type/{statement.name}/create", plan
        case statements.DropType():
            plan["dropType"] = statement.name
            return f"type/{statement.name}/drop", plan
        case statements.DropSource():
            plan["drop"] = statement.name
            plan["terminate"] = sorted(set(before.queries) - set(outcome.catalog.queries))
            return f"{statement.kind.lower()}/{statement.name}/drop", plan
    if outcome.query is not None:
        info: QueryInfo = outcome.catalog.queries[outcome.query.id]
        plan["query"] = catalog_json.query_json(replace(info, statement=statement.text))
    if source is not None:
        plan["source"] = catalog_json.source_json(source)
        operation = "alter" if isinstance(statement, statements.AlterSource) else "create"
        return f"{source.kind.lower()}/{source.name}/{operation}", plan
    assert outcome.query is not None
    return f"stream/{outcome.query.id}/create", plan
