"""The table of functions: one row a function, whatever brought it (this package, or a decorator in user
code).

A row has a name, overloads, a kind, a category and lines of documentation. The analyser asks it in this
order:

    function = FUNCTIONS.find("transform")
    overload = function.resolve([array_type(STRING), Lambda(1)])      # by the kinds of the arguments
    overload.lambda_inputs(arguments, 1)                              # types of a lambda's inputs
    overload.result_type(arguments)                                   # with TypedLambda for each lambda
    call = overload.bind(arguments)                                   # the Python function for generated code

What `bind` returns converts arguments where ksqlDB does so silently and gives None for None where the row
says so. It may raise: the expression then has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millstream.sql.casts import cast, null_safe
from millstream.sql.errors import SqlError
from millstream.sql.functions.signatures import (
    Param,
    ParamType,
    accepts,
    applied,
    bind,
    cast_target,
    parse_signature,
)
from millstream.sql.types import Argument, Lambda, SqlType, plain

ResultRule = Callable[[Sequence[Argument]], SqlType]
# Given the types of the arguments and of the result, the function to call.
Factory = Callable[[Sequence[Argument], SqlType], Callable[..., Any]]


class Kind(Enum):
    SCALAR = "SCALAR"
    AGGREGATE = "AGGREGATE"
    TABLE = "TABLE"


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function made ready for its arguments. States are never changed in place.

    `add(state, *arguments)` and `undo` return the new state; `undo` is None where ksqlDB has none, so that
    the function
    cannot be used on a table. `merge(earlier, later)` joins two sessions. `result` is None where the state is
    it."""

    state_type: SqlType
    result_type: SqlType
    initial: Callable[[], Any]
    add: Callable[..., Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any] | None = None
    undo: Callable[..., Any] | None = None


# Given the types of all arguments, the values of the literal ones at the end, and the settings.
AggregateFactory = Callable[[Sequence[Argument], Sequence[Any], dict[str, Any]], Aggregate]


@dataclass(frozen=True)
class Overload:
    """One signature. `call` is the function itself, unless `factory` makes it when the types are known.

    `null_if_any` says that None among the arguments gives None; otherwise the function sees it. Of an
    aggregate,
    `literals` counts the parameters at the end that must be literals, and `undoes` says whether it has an
    undo."""

    params: tuple[Param, ...]
    result: ParamType | ResultRule
    call: Callable[..., Any] | None = None
    factory: Factory | None = None
    null_if_any: bool = True
    aggregate: AggregateFactory | None = None
    literals: int = 0
    undoes: bool = False
    doc: str = ""

    @property
    def parameters(self) -> tuple[tuple[ParamType, bool], ...]:
        """What tells it from other overloads: the types, and which of them is variadic."""
        return tuple((param.type, param.variadic) for param in self.params)

    @property
    def variadic_at(self) -> int:
        for index, param in enumerate(self.params):
            if param.variadic:
                return index
        return -1

    def params_for(self, count: int) -> tuple[Param, ...] | None:
        """One parameter for each of `count` arguments, or None if there cannot be so many."""
        at = self.variadic_at
        if at < 0:
            return self.params if len(self.params) == count else None
        times = count - len(self.params) + 1
        if times < 0:
            return None
        return (*self.params[:at], *((self.params[at],) * times), *self.params[at + 1 :])

    def literals_for(self, count: int) -> int:
        """How many of `count` arguments must be literals; a variadic one of them takes what is left."""
        varies = self.literals > 0 and self.variadic_at >= len(self.params) - self.literals
        return self.literals + (count - len(self.params) if varies else 0)

    def accepts(self, arguments: Sequence[Argument], casting: bool) -> bool:
        params = self.params_for(len(arguments))
        if params is None:
            return False
        bound: dict[str, SqlType] = {}
        return all(
            accepts(param.type, argument, bound, casting)
            for param, argument in zip(params, arguments, strict=True)
        )

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """Of several that accept the arguments, the one with the highest rank is called."""
        kinds = [param.type for param in self.params]
        any_variadic = any(param.variadic and param.type.kind == "ANY" for param in self.params)
        generics = sum(kind.is_generic for kind in kinds) + any_variadic
        return (
            0 if self.variadic_at >= 0 else 1,
            len(kinds),
            -generics,
            0 if any_variadic else 1,
            self.variadic_at,
        )

    def bound(self, arguments: Sequence[Argument]) -> dict[str, SqlType]:
        """What the generics stand for, as far as the arguments tell."""
        found: dict[str, SqlType] = {}
        for param, argument in zip(self.params_for(len(arguments)) or (), arguments, strict=False):
            if not bind(param.type, argument, found) and param.type.is_generic:
                raise SqlError(
                    f"Cannot infer generics for {param.type} from {argument} because "
                    "they do not have the same schema structure."
                )
        return found

    def lambda_inputs(self, arguments: Sequence[Argument], index: int) -> tuple[SqlType, ...]:
        """The types of the inputs of the lambda at `index`; earlier lambdas must be typed already."""
        params = self.params_for(len(arguments)) or ()
        if index >= len(params) or params[index].type.kind != "LAMBDA":
            raise SqlError(f"Parameter {index + 1} is no lambda")
        known = self.bound([each if at < index else None for at, each in enumerate(arguments)])
        known |= self.bound([None if isinstance(each, Lambda) else each for each in arguments])
        return tuple(applied(part, known) for part in params[index].type.parts[:-1])

    def result_type(self, arguments: Sequence[Argument]) -> SqlType:
        if isinstance(self.result, ParamType):
            return applied(self.result, self.bound(arguments))
        return self.result(arguments)

    def bind(self, arguments: Sequence[Argument]) -> Callable[..., Any]:
        """The function to call with the values of the arguments."""
        call = self.call if self.factory is None else self.factory(arguments, self.result_type(arguments))
        assert call is not None, "aggregates are made by `aggregate`"
        if self.null_if_any:
            call = _null_if_any(call, len(arguments))
        casts: list[Callable[[Any], Any] | None] = []
        for param, argument in zip(self.params_for(len(arguments)) or (), arguments, strict=True):
            target = cast_target(param.type, argument) if isinstance(argument, SqlType) else None
            casts.append(
                None if target is None or argument is None else null_safe(cast(_value(argument), target))
            )
        return _with_casts(call, casts) if any(casts) else call

    def text(self, name: str) -> str:
        return f"{name}({', '.join(map(str, self.params))})"


