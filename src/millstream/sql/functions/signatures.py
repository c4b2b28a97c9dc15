"""What a function accepts, written as `(ARRAY<T> array, LAMBDA(T) => R function) -> ARRAY<R>`.

A single capital letter is a generic type, `ANY` takes everything, `DECIMAL` a decimal of any precision,
`X...` any number of arguments. Names of parameters are optional. `accepts` and `bind` find out which types
the generics stand for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from millstream.sql.errors import SqlError
from millstream.sql.types import (
    PRIMITIVES,
    Argument,
    ArrayType,
    Base,
    DecimalType,
    IntervalUnit,
    Lambda,
    MapType,
    SqlType,
    StructType,
    TypedLambda,
    array_type,
    as_decimal,
    map_type,
    struct_type,
)

_TOKENS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\.\.\.|=>|->|[<>(),]|\S")
_SHOWN = {"INTEGER": "INT", "STRING": "VARCHAR"}


@dataclass(frozen=True)
class ParamType:
    """`kind` is a base type's name, GENERIC, ANY, LAMBDA or INTERVAL; `parts` are the types within (of a
    lambda: the
    inputs, then the result); `names` the generic's name, or the fields of a struct."""

    kind: str
    parts: tuple[ParamType, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "GENERIC":
            return self.names[0]
        if self.kind == "INTERVAL":
            return "INTERVAL UNIT"
        if self.kind == "LAMBDA":
            return f"LAMBDA ({', '.join(map(str, self.parts[:-1]))}) => {self.parts[-1]}"
        if self.kind == "STRUCT":
            fields = zip(self.names, self.parts, strict=True)
            return f"STRUCT<{', '.join(f'{name} {type_}' for name, type_ in fields)}>"
        if self.parts:
            return f"{self.kind}<{', '.join(map(str, self.parts))}>"
        return _SHOWN.get(self.kind, self.kind)

    @cached_property
    def is_generic(self) -> bool:
        """Whether a generic is somewhere in it."""
        return self.kind == "GENERIC" or any(part.is_generic for part in self.parts)


@dataclass(frozen=True)
class Param:
    type: ParamType
    name: str = ""
    variadic: bool = False

    def __str__(self) -> str:
        return f"{self.type}{'...' if self.variadic else ''}{' ' if self.name else ''}{self.name}"


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKENS.findall(text)
        self._at = 0

    @property
    def next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.next
        if not token or (expected and token != expected):
            raise SqlError(
                f"'{self._text}' is not a signature: expected {expected or 'more'}, found '{token}'"
            )
        self._at += 1
        return token

    def list_until(self, end: str) -> list[ParamType]:
        items: list[ParamType] = []
        while self.next != end:
            if items:
                self.take(",")
            items.append(self.type())
        self.take(end)
        return items

    def type(self) -> ParamType:
        word = self.take()
        upper = word.upper()
        if len(word) == 1 and word.isupper():
            return ParamType("GENERIC", names=(word,))
        if upper in ("ANY", "INTERVAL"):
            return ParamType(upper)
        if upper == "DECIMAL":
            if self.next == "(":
                while self.take() != ")":
                    pass
            return ParamType("DECIMAL")
        if upper in ("ARRAY", "MAP"):
            self.take("<")
            return ParamType(upper, tuple(self.list_until(">")))
        if upper == "LAMBDA":
            self.take("(")
            inputs = self.list_until(")")
            self.take("=>")
            return ParamType("LAMBDA", (*inputs, self.type()))
        if upper == "STRUCT":
            self.take("<")
            names: list[str] = []
            parts: list[ParamType] = []
            while self.next != ">":
                if names:
                    self.take(",")
                names.append(self.take())
                parts.append(self.type())
            self.take(">")
            return ParamType("STRUCT", tuple(parts), tuple(names))
        if upper not in PRIMITIVES:
            raise SqlError(f"'{self._text}' is not a signature: there is no type {word}")
        return ParamType(PRIMITIVES[upper].base.value)

    def params(self) -> tuple[Param, ...]:
        self.take("(")
        params: list[Param] = []
        while self.next != ")":
            if params:
                self.take(",")
            type_ = self.type()
            variadic = self.next == "..."
            if variadic:
                self.take()
            name = self.take() if self.next not in (",", ")") else ""
            params.append(Param(type_, name, variadic))
        self.take(")")
        return tuple(params)


def parse_signature(text: str) -> tuple[tuple[Param, ...], ParamType | None]:
    """Parameters and result; the result is None if the text ends before `->`."""
    reader = _Reader(text)
    params = reader.params()
    if not reader.next:
        return params, None
    reader.take("->")
    result = reader.type()
    if reader.next:
        raise SqlError(f"'{text}' is not a signature: '{reader.next}' after the result")
    return params, result


def parse_type(text: str) -> ParamType:
    reader = _Reader(text)
    found = reader.type()
    if reader.next:
        raise SqlError(f"'{text}' is not a type: '{reader.next}' after it")
    return found


def bind(param: ParamType, argument: Argument, bound: dict[str, SqlType]) -> bool:
    """Whether an argument has the shape of a generic parameter; enters what its generics stand for into
    `bound`.
    """
    if argument is None:
        return True
    if param.kind == "LAMBDA":
        if not isinstance(argument, Lambda) or argument.inputs != len(param.parts) - 1:
            return False
        if not isinstance(argument, TypedLambda):
            return True
        return all(
            bind(part, type_, bound)
            for part, type_ in zip(param.parts, (*argument.input_types, argument.result), strict=True)
        )
    if not isinstance(argument, SqlType):
        return False
    if param.kind == "GENERIC":
        return bound.setdefault(param.names[0], argument) == argument
    if param.kind != argument.base.value:
        return False
    if isinstance(argument, ArrayType):
        return bind(param.parts[0], argument.item, bound)
    if isinstance(argument, MapType):
        return bind(param.parts[0], argument.key, bound) and bind(param.parts[1], argument.value, bound)
    return True


def accepts(param: ParamType, argument: Argument, bound: dict[str, SqlType], casting: bool) -> bool:
    """Whether a parameter takes an argument; with `casting`, also one that is converted silently."""
    if argument is None or param.kind == "ANY":
        return True
    if param.is_generic:
        return bind(param, argument, bound)
    if isinstance(argument, Lambda):
        if param.kind != "LAMBDA" or argument.inputs != len(param.parts) - 1:
            return False
        if not isinstance(argument, TypedLambda):
            return True
        types = (*argument.input_types, argument.result)
        return all(
            accepts(part, type_, bound, casting) for part, type_ in zip(param.parts, types, strict=True)
        )
    if isinstance(argument, IntervalUnit):
        return param.kind == "INTERVAL"
    if param.kind in ("INTERVAL", "LAMBDA"):
        return False
    if isinstance(argument, ArrayType) and param.kind == "ARRAY":
        return accepts(param.parts[0], argument.item, bound, casting)
    if isinstance(argument, MapType) and param.kind == "MAP":
        key, value = param.parts
        return accepts(key, argument.key, bound, casting) and accepts(value, argument.value, bound, casting)
    if isinstance(argument, StructType) and param.kind == "STRUCT":
        if not argument.fields or not param.names:
            return True
        fields = dict(argument.fields)
        return len(fields) == len(param.names) and all(
            name in fields and accepts(part, fields[name], bound, False)
            for name, part in zip(param.names, param.parts, strict=True)
        )
    wanted = Base(param.kind)
    return argument.base is wanted or (casting and argument.base.casts_implicitly_to(wanted))


def applied(param: ParamType, bound: dict[str, SqlType]) -> SqlType:
    """The SQL type of a parameter or result when the generics are known."""
    if param.kind == "GENERIC":
        if param.names[0] not in bound:
            raise SqlError(f"Could not find mapping for generic type: {param}")
        return bound[param.names[0]]
    if param.kind == "ARRAY":
        return array_type(applied(param.parts[0], bound))
    if param.kind == "MAP":
        return map_type(applied(param.parts[0], bound), applied(param.parts[1], bound))
    if param.kind == "STRUCT":
        fields = zip(param.names, param.parts, strict=True)
        return struct_type(*((name, applied(part, bound)) for name, part in fields))
    if param.kind in PRIMITIVES:
        return PRIMITIVES[param.kind]
    raise SqlError(f"{param} is not the type of a value")


def cast_target(param: ParamType, argument: SqlType) -> SqlType | None:
    """The type into which an accepted argument is converted before the call, or None if it is passed as it
    is.
    """
    if param.is_generic or param.kind in ("ANY", "LAMBDA", "INTERVAL", "STRUCT"):
        return None
    if param.kind == "DECIMAL":
        return None if isinstance(argument, DecimalType) else as_decimal(argument)
    if isinstance(argument, ArrayType):
        item = cast_target(param.parts[0], argument.item)
        return None if item is None else array_type(item)
    if isinstance(argument, MapType):
        key = cast_target(param.parts[0], argument.key)
        value = cast_target(param.parts[1], argument.value)
        if key is None and value is None:
            return None
        return map_type(key or argument.key, value or argument.value)
    return None if param.kind == argument.base.value else PRIMITIVES[param.kind]
