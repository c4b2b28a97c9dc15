"""Subjects and contexts.

A context is a registry inside the registry: subjects and ids of its own. A subject of another context than
the default one is written `:.context:subject`; `:.context:` alone means the context itself (for its config
and mode). `.` is the default context. `.__GLOBAL` stands for what applies to all contexts. `:*:` in a search
means every context.
"""

from typing import NamedTuple

DEFAULT = "."
GLOBAL = ".__GLOBAL"
ANY = "*"


class Subject(NamedTuple):
    context: str
    name: str

    @property
    def qualified(self) -> str:
        """As it is stored: without the default context."""
        return self.prefix + self.name

    @property
    def prefix(self) -> str:
        return "" if self.context == DEFAULT else f":{self.context}:"


def parse(text: str) -> Subject:
    if text.startswith(":.") or text.startswith(":*:"):
        context, _, name = text[1:].partition(":")
        return Subject(context or DEFAULT, name)
    return Subject(DEFAULT, text)


def normalize(text: str) -> str:
    return parse(text).qualified


def context_of(subject: str) -> str:
    return parse(subject).context


def within(subject: str, parent: str) -> str:
    """A subject named by a schema of subject `parent`: of the same context, unless it names its own."""
    if subject.startswith(":."):
        return normalize(subject)
    return parse(parent).prefix + subject


def with_dot(context: str) -> str:
    """A context's name as it is used in URLs, with or without `:` and the leading dot."""
    bare = context.strip(":")
    return bare if bare.startswith(".") else f".{bare}"


def is_valid(text: str, *, settings: bool = False, empty: bool = True) -> bool:
    """Whether a subject may be written to; `settings` for its config and mode, `empty` if it may be empty or
    `*`."""
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text):
        return False
    subject = parse(text)
    if subject.name in ("__GLOBAL", "__EMPTY") or subject.context == ANY:
        return False
    if not empty and subject.name in ("", ANY):
        return False
    return settings or subject.context != GLOBAL


def matches_prefix(subject: str, prefix: str) -> bool:
    wanted, found = parse(prefix), parse(subject)
    if wanted.context not in (ANY, found.context):
        return False
    return found.name.startswith(wanted.name)
