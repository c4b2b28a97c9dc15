"""Functions of users, in Python, by decorators.

    @udf("(DOUBLE celsius) -> DOUBLE", doc="Degrees Fahrenheit.")
    def fahrenheit(celsius):
        return celsius * 9 / 5 + 32

    @udtf("(VARCHAR text) -> VARCHAR")
    def words(text):
        return text.split()

    @udaf("(DOUBLE x, DOUBLE weight) -> DOUBLE", state="STRUCT<S DOUBLE, W DOUBLE>")
    class weighted_average:
        def initial(self): ...
        def add(self, state, x, weight): ...
        def merge(self, one, other): ...
        def result(self, state): ...
        def undo(self, state, x, weight): ...        # only then can it be used on tables

A decorated function still is the function; its row waits in `USER_FUNCTIONS` until a table takes it, or goes
into the table given as `into`. The same name may be given to several, with other parameters. Values are those
of `millstream.sql.types`. A scalar or table function is not called when an argument is null, unless it says
`nulls=True`. An exception is a null and a line in the processing log. Of a class, `literals=n` says that the
last n parameters are literals and are given to its constructor; `configure` is given the settings, if it is
there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from millstream.sql.errors import SqlError
from millstream.sql.functions.signatures import ParamType, applied, parse_signature, parse_type
from millstream.sql.functions.table import (
    Aggregate,
    Function,
    FunctionTable,
    Kind,
    Overload,
    ResultRule,
)
from millstream.sql.types import Argument, SqlType

_Any = TypeVar("_Any", bound=Callable[..., Any])

USER_FUNCTIONS: list[Function] = []


def _register(
    kind: Kind, name: str, doc: str, overload: Overload, author: str, version: str, into: FunctionTable | None
) -> None:
    if not name.isidentifier():
        raise SqlError(f"{name} is not a valid function name.")
    row = Function(
        name.upper(),
        kind,
        kind.value if kind is not Kind.SCALAR else "OTHER",
        doc,
        (overload,),
        author=author,
        version=version,
        path="user",
        origin="USER",
    )
    if into is None:
        USER_FUNCTIONS.append(row)
    else:
        into.add(row)


def _described(target: Any, doc: str) -> str:
    return doc or (target.__doc__ or "").strip().split("\n")[0]


def _simple(
    kind: Kind,
    signature: str,
    name: str,
    doc: str,
    nulls: bool,
    result: ResultRule | None,
    author: str,
    version: str,
    into: FunctionTable | None,
) -> Callable[[_Any], _Any]:
    params, declared = parse_signature(signature)
    returns: ParamType | ResultRule | None = result or declared
    if returns is None:
        raise SqlError(f"'{signature}' does not say what it returns")

    def register(function: _Any) -> _Any:
        overload = Overload(params, returns, function, null_if_any=not nulls, doc=_described(function, doc))
        _register(kind, name or function.__name__, overload.doc, overload, author, version, into)
        return function

    return register


def udf(
    signature: str,
    *,
    name: str = "",
    doc: str = "",
    nulls: bool = False,
    result: ResultRule | None = None,
    author: str = "",
    version: str = "",
    into: FunctionTable | None = None,
) -> Callable[[_Any], _Any]:
    """A scalar function. `result` computes the type where the signature cannot say it (a DECIMAL's)."""
    return _simple(Kind.SCALAR, signature, name, doc, nulls, result, author, version, into)


def udtf(
    signature: str,
    *,
    name: str = "",
    doc: str = "",
    nulls: bool = False,
    result: ResultRule | None = None,
    author: str = "",
    version: str = "",
    into: FunctionTable | None = None,
) -> Callable[[_Any], _Any]:
    """A table function: it returns a list, and the signature says what is in it."""
    return _simple(Kind.TABLE, signature, name, doc, nulls, result, author, version, into)


def udaf(
    signature: str,
    *,
    state: str,
    name: str = "",
    doc: str = "",
    literals: int = 0,
    author: str = "",
    version: str = "",
    into: FunctionTable | None = None,
) -> Callable[[_Any], _Any]:
    """An aggregate function: a class with initial, add and merge, and if it needs them result and undo."""
    params, declared = parse_signature(signature)
    if declared is None:
        raise SqlError(f"'{signature}' does not say what it returns")
    state_param = parse_type(state)

    def register(made: _Any) -> _Any:
        undoes = hasattr(made, "undo")

        def result_type(arguments: Sequence[Argument]) -> SqlType:
            return applied(declared, overload.bound(arguments))

        def factory(types: Sequence[Argument], values: Sequence[Any], settings: dict[str, Any]) -> Aggregate:
            instance = made(*values)
            if hasattr(instance, "configure"):
                instance.configure(settings)
            return Aggregate(
                applied(state_param, overload.bound(types)),
                result_type(types),
                instance.initial,
                instance.add,
                instance.merge,
                getattr(instance, "result", None),
                instance.undo if undoes else None,
            )

        overload = Overload(
            params,
            result_type,
            aggregate=factory,
            literals=literals,
            undoes=undoes,
            doc=_described(made, doc),
        )
        _register(Kind.AGGREGATE, name or made.__name__, overload.doc, overload, author, version, into)
        return made

    return register
