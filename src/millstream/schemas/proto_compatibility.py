"""Whether messages written with one .proto file can be read with another: Confluent's rules over protobuf's
wire format.

Messages are compared by name, fields by number wherever in the message they stand. Numbers of one wire type
exchange (int32, int64, uint32, uint64, bool, enums), so do string and bytes. A field may become part of a
oneof of its own; fields that were independent may not become exclusive. A member of a oneof may not vanish
unless its whole oneof does. Types from other files are compared when the two sides do not use the same
version of the same subject.
"""

from dataclasses import dataclass, field

from millstream.schemas.proto_model import (
    SCALARS,
    Enum,
    Field,
    Message,
    Named,
    Names,
    OneOf,
    ProtoFile,
    map_types,
)
from millstream.schemas.schema import Reference

SCALAR_GROUPS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "signed"),
    **dict.fromkeys(("string", "bytes"), "text"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
DESCRIPTIONS = {
    "PACKAGE_CHANGED": "the package in the %s schema is not the package in the %s schema",
    "MESSAGE_REMOVED": "the %s schema lacks the message '{path}' of the %s schema",
    "FIELD_KIND_CHANGED": (
        "the field '{path}' in the %s schema is of another kind (scalar, message, map) than in the %s schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "the type of the field '{path}' in the %s schema is written differently from that in the %s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "the message type of the field '{path}' in the %s schema does not fit that in the %s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "the label of the numeric field '{path}' in the %s schema is not that in the %s schema"
    ),
    "REQUIRED_FIELD_ADDED": "the required field '{path}' in the %s schema is not in the %s schema",
    "REQUIRED_FIELD_REMOVED": "the %s schema lacks the required field '{path}' of the %s schema",
    "ONEOF_FIELD_REMOVED": "the %s schema lacks the oneof's field '{path}' of the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "fields of the oneof '{path}' in the %s schema were independent in the %s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "a field of the oneof '{path}' in the %s schema was outside of it in the %s schema"
    ),
}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two schemas: its file, all names in its reach, and where each imported file comes from."""

    file: ProtoFile
    names: Names
    references: dict[str, Reference]

    def origin(self, named: Named) -> tuple[str, int] | None:
        """Subject and version of the file that a type is from; None for the files that everyone has."""
        if not named.file:
            return ("", -1)
        reference = self.references.get(named.file)
        return (reference.subject, reference.version) if reference else None


def problems(old: Side, new: Side) -> list[str]:
    comparison = _Comparison(old, new)
    comparison.files()
    return [
        f'{{errorType:"{name}", description:"{DESCRIPTIONS[name].format(path=path.replace("%", "%%"))}"}}'
        for name, path in comparison.found
    ]


@dataclass(slots=True)
class _Scope:
    """Where in the two schemas a comparison stands; names are looked up from here, and paths start here."""

    old: str
    new: str
    path: str

    def inside(self, name: str) -> "_Scope":
        return _Scope(_join(self.old, name), _join(self.new, name), f"{self.path}/{name}")


@dataclass(slots=True)
class _Members:
    """A message's fields by number, and the oneof that each is part of."""

    fields: dict[int, Field] = field(default_factory=dict)
    oneof_of: dict[int, str] = field(default_factory=dict)
    oneofs: dict[str, OneOf] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Message) -> "_Members":
        members = cls({one.tag: one for one in message.fields})
        for oneof in message.oneofs:
            members.oneofs[oneof.name] = oneof
            for one in oneof.fields:
                members.fields[one.tag] = one
                members.oneof_of[one.tag] = oneof.name
        return members


