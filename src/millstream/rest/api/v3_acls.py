"""Version 3: ACLs, as far as the brokers have them. A broker without an authorizer says so."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from millstream.client import Cluster
from millstream.client.errors import describe
from millstream.rest import errors
from millstream.rest.api.links import Json, Links, links
from millstream.rest.api.responses import json_body, service_of, v3
from millstream.wire.errors import ErrorCode, KafkaError

router = APIRouter(prefix="/v3/clusters/{cluster_id}", tags=["v3 ACLs"])

# Kafka's numbers are the indexes of these lists.
RESOURCES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
PATTERNS = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
PERMISSIONS = ("UNKNOWN", "ANY", "DENY", "ALLOW")
OPERATIONS = (
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
)
CHOICES = {
    "resource_type": RESOURCES,
    "pattern_type": PATTERNS,
    "operation": OPERATIONS,
    "permission": PERMISSIONS,
}
TEXTS = ("resource_name", "principal", "host")
FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
Acl = dict[str, Any]


@router.get("/acls")
async def search_acls(cluster_id: str, request: Request) -> Response:
    """ACLs that fit the filter in the query."""
    shown = await links(request)
    wanted = _filter(request, "ANY")

    def query(cluster: Cluster) -> list[Acl]:
        answer = _request(cluster, "describe_acls", **_filter_fields(wanted))
        _check(answer.error_code, answer.error_message)
        return [
            _acl(one.resource_type, one.resource_name, one.pattern_type, each)
            for one in answer.resources
            for each in one.acls
        ]

    found = await service_of(request).kafka.run(query)
    address = f"{shown.url('acls')}?{urlencode(_query(wanted))}"
    data = [_shown(shown, one) for one in sorted(found, key=_order)]
    return v3({"kind": "KafkaAclList", "metadata": {"self": address, "next": None}, "data": data})


@router.post("/acls")
async def create_acl(cluster_id: str, request: Request) -> Response:
    """Create an ACL."""
    shown = await links(request)
    made = _new(await json_body(request, "Null input provided. Data is required."))
    await service_of(request).kafka.run(lambda cluster: _create(cluster, [made]))
    return Response(status_code=201, headers={"Location": f"{shown.url('acls')}?{urlencode(made)}"})


@router.post("/acls:batch")
async def create_acls(cluster_id: str, request: Request) -> Response:
    """Create several ACLs."""
    await links(request)
    body = await json_body(request, "Null input provided. Data is required.")
    if not isinstance(body, dict) or not isinstance(body.get("data"), list) or not body["data"]:
        raise errors.http_error(400, "the body must be a JSON object with a list `data`")
    made = [_new(one) for one in body["data"]]
    await service_of(request).kafka.run(lambda cluster: _create(cluster, made))
    return Response(status_code=201)


@router.delete("/acls")
async def delete_acls(cluster_id: str, request: Request) -> Response:
    """Delete the ACLs that fit the filter in the query, which has to name a resource type."""
    shown = await links(request)
    wanted = _filter(request, "UNKNOWN")

    def query(cluster: Cluster) -> list[Acl]:
        answer = _request(cluster, "delete_acls", filters=[_filter_fields(wanted)])
        found = []
        for result in answer.filter_results:
            _check(result.error_code, result.error_message)
            for one in result.matching_acls:
                _check(one.error_code, one.error_message)
                found.append(_acl(one.resource_type, one.resource_name, one.pattern_type, one))
        return found

    found = await service_of(request).kafka.run(query)
    return v3({"data": [_shown(shown, one) for one in sorted(found, key=_order)]})


def _request(cluster: Cluster, api: str, **fields: Any) -> Any:
    try:
        return cluster.persistently(lambda: cluster.controller().request(api, **fields))
    except KafkaError as error:
        if error.code is ErrorCode.unsupported_version:  # a broker that knows no ACLs at all
            raise KafkaError(ErrorCode.security_disabled, errors.NO_AUTHORIZER) from None
        raise


def _create(cluster: Cluster, acls: list[Acl]) -> None:
    creations = [
        {
            "resource_type": RESOURCES.index(one["resource_type"]),
            "resource_name": one["resource_name"],
            "resource_pattern_type": PATTERNS.index(one["pattern_type"]),
            "principal": one["principal"],
            "host": one["host"],
            "operation": OPERATIONS.index(one["operation"]),
            "permission_type": PERMISSIONS.index(one["permission"]),
        }
        for one in acls
    ]
    for result in _request(cluster, "create_acls", creations=creations).results:
        _check(result.error_code, result.error_message)


def _check(code: ErrorCode, message: str | None) -> None:
    if code is ErrorCode.security_disabled:
        raise KafkaError(code, message or errors.NO_AUTHORIZER)
    if code is not ErrorCode.none:
        raise KafkaError(code, describe(code, message))


def _new(body: Any) -> Acl:
    if not isinstance(body, dict):
        raise errors.http_error(400, "an ACL is a JSON object")
    if not body.keys() <= set(FIELDS):
        raise errors.unprocessable(f"Unrecognized field: {sorted(body.keys() - set(FIELDS))[0]}")
    made = {}
    for name in FIELDS:
        value = body.get(name)
        if not isinstance(value, str) or not value:
            raise errors.unprocessable(f"{name}: expected a string")
        made[name] = value
    for name, choices in CHOICES.items():
        made[name] = made[name].upper()
        if made[name] not in choices:
            raise errors.bad_request(f"{name}: {made[name]} is none of {', '.join(choices)}")
        if made[name] in ("UNKNOWN", "ANY", "MATCH"):
            raise errors.bad_request(f"{name} cannot be {made[name]}")
    return made


def _filter(request: Request, default: str) -> Acl:
    """From the query. What is not given matches anything, unless the default says that it has to be given."""
    query: Mapping[str, str] = request.query_params
    found: Acl = {name: query.get(name) or None for name in TEXTS}
    for name, choices in CHOICES.items():
        value = (query.get(name) or default).upper()
        if value not in choices:
            raise errors.not_found()
        if value == "UNKNOWN":
            unspecified = "unspecified or " if default == "UNKNOWN" else ""
            raise errors.bad_request(f"{name} cannot be {unspecified}UNKNOWN")
        found[name] = value
    return found


def _filter_fields(wanted: Acl) -> dict[str, Any]:
    return {
        "resource_type_filter": RESOURCES.index(wanted["resource_type"]),
        "resource_name_filter": wanted["resource_name"],
        "pattern_type_filter": PATTERNS.index(wanted["pattern_type"]),
        "principal_filter": wanted["principal"],
        "host_filter": wanted["host"],
        "operation": OPERATIONS.index(wanted["operation"]),
        "permission_type": PERMISSIONS.index(wanted["permission"]),
    }


def _acl(resource: int, name: str, pattern: int, one: Any) -> Acl:
    def text(names: tuple[str, ...], number: int) -> str:
        return names[number] if 0 <= number < len(names) else "UNKNOWN"

    return {
        "resource_type": text(RESOURCES, resource),
        "resource_name": name,
        "pattern_type": text(PATTERNS, pattern),
        "principal": one.principal,
        "host": one.host,
        "operation": text(OPERATIONS, one.operation),
        "permission": text(PERMISSIONS, one.permission_type),
    }


def _query(wanted: Acl) -> dict[str, str]:
    return {name: wanted[name] or "" for name in FIELDS}


def _order(one: Acl) -> tuple[str, ...]:
    return tuple(one[name] for name in FIELDS)


def _shown(shown: Links, one: Acl) -> Json:
    address = f"{shown.url('acls')}?{urlencode(_query(one))}"
    return {"kind": "KafkaAcl", "metadata": {"self": address}, "cluster_id": shown.cluster_id, **one}
