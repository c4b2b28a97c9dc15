"""Expressions as text, the way ksqlDB shows them in messages and in DESCRIBE: `(F1 * SUM(F2))`."""

from __future__ import annotations

from decimal import Decimal

from millstream.sql import ast
from millstream.sql.lexer import name_text

_COMPARISON_NAMES = {
    "=": "EQUAL",
    "<>": "NOT_EQUAL",
    "<": "LESS_THAN",
    "<=": "LESS_THAN_OR_EQUAL",
    ">": "GREATER_THAN",
    ">=": "GREATER_THAN_OR_EQUAL",
    "IS DISTINCT FROM": "IS_DISTINCT_FROM",
}


def comparison_name(operator: str) -> str:
    return _COMPARISON_NAMES[operator]


def text(node: ast.Expression) -> str:
    """One expression. Operators stand in parentheses."""
    match node:
        case ast.Literal():
            return literal_text(node.value)
        case ast.Interval():
            return node.unit
        case ast.Column():
            return (
                name_text(node.name)
                if node.source is None
                else f"{name_text(node.source)}.{name_text(node.name)}"
            )
        case ast.Field():
            return f"{text(node.base)}->{name_text(node.name)}"
        case ast.Subscript():
            return f"{text(node.base)}[{text(node.index)}]"
        case ast.Call():
            return f"{node.name}({texts(node.arguments)})"
        case ast.Lambda():
            names = ", ".join(node.parameters)
            return f"{names if len(node.parameters) == 1 else f'({names})'} => {text(node.body)}"
        case ast.Arithmetic() | ast.Logical() | ast.Compare():
            return f"({text(node.left)} {node.operator} {text(node.right)})"
        case ast.Signed():
            return f"{node.sign}{text(node.operand)}"
        case ast.Not():
            return f"(NOT {text(node.operand)})"
        case ast.IsNull():
            return f"({text(node.operand)} IS {'NOT ' if node.negated else ''}NULL)"
        case ast.In():
            return f"({text(node.value)} IN ({texts(node.items)}))"
        case ast.Like():
            escape = "" if node.escape is None else f" ESCAPE {literal_text(node.escape)}"
            return f"({text(node.value)} LIKE {text(node.pattern)}{escape})"
        case ast.Between():
            return f"({text(node.value)} BETWEEN {text(node.lower)} AND {text(node.upper)})"
        case ast.Case():
            return _case(node)
        case ast.Cast():
            return f"CAST({text(node.operand)} AS {type_text(node.type)})"
        case ast.MakeArray():
            return f"ARRAY[{texts(node.items)}]"
        case ast.MakeMap():
            return "MAP(" + ", ".join(f"{text(key)}:={text(value)}" for key, value in node.entries) + ")"
        case ast.MakeStruct():
            return (
                "STRUCT("
                + ", ".join(f"{name_text(name)}:={text(value)}" for name, value in node.fields)
                + ")"
            )
    raise TypeError(f"no text for a {type(node).__name__}")


def texts(nodes: tuple[ast.Expression, ...]) -> str:
    return ", ".join(map(text, nodes))


def literal_text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)


def _case(node: ast.Case) -> str:
    operand = "" if node.operand is None else f" {text(node.operand)}"
    whens = " ".join(f"WHEN {text(condition)} THEN {text(result)}" for condition, result in node.whens)
    default = "" if node.default is None else f" ELSE {text(node.default)}"
    return f"(CASE{operand} {whens}{default} END)"


_SHOWN = {"INT": "INTEGER", "VARCHAR": "STRING"}


def type_text(type_name: ast.TypeName) -> str:
    if type_name.name == "STRUCT":
        return (
            "STRUCT<"
            + ", ".join(f"{name_text(name)} {type_text(own)}" for name, own in type_name.fields)
            + ">"
        )
    if type_name.arguments:
        return f"{type_name.name}<{', '.join(map(type_text, type_name.arguments))}>"
    if type_name.parameters and type_name.name == "DECIMAL":
        return f"DECIMAL({', '.join(type_name.parameters)})"
    return _SHOWN.get(type_name.name, type_name.name)
