"""Which subjects a list is about: by prefix, or by a pattern with * and ?."""

import re
from collections.abc import Callable

import re2
from fastapi import Request

from millstream.registry import contexts


def subject_filter(request: Request, *, default: str) -> Callable[[str], bool]:
    """By subjectPrefix, or by `default` where none is given: `:*:` means all contexts, an empty text the
    default one."""
    prefix = request.query_params.get("subjectPrefix", default)
    pattern = request.query_params.get("pattern")
    if pattern is None:
        return lambda subject: contexts.matches_prefix(subject, prefix)
    text = "".join({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in pattern)
    compiled = re2.compile(f"(?s){text}")
    return lambda subject: (
        contexts.matches_prefix(subject, prefix) and compiled.fullmatch(subject) is not None
    )
