"""Expressions into Python source, with their types.

One walk over an expression finds the type of every part and writes the Python that computes it; whatever is
wrong with the types is a `SqlError` here. The text refers to values of the row by what the scope says
(`v[3]`), and to functions and constants by names in a namespace. `row_functions.py` makes functions of whole
projections and filters from such texts, so that a row costs one call however many expressions there are.

Null follows ksqlDB: a comparison with null is false, arithmetic on null has no value. What has no value
raises; the function around it turns that into null and a record in the processing log. So AND, OR and NOT
have to refuse null, where Python would take None for false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from millstream.sql import ast, runtime
from millstream.sql.arithmetic import decimal_operation, result_type
from millstream.sql.casts import cast, null_safe
from millstream.sql.code import Code, Names, Scope, is_plain
from millstream.sql.errors import EvaluationError, SqlError, sql_error
from millstream.sql.expression_text import comparison_name, text
from millstream.sql.functions.table import FunctionTable, Kind
from millstream.sql.literal_types import decimal_literal_type, number_type
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
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
    common_type,
    comparable,
    map_type,
    struct_type,
)

_INT_TEXT = "(x if -2147483648 <= (x := {0}) <= 2147483647 else _wrap32(x))"
_LONG_TEXT = "(x if -9223372036854775808 <= (x := {0}) <= 9223372036854775807 else _wrap64(x))"


@dataclass
class Compiler:
    """`resolve` turns the name of a type into the type; `settings` are those that functions may look at."""

    scope: Scope
    functions: FunctionTable
    resolve: Callable[[ast.TypeName], SqlType]
    names: Names = field(default_factory=Names)
    variables: dict[str, Code] = field(default_factory=dict)
    shown: Callable[[ast.Expression], str] = text
    """How messages show an expression."""

    def compile(self, node: ast.Expression) -> Code:
        method: Callable[[Any], Code] = getattr(self, "_" + type(node).__name__.lower())
        return method(node)

    def type_of(self, node: ast.Expression) -> SqlType | None:
        return self.compile(node).type

    def is_computed(self, node: ast.Expression) -> bool:
        """Whether the row has its value already."""
        return False

    # Leaves -------------------------------------------------------------------------------------------------

    def _literal(self, node: ast.Literal) -> Code:
        value = node.value
        if value is None:
            return Code("None", None, safe=True, literal=node)
        if isinstance(value, Decimal):
            name = self.names.add(value, "d")
            return Code(name, decimal_literal_type(value), True, True, node)
        if isinstance(value, float):
            return Code(f"({value!r})", DOUBLE, True, True, node)
        if isinstance(value, bool):
            return Code(repr(value), BOOLEAN, True, True, node)
        if isinstance(value, int):
            return Code(f"({value})", BIGINT if node.long else INTEGER, True, True, node)
        return Code(repr(value), STRING, True, True, node)

    def _interval(self, node: ast.Interval) -> Code:
        return Code(repr(node.unit), None, safe=True, never_null=True)

    def _column(self, node: ast.Column) -> Code:
        if node.source is None and node.name in self.variables:
            return self.variables[node.name]
        return self.scope.column(node)

    # Arithmetic ---------------------------------------------------------------------------------------------

    def _arithmetic(self, node: ast.Arithmetic) -> Code:
        left, right = self.compile(node.left), self.compile(node.right)
        try:
            type_ = result_type(node.operator, left.type, right.type)
        except SqlError as error:
            raise sql_error(
                "arithmetic", node.location, expression=self.shown(node), why=str(error)
            ) from None
        assert left.type is not None and right.type is not None
        one, other, operator = left.text, right.text, node.operator
        if type_.base is Base.STRING:
            if isinstance(node.left, ast.Arithmetic):
                one = one.removeprefix("(").removesuffix(")")
            return Code(f"({one} + {other})", type_)
        if isinstance(type_, DecimalType):
            compute = self.names.add(decimal_operation(operator, type_.precision, type_.scale))
            one = self._as(left, as_decimal(left.type)).text
            other = self._as(right, as_decimal(right.type)).text
            return Code(f"{compute}({one}, {other})", type_)
        if type_.base is Base.DOUBLE:
            one, other = self._as(left, DOUBLE).text, self._as(right, DOUBLE).text
            if operator in "/%":
                function = "_double_divide" if operator == "/" else "_double_modulus"
                return Code(f"{function}({one}, {other})", type_)
            return Code(f"({one} {operator} {other})", type_)
        if operator in "/%":
            function = "_integer_divide" if operator == "/" else "_integer_modulus"
            whole = f"{function}({one}, {other})"
        else:
            whole = f"{one} {operator} {other}"
        template = _INT_TEXT if type_.base is Base.INTEGER else _LONG_TEXT
        return Code(template.replace("x", self.names.fresh("t")).format(whole), type_)

    def _signed(self, node: ast.Signed) -> Code:
        code = self.compile(node.operand)
        if code.type is None or not code.type.base.is_number:
            raise sql_error("sign", node.location, sign=node.sign, type=code.type)
        if node.sign == "+":
            return replace(code, literal=None)
        if code.type.base in (Base.INTEGER, Base.BIGINT):
            wrap = "_wrap32" if code.type.base is Base.INTEGER else "_wrap64"
            return Code(f"{wrap}(-{code.text})", code.type)
        return Code(f"(-{code.text})", code.type)

    # Comparisons --------------------------------------------------------------------------------------------

    def _compare(self, node: ast.Compare) -> Code:
        left, right = self.compile(node.left), self.compile(node.right)
        operator = node.operator
        shown = comparison_name(operator)
        if not comparable(left.type, operator, right.type):
            raise sql_error(
                "comparison",
                node.location,
                left=self.shown(node.left),
                left_type=left.type,
                right=self.shown(node.right),
                right_type=right.type,
                operator=shown,
            )
        left, right = self._meeting(left, right)
        one, two = self._once(left), self._once(right)
        if operator == "IS DISTINCT FROM":
            return Code(f"_distinct({left.text}, {right.text})", BOOLEAN, left.safe and right.safe, True)
        sign = {"=": "==", "<>": "!="}.get(operator, operator)
        checks = [f"{first} is not None" for first, _, code in (one, two) if not code.never_null]
        tests = [*checks, f"{one[1]} {sign} {two[1]}"]
        return Code("(" + " and ".join(tests) + ")", BOOLEAN, left.safe and right.safe, True)

    def _once(self, code: Code) -> tuple[str, str, Code]:
        """The text at its first use and at the later ones."""
        if code.never_null or is_plain(code.text):
            return code.text, code.text, code
        name = self.names.fresh("t")
        return f"({name} := {code.text})", name, code

    def _meeting(self, left: Code, right: Code) -> tuple[Code, Code]:
        """Two sides of a comparison in one kind of value."""
        assert left.type is not None and right.type is not None
        one, other = left.type.base, right.type.base
        if {one, other} == {Base.DOUBLE, Base.DECIMAL}:
            return self._exact(left), self._exact(right)
        if one is other or (one.is_number and other.is_number):
            return left, right
        if one is Base.STRING and other.is_time:
            return self._as(left, right.type), right
        if other is Base.STRING and one.is_time:
            return left, self._as(right, left.type)
        if one is Base.DATE and other is Base.TIMESTAMP:
            return self._as(left, right.type), right
        if one is Base.TIMESTAMP and other is Base.DATE:
            return left, self._as(right, left.type)
        return left, right

    def _exact(self, code: Code) -> Code:
        """One side of a comparison of a DOUBLE with a DECIMAL: a double counts as the decimal that it is
        shown as."""
        if code.type is not None and code.type.base is Base.DECIMAL:
            return code
        if code.never_null:
            return Code(f"_decimal_of({code.text})", code.type, never_null=True)
        return Code(f"_decimal_or_null({code.text})", code.type, code.safe)

    def _isnull(self, node: ast.IsNull) -> Code:
        code = self.compile(node.operand)
        return Code(f"({code.text} is {'not ' if node.negated else ''}None)", BOOLEAN, code.safe, True)

    def _between(self, node: ast.Between) -> Code:
        low = ast.Compare(">=", node.value, node.lower, location=node.location)
        high = ast.Compare("<=", node.value, node.upper, location=node.location)
        one, other = self.compile(low), self.compile(high)
        return Code(f"({one.text} and {other.text})", BOOLEAN, one.safe and other.safe, True)

    def _in(self, node: ast.In) -> Code:
        value = self.compile(node.value)
        items = [self.compile(item) for item in node.items]
        type_ = self._common([node.value, *node.items])
        if type_ is None:
            return Code(
                f"_any_equal({value.text}, ({', '.join(item.text for item in items)},))", BOOLEAN, True, True
            )
        texts = [self._into(item, type_).text for item in items]
        return Code(f"({self._into(value, type_).text} in ({', '.join(texts)},))", BOOLEAN, never_null=True)

    def _like(self, node: ast.Like) -> Code:
        value, pattern = self.compile(node.value), self.compile(node.pattern)
        for code, side in ((value, node.value), (pattern, node.pattern)):
            if code.type is not None and code.type.base is not Base.STRING:
                raise sql_error("LIKE of no text", side.location, expression=self.shown(side), type=code.type)
        if pattern.literal is not None and isinstance(pattern.literal.value, str):
            match = self.names.add(runtime.like_pattern(pattern.literal.value, node.escape))
            return Code(f"{match}({value.text})", BOOLEAN, value.safe, True)
        return Code(f"_like({value.text}, {pattern.text}, {node.escape!r})", BOOLEAN, never_null=True)

    # Logic --------------------------------------------------------------------------------------------------

    def _logical(self, node: ast.Logical) -> Code:
        operands = [node.right]
        first = node.left
        while (
            isinstance(first, ast.Logical) and first.operator == node.operator and not self.is_computed(first)
        ):
            operands.append(first.right)
            first = first.left
        codes = [self._boolean(operand) for operand in (first, *reversed(operands))]
        # Without brackets within: Python allows two hundred inside of each other.
        joined = f" {node.operator.lower()} ".join(code.text for code in codes)
        return Code(f"({joined})", BOOLEAN, all(code.safe for code in codes), True)

    def _not(self, node: ast.Not) -> Code:
        code = self._boolean(node.operand)
        return Code(f"(not {code.text})", BOOLEAN, code.safe, True)

    def _boolean(self, node: ast.Expression) -> Code:
        code = self.compile(node)
        if code.type is not None and code.type.base is not Base.BOOLEAN:
            raise sql_error("no boolean", node.location, expression=self.shown(node), type=code.type)
        if code.never_null:
            return code
        return Code(f"_true_or_false({code.text})", BOOLEAN, never_null=True)

    def _case(self, node: ast.Case) -> Code:
        whens = node.whens
        if node.operand is not None:
            operand = node.operand
            whens = tuple(
                (ast.Compare("=", operand, when, location=when.location), then) for when, then in whens
            )
        conditions, results = [], []
        type_: SqlType | None = None
        for condition, then in whens:
            code = self.compile(condition)
            if code.type is None or code.type.base is not Base.BOOLEAN:
                raise sql_error(
                    "CASE condition", condition.location, expression=self.shown(condition), type=code.type
                )
            conditions.append(code if code.never_null else Code(f"_true_or_false({code.text})", BOOLEAN))
            results.append(self.compile(then))
            own = results[-1].type
            if own is not None and type_ is not None and own != type_:
                shown = f"WHEN {self.shown(condition)} THEN {self.shown(then)}"
                raise sql_error("CASE types", then.location, left=type_, right=own, expression=shown)
            type_ = type_ or own
        default = self.compile(node.default) if node.default is not None else Code("None", None, True)
        if type_ is not None and default.type is not None and default.type != type_:
            raise sql_error("CASE default type", node.location, left=type_, right=default.type)
        type_ = type_ or default.type
        if type_ is None:
            raise sql_error("CASE of nothing", node.location)
        branches = [
            f"{self._into(result, type_).text} if {test.text} else "
            for test, result in zip(conditions, results, strict=True)
        ]
        return Code(f"({''.join(branches)}{self._into(default, type_).text})", type_)

    # Conversions --------------------------------------------------------------------------------------------

    def _cast(self, node: ast.Cast) -> Code:
        code = self.compile(node.operand)
        return self._as(code, self.resolve(node.type))

    def _as(self, code: Code, target: SqlType) -> Code:
        """Converted; null stays null."""
        if code.type == target:
            return code
        if code.type is None:
            return Code("None", target, safe=True)
        convert = cast(code.type, target)
        if (code.type.base, target.base) == (Base.INTEGER, Base.BIGINT):
            return Code(code.text, target, code.safe, code.never_null)
        if not code.never_null:
            convert = null_safe(convert)
        return Code(f"{self.names.add(convert)}({code.text})", target, False, code.never_null)

    def converted(self, code: Code, target: SqlType) -> Code:
        return self._as(code, target)

    def _into(self, code: Code, target: SqlType) -> Code:
        """As `_as`; literals are converted now, and refused if they cannot be."""
        if code.literal is not None and code.type is not None and code.type != target:
            try:
                value = cast(code.type, target)(code.literal.value)
            except (EvaluationError, ValueError, ArithmeticError):
                raise sql_error(
                    "literal of another type", code.literal.location, type=target, value=code.literal.value
                ) from None
            return Code(self.names.add(value, "c"), target, True, True)
        return self._as(code, target)

    def _common(self, nodes: Sequence[ast.Expression]) -> SqlType | None:
        """The type in which all of these meet; None if all are NULL."""
        type_: SqlType | None = None
        for node in nodes:
            code = self.compile(node)
            if code.type is None:
                continue
            if type_ is None:
                type_ = code.type
                continue
            own = code.type
            if code.literal is not None and own.base is Base.STRING and type_.base.is_number:
                own = number_type(str(code.literal.value), type_, code.literal)
            found = common_type(type_, own, literal=code.literal is not None)
            if found is None:
                raise sql_error(
                    "no operator", node.location, left=type_, right=code.type, expression=self.shown(node)
                )
            type_ = found
        return type_

    # Structures ---------------------------------------------------------------------------------------------

    def _makearray(self, node: ast.MakeArray) -> Code:
        if not node.items:
            raise sql_error("empty array", node.location)
        type_ = self._common(node.items)
        if type_ is None:
            raise sql_error("array of nothing", node.location)
        items = [self._into(self.compile(item), type_) for item in node.items]
        texts = ", ".join(self._own_failure(item) for item in items)
        return Code(f"[{texts}]", array_type(type_), never_null=True)

    def _makemap(self, node: ast.MakeMap) -> Code:
        if not node.entries:
            raise sql_error("empty map", node.location)
        keys, values = [key for key, _ in node.entries], [value for _, value in node.entries]
        key_type, value_type = self._common(keys), self._common(values)
        if key_type is None:
            raise sql_error("map of null keys", node.location)
        if value_type is None:
            raise sql_error("map of null values", node.location)
        pairs = [
            f"{self._own_failure(self._into(self.compile(key), key_type))}: "
            f"{self._own_failure(self._into(self.compile(value), value_type))}"
            for key, value in node.entries
        ]
        return Code("{" + ", ".join(pairs) + "}", map_type(key_type, value_type), never_null=True)

    def _makestruct(self, node: ast.MakeStruct) -> Code:
        fields = [(name, self.compile(value)) for name, value in node.fields]
        for (name, code), (_, value) in zip(fields, node.fields, strict=True):
            if code.type is None:
                raise sql_error("struct of null", value.location, name=name)
        texts = ", ".join(f"{name!r}: {self._own_failure(code)}" for name, code in fields)
        types = struct_type(*((name, code.type) for name, code in fields if code.type is not None))
        return Code("{" + texts + "}", types, never_null=True)

    def _own_failure(self, code: Code) -> str:
        """Parts of a structure fail on their own: the others keep their values."""
        return code.text if code.safe else f"_or_null(lambda: {code.text})"

    def _field(self, node: ast.Field) -> Code:
        base = self.compile(node.base)
        if not isinstance(base.type, StructType):
            raise sql_error(
                "no struct", node.location, type=base.type, name=node.name, expression=self.shown(node.base)
            )
        type_ = base.type.field(node.name)
        if type_ is None:
            raise sql_error("no such field", node.location, name=node.name, expression=self.shown(node.base))
        first, later, _ = self._once(base)
        return Code(f"(None if {first} is None else {later}[{node.name!r}])", type_, base.safe)

    def _subscript(self, node: ast.Subscript) -> Code:
        base, index = self.compile(node.base), self.compile(node.index)
        if isinstance(base.type, ArrayType):
            if index.type is None or index.type.base not in (Base.INTEGER, Base.BIGINT):
                raise sql_error("array index", node.index.location, type=index.type)
            return Code(f"_item({base.text}, {index.text})", base.type.item, base.safe and index.safe)
        if isinstance(base.type, MapType):
            key = self._into(index, base.type.key)
            return Code(f"_entry({base.text}, {key.text})", base.type.value, base.safe and key.safe)
        hint = ""
        if isinstance(base.type, StructType):
            shown = f"{self.shown(node.base)}->{self.shown(node.index)}"
            hint = f" Use the dereference operator for STRUCTS: {shown}"
        raise sql_error("no subscript", node.location, type=base.type, expression=self.shown(node), hint=hint)

    # Functions ----------------------------------------------------------------------------------------------

    def _lambda(self, node: ast.Lambda) -> Code:
        raise sql_error("lambda outside", node.location)

    def _call(self, node: ast.Call) -> Code:
        function = self.functions.find(node.name)
        if function.kind is not Kind.SCALAR:
            kind = "aggregate" if function.kind is Kind.AGGREGATE else "table"
            raise sql_error("function of another kind", node.location, kind=kind, expression=self.shown(node))
        arguments, texts = self.arguments(node)
        overload = function.resolve(arguments)
        for index, argument in enumerate(node.arguments):
            if isinstance(argument, ast.Lambda):
                arguments[index], texts[index] = self._typed_lambda(
                    argument, overload.lambda_inputs(arguments, index)
                )
        type_ = overload.result_type(arguments)
        name = self.names.add(overload.bind(arguments))
        return Code(f"{name}({', '.join(texts)})", type_)

    def arguments(self, node: ast.Call) -> tuple[list[Argument], list[str]]:
        """Types and texts; lambdas are only counted."""
        types: list[Argument] = []
        texts: list[str] = []
        for argument in node.arguments:
            if isinstance(argument, ast.Lambda):
                types.append(Lambda(len(argument.parameters)))
                texts.append("")
            elif isinstance(argument, ast.Interval):
                types.append(IntervalUnit())
                texts.append(repr(argument.unit))
            else:
                code = self.compile(argument)
                types.append(code.type)
                texts.append(code.text)
        return types, texts

    def _typed_lambda(self, node: ast.Lambda, inputs: tuple[SqlType, ...]) -> tuple[TypedLambda, str]:
        names = [self.names.fresh("p") for _ in inputs]
        variables = dict(self.variables)
        for parameter, name, type_ in zip(node.parameters, names, inputs, strict=True):
            if parameter in variables:
                raise sql_error("lambda parameter twice", node.location, name=parameter)
            variables[parameter] = Code(name, type_, safe=True)
        inner = replace(self, variables=variables)
        body = inner.compile(node.body)
        if body.type is None:
            raise sql_error("lambda of null", node.location)
        return TypedLambda(input_types=inputs, result=body.type), f"(lambda {', '.join(names)}: {body.text})"
