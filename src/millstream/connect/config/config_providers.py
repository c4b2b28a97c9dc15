"""Config providers: `${file:/path:key}`, `${dir:/path:name}` and `${env:NAME}` in a setting.

They are resolved where a task runs and nowhere else: what is stored, shown and logged keeps the reference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from millstream.connect.config.config_def import ConfigError
from millstream.settings.properties import read_properties

_REFERENCE = re.compile(r"\$\{([^}:]+):(?:([^}]*?):)?([^}]+)\}")
NAMES = {
    "file": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "dir": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "env": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


def providers_of(worker: Mapping[str, str]) -> dict[str, str]:
    """Which provider each name selects: `config.providers` of a worker, by their class names."""
    kinds = {full: kind for kind, full in NAMES.items()}
    found = {}
    for alias in filter(None, (name.strip() for name in worker.get("config.providers", "").split(","))):
        class_name = worker.get(f"config.providers.{alias}.class", "")
        if class_name not in kinds:
            raise ConfigError(f"config.providers.{alias}.class: there is no provider {class_name!r} here")
        found[alias] = kinds[class_name]
    return found


def resolve(settings: Mapping[str, str], providers: Mapping[str, str]) -> dict[str, str]:
    """The settings with what they refer to. Names of no provider stay as they are, as in Kafka."""

    def value(reference: re.Match[str]) -> str:
        alias, path, key = reference.groups()
        kind = providers.get(alias)
        return reference.group(0) if kind is None else _look_up(kind, path or "", key)

    return {name: _REFERENCE.sub(value, text) for name, text in settings.items()}


def _look_up(kind: str, path: str, key: str) -> str:
    if kind == "env":
        if key not in os.environ:
            raise ConfigError(f"there is no environment variable {key}")
        return os.environ[key]
    try:
        if kind == "file":
            return read_properties(path)[key]
        with open(os.path.join(path, os.path.basename(key)), encoding="utf-8") as file:
            return file.read()
    except KeyError:
        raise ConfigError(f"{path} has no {key}") from None
    except OSError as error:
        what = "properties from file" if kind == "file" else "file"
        raise ConfigError(f"Could not read {what} {path}: {error.strerror}") from None
