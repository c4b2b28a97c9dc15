"""What a change of associations writes into the topic. Decided from the state alone; nothing here does I/O.

A change that registers schemas, too, comes in steps: each is decided when the one before is part of the
state, because only then the ids and versions are known. Everything that can be refused is refused before the
first step.
"""

import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from millstream.registry import contexts
from millstream.registry.associations import errors
from millstream.registry.associations.model import STRONG, WEAK, Association, AssociationId, Json
from millstream.registry.associations.requests import (
    CREATE,
    AssociationInfo,
    AssociationRequest,
    DeleteInfo,
    OperationsRequest,
    Resource,
    check_frozen,
    check_once,
)
from millstream.registry.associations.state import AssociationFilter
from millstream.registry.commands import Change, Commands, Steps
from millstream.registry.errors import RegistryError
from millstream.registry.queries import Queries
from millstream.registry.schema_records import Version

# The errors that a batch answers as they are; an invalid schema counts as an invalid association there, and
# everything else as a failure of the server.
OWN_CODES = frozenset({40901, 40903, 40904, 40905, 40907, 40908, 42206, 42209, 42212})
INVALID_SCHEMA, INVALID_ASSOCIATION, SERVER_ERROR = 42201, 42212, 500


@dataclass(slots=True)
class ResourceAssociations:
    """The associations of a resource, and schemas by association type."""

    resource: Resource
    associations: Sequence[Association] = ()
    schemas: dict[str, Version] = field(default_factory=dict)


@dataclass(slots=True)
class BatchResult:
    result: ResourceAssociations | None = None
    error: Json | None = None


def failure(error: RegistryError) -> BatchResult:
    if error.code in OWN_CODES:
        return BatchResult(error={"error_code": error.code, "message": error.message})
    if error.code == INVALID_SCHEMA:
        return BatchResult(error={"error_code": INVALID_ASSOCIATION, "message": error.message})
    message = f"Error while creating association: {error.message}"
    return BatchResult(error={"error_code": SERVER_ERROR, "message": message})


