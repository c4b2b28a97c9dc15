"""What clients send about associations, checked. What needs no state is decided here, the rest in
`commands`."""

from dataclasses import dataclass, field
from typing import Any

from millstream.registry.associations import errors
from millstream.registry.associations.model import ASSOCIATION_TYPES, LIFECYCLES, STRONG, TOPIC, WEAK, Json
from millstream.registry.errors import http_error
from millstream.registry.requests import SchemaRequest, json_object, optional, schema_request

MAX_NAME_LENGTH = 256
CREATE, UPSERT, DELETE = "CREATE", "UPSERT", "DELETE"


@dataclass(slots=True)
class AssociationInfo:
    """One association to create or update. None: not given."""

    subject: str | None = None
    association_type: str = "value"
    lifecycle: str | None = None
    frozen: bool | None = None
    schema: SchemaRequest | None = None
    normalize: bool = False

    def apply_defaults(self, *, creating: bool) -> None:
        """For an association that does not exist yet: a schema makes it STRONG, otherwise it is WEAK."""
        if self.schema is not None:
            if not creating:
                raise errors.invalid(
                    "schema",
                    "cannot be provided when adding an association to an existing topic; "
                    "an association with a schema must be created with the topic",
                )
            if self.lifecycle == WEAK:
                raise errors.invalid("lifecycle", "cannot be WEAK when schema is provided")
            if self.frozen is False:
                raise errors.invalid("frozen", "cannot be false when a schema is provided")
            self.lifecycle = STRONG
        elif self.lifecycle is None:
            self.lifecycle = WEAK
        if self.frozen is not None:
            check_frozen(self.lifecycle, self.frozen)
        self.frozen = self.lifecycle == STRONG

    def check(self, *, creating: bool) -> None:
        if self.subject is not None:
            _check_subject(self.subject)
        if creating:
            self.apply_defaults(creating=True)
        if self.association_type not in ASSOCIATION_TYPES:
            raise errors.invalid("associationType", "must be either 'key' or 'value'")
        if self.lifecycle == WEAK:
            if self.schema is not None:
                raise errors.invalid("lifecycle", "cannot be WEAK when schema is provided")
            if self.frozen:
                raise errors.invalid("frozen", "association with lifecycle of WEAK cannot be frozen")
            if creating and self.subject is None:
                raise errors.invalid("subject", "must be provided for WEAK associations")


@dataclass(slots=True)
class DeleteInfo:
    association_type: str = "value"
    cascade: bool = False

    def check(self) -> None:
        if self.association_type not in ASSOCIATION_TYPES:
            raise errors.invalid("associationType", "must be either 'key' or 'value'")


@dataclass(slots=True)
class Resource:
    name: str
    namespace: str
    id: str | None
    type: str = TOPIC

    def check(self, *, dry_run: bool) -> None:
        _check_name(self.name, "resourceName")
        _check_name(self.namespace, "resourceNamespace")
        if not dry_run and not self.id:
            raise errors.invalid("resourceId", "cannot be null or empty")
        if self.type != TOPIC:
            raise errors.invalid("resourceType", f"must be '{TOPIC}'")

    def default_subject(self, association_type: str) -> str:
        """The subject of a STRONG association: a context for the namespace, and TopicNameStrategy's name."""
        return f":.{self.namespace}:{self.name}-{association_type}"

    def body(self) -> Json:
        found: Json = {"resourceName": self.name, "resourceNamespace": self.namespace}
        if self.id:
            found["resourceId"] = self.id
        return {**found, "resourceType": self.type}


@dataclass(slots=True)
class AssociationRequest:
    """Associations of one resource, to be created together or updated together."""

    resource: Resource
    associations: list[AssociationInfo] = field(default_factory=list)

    def check(self, *, creating: bool, dry_run: bool) -> None:
        self.resource.check(dry_run=dry_run)
        _check_not_empty(self.associations)
        for info in self.associations:
            info.check(creating=creating)
            if creating:
                self.check_subject(info)

    def check_subject(self, info: AssociationInfo) -> None:
        """A frozen association has the default subject, a WEAK one any other."""
        default = self.resource.default_subject(info.association_type)
        info.subject = default if info.subject is None else info.subject
        if info.frozen and info.subject != default:
            raise errors.invalid("subject", f"frozen associations must use subject '{default}'")
        if info.lifecycle == WEAK and info.subject == default:
            raise errors.invalid("subject", f"WEAK associations cannot use subject '{default}'")


