"""What a tag is on: a record or a field, found by a path through its schema."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from millstream.schemas.schema import InvalidSchema

TAGS = "confluent:tags"


class Entity(NamedTuple):
    path: str
    is_record: bool  # or a field

    @property
    def words(self) -> list[str]:
        return self.path.removeprefix(".").split(".")

    def missing(self) -> InvalidSchema:
        return InvalidSchema(f"No matching path '{self.path}' found in the schema")


class EntityTags(NamedTuple):
    entity: Entity
    tags: tuple[str, ...]


class TagChange(NamedTuple):
    """What to add to the tags of an entity, and then to remove from them."""

    entity: Entity
    add: tuple[str, ...]
    remove: tuple[str, ...]

    def applied(self, tags: Iterable[str]) -> list[str]:
        return [tag for tag in dict.fromkeys((*tags, *self.add)) if tag not in self.remove]


def changes_of(add: Iterable[EntityTags], remove: Iterable[EntityTags]) -> Iterator[TagChange]:
    """One for each entity, in the order in which they are first named."""
    added: dict[Entity, tuple[str, ...]] = {}
    removed: dict[Entity, tuple[str, ...]] = {}
    for entity, tags in add:
        added[entity] = (*added.get(entity, ()), *tags)
    for entity, tags in remove:
        removed[entity] = (*removed.get(entity, ()), *tags)
    for entity in dict.fromkeys((*added, *removed)):
        yield TagChange(entity, added.get(entity, ()), removed.get(entity, ()))
