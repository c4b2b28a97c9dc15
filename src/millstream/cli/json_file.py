"""The JSON files of Kafka's tools, with their fields checked and Kafka's words for what is wrong:
`{"version": 1, "partitions": [{"topic": "orders", "partition": 0, ...}, ...]}`.
"""

import json
from collections.abc import Mapping
from typing import Any

from millstream.cli.errors import CommandFailed


def versioned(text: str) -> dict[str, Any]:
    """The object that the file holds, which is of version 1."""
    try:
        content = json.loads(text)
    except ValueError:
        raise CommandFailed("The input string is not a valid JSON") from None
    if not isinstance(content, dict):
        raise CommandFailed("The input string is not a JSON object")
    if content.get("version", 1) != 1:
        raise CommandFailed(f"Not supported version field value {content['version']}")
    return content


def field(entry: Any, name: str, expected: type) -> Any:
    if not isinstance(entry, Mapping) or name not in entry:
        raise CommandFailed(f"No such field exists: `{name}`")
    return checked(entry[name], name, expected)


def number(entry: Any, name: str, smallest: int, largest: int) -> int:
    found: int = field(entry, name, int)
    if not smallest <= found <= largest:
        raise CommandFailed(f"Field `{name}` is out of range: {found}")
    return found


def checked(value: Any, name: str, expected: type) -> Any:
    if not isinstance(value, expected) or isinstance(value, bool):
        raise CommandFailed(f"Field `{name}` must be a {'string' if expected is str else 'whole number'}")
    return value
