"""Whether JSON that was valid for one schema is valid for another: Confluent's rules.

Every difference has a name; those in COMPATIBLE do no harm. What may be added to an object or a tuple and
what may be taken away depends on how open the other side is: open (anything more is allowed), closed (nothing
more), or partially open (more, of a given schema).

Where schemas are combined, each part of one side is compared with each of the other, and a matching is sought
in which every part of the smaller side has a compatible partner of its own.

Schemas may be recursive. While a pair is being compared, the same pair inside of it is taken to be
compatible. That can turn out wrong; then the comparison is done again with that knowledge, until it does not
change any more.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millstream.patterns import InvalidPattern, compile_pattern
from millstream.schemas.json_differences import COMPATIBLE, LENIENT, describe
from millstream.schemas.json_model import (
    MISSING,
    ArrayNode,
    CombinedNode,
    ConstNode,
    EmptyNode,
    EnumNode,
    FalseNode,
    Node,
    NotNode,
    NumberNode,
    ObjectNode,
    ReferenceNode,
    StringNode,
)
from millstream.schemas.schema import InvalidSchema

Difference = tuple[str, str]  # name, path from the pair that was compared
MAX_REPORTED = 100  # differences
MAX_COMPARISONS = 500_000  # two schemas that need more than this are refused, not waited for


def problems(old: Node, new: Node, *, lenient: bool = False) -> list[str]:
    known_bad: dict[tuple[int, int], list[Difference]] = {}
    while True:
        comparison = _Comparison(LENIENT if lenient else COMPATIBLE, known_bad)
        try:
            differences = comparison.compare(old, new)
        except RecursionError:
            raise InvalidSchema("nested too deeply to be compared with another version") from None
        bad = comparison.incompatible_pairs()
        if not comparison.assumed or bad.keys() == known_bad.keys():
            break
        known_bad = bad
    allowed = LENIENT if lenient else COMPATIBLE
    return [describe(name, f"#{path or '/'}") for name, path in differences if name not in allowed]


def _at(path: str, differences: list[Difference]) -> list[Difference]:
    return [(name, f"/{path}{rest}") for name, rest in differences]


class _Comparison:
    def __init__(self, allowed: frozenset[str], known_bad: dict[tuple[int, int], list[Difference]]) -> None:
        self._allowed = allowed
        self._known_bad = known_bad
        self._done: dict[tuple[int, int], list[Difference]] = {}
        self._open: set[tuple[int, int]] = set()
        self._alive: list[Node] = []  # so that no node's id is used again
        self.assumed = False
        self._count = 0

    def incompatible_pairs(self) -> dict[tuple[int, int], list[Difference]]:
        return {pair: found for pair, found in self._done.items() if not self._fine(found)}

    def _fine(self, differences: list[Difference]) -> bool:
        return all(name in self._allowed for name, _ in differences)

    def compare(self, old: Node | None, new: Node | None) -> list[Difference]:
        self._count += 1
        if self._count > MAX_COMPARISONS:
            raise InvalidSchema("too complex to be compared with another version")
        if old is None or new is None:
            if old is new:
                return []
            return [("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED", "")]
        old, new = _followed(old), _followed(new)
        pair = (id(old), id(new))
        if pair in self._done:
            return self._done[pair]
        if pair in self._open:
            if pair in self._known_bad:
                return self._known_bad[pair]
            self.assumed = True
            return []
        self._open.add(pair)
        self._alive += (old, new)
        found = self._pair(old, new)
        # Only incompatible differences are reported, and for one path no more than anyone would
        # read: lists of lists grow fast.
        found = [one for one in found if one[0] not in self._allowed][:MAX_REPORTED]
        self._open.discard(pair)
        self._done[pair] = found
        return found

    def _pair(self, old: Node, new: Node) -> list[Difference]:
        combined = self._one_side_combined(old, new)
        if combined is not None:
            return combined
        if type(old) is not type(new):
            if isinstance(old, FalseNode) or isinstance(new, EmptyNode):
                return []
            if old.connect_type == new.connect_type == "bytes":
                return []
            return [("TYPE_CHANGED", "")]
        found: list[Difference] = []
        if old.id != new.id:
            found.append(("ID_CHANGED", ""))
        if old.title != new.title:
            found.append(("TITLE_CHANGED", ""))
        if old.description != new.description:
            found.append(("DESCRIPTION_CHANGED", ""))
        if _plain(old.default) != _plain(new.default):
            found.append(("DEFAULT_CHANGED", ""))
        compare = COMPARISONS.get(type(old))
        return found + compare(self, old, new) if compare else found

    def _one_side_combined(self, old: Node, new: Node) -> list[Difference] | None:
        """A plain schema against a combined one: one part that fits is enough. None where that does not
        decide."""
        if isinstance(new, CombinedNode) and not isinstance(old, CombinedNode):
            one = len(new.parts) == 1
            pairs = [(old, part) for part in new.parts] if one or new.criterion != "allOf" else []
            decided = "SUM_TYPE_EXTENDED"
        elif isinstance(old, CombinedNode) and not isinstance(new, CombinedNode):
            one = len(old.parts) == 1
            pairs = [(part, new) for part in old.parts] if one or old.criterion == "allOf" else []
            decided = "PRODUCT_TYPE_NARROWED"
        else:
            return None
        for before, after in pairs:
            found = self.compare(before, after)
            if self._fine(found):
                return found if one else [*found, (decided, "")]
        return None

    def _string(self, old: StringNode, new: StringNode) -> list[Difference]:
        found = _limit("maxLength", "MAX_LENGTH", old.max_length, new.max_length)
        found += _limit("minLength", "MIN_LENGTH", old.min_length, new.min_length)
        if old.pattern != new.pattern:
            change = "ADDED" if old.pattern is None else "REMOVED" if new.pattern is None else "CHANGED"
            found.append((f"PATTERN_{change}", "/pattern"))
        return found

    def _number(self, old: NumberNode, new: NumberNode) -> list[Difference]:
        found = _limit("maximum", "MAXIMUM", old.maximum, new.maximum)
        found += _limit("minimum", "MINIMUM", old.minimum, new.minimum)
        found += _limit("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", old.exclusive_maximum, new.exclusive_maximum)
        found += _limit("exclusiveMinimum", "EXCLUSIVE_MINIMUM", old.exclusive_minimum, new.exclusive_minimum)
        found += _multiple_of(old.multiple_of, new.multiple_of)
        if old.integer != new.integer:
            found.append(("TYPE_EXTENDED" if old.integer else "TYPE_NARROWED", ""))
        return found

    def _const(self, old: ConstNode, new: ConstNode) -> list[Difference]:
        return [] if old.value == new.value else [("ENUM_ARRAY_CHANGED", "/const")]

    def _enum(self, old: EnumNode, new: EnumNode) -> list[Difference]:
        return _sets("ENUM_ARRAY", "/enum", old.values, new.values)

    def _not(self, old: NotNode, new: NotNode) -> list[Difference]:
        # What is forbidden may only become less.
        less = self._fine(self.compare(new.inner, old.inner))
        return [("NOT_TYPE_NARROWED" if less else "NOT_TYPE_EXTENDED", "/not")]

    # Combined schemas

    def _combined(self, old: CombinedNode, new: CombinedNode) -> list[Difference]:
        found: list[Difference] = []
        if old.criterion != new.criterion:
            one_old, one_new = len(old.parts) == 1, len(new.parts) == 1
            if not (
                new.criterion == "anyOf"
                or (one_old and one_new)
                or (one_old and new.criterion == "oneOf")
                or (one_new and old.criterion == "allOf")
            ):
                return [("COMBINED_TYPE_CHANGED", "")]
            found.append(("COMBINED_TYPE_EXTENDED", ""))
        before, after = _distinct(old.parts), _distinct(new.parts)
        if len(before) < len(after):
            extended = "PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED"
            found.append((extended, ""))
        elif len(before) > len(after):
            narrowed = "PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED"
            found.append((narrowed, ""))
        fits: list[dict[int, list[Difference]]] = []
        for index, part in enumerate(before):
            compatible = {}
            for other_index, other in enumerate(after):
                differences = self.compare(part, other)
                if self._fine(differences):
                    compatible[other_index] = _at(f"{old.criterion}/{index}", differences)
            fits.append(compatible)
        matching = _matching(fits)
        for other_index, index in matching.items():
            found += fits[index][other_index]
        if len(matching) < min(len(before), len(after)):
            found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
        return found

    # Objects

    def _object(self, old: ObjectNode, new: ObjectNode) -> list[Difference]:
        found: list[Difference] = []
        for name in old.properties:
            if name in new.properties:
                found += _required(name, old, new)
        for name in sorted(old.properties.keys() | new.properties.keys()):
            found += _at(f"properties/{name}", self._property(name, old, new))
        found += self._dependencies(old, new)
        found += _at("additionalProperties", self._additional("ADDITIONAL_PROPERTIES", old, new))
        found += _at("unevaluatedProperties", self._unevaluated("UNEVALUATED_PROPERTIES", old, new))
        found += _limit("maxProperties", "MAX_PROPERTIES", old.max_properties, new.max_properties)
        found += _limit("minProperties", "MIN_PROPERTIES", old.min_properties, new.min_properties)
        return found

    def _property(self, name: str, old: ObjectNode, new: ObjectNode) -> list[Difference]:
        before, after = old.properties.get(name), new.properties.get(name)
        if before is not None and after is not None:
            return self.compare(before, after)
        if after is None:
            assert before is not None
            return self._gone("PROPERTY", before, new, _covering(new, name))
        if _open_model(old):
            if isinstance(after, EmptyNode):
                return [("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
            return [(f"{_necessity(name, after, new)}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        found: list[Difference] = []
        cover = _covering(old, name)
        if cover is not None:
            found = self.compare(cover, after)
            covered = "IS" if self._fine(found) else "NOT"
            found = [*found, (f"PROPERTY_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        return [*found, (f"{_necessity(name, after, new)}_ADDED_TO_UNOPEN_CONTENT_MODEL", "")]

    def _gone(
        self, what: str, before: Node, new: ObjectNode | ArrayNode, cover: Node | None
    ) -> list[Difference]:
        if _open_model(new):
            return [(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
        if cover is not None:
            found = self.compare(before, cover)
            covered = "IS" if self._fine(found) else "NOT"
            return [*found, (f"{what}_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        if isinstance(before, FalseNode):
            return [(f"{what}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
        return [(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]

    def _dependencies(self, old: ObjectNode, new: ObjectNode) -> list[Difference]:
        found: list[Difference] = []
        for name in sorted(old.dependent_required.keys() | new.dependent_required.keys()):
            path = f"/dependencies/{name}"
            if name not in new.dependent_required:
                found.append(("DEPENDENCY_ARRAY_REMOVED", path))
            elif name not in old.dependent_required:
                found.append(("DEPENDENCY_ARRAY_ADDED", path))
            else:
                found += _sets(
                    "DEPENDENCY_ARRAY", path, old.dependent_required[name], new.dependent_required[name]
                )
        for name in sorted(old.dependent_schemas.keys() | new.dependent_schemas.keys()):
            path = f"/dependencies/{name}"
            if name not in new.dependent_schemas:
                found.append(("DEPENDENCY_SCHEMA_REMOVED", path))
            elif name not in old.dependent_schemas:
                found.append(("DEPENDENCY_SCHEMA_ADDED", path))
            else:
                found += _at(
                    f"dependencies/{name}",
                    self.compare(old.dependent_schemas[name], new.dependent_schemas[name]),
                )
        return found

    def _additional(
        self, keyword: str, old: ObjectNode | ArrayNode, new: ObjectNode | ArrayNode
    ) -> list[Difference]:
        if old.additional_allowed != new.additional_allowed:
            return [(f"{keyword}_ADDED" if new.additional_allowed else f"{keyword}_REMOVED", "")]
        if old.additional is None and new.additional is not None:
            return [(f"{keyword}_NARROWED", "")]
        if new.additional is None and old.additional is not None:
            return [(f"{keyword}_EXTENDED", "")]
        return self.compare(old.additional, new.additional)

    def _unevaluated(
        self, keyword: str, old: ObjectNode | ArrayNode, new: ObjectNode | ArrayNode
    ) -> list[Difference]:
        before, after = old.unevaluated, new.unevaluated
        if before is None and after is None:
            return []
        was_closed, is_closed = isinstance(before, FalseNode), isinstance(after, FalseNode)
        if before is None:
            return [(f"{keyword}_REMOVED" if is_closed else f"{keyword}_NARROWED", "")]
        if after is None:
            return [(f"{keyword}_ADDED" if was_closed else f"{keyword}_EXTENDED", "")]
        if was_closed != is_closed:
            return [(f"{keyword}_ADDED" if was_closed else f"{keyword}_REMOVED", "")]
        was_open, is_open = isinstance(before, EmptyNode), isinstance(after, EmptyNode)
        if was_open != is_open:
            return [(f"{keyword}_NARROWED" if was_open else f"{keyword}_EXTENDED", "")]
        return self.compare(before, after)

    # Arrays

    def _array(self, old: ArrayNode, new: ArrayNode) -> list[Difference]:
        found = _at("items", self.compare(old.all_items, new.all_items))
        before, after = old.items or [], new.items or []
        for index in range(max(len(before), len(after))):
            if index >= len(after):
                differences = self._gone("ITEM", before[index], new, _covering(new, ""))
            elif index >= len(before):
                differences = self._item_added(after[index], old)
            else:
                differences = self.compare(before[index], after[index])
            found += _at(f"items/{index}", differences)
        found += _at("additionalItems", self._additional("ADDITIONAL_ITEMS", old, new))
        found += _at("unevaluatedItems", self._unevaluated("UNEVALUATED_ITEMS", old, new))
        found += _limit("maxItems", "MAX_ITEMS", old.max_items, new.max_items)
        found += _limit("minItems", "MIN_ITEMS", old.min_items, new.min_items)
        if old.unique != new.unique:
            found.append(("UNIQUE_ITEMS_REMOVED" if old.unique else "UNIQUE_ITEMS_ADDED", "/uniqueItems"))
        found += _limit("maxContains", "MAX_CONTAINS", old.max_contains, new.max_contains)
        found += _limit("minContains", "MIN_CONTAINS", old.min_contains, new.min_contains)
        return found

    def _item_added(self, after: Node, old: ArrayNode) -> list[Difference]:
        if _open_model(old):
            empty = "_WITH_EMPTY_SCHEMA" if isinstance(after, EmptyNode) else ""
            return [(f"ITEM{empty}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        cover = _covering(old, "")
        if cover is None:
            return [("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "")]
        found = self.compare(cover, after)
        covered = "IS" if self._fine(found) else "NOT"
        return [*found, (f"ITEM_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]


COMPARISONS: dict[type[Node], Callable[[_Comparison, Any, Any], list[Difference]]] = {
    StringNode: _Comparison._string,
    NumberNode: _Comparison._number,
    ConstNode: _Comparison._const,
    EnumNode: _Comparison._enum,
    NotNode: _Comparison._not,
    CombinedNode: _Comparison._combined,
    ObjectNode: _Comparison._object,
    ArrayNode: _Comparison._array,
}


def _followed(node: Node) -> Node:
    for _ in range(100):
        if not isinstance(node, ReferenceNode) or node.target is None:
            break
        node = node.target
    return node


def _plain(value: Any) -> Any:
    return None if value is MISSING else value


def _limit(path: str, keyword: str, old: float | None, new: float | None) -> list[Difference]:
    if old is None and new is None:
        return []
    if old is None or new is None:
        return [(f"{keyword}_ADDED" if old is None else f"{keyword}_REMOVED", f"/{path}")]
    if old == new:
        return []
    return [(f"{keyword}_INCREASED" if old < new else f"{keyword}_DECREASED", f"/{path}")]


def _multiple_of(old: float | None, new: float | None) -> list[Difference]:
    if old is None or new is None:
        return _limit("multipleOf", "MULTIPLE_OF", old, new)
    before, after = Decimal(str(old)), Decimal(str(new))
    if before == after:
        return []
    if before and after % before == 0:
        return [("MULTIPLE_OF_EXPANDED", "/multipleOf")]
    if after and before % after == 0:
        return [("MULTIPLE_OF_REDUCED", "/multipleOf")]
    return [("MULTIPLE_OF_CHANGED", "/multipleOf")]


def _sets(keyword: str, path: str, old: set[str], new: set[str]) -> list[Difference]:
    if old == new:
        return []
    if old <= new:
        return [(f"{keyword}_EXTENDED", path)]
    return [(f"{keyword}_NARROWED" if new <= old else f"{keyword}_CHANGED", path)]


def _required(name: str, old: ObjectNode, new: ObjectNode) -> list[Difference]:
    was, now = name in old.required, name in new.required
    if was == now:
        return []
    if was:
        return [("REQUIRED_ATTRIBUTE_REMOVED", f"/required/{name}")]
    default = "_WITH_DEFAULT" if new.properties[name].has_default else ""
    return [(f"REQUIRED_ATTRIBUTE{default}_ADDED", f"/required/{name}")]


def _necessity(name: str, node: Node, owner: ObjectNode) -> str:
    if name not in owner.required:
        return "OPTIONAL_PROPERTY"
    return "REQUIRED_PROPERTY_WITH_DEFAULT" if node.has_default else "REQUIRED_PROPERTY"


def _open_model(node: ObjectNode | ArrayNode) -> bool:
    """Whether anything may be present beside what the schema names."""
    if not node.additional_allowed or node.additional is not None:
        return False
    if isinstance(node, ObjectNode) and node.patterns:
        return False
    return node.unevaluated is None or isinstance(node.unevaluated, EmptyNode)


def _covering(node: ObjectNode | ArrayNode, name: str) -> Node | None:
    """The schema that something not named in a partially open model must satisfy."""
    if isinstance(node, ObjectNode):
        for pattern, schema in node.patterns.items():
            if _matches(pattern, name):
                return schema
    if node.additional is not None:
        return node.additional
    if node.additional_allowed and not isinstance(node.unevaluated, FalseNode | EmptyNode):
        return node.unevaluated
    return None


def _matches(pattern: str, name: str) -> bool:
    """One that RE2 does not know matches nothing."""
    try:
        return compile_pattern(pattern).search(name) is not None
    except InvalidPattern:
        return False


def _distinct(parts: list[Node]) -> list[Node]:
    seen: dict[str, Node] = {}
    for part in parts:
        seen.setdefault(part.key if part.key is not None else f"\0{id(part)}", part)
    return list(seen.values())


def _matching(fits: list[dict[int, list[Difference]]]) -> dict[int, int]:
    """As many pairs as possible, no part in two of them: augmenting paths. Maps a part of the new side to one
    of the old."""
    partner: dict[int, int] = {}

    def assign(index: int, tried: set[int]) -> bool:
        for other in fits[index]:
            if other not in tried:
                tried.add(other)
                if other not in partner or assign(partner[other], tried):
                    partner[other] = index
                    return True
        return False

    for index in range(len(fits)):
        assign(index, set())
    return partner
