"""What is not shown of messages, by rule.

    # topics     part                  how
    payments*    value.card            last4
    *            value.**.password     hide
    users        key                   hash
    *            header.authorization  hide

Topics are matched with * and ?. A part is `key`, `value` or `header.NAME`, for key and value with the path of
a field: names separated by dots, * for any name, ** for any number of names; lists are walked through. `hide`
shows dots, `last4` leaves the last four characters, `hash` shows the same short code for the same content, so
that values can be distinguished.

A rule for a field hides the whole key or value if that has no fields (text, binary junk, a schema that is not
found): what cannot be looked into cannot be partly shown.
"""

import fnmatch
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.console.json_tree import (
    JsonArray,
    JsonNode,
    JsonObject,
    JsonScalar,
    member_name,
    parse_tree,
    tree_text,
)

DOTS = "\u2022\u2022\u2022\u2022"
WAYS = ("hide", "last4", "hash")
NULL = JsonScalar("null")


@dataclass(frozen=True, slots=True)
class FieldRule:
    path: tuple[str, ...]
    how: str


@dataclass(slots=True)
class TopicMasks:
    """The rules for one topic. False if there are none."""

    key: list[FieldRule] = field(default_factory=list)
    value: list[FieldRule] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    secret: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.key or self.value or self.headers)

    def structured(self, rules: Sequence[FieldRule], text: str) -> str | None:
        """A JSON text with the rules applied, in one line; None where it has no fields or cannot be looked
        into, so that nothing but `opaque` helps."""
        try:
            found = parse_tree(text)
        except ValueError:
            return None
        if isinstance(found, JsonScalar):
            return None
        for rule in rules:
            found = self._walk(found, rule.path, rule.how) if rule.path else self._covered(found, rule.how)
        return tree_text(found)

    def opaque(self, rules: Sequence[FieldRule], data: bytes) -> str | None:
        """The stand-in for bytes that have no fields; None if no rule concerns them."""
        if not rules:
            return None
        whole = next((rule for rule in rules if not rule.path), None)
        return self.cover(data, whole.how) if whole is not None else DOTS

    def header(self, name: str, value: bytes | None) -> str | None:
        how = self.headers.get(name.lower()) or self.headers.get("*")
        return None if how is None or value is None else self.cover(value, how)

    def cover(self, content: str | bytes, how: str) -> str:
        if isinstance(content, bytes):
            text, data = content.decode("utf-8", "replace"), content
        else:
            text, data = content, content.encode("utf-8", "surrogatepass")
        if how == "last4":
            return DOTS + text[-4:] if len(text) > 8 else DOTS
        if how == "hash":
            return "#" + hmac.new(self.secret, data, hashlib.sha256).hexdigest()[:12]
        return DOTS

    def _covered(self, found: JsonNode, how: str) -> JsonNode:
        if found == NULL:
            return found
        text = found.text if isinstance(found, JsonScalar) else tree_text(found)
        return JsonScalar(json.dumps(self.cover(text, how), ensure_ascii=False))

    def _walk(self, found: JsonNode, path: tuple[str, ...], how: str) -> JsonNode:
        if not path:
            return self._covered(found, how)
        if isinstance(found, JsonArray):
            return JsonArray([self._walk(item, path, how) for item in found.items])
        if not isinstance(found, JsonObject):
            return found
        step, rest = path[0], path[1:]
        if step == "**":
            deeper = JsonObject([(name, self._walk(item, path, how)) for name, item in found.members])
            return self._walk(deeper, rest, how)
        return JsonObject(
            [
                (name, self._walk(item, rest, how) if step in ("*", member_name(name)) else item)
                for name, item in found.members
            ]
        )


class Masks:
    """All rules. `text` is the file they come from; ValueError says which line is wrong."""

    def __init__(self, text: str = "", secret: bytes = b"") -> None:
        self.text = text
        self.secret = secret
        self._rules: list[tuple[str, str, str]] = []
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            part = words[1].partition(".")[0] if len(words) == 3 else ""
            named = part != "header" or words[1] != "header"
            if part not in ("key", "value", "header") or words[2] not in WAYS or not named:
                raise ValueError(
                    f"masking rules, line {number}: expected `topics part how`, for example `payments* "
                    f"value.card last4`"
                )
            self._rules.append((words[0], words[1], words[2]))

    def of(self, topic: str) -> TopicMasks:
        found = TopicMasks(secret=self.secret)
        for pattern, part, how in self._rules:
            if not fnmatch.fnmatchcase(topic, pattern):
                continue
            component, _, path = part.partition(".")
            if component == "header":
                found.headers[path.lower()] = how
            else:
                rule = FieldRule(tuple(path.split(".")) if path else (), how)
                (found.key if component == "key" else found.value).append(rule)
        return found
