"""Who may do what: the verdict of Kafka's StandardAuthorizer, and the table of what each API needs.

A super user may do everything. For anybody else all bindings are looked at whose pattern fits the resource
(its name, a prefix of it, or `*`), whose principal is his or `User:*`, and whose host is his or `*`: a DENY
of the operation, or of ALL, forbids it; otherwise an ALLOW permits it. ALLOW of READ, WRITE, DELETE or ALTER
permits DESCRIBE too, and of ALTER_CONFIGS also DESCRIBE_CONFIGS; DENY implies nothing. If nothing of this
speaks, the answer is no, unless no binding at all is for this resource and `allow.everyone.if.no.acl.found`
is set.

`AclIndex` decides, from bindings alone. `Authorizer` is what handlers ask: it remembers verdicts until the
bindings change, and writes the audit log. Where none is configured nobody asks. Nor do the fast paths of
Produce and Fetch: they serve requests like those that the full path has allowed, and forget them when a
binding changes (`MetadataPublisher`).
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from millstream.wire.acls import (
    ANY_PRINCIPAL,
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from millstream.broker.audit.log import Audit
    from millstream.broker.network.dispatch import Call

logger = logging.getLogger("kafka.authorizer.logger")

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "millstream",
)
MAX_VERDICTS = 20_000  # remembered
MAX_NAME = 256  # of a resource; a verdict on a longer name is not remembered, and the log gets its beginning
SOME_RESOURCE = "\0"  # in the place of a name
MAX_AUDIT_KEYS = 10_000  # different lines within a second

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
DELEGATION_TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)

_IMPLIED_BY = {
    DESCRIBE: frozenset((DESCRIBE, READ, WRITE, DELETE, ALTER)),
    DESCRIBE_CONFIGS: frozenset((DESCRIBE_CONFIGS, ALTER_CONFIGS)),
}

# What a client needs for each API that is served; whoever adds one says here what it needs. The handlers
# ask; a test holds their answers against Kafka's for every right alone, and compares this table with the
# APIs.
NEEDS: dict[int, tuple[tuple[Operation, ResourceType], ...]] = {
    0: ((WRITE, TOPIC), (WRITE, TRANSACTIONAL_ID)),  # Produce; the id where the request has one
    1: ((READ, TOPIC), (CLUSTER_ACTION, CLUSTER)),  # Fetch; the latter for followers
    2: ((DESCRIBE, TOPIC),),  # ListOffsets
    3: ((DESCRIBE, TOPIC), (CREATE, CLUSTER), (CREATE, TOPIC)),  # Metadata; CREATE to create
    8: ((READ, GROUP), (READ, TOPIC)),  # OffsetCommit
    9: ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),  # OffsetFetch
    10: ((DESCRIBE, GROUP), (DESCRIBE, TRANSACTIONAL_ID)),  # FindCoordinator, by the type of its key
    11: ((READ, GROUP),),  # JoinGroup
    12: ((READ, GROUP),),  # Heartbeat
    13: ((READ, GROUP),),  # LeaveGroup
    14: ((READ, GROUP),),  # SyncGroup
    15: ((DESCRIBE, GROUP),),  # DescribeGroups
    16: ((DESCRIBE, CLUSTER), (DESCRIBE, GROUP)),  # ListGroups: all, or some
    17: (),  # SaslHandshake
    18: (),  # ApiVersions
    19: (
        (CREATE, CLUSTER),
        (CREATE, TOPIC),
        (DESCRIBE_CONFIGS, TOPIC),
    ),  # CreateTopics; the last to see configs
    20: ((DELETE, TOPIC), (DESCRIBE, TOPIC), (DELETE, CLUSTER)),  # DeleteTopics
    21: ((DELETE, TOPIC),),  # DeleteRecords
    22: (  # InitProducerId: of a transaction, or IDEMPOTENT_WRITE or WRITE on any topic
        (WRITE, TRANSACTIONAL_ID),
        (Operation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID),
        (IDEMPOTENT_WRITE, CLUSTER),
        (WRITE, TOPIC),
    ),
    23: ((CLUSTER_ACTION, CLUSTER), (DESCRIBE, TOPIC)),  # OffsetForLeaderEpoch
    24: ((WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC), (CLUSTER_ACTION, CLUSTER)),  # AddPartitionsToTxn
    25: ((WRITE, TRANSACTIONAL_ID), (READ, GROUP)),  # AddOffsetsToTxn
    26: ((WRITE, TRANSACTIONAL_ID),),  # EndTxn
    27: ((ALTER, CLUSTER), (CLUSTER_ACTION, CLUSTER)),  # WriteTxnMarkers
    28: ((WRITE, TRANSACTIONAL_ID), (READ, GROUP), (READ, TOPIC)),  # TxnOffsetCommit
    29: ((DESCRIBE, CLUSTER),),  # DescribeAcls
    30: ((ALTER, CLUSTER),),  # CreateAcls
    31: ((ALTER, CLUSTER),),  # DeleteAcls
    32: ((DESCRIBE_CONFIGS, TOPIC), (DESCRIBE_CONFIGS, GROUP), (DESCRIBE_CONFIGS, CLUSTER)),
    33: ((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER)),  # AlterConfigs
    34: ((ALTER, CLUSTER),),  # AlterReplicaLogDirs
    35: ((DESCRIBE, CLUSTER),),  # DescribeLogDirs
    36: (),  # SaslAuthenticate
    37: ((ALTER, TOPIC),),  # CreatePartitions
    38: ((Operation.CREATE_TOKENS, USER),),  # CreateDelegationToken for somebody else
    39: (),  # RenewDelegationToken: owner or renewer
    40: (),  # ExpireDelegationToken: owner or renewer
    41: ((DESCRIBE, DELEGATION_TOKEN), (Operation.DESCRIBE_TOKENS, USER)),  # of others
    42: ((DELETE, GROUP),),  # DeleteGroups
    43: ((ALTER, CLUSTER),),  # ElectLeaders
    44: ((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER)),
    45: ((ALTER, CLUSTER),),  # AlterPartitionReassignments
    46: ((DESCRIBE, CLUSTER),),  # ListPartitionReassignments
    47: ((DELETE, GROUP), (READ, TOPIC)),  # OffsetDelete
    48: ((DESCRIBE_CONFIGS, CLUSTER),),  # DescribeClientQuotas
    49: ((ALTER_CONFIGS, CLUSTER),),  # AlterClientQuotas
    50: ((DESCRIBE, CLUSTER),),  # DescribeUserScramCredentials
    51: ((ALTER, CLUSTER),),  # AlterUserScramCredentials
    55: ((DESCRIBE, CLUSTER),),  # DescribeQuorum
    56: ((CLUSTER_ACTION, CLUSTER),),  # AlterPartition
    57: ((ALTER, CLUSTER),),  # UpdateFeatures
    58: ((CLUSTER_ACTION, CLUSTER),),  # Envelope
    60: ((DESCRIBE, CLUSTER),),  # DescribeCluster: only to see authorized operations
    61: ((READ, TOPIC),),  # DescribeProducers
    62: ((CLUSTER_ACTION, CLUSTER),),  # BrokerRegistration
    63: ((CLUSTER_ACTION, CLUSTER),),  # BrokerHeartbeat
    64: ((ALTER, CLUSTER),),  # UnregisterBroker
    65: ((DESCRIBE, TRANSACTIONAL_ID), (DESCRIBE, TOPIC)),  # DescribeTransactions
    66: ((DESCRIBE, TRANSACTIONAL_ID),),  # ListTransactions
    67: ((CLUSTER_ACTION, CLUSTER),),  # AllocateProducerIds
    68: ((READ, GROUP), (DESCRIBE, TOPIC)),  # ConsumerGroupHeartbeat
    69: ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),  # ConsumerGroupDescribe
    71: (),  # GetTelemetrySubscriptions
    72: (),  # PushTelemetry
    74: ((DESCRIBE_CONFIGS, CLUSTER),),  # ListConfigResources
    75: ((DESCRIBE, TOPIC),),  # DescribeTopicPartitions
}


Bindings = dict[AclBinding, None]  # thousands of one resource may go in one request
Patterns = dict[tuple[int, str], dict[str, Bindings]]  # type and name; principal


@lru_cache(maxsize=4096)
def host_address(host: str) -> str:
    """An IPv6 address in the one form that Java gives it (`0:0:0:0:0:0:0:1`), an IPv4 address within one as
    that; anything else as it is."""
    address, percent, zone = host.partition("%")
    if ":" not in address:
        return host
    try:
        found = IPv6Address(address)
    except ValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":")) + percent + zone


def is_same_host(acl_host: str, host: str) -> bool:
    """Whether a binding's host is the client's, however each is written. Without a zone it means all."""
    named, here = host_address(acl_host), host_address(host)
    return named == here or named == here.partition("%")[0]


class AclIndex:
    """Bindings, by resource and principal. A pure function of them: `verdict`."""

    def __init__(self, acls: Iterable[AclBinding], allow_by_default: bool = False) -> None:
        self.allow_by_default = allow_by_default
        self.acls: set[AclBinding] = set()
        self._literals: Patterns = {}
        self._prefixes: Patterns = {}
        self._lengths: dict[int, list[int]] = {}  # of the prefixes of a type, sorted
        for acl in acls:
            self.add(acl)

    def add(self, acl: AclBinding) -> None:
        if acl in self.acls:
            return
        self.acls.add(acl)
        key = (acl.resource_type, acl.name)
        if acl.pattern_type == PatternType.PREFIXED:
            table = self._prefixes
            lengths = self._lengths.setdefault(acl.resource_type, [])
            at = bisect_left(lengths, len(acl.name))
            if lengths[at : at + 1] != [len(acl.name)]:
                lengths.insert(at, len(acl.name))
        else:
            table = self._literals
        table.setdefault(key, {}).setdefault(acl.principal, {})[acl] = None

    def remove(self, acl: AclBinding) -> None:
        """A length without a prefix may stay: it costs a look."""
        if acl not in self.acls:
            return
        self.acls.discard(acl)
        key = (acl.resource_type, acl.name)
        table = self._prefixes if acl.pattern_type == PatternType.PREFIXED else self._literals
        bindings = table[key][acl.principal]
        del bindings[acl]
        if not bindings:
            del table[key][acl.principal]
            if not table[key]:
                del table[key]

    def _patterns(self, resource_type: int, name: str) -> Iterable[dict[str, Bindings]]:
        """The bindings of each pattern that fits, by principal."""
        found = self._literals.get((resource_type, name))
        if found is not None:
            yield found
        if name != WILDCARD:
            found = self._literals.get((resource_type, WILDCARD))
            if found is not None:
                yield found
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                break
            found = self._prefixes.get((resource_type, name[:length]))
            if found is not None:
                yield found

    def verdict(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> tuple[bool, AclBinding | None]:
        """Whether it is allowed, and the binding that says so; None where there is none."""
        implied_by = _IMPLIED_BY.get(operation, (operation,))  # type: ignore[call-overload]
        allowed: AclBinding | None = None
        any_fits = False
        for by_principal in self._patterns(resource_type, name):
            any_fits = True
            for who in (principal, ANY_PRINCIPAL):
                for acl in by_principal.get(who, ()):
                    if acl.host != WILDCARD and acl.host != host and not is_same_host(acl.host, host):
                        continue
                    if acl.permission == Permission.DENY:
                        if acl.operation in (operation, Operation.ALL):
                            return False, acl
                    elif acl.operation == Operation.ALL or acl.operation in implied_by:
                        allowed = acl
        if allowed is not None:
            return True, allowed
        return not any_fits and self.allow_by_default, None

    def on_some_resource(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of this type, whatever its name, on which it is allowed."""
        if self.verdict(principal, host, operation, resource_type, "hardcode")[0]:
            return True

        def patterns(table: Patterns, permission: int) -> set[str]:
            return {
                name
                for (kind, name), by_principal in table.items()
                if kind == resource_type
                and any(
                    acl.permission == permission
                    and (acl.host in (WILDCARD, host) or is_same_host(acl.host, host))
                    and acl.operation in (operation, Operation.ALL)
                    for who in (principal, ANY_PRINCIPAL)
                    for acl in by_principal.get(who, ())
                )
            }

        denied = patterns(self._literals, Permission.DENY)
        if WILDCARD in denied:
            return False
        allowed = patterns(self._literals, Permission.ALLOW)
        if WILDCARD in allowed:
            return True
        denied_prefixes = patterns(self._prefixes, Permission.DENY)

        def is_covered(name: str) -> bool:
            return any(name[:end] in denied_prefixes for end in range(1, len(name) + 1))

        return any(name not in denied and not is_covered(name) for name in allowed) or any(
            not is_covered(name) for name in patterns(self._prefixes, Permission.ALLOW)
        )


