"""What administrators do about authorization: ACLs, quotas, tokens, service accounts and API keys."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.client.admin import DELETE, SET, Admin
from millstream.client.cluster import Cluster
from millstream.client.errors import check, describe
from millstream.wire.acls import AclBinding, AclFilter
from millstream.wire.errors import ErrorCode, KafkaError

Entity = tuple[tuple[str, str | None], ...]  # (user, client-id or ip; None for the default)
EXACT, DEFAULT, SPECIFIED = 0, 1, 2

# Resource types of our own, beside Kafka's.
SERVICE_ACCOUNT, API_KEY = 101, 102


class DelegationToken(NamedTuple):
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes


class ServiceAccount(NamedTuple):
    id: str
    name: str
    description: str


class ApiKey(NamedTuple):
    id: str
    account: str
    created_ms: int
    expires_ms: int
    description: str


class SecurityAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    # --- ACLs -----------------------------------------------------------------------------------------------

    def describe_acls(self, wanted: AclFilter) -> list[AclBinding]:
        answer = self._any("describe_acls", **_filter(wanted))
        check(answer.error_code, answer.error_message)
        return [
            AclBinding(
                int(resource.resource_type),
                str(resource.resource_name),
                int(getattr(resource, "pattern_type", 3)),
                str(acl.principal),
                str(acl.host),
                int(acl.operation),
                int(acl.permission_type),
            )
            for resource in answer.resources
            for acl in resource.acls
        ]

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """All of them; the first error is raised."""
        creations = [
            {
                "resource_type": acl.resource_type,
                "resource_name": acl.name,
                "resource_pattern_type": acl.pattern_type,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for acl in bindings
        ]
        for result in self._change("create_acls", "results", creations=creations).results:
            check(result.error_code, result.error_message)

    def delete_acls(self, filters: Iterable[AclFilter]) -> int:
        """How many were deleted."""
        answer = self._change("delete_acls", "filter_results", filters=[_filter(each) for each in filters])
        for result in answer.filter_results:
            check(result.error_code, result.error_message)
        return sum(len(result.matching_acls) for result in answer.filter_results)

    # --- quotas ---------------------------------------------------------------------------------------------

    def describe_quotas(
        self, components: Sequence[tuple[str, int, str | None]], strict: bool
    ) -> dict[Entity, dict[str, float]]:
        """Components are (type, EXACT | DEFAULT | SPECIFIED, name)."""
        answer = self._any(
            "describe_client_quotas",
            components=[
                {"entity_type": kind, "match_type": match_type, "match": match}
                for kind, match_type, match in components
            ],
            strict=strict,
        )
        check(answer.error_code, answer.error_message)
        return {
            tuple((str(part.entity_type), part.entity_name) for part in entry.entity): {
                str(value.key): float(value.value) for value in entry.values
            }
            for entry in answer.entries or ()
        }

    def alter_quotas(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """None removes."""
        answer = self._change(
            "alter_client_quotas",
            "entries",
            entries=[
                {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                    "ops": [
                        {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
                        for key, value in changes.items()
                    ],
                }
            ],
            validate_only=False,
        )
        for entry in answer.entries:
            check(entry.error_code, entry.error_message)

    # --- delegation tokens ----------------------------------------------------------------------------------

    def create_token(self, renewers: Sequence[str], max_lifetime_ms: int, owner: str) -> DelegationToken:
        """Principals are texts like `User:bob`; an empty owner is the caller."""
        kind, _, name = owner.partition(":")
        answer = self._any(
            "create_delegation_token",
            owner_principal_type=kind or None,
            owner_principal_name=name or None,
            renewers=[_principal(renewer) for renewer in renewers],
            max_lifetime=max_lifetime_ms,
        )
        check(answer.error_code)
        requester = f"{answer.principal_type}:{answer.principal_name}"
        if hasattr(answer, "token_requester_principal_name"):
            requester = f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
        return DelegationToken(
            str(answer.token_id),
            f"{answer.principal_type}:{answer.principal_name}",
            requester,
            tuple(renewers),
            _ms(answer.issue_timestamp),
            _ms(answer.expiry_timestamp),
            _ms(answer.max_timestamp),
            bytes(answer.hmac),
        )

    def renew_token(self, hmac: bytes, period_ms: int) -> int:
        answer = self._any("renew_delegation_token", hmac=hmac, renew_period=period_ms)
        check(answer.error_code)
        return _ms(answer.expiry_timestamp)

    def expire_token(self, hmac: bytes, period_ms: int) -> int:
        answer = self._any("expire_delegation_token", hmac=hmac, expiry_time_period=period_ms)
        check(answer.error_code)
        return _ms(answer.expiry_timestamp)

    def describe_tokens(self, owners: Sequence[str] | None) -> list[DelegationToken]:
        wanted = None if owners is None else [_principal(owner) for owner in owners]
        answer = self._any("describe_delegation_token", owners=wanted)
        check(answer.error_code)
        found = []
        for token in answer.tokens:
            owner = f"{token.principal_type}:{token.principal_name}"
            requester = owner
            if hasattr(token, "token_requester_principal_name"):
                requester = f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
            renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in token.renewers)
            found.append(
                DelegationToken(
                    str(token.token_id),
                    owner,
                    requester,
                    renewers,
                    int(token.issue_timestamp),
                    int(token.expiry_timestamp),
                    int(token.max_timestamp),
                    bytes(token.hmac),
                )
            )
        return found

    # --- service accounts (Millstream's own) ----------------------------------------------------------------

    def create_account(self, name: str, description: str) -> ServiceAccount:
        account = ServiceAccount(f"sa-{secrets.token_hex(4)}", name, description)
        self._put(SERVICE_ACCOUNT, account.id, {"name": name, "description": description})
        return account

    def accounts(self) -> list[ServiceAccount]:
        return [
            ServiceAccount(id, values.get("name", ""), values.get("description", ""))
            for id, values in self._all(SERVICE_ACCOUNT).items()
        ]

    def delete_account(self, id: str) -> None:
        self._delete(SERVICE_ACCOUNT, id, "name")

    def create_key(self, account: str, description: str, lifetime_seconds: int | None) -> tuple[ApiKey, str]:
        """The key and its secret, which is known only here: the broker is given its hash."""
        secret = secrets.token_urlsafe(32)
        now = int(time.time() * 1000)
        expires = -1 if lifetime_seconds is None else now + lifetime_seconds * 1000
        key = ApiKey(secrets.token_hex(8).upper(), account, now, expires, description)
        values = {
            "account": account,
            "secret.sha256": hashlib.sha256(secret.encode()).hexdigest(),
            "created.ms": str(now),
            "expires.ms": str(expires),
            "description": description,
        }
        self._put(API_KEY, key.id, values)
        return key, secret

    def api_keys(self) -> list[ApiKey]:
        return [
            ApiKey(
                id,
                values.get("account", ""),
                int(values.get("created.ms", "-1")),
                int(values.get("expires.ms", "-1")),
                values.get("description", ""),
            )
            for id, values in self._all(API_KEY).items()
        ]

    def delete_key(self, id: str) -> None:
        self._delete(API_KEY, id, "account")

    def _put(self, kind: int, id: str, values: Mapping[str, str]) -> None:
        self._alter(kind, id, [(name, SET, value) for name, value in values.items()])

    def _delete(self, kind: int, id: str, name: str) -> None:
        self._alter(kind, id, [(name, DELETE, None)])

    def _alter(self, kind: int, id: str, changes: list[tuple[str, int, str | None]]) -> None:
        problem = Admin(self.cluster).alter_configs({(kind, id): changes})[kind, id]
        if problem is not None:
            raise problem

    def _all(self, kind: int) -> dict[str, dict[str, str]]:
        admin = Admin(self.cluster)
        names = admin.config_resources(kind)
        found: dict[str, dict[str, str]] = {}
        for (_, name), entries in admin.describe_configs([(kind, name) for name in names]).items():
            if isinstance(entries, KafkaError):
                if entries.code is ErrorCode.resource_not_found:  # deleted meanwhile
                    continue
                raise entries
            found[name] = {entry.name: entry.value or "" for entry in entries}
        return found

    # --- inside ---------------------------------------------------------------------------------------------

    def _any(self, api: str, **fields: Any) -> Any:
        return self.cluster.persistently(lambda: self.cluster.any().request(api, **fields))

    def _change(self, api: str, results: str, **fields: Any) -> Any:
        """Asked again where the controller has moved."""

        def act() -> Any:
            answer = self.cluster.any().request(api, **fields)
            for result in getattr(answer, results):
                if result.error_code is ErrorCode.not_controller:
                    raise KafkaError(ErrorCode.not_controller, describe(result.error_code))
            return answer

        return self.cluster.persistently(act)


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _principal(text: str) -> dict[str, str]:
    kind, _, name = text.partition(":")
    return {"principal_type": kind, "principal_name": name}


def _ms(moment: Any) -> int:
    made: int = round(moment.timestamp() * 1000)
    return made
