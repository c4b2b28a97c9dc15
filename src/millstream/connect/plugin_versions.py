"""Versions that a configuration pins (KIP-891): one version, or Maven's range, `[1.0,2.0)`.

There is one version of each plugin here, so a pin either admits it or not.
"""

from __future__ import annotations

import re

from millstream.connect.config.config_def import ConfigError

_RANGE = re.compile(r"([\[(])([^,\])]*)(?:(,)([^\])]*))?([\])])")


def check_version(plugin: str, wanted: str | None, available: str) -> None:
    """Raises ConfigError where the version that is there is not among those that are wanted."""
    if not wanted or not wanted.strip():
        return
    text = wanted.strip()
    if text[0] not in "[(":
        text = f"[{text}]"
    ranges = list(_RANGE.finditer(text))
    if _RANGE.sub("", text).strip(" ,"):
        raise ConfigError(f"Invalid version range for {plugin}: {wanted}")
    if not any(_admits(one, available) for one in ranges):
        shown = ",".join(_shown(one) for one in ranges)
        raise ConfigError(
            f"Plugin {plugin} not found that matches the version range {shown}, available versions: "
            f"[{available}]"
        )


def _admits(one: re.Match[str], version: str) -> bool:
    opening, low, comma, high, closing = one.groups()
    found = _comparable(version)
    if comma is None:
        return found == _comparable(low)
    above = not low.strip() or found > _comparable(low) or (opening == "[" and found == _comparable(low))
    below = not high.strip() or found < _comparable(high) or (closing == "]" and found == _comparable(high))
    return above and below


def _shown(one: re.Match[str]) -> str:
    opening, low, comma, high, closing = one.groups()
    return f"{opening}{low.strip()},{(low if comma is None else high).strip()}{closing}"


def _comparable(version: str) -> list[tuple[int, int, str]]:
    """`1.0` and `1` are one version; a qualifier (`1.0-rc1`) comes before the release, except `Final`."""
    parts: list[tuple[int, int, str]] = []
    for part in re.split(r"[.\-]", version.strip()):
        if part.isdigit():
            parts.append((1, int(part), ""))
        elif part.lower() not in ("final", "ga", ""):
            parts.append((-1, 0, part.lower()))
    while parts and parts[-1] == (1, 0, ""):
        parts.pop()
    return [*parts, (0, 0, "")]
