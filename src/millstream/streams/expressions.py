"""Expressions over keys and values, as an alternative to functions: they run on whole columns where a
stream's records come in blocks.

    from millstream.streams import col, fields

    stream.filter(col("value.status") == "CRITICAL")
    stream.filter((col("key").starts_with("eu-")) & ~col("value.amount").is_null())
    stream.map_values(col("value")[:100])
    stream.map_values(fields(id=col("key"), total=col("value.price") * col("value.count")))
    stream.group_by(col("value.region"))

`col("value")` and `col("key")` are what the serdes give; `.name` and `[0]` go inside of what JSON, Avro and
the like give, and find None where there is nothing. Operations with None give None (`&` and `|` as in SQL),
and a filter keeps a record only if the answer is true.

An expression is also a function of a key and a value: that is what it means, wherever a function is expected
and in the test driver. On columns it gives the same, or nothing is done and the records go one by one.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(-?\d+)\]|\[\"([^\"]*)\"\]")
_EXACT = 1 << 53


class Expression(ABC):
    """A value of each record. Operators and methods make new ones."""

    @abstractmethod
    def __call__(self, key: Any, value: Any) -> Any:
        """For one record."""

    @abstractmethod
    def column(self, keys: Callable[[], Any], values: Callable[[], Any]) -> Any:
        """For many: an Arrow array, a list of objects, or a `Literal`."""

    def __bool__(self) -> bool:
        raise TypeError("an expression is neither true nor false: use &, | and ~ instead of and, or and not")

    # Comparisons --------------------------------------------------------------------------------------------

    __hash__ = object.__hash__

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return _Operation(operator.eq, "equal", self, _as_expression(other))

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return _Operation(operator.ne, "not_equal", self, _as_expression(other))

    def __lt__(self, other: Any) -> Expression:
        return _Operation(operator.lt, "less", self, _as_expression(other))

    def __le__(self, other: Any) -> Expression:
        return _Operation(operator.le, "less_equal", self, _as_expression(other))

    def __gt__(self, other: Any) -> Expression:
        return _Operation(operator.gt, "greater", self, _as_expression(other))

    def __ge__(self, other: Any) -> Expression:
        return _Operation(operator.ge, "greater_equal", self, _as_expression(other))

    # Logic --------------------------------------------------------------------------------------------------

    def __and__(self, other: Any) -> Expression:
        return _Logic(_and, "and_kleene", self, _as_expression(other))

    def __or__(self, other: Any) -> Expression:
        return _Logic(_or, "or_kleene", self, _as_expression(other))

    def __rand__(self, other: Any) -> Expression:
        return _as_expression(other) & self

    def __ror__(self, other: Any) -> Expression:
        return _as_expression(other) | self

    def __invert__(self) -> Expression:
        return _Operation(operator.not_, "invert", self)

    def is_null(self) -> Expression:
        return _Logic(_is_none, "is_null", self)

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Whether it is one of these; None is none of them."""
        return _Member(self, list(values))

    # Numbers and text ---------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expression:
        return _Operation(operator.add, "add_checked", self, _as_expression(other))

    def __sub__(self, other: Any) -> Expression:
        return _Operation(operator.sub, "subtract_checked", self, _as_expression(other))

    def __mul__(self, other: Any) -> Expression:
        return _Operation(operator.mul, "multiply_checked", self, _as_expression(other))

    def __truediv__(self, other: Any) -> Expression:
        return _Operation(operator.truediv, "divide_checked", self, _as_expression(other))

    def __radd__(self, other: Any) -> Expression:
        return _as_expression(other) + self

    def __rsub__(self, other: Any) -> Expression:
        return _as_expression(other) - self

    def __rmul__(self, other: Any) -> Expression:
        return _as_expression(other) * self

    def __rtruediv__(self, other: Any) -> Expression:
        return _as_expression(other) / self

    def __neg__(self) -> Expression:
        return _Operation(operator.neg, "negate_checked", self)

    def starts_with(self, text: str) -> Expression:
        return _Text(lambda found: found.startswith(text), "starts_with", self, pattern=text)

    def ends_with(self, text: str) -> Expression:
        return _Text(lambda found: found.endswith(text), "ends_with", self, pattern=text)

    def contains(self, text: str) -> Expression:
        """Whether a text has this inside."""
        return _Text(lambda found: text in found, "match_substring", self, pattern=text)

    def upper(self) -> Expression:
        return _Text(str.upper, "ascii_upper", self)

    def lower(self) -> Expression:
        return _Text(str.lower, "ascii_lower", self)

    def length(self) -> Expression:
        """Characters of a text."""
        return _Text(len, "utf8_length", self)

    def __getitem__(self, operand: slice) -> Expression:
        """A part of a text: `[:100]`, `[5:]`, `[5:10]`."""
        if not isinstance(operand, slice) or operand.step is not None:
            raise TypeError(
                'a part of a text is written [first:last]; for what is inside, write col("value.name")'
            )
        first = operand.start or 0
        if first < 0 or (operand.stop is not None and operand.stop < 0):
            raise ValueError("a part of a text is counted from its beginning")
        return _Text(
            lambda found: found[operand], "utf8_slice_codeunits", self, start=first, stop=operand.stop
        )


