"""Names in schemas: split at the last dot, and made legal where a language is stricter than Connect."""

from __future__ import annotations

import re
from urllib.parse import quote_plus

_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OTHER = re.compile(r"[^A-Za-z0-9_]")


def scrubbed(name: str) -> str:
    """As `scrub.invalid.names` has it: percent-encoded, then every other character an underscore."""
    if not name or _LEGAL.match(name):
        return name
    encoded = quote_plus(name, safe="*")
    if encoded[0].isdigit():
        encoded = f"x{encoded}"
    return _OTHER.sub("_", encoded)


def split_name(full_name: str, *, scrub: bool) -> tuple[str, str]:
    """Namespace (empty where there is none) and name."""
    parts = full_name.split(".")
    if scrub:
        parts = [scrubbed(part) for part in parts]
    return ".".join(parts[:-1]), parts[-1]
