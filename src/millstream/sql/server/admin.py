"""SHOW, DESCRIBE, EXPLAIN and ASSERT: statements that change nothing, answered in ksqlDB's shapes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from millstream.client import Admin, Cluster
from millstream.serdes.client import RegistryRefused, RegistryUnreachable
from millstream.sql import ast, statements
from millstream.sql.catalog import Catalog, Column, QueryInfo, Schema, Source
from millstream.sql.engine import apply, plan_query
from millstream.sql.errors import SqlError
from millstream.sql.functions.table import Function, Overload
from millstream.sql.server import entities
from millstream.sql.server.connectors import Connectors
from millstream.sql.server.entities import Json, entity
from millstream.sql.server.peers import INTERNAL, UNRESPONSIVE
from millstream.sql.server.query_statistics import QueryStatistics
from millstream.sql.server.topic_readers import topic_readers
from millstream.sql.types import PRIMITIVES, TIME
from millstream.streams.describe import describe

if TYPE_CHECKING:
    from millstream.serdes.client import SchemaRegistry
    from millstream.sql.server.service import SqlService

_EXPLAIN = re.compile(r"^\s*EXPLAIN\s+(ANALYZE\s+)?", re.IGNORECASE)
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
                return self._describe(statement, session)
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
        alone = INTERNAL in session
        match statement.what:
            case "STREAMS" | "TABLES":
                kind = statement.what[:-1]
                found = [one for one in sources if one.kind == kind]
                if statement.extended:
                    return self._descriptions(text, found, alone)
                make = entities.streams if kind == "STREAM" else entities.tables
                return make(text, found)
            case "TOPICS" | "ALL TOPICS":
                return self._topics(statement)
            case "QUERIES":
                if statement.extended:
                    found_queries = [self._query_description(one, alone) for one in self._queries()]
                    return entity("query_descriptions", text, queryDescriptions=found_queries)
                states = self._states(self._catalog.queries, alone)
                return entity("queries", text, queries=[self._entry(one, states) for one in self._queries()])
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
                return self._source_description(text, statement.which or "", extended=False, alone=alone)
        raise SqlError(f"SHOW {statement.what} is not served here yet")

    def _queries(self) -> list[QueryInfo]:
        return [self._catalog.queries[name] for name in sorted(self._catalog.queries)]

    def _entry(self, query: QueryInfo, states: Mapping[str, str]) -> Json:
        sink = self._catalog.source(query.sink)
        return entities.query_entry(query.id, query.statement, sink, states[query.id])

    def _states(self, queries: Iterable[str], alone: bool) -> dict[str, str]:
        """Of each query, from the server that runs it; `alone`: as this server knows them."""
        found = {name: self._service.persistent.state(name) for name in queries}
        if alone:
            return found
        others: dict[str, list[str]] = {}
        for name in found:
            owner = self._other_owner(name)
            if owner is not None:
                others.setdefault(owner, []).append(name)
        for server, names in others.items():
            states = self._service.peers.states(server)
            found |= {name: states.get(name, UNRESPONSIVE) for name in names}
        return found

    def _other_owner(self, query: str) -> str | None:
        group = self._service.group
        return None if group is None or group.is_mine(query) else group.owner(query)

    def _topics(self, statement: statements.Show) -> Json:
        with Cluster(self._service.client) as cluster:
            names = sorted(Admin(cluster).topic_names())
            if not statement.what.startswith("ALL"):
                names = [name for name in names if not name.startswith(_INTERNAL)]
            cluster.refresh(names)
            readers = topic_readers(cluster) if statement.extended else {}
            topics = []
            for name in names:
                partitions = cluster.topic(name).partitions
                copies = [len(one.replicas) for _, one in sorted(partitions.items())]
                found: Json = {"name": name, "replicaInfo": copies}
                if statement.extended:
                    consumers, groups = readers.get(name, (0, 0))
                    found |= {"consumerCount": consumers, "consumerGroupCount": groups}
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

    def _describe(self, statement: statements.Describe, session: Json) -> Json:
        alone = INTERNAL in session
        if statement.what == "FUNCTION":
            return self._function(statement)
        if statement.what in ("STREAMS", "TABLES"):
            kind = statement.what[:-1]
            found = [one for one in self._catalog.sources.values() if one.kind == kind]
            return self._descriptions(statement.text, found, alone)
        name, extended = statement.name or "", statement.extended
        return self._source_description(statement.text, name, extended=extended, alone=alone)

    def _source_description(self, text: str, name: str, *, extended: bool, alone: bool) -> Json:
        source = self._catalog.source(name)
        if source is None:
            raise SqlError(f"Could not find STREAM/TABLE '{name}' in the Metastore")
        return entity("sourceDescription", text, sourceDescription=self._source(source, extended, alone))

    def _descriptions(self, text: str, found: list[Source], alone: bool) -> Json:
        shown = [self._source(one, True, alone) for one in found]
        return entity("source_descriptions", text, sourceDescriptions=shown)

    def _source(self, source: Source, extended: bool, alone: bool = False) -> Json:
        partitions, copies = self._extent(source.topic) if extended else (0, 0)
        near = [*self._catalog.readers(source.name), *self._catalog.writers(source.name)]
        states = self._states([one.id for one in near], alone)
        return entities.source_description(
            source, self._catalog, states, extended=extended, partitions=partitions, replication=copies
        )

    def _extent(self, topic: str) -> tuple[int, int]:
        """Partitions and replicas of a topic; none of either if there is no such topic."""
        with Cluster(self._service.client) as cluster:
            if cluster.refresh([topic]):
                return 0, 0
            found = cluster.topic(topic).partitions
            return len(found), len(next(iter(found.values())).replicas) if found else 0

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
                "returnType": _result(overload),
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
            description = self._query_description(self._catalog.queries[name], INTERNAL in session)
            running = self._service.persistent.running(name)
            if running is not None:
                description["statistics"] = self._statistics.of(name, running)
            return entity("queryDescription", text, queryDescription=description)
        inner = statement.statement
        explained = _EXPLAIN.sub("", text)
        environment = self._service.environment(session)
        if isinstance(inner, statements.Select):
            planner, _, types = plan_query(inner.query, self._catalog, environment)
            schema = Schema(tuple(Column(column.name, type_) for column, type_ in types))
            topology = describe(planner.builder.build())
            return entity(
                "queryDescription",
                text,
                queryDescription=self._described(
                    "",
                    explained,
                    schema,
                    _sources(inner.query),
                    [],
                    str(topology),
                    kind="PULL" if inner.query.emit is None else "PUSH",
                ),
            )
        if inner is None:
            raise SqlError("EXPLAIN needs a query or the id of one")
        outcome = apply(inner, self._catalog, environment)
        if outcome.query is None:
            raise SqlError(f"The provided statement does not run a ksql query: {explained}")
        return entity(
            "queryDescription",
            text,
            queryDescription=self._described(
                outcome.query.id,
                explained,
                outcome.query.sink.schema,
                [one.name for one in outcome.query.sources],
                [outcome.query.sink.name],
                str(describe(outcome.query.topology())),
            ),
        )

    def _query_description(self, query: QueryInfo, alone: bool) -> Json:
        owner = None if alone else self._other_owner(query.id)
        if owner is not None:
            answer = self._service.peers.ask(owner, f"EXPLAIN {query.id};")
            if answer is not None and "queryDescription" in answer:
                return dict(answer["queryDescription"])
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
            UNRESPONSIVE if owner is not None else self._service.persistent.state(query.id),
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
        kind: str = "PERSISTENT",
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
            kind=kind,
        )

    # ASSERT

    def _assert_topic(self, statement: statements.AssertTopic) -> Json:
        deadline = time.monotonic() + (statement.timeout or 1000) / 1000
        while True:
            wrong = self._topic_mistakes(statement)
            if not wrong:
                return entity(
                    "assert_topic", statement.text, topicName=statement.topic, exists=statement.exists
                )
            if time.monotonic() > deadline:
                raise SqlError("\n".join(wrong))
            time.sleep(0.1)

    def _topic_mistakes(self, statement: statements.AssertTopic) -> list[str]:
        partitions, copies = self._extent(statement.topic)
        if not statement.exists:
            return [f"Topic {statement.topic} exists."] if partitions else []
        if not partitions:
            return [f"Topic {statement.topic} does not exist."]
        found = {"PARTITIONS": partitions, "REPLICAS": copies}
        wrong = []
        for name, value in statement.properties.items():
            if name not in found:
                wrong.append(f"Cannot assert unknown topic property: {name}.")
            elif isinstance(value, ast.Literal) and value.value != found[name]:
                wrong.append(
                    f"Mismatched configuration for topic {statement.topic}: For config {name.lower()}, "
                    f"expected {value.value} got {found[name]}."
                )
        return wrong

    def _assert_schema(self, statement: statements.AssertSchema) -> Json:
        registry = self._service.registry
        if registry is None:
            raise SqlError("ASSERT SCHEMA needs ksql.schema.registry.url")
        deadline = time.monotonic() + (statement.timeout or 1000) / 1000
        what = "" if statement.subject is None else f" subject name {statement.subject}"
        what += "" if statement.id is None else f" id {statement.id}"
        while True:
            try:
                there = _is_registered(registry, statement.subject, statement.id)
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
                raise SqlError(f"Schema with{what} {'does not exist' if statement.exists else 'exists'}.")
            time.sleep(0.1)


def _result(overload: Overload) -> str:
    """The type of an overload's result; "" where it depends on more than one generic type."""
    if not callable(overload.result):
        return str(overload.result)
    kinds = [one.type.kind for one in overload.params]
    if overload.aggregate is None or not all(kind == "GENERIC" or kind in PRIMITIVES for kind in kinds):
        return ""
    # TIME stands for the generic type: nothing that takes any type gives a time by itself.
    types = [TIME if kind == "GENERIC" else PRIMITIVES[kind] for kind in kinds]
    made = str(overload.aggregate(types, [1] * overload.literals, {}).result_type)
    made = made.replace("TIME", "T") if "GENERIC" in kinds else made
    return made.replace("STRING", "VARCHAR").replace("INTEGER", "INT")


def _is_registered(registry: SchemaRegistry, subject: str | None, schema_id: int | None) -> bool:
    if subject is None:
        return registry.schema(int(schema_id or 0)) is not None
    if schema_id is None:
        return registry.latest(subject) is not None
    return registry.version_of(schema_id, subject) is not None


def _shown(name: str) -> bool:
    return not any(word in name for word in ("password", "user.info", "sasl.jaas"))


def _sources(query: ast.Query) -> list[str]:
    return sorted({query.source.name, *(join.source.name for join in query.joins)})