class AssociationCommands:
    """`resolve` gives the subject that a name means: with its context in one spelling, an alias replaced."""

    def __init__(self, commands: Commands, queries: Queries, resolve: Callable[[str], str]) -> None:
        self._commands = commands
        self._queries = queries
        self._state = queries.state
        self._resolve = resolve

    def put(self, context: str, request: AssociationRequest, *, creating: bool, dry_run: bool) -> Steps:
        """Create associations, or create and update them; answers ResourceAssociations."""
        resource = request.resource
        for info in request.associations:
            if info.subject is not None:
                info.subject = self._resolve(contexts.within(info.subject, context))
                self._commands.check_writable(info.subject)
        seen: set[str] = set()
        for info in request.associations:
            check_once(info.association_type, seen)
        existing = self._existing(resource, seen, by_name=creating and dry_run)
        unchanged = set()
        for info in request.associations:
            old = existing.get(info.association_type)
            if self._check(resource, info, old, creating=creating):
                unchanged.add(info.association_type)
        self._check_lifecycles(request)
        for info in request.associations:
            self._check_subject(request, info, existing.get(info.association_type))
        for info in request.associations:
            self._check_compatible(info)
        if dry_run:
            yield Change(ResourceAssociations(resource))
            return
        schemas: dict[str, Version] = {}
        for info in request.associations:
            if info.schema is not None:
                registered = self._commands.register(_subject(info), info.schema, normalize=info.normalize)
                yield registered
                assert isinstance(registered.answer, Version)
                schemas[info.association_type] = registered.answer
        made = [
            _association(resource, info, existing.get(info.association_type))
            for info in request.associations
            if info.association_type not in unchanged
        ]
        yield Change(ResourceAssociations(resource, made, schemas), [one.record() for one in made])

    def _existing(
        self, resource: Resource, association_types: Iterable[str], *, by_name: bool
    ) -> dict[str, Association]:
        """The resource's associations of these types. Whoever only validates may not know the id of the
        resource yet; then its name counts."""
        wanted = AssociationFilter(resource.type, tuple(association_types))
        if resource.id is not None:
            found = self._state.associations.of_resource(resource.id, wanted)
        elif by_name:
            found = _of_one_resource(
                self._state.associations.named(resource.name, resource.namespace, wanted)
            )
        else:
            found = []
        return {one.id.association_type: one for one in found}

    # Checks, in Confluent's order

    def _check(
        self, resource: Resource, info: AssociationInfo, old: Association | None, *, creating: bool
    ) -> bool:
        """Whether the association is there already, as it is wanted."""
        if old is None and not creating:
            info.apply_defaults(creating=False)
        default = resource.default_subject(info.association_type)
        if info.subject is None:
            if old is None and info.lifecycle != STRONG:
                raise errors.invalid("subject", "must be provided for WEAK associations")
            info.subject = default if old is None else old.id.subject
        lifecycle = info.lifecycle or (old.lifecycle if old else None)
        if lifecycle == WEAK:
            if info.schema is not None:
                raise errors.invalid("lifecycle", "cannot be WEAK when schema is provided")
            if info.subject == default:
                raise errors.invalid("subject", f"WEAK associations cannot use subject '{default}'")
        frozen = old.frozen if old else bool(info.frozen)
        check_frozen(lifecycle, frozen if info.frozen is None else info.frozen)
        if frozen and info.subject != default:
            raise errors.invalid("subject", f"frozen associations must use subject '{default}'")
        if old is None:
            self._check_new(info, creating=creating)
            return False
        if _is_equivalent(old, info):
            if creating and info.schema is not None and self._look_up(info) is None:
                raise errors.exists_for_resource(old.id.association_type, old.id.resource_name)
            return True
        if creating:
            raise errors.exists_for_resource(old.id.association_type, old.id.resource_name)
        self._check_update(info, old, default)
        return False

    def _check_new(self, info: AssociationInfo, *, creating: bool) -> None:
        subject = _subject(info)
        # What is imported was established elsewhere.
        if self._queries.mode_in_scope(subject) == "IMPORT":
            return
        if not creating and info.lifecycle == STRONG:
            raise errors.invalid(
                "lifecycle",
                "cannot be STRONG when creating an association; "
                "STRONG associations must be created with the topic",
            )
        if not info.frozen:
            return
        if creating and info.schema is None:
            raise errors.invalid("schema", "schema must be provided when creating a frozen association")
        latest = self._state.version(subject, -1)
        if latest is not None and (latest.version != 1 or self._look_up(info) is None):
            raise errors.invalid(
                "frozen", "cannot create a frozen association when schemas already exist in the subject"
            )

    def _check_update(self, info: AssociationInfo, old: Association, default: str) -> None:
        if info.lifecycle is None and info.schema is None:
            raise errors.invalid("lifecycle", "at least lifecycle or schema must be provided for update")
        if old.id.subject != info.subject:
            raise errors.invalid(
                "subject",
                f"subject of association cannot be changed from '{old.id.subject}' to '{info.subject}'",
            )
        if old.lifecycle == STRONG and info.lifecycle == WEAK and old.id.subject == default:
            raise errors.invalid(
                "lifecycle", f"cannot change to WEAK when subject matches default format '{default}'"
            )
        if info.frozen is not None and old.frozen != info.frozen:
            raise errors.invalid("frozen", "frozen attribute of association cannot be changed")
        if old.frozen:
            raise errors.frozen(old.id.association_type, old.id.subject)

    def _check_lifecycles(self, request: AssociationRequest) -> None:
        """A topic owns all of its subjects or none."""
        resource = request.resource
        wanted = AssociationFilter(resource.type)
        if resource.id is not None:
            existing = self._state.associations.of_resource(resource.id, wanted)
        else:
            existing = _of_one_resource(
                self._state.associations.named(resource.name, resource.namespace, wanted)
            )
        lifecycles = {one.id.association_type: one.lifecycle for one in existing}
        for info in request.associations:
            if info.lifecycle is not None:
                lifecycles[info.association_type] = info.lifecycle
        if len(set(lifecycles.values())) > 1:
            detail = ", ".join(f"{name}={lifecycle}" for name, lifecycle in lifecycles.items())
            raise errors.invalid(
                "lifecycle", f"all associations for a resource must have the same lifecycle, but got {detail}"
            )

    def _check_subject(
        self, request: AssociationRequest, info: AssociationInfo, old: Association | None
    ) -> None:
        subject = _subject(info)
        if info.schema is not None and self._queries.mode_in_scope(subject) == "IMPORT":
            # Its versions come by themselves.
            raise errors.invalid("schema", f"cannot be provided while subject '{subject}' is in IMPORT mode")
        if info.schema is None and self._state.version(subject, -1) is None:
            raise errors.no_active_version(subject)
        others = [
            one
            for one in self._state.associations.of_subject(subject)
            if old is None or _identity(one) != _identity(old)
        ]
        lifecycle = info.lifecycle or (old.lifecycle if old else None)
        if lifecycle == STRONG:
            if others:
                raise errors.exists_for_subject(subject)
            if self._is_referenced(subject) or _refers_to(request, subject):
                raise errors.referenced(subject)
        elif any(one.lifecycle == STRONG for one in others):
            raise errors.strong_exists_for_subject(subject)

    def _is_referenced(self, subject: str) -> bool:
        """Soft-deleted versions and referrers count, because they can come back."""
        return any(
            self._state.referrers(subject, one.version, deleted=True)
            for one in self._state.all_versions(subject, deleted=True)
        )

    def _check_compatible(self, info: AssociationInfo) -> None:
        if info.schema is None:
            return
        subject = _subject(info)
        earlier = list(self._state.all_versions(subject))
        schema = self._queries.with_tags(subject, info.schema)
        problems = self._commands.check_compatibility(subject, schema, earlier, normalize=info.normalize)
        if problems:
            raise errors.incompatible(problems)

    def _look_up(self, info: AssociationInfo) -> Version | None:
        if info.schema is None:
            return None
        subject = _subject(info)
        schema = self._queries.with_tags(subject, info.schema)
        return self._queries.look_up(subject, schema, normalize=info.normalize, deleted=False)

    # Deleting

    def delete(
        self,
        resource_id: str,
        resource_type: str,
        association_types: Sequence[str],
        *,
        cascade: bool,
        dry_run: bool,
    ) -> Steps:
        """`cascade` deletes the subjects of STRONG associations, too."""
        wanted = AssociationFilter(resource_type, tuple(association_types))
        doomed = self._state.associations.of_resource(resource_id, wanted)
        for one in doomed:
            self._commands.check_writable(one.id.subject)
            if one.frozen and not cascade:
                raise errors.frozen(one.id.association_type, one.id.subject)
        if dry_run:
            return
        yield Change(None, [(one.id.key(), None) for one in doomed])
        for one in doomed:
            subject = one.id.subject
            if cascade and one.lifecycle == STRONG and self._queries.mode_in_scope(subject) != "IMPORT":
                if self._state.has_subject(subject):
                    yield self._commands.delete_subject(subject, permanent=False)
                if self._state.has_subject(subject, deleted=True):
                    yield self._commands.delete_subject(subject, permanent=True)
        yield Change(None)

    # Batches

    def batch(self, context: str, requests: Iterable[OperationsRequest], *, dry_run: bool) -> Steps:
        """Each request by itself: one that fails does not stop the others. Answers a list of BatchResult."""
        results = []
        for request in requests:
            if request.error is not None:
                results.append(BatchResult(error=request.error))
                continue
            try:
                schemas = yield from self._operate(context, request, dry_run=dry_run)
            except RegistryError as error:
                results.append(failure(error))
                continue
            resource = request.resource
            found: Sequence[Association] = ()
            if not dry_run and resource.id is not None:
                found = self._state.associations.of_resource(resource.id, AssociationFilter(resource.type))
            results.append(BatchResult(ResourceAssociations(resource, found, schemas)))
        yield Change(results)

    def _operate(
        self, context: str, request: OperationsRequest, *, dry_run: bool
    ) -> Generator[Change, None, dict[str, Version]]:
        request.check(dry_run=dry_run)
        resource = request.resource
        schemas: dict[str, Version] = {}
        index = 0
        while index < len(request.operations):
            operation, info = request.operations[index]
            if isinstance(info, DeleteInfo):
                index += 1
                if resource.id is not None:
                    types = (info.association_type,)
                    yield from self.delete(
                        resource.id, resource.type, types, cascade=info.cascade, dry_run=dry_run
                    )
                continue
            # A run of equal operations is one request, so that all types of a resource can change together.
            run: list[AssociationInfo] = []
            while index < len(request.operations) and request.operations[index][0] == operation:
                following = request.operations[index][1]
                assert isinstance(following, AssociationInfo)
                run.append(following)
                index += 1
            together = AssociationRequest(resource, run)
            for change in self.put(context, together, creating=operation == CREATE, dry_run=dry_run):
                yield change
                if isinstance(change.answer, ResourceAssociations):
                    schemas.update(change.answer.schemas)
        return schemas


