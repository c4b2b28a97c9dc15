"""The seven compatibility levels: in which direction a new schema is held against which earlier ones."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from millstream.schemas import ParsedSchema

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
LONGEST_QUOTE = 10 * 1024


class Earlier(NamedTuple):
    """A version to compare with; parsed when it is its turn."""

    version: int
    schema: Callable[[], ParsedSchema]


def problems(
    level: str, new: ParsedSchema, history: Sequence[Earlier], *, lenient: bool = False
) -> list[str]:
    """Why a schema may not follow those in `history` (oldest first); empty if it may."""
    if level == "NONE" or not history:
        return []
    against: Iterable[Earlier] = reversed(history) if level.endswith("_TRANSITIVE") else history[-1:]
    for earlier in against:
        found = _compare(level.removesuffix("_TRANSITIVE"), new, earlier, lenient)
        if found:
            return found
    return []


def _compare(direction: str, new: ParsedSchema, earlier: Earlier, lenient: bool) -> list[str]:
    old = earlier.schema()
    if old.schema_type != new.schema_type:
        return ["Incompatible because of different schema type"]
    found: list[str] = []
    if direction in ("FORWARD", "FULL"):
        found += _named(_problems(old, new, lenient), "old", "new")
    if direction in ("BACKWARD", "FULL"):
        found += _named(_problems(new, old, lenient), "new", "old")
    if found:
        text = old.canonical
        if len(text) > LONGEST_QUOTE:
            text = f"{text[:LONGEST_QUOTE]}..."
        found += [f"{{oldSchemaVersion: {earlier.version}}}", f"{{oldSchema: '{text}'}}"]
    return found


def _problems(reader: ParsedSchema, writer: ParsedSchema, lenient: bool) -> list[str]:
    from millstream.schemas.json_schema import JsonSchema

    if isinstance(reader, JsonSchema):
        return reader.problems_reading(writer, lenient=lenient)
    return reader.problems_reading(writer)


def _named(messages: list[str], reader: str, writer: str) -> list[str]:
    named = []
    for message in messages:
        wanted = message.replace("%%", "").count("%s")
        named.append(message % (reader, writer)[:wanted])
    return named