def _value(argument: Argument) -> SqlType:
    assert isinstance(argument, SqlType)
    return argument


def _null_if_any(call: Callable[..., Any], count: int) -> Callable[..., Any]:
    """`call`, but None if an argument is. Written out for few arguments: it is called for every row."""
    if count == 0:
        return call
    if count == 1:
        return lambda one: None if one is None else call(one)
    if count == 2:
        return lambda one, two: None if one is None or two is None else call(one, two)
    if count == 3:
        return lambda one, two, three: (
            None if one is None or two is None or three is None else call(one, two, three)
        )

    def checked(*arguments: Any) -> Any:
        for argument in arguments:
            if argument is None:
                return None
        return call(*arguments)

    return checked


def _with_casts(call: Callable[..., Any], casts: list[Callable[[Any], Any] | None]) -> Callable[..., Any]:
    def converted(*arguments: Any) -> Any:
        return call(
            *(
                argument if convert is None else convert(argument)
                for convert, argument in zip(casts, arguments, strict=True)
            )
        )

    return converted


@dataclass(frozen=True)
class Function:
    """A row of the table. `name` is written as ksqlDB writes it in messages; it is found in any case."""

    name: str
    kind: Kind
    category: str
    doc: str
    overloads: tuple[Overload, ...]
    aliases: tuple[str, ...] = ()
    author: str = "Confluent"
    version: str = ""
    path: str = "internal"
    # What a list shows: USER for those that came by a decorator.
    origin: str = field(default="BUILTIN")

    def resolve(self, arguments: Sequence[Argument]) -> Overload:
        """The overload to call, or ksqlDB's error with all there are."""
        for casting in (False, True) if self.kind is not Kind.AGGREGATE else (False,):
            found = [each for each in self.overloads if each.accepts(arguments, casting)]
            if len(found) == 1:
                return found[0]
            if found:
                found.sort(key=lambda overload: overload.rank)
                if found[-1].rank > found[-2].rank:
                    return found[-1]
                raise SqlError(
                    f"Function '{self.name}' cannot be resolved due to ambiguous method parameters "
                    f"{_shown(arguments)}.\n"
                    "Use CAST() to explicitly cast your parameters to one of the supported function calls.\n"
                    f"Valid function calls are:\n{self._alternatives()}"
                )
        raise SqlError(
            f"Function '{self.name}' does not accept parameters {_shown(arguments)}.\n"
            f"Valid alternatives are:\n{self._alternatives()}"
        )

    def _alternatives(self) -> str:
        lines = [overload.text(self.name) for overload in self.overloads]
        lines.append("For detailed information on a function run: DESCRIBE FUNCTION <Function-Name>;")
        return "\n".join(lines)


