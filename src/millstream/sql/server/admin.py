"""SHOW, DESCRIBE, EXPLAIN and ASSERT: statements that change nothing, answered in ksqlDB's shapes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from millstream.client import Admin, Cluster
from millstream.serdes.client import RegistryRefused, RegistryUnreachable
from millstream.sql import ast, statements
from millstream.sql.catalog import Catalog, Column, QueryInfo, Schema, Source
from millstream.sql.engine import apply, plan_query
from millstream.sql.errors import SqlError
from millstream.sql.functions.table import Function
from millstream.sql.server import entities
from millstream.sql.server.connectors import Connectors
from millstream.sql.server.entities import Json, entity
from millstream.sql.server.query_statistics import QueryStatistics
from millstream.streams.describe import describe

if TYPE_CHECKING:
    from millstream.sql.server.service import SqlService

_INTERNAL = ("_confluent-", "__", "_schemas")


class AdminStatements:
    def __init__(self, service: SqlService) -> None:
        self._service = service
        self._statistics = QueryStatistics(service.client)
        self._connectors = Connectors(service.config, lambda source: self._source(source, False))

    @property
    def _catalog(self) -> Catalog:
        return self._service.catalog

    def execute(
        self, statement: statements.Statement, session: Json, variables: dict[str, str]
    ) -> Json | None:
        """The entity of a statement, or None if it is not one of these."""
        found = self._connectors.execute(statement, self._catalog)
        if found is not None:
            return found
        match statement:
            case statements.Show():
                return self._show(statement, session, variables)
            case statements.Describe():
                return self._describe(statement)
            case statements.Explain():
                return self._explain(statement, session)
            case statements.AssertTopic():
                return self._assert_topic(statement)
            case statements.AssertSchema():
                return self._assert_schema(statement)
        return None

    # SHOW

    def _show(self, statement: statements.Show, session: Json, variables: dict[str, str]) -> Json:
        text = statement.text
        sources = sorted(self._catalog.sources.values(), key=lambda one: one.name)
        match statement.what:
            case "STREAMS" | "TABLES":
                kind = statement.what[:-1]
                found = [one for one in sources if one.kind == kind]
                if statement.extended:
                    return self._descriptions(text, found)
                make = entities.streams if kind == "STREAM" else entities.tables
                return make(text, found)
            case "TOPICS" | "ALL TOPICS":
                return self._topics(statement)
            case "QUERIES":
                if statement.extended:
                    found_queries = [self._query_description(one) for one in self._catalog.queries.values()]
                    return entity("query_descriptions", text, queryDescriptions=found_queries)
                return entity("queries", text, queries=[self._entry(one) for one in self._queries()])
            case "PROPERTIES":
                return self._properties(text, session)
            case "FUNCTIONS":
                return entity("function_names", text, functions=self._functions())
            case "TYPES":
                types = {name: entities.type_info(one) for name, one in sorted(self._catalog.types.items())}
                return entity("type_list", text, types=types)
            case "VARIABLES":
                shown = [{"name": name, "value": value} for name, value in sorted(variables.items())]
                return entity("variables", text, variables=shown)
            case "COLUMNS":
                return self._source_description(text, statement.which or "", extended=False)
        raise SqlError(f"SHOW {statement.what} is not served here yet")

    def _queries(self) -> list[QueryInfo]:
        return [self._catalog.queries[name] for name in sorted(self._catalog.queries)]

    def _entry(self, query: QueryInfo) -> Json:
        state = self._service.persistent.state(query.id)
        return entities.query_entry(query.id, query.statement, self._catalog.source(query.sink), state)

    def _topics(self, statement: statements.Show) -> Json:
        with Cluster(self._service.client) as cluster:
            names = sorted(Admin(cluster).topic_names())
            if not statement.what.startswith("ALL"):
                names = [name for name in names if not name.startswith(_INTERNAL)]
            cluster.refresh(names)
            topics = []
            for name in names:
                partitions = cluster.topic(name).partitions
                copies = [len(one.replicas) for _, one in sorted(partitions.items())]
                found: Json = {"name": name, "replicaInfo": copies}
                if statement.extended:
                    found |= {"consumerCount": 0, "consumerGroupCount": 0}
                topics.append(found)
        kind = "kafka_topics_extended" if statement.extended else "kafka_topics"
        return entity(kind, statement.text, topics=topics)

    def _properties(self, text: str, session: Json) -> Json:
        config = self._service.config
        given = {**{name: str(config.value(name)) for name in config.keys if _shown(name)}, **session}
        properties = [
            {
                "name": name,
                "scope": "KSQL",
                "value": str(value),
                "editable": name.startswith("ksql.streams.") or name in session,
                "level": "SERVER",
            }
            for name, value in sorted(given.items())
        ]
        return entity(
            "properties",
            text,
            properties=properties,
            overwrittenProperties=sorted(session),
            defaultProperties=sorted(name for name in given if name not in config.given),
        )

    def _functions(self) -> list[Json]:
        return [
            {"name": one.name.upper(), "type": one.kind.value, "category": one.category}
            for one in sorted(self._service.functions, key=lambda row: row.name)
        ]

    # DESCRIBE

    def _describe(self, statement: statements.Describe) -> Json:
        if statement.what == "FUNCTION":
            return self._function(statement)
        if statement.what in ("STREAMS", "TABLES"):
            kind = statement.what[:-1]
            found = [one for one in self._catalog.sources.values() if one.kind == kind]
            return self._descriptions(statement.text, found)
        return self._source_description(statement.text, statement.name or "", extended=statement.extended)

    def _source_description(self, text: str, name: str, *, extended: bool) -> Json:
        source = self._catalog.source(name)
        if source is None:
            raise SqlError(f"Could not find STREAM/TABLE '{name}' in the Metastore")
        return entity("sourceDescription", text, sourceDescription=self._source(source, extended))

    def _descriptions(self, text: str, found: list[Source]) -> Json:
        shown = [self._source(one, True) for one in found]
        return entity("source_descriptions", text, sourceDescriptions=shown)

    def _source(self, source: Source, extended: bool) -> Json:
        partitions, copies = 0, 0
        if extended:
            with Cluster(self._service.client) as cluster:
                if not cluster.refresh([source.topic]):
                    found = cluster.topic(source.topic).partitions
                    partitions = len(found)
                    copies = len(next(iter(found.values())).replicas) if found else 0
        states = {name: self._service.persistent.state(name) for name in self._catalog.queries}
        return entities.source_description(
            source, self._catalog, states, extended=extended, partitions=partitions, replication=copies
        )

    def _function(self, statement: statements.Describe) -> Json:
        found: Function = self._service.functions.find(statement.name or "")
        functions = [
            {
                "arguments": [
                    {
                        "name": param.name,
                        "type": str(param.type),
                        "description": "",
                        "isVariadic": param.variadic,
                    }
                    for param in overload.params
                ],
                "returnType": "" if callable(overload.result) else str(overload.result),
                "description": overload.doc or found.doc,
            }
            for overload in found.overloads
        ]
        return entity(
            "describe_function",
            statement.text,
            name=found.name.upper(),
            description=found.doc,
            author="Millstream",
            version="",
            path="internal",
            functions=functions,
            type=found.kind.value,
        )

    # EXPLAIN

    def _explain(self, statement: statements.Explain, session: Json) -> Json:
        text = statement.text
        if statement.query is not None:
            name = next(
                (one for one in self._catalog.queries if one.upper() == statement.query.upper()), None
            )
            if name is None:
                raise SqlError(
                    f"Query with id:{statement.query} does not exist, use SHOW QUERIES to view the full set "
                    "of queries."
                )
            description = self._query_description(self._catalog.queries[name])
            running = self._service.persistent.running(name)
            if running is not None:
                description["statistics"] = self._statistics.of(name, running)
            return entity("queryDescription", text, queryDescription=description)
        inner = statement.statement
        environment = self._service.environment(session)
        if isinstance(inner, statements.Select):
            planner, _, types = plan_query(inner.query, self._catalog, environment)
            schema = Schema(tuple(Column(column.name, type_) for column, type_ in types))
            topology = describe(planner.builder.build())
            return entity(
                "queryDescription",
                text,
                queryDescription=self._described(
                    "", inner.text, schema, _sources(inner.query), [], str(topology)
                ),
            )
        if inner is None:
            raise SqlError("EXPLAIN needs a query or the id of one")
        outcome = apply(inner, self._catalog, environment)
        if outcome.query is None:
            raise SqlError(f"The provided statement does not run a ksql query: {inner.text}")
        return entity(
            "queryDescription",
            text,
            queryDescription=self._described(
                outcome.query.id,
                inner.text,
                outcome.query.sink.schema,
                [one.name for one in outcome.query.sources],
                [outcome.query.sink.name],
                str(describe(outcome.query.topology())),
            ),
        )

    def _query_description(self, query: QueryInfo) -> Json:
        running = self._service.persistent.running(query.id)
        sink = self._catalog.source(query.sink)
        topology, tasks = "", []
        if running is not None:
            topology = str(describe(running.topology))
            for name, task in running.tasks().items():
                tasks.append(
                    {"taskId": name, "state": task.state, "topicOffsets": [], "lag": task.status.lag}
                )
        found = self._described(
            query.id,
            query.statement,
            sink.schema if sink is not None else Schema(),
            sorted(query.sources),
            [query.sink],
            topology,
            self._service.persistent.state(query.id),
        )
        found["tasksMetadata"] = tasks
        error = self._service.persistent.error(query.id)
        if error is not None:
            now = int(time.time() * 1000)
            found["queryErrors"] = [{"errorMessage": error, "timestamp": now, "type": "UNKNOWN"}]
        return found

    def _described(
        self,
        query_id: str,
        text: str,
        schema: Schema,
        sources: list[str],
        sinks: list[str],
        topology: str,
        state: str | None = None,
    ) -> Json:
        return entities.query_description(
            query_id,
            text,
            schema,
            sources=sources,
            sinks=sinks,
            topology=topology,
            plan=topology,
            state=state,
            host=self._service.address,
        )

    # ASSERT

    def _assert_topic(self, statement: statements.AssertTopic) -> Json:
        deadline = time.monotonic() + (statement.timeout or 1000) / 1000
        while True:
            count = self._service.partitions_of(statement.topic)
            wanted = statement.properties.get("PARTITIONS")
            fits = count is not None
            if fits and isinstance(wanted, ast.Literal):
                fits = count == wanted.value
            if fits == statement.exists:
                return entity(
                    "assert_topic", statement.text, topicName=statement.topic, exists=statement.exists
                )
            if time.monotonic() > deadline:
                word = "does not exist" if statement.exists else "exists"
                raise SqlError(f"Topic {statement.topic} {word}")
            time.sleep(0.1)

    def _assert_schema(self, statement: statements.AssertSchema) -> Json:
        registry = self._service.registry
        if registry is None:
            raise SqlError("ASSERT SCHEMA needs ksql.schema.registry.url")
        deadline = time.monotonic() + (statement.timeout or 1000) / 1000
        what = f"subject {statement.subject}" if statement.subject is not None else f"id {statement.id}"
        while True:
            try:
                found: Any = (
                    registry.latest(statement.subject)
                    if statement.subject is not None
                    else registry.schema(int(statement.id or 0))
                )
                there = statement.id is None or found.id == statement.id
            except RegistryRefused:
                there = False
            except RegistryUnreachable as error:
                raise SqlError(str(error)) from None
            if there == statement.exists:
                return entity(
                    "assert_schema",
                    statement.text,
                    subject=statement.subject,
                    id=statement.id,
                    exists=statement.exists,
                )
            if time.monotonic() > deadline:
                raise SqlError(f"Schema with {what} {'does not exist' if statement.exists else 'exists'}")
            time.sleep(0.1)


def _shown(name: str) -> bool:
    return not any(word in name for word in ("password", "user.info", "sasl.jaas"))


def _sources(query: ast.Query) -> list[str]:
    return sorted({query.source.name, *(join.source.name for join in query.joins)})
