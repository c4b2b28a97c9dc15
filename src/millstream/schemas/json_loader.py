"""Builds the nodes of json_model from a schema's JSON.

Drafts 4, 6, 7: `$ref` alone counts. Otherwise one part for `enum`, for each of `allOf`, `anyOf`, `oneOf`, for
`not`, for `const`, for `type` with all keywords of that type (several types: any of them), and one for each
other type of value of which keywords are present.

2019-09, 2020-12: one part per keyword, in the order written, where parts about one type of value melt into
one; keywords beside several types melt into the type that they are about; `$ref` is a part like any other.

Several parts are a combined node that asks for all of them.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urldefrag, urljoin

from millstream.schemas.json_model import (
    MISSING,
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
    merge,
)
from millstream.schemas.json_references import Documents, Found
from millstream.schemas.json_text import dumps
from millstream.schemas.schema import InvalidSchema

COMBINED = ("allOf", "anyOf", "oneOf")
STRING_WORDS = ("minLength", "maxLength", "pattern", "format")
NUMBER_WORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
OBJECT_WORDS = (
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
)
ARRAY_WORDS = ("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains")
MELTING = (ArrayNode, NumberNode, ObjectNode, StringNode)
DRAFTS = {
    "draft-04/schema": 4,
    "schema": 4,
    "draft-06/schema": 6,
    "draft-07/schema": 7,
    "draft/2019-09/schema": 2019,
    "draft/2020-12/schema": 2020,
}


def draft_of(root: Any) -> int:
    """Which draft a schema follows; 7 where it does not say."""
    if isinstance(root, dict) and isinstance(root.get("$schema"), str):
        for scheme in ("http://json-schema.org/", "https://json-schema.org/"):
            if root["$schema"].startswith(scheme):
                return DRAFTS.get(root["$schema"][len(scheme) :].removesuffix("#"), 7)
    return 7


def load(root: Any, resolved: Mapping[str, str]) -> Node:
    if not isinstance(root, dict | bool):
        raise InvalidSchema("expected an object or boolean at the root")
    draft = draft_of(root)
    documents = Documents(root, resolved, "id" if draft == 4 else "$id")
    loader = _Modern(documents, draft) if draft >= 2019 else _Loader(documents, draft)
    node = loader.node(documents.root.schema, documents.base)
    loader.follow_references()
    return node


class _Loader:
    """Drafts 4, 6 and 7."""

    def __init__(self, documents: Documents, draft: int) -> None:
        self._documents = documents
        self._draft = draft
        self._id_word = "id" if draft == 4 else "$id"
        self._nodes: dict[tuple[int, str], Node] = {}
        self._pending: list[tuple[ReferenceNode, Found]] = []

    def follow_references(self) -> None:
        while self._pending:
            reference, found = self._pending.pop()
            key = (id(found.schema), found.base)
            if key not in self._nodes:
                self._nodes[key] = self.node(found.schema, found.base)
            target = self._nodes[key]
            seen = {id(reference)}
            while isinstance(target, ReferenceNode) and target.target is not None and id(target) not in seen:
                seen.add(id(target))
                target = target.target
            reference.target = target

    def node(self, schema: Any, base: str) -> Node:
        if isinstance(schema, bool):
            return TrueNode(key="true") if schema else FalseNode(key="false")
        if not isinstance(schema, dict):
            raise InvalidSchema(f"expected a boolean or an object, found {dumps(schema)}")
        own = schema.get(self._id_word)
        if isinstance(own, str) and not own.startswith("#"):
            base = urldefrag(urljoin(base, own))[0]
        node = self._object(schema, base)
        node.id = _optional_text(schema, self._id_word) or node.id
        node.title = _optional_text(schema, "title") or node.title
        node.description = _optional_text(schema, "description") or node.description
        if "default" in schema and not (self._draft >= 2019 and schema["default"] is None):
            node.default = schema["default"]  # a default of null counts in the older drafts only
        node.connect_type = schema.get("connect.type", node.connect_type)
        node.key = dumps(_sorted(schema))
        return node

    def _object(self, schema: dict[str, Any], base: str) -> Node:
        if "$ref" in schema:
            return self._reference(_text(schema, "$ref"), base)
        parts: list[Node] = []
        if "enum" in schema:
            parts.append(_enum(schema))
        for word in COMBINED:
            if word in schema:
                inside = [self.node(item, base) for item in _array(schema, word)]
                parts.append(CombinedNode(criterion=word, parts=inside))
        if "not" in schema:
            parts.append(NotNode(inner=self.node(schema["not"], base)))
        if self._draft > 4 and "const" in schema:
            parts.append(ConstNode(value=dumps(_sorted(schema["const"]))))
        left = set(schema)
        if "type" in schema:
            parts.append(self._typed(schema, base, left))
        if left & set(ARRAY_WORDS):
            parts.append(self._array(schema, base))
        if left & set(OBJECT_WORDS):
            parts.append(self._properties(schema, base))
        if left & set(NUMBER_WORDS):
            parts.append(self._number(schema))
        if left & set(STRING_WORDS):
            parts.append(_string(schema))
        if self._draft >= 7 and left & {"if", "then", "else"}:
            parts.append(self._conditional(schema, base))
        if not parts:
            return EmptyNode()
        return parts[0] if len(parts) == 1 else CombinedNode(parts=parts, generated=True)

    def _conditional(self, schema: dict[str, Any], base: str) -> ConditionalNode:
        branches: dict[str, Node] = {
            word: self.node(schema[word], base) for word in ("if", "then", "else") if word in schema
        }
        return ConditionalNode(branches=branches)

    def _reference(self, reference: str, base: str) -> ReferenceNode:
        node = ReferenceNode()
        self._pending.append((node, self._documents.find(reference, base)))
        return node

    def _typed(self, schema: dict[str, Any], base: str, left: set[str]) -> Node:
        type_name = schema["type"]
        if isinstance(type_name, str):
            return self._of_type(type_name, schema, base, left)
        if not isinstance(type_name, list) or not all(isinstance(item, str) for item in type_name):
            raise InvalidSchema(f"type must be a string or an array of strings, found {dumps(type_name)}")
        return CombinedNode(
            criterion="anyOf",
            parts=[self._of_type(item, schema, base, left) for item in type_name],
            generated=True,
        )

    def _of_type(self, type_name: str, schema: dict[str, Any], base: str, left: set[str]) -> Node:
        match type_name:
            case "string":
                left.difference_update(STRING_WORDS)
                return _string(schema)
            case "integer" | "number":
                left.difference_update(NUMBER_WORDS)
                number = self._number(schema)
                number.integer = type_name == "integer"
                return number
            case "boolean":
                return BooleanNode()
            case "null":
                return NullNode()
            case "array":
                left.difference_update(ARRAY_WORDS)
                return self._array(schema, base)
            case "object":
                left.difference_update(OBJECT_WORDS)
                return self._properties(schema, base)
        raise InvalidSchema(f"unknown type: [{type_name}]")

    def _number(self, schema: dict[str, Any]) -> NumberNode:
        node = NumberNode(
            minimum=_number(schema, "minimum"),
            maximum=_number(schema, "maximum"),
            multiple_of=_number(schema, "multipleOf"),
        )
        if node.multiple_of == 0:
            raise InvalidSchema("multipleOf should not be 0")
        if self._draft == 4:  # there, true means that minimum or maximum itself is excluded
            for word in ("exclusiveMinimum", "exclusiveMaximum"):
                _boolean(schema, word)
        else:
            node.exclusive_minimum = _number(schema, "exclusiveMinimum")
            node.exclusive_maximum = _number(schema, "exclusiveMaximum")
        return node

    def _properties(self, schema: dict[str, Any], base: str) -> ObjectNode:
        node = ObjectNode(
            min_properties=_integer(schema, "minProperties"),
            max_properties=_integer(schema, "maxProperties"),
        )
        for name, value in _mapping(schema, "properties").items():
            if name != self._id_word or isinstance(value, dict):
                node.properties[name] = self.node(value, base)
        for pattern, value in _mapping(schema, "patternProperties").items():
            node.patterns[pattern] = self.node(value, base)
        node.required = _texts(schema, "required")
        if "additionalProperties" in schema:
            additional = schema["additionalProperties"]
            if isinstance(additional, bool):
                node.additional_allowed = additional
            else:
                node.additional = self.node(additional, base)
        for name, value in _mapping(schema, "dependencies").items():
            if isinstance(value, list):
                node.dependent_required[name] = _texts({"dependencies": value}, "dependencies")
            else:
                node.dependent_schemas[name] = self.node(value, base)
        if self._draft >= 6 and "propertyNames" in schema:
            self.node(schema["propertyNames"], base)
        return node

    def _array(self, schema: dict[str, Any], base: str) -> ArrayNode:
        node = ArrayNode(
            min_items=_integer(schema, "minItems"),
            max_items=_integer(schema, "maxItems"),
            unique=_boolean(schema, "uniqueItems"),
        )
        additional = schema.get("additionalItems", True)
        if isinstance(additional, bool):
            node.additional_allowed = additional
        else:
            node.additional = self.node(additional, base)
        items = schema.get("items", MISSING)
        if isinstance(items, list):
            node.items = [self.node(item, base) for item in items]
        elif items is not MISSING:
            node.all_items = self.node(items, base)
            node.additional_allowed = True
        if self._draft > 4 and "contains" in schema:
            self.node(schema["contains"], base)
        return node


class _Modern(_Loader):
    """2019-09 and 2020-12."""

    def _object(self, schema: dict[str, Any], base: str) -> Node:
        parts: list[Node] = []
        for word in schema:
            part = self._part(word, schema, base)
            if part is not None:
                parts = _join(parts, part)
        later = ObjectNode()
        for name, value in _mapping(schema, "properties").items():
            later.properties[name] = self.node(value, base)
        for pattern, value in _mapping(schema, "patternProperties").items():
            later.patterns[pattern] = self.node(value, base)
        if later.properties or later.patterns:
            parts = _join(parts, later)
        if "unevaluatedItems" in schema:
            parts = _join(parts, ArrayNode(unevaluated=self.node(schema["unevaluatedItems"], base)))
        if "unevaluatedProperties" in schema:
            parts = _join(parts, ObjectNode(unevaluated=self.node(schema["unevaluatedProperties"], base)))
        for word in ("$defs", "definitions"):
            if isinstance(schema.get(word), dict):
                for value in schema[word].values():
                    if isinstance(value, dict | bool):
                        self.node(value, base)
        if not parts:
            return EmptyNode()
        return parts[0] if len(parts) == 1 else CombinedNode(parts=parts, generated=True)

    def _part(self, word: str, schema: dict[str, Any], base: str) -> Node | None:
        """What one keyword says; None for a keyword that has no meaning here or is handled elsewhere."""
        value = schema[word]
        match word:
            case "$ref" | "$dynamicRef" | "$recursiveRef":
                return self._reference(_text(schema, word), base)
            case "type":
                return self._typed({"type": value}, base, set())
            case "enum":
                return _enum(schema)
            case "const":
                return ConstNode(value=dumps(_sorted(value)))
            case "not":
                return NotNode(inner=self.node(value, base))
            case "allOf" | "anyOf" | "oneOf":
                inside: list[Node] = []
                for item in _array(schema, word):
                    inside += _flat(self.node(item, base))
                return CombinedNode(criterion=word, parts=inside)
            case "if":
                return self._conditional(schema, base)
            case "minLength" | "maxLength" | "pattern":
                return _string({word: value})
            case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf":
                return self._number({word: value})
            case "required" | "minProperties" | "maxProperties" | "additionalProperties" | "propertyNames":
                node = self._properties({word: value}, base)
                if value is True and word == "additionalProperties":
                    node.additional_allowed = True
                return node
            case "dependentRequired":
                return ObjectNode(
                    dependent_required={
                        name: _texts({word: names}, word) for name, names in _mapping(schema, word).items()
                    }
                )
            case "dependentSchemas":
                return ObjectNode(
                    dependent_schemas={
                        name: self.node(item, base) for name, item in _mapping(schema, word).items()
                    }
                )
            case "minItems" | "maxItems" | "uniqueItems":
                return self._array({word: value}, base)
            case "prefixItems":
                return ArrayNode(items=[self.node(item, base) for item in _array(schema, word)])
            case "items":
                return self._items(value, schema, base)
            case "contains":
                self.node(value, base)
                minimum = _integer(schema, "minContains")
                maximum = _integer(schema, "maxContains")
                return ArrayNode(min_contains=1 if minimum is None else minimum, max_contains=maximum)
        return None

    def _items(self, value: Any, schema: dict[str, Any], base: str) -> Node:
        if isinstance(value, list):  # 2019-09
            node = ArrayNode(items=[self.node(item, base) for item in value])
            additional = schema.get("additionalItems", True)
        else:
            node, additional = ArrayNode(), value
        rest = self.node(additional, base)
        if isinstance(rest, FalseNode):
            node.additional_allowed = False
        elif not isinstance(rest, TrueNode):
            if schema.get("prefixItems") or isinstance(value, list):
                node.additional = rest
            else:
                node.all_items = rest
        return node


def _join(parts: list[Node], part: Node) -> list[Node]:
    if len(parts) == 1:
        only = parts[0]
        if _several_types(only) and _has_type(only, part):
            assert isinstance(only, CombinedNode)
            only.parts = _accumulate(only.parts, part)
            return [only]
        if _several_types(part) and _has_type(part, only):
            assert isinstance(part, CombinedNode)
            part.parts = _accumulate(part.parts, only)
            return [part]
    for single in _flat(part):
        parts = _accumulate(parts, single)
    return parts


def _several_types(node: Node) -> bool:
    return isinstance(node, CombinedNode) and node.generated and node.criterion == "anyOf"


def _has_type(several: Node, node: Node) -> bool:
    return isinstance(several, CombinedNode) and any(type(part) is type(node) for part in several.parts)


def _flat(node: Node) -> list[Node]:
    if isinstance(node, CombinedNode) and node.generated and node.criterion == "allOf":
        return list(node.parts)
    return [node]


def _accumulate(parts: list[Node], part: Node) -> list[Node]:
    if isinstance(part, MELTING):
        for present in parts:
            if type(present) is type(part):
                merge(present, part)
                return parts
    return [*parts, part]


# Values of keywords


def _enum(schema: dict[str, Any]) -> EnumNode:
    return EnumNode(values={dumps(_sorted(value)) for value in _array(schema, "enum")})


def _string(schema: dict[str, Any]) -> StringNode:
    return StringNode(
        min_length=_integer(schema, "minLength"),
        max_length=_integer(schema, "maxLength"),
        pattern=_optional_text(schema, "pattern"),
    )


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _wrong(word: str, expected: str, value: Any) -> InvalidSchema:
    return InvalidSchema(f"{word}: expected {expected}, found {dumps(value)}")


def _text(schema: dict[str, Any], word: str) -> str:
    if not isinstance(schema[word], str):
        raise _wrong(word, "a string", schema[word])
    return str(schema[word])


def _optional_text(schema: dict[str, Any], word: str) -> str | None:
    return _text(schema, word) if word in schema else None


def _array(schema: dict[str, Any], word: str) -> list[Any]:
    if not isinstance(schema[word], list):
        raise _wrong(word, "an array", schema[word])
    return list(schema[word])


def _texts(schema: dict[str, Any], word: str) -> set[str]:
    values = _array(schema, word) if word in schema else []
    for value in values:
        if not isinstance(value, str):
            raise _wrong(word, "an array of strings", schema[word])
    return set(values)


def _mapping(schema: dict[str, Any], word: str) -> dict[str, Any]:
    value = schema.get(word, {})
    if not isinstance(value, dict):
        raise _wrong(word, "an object", value)
    return value


def _integer(schema: dict[str, Any], word: str) -> int | None:
    value = schema.get(word)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise _wrong(word, "an integer", value)
    return int(value)


def _number(schema: dict[str, Any], word: str) -> float | None:
    value = schema.get(word)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise _wrong(word, "a number", value)
    return value


def _boolean(schema: dict[str, Any], word: str) -> bool:
    value = schema.get(word, False)
    if not isinstance(value, bool):
        raise _wrong(word, "a boolean", value)
    return value
