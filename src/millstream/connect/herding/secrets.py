"""Secrets have no place in traces: a connector's error may quote what it was given."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.connect.config.config_def import ConfigDef
from millstream.settings.redaction import HIDDEN, hide_url_passwords, is_secret
from millstream.settings.values import Type

_SHORTEST = 4
"""A shorter secret would hide half of every text, and is none."""


def secrets_of(given: Mapping[str, str], resolved: Mapping[str, str], config: ConfigDef) -> list[str]:
    """Values of settings that are passwords, by type or by name, and whatever came from a config provider."""
    found = set()
    for name, value in resolved.items():
        key = config.keys.get(name)
        is_password = key is not None and key.type is Type.PASSWORD
        if (is_password or is_secret(name) or given.get(name) != value) and len(value) >= _SHORTEST:
            found.add(value)
    return sorted(found, key=len, reverse=True)


def hidden(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return hide_url_passwords(text)
