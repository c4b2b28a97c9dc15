"""SELECT ... FROM ...: the clauses of a query, in their order."""

from __future__ import annotations

from typing import Any, cast

from millstream.sql import ast
from millstream.sql.errors import SqlSyntaxError, sql_error
from millstream.sql.lexer import RESERVED
from millstream.sql.parse_expressions import ExpressionParser

_JOINS = ("INNER", "LEFT", "RIGHT", "FULL", "OUTER", "JOIN")


class QueryParser(ExpressionParser):
    def query(self) -> ast.Query:
        location = self.here
        self.need_word("SELECT")
        beyond = self.here
        distinct = self.word("DISTINCT")
        select = [self._select_item()]
        while self.symbol(","):
            select.append(self._select_item())
        self.need_word("FROM")
        source = self._source()
        joins = []
        while any(self.is_word(word) for word in _JOINS):
            joins.append(self._join())
        window = self._window() if self.word("WINDOW") else None
        where = self.expression() if self.word("WHERE") else None
        group_by: tuple[ast.Expression, ...] = ()
        partition_by: tuple[ast.Expression, ...] = ()
        grouped = False
        if self.word("GROUP"):
            self.need_word("BY")
            grouped = self.is_symbol("(")
            group_by = self._keys()
        if self.word("PARTITION"):
            self.need_word("BY")
            partition_by = self._keys()
        having = self.expression() if self.word("HAVING") else None
        if self.is_word("ORDER") and not distinct:
            # ORDER is no word of ksqlDB's: behind a source it is taken for an alias there, and BY is wrong.
            bare = source.alias == source.name and not joins
            alias = bare and not (window or where or group_by or partition_by or having)
            beyond = self.peek().location if alias else self.here
        order_by = self._order() if self.word("ORDER") else ()
        emit: Any = None
        if self.word("EMIT"):
            if not self.is_word("CHANGES") and not self.is_word("FINAL"):
                self.fail("'CHANGES'", "'FINAL'")
            emit = self.take().value
        limit = self._limit() if self.word("LIMIT") else None
        return ast.Query(
            tuple(select),
            source,
            tuple(joins),
            window,
            where,
            group_by,
            grouped,
            partition_by,
            having,
            emit,
            limit,
            order_by,
            distinct,
            beyond=beyond,
            location=location,
        )

    def _limit(self) -> int | None:
        """Negative numbers are refused later: by what they are asked of."""
        if self.word("ALL"):
            return None
        sign = -1 if self.symbol("-") else 1
        if self.token.kind in ("decimal", "float"):
            raise sql_error("LIMIT not whole", self.here)
        return sign * self.integer()

    def _order(self) -> tuple[tuple[ast.Expression, bool], ...]:
        """Beyond ksqlDB: for pull queries. True means descending."""
        self.need_word("BY")
        found = []
        while True:
            expression = self.value_expression()
            descending = False
            if self.is_word("ASC") or self.is_word("DESC"):
                descending = self.take().value == "DESC"
            found.append((expression, descending))
            if not self.symbol(","):
                return tuple(found)

    def _select_item(self) -> ast.SelectItem:
        location = self.here
        if self.symbol("*"):
            return ast.SelectItem(star=True, location=location)
        if self.is_symbol(".", ahead=1) and self.is_symbol("*", ahead=2):
            source = self.identifier()
            self.at += 2
            return ast.SelectItem(star=True, source=source, location=location)
        expression = self.expression()
        if self.is_symbol("->") and self.is_symbol("*", ahead=1):
            self.at += 2
            return ast.SelectItem(expression, star=True, location=location)
        return ast.SelectItem(expression, self._alias(), location=location)

    def _alias(self) -> str | None:
        if self.word("AS"):
            return self.identifier()
        token = self.token
        if token.kind == "quoted" or (token.kind == "word" and token.value not in RESERVED):
            if token.value == "EMIT" and token.kind == "word" and self.peek().value in ("CHANGES", "FINAL"):
                return None
            if self.is_word("PARTITION", "BY") or self.is_word("ORDER", "BY"):
                return None
            return self.identifier()
        return None

    def _source(self) -> ast.Source:
        location = self.here
        name = self.identifier()
        if self.is_symbol("("):
            self.fail("'WINDOW'", "'WHERE'", "'GROUP'", "<EOF>")
        return ast.Source(name, self._alias() or name, location=location)

    def _join(self) -> ast.JoinedSource:
        location = self.here
        join_type: ast.JoinType = "INNER"
        if self.is_word("LEFT") or self.is_word("RIGHT"):
            join_type = cast(ast.JoinType, self.take().value)
            self.word("OUTER")
        elif self.word("FULL"):
            join_type = "OUTER"
            self.word("OUTER")
        elif self.word("OUTER"):
            join_type = "OUTER"
        else:
            self.word("INNER")
        self.need_word("JOIN")
        source = self._source()
        within = self._within() if self.word("WITHIN") else None
        self.need_word("ON")
        return ast.JoinedSource(join_type, source, within, self.expression(), location=location)

    def _within(self) -> ast.Within:
        if self.symbol("("):
            before = self.duration()
            self.need_symbol(",")
            after = self.duration()
            self.need_symbol(")")
        else:
            before = after = self.duration()
        grace = None
        if self.word("GRACE"):
            self.need_word("PERIOD")
            grace = self.duration()
        return ast.Within(before, after, grace)

    def _window(self) -> ast.Window:
        location = self.here
        if not any(self.is_word(word) for word in ("TUMBLING", "HOPPING", "SESSION")):
            name_first = self.token.kind in ("word", "quoted") and not self.is_symbol("(")
            if not name_first:
                self.fail("'TUMBLING'", "'HOPPING'", "'SESSION'")
            self.identifier()
        if not any(self.is_word(word) for word in ("TUMBLING", "HOPPING", "SESSION")):
            self.fail("'TUMBLING'", "'HOPPING'", "'SESSION'")
        window_type = cast(Any, self.take().value)
        self.need_symbol("(")
        advance = None
        if window_type == "SESSION":
            size = self.duration()
        else:
            self.need_word("SIZE")
            size = self.duration()
            if window_type == "HOPPING":
                self.need_symbol(",")
                self.need_word("ADVANCE", "BY")
                advance = self.duration()
        retention = grace = None
        while self.symbol(","):
            if self.word("RETENTION"):
                if retention is not None or grace is not None:
                    self.at -= 1
                    self.fail("'GRACE'", "')'")
                retention = self.duration()
            else:
                self.need_word("GRACE", "PERIOD")
                grace = self.duration()
        self.need_symbol(")")
        return ast.Window(window_type, size, advance, retention, grace, location=location)

    def _keys(self) -> tuple[ast.Expression, ...]:
        """One or more expressions, or all of them in one pair of parentheses."""
        start = self.at
        if self.symbol("("):
            grouped = self._grouped_keys()
            if grouped is not None:
                return grouped
            self.at = start
        found = [self.value_expression()]
        while self.symbol(","):
            found.append(self.value_expression())
        return tuple(found)

    def _grouped_keys(self) -> tuple[ast.Expression, ...] | None:
        """`(a, b)` and nothing behind it that would make it the beginning of an expression."""
        try:
            found = [self.value_expression()]
            while self.symbol(","):
                found.append(self.value_expression())
        except SqlSyntaxError:
            return None
        if not self.symbol(")"):
            return None
        token = self.token
        goes_on = token.kind == "symbol" and token.value not in (";", ")")
        return None if goes_on else tuple(found)
