"""Everything that the topic says, in memory, with the indexes that requests need.

Only `apply` changes it, one record after the other in the order of the topic, so every instance that has read
as far has the same state. A record that makes no sense is left out and counted, never an end of the registry:
the topic may hold what a newer registry wrote.
"""

import json
import logging
from bisect import insort
from collections.abc import Iterator

from millstream.registry import contexts
from millstream.registry.associations.state import AssociationState
from millstream.registry.schema_records import Content, Json, Version
from millstream.schemas import TYPES

log = logging.getLogger(__name__)

SubjectVersion = tuple[str, int]
ContextId = tuple[str, int]


class State:
    def __init__(self) -> None:
        self.versions: dict[str, dict[int, Version]] = {}
        self.order: dict[str, list[int]] = {}  # version numbers, ascending
        self.configs: dict[str | None, Json] = {}
        self.modes: dict[str | None, str] = {}
        self.contexts: dict[str, None] = {}  # without the default one
        self.highest_ids: dict[str, int] = {}
        self.associations = AssociationState()
        self._users: dict[ContextId, dict[SubjectVersion, None]] = {}  # who has that id
        self._ids: dict[str, dict[tuple[str, bytes], int]] = {}  # context -> schema -> id
        self._referrers: dict[SubjectVersion, dict[SubjectVersion, None]] = {}
        self.left_out = 0
        self.changes = 0  # grows with every record

    # Questions

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        """A version; -1 is the latest. Soft-deleted ones only with `deleted`."""
        found = self.versions.get(subject)
        if not found:
            return None
        if number == -1:
            for one in reversed(self.order[subject]):
                if deleted or not found[one].deleted:
                    return found[one]
            return None
        one_version = found.get(number)
        return one_version if one_version and (deleted or not one_version.deleted) else None

    def all_versions(self, subject: str, *, deleted: bool = False) -> Iterator[Version]:
        found = self.versions.get(subject, {})
        for number in self.order.get(subject, ()):
            if deleted or not found[number].deleted:
                yield found[number]

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        """Whether the subject, or for a bare context any subject in it, has versions."""
        parsed = contexts.parse(subject)
        if not parsed.name and parsed.context != contexts.DEFAULT:
            return any(
                next(self.all_versions(name, deleted=deleted), None) is not None
                for name in self.versions
                if contexts.context_of(name) == parsed.context
            )
        return next(self.all_versions(subject, deleted=deleted), None) is not None

    def id_of(self, context: str, content: Content) -> int | None:
        """The id of a schema in a context, if it has one there."""
        return self._ids.get(context, {}).get(_identity(content))

    def ids_of(self, digest: bytes) -> list[ContextId]:
        """The ids that a schema has, context by context."""
        return [
            (context, ids[(schema_type, digest)])
            for context, ids in sorted(self._ids.items())
            for schema_type in TYPES
            if (schema_type, digest) in ids
        ]

    def users(self, context: str, schema_id: int) -> list[Version]:
        """All versions with that id."""
        return [
            self.versions[subject][number] for subject, number in self._users.get((context, schema_id), ())
        ]

    def content(self, context: str, schema_id: int, subject: str | None = None) -> Version | None:
        """A version with that id, of that subject if one is given; one that is not deleted, if there is
        one."""
        users = self.users(context, schema_id)
        if subject is not None:
            # Newest first.
            users = [one for one in reversed(users) if one.subject == subject]
        return next((one for one in users if not one.deleted), users[0] if users else None)

    def referrers(self, subject: str, version: int, *, deleted: bool) -> list[Version]:
        found = (self.versions[name][number] for name, number in self._referrers.get((subject, version), ()))
        return [one for one in found if deleted or not one.deleted]

    @property
    def schema_count(self) -> int:
        return len(self._users)

    def next_id(self, context: str) -> int:
        return self.highest_ids.get(context, 0) + 1

    # Changes

    def apply(self, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        self.changes += 1
        try:
            parsed_key = json.loads(key or b"")
            parsed_value = json.loads(value) if value is not None else None
            self._apply(parsed_key, parsed_value, timestamp)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.left_out += 1
            log.warning(
                "a record of the topic is not understood and left out: %r (%s)", (key or b"")[:200], error
            )

    def _apply(self, key: Json, value: Json | None, timestamp: int) -> None:
        subject = key.get("subject")
        match key["keytype"]:
            case "SCHEMA":
                number = int(key["version"])
                if value is None:
                    self._remove(str(subject), number)
                else:
                    self._put(Version.from_value(value, timestamp))
            case "CONFIG":
                if value is None:
                    self.configs.pop(subject, None)
                else:
                    self.configs[subject] = {name: one for name, one in value.items() if name != "subject"}
            case "MODE":
                if value is None:
                    self.modes.pop(subject, None)
                else:
                    self.modes[subject] = str(value["mode"])
            case "DELETE_SUBJECT":
                if value is not None:
                    for one in self.versions.get(str(subject), {}).values():
                        if one.version <= int(value["version"]):
                            one.deleted = True
            case "CONTEXT":
                if value is None:
                    self.contexts.pop(key["context"], None)
                else:
                    self.contexts[str(key["context"])] = None
            case "ASSOC":
                self.associations.apply(key, value, timestamp)
            case "NOOP":
                for context, highest in ((value or {}).get("highestIds") or {}).items():
                    self._used(str(context), int(highest))
            case "CLEAR_SUBJECT":
                pass  # the versions are gone by their own records; there is no cache to clear
            case other:
                self.left_out += 1
                log.info("a record of kind %s is left out", other)

    def _put(self, new: Version) -> None:
        subject = new.subject
        context = contexts.context_of(subject)
        versions = self.versions.setdefault(subject, {})
        if new.version in versions:
            self._forget(versions[new.version])
        else:
            insort(self.order.setdefault(subject, []), new.version)
        versions[new.version] = new
        subject_version = (subject, new.version)
        self._users.setdefault((context, new.id), {})[subject_version] = None
        self._ids.setdefault(context, {})[_identity(new.content)] = new.id
        for target in self._targets(new):
            self._referrers.setdefault(target, {})[subject_version] = None
        self._used(context, new.id)
        if context != contexts.DEFAULT:
            self.contexts.setdefault(context, None)

    def _remove(self, subject: str, number: int) -> None:
        versions = self.versions.get(subject, {})
        if number not in versions:
            return
        self._forget(versions.pop(number))
        self.order[subject].remove(number)
        if not versions:
            del self.versions[subject], self.order[subject]

    def _forget(self, old: Version) -> None:
        """Take a version out of the indexes."""
        context = contexts.context_of(old.subject)
        subject_version = (old.subject, old.version)
        users = self._users.get((context, old.id), {})
        users.pop(subject_version, None)
        if not users:
            self._users.pop((context, old.id), None)
            ids = self._ids.get(context, {})
            if ids.get(_identity(old.content)) == old.id:
                del ids[_identity(old.content)]
        for target in self._targets(old):
            self._referrers.get(target, {}).pop(subject_version, None)

    def _targets(self, version: Version) -> list[SubjectVersion]:
        return [
            (contexts.within(reference.subject, version.subject), reference.version)
            for reference in version.content.references
        ]

    def _used(self, context: str, schema_id: int) -> None:
        if schema_id > self.highest_ids.get(context, 0):
            self.highest_ids[context] = schema_id


def _identity(content: Content) -> tuple[str, bytes]:
    return content.schema_type, content.digest
