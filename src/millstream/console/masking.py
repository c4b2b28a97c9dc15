"""What is not shown of messages, by rule.

    # topics     part                  how
    payments*    value.card            last4
    *            value.**.password     hide
    users        key                   hash
    *            header.authorization  hide

Topics are matched with * and ?. A part is `key`, `value` or `header.NAME`, for key and value with the path of
a field: names separated by dots, * for any name, ** for any number of names; lists are walked through. `hide`
shows dots, `last4` leaves the last four characters, `hash` shows the same short code for the same content, so
that values can be told apart.

A rule for a field hides the whole key or value if that has no fields (text, binary junk, a schema that is not
found): what cannot be looked into cannot be partly shown.
"""

import fnmatch
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.serdes import to_json

DOTS = "\u2022\u2022\u2022\u2022"
WAYS = ("hide", "last4", "hash")


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

    def structured(self, rules: Sequence[FieldRule], found: Any) -> Any:
        """`found` (dicts, lists, plain values) with the rules applied to a copy."""
        for rule in rules:
            found = self._walk(found, rule.path, rule.how) if rule.path else self.cover(found, rule.how)
        return found

    def opaque(self, rules: Sequence[FieldRule], data: bytes) -> str | None:
        """The stand-in for bytes that have no fields; None if no rule concerns them."""
        if not rules:
            return None
        whole = next((rule for rule in rules if not rule.path), None)
        return self.cover(data, whole.how) if whole is not None else DOTS

    def header(self, name: str, value: bytes | None) -> str | None:
        how = self.headers.get(name.lower()) or self.headers.get("*")
        return None if how is None or value is None else self.cover(value, how)

    def cover(self, content: Any, how: str) -> str:
        if isinstance(content, bytes):
            text, data = content.decode("utf-8", "replace"), content
        else:
            text = content if isinstance(content, str) else to_json(content)
            data = text.encode("utf-8", "surrogatepass")
        if how == "last4":
            return DOTS + text[-4:] if len(text) > 8 else DOTS
        if how == "hash":
            return "#" + hmac.new(self.secret, data, hashlib.sha256).hexdigest()[:12]
        return DOTS

    def _walk(self, found: Any, path: tuple[str, ...], how: str) -> Any:
        if not path:
            return None if found is None else self.cover(found, how)
        if isinstance(found, list | tuple):
            return [self._walk(item, path, how) for item in found]
        if not isinstance(found, dict):
            return found
        step, rest = path[0], path[1:]
        if step == "**":
            deeper = {name: self._walk(item, path, how) for name, item in found.items()}
            return self._walk(deeper, rest, how)
        return {
            name: self._walk(item, rest, how) if step in ("*", str(name)) else item
            for name, item in found.items()
        }


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
            kind, _, path = part.partition(".")
            if kind == "header":
                found.headers[path.lower()] = how
            else:
                rule = FieldRule(tuple(path.split(".")) if path else (), how)
                (found.key if kind == "key" else found.value).append(rule)
        return found


def parse_json(data: bytes) -> Any:
    """The JSON object or list in `data`; ValueError if it is none. Numbers and plain text do not count."""
    if data[:1].strip() and data[:1] not in (b"{", b"["):
        raise ValueError("not an object or a list")
    found = json.loads(data)
    if not isinstance(found, dict | list):
        raise ValueError("not an object or a list")
    return found
