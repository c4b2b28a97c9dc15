"""Questions about the state: schemas with their references resolved, config and mode that apply to a subject,
and the search for a schema among a subject's versions.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from millstream.registry import contexts, errors
from millstream.registry.errors import RegistryError
from millstream.registry.requests import SchemaRequest
from millstream.registry.schema_records import Content, Json, Version
from millstream.registry.state import State
from millstream.schemas import TYPES, InvalidSchema, ParsedSchema, Reference, parse
from millstream.schemas.tags import EntityTags, with_tags

VERSION_PROPERTY = "confluent:version"
IMPORTING = ("IMPORT", "FORWARD")
CACHED_SCHEMAS = 1000
DEFAULTS_AND_OVERRIDES = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
LARGE = 100_000  # characters; larger schemas are parsed when they are needed


class Queries:
    def __init__(
        self,
        state: State,
        *,
        level: str = "BACKWARD",
        validate_fields: bool = False,
        validate_new_schemas: bool = True,
        strict_references: bool = False,
        cache: int = CACHED_SCHEMAS,
    ) -> None:
        self.state = state
        self._level = level
        self._validate_fields = validate_fields
        self._validate_new_schemas = validate_new_schemas
        self._strict_references = strict_references
        self._cache_size = cache
        self._parsed: OrderedDict[tuple[str, str, bytes], ParsedSchema] = OrderedDict()

    # Config and mode

    def config(self, subject: str | None) -> Json | None:
        """What is configured for a subject itself (None: globally); None where nothing is."""
        found = self.state.configs.get(subject)
        if found is not None:
            return {"compatibilityLevel": self._level, **found}
        if subject is None or contexts.context_of(subject) == contexts.GLOBAL:
            return {"compatibilityLevel": self._level}
        return None

    def config_in_scope(self, subject: str | None) -> Json:
        """What applies to a subject: its own config, else its context's, else the global one."""
        if subject is None:
            return self._scoped(None)
        own = self.state.configs.get(subject)
        if own is None:
            return self._scoped(subject)
        above = self._scoped(None if contexts.context_of(subject) == contexts.DEFAULT else subject)
        return {**above, **own}

    def _scoped(self, subject: str | None) -> Json:
        for scope in self._scopes(subject):
            found = self.state.configs.get(scope)
            if found is not None:
                return {"compatibilityLevel": self._level, **found}
        return {"compatibilityLevel": self._level}

    def _scopes(self, subject: str | None) -> tuple[str | None, ...]:
        everywhere = f":{contexts.GLOBAL}:"
        if subject is None:
            return (None, everywhere)
        parsed = contexts.parse(subject)
        if parsed.context == contexts.DEFAULT:
            return (None, everywhere)
        return (parsed.prefix, everywhere)

    def mode(self, subject: str | None) -> str | None:
        found = self.state.modes.get(subject)
        if found is None and (subject is None or contexts.context_of(subject) == contexts.GLOBAL):
            return "READWRITE"
        return found

    def mode_in_scope(self, subject: str | None) -> str:
        for scope in (subject, *self._scopes(subject)):
            found = self.state.modes.get(scope)
            if found is not None:
                return found
        return "READWRITE"

    def is_importing(self, subject: str) -> bool:
        """Whether schemas are taken as they are: with their ids, neither checked nor normalized."""
        return self.mode_in_scope(subject) in IMPORTING

    def validates_fields(self, config: Json) -> bool:
        return bool(config.get("validateFields", self._validate_fields))

    # Schemas

    def resolve(
        self, references: tuple[Reference, ...], subject: str, *, deleted: bool, strict: bool = False
    ) -> tuple[tuple[Reference, ...], dict[str, str]]:
        """The references with versions in place of -1, and the texts that they lead to, what is needed first
        first. Of two versions under one name the first that is met counts; `strict`, they are an error."""
        texts: dict[str, str] = {}
        versions: dict[str, int] = {}

        def collect(reference: Reference, parent: str) -> int:
            found = self._referred(reference, parent, deleted=deleted)
            if reference.name in versions:
                if strict and versions[reference.name] != found.version:
                    raise errors.invalid_schema(
                        f'Conflicting reference versions for "{reference.name}": '
                        f"version {versions[reference.name]} and version {found.version}"
                    )
                return found.version
            versions[reference.name] = found.version
            for inner in found.content.references:
                collect(inner, found.subject)
            texts[reference.name] = found.content.text
            return found.version

        exact = [replace(reference, version=collect(reference, subject)) for reference in references]
        return tuple(exact), texts

    def referred_subjects(self, references: tuple[Reference, ...], subject: str) -> set[str]:
        """The subjects that references lead to, and the references of those."""
        found: set[str] = set()
        left = [(reference, subject) for reference in references]
        seen: set[tuple[str, int]] = set()
        while left:
            reference, parent = left.pop()
            target = contexts.within(reference.subject, parent)
            found.add(target)
            version = self.state.version(target, reference.version, deleted=True)
            if version is not None and (target, version.version) not in seen:
                seen.add((target, version.version))
                left += [(inner, target) for inner in version.content.references]
        return found

    def _referred(self, reference: Reference, subject: str, *, deleted: bool) -> Version:
        target = contexts.within(reference.subject, subject)
        found = self.state.version(target, reference.version, deleted=deleted)
        if found is None:
            raise errors.invalid_schema(
                f'No schema reference found for subject "{target}" and version {reference.version}'
            )
        return found

    def parse(self, version: Version) -> ParsedSchema:
        """A registered schema, parsed; kept for the next time."""
        context = contexts.context_of(version.subject)
        key = (context, version.content.schema_type, version.content.digest)
        found = self._parsed.get(key)
        if found is not None:
            self._parsed.move_to_end(key)
            return found
        _, texts = self.resolve(version.content.references, version.subject, deleted=True)
        content = version.content
        try:
            found = parse(content.schema_type, content.text, content.references, texts)
        except InvalidSchema as error:
            raise errors.invalid_schema(f"Invalid schema of subject {version.subject}: {error}") from None
        self.keep(context, content, found)
        return found

    def keep(self, context: str, content: Content, parsed: ParsedSchema) -> None:
        if len(content.text) > LARGE:
            return
        self._parsed[context, content.schema_type, content.digest] = parsed
        if len(self._parsed) > self._cache_size:
            self._parsed.popitem(last=False)

    def parse_request(
        self, request: SchemaRequest, subject: str, *, new: bool, normalize: bool
    ) -> tuple[ParsedSchema, Content]:
        """What a client sent: parsed, checked, in canonical form (or in normal form)."""
        if request.schema_type not in TYPES:
            raise errors.invalid_schema(f"Invalid schema type {request.schema_type}")
        config = self.config_in_scope(subject)
        importing = self.is_importing(subject)
        strict = self.validates_fields(config)
        new = new and not importing and bool(config.get("validateNewSchemas", self._validate_new_schemas))
        references, texts = self.resolve(
            request.references, subject, deleted=not new, strict=self._strict_references
        )
        try:
            parsed = parse(request.schema_type, request.text, references, texts, new=new)
            if not importing:
                if strict or not new:
                    parsed.validate(strict=strict)
                if normalize or config.get("normalize"):
                    parsed = parsed.normalized()
            text = parsed.canonical
        except InvalidSchema as error:
            raise errors.invalid_schema(
                f"Invalid schema of type {request.schema_type} for subject '{subject}', details: {error}"
            ) from None
        content = Content(request.schema_type, text, parsed.references, request.metadata, request.rule_set)
        return parsed, content

    def with_tags(self, subject: str, request: SchemaRequest) -> SchemaRequest:
        """The schema that a request means, with the tags that it adds and without those that it removes. It
        says its version in its metadata."""
        if not request.changes_tags:
            return request
        parsed, _ = self.parse_request(request, subject, new=False, normalize=False)
        text = self.tagged(parsed, request.tags_to_add, request.tags_to_remove)
        return replace(request, text=text, tags_to_add=(), tags_to_remove=(), version=request.version or -1)

    def tagged(
        self, parsed: ParsedSchema, add: Sequence[EntityTags], remove: Sequence[EntityTags] = ()
    ) -> str:
        try:
            return with_tags(parsed, add, remove)
        except InvalidSchema as error:
            raise errors.invalid_schema(str(error)) from None

    # Looking up

    def find(
        self, subject: str, parsed: ParsedSchema, content: Content, *, deleted: bool = False
    ) -> Version | None:
        """The version of a subject that has this schema: the same content, or the same schema written
        differently."""
        context = contexts.context_of(subject)
        schema_id = self.state.id_of(context, content)
        if schema_id is not None:
            # Of several versions with that id, the newest that may be seen.
            same = [one for one in self.state.users(context, schema_id) if one.subject == subject]
            same = [one for one in same if deleted or not one.deleted]
            if same:
                return max(same, key=lambda one: (not one.deleted, one.version))
        for version in reversed(list(self.state.all_versions(subject, deleted=deleted))):
            if self._equivalent(parsed, content, version):
                return version
        return None

    def _equivalent(self, parsed: ParsedSchema, content: Content, version: Version) -> bool:
        theirs = version.content
        if theirs.schema_type != content.schema_type or not _same_metadata(content, version):
            return False
        if theirs.references == content.references and theirs.text == content.text:
            return True
        if content.references or not theirs.references or content.schema_type != "AVRO":
            return False
        try:  # an Avro schema may be sent with everything that it refers to in place
            return parsed.formatted("resolved") == self.parse(version).formatted("resolved")
        except RegistryError:
            return False

    def registered(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Version | None:
        """The version that registering finds already there, in every mode and without the leader.

        Version -1 asks for a new version after the latest one, unless that has this schema. A version with
        its id, from an import, must be exactly that one.
        """
        config = self.config_in_scope(subject)
        if not request.text.strip() or subject not in self.state.versions:
            return None
        if any(config.get(name) is not None for name in DEFAULTS_AND_OVERRIDES):
            return None
        if request.changes_tags or request.propagate_tags:
            return None
        parsed, content = self.parse_request(request, subject, new=False, normalize=normalize)
        if request.version == -1:
            latest = self.state.version(subject, -1)
            found = latest if latest and self._equivalent(parsed, content, latest) else None
        else:
            found = self.find(subject, parsed, content)
        if found is None or request.version in (0, -1):
            return found if found is not None and (request.id < 0 or request.id == found.id) else None
        if found.id != request.id:
            return None
        exact = self.state.version(subject, request.version)
        same = exact is not None and exact.id == found.id and exact.content.digest == found.content.digest
        return exact if same else None

    def look_up(
        self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool
    ) -> Version | None:
        parsed, content = self.parse_request(request, subject, new=False, normalize=normalize)
        found = self.find(subject, parsed, content, deleted=deleted)
        latest = self.state.version(subject, -1)
        if found is not None or latest is None:
            return found
        # Registering would take over metadata and rules of the version before; so does the search.
        merged = merged_content(self.config_in_scope(subject), content, latest.content)
        if merged.metadata == content.metadata and merged.rule_set == content.rule_set:
            return None
        return self.find(subject, parsed, merged, deleted=deleted)


def merged_content(config: Json, content: Content, previous: Content | None) -> Content:
    """With metadata and rules of the version before where none are given, and the config's defaults and
    overrides."""
    metadata = content.metadata if content.metadata is not None else previous.metadata if previous else None
    rules = content.rule_set if content.rule_set is not None else previous.rule_set if previous else None
    for name, first in (("defaultMetadata", True), ("overrideMetadata", False)):
        other = config.get(name)
        if other is not None:
            metadata = _merge_metadata(other, metadata) if first else _merge_metadata(metadata, other)
    for name, first in (("defaultRuleSet", True), ("overrideRuleSet", False)):
        other = config.get(name)
        if other is not None:
            rules = merge_rules(other, rules) if first else merge_rules(rules, other)
    return Content(content.schema_type, content.text, content.references, metadata, rules)


def _merge_metadata(below: Json | None, above: Json | None) -> Json | None:
    if below is None or above is None:
        return below if above is None else above
    made: Json = {}
    tags = {**(below.get("tags") or {}), **(above.get("tags") or {})}
    properties = {**(below.get("properties") or {}), **(above.get("properties") or {})}
    sensitive = sorted({*(below.get("sensitive") or ()), *(above.get("sensitive") or ())})
    if tags:
        made["tags"] = dict(sorted(tags.items()))
    if properties:
        made["properties"] = dict(sorted(properties.items()))
    if sensitive:
        made["sensitive"] = sensitive
    return made


def merge_rules(below: Json | None, above: Json | None) -> Json | None:
    if below is None or above is None:
        return below if above is None else above
    made: Json = {}
    for phase in ("migrationRules", "domainRules", "encodingRules"):
        names = {rule["name"] for rule in above.get(phase) or ()}
        rules = [rule for rule in below.get(phase) or () if rule["name"] not in names]
        rules += above.get(phase) or []
        if rules:
            made[phase] = rules
    environment = above.get("enableAt") or below.get("enableAt")
    if environment:
        made["enableAt"] = environment
    return made


def version_property(metadata: Json | None) -> str | None:
    return ((metadata or {}).get("properties") or {}).get(VERSION_PROPERTY)


def with_version_property(metadata: Json | None, version: int) -> Json:
    properties = {**((metadata or {}).get("properties") or {}), VERSION_PROPERTY: str(version)}
    return {**(metadata or {}), "properties": dict(sorted(properties.items()))}


def _without_version(metadata: Json | None) -> Json | None:
    if version_property(metadata) is None:
        return metadata or None
    assert metadata is not None
    properties = {key: value for key, value in metadata["properties"].items() if key != VERSION_PROPERTY}
    rest = {key: value for key, value in metadata.items() if key != "properties"}
    if properties:
        rest["properties"] = properties
    return rest or None


def _same_metadata(content: Content, version: Version) -> bool:
    """Equal metadata and rules; a version number that only one of the two states does not count, if it is the
    right one."""
    theirs = version.content
    if content.rule_set != theirs.rule_set:
        return False
    mine, other = version_property(content.metadata), version_property(theirs.metadata)
    if mine is not None and other is None and mine != str(version.version):
        return False
    if (mine is None) != (other is None):
        return _without_version(content.metadata) == _without_version(theirs.metadata)
    return content.metadata == theirs.metadata
