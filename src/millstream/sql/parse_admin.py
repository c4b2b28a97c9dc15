"""Statements that look at things, set things, or steer running queries; properties of WITH (...)."""

from __future__ import annotations

from typing import Any, cast

from millstream.sql import ast, statements
from millstream.sql.parse_queries import QueryParser
from millstream.sql.statements import Properties, Statement


class AdminParser(QueryParser):
    def properties(self) -> Properties:
        """(name = literal, ...). Names in quotes keep their case: they are a connector's."""
        self.need_symbol("(")
        found: Properties = {}
        while True:
            token = self.token
            name = self.string() if token.kind == "string" else self.identifier()
            self.need_symbol("=")
            found[name] = self._literal()
            if not self.symbol(","):
                break
        self.need_symbol(")")
        return found

    def _literal(self) -> ast.Expression:
        token = self.token
        numeric = self.peek() if self.is_symbol("-") else token
        words = ("NULL", "TRUE", "FALSE")
        if not (
            token.kind == "string"
            or numeric.kind in ("integer", "decimal", "float")
            or (token.kind == "word" and token.value in words)
        ):
            self.fail("a literal")
        return self._signed()

    def admin_statement(self, location: Any) -> Statement | None:
        token = self.token
        if token.kind != "word":
            return None
        method = getattr(self, "_" + token.value.lower() + "_statement", None)
        if method is None:
            return None
        self.take()
        return cast(Statement, method(location))

    # Looking ------------------------------------------------------------

    def _list_statement(self, location: Any) -> Statement:
        return self._show_statement(location)

    def _show_statement(self, location: Any) -> Statement:
        if self.word("ALL", "TOPICS"):
            return statements.Show("ALL TOPICS", self.word("EXTENDED"), location=location)
        for what in ("TOPICS", "STREAMS", "TABLES", "QUERIES"):
            if self.word(what):
                return statements.Show(what, self.word("EXTENDED"), location=location)
        for what in ("FUNCTIONS", "PROPERTIES", "TYPES", "VARIABLES", "CONNECTORS"):
            if self.word(what):
                return statements.Show(what, location=location)
        if self.word("CONNECTOR", "PLUGINS"):
            return statements.Show("CONNECTOR PLUGINS", location=location)
        if self.word("COLUMNS"):
            if not self.word("FROM"):
                self.need_word("IN")
            return statements.Show("COLUMNS", which=self.identifier(), location=location)
        for kind in ("SOURCE", "SINK"):
            if self.word(kind, "CONNECTORS"):
                return statements.Show("CONNECTORS", which=kind, location=location)
        self.fail("'STREAMS'", "'TABLES'", "'TOPICS'", "'QUERIES'", "'FUNCTIONS'", "'PROPERTIES'", "'TYPES'")

    def _describe_statement(self, location: Any) -> Statement:
        for what in ("FUNCTION", "CONNECTOR"):
            if self.word(what):
                return statements.Describe(what, self.identifier(), location=location)
        for what in ("STREAMS", "TABLES"):
            if self.word(what):
                return statements.Describe(what, None, self.word("EXTENDED"), location=location)
        if self.word("EXTENDED"):
            return statements.Describe("SOURCE", self.identifier(), True, location=location)
        name = self.identifier()
        return statements.Describe("SOURCE", name, self.word("EXTENDED"), location=location)

    def _explain_statement(self, location: Any) -> Statement:
        analyze = self.word("ANALYZE")
        if any(self.is_word(word) for word in ("SELECT", "CREATE", "INSERT")):
            return statements.Explain(None, self._statement(), analyze, location=location)
        return statements.Explain(self.query_id(), None, analyze, location=location)

    def _statement(self) -> Statement:
        raise NotImplementedError

    def query_id(self) -> str:
        """Query ids keep the case in which they are written only in quotes; transient ones have hyphens
        there."""
        return self.identifier()

    def _print_statement(self, location: Any) -> Statement:
        token = self.token
        topic = self.string() if token.kind == "string" else self._topic_name()
        beginning = self.word("FROM", "BEGINNING")
        interval = None
        if self.word("INTERVAL") or self.word("SAMPLE"):
            interval = self.integer()
        limit = self.integer() if self.word("LIMIT") else None
        return statements.Print(topic, beginning, interval, limit, location=location)

    def _topic_name(self) -> str:
        """A topic's name keeps its case and may have dots and hyphens in it."""
        first = self.token
        if first.kind == "quoted":
            return self.take().value
        if first.kind != "word":
            self.fail("a topic")
        last = self.take()
        while self.token.start == last.end and (
            self.token.kind in ("word", "integer", "decimal")
            or (self.token.kind == "symbol" and self.token.value in "-.")
        ):
            last = self.take()
        taken = self.tokens[self.tokens.index(first) : self.at]
        return "".join(token.text for token in taken)

    # Setting ------------------------------------------------------------

    def _set_statement(self, location: Any) -> Statement:
        name = self.string()
        self.need_symbol("=")
        return statements.SetProperty(name, self.string(), location=location)

    def _unset_statement(self, location: Any) -> Statement:
        if self.word("ALL"):
            return statements.UnsetProperty(None, location=location)
        return statements.UnsetProperty(self.string(), location=location)

    def _define_statement(self, location: Any) -> Statement:
        name = self._variable_name()
        self.need_symbol("=")
        return statements.Define(name, self.string(), location=location)

    def _undefine_statement(self, location: Any) -> Statement:
        return statements.Undefine(self._variable_name(), location=location)

    def _variable_name(self) -> str:
        """As it is written; any word is one, reserved or not."""
        return self.take().text if self.token.kind == "word" else self.identifier()

    # Steering ------------------------------------------------------------

    def _terminate_statement(self, location: Any) -> Statement:
        return statements.Terminate(self._query_or_all(), location=location)

    def _pause_statement(self, location: Any) -> Statement:
        return statements.Pause(self._query_or_all(), location=location)

    def _resume_statement(self, location: Any) -> Statement:
        return statements.Resume(self._query_or_all(), location=location)

    def _query_or_all(self) -> str | None:
        return None if self.word("ALL") else self.query_id()

    def create_connector(self, location: Any) -> Statement:
        kind = cast(Any, self.take().value)
        self.need_word("CONNECTOR")
        if_not_exists = self.word("IF", "NOT", "EXISTS")
        name = self.identifier()
        self.need_word("WITH")
        return statements.CreateConnector(name, kind, self.properties(), if_not_exists, location=location)

    def _assert_statement(self, location: Any) -> Statement:
        exists = not self.word("NOT", "EXISTS")
        if self.word("TOPIC"):
            topic = self.string() if self.token.kind == "string" else self._topic_name()
            properties = self.properties() if self.word("WITH") else {}
            return statements.AssertTopic(topic, properties, exists, self._timeout(), location=location)
        if not self.word("SCHEMA"):
            self.fail("'TOPIC'", "'SCHEMA'", "'NOT'")
        subject, schema_id = None, None
        if self.word("SUBJECT"):
            subject = self.string() if self.token.kind == "string" else self._topic_name()
        if self.word("ID"):
            schema_id = self.integer()
        if subject is None and schema_id is None:
            self.fail("'SUBJECT'", "'ID'")
        return statements.AssertSchema(subject, schema_id, exists, self._timeout(), location=location)

    def _timeout(self) -> int | None:
        return self.duration().milliseconds if self.word("TIMEOUT") else None