def _shown(arguments: Sequence[Argument]) -> str:
    return f"({', '.join('null' if each is None else each.text(plain) for each in arguments)})"


# Functions of older versions, which tutorials still use, and what takes their place.
_TODAY = {
    "WINDOWSTART": "\nWINDOWSTART is a column today: write it without parentheses.",
    "WINDOWEND": "\nWINDOWEND is a column today: write it without parentheses.",
    "ARRAYCONTAINS": "\nIt is called ARRAY_CONTAINS today.",
    "AS_ARRAY": "\nAn array is made by ARRAY[...] today.",
    "FETCH_FIELD_FROM_STRUCT": "\nA field of a struct is taken by -> today: address->city.",
}


class FunctionTable:
    """Functions by name. A name has one kind; overloads of a user's function replace nothing of another's."""

    def __init__(self, rows: Iterable[Function] = ()) -> None:
        self._rows: dict[str, Function] = {}
        self._aliases: dict[str, str] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Function) -> None:
        name = row.name.upper()
        there = self._rows.get(name)
        if there is not None:
            if there.kind is not row.kind:
                raise SqlError(f"{name} is already registered as {there.kind.value.lower()} function")
            same = {overload.parameters for overload in there.overloads}
            for overload in row.overloads:
                if overload.parameters in same:
                    raise SqlError(
                        f"Can't add function {name} with parameters "
                        f"[{', '.join(str(param.type) for param in overload.params)}] as a function with the "
                        "same name and parameter types already exists"
                    )
            row = Function(
                there.name,
                there.kind,
                there.category,
                there.doc,
                (*there.overloads, *row.overloads),
                there.aliases,
                there.author,
                there.version,
                there.path,
                there.origin,
            )
        self._rows[name] = row
        for alias in row.aliases:
            self._aliases[alias.upper()] = name

    def remove(self, name: str) -> None:
        self._rows.pop(name.upper(), None)

    def copy(self) -> FunctionTable:
        """A table that can be added to without changing this one."""
        return FunctionTable(self._rows.values())

    def get(self, name: str) -> Function | None:
        upper = name.upper()
        return self._rows.get(upper) or self._rows.get(self._aliases.get(upper, ""))

    def find(self, name: str) -> Function:
        found = self.get(name)
        if found is None:
            today = _TODAY.get(name.upper(), "")
            raise SqlError(f"Can't find any functions with the name '{name}'{today}")
        return found

    def is_aggregate(self, name: str) -> bool:
        found = self.get(name)
        return found is not None and found.kind is Kind.AGGREGATE

    def is_table(self, name: str) -> bool:
        found = self.get(name)
        return found is not None and found.kind is Kind.TABLE

    def __iter__(self) -> Iterator[Function]:
        return iter(sorted(self._rows.values(), key=lambda row: row.name.upper()))

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


def overload(
    signature: str,
    call: Callable[..., Any] | None = None,
    *,
    factory: Factory | None = None,
    own_nulls: bool = False,
    result: ResultRule | None = None,
    doc: str = "",
) -> Overload:
    """A scalar or table overload. `result` computes the type where the signature cannot say it."""
    params, declared = parse_signature(signature)
    returns: ParamType | ResultRule | None = result or declared
    if returns is None:
        raise SqlError(f"'{signature}' does not say what it returns")
    return Overload(params, returns, call, factory, not own_nulls, doc=doc)


def aggregate_overload(
    signature: str,
    factory: AggregateFactory,
    *,
    literals: int = 0,
    undoes: bool = False,
    doc: str = "",
) -> Overload:
    """An aggregate overload; the aggregate itself says what it returns."""
    params, _ = parse_signature(signature)

    def result(arguments: Sequence[Argument]) -> SqlType:
        # Any literal will do: only the values in a state depend on it.
        return factory(arguments, [1] * literals, {}).result_type

    return Overload(params, result, aggregate=factory, literals=literals, undoes=undoes, doc=doc)


def scalar(
    name: str, category: str, doc: str, *overloads: Overload, aliases: tuple[str, ...] = ()
) -> Function:
    return Function(name, Kind.SCALAR, category, doc, overloads, aliases)


def aggregate(name: str, doc: str, *overloads: Overload) -> Function:
    return Function(name, Kind.AGGREGATE, "AGGREGATE", doc, overloads)


def table_function(name: str, doc: str, *overloads: Overload) -> Function:
    return Function(name, Kind.TABLE, "TABLE", doc, overloads)
