"""What a change of the registry writes into the topic. Decided from the state alone; nothing here does
I/O."""

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from millstream.registry import compatibility_levels, contexts, errors, schema_records
from millstream.registry.associations import errors as association_errors
from millstream.registry.associations.model import STRONG
from millstream.registry.associations.state import AssociationFilter
from millstream.registry.queries import (
    IMPORTING,
    Queries,
    merge_rules,
    merged_content,
    version_property,
    with_version_property,
)
from millstream.registry.requests import SchemaRequest, TagsRequest
from millstream.registry.schema_records import Content, Json, Version
from millstream.schemas import InvalidSchema, ParsedSchema
from millstream.schemas.tags import tagged_entities

READ_ONLY = ("READONLY", "READONLY_OVERRIDE")
RESERVED = "confluent:reserved"
MAX_ID = 2**31 - 1  # four bytes in front of a message


@dataclass(slots=True)
class Change:
    """Records to write (possibly none), and what to answer."""

    answer: object
    entries: list[tuple[bytes, bytes | None]] = field(default_factory=list)


# Changes that are decided one after the other, each when the one before is part of the state. The last one
# has the answer.
Steps = Generator[Change, None, None]


class Commands:
    def __init__(self, queries: Queries, *, mode_changes: bool = True) -> None:
        self._queries = queries
        self._state = queries.state
        self._mode_changes = mode_changes

    # Registering

    def register(
        self, subject: str, request: SchemaRequest, *, normalize: bool = False, force: bool = False
    ) -> Change:
        queries, state = self._queries, self._state
        tags_changed = request.changes_tags
        request = queries.with_tags(subject, request)
        if request.version == -1 and not tags_changed:
            # Here, too, where writes wait for each other: two clients may ask for the same version at once.
            latest = queries.registered(subject, request, normalize=normalize)
            if latest is not None:
                return Change(latest)
        mode = queries.mode_in_scope(subject)
        self._check_register(subject, request, mode)
        importing = mode in IMPORTING
        config = queries.config_in_scope(subject)
        versions = list(state.all_versions(subject, deleted=True))
        live = [one for one in versions if not one.deleted]
        new_number = versions[-1].version + 1 if versions else 1
        previous = live[-1].content if live else None
        if not request.text.strip():
            if previous is None or importing:
                raise errors.invalid_schema("Empty schema")
            request = replace(
                request,
                text=previous.text,
                schema_type=previous.schema_type,
                references=previous.references,
            )
        if request.propagate_tags and live and not importing:
            request = self._with_tags_of(live[-1], subject, request)
        parsed, content = queries.parse_request(request, subject, new=True, normalize=normalize)
        self._check_references(subject, content)
        if not importing:
            content = merged_content(config, content, previous)
            if request.version != 0 or version_property(content.metadata) is not None:
                content.metadata = with_version_property(content.metadata, new_number)
                content = Content(
                    content.schema_type, content.text, content.references, content.metadata, content.rule_set
                )
        context = contexts.context_of(subject)
        schema_id = request.id if importing else -1
        known = state.id_of(context, content)
        if request.version == 0:
            found = queries.find(subject, parsed, content)
            if found is not None and schema_id in (-1, found.id):
                return Change(found)
        if known is not None and schema_id in (-1, known):
            schema_id = known
        if not importing and not force:
            problems = self.problems(config, parsed, content, live)
            if problems:
                raise errors.incompatible(subject, problems)
        number = self._number(request, new_number, importing)
        entries: list[tuple[bytes, bytes | None]] = []
        if context != contexts.DEFAULT and context not in state.contexts:
            entries.append((schema_records.context_key(context), schema_records.context_value(context)))
        if schema_id >= 0:
            self._check_id(context, schema_id, content)
        else:
            schema_id = state.next_id(context)
            if schema_id > MAX_ID:
                raise errors.no_more_ids(context)
        for old in versions:
            # The same schema comes back after a soft delete: the deleted version makes way.
            if (
                old.deleted
                and old.id == schema_id
                and old.version < number
                and not state.referrers(subject, old.version, deleted=True)
            ):
                entries.append((schema_records.schema_key(subject, old.version), None))
        made = Version(subject, number, schema_id, content)
        entries.append((schema_records.schema_key(subject, number), made.value()))
        queries.keep(context, content, parsed)
        return Change(made, entries)

    def _with_tags_of(self, previous: Version, subject: str, request: SchemaRequest) -> SchemaRequest:
        tags = tagged_entities(self._queries.parse(previous))
        if not tags:
            return request
        parsed, _ = self._queries.parse_request(request, subject, new=False, normalize=False)
        return replace(request, text=self._queries.tagged(parsed, tags))

    def change_tags(self, subject: str, version: Version, request: TagsRequest) -> Change:
        """Register the schema of a version once more, with other tags, metadata and rules."""
        content = version.content
        parsed = self._queries.parse(version)
        metadata = content.metadata if request.metadata is None else request.metadata
        rules = request.rule_set
        if request.rules_to_merge is not None or request.rules_to_remove is not None:
            rules = self._changed_rules(subject, request)
        wanted = SchemaRequest(
            self._queries.tagged(parsed, request.tags_to_add, request.tags_to_remove),
            content.schema_type,
            content.references,
            with_version_property(metadata, request.new_version),
            rules,
            request.new_version,
        )
        return self.register(subject, wanted)

    def _changed_rules(self, subject: str, request: TagsRequest) -> Json | None:
        """The rules of the version before the new one, with some merged in and others removed."""
        before = request.new_version - 1 if request.new_version else -1
        previous = self._state.version(subject, before)
        rules = previous.content.rule_set if previous else None
        if request.rules_to_merge is not None:
            rules = merge_rules(rules, request.rules_to_merge)
        if rules is None or request.rules_to_remove is None:
            return rules
        kept = {
            name: [rule for rule in value if rule["name"] not in request.rules_to_remove]
            for name, value in rules.items()
            if isinstance(value, list)
        }
        return {name: kept.get(name, value) for name, value in rules.items() if kept.get(name) != []}

    def _check_references(self, subject: str, content: Content) -> None:
        """A subject that a topic owns is not for others to build on."""
        for reference in content.references:
            target = contexts.within(reference.subject, subject)
            if self._state.associations.of_subject(target, AssociationFilter(lifecycle=STRONG)):
                raise errors.not_permitted(
                    f"Subject '{reference.subject}' has a strong association and cannot be referenced"
                )

    def _check_register(self, subject: str, request: SchemaRequest, mode: str) -> None:
        where = f"Subject {subject} in context {contexts.parse(subject).prefix}"
        if mode in READ_ONLY:
            raise errors.not_permitted(f"{where} is in read-only mode")
        if request.id >= 0 and mode not in IMPORTING:
            raise errors.not_permitted(f"{where} is not in import mode")
        if request.id < 0 and mode != "READWRITE":
            raise errors.not_permitted(f"{where} is not in read-write mode")

    def _number(self, request: SchemaRequest, new_number: int, importing: bool) -> int:
        if request.version <= 0:
            return new_number
        if request.version != new_number and not importing:
            raise errors.invalid_schema("Version is not one more than previous version")
        return request.version

    def _check_id(self, context: str, schema_id: int, content: Content) -> None:
        for user in self._state.users(context, schema_id):
            if user.content.digest != content.digest or user.content.schema_type != content.schema_type:
                raise errors.not_permitted(
                    f"Overwrite new schema with id {schema_id} in context {context} is not permitted."
                )

    def problems(
        self, config: Json, parsed: ParsedSchema, content: Content, earlier: list[Version]
    ) -> list[str]:
        """Why a schema may not follow these versions, as a subject is configured."""
        found: list[str] = []
        validates = self._queries.validates_fields(config)
        if validates:
            found += _reserved(parsed, content, earlier[-1].content if earlier else None)
        group = config.get("compatibilityGroup")
        if group:
            wanted = _property(content, group)
            earlier = [one for one in earlier if _property(one.content, group) == wanted]
        level = str(config["compatibilityLevel"])
        history = [
            compatibility_levels.Earlier(one.version, lambda one=one: self._queries.parse(one))  # type: ignore[misc]
            for one in earlier
        ]
        lenient = config.get("compatibilityPolicy") == "LENIENT"
        try:
            found += compatibility_levels.problems(level, parsed, history, lenient=lenient)
        except (InvalidSchema, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise errors.invalid_schema(f"Invalid schema, details: {reason}") from None
        if found:
            found.append(f"{{validateFields: '{str(validates).lower()}', compatibility: '{level}'}}")
        return found

    def check_compatibility(
        self, subject: str, request: SchemaRequest, earlier: list[Version], *, normalize: bool
    ) -> list[str]:
        config = self._queries.config_in_scope(subject)
        if not request.text.strip():
            raise errors.invalid_schema("Empty schema")
        parsed, content = self._queries.parse_request(request, subject, new=True, normalize=normalize)
        return self.problems(config, parsed, content, earlier)

    # Deleting

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> Change:
        state = self._state
        found = state.version(subject, number, deleted=True)
        if found is not None and not permanent and state.version(subject, number) is None:
            raise errors.version_soft_deleted(subject, number)
        if number == -1 and not permanent:
            found = state.version(subject, -1)
        if found is None:
            if not state.has_subject(subject, deleted=True):
                raise errors.subject_not_found(subject)
            raise errors.version_not_found(number)
        self.check_writable(subject)
        if not permanent and state.associations.of_subject(subject):
            remaining = [one for one in state.all_versions(subject) if one.version != found.version]
            if not remaining:
                raise association_errors.no_active_version(subject)
        if state.referrers(subject, found.version, deleted=permanent):
            raise errors.reference_exists(subject, found.version)
        if permanent and not found.deleted:
            raise errors.version_not_soft_deleted(subject, found.version)
        key = schema_records.schema_key(subject, found.version)
        if permanent:
            return Change(found.version, [*self._remember_ids(), (key, None)])
        return Change(found.version, [(key, found.value(deleted=True))])

    def delete_subject(self, subject: str, *, permanent: bool) -> Change:
        state = self._state
        if not state.has_subject(subject, deleted=True):
            raise errors.subject_not_found(subject)
        if not permanent and not state.has_subject(subject):
            raise errors.subject_soft_deleted(subject)
        self.check_writable(subject)
        if state.associations.of_subject(subject):
            raise association_errors.exists_for_subject(subject)
        doomed = list(state.all_versions(subject, deleted=permanent))
        for one in doomed:
            others = state.referrers(subject, one.version, deleted=permanent)
            if any(other.subject != subject for other in others):
                raise errors.reference_exists(subject, one.version)
            if permanent and not one.deleted:
                raise errors.subject_not_soft_deleted(subject)
        numbers = [one.version for one in doomed]
        if not permanent:
            value = schema_records.delete_subject_value(subject, numbers[-1])
            return Change(numbers, [(schema_records.delete_subject_key(subject), value)])
        entries = self._remember_ids()
        entries += [(schema_records.schema_key(subject, number), None) for number in reversed(numbers)]
        if subject in state.modes:
            entries.append((schema_records.mode_key(subject), None))
        if subject in state.configs:
            entries.append((schema_records.config_key(subject), None))
        return Change(numbers, entries)

    def _remember_ids(self) -> list[tuple[bytes, bytes | None]]:
        """Before schemas vanish for good: which ids have been used."""
        return [(schema_records.noop_key(), schema_records.noop_value(self._state.highest_ids))]

    def delete_context(self, context: str) -> Change:
        if context not in self._state.contexts:
            raise errors.subject_not_found(f":{context}:")
        if self._state.has_subject(f":{context}:", deleted=True):
            raise errors.context_not_empty(context)
        return Change(None, [(schema_records.context_key(context), None)])

    def check_writable(self, subject: str | None) -> None:
        if self._queries.mode_in_scope(subject) in READ_ONLY:
            name = subject or ""
            raise errors.not_permitted(
                f"Subject {name} in context {contexts.parse(name).prefix} is in read-only mode"
            )

    # Config and mode

    def set_config(self, subject: str | None, changes: Json) -> Change:
        self.check_writable(subject)
        merged = {**self._state.configs.get(subject, {}), **changes}
        merged = {name: value for name, value in merged.items() if value is not None}
        return Change(
            merged, [(schema_records.config_key(subject), schema_records.config_value(subject, merged))]
        )

    def delete_config(self, subject: str | None) -> Change:
        old = self._queries.config(subject)
        if old is None:
            raise errors.subject_not_found(str(subject))
        self.check_writable(subject)
        return Change(old, [(schema_records.config_key(subject), None)])

    def set_mode(self, subject: str | None, mode: str | None, *, force: bool) -> Change:
        if not self._mode_changes:
            raise errors.not_permitted("Mode changes are not allowed")
        entries: list[tuple[bytes, bytes | None]] = []
        if mode == "IMPORT" and self._queries.mode_in_scope(subject) != "IMPORT" and not force:
            entries = self._empty_for_import(subject)
        value = None if mode is None else schema_records.mode_value(subject, mode)
        entries.append((schema_records.mode_key(subject), value))
        return Change(mode, entries)

    def _empty_for_import(self, subject: str | None) -> list[tuple[bytes, bytes | None]]:
        """Imported schemas bring their ids; so nothing may be there, and what is soft-deleted goes for
        good."""
        names = [name for name in self._state.versions if _concerns(subject, name)]
        entries: list[tuple[bytes, bytes | None]] = []
        for name in names:
            if next(self._state.all_versions(name), None) is not None:
                raise errors.not_permitted("Cannot import since found existing subjects")
            for one in self._state.all_versions(name, deleted=True):
                outside = [
                    other
                    for other in self._state.referrers(name, one.version, deleted=True)
                    if other.subject not in names
                ]
                if outside:
                    raise errors.reference_exists(name, one.version)
                entries.append((schema_records.schema_key(name, one.version), None))
        entries.append(
            (schema_records.clear_subject_key(subject), schema_records.clear_subject_value(subject))
        )
        return entries

    def delete_mode(self, subject: str | None, *, recursive: bool) -> Change:
        if not self._mode_changes:
            raise errors.not_permitted("Mode changes are not allowed")
        old = self._queries.mode(subject)
        if old is None and not recursive:
            raise errors.subject_not_found(str(subject))
        entries: list[tuple[bytes, bytes | None]] = [(schema_records.mode_key(subject), None)]
        if recursive and (subject is None or not contexts.parse(subject).name):
            context = contexts.context_of(subject or "")
            entries += [
                (schema_records.mode_key(name), None)
                for name in self._state.modes
                if name is not None and name != subject and contexts.context_of(name) == context
            ]
        return Change(old, entries)


def _concerns(scope: str | None, subject: str) -> bool:
    if scope is None:
        return True
    parsed = contexts.parse(scope)
    if parsed.name or parsed.context == contexts.DEFAULT:
        return subject == scope
    return parsed.context in (contexts.GLOBAL, contexts.context_of(subject))


def _property(content: Content, name: str) -> str | None:
    return ((content.metadata or {}).get("properties") or {}).get(name)


def _reserved(parsed: ParsedSchema, content: Content, previous: Content | None) -> list[str]:
    """Names that metadata reserves must stay reserved, and no field may use them."""
    now = _names(_property(content, RESERVED))
    before = _names(_property(previous, RESERVED)) if previous else set()
    found = [
        "{errorType:'RESERVED_FIELD_REMOVED', "
        f"description:'the new schema no longer reserves the name {name}'}}"
        for name in sorted(before - now)
    ]
    found += [
        "{errorType:'FIELD_CONFLICTS_WITH_RESERVED_FIELD', "
        f"description:'the new schema has a field {name}, which is reserved'}}"
        for name in sorted(now)
        if parsed.has_top_level_field(name)
    ]
    return found


def _names(text: str | None) -> set[str]:
    return {name.strip() for name in (text or "").split(",") if name.strip()}
