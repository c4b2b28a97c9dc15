"""A JSON text as a tree whose leaves are still text: what masking walks through.

Members keep their order and may share a name, so that a rule hides each of them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from millstream.serdes.json_text import lexemes

MAX_DEPTH = 250  # the rules are applied by recursion


@dataclass(frozen=True, slots=True)
class JsonScalar:
    """A string, number, true, false or null, as it is written."""

    raw: str

    @property
    def text(self) -> str:
        """What it says: a string without its quotes and escapes."""
        return str(json.loads(self.raw)) if self.raw.startswith('"') else self.raw


@dataclass(frozen=True, slots=True)
class JsonArray:
    items: list["JsonNode"]


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Members as (name as it is written, value)."""

    members: list[tuple[str, "JsonNode"]]


JsonNode = JsonScalar | JsonArray | JsonObject


def parse_tree(text: str) -> JsonNode:
    """The tree of a text that has been checked. ValueError if it is nested too deeply."""
    found = lexemes(text)
    return _node(next(found), found, MAX_DEPTH)


def _node(lexeme: str, rest: Iterator[str], depth: int) -> JsonNode:
    if lexeme not in ("{", "["):
        return JsonScalar(lexeme)
    if depth == 0:
        raise ValueError("nested too deeply")
    if lexeme == "[":
        items: list[JsonNode] = []
        for lexeme in rest:
            if lexeme == "]":
                break
            if lexeme != ",":
                items.append(_node(lexeme, rest, depth - 1))
        return JsonArray(items)
    members: list[tuple[str, JsonNode]] = []
    for lexeme in rest:
        if lexeme == "}":
            break
        if lexeme != ",":
            next(rest)  # the colon
            members.append((lexeme, _node(next(rest), rest, depth - 1)))
    return JsonObject(members)


def tree_text(node: JsonNode) -> str:
    """One line."""
    match node:
        case JsonScalar(raw):
            return raw
        case JsonArray(items):
            return "[" + ", ".join(map(tree_text, items)) + "]"
        case JsonObject(members):
            return "{" + ", ".join(f"{name}: {tree_text(value)}" for name, value in members) + "}"


def member_name(raw: str) -> str:
    return str(json.loads(raw))
