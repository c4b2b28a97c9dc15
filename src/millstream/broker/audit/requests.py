"""What the audit log says about a request: the resources that it names, and what became of it.

Only the requests that change something, and of those only names: never a value of a setting, a password, a
key or a token. Lists and texts are cut, as they come from clients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from millstream.broker.authorizer import camel_case
from millstream.wire.acls import Operation, PatternType, Permission, ResourceType
from millstream.wire.errors import ErrorCode

MAX_RESOURCES = 100
MAX_TEXT = 300
MAX_NODES = 10_000  # of a response that is searched for errors

CONFIG_TYPES = {
    2: "Topic",
    4: "Broker",
    8: "BrokerLogger",
    16: "ClientMetrics",
    32: "Group",
    101: "ServiceAccount",
    102: "ApiKey",
}
SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
REFUSALS = frozenset(
    (
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.delegation_token_authorization_failed,
        ErrorCode.delegation_token_request_not_allowed,
        ErrorCode.delegation_token_owner_mismatch,
    )
)


def _topics(request: Any) -> Iterator[str]:
    for topic in request.topics:
        yield f"Topic:{topic.name}"


def _deleted_topics(request: Any) -> Iterator[str]:
    """By name or by id, in two forms."""
    for topic in getattr(request, "topics", ()):
        yield f"Topic:{topic.name if topic.name is not None else topic.topic_id}"
    for name in getattr(request, "topic_names", ()):
        yield f"Topic:{name}"


def _acls(request: Any) -> Iterator[str]:
    for acl in request.creations:
        yield _acl(acl, acl.resource_name, acl.principal, acl.host, acl.resource_type)


def _acl_filters(request: Any) -> Iterator[str]:
    for acl in request.filters:
        yield _acl(
            acl, acl.resource_name_filter, acl.principal_filter, acl.host_filter, acl.resource_type_filter
        )


def _acl(acl: Any, name: str | None, principal: str | None, host: str | None, kind: int) -> str:
    """`ALLOW READ Topic:LITERAL:orders User:bob *`; `<any>` where a filter leaves it open."""
    pattern = getattr(acl, "resource_pattern_type", getattr(acl, "pattern_type_filter", 3))
    words = (
        _name(Permission, acl.permission_type),
        _name(Operation, acl.operation),
        f"{camel_case(_name(ResourceType, kind))}:{_name(PatternType, pattern)}:{_any(name)}",
        _any(principal),
        _any(host),
    )
    return " ".join(words)


def _name(kind: Any, number: int) -> str:
    found = kind._value2member_map_.get(number)
    return str(number) if found is None else str(found.name)


def _any(text: str | None) -> str:
    return "<any>" if text is None else text[:MAX_TEXT]


def _configs(request: Any) -> Iterator[str]:
    """With the names of the settings that change."""
    for resource in request.resources:
        kind = CONFIG_TYPES.get(resource.resource_type, str(resource.resource_type))
        names = ",".join(config.name[:MAX_TEXT] for config in islice(resource.configs, MAX_RESOURCES))
        yield f"{kind}:{resource.resource_name} {names}".rstrip()


def _quotas(request: Any) -> Iterator[str]:
    for entry in request.entries:
        entity = ",".join(
            f"{_any(part.entity_type)}={_default(part.entity_name)}"
            for part in islice(entry.entity, MAX_RESOURCES)
        )
        yield f"{entity} {','.join(_any(op.key) for op in islice(entry.ops, MAX_RESOURCES))}"


def _default(name: str | None) -> str:
    return "<default>" if name is None else name[:MAX_TEXT]


def _scram(request: Any) -> Iterator[str]:
    for change in chain(request.upsertions, request.deletions):
        yield f"User:{change.name} {SCRAM.get(change.mechanism, str(change.mechanism))}"


def _token(request: Any) -> Iterator[str]:
    owner = getattr(request, "owner_principal_name", None)
    if owner:
        yield f"{request.owner_principal_type}:{owner}"


def _offsets(request: Any) -> Iterator[str]:
    yield f"Group:{request.group_id}"
    yield from _topics(request)


def _elections(request: Any) -> Iterator[str]:
    for topic in request.topic_partitions or ():
        yield f"Topic:{topic.topic}"


def _moves(request: Any) -> Iterator[str]:
    for folder in islice(request.dirs, MAX_RESOURCES):  # each may be without topics
        yield from _topics(folder)


def _nothing(request: Any) -> Iterator[str]:
    """Renewing and expiring name a token by its secret."""
    return iter(())


RESOURCES: dict[int, Callable[[Any], Iterable[str]]] = {
    19: _topics,  # CreateTopics
    20: _deleted_topics,  # DeleteTopics
    21: _topics,  # DeleteRecords
    30: _acls,  # CreateAcls
    31: _acl_filters,  # DeleteAcls
    33: _configs,  # AlterConfigs
    34: _moves,  # AlterReplicaLogDirs
    37: _topics,  # CreatePartitions
    38: _token,  # CreateDelegationToken
    39: _nothing,  # RenewDelegationToken
    40: _nothing,  # ExpireDelegationToken
    42: lambda request: (f"Group:{name}" for name in request.groups_names),  # DeleteGroups
    43: _elections,  # ElectLeaders
    44: _configs,  # IncrementalAlterConfigs
    45: _topics,  # AlterPartitionReassignments
    47: _offsets,  # OffsetDelete
    49: _quotas,  # AlterClientQuotas
    51: _scram,  # AlterUserScramCredentials
    57: lambda request: (f"Feature:{each.feature}" for each in request.feature_updates),  # UpdateFeatures
    64: lambda request: (f"Broker:{request.broker_id}",),  # UnregisterBroker
}


def resources(api: int, request: Any) -> list[str]:
    return [text[:MAX_TEXT] for text in islice(RESOURCES[api](request), MAX_RESOURCES)]


def errors(answer: Any) -> list[ErrorCode]:
    """The different errors in a response, in order."""
    found: dict[ErrorCode, None] = {}
    nodes = [answer]
    seen = 0
    while nodes and seen < MAX_NODES:
        node = nodes.pop()
        seen += 1
        if isinstance(node, tuple):
            nodes += reversed(node)
        elif dataclasses.is_dataclass(node):
            for field in dataclasses.fields(node):
                value = getattr(node, field.name)
                if field.name == "error_code" and value != ErrorCode.none:
                    found[ErrorCode(value)] = None
                elif isinstance(value, tuple):
                    nodes.append(value)
    return list(found)


def verdict(found: list[ErrorCode]) -> str:
    if any(error in REFUSALS for error in found):
        return "denied"
    return "failed" if found else "allowed"