class Literal(Expression):
    """The same for every record."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._scalar: Any = None

    @property
    def scalar(self) -> Any:
        """For Arrow; kept, because making one takes longer than most of what is done with it."""
        if self._scalar is None:
            import pyarrow as pa

            self._scalar = pa.scalar(self.value)
        return self._scalar

    def __call__(self, key: Any, value: Any) -> Any:
        return self.value

    def column(self, keys: Callable[[], Any], values: Callable[[], Any]) -> Any:
        return self


_NOTHING = Literal("")


class _Column(Expression):
    def __init__(self, of_key: bool, steps: tuple[str | int, ...]) -> None:
        self._of_key, self._steps = of_key, steps

    def __call__(self, key: Any, value: Any) -> Any:
        return _inside(key if self._of_key else value, self._steps)

    def column(self, keys: Callable[[], Any], values: Callable[[], Any]) -> Any:
        found = (keys if self._of_key else values)()
        steps = self._steps
        if not steps:
            return found
        whole = found if isinstance(found, list) else found.to_pylist()
        if len(steps) == 1 and isinstance(steps[0], str):
            name = steps[0]
            return [item.get(name) if type(item) is dict else _inside(item, steps) for item in whole]
        return [_inside(item, steps) for item in whole]


def _inside(found: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(step, int) and isinstance(found, list | tuple):
            found = found[step] if -len(found) <= step < len(found) else None
        elif isinstance(step, str) and found is not None:
            found = getattr(found, step, None)
    return found


class _Operation(Expression):
    """A function of what is not None; `kernel` is Arrow's for columns."""

    def __init__(self, act: Callable[..., Any], kernel: str, *inner: Expression, **options: Any) -> None:
        self._act, self._kernel, self._inner, self._options = act, kernel, inner, options

    def one(self, *given: Any) -> Any:
        return None if any(operand is None for operand in given) else self._act(*given)

    def __call__(self, key: Any, value: Any) -> Any:
        return self.one(*[operand(key, value) for operand in self._inner])

    def column(self, keys: Callable[[], Any], values: Callable[[], Any]) -> Any:
        operands = [operand.column(keys, values) for operand in self._inner]
        if all(isinstance(operand, Literal) for operand in operands):
            return Literal(self.one(*[operand.value for operand in operands]))
        if any(isinstance(operand, list) for operand in operands) or not self._fits(operands):
            return self._by_hand(operands)
        return self._compute(operands)

    def _fits(self, operands: list[Any]) -> bool:
        """Whether Arrow does the same as Python with these."""
        import pyarrow as pa

        types = {_value_type(operand) for operand in operands}
        if len(types) > 1 or types & {None, "other"}:
            return False
        is_whole = [
            isinstance(operand.value, int)
            if isinstance(operand, Literal)
            else pa.types.is_integer(operand.type)
            for operand in operands
        ]
        if types == {"number"} and (self._kernel == "divide_checked" or len(set(is_whole)) > 1):
            return all(_is_exact(operand) for operand in operands)
        return types <= _OPERAND_TYPES.get(self._kernel, {"number", "text", "bytes"})

    def _compute(self, operands: list[Any]) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        given = [operand.scalar if isinstance(operand, Literal) else operand for operand in operands]
        if self._kernel == "add_checked" and any(_value_type(operand) == "text" for operand in operands):
            return pc.binary_join_element_wise(*given, _NOTHING.scalar)
        if self._kernel == "divide_checked":
            given = [operand.cast(pa.float64()) for operand in given]
        return getattr(pc, self._kernel)(*given)

    def _by_hand(self, operands: list[Any]) -> list[Any]:
        rows = next(len(operand) for operand in operands if not isinstance(operand, Literal))
        act = self._act
        if len(operands) == 2 and isinstance(operands[0], list) and isinstance(operands[1], Literal):
            other = operands[1].value
            if other is not None and type(self) is _Operation:
                return [None if item is None else act(item, other) for item in operands[0]]
        lists = [as_list(operand, rows) for operand in operands]
        return [self.one(*given) for given in zip(*lists, strict=True)]


class _Logic(_Operation):
    """Gives an answer for None too."""

    def one(self, *given: Any) -> Any:
        return self._act(*given)

    def _fits(self, operands: list[Any]) -> bool:
        return self._kernel == "is_null" or all(_value_type(operand) == "truth" for operand in operands)


