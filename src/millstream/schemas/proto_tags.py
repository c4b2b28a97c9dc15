"""Tags in Protobuf schemas: the options `confluent.message_meta` and `confluent.field_meta`. A path has
the names of messages, without the package, and that of a field, before which that of its oneof may be."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from millstream.schemas.proto_model import Enum, Field, Message, Option, ProtoFile, Word
from millstream.schemas.proto_parser import parse_file
from millstream.schemas.proto_printer import canonical_text
from millstream.schemas.schema import InvalidSchema
from millstream.schemas.tag_entities import Entity, EntityTags, TagChange

MESSAGE_META = "confluent.message_meta"
FIELD_META = "confluent.field_meta"
TAGS = "tags"


def tagged(file: ProtoFile) -> Iterator[EntityTags]:
    yield from _in_types(file.types, "")


def _in_types(types: Sequence[Message | Enum], scope: str) -> Iterator[EntityTags]:
    for message in types:
        if not isinstance(message, Message):
            continue
        path = scope + message.name
        yield from _tags(_merged(message.options, MESSAGE_META), Entity(path, True))
        for one in (*(one for oneof in message.oneofs for one in oneof.fields), *message.fields):
            yield from _tags(_merged(one.options, FIELD_META), Entity(f"{path}.{one.name}", False))
        yield from _in_types(message.types, f"{path}.")


def _tags(meta: dict[str, Any], entity: Entity) -> Iterator[EntityTags]:
    tags = _texts(meta.get(TAGS))
    if tags:
        yield EntityTags(entity, tuple(dict.fromkeys(tags)))


def changed(text: str, changes: Iterable[TagChange]) -> str:
    """A canonical text with other tags. The options that they are in are written as one."""
    file = parse_file(text)
    for change in changes:
        words = change.entity.words
        if change.entity.is_record:
            _change(_message(file, words).options, MESSAGE_META, change)
        else:
            _change(_field(file, words).options, FIELD_META, change)
    return canonical_text(file)


def _change(options: list[Option], name: str, change: TagChange) -> None:
    meta = _merged(options, name)
    tags = change.applied(_texts(meta.get(TAGS)))
    if tags:
        meta[TAGS] = tags
    else:
        meta.pop(TAGS, None)
    indexes = [index for index, option in enumerate(options) if _is(option, name)]
    at = indexes[0] if indexes else len(options)
    for index in reversed(indexes):
        del options[index]
    if meta:
        options.insert(at, Option(name, meta, True))


def _is(option: Option, name: str) -> bool:
    return option.parenthesized and option.name.removeprefix(".") == name


def _merged(options: Sequence[Option], name: str) -> dict[str, Any]:
    """`(name).tags = "a", (name).tags = "b"` means `(name) = {tags: ["a", "b"]}`."""
    made: dict[str, Any] = {}
    for option in options:
        value = _as_map(option.value) if _is(option, name) else None
        for key, item in value.items() if isinstance(value, dict) else ():
            if key in made:
                made[key] = [*_list(made[key]), *(one for one in _list(item) if one not in _list(made[key]))]
            else:
                made[key] = item
    return made


def _as_map(value: Any) -> Any:
    return {value.name: _as_map(value.value)} if isinstance(value, Option) else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    return [one.text if isinstance(one, Word) else str(one) for one in _list(value)]


def _message(file: ProtoFile, words: Sequence[str]) -> Message:
    types: Sequence[Message | Enum] = file.types
    found: Message | None = None
    for word in words:
        found = next((one for one in types if isinstance(one, Message) and one.name == word), None)
        if found is None:
            raise InvalidSchema(f"No matching Message with name '{word}' found in the schema")
        types = found.types
    assert found is not None
    return found


def _field(file: ProtoFile, words: Sequence[str]) -> Field:
    *names, last = words
    oneof_name = None
    fields: list[Field] = []
    if names:
        try:
            message = _message(file, names)
        except InvalidSchema:
            if len(names) == 1:
                raise InvalidSchema(f"No matching Field with name '{last}' found in the schema") from None
            *names, oneof_name = names
            message = _message(file, names)
        fields = [one for oneof in message.oneofs if oneof_name in (None, oneof.name) for one in oneof.fields]
        if oneof_name is None:
            fields = [*message.fields, *fields]
    found = next((one for one in fields if one.name == last), None)
    if found is None:
        raise InvalidSchema(f"No matching Field with name '{last}' found in the schema")
    return found