class _Comparison:
    def __init__(self, old: Side, new: Side) -> None:
        self.old = old
        self.new = new
        self.found: list[tuple[str, str]] = []
        self._inside: set[int] = set()

    def _add(self, difference: str, path: str) -> None:
        self.found.append((difference, f"#{path}" if path else "#/"))

    def files(self) -> None:
        old, new = self.old.file, self.new.file
        if old.package != new.package:
            self._add("PACKAGE_CHANGED", "")
        self._types(old.types, new.types, _Scope(old.package or "", new.package or "", ""))

    def _types(self, old: list[Message | Enum], new: list[Message | Enum], scope: _Scope) -> None:
        # Enums may change freely: an unknown number is kept by readers.
        after = {message.name: message for message in new if isinstance(message, Message)}
        for message in old:
            if not isinstance(message, Message):
                continue
            if message.name in after:
                self._messages(message, after[message.name], scope.inside(message.name))
            elif not message.is_map_entry:
                self._add("MESSAGE_REMOVED", f"{scope.path}/{message.name}")

    def _messages(self, old: Message, new: Message, scope: _Scope) -> None:
        if id(old) not in self._inside:
            self._inside.add(id(old))
            self._fields(_Members.of(old), _Members.of(new), scope)
            self._types(old.types, new.types, scope)
            self._inside.discard(id(old))
        else:
            self._types(old.types, new.types, scope)

    def _fields(self, old: _Members, new: _Members, scope: _Scope) -> None:
        gone = {
            name
            for name, oneof in old.oneofs.items()
            if name not in new.oneofs and not any(one.tag in new.fields for one in oneof.fields)
        }
        for oneof in new.oneofs.values():
            self._exclusive(oneof, old, scope)
        for tag in sorted(old.fields.keys() | new.fields.keys()):
            before, after = old.fields.get(tag), new.fields.get(tag)
            was_in, is_in = old.oneof_of.get(tag), new.oneof_of.get(tag)
            if after is None:
                assert before is not None
                if was_in is not None:
                    if was_in not in gone:
                        self._add("ONEOF_FIELD_REMOVED", f"{scope.path}/{was_in}/{tag}")
                elif before.label == "required":
                    self._add("REQUIRED_FIELD_REMOVED", f"{scope.path}/{tag}")
            elif before is None:
                if is_in is None and after.label == "required":
                    self._add("REQUIRED_FIELD_ADDED", f"{scope.path}/{tag}")
            else:
                path = f"{scope.path}/{is_in}/{tag}" if is_in else f"{scope.path}/{tag}"
                self._field_types(before.label, after.label, before.type, after.type, scope, path)

    def _exclusive(self, oneof: OneOf, old: _Members, scope: _Scope) -> None:
        """Fields that could be set together before must not be members of one oneof now."""
        groups = set()
        moved = 0
        for one in oneof.fields:
            if one.tag in old.oneof_of:
                groups.add(old.oneof_of[one.tag])
            elif one.tag in old.fields:
                groups.add(str(one.tag))
                moved += 1
        if len(groups) > 1:
            difference = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            self._add(difference, f"{scope.path}/{oneof.name}")

    def _field_types(
        self, was: str | None, now: str | None, old: str, new: str, scope: _Scope, path: str
    ) -> None:
        old_group, old_named = _group(old, self.old.names, scope.old)
        new_group, new_named = _group(new, self.new.names, scope.new)
        old_map, new_map = _as_map(old, old_named), _as_map(new, new_named)
        if old_map and new_map:
            for one, other in zip(old_map, new_map, strict=True):
                self._field_types(None, None, one, other, scope, path)
        elif old_map or new_map or (old_group == "message") != (new_group == "message"):
            self._add("FIELD_KIND_CHANGED", path)
        elif old_group == "message":
            self._message_types(old, new, old_named, new_named, path)
        elif old_group != new_group:
            self._add("FIELD_SCALAR_KIND_CHANGED", path)
        elif was and now and was != now and old_group != "text":
            self._add("FIELD_NUMERIC_LABEL_CHANGED", path)

    def _message_types(
        self, old: str, new: str, old_named: Named | None, new_named: Named | None, path: str
    ) -> None:
        if old_named is None or new_named is None:
            if old != new:
                self._add("FIELD_NAMED_TYPE_CHANGED", path)
            return
        if old_named.local_name != new_named.local_name:
            self._add("FIELD_NAMED_TYPE_CHANGED", path)
            return
        old_origin, new_origin = self.old.origin(old_named), self.new.origin(new_named)
        if (old_origin is not None and old_origin == new_origin) or old_named.type is new_named.type:
            return
        before = len(self.found)
        assert isinstance(old_named.type, Message) and isinstance(new_named.type, Message)
        scope = _Scope(old_named.full_name, new_named.full_name, "/" + old_named.local_name.replace(".", "/"))
        self._messages(old_named.type, new_named.type, scope)
        if len(self.found) > before:
            self._add("FIELD_NAMED_TYPE_CHANGED", path)


def _group(name: str, names: Names, scope: str) -> tuple[str, Named | None]:
    if name in SCALARS:
        return SCALAR_GROUPS[name], None
    named = names.resolve(name, scope)
    if named is not None and isinstance(named.type, Enum):
        return "number", named
    return "message", named


def _as_map(name: str, named: Named | None) -> tuple[str, str] | None:
    if named is not None and isinstance(named.type, Message) and named.type.is_map_entry:
        return map_types(named.type.map_type)
    return map_types(name)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