class _Text(_Operation):
    def _fits(self, operands: list[Any]) -> bool:
        import pyarrow.compute as pc

        if _value_type(operands[0]) != "text":
            return False
        if self._kernel.startswith("ascii"):
            return bool(pc.all(pc.string_is_ascii(operands[0])).as_py() in (True, None))
        return True

    def _compute(self, operands: list[Any]) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = getattr(pc, self._kernel)(operands[0], **self._options)
        return found.cast(pa.int64()) if self._kernel == "utf8_length" else found


class _Member(_Operation):
    def __init__(self, inner: Expression, values: list[Any]) -> None:
        super().__init__(lambda found: found in values, "is_in", inner)
        self._values = values

    def one(self, *given: Any) -> Any:
        return given[0] is not None and self._act(*given)

    def _fits(self, operands: list[Any]) -> bool:
        types = {_value_type(Literal(value)) for value in self._values}
        return types == {_value_type(operands[0])} and types <= {"text"}

    def _compute(self, operands: list[Any]) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.is_in(operands[0], pa.array(self._values, operands[0].type))


class _Fields(Expression):
    def __init__(self, inner: dict[str, Expression]) -> None:
        self._inner = inner

    def __call__(self, key: Any, value: Any) -> Any:
        return {name: operand(key, value) for name, operand in self._inner.items()}

    def column(self, keys: Callable[[], Any], values: Callable[[], Any]) -> Any:
        operands = [operand.column(keys, values) for operand in self._inner.values()]
        rows = next((len(operand) for operand in operands if not isinstance(operand, Literal)), len(keys()))
        lists = [as_list(operand, rows) for operand in operands]
        names = list(self._inner)
        return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def as_list(operand: Any, rows: int) -> list[Any]:
    """What `column` gave, as objects."""
    if isinstance(operand, Literal):
        return [operand.value] * rows
    found: list[Any] = operand if isinstance(operand, list) else operand.to_pylist()
    return found


_OPERAND_TYPES = {
    "invert": {"truth"},
    "equal": {"number", "text", "bytes", "truth"},
    "not_equal": {"number", "text", "bytes", "truth"},
    "add_checked": {"number", "text"},
    "subtract_checked": {"number"},
    "multiply_checked": {"number"},
    "divide_checked": {"number"},
    "negate_checked": {"number"},
}


def _value_type(operand: Any) -> str | None:
    """What Arrow and Python both can do things with."""
    import pyarrow as pa

    if isinstance(operand, Literal):
        operand = operand.value
    if not isinstance(operand, pa.Array):
        names = {bool: "truth", int: "number", float: "number", str: "text", bytes: "bytes"}
        return None if operand is None else names.get(type(operand), "other")
    arrow_type = operand.type
    if pa.types.is_boolean(arrow_type):
        return "truth"
    if pa.types.is_string(arrow_type):
        return "text"
    if pa.types.is_binary(arrow_type):
        return "bytes"
    return "number" if pa.types.is_int64(arrow_type) or pa.types.is_float64(arrow_type) else "other"


def _is_exact(column: Any) -> bool:
    """Whether all numbers are the same as floating point."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, Literal):
        return isinstance(column.value, float) or abs(column.value) <= _EXACT
    if not pa.types.is_integer(column.type):
        return True
    ends = pc.min_max(column).as_py()
    return ends["min"] is None or (ends["min"] >= -_EXACT and ends["max"] <= _EXACT)


def _and(one: Any, other: Any) -> Any:
    if one is False or other is False:
        return False
    return None if one is None or other is None else bool(one and other)


def _or(one: Any, other: Any) -> Any:
    if one is True or other is True:
        return True
    return None if one is None or other is None else bool(one or other)


def _is_none(found: Any) -> bool:
    return found is None


def _as_expression(given: Any) -> Expression:
    return given if isinstance(given, Expression) else Literal(given)


def col(path: str) -> Expression:
    """`key`, `value`, or something inside: `value.user.name`, `value.items[0].price`, `value["odd name"]`."""
    root = path[:3] if path.startswith("key") else path[:5]
    steps: list[str | int] = []
    position = len(root)
    while root in ("key", "value") and position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            root = ""
            break
        name, index, quoted = found.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        position = found.end()
    if root not in ("key", "value"):
        raise ValueError(
            f'a column is "key", "value" or something inside, as "value.name" or "value.items[0]"; '
            f"not {path!r}"
        )
    return _Column(root == "key", tuple(steps))


def lit(value: Any) -> Expression:
    """The same value for every record."""
    return Literal(value)


def fields(**expressions: Any) -> Expression:
    """A dictionary of expressions by name, for JSON and the like."""
    return _Fields({name: _as_expression(given) for name, given in expressions.items()})