@dataclass(slots=True)
class OperationsRequest:
    """Several operations on one resource. `error`: what an earlier check of the caller's said; it is
    answered as it is."""

    resource: Resource
    operations: list[tuple[str, AssociationInfo | DeleteInfo]]
    error: Json | None = None

    def check(self, *, dry_run: bool) -> None:
        self.resource.check(dry_run=dry_run)
        _check_not_empty(self.operations)
        seen: set[str] = set()
        for operation, info in self.operations:
            if isinstance(info, DeleteInfo):
                info.check()
            else:
                info.check(creating=operation == CREATE)
            check_once(info.association_type, seen)
            if operation == CREATE and isinstance(info, AssociationInfo):
                AssociationRequest(self.resource).check_subject(info)


@dataclass(slots=True)
class GetRequest:
    """One question of a batch."""

    resource_name: str | None
    resource_namespace: str | None
    resource_id: str | None
    resource_type: str
    association_types: list[str]
    lifecycle: str | None


def check_frozen(lifecycle: str | None, frozen: bool) -> None:
    if frozen != (lifecycle == STRONG):
        raise errors.invalid(
            "frozen",
            f"association with lifecycle of {lifecycle} cannot be frozen={str(frozen).lower()}",
        )


def check_once(association_type: str, seen: set[str]) -> None:
    if association_type in seen:
        raise errors.invalid(
            "associationType",
            f"may only appear once per request, but '{association_type}' appears more than once",
        )
    seen.add(association_type)


def _check_not_empty(associations: list[Any]) -> None:
    if not associations:
        raise errors.invalid("associations", "cannot be null or empty")


def _check_name(name: str, property_name: str) -> None:
    if not name:
        raise errors.invalid(property_name, "cannot be null or empty")
    if len(name) > MAX_NAME_LENGTH:
        raise errors.invalid(property_name, f"exceeds max length of {MAX_NAME_LENGTH}")
    for char in name:
        if not char.isalnum() and char not in "_-":
            raise errors.invalid(property_name, f"illegal character '{char}'")


def _check_subject(subject: str) -> None:
    if not subject or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in subject):
        raise errors.invalid("subject", "must not be empty")


# Bodies


def association_request(body: Any) -> AssociationRequest:
    body = json_object(body)
    return AssociationRequest(_resource(body), [_info(one) for one in _objects(body, "associations")])


def batch_request(body: Any) -> list[OperationsRequest]:
    requests = _objects(json_object(body), "requests")
    _check_requests(requests)
    return [
        OperationsRequest(
            _resource(one),
            [_operation(each) for each in _objects(one, "associations")],
            optional(one, "error", dict),
        )
        for one in requests
    ]


def batch_get_request(body: Any) -> list[GetRequest]:
    requests = _objects(json_object(body), "requests")
    _check_requests(requests)
    return [
        GetRequest(
            optional(one, "resourceName", str) or None,
            optional(one, "resourceNamespace", str) or None,
            optional(one, "resourceId", str) or None,
            optional(one, "resourceType", str) or TOPIC,
            [str(each) for each in optional(one, "associationTypes", list) or ()],
            lifecycle_of(optional(one, "lifecycle", str)),
        )
        for one in requests
    ]


def _check_requests(requests: list[Json]) -> None:
    if not requests:
        raise errors.invalid("requests", "cannot be null or empty")


def _objects(body: Json, name: str) -> list[Json]:
    found = optional(body, name, list) or []
    if not all(isinstance(one, dict) for one in found):
        raise http_error(400, f"{name}: expected objects")
    return list(found)


def _resource(body: Json) -> Resource:
    return Resource(
        optional(body, "resourceName", str) or "",
        optional(body, "resourceNamespace", str) or "",
        optional(body, "resourceId", str),
        optional(body, "resourceType", str) or TOPIC,
    )


def _info(body: Json) -> AssociationInfo:
    schema = optional(body, "schema", dict)
    return AssociationInfo(
        optional(body, "subject", str),
        optional(body, "associationType", str) or "value",
        lifecycle_of(optional(body, "lifecycle", str)),
        optional(body, "frozen", bool),
        None if schema is None else schema_request(schema),
        bool(optional(body, "normalize", bool)),
    )


def _operation(body: Json) -> tuple[str, AssociationInfo | DeleteInfo]:
    operation = optional(body, "opType", str)
    if operation not in (CREATE, UPSERT, DELETE):
        raise http_error(400, f"opType: expected CREATE, UPSERT or DELETE, found {operation}")
    if operation == DELETE:
        association_type = optional(body, "associationType", str) or "value"
        return operation, DeleteInfo(association_type, bool(optional(body, "cascadeLifecycle", bool)))
    return operation, _info(body)


def lifecycle_of(text: str | None) -> str | None:
    if text is not None and text not in LIFECYCLES:
        raise http_error(400, f"lifecycle: expected STRONG or WEAK, found {text}")
    return text
