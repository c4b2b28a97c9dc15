"""Tags in Avro schemas: the property `confluent:tags` of records and fields. A path is the full name of a
record, and the name of a field behind it; the namespace may be left out."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from millstream.schemas.avro_model import AvroType
from millstream.schemas.json_text import dumps, loads
from millstream.schemas.tag_entities import TAGS, Entity, EntityTags, TagChange


def tagged(root: AvroType, seen: set[str] | None = None) -> Iterator[EntityTags]:
    seen = set() if seen is None else seen
    if root.type == "union":
        for branch in root.branches:
            yield from tagged(branch, seen)
    elif root.type in ("array", "map"):
        yield from tagged(root.inner, seen)
    elif root.type == "record" and root.full_name not in seen:
        seen.add(root.full_name)
        yield from _tags(root.properties, Entity(root.full_name, True))
        for one in root.fields:
            yield from _tags(one.properties, Entity(f"{root.full_name}.{one.name}", False))
            yield from tagged(one.type, seen)


def _tags(properties: dict[str, Any], entity: Entity) -> Iterator[EntityTags]:
    tags = properties.get(TAGS)
    if isinstance(tags, list) and tags:
        yield EntityTags(entity, tuple(dict.fromkeys(str(tag) for tag in tags)))


def changed(text: str, changes: Iterable[TagChange]) -> str:
    """A canonical text with other tags."""
    document = loads(text)
    for change in changes:
        found = _find(document, change.entity)
        old = found.get(TAGS)
        tags = change.applied(str(tag) for tag in old) if isinstance(old, list) else change.applied(())
        if tags:
            found[TAGS] = tags
        else:
            found.pop(TAGS, None)
    return dumps(document)


def _find(document: Any, entity: Entity) -> dict[str, Any]:
    *names, last = entity.words
    field_name = None if entity.is_record else last
    if field_name is not None:
        if not names:
            raise entity.missing()
        *names, last = names
    namespace = ".".join(names)
    pending: deque[tuple[Any, str | None]] = deque([(document, None)])
    while pending:
        node, inherited = pending.popleft()
        if isinstance(node, list):  # a union
            pending.extend((branch, inherited) for branch in node)
            continue
        if not isinstance(node, dict):
            continue
        here = node.get("namespace", inherited)
        if node.get("type") in ("record", "error"):
            if node.get("name") == last and namespace in ("", here):
                if field_name is None:
                    return node
                for one in node["fields"]:
                    if one["name"] == field_name:
                        found: dict[str, Any] = one
                        return found
            pending.extend((one["type"], here) for one in node["fields"])
        else:
            pending.extend((node[name], here) for name in ("items", "values", "type") if name in node)
    raise entity.missing()
