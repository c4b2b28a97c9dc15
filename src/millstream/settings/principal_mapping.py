"""`ssl.principal.mapping.rules`: from a certificate's distinguished name to a user name.

Rules are separated by commas and tried in order: `RULE:pattern/replacement/` with an optional L or U behind
it for lower or upper case, or DEFAULT, which takes the name as it is. A pattern must match the whole name;
then all its matches in the name are replaced, as Java's `replaceAll` does. `$1` in the replacement is the
first group; a group that the pattern does not have is left as text. Patterns are RE2's: linear in the length
of the name, without look-around and back references.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from millstream.settings.values import InvalidSetting

SETTING = "ssl.principal.mapping.rules"
MAX_PATTERN = 4096

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,\s*|$)"
)
_REFERENCE = re.compile(r"\\(.)|\$(\d)(\d*)|([^\\$]+)|(.)", re.DOTALL)


class NoRuleMatches(ValueError):
    """No rule knows this name: who it is cannot be said."""


class _Rule(NamedTuple):
    pattern: Any  # None for DEFAULT
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found: str = self.pattern.sub(self._replaced, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _replaced(self, match: Any) -> str:
        return "".join(
            part if isinstance(part, str) else match.group(part) or "" for part in self.replacement
        )


class PrincipalMapping:
    def __init__(self, text: str) -> None:
        """InvalidSetting for rules that cannot be read."""
        self._rules = tuple(_parse(text))

    def user(self, distinguished_name: str) -> str:
        for rule in self._rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoRuleMatches(f"no rule of {SETTING} fits {distinguished_name!r}")


def _parse(text: str) -> list[_Rule]:
    text = text.strip() or "DEFAULT"
    rules = []
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise InvalidSetting(SETTING, text, f"Cannot be read from {text[at : at + 40]!r} on")
        at = found.end()
        if found["default"]:
            rules.append(_Rule(None, (), ""))
        else:
            pattern = _compiled(text, found["pattern"])
            rules.append(_Rule(pattern, _template(found["replacement"], pattern.groups), found["case"]))
    return rules


def _compiled(text: str, pattern: str) -> Any:
    import re2

    if len(pattern) > MAX_PATTERN:
        raise InvalidSetting(SETTING, text, f"A pattern is longer than {MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern.replace("\\/", "/"), options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidSetting(SETTING, text, f"RE2 cannot use the pattern {pattern!r}: {reason}") from None


def _template(replacement: str, groups: int) -> tuple[str | int, ...]:
    """A replacement as texts and numbers of groups. Of `$12`, Java takes as many digits as make a group that
    there is."""
    parts: list[str | int] = []
    for escaped, digit, more, plain, other in _REFERENCE.findall(replacement):
        if digit:
            number = int(digit)
            if number > groups:
                parts.append(f"${digit}{more}")
                continue
            rest = more
            while rest and number * 10 + int(rest[0]) <= groups:
                number, rest = number * 10 + int(rest[0]), rest[1:]
            parts += [number, rest]
        else:
            parts.append(escaped or plain or other)
    return tuple(part for part in parts if part != "")
