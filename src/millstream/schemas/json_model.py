"""JSON Schemas as objects to compare: one node per kind of value, not one per keyword.

JSON Schema says what must hold, keyword by keyword. To say what changed between two schemas one has to know
what kind of value each of them describes. So keywords are gathered: everything about strings makes a string
node, everything about objects an object node, and so on; where a schema speaks of several things at once (a
type and an enum, an object and a `oneOf`) it becomes a combined node that asks for all of them. Drafts 4, 6
and 7 gather slightly differently from 2019-09 and 2020-12, see json_loader.
"""

from dataclasses import dataclass, field
from typing import Any


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """Any schema. `key` is the schema's text in normal form where it was written as one, to find
    repetitions."""

    id: str | None = None
    title: str | None = None
    description: str | None = None
    default: Any = MISSING
    connect_type: Any = None
    key: str | None = None

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


@dataclass(slots=True, eq=False, repr=False)
class EmptyNode(Node):
    """`{}`: everything is valid."""


@dataclass(slots=True, eq=False, repr=False)
class TrueNode(EmptyNode):
    """`true`."""


@dataclass(slots=True, eq=False, repr=False)
class FalseNode(Node):
    """`false`: nothing is valid."""


@dataclass(slots=True, eq=False, repr=False)
class NullNode(Node):
    pass


@dataclass(slots=True, eq=False, repr=False)
class BooleanNode(Node):
    pass


@dataclass(slots=True, eq=False, repr=False)
class StringNode(Node):
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class NumberNode(Node):
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    integer: bool = False


@dataclass(slots=True, eq=False, repr=False)
class ObjectNode(Node):
    properties: dict[str, Node] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    patterns: dict[str, Node] = field(default_factory=dict)
    additional_allowed: bool = True
    additional: Node | None = None
    unevaluated: Node | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    dependent_required: dict[str, set[str]] = field(default_factory=dict)
    dependent_schemas: dict[str, Node] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class ArrayNode(Node):
    all_items: Node | None = None
    items: list[Node] | None = None
    additional_allowed: bool = True
    additional: Node | None = None
    unevaluated: Node | None = None
    min_items: int | None = None
    max_items: int | None = None
    unique: bool = False
    min_contains: int | None = None
    max_contains: int | None = None


@dataclass(slots=True, eq=False, repr=False)
class EnumNode(Node):
    values: set[str] = field(default_factory=set)  # as JSON texts


@dataclass(slots=True, eq=False, repr=False)
class ConstNode(Node):
    value: str = ""  # as JSON text


@dataclass(slots=True, eq=False, repr=False)
class NotNode(Node):
    inner: Node = field(default_factory=EmptyNode)


@dataclass(slots=True, eq=False, repr=False)
class ConditionalNode(Node):
    branches: dict[str, Node] = field(default_factory=dict)  # of if, then and else; they are not compared


@dataclass(slots=True, eq=False, repr=False)
class CombinedNode(Node):
    """criterion: "allOf", "anyOf" or "oneOf". `generated` where no such keyword was written."""

    criterion: str = "allOf"
    parts: list[Node] = field(default_factory=list)
    generated: bool = False


@dataclass(slots=True, eq=False, repr=False)
class ReferenceNode(Node):
    target: Node | None = None


def merge(first: Node, second: Node) -> Node:
    """Two nodes of one kind (string, number, object, array) as one; what the second says counts."""
    for name in type(first).__dataclass_fields__:
        theirs = getattr(second, name)
        blank = type(first).__dataclass_fields__[name]
        if isinstance(theirs, dict | set):
            getattr(first, name).update(theirs)
        elif isinstance(theirs, list):
            setattr(first, name, [*(getattr(first, name) or []), *theirs])
        elif theirs is not None and theirs is not MISSING and theirs != blank.default:
            setattr(first, name, theirs)
    return first