def _subject(info: AssociationInfo) -> str:
    assert info.subject is not None
    return info.subject


def _association(resource: Resource, info: AssociationInfo, old: Association | None) -> Association:
    lifecycle = info.lifecycle or (old.lifecycle if old else WEAK)
    if old is not None:
        frozen = old.frozen if info.frozen is None else info.frozen
        return Association(old.id, old.guid, old.resource_id, lifecycle, frozen)
    assert resource.id is not None
    association_id = AssociationId(
        resource.name, resource.namespace, resource.type, info.association_type, _subject(info)
    )
    return Association(association_id, str(uuid.uuid4()), resource.id, lifecycle, bool(info.frozen))


def _is_equivalent(old: Association, info: AssociationInfo) -> bool:
    return (
        old.id.subject == info.subject
        and info.lifecycle in (None, old.lifecycle)
        and info.frozen in (None, old.frozen)
    )


def _identity(one: Association) -> tuple[str, str, str]:
    return one.resource_id, one.id.resource_type, one.id.association_type


def _refers_to(request: AssociationRequest, subject: str) -> bool:
    """Whether a schema of the same request, which is not registered yet, refers to a subject."""
    return any(
        contexts.within(reference.subject, _subject(info)) == subject
        for info in request.associations
        if info.schema is not None
        for reference in info.schema.references
    )


def _of_one_resource(associations: list[Association]) -> list[Association]:
    """Several resources may share a name, one after the other; the one that changed last counts."""
    if not associations:
        return associations
    latest = max(associations, key=lambda one: (one.updated or 0, one.created or 0, one.resource_id))
    return [one for one in associations if one.resource_id == latest.resource_id]
