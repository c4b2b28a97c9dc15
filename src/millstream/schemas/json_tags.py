"""Tags in JSON Schemas: the property `confluent:tags` of objects and of the properties of objects.

A path says for every level what type of schema it is, as json_model sees it: `object` and the name of a
property (or `definitions`, `$defs` and a name), `array`, `not`, `conditional` and `if`, `then` or `else`, and
`allof`, `anyof`, `oneof` with the index of one of the combined schemas, in an order that does not depend on
how they are written.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from millstream.schemas.json_loader import draft_of, load
from millstream.schemas.json_model import (
    ArrayNode,
    BooleanNode,
    CombinedNode,
    ConditionalNode,
    ConstNode,
    EmptyNode,
    EnumNode,
    FalseNode,
    Node,
    NotNode,
    NullNode,
    NumberNode,
    ObjectNode,
    ReferenceNode,
    StringNode,
    TrueNode,
)
from millstream.schemas.json_schema import JsonSchema
from millstream.schemas.json_text import dumps, loads
from millstream.schemas.tag_entities import TAGS, Entity, EntityTags, TagChange

# By their names, as Confluent's registry orders them.
RANKS: dict[type[Node], int] = {
    node_type: rank
    for rank, node_type in enumerate(
        (
            ArrayNode,
            BooleanNode,
            CombinedNode,
            ConditionalNode,
            ConstNode,
            EmptyNode,
            EnumNode,
            FalseNode,
            NotNode,
            NullNode,
            NumberNode,
            ObjectNode,
            ReferenceNode,
            StringNode,
            TrueNode,
        )
    )
}
CRITERIA = {"allof": "allOf", "anyof": "anyOf", "oneof": "oneOf"}
MODERN = 2019  # the first draft with $defs


def tagged(schema: JsonSchema) -> Iterator[EntityTags]:
    return _Walk(draft_of(schema.document)).inside(schema.root, "", in_field=False)


class _Walk:
    def __init__(self, draft: int) -> None:
        self._draft = draft
        self._seen: set[str] = set()

    def inside(self, node: Node, scope: str, *, in_field: bool) -> Iterator[EntityTags]:
        match node:
            case CombinedNode():
                for index, one in enumerate(sorted(node.parts, key=order)):
                    path = f"{scope}{node.criterion.lower()}.{index}."
                    yield from self.inside(one, path, in_field=False)
            case ArrayNode() if node.all_items is not None:
                yield from self.inside(node.all_items, f"{scope}array.", in_field=False)
            case ObjectNode():
                yield from self._object(node, f"{scope}object", in_field=in_field)
            case ConditionalNode():
                for word, one in node.branches.items():
                    yield from self.inside(one, f"{scope}conditional.{word}.", in_field=False)
            case NotNode():
                yield from self.inside(node.inner, f"{scope}not.", in_field=False)

    def _object(self, node: ObjectNode, path: str, *, in_field: bool) -> Iterator[EntityTags]:
        if path in self._seen:
            return
        self._seen.add(path)
        source = _source(node)
        if not in_field:
            yield from _tags(source, Entity(path, True))
        for name, one in node.properties.items():
            yield from _tags(_source(one), Entity(f"{path}.{name}", False))
            yield from self.inside(one, f"{path}.{name}.", in_field=True)
        for word in ("definitions", "$defs") if self._draft >= MODERN else ("definitions",):
            definitions = source.get(word)
            for name, one in definitions.items() if isinstance(definitions, dict) else ():
                if isinstance(one, dict):
                    yield from self.inside(loaded(one), f"{path}.{word}.{name}.", in_field=False)


def _source(node: Node) -> dict[str, Any]:
    """The keywords of a schema that was written as one."""
    found = loads(node.key) if node.key is not None else {}
    return found if isinstance(found, dict) else {}


def _tags(source: dict[str, Any], entity: Entity) -> Iterator[EntityTags]:
    tags = source.get(TAGS)
    if isinstance(tags, list) and tags:
        yield EntityTags(entity, tuple(dict.fromkeys(str(tag) for tag in tags)))


def loaded(schema: Any) -> Node:
    """A part of a schema by itself; where its references lead does not matter."""
    return load(_without_references(schema), {})


def _without_references(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "#" if key == "$ref" else _without_references(one) for key, one in value.items()}
    return [_without_references(one) for one in value] if isinstance(value, list) else value


def order(node: Node, *, shallow: bool = False) -> tuple[Any, ...]:
    """By type, title, description, default, and then by what each type is about. References lead in circles:
    what is behind one is compared by its general properties only."""
    default = dumps(node.default) if node.has_default else None
    general = (RANKS[type(node)], *(_none_first(one) for one in (node.title, node.description, default)))
    if shallow:
        return general
    match node:
        case ConstNode():
            return (*general, node.value)
        case EnumNode():
            return (*general, len(node.values), sorted(node.values))
        case CombinedNode():
            return (
                *general,
                node.criterion.lower(),
                len(node.parts),
                sorted(order(one) for one in node.parts),
            )
        case NotNode():
            return (*general, order(node.inner))
        case ConditionalNode():
            nothing = EmptyNode()
            branches = (node.branches.get(word, nothing) for word in ("if", "then", "else"))
            return (*general, *(order(one) for one in branches))
        case ObjectNode():
            names, required = sorted(node.properties), sorted(node.required)
            return (*general, len(names), names, len(required), required)
        case ArrayNode():
            return (*general, () if node.all_items is None else order(node.all_items))
        case ReferenceNode():
            return (*general, () if node.target is None else order(node.target, shallow=True))
    return general


def _none_first(text: str | None) -> tuple[bool, str]:
    return text is not None, text or ""


def changed(text: str, changes: Iterable[TagChange]) -> str:
    """A canonical text with other tags."""
    document = loads(text)
    for change in changes:
        found = _find(document, change.entity.is_record, change.entity.words)
        if found is None:
            raise change.entity.missing()
        old = found.get(TAGS)
        tags = change.applied(str(tag) for tag in old) if isinstance(old, list) else change.applied(())
        if tags:
            found[TAGS] = tags
        else:
            found.pop(TAGS, None)
    return dumps(document)


def _find(schema: Any, is_record: bool, words: list[str]) -> dict[str, Any] | None:
    if not words or not isinstance(schema, dict):
        return None
    word, rest = words[0], words[1:]
    match word:
        case "object":
            if is_record and not rest:
                return schema
            return _property(schema, is_record, rest)
        case "array":
            return _find(schema.get("items"), is_record, rest)
        case "not":
            return _find(schema.get("not"), is_record, rest)
        case "allof" | "anyof" | "oneof":
            combined = schema.get(CRITERIA[word])
            if isinstance(combined, list):
                return _find(_numbered(combined, rest[:1]), is_record, rest[1:])
            # Not written, but what several keywords, or several types, amount to.
            if rest[1:2] == ["conditional"] and len(rest) > 2:
                return _find(schema.get(rest[2]), is_record, rest[3:])
            return _find(schema, is_record, rest[1:])
        case "conditional":
            return _find(schema.get(rest[0]), is_record, rest[1:]) if rest else None
    return None


def _property(schema: dict[str, Any], is_record: bool, words: list[str]) -> dict[str, Any] | None:
    """Names may have dots: the shortest one that is there counts."""
    container = "properties"
    if words and words[0] in ("definitions", "$defs"):
        container, words = words[0], words[1:]
    named = schema.get(container)
    if not isinstance(named, dict):
        return None
    for length in range(1, len(words) + 1):
        name = ".".join(words[:length])
        if name in named:
            if length < len(words):
                return _find(named[name], is_record, words[length:])
            return named[name] if isinstance(named[name], dict) else None
    return None


def _numbered(schemas: list[Any], index: list[str]) -> Any:
    if not index or not index[0].isdigit() or int(index[0]) >= len(schemas):
        return None
    return sorted(schemas, key=lambda one: order(loaded(one)))[int(index[0])]