class Authorizer:
    """What handlers ask. `api_names` gives an API its name in the audit log."""

    def __init__(
        self,
        acls: Iterable[AclBinding],
        super_users: frozenset[str],
        allow_by_default: bool,
        api_names: Callable[[int], str],
    ) -> None:
        self.index = AclIndex(acls, allow_by_default)
        self.super_users = super_users
        self.denied = 0  # for the metrics
        self.audit: Audit | None = None
        self._api_names = api_names
        self._verdicts: dict[tuple[str, str, int, int, str], tuple[bool, AclBinding | None]] = {}
        self._logged: dict[tuple[object, ...], int] = {}
        self._logged_at = 0.0

    def change(self, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        for acl in removed:
            self.index.remove(acl)
        for acl in added:
            self.index.add(acl)
        self._verdicts.clear()

    def allows(
        self,
        principal: str,
        host: str,
        api: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        quiet: bool = False,
    ) -> bool:
        """`quiet` where a refusal is no attempt to do what is forbidden, but a filter."""
        key = (principal, host, operation, resource_type, name)
        found = self._verdicts.get(key)
        if found is None:
            if principal in self.super_users:
                found = True, None
            else:
                found = self.index.verdict(principal, host, operation, resource_type, name)
            if len(name) <= MAX_NAME:
                if len(self._verdicts) >= MAX_VERDICTS:
                    self._verdicts.clear()
                self._verdicts[key] = found
        allowed, acl = found
        if not quiet:
            if not allowed:
                self.denied += 1
                if self.audit is not None:
                    self.audit.denied(principal, host, operation, resource_type, name, self._api_names(api))
            if logger.isEnabledFor(logging.DEBUG if allowed else logging.INFO):
                self._log(allowed, principal, host, operation, resource_type, name, api, acl)
        return allowed

    def on_some_resource(self, call: Call, operation: Operation, resource_type: ResourceType) -> bool:
        """Remembered like a verdict, for it looks at all patterns of the type."""
        principal, host = call.principal, call.host
        if principal in self.super_users:
            return True
        key = (principal, host, operation, resource_type, SOME_RESOURCE)
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= MAX_VERDICTS:
                self._verdicts.clear()
            found = self.index.on_some_resource(principal, host, operation, resource_type), None
            self._verdicts[key] = found
        return found[0]

    def operations(self, call: Call, resource_type: ResourceType, name: str) -> int:
        """The operations that are allowed, as the bits of a response."""
        bits = 0
        for operation in OPERATIONS[resource_type]:
            if self.allows(call.principal, call.host, -1, operation, resource_type, name, quiet=True):
                bits |= 1 << operation
        return bits

    def _log(
        self,
        allowed: bool,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        api: int,
        acl: AclBinding | None,
    ) -> None:
        """One line in Kafka's words. Equal ones are written once a second."""
        name = name[:MAX_NAME]
        now = time.monotonic()
        if now - self._logged_at >= 1.0 or len(self._logged) > MAX_AUDIT_KEYS:
            self._logged_at = now
            self._logged.clear()
        key = (allowed, principal, host, operation, resource_type, name, api)
        times = self._logged[key] = self._logged.get(key, 0) + 1
        if times > 1:
            return
        if principal in self.super_users:
            rule = "SuperUser"
        elif acl is None:
            rule = "DefaultAllow" if allowed else "DefaultDeny"
        else:
            rule = f"MatchingAcl(acl={describe(acl)})"
        logger.log(
            logging.DEBUG if allowed else logging.INFO,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s "
            "for request = %s with resourceRefCount = 1 based on rule %s",
            printable(principal),
            "Allowed" if allowed else "Denied",
            operation.name,
            host,
            camel_case(resource_type.name),
            printable(name),
            self._api_names(api),
            rule,
        )


def describe(acl: AclBinding) -> str:
    return (
        f"StandardAcl(resourceType={ResourceType(acl.resource_type).name}, "
        f"resourceName={printable(acl.name)}, patternType={PatternType(acl.pattern_type).name}, "
        f"principal={printable(acl.principal)}, host={acl.host}, "
        f"operation={Operation(acl.operation).name}, permissionType={Permission(acl.permission).name})"
    )


def camel_case(name: str) -> str:
    """`TRANSACTIONAL_ID` as Kafka shows it: TransactionalId."""
    return "".join(word.capitalize() for word in name.split("_"))


def printable(text: str) -> str:
    """Names come from clients: a line stays one line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def super_users(text: str) -> frozenset[str]:
    """`User:a;User:b`, as in super.users."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


def may(
    authorizer: Authorizer | None,
    call: Call,
    operation: Operation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
    quiet: bool = False,
) -> bool:
    """For handlers: whether the client may; everybody may where there is no authorizer."""
    return authorizer is None or authorizer.allows(
        call.principal, call.host, call.codec.api, operation, resource_type, name, quiet
    )
