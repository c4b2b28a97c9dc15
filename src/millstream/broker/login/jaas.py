"""JAAS text, as far as Kafka's own login modules use it: one module, a flag, options, a semicolon."""

from __future__ import annotations

import re

_OPTION = re.compile(
    r"([A-Za-z_][\w.\-]*)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))", re.DOTALL
)
_HEAD = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The login module's class and its options. ValueError for text of another form; never with the text in
    it."""
    head = _HEAD.match(text)
    if head is None:
        raise ValueError('Expected: LOGIN_MODULE required NAME="VALUE" ... ;')
    rest = text[head.end() :].strip()
    if not rest.endswith(";"):
        raise ValueError("The text must end with a semicolon")
    rest = rest[:-1]
    options = {}
    at = 0
    while rest[at:].strip():
        at += len(rest[at:]) - len(rest[at:].lstrip())
        found = _OPTION.match(rest, at)
        if found is None:
            raise ValueError(f'Expected NAME="VALUE" at character {head.end() + at}')
        quoted = found[2] if found[2] is not None else found[3]
        options[found[1]] = found[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = found.end()
    return head[1], options


def plain_users(text: str) -> dict[str, str]:
    """The users of PlainLoginModule, with their passwords."""
    _, options = parse_jaas(text)
    return {name.removeprefix("user_"): value for name, value in options.items() if name.startswith("user_")}
