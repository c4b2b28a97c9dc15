"""Expressions and types by precedence climbing, over the cursor that all parts of the parser share.

From weak to strong: OR, AND, NOT, one comparison, then `||`, `+ -`, `* / %`, signs, and what follows a value
(`[...]`, `->`).
"""

from __future__ import annotations

from collections.abc import Container
from decimal import Decimal
from math import isinf
from typing import Any, NoReturn, cast

from millstream.sql import ast
from millstream.sql.errors import SqlParseError, SqlSyntaxError
from millstream.sql.lexer import RESERVED, Location, Token

_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_INT_LIMIT, _LONG_LIMIT = 2**31, 2**63
_UNITS = {**{unit: unit for unit in ast.UNITS}, **{unit + "S": unit for unit in ast.UNITS}}
_COLUMN_NAMES = {"DAY", "HOUR", "MINUTE", "SECOND"}
# Those of a fixed length, which functions take. Windows and joins take months and years as well.
_SPANS = frozenset(name for name, unit in _UNITS.items() if unit not in ("MONTH", "YEAR"))
_TAKE_UNITS = {f"{type_}{change}" for type_ in ("DATE", "TIME", "TIMESTAMP") for change in ("ADD", "SUB")}
_DEPTH = 60


class Cursor:
    """A place in a list of tokens, and the small questions every rule asks."""

    def __init__(self, tokens: list[Token], text: str) -> None:
        self.tokens, self.text, self.at = tokens, text, 0
        self._depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    @property
    def here(self) -> Location:
        return self.token.location

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def is_word(self, *words: str, ahead: int = 0) -> bool:
        """Whether these words come next, in this order."""
        for offset, word in enumerate(words):
            token = self.peek(ahead + offset)
            if token.kind != "word" or token.value != word:
                return False
        return True

    def is_symbol(self, symbol: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind == "symbol" and token.value == symbol

    def word(self, *words: str) -> bool:
        """Takes these words if they come next."""
        if self.is_word(*words):
            self.at += len(words)
            return True
        return False

    def symbol(self, symbol: str) -> bool:
        if self.is_symbol(symbol):
            self.at += 1
            return True
        return False

    def need_word(self, *words: str) -> None:
        for word in words:
            if not self.word(word):
                self.fail(f"'{word}'")

    def need_symbol(self, symbol: str) -> None:
        if not self.symbol(symbol):
            self.fail(f"'{symbol}'")

    def fail(self, *expected: str) -> NoReturn:
        token = self.token
        near = token.text if token.kind != "end" else "<EOF>"
        detail = f"Syntax error at or near '{near}'"
        if token.kind == "word" and token.value in RESERVED and "an identifier" in expected:
            detail = (
                f'"{token.text}" is a reserved keyword and it can\'t be used as an identifier. '
                f"You can use it as an identifier by escaping it as '{token.text}'.\n{detail}"
            )
        if expected == ("')'",):
            detail = f"missing ')' at '{near}'\n{detail}"
        raise SqlSyntaxError(detail, token.location, expected)

    def identifier(self) -> str:
        token = self.token
        if token.kind == "quoted" or (token.kind == "word" and token.value not in RESERVED):
            self.at += 1
            return token.value
        if token.kind == "variable":
            self.fail_variable(token)
        self.fail("an identifier")

    def fail_variable(self, token: Token) -> NoReturn:
        raise SqlSyntaxError(
            f"Syntax error at or near '{token.text}': the variable is not defined", token.location
        )

    def string(self) -> str:
        if self.token.kind != "string":
            self.fail("STRING")
        return self.take().value

    def integer(self) -> int:
        if self.token.kind != "integer":
            self.fail("INTEGER_VALUE")
        text, location = self.token.text, self.here
        value = _whole(self.take().value)
        if value is None:
            raise SqlParseError(f"Invalid numeric literal: {text}", location)
        return value

    def duration(self) -> ast.Duration:
        """5 SECONDS"""
        amount = self.integer()
        return ast.Duration(amount, self.unit())

    def unit(self) -> str:
        token = self.token
        if token.kind != "word" or token.value not in _UNITS:
            self.fail("'DAYS'", "'HOURS'", "'MINUTES'", "'SECONDS'", "'MILLISECONDS'")
        self.at += 1
        return _UNITS[token.value]


class ExpressionParser(Cursor):
    def expression(self) -> ast.Expression:
        self._depth += 1
        if self._depth > _DEPTH:
            raise SqlSyntaxError(f"The expression is nested more than {_DEPTH} deep", self.here)
        try:
            return self._or()
        finally:
            self._depth -= 1

    def _or(self) -> ast.Expression:
        left = self._and()
        while self.is_word("OR"):
            location = left.location
            self.take()
            left = ast.Logical("OR", left, self._and(), location=location)
        return left

    def _and(self) -> ast.Expression:
        left = self._not()
        while self.is_word("AND"):
            location = left.location
            self.take()
            left = ast.Logical("AND", left, self._not(), location=location)
        return left

    def _not(self) -> ast.Expression:
        location, negations = self.here, 0
        while self.word("NOT"):
            negations += 1
        found = self._predicate()
        for _ in range(negations):
            found = ast.Not(found, location=location)
        return found

    def _predicate(self) -> ast.Expression:
        left = self.value_expression()
        location, token = left.location, self.token
        if token.kind == "symbol" and token.value in _COMPARISONS:
            self.take()
            operator = cast(Any, _COMPARISONS[token.value])
            return ast.Compare(operator, left, self.value_expression(), location=location)
        if self.word("IS"):
            negated = self.word("NOT")
            if self.word("NULL"):
                return ast.IsNull(left, negated, location=location)
            if not self.word("DISTINCT"):
                self.fail("'NULL'", "'DISTINCT'")
            self.need_word("FROM")
            found = ast.Compare("IS DISTINCT FROM", left, self.value_expression(), location=location)
            return ast.Not(found, location=location) if negated else found
        negated = self.is_word("NOT") and any(
            self.is_word(word, ahead=1) for word in ("IN", "LIKE", "BETWEEN")
        )
        if negated:
            self.take()
        test = self._test(left, location)
        if test is None:
            return left
        return ast.Not(test, location=location) if negated else test

    def _test(self, left: ast.Expression, location: Location) -> ast.Expression | None:
        if self.word("IN"):
            self.need_symbol("(")
            items = [self.expression()]
            while self.symbol(","):
                items.append(self.expression())
            self.need_symbol(")")
            return ast.In(left, tuple(items), location=location)
        if self.word("LIKE"):
            pattern, escape = self.value_expression(), None
            if self.word("ESCAPE"):
                escape_location = self.here
                escape = self.string()
                if len(escape) != 1:
                    raise SqlParseError(
                        f"Expected single character escape but got: {escape}", escape_location
                    )
            return ast.Like(left, pattern, escape, location=location)
        if self.word("BETWEEN"):
            lower = self.value_expression()
            self.need_word("AND")
            return ast.Between(left, lower, self.value_expression(), location=location)
        return None

    # Values ------------------------------------------------------------

    def value_expression(self) -> ast.Expression:
        left = self._sum()
        while self.symbol("||"):
            left = ast.Call("CONCAT", (left, self._sum()), location=left.location)
        return left

    def _sum(self) -> ast.Expression:
        left = self._product()
        while self.is_symbol("+") or self.is_symbol("-"):
            operator = cast(Any, self.take().value)
            left = ast.Arithmetic(operator, left, self._product(), location=left.location)
        return left

    def _product(self) -> ast.Expression:
        left = self._signed()
        while self.is_symbol("*") or self.is_symbol("/") or self.is_symbol("%"):
            operator = cast(Any, self.take().value)
            left = ast.Arithmetic(operator, left, self._signed(), location=left.location)
        return left

    def _signed(self) -> ast.Expression:
        if self.is_symbol("-") or self.is_symbol("+"):
            location, sign = self.here, self.take().value
            if sign == "-" and self.token.kind in ("integer", "decimal", "float"):
                return self._postfix(self._number(location, negative=True))
            self._depth += 1
            if self._depth > _DEPTH:
                raise SqlSyntaxError(f"The expression is nested more than {_DEPTH} deep", location)
            found = ast.Signed(cast(Any, sign), self._signed(), location=location)
            self._depth -= 1
            return found
        return self._postfix(self._primary())

    def _postfix(self, base: ast.Expression) -> ast.Expression:
        while True:
            if self.symbol("["):
                index = self.value_expression()
                self.need_symbol("]")
                base = ast.Subscript(base, index, location=base.location)
            elif self.is_symbol("->") and not self.is_symbol("*", ahead=1):
                self.take()
                base = ast.Field(base, self.identifier(), location=base.location)
            else:
                return base

    def _number(self, location: Location, negative: bool = False) -> ast.Literal:
        token = self.take()
        text = "-" + token.text if negative else token.text
        if token.kind == "integer":
            value = _whole(text)
            if value is None or not -_LONG_LIMIT <= value < _LONG_LIMIT:
                raise SqlParseError(f"Invalid numeric literal: {text}", location)
            return ast.Literal(value, long=not -_INT_LIMIT <= value < _INT_LIMIT, location=location)
        if token.kind == "decimal":
            return ast.Literal(Decimal(text), location=location)
        number = float(text)
        if isinf(number):
            raise SqlParseError(f"Number overflows DOUBLE: {text}", location)
        return ast.Literal(number, location=location)

    def _primary(self) -> ast.Expression:
        token, location = self.token, self.here
        if token.kind in ("integer", "decimal", "float"):
            return self._number(location)
        if token.kind == "string":
            self.take()
            return ast.Literal(token.value, location=location)
        if token.kind == "variable":
            self.fail_variable(token)
        if self.is_symbol("("):
            return self._parenthesis(location)
        if token.kind == "word":
            found = self._word(token, location)
            if found is not None:
                return found
        name = self.identifier()
        if self.is_symbol("=>"):
            self.take()
            return ast.Lambda((name,), self.expression(), location=location)
        if self.symbol("("):
            return self._call(name, location)
        if self.is_symbol(".") and not self.is_symbol("*", ahead=1):
            self.take()
            return ast.Column(self.identifier(), name, location=location)
        return ast.Column(name, location=location)

    def _word(self, token: Token, location: Location) -> ast.Expression | None:
        """What begins with a word and is no name."""
        match token.value:
            case "NULL" | "TRUE" | "FALSE":
                self.take()
                return ast.Literal(
                    {"NULL": None, "TRUE": True, "FALSE": False}[token.value], location=location
                )
            case "CASE":
                return self._case(location)
            case "CAST":
                self.take()
                self.need_symbol("(")
                operand = self.expression()
                self.need_word("AS")
                type_name = self.type_name()
                self.need_symbol(")")
                return ast.Cast(operand, type_name, location=location)
            case "ARRAY" if self.is_symbol("[", ahead=1):
                self.at += 2
                items = self._list("]", self.expression)
                return ast.MakeArray(tuple(items), location=location)
            case "MAP" if self.is_symbol("(", ahead=1):
                self.at += 2
                return ast.MakeMap(tuple(self._list(")", self._map_entry)), location=location)
            case "STRUCT" if self.is_symbol("(", ahead=1):
                self.at += 2
                return ast.MakeStruct(tuple(self._list(")", self._struct_field)), location=location)
            case "REPLACE" | "IF" if self.is_symbol("(", ahead=1):
                self.at += 2
                return self._call(token.value, location)
        return None

    def _list(self, end: str, item: Any) -> list[Any]:
        found: list[Any] = []
        if self.symbol(end):
            return found
        found.append(item())
        while self.symbol(","):
            found.append(item())
        self.need_symbol(end)
        return found

    def _map_entry(self) -> tuple[ast.Expression, ast.Expression]:
        key = self.expression()
        self.need_symbol(":=")
        return key, self.expression()

    def _struct_field(self) -> tuple[str, ast.Expression]:
        name = self.identifier()
        self.need_symbol(":=")
        return name, self.expression()

    def _parenthesis(self, location: Location) -> ast.Expression:
        start = self.at
        self.take()
        names = self._lambda_parameters()
        if names is not None:
            return ast.Lambda(names, self.expression(), location=location)
        self.at = start + 1
        found = self.expression()
        self.need_symbol(")")
        return found

    def _lambda_parameters(self) -> tuple[str, ...] | None:
        names: list[str] = []
        while True:
            token = self.token
            if token.kind != "quoted" and (token.kind != "word" or token.value in RESERVED):
                return None
            names.append(self.take().value)
            if not self.symbol(","):
                break
        return tuple(names) if self.symbol(")") and self.symbol("=>") else None

    def _call(self, name: str, location: Location) -> ast.Expression:
        if self.is_symbol("*") and self.is_symbol(")", ahead=1):
            self.at += 2
            return ast.Call(name, (), location=location)
        # DAY, HOUR, MINUTE and SECOND are names of columns, too: units only where nothing else makes sense.
        units = _SPANS if name.upper() in _TAKE_UNITS else _SPANS - _COLUMN_NAMES
        return ast.Call(name, tuple(self._list(")", lambda: self._argument(units))), location=location)

    def _argument(self, units: Container[str]) -> ast.Expression:
        token = self.token
        if token.kind == "word" and token.value in units and self.peek().value in (",", ")"):
            self.take()
            return ast.Interval(_UNITS[token.value], location=token.location)
        return self.expression()

    def _case(self, location: Location) -> ast.Expression:
        self.take()
        operand = None if self.is_word("WHEN") else self.value_expression()
        whens = []
        while self.word("WHEN"):
            condition = self.expression()
            self.need_word("THEN")
            whens.append((condition, self.expression()))
        if not whens:
            self.fail("'WHEN'")
        default = self.expression() if self.word("ELSE") else None
        self.need_word("END")
        return ast.Case(operand, tuple(whens), default, location=location)

    # Types ------------------------------------------------------------

    def type_name(self) -> ast.TypeName:
        self._depth += 1
        if self._depth > _DEPTH:
            raise SqlSyntaxError(f"The type is nested more than {_DEPTH} deep", self.here)
        try:
            return self._type()
        finally:
            self._depth -= 1

    def _type(self) -> ast.TypeName:
        location = self.here
        if self.is_word("ARRAY") and self.is_symbol("<", ahead=1):
            self.at += 2
            item = self.type_name()
            self._close_type()
            found = ast.TypeName("ARRAY", arguments=(item,), location=location)
        elif self.is_word("MAP") and self.is_symbol("<", ahead=1):
            self.at += 2
            key = self.type_name()
            self.need_symbol(",")
            value = self.type_name()
            self._close_type()
            found = ast.TypeName("MAP", arguments=(key, value), location=location)
        elif self.is_word("STRUCT") and (self.is_symbol("<", ahead=1) or self.is_symbol("<>", ahead=1)):
            found = ast.TypeName("STRUCT", fields=self._struct_fields(), location=location)
        else:
            found = self._base_type(location)
        while self.is_word("ARRAY") and not self.is_symbol("<", ahead=1):
            self.take()
            found = ast.TypeName("ARRAY", arguments=(found,), location=location)
        return found

    def _struct_fields(self) -> tuple[tuple[str, ast.TypeName], ...]:
        self.take()
        if self.symbol("<>"):
            return ()
        self.need_symbol("<")
        fields: list[tuple[str, ast.TypeName]] = []
        if self.symbol(">"):
            return ()
        while True:
            name = self.identifier()
            fields.append((name, self.type_name()))
            if not self.symbol(","):
                break
        self._close_type()
        return tuple(fields)

    def _close_type(self) -> None:
        """The end of `<...>`; two of them together are one token nowhere, but `>=` may follow a type in an
        expression."""
        self.need_symbol(">")

    def _base_type(self, location: Location) -> ast.TypeName:
        quoted = self.token.kind == "quoted"
        name = self.identifier()
        parameters: list[str] = []
        if self.symbol("("):
            parameters = self._list(")", self._type_parameter)
            if not parameters:
                self.fail("'STRING'", "INTEGER_VALUE")
        return ast.TypeName(name, tuple(parameters), location=location, quoted=quoted)

    def _type_parameter(self) -> str:
        if self.token.kind == "integer" or self.is_word("STRING"):
            return self.take().value
        self.fail("'STRING'", "INTEGER_VALUE")


def _whole(text: str) -> int | None:
    """None if it has more digits than Python reads, which are more than any type has."""
    try:
        return int(text)
    except ValueError:
        return None
