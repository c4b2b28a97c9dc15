"""`sasl.kerberos.principal.to.local.rules`: from a Kerberos principal to a user name.

A principal is `primary[/instance]@REALM`. Rules are tried in order:

    DEFAULT                                the primary, for principals of the default realm
    RULE:[n:text](pattern)s/from/to/g/L    for principals of n parts: `text`, with $0 for the realm and $1, $2
                                           for the parts, has to match `pattern` as a whole; then `from` is
                                           replaced, once or (g) everywhere; L or U changes the case

(pattern), s/from/to/g and the case may be left out. Patterns are RE2's: linear in the length of a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from millstream.settings.values import InvalidSetting

SETTING = "sasl.kerberos.principal.to.local.rules"

_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?(?:@([^/@]*))?")
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:\[(?P<parts>\d+):(?P<text>[^\]]*)\]"
    r"(?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?)\s*"
)
_NOT_SIMPLE = re.compile(r"[/@]")
_REFERENCE = re.compile(r"\$(\d)")  # to a part of the name, or to a group of the pattern


class NoRuleApplies(Exception):
    """Who this is cannot be said."""


class Principal(NamedTuple):
    primary: str
    instance: str | None
    realm: str | None


def parse_principal(text: str) -> Principal:
    """ValueError for text of another form."""
    found = _PRINCIPAL.fullmatch(text)
    if found is None or not found[1]:
        raise ValueError(f"{text!r} is not a Kerberos principal")
    return Principal(found[1], found[2], found[3])


class _Rule(NamedTuple):
    parts: int  # 0 for DEFAULT
    text: str
    pattern: Any
    replaced: Any
    by: str
    everywhere: bool
    case: str

    def apply(self, principal: Principal, default_realm: str) -> str | None:
        if not self.parts:
            return principal.primary if principal.realm == default_realm else None
        values = [principal.realm or "", principal.primary]
        if principal.instance is not None:
            values.append(principal.instance)
        if len(values) - 1 != self.parts:
            return None
        base = _filled(self.text, values)
        if self.pattern is not None and self.pattern.fullmatch(base) is None:
            return None
        name = base
        if self.replaced is not None:
            name = self.replaced.sub(self.by, base, count=0 if self.everywhere else 1)
        if _NOT_SIMPLE.search(name):
            raise NoRuleApplies(f"a rule of {SETTING} makes {name!r} of {base!r}, which is no simple name")
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class KerberosNames:
    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """InvalidSetting for rules that cannot be read."""
        self._realm = default_realm
        self._rules = [_parse(rule) for rule in rules or ("DEFAULT",)]

    def user(self, text: str) -> str:
        """NoRuleApplies, or ValueError for what is no principal."""
        principal = parse_principal(text)
        if principal.instance is None and principal.realm is None:
            return principal.primary
        for rule in self._rules:
            found = rule.apply(principal, self._realm)
            if found is not None:
                return found
        raise NoRuleApplies(f"no rule of {SETTING} fits {text!r}")


def _parse(rule: str) -> _Rule:
    found = _RULE.fullmatch(rule)
    if found is None:
        raise InvalidSetting(SETTING, rule, f"Not a rule: {rule!r}")
    if found["default"]:
        return _Rule(0, "", None, None, "", False, "")
    pattern = None if found["pattern"] is None else _compiled(rule, found["pattern"])
    replaced = None if found["from"] is None else _compiled(rule, found["from"])
    for number in _REFERENCE.findall(found["to"] or ""):
        if replaced is not None and int(number) > replaced.groups:
            raise InvalidSetting(SETTING, rule, f"${number} names a group that {found['from']!r} has not")
    return _Rule(
        int(found["parts"]),
        found["text"],
        pattern,
        replaced,
        _REFERENCE.sub(r"\\\1", (found["to"] or "").replace("\\", "\\\\")),
        bool(found["all"]),
        found["case"] or "",
    )


def _compiled(rule: str, pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        raise InvalidSetting(SETTING, rule, f"RE2 cannot use the pattern {pattern!r}") from None


def _filled(text: str, values: Sequence[str]) -> str:
    def value(found: re.Match[str]) -> str:
        number = int(found[1])
        if number >= len(values):
            raise NoRuleApplies(f"a rule of {SETTING} names part {number}, and there are {len(values) - 1}")
        return values[number]

    return _REFERENCE.sub(value, text)
