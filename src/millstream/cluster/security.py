"""Decisions about access control lists, quotas, delegation tokens and service accounts."""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence

from millstream.cluster.commands import OK, ConfigChange, ConfigOp, Resource, Result
from millstream.cluster.context import Decision
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import Record
from millstream.cluster.security_commands import (
    IP_QUOTA_KEYS,
    QUOTA_KEYS,
    AclsDeleted,
    AlterAccounts,
    AlterQuotas,
    CreateAcls,
    CreateToken,
    DeleteAcls,
    ExpireToken,
    QuotaChange,
    RemoveExpiredTokens,
    RenewToken,
)
from millstream.cluster.security_records import (
    Account,
    AccountGone,
    Acl,
    AclGone,
    ApiKey,
    ApiKeyGone,
    Quota,
    Token,
    TokenGone,
)
from millstream.wire.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    enum_name,
)
from millstream.wire.errors import ErrorCode, KafkaError

MAX_ACLS = 100_000
MAX_QUOTAS = 100_000  # entities
MAX_TOKENS = 100_000
MAX_ACCOUNTS = 10_000
MAX_API_KEYS = 100_000
MAX_RECORDS_PER_COMMAND = 10_000  # as in Kafka
MAX_FILTERS = 1000  # in one DeleteAcls: each is held against all ACLs
MAX_FOUND = 100_000  # by all filters of one DeleteAcls together: each answers with what it found
MAX_RENEWERS, MAX_PRINCIPAL = 100, 512  # of a token; of characters

ENTITY_TYPES = ("user", "client-id", "ip")
_LIMITS = {"long": (2**63 - 1, "a LONG"), "int": (2**31 - 1, "an INT")}
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


# --- access control lists -----------------------------------------------------------------------------------


def create_acls(image: Image, command: CreateAcls) -> Decision:
    records: dict[AclBinding, Record] = {}
    replies: list[Result] = []
    for binding in command.bindings:
        wrong = _wrong_binding(binding)
        if wrong is None and binding not in image.acls and binding not in records:
            if len(image.acls) + len(records) >= MAX_ACLS:
                wrong = f"there are {MAX_ACLS} ACLs already, the most that are kept; use prefixed patterns"
            elif len(records) >= MAX_RECORDS_PER_COMMAND:
                wrong = f"more than {MAX_RECORDS_PER_COMMAND} ACLs in one request"
            else:
                records[binding] = Acl(*binding)
        replies.append(OK if wrong is None else Result(ErrorCode.invalid_request, wrong))
    return Decision(list(records.values()), replies)


def _wrong_binding(acl: AclBinding) -> str | None:
    """Why a binding cannot be created, in Kafka's order of checks."""
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    for what, numbers, number, lowest in (
        ("resourceType", ResourceType, acl.resource_type, ResourceType.TOPIC),
        ("patternType", PatternType, acl.pattern_type, PatternType.LITERAL),
        ("operation", Operation, acl.operation, Operation.ALL),
        ("permissionType", Permission, acl.permission, Permission.DENY),
    ):
        if number < lowest or number not in numbers._value2member_map_:
            return f"Invalid {what} {enum_name(numbers, number)}"
    kind, colon, _ = acl.principal.partition(":")
    if not kind or not colon:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    return None


def delete_acls(image: Image, command: DeleteAcls) -> Decision:
    records: dict[AclBinding, Record] = {}
    replies: list[AclsDeleted] = []
    finder = _AclFinder(image)
    shown = 0
    for number, wanted in enumerate(command.filters):
        wrong = _wrong_filter(wanted)
        if number >= MAX_FILTERS:
            wrong = f"more than {MAX_FILTERS} filters in one request"
        if wrong is not None:
            replies.append(AclsDeleted((), ErrorCode.invalid_request, wrong))
            continue
        found = finder.find(wanted)
        new = {binding: AclGone(*binding) for binding in found if binding not in records}
        if len(records) + len(new) > MAX_RECORDS_PER_COMMAND or shown + len(found) > MAX_FOUND:
            message = f"Cannot remove more than {MAX_RECORDS_PER_COMMAND} acls in a single delete operation."
            replies.append(AclsDeleted((), ErrorCode.invalid_request, message))
            continue
        records.update(new)
        shown += len(found)
        replies.append(AclsDeleted(found))
    return Decision(list(records.values()), replies)


class _AclFinder:
    """What filters match. Most of them name a resource: they are not held against all ACLs, and equal ones
    are looked up once."""

    def __init__(self, image: Image) -> None:
        self._acls = image.acls
        self._found: dict[AclFilter, list[AclBinding]] = {}
        self._by_name: dict[str, list[AclBinding]] | None = None

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        found = self._found.get(wanted)
        if found is None:
            found = [binding for binding in self._candidates(wanted) if wanted.matches(binding)]
            self._found[wanted] = found
        return found

    def _candidates(self, wanted: AclFilter) -> Iterable[AclBinding]:
        if wanted.name is None or wanted.pattern_type == PatternType.MATCH:
            return self._acls
        if self._by_name is None:
            self._by_name = {}
            for binding in self._acls:
                self._by_name.setdefault(binding.name, []).append(binding)
        return self._by_name.get(wanted.name, ())


def _wrong_filter(wanted: AclFilter) -> str | None:
    if (
        not ResourceType.ANY <= wanted.resource_type <= ResourceType.USER
        or not PatternType.ANY <= wanted.pattern_type <= PatternType.PREFIXED
    ):
        return "Unknown patternFilter."
    if (
        not Operation.ANY <= wanted.operation <= Operation.TWO_PHASE_COMMIT
        or not Permission.ANY <= wanted.permission <= Permission.ALLOW
    ):
        return "Unknown entryFilter."
    return None


# --- quotas -------------------------------------------------------------------------------------------------


def alter_quotas(image: Image, command: AlterQuotas) -> Decision:
    records: list[Record] = []
    replies: list[Result] = []
    seen: set[object] = set()
    for change in command.changes:
        try:
            if change.entity in seen:
                raise _invalid("Ignoring duplicate entity")
            seen.add(change.entity)
            known = image.quotas.get(change.entity)
            old = known.values if known is not None else {}
            new = _new_quotas(change, old)
            if new != old:
                if known is None and len(image.quotas) + len(records) >= MAX_QUOTAS:
                    raise _invalid(f"there are {MAX_QUOTAS} entities with quotas, the most that are kept")
                if len(records) >= MAX_RECORDS_PER_COMMAND:
                    raise _invalid(f"more than {MAX_RECORDS_PER_COMMAND} entities in one request")
                records.append(Quota(change.entity, new))
            replies.append(OK)
        except KafkaError as problem:
            replies.append(Result(problem.code, problem.message))
    return Decision([] if command.validate_only else records, replies)


def _new_quotas(change: QuotaChange, old: Mapping[str, float]) -> dict[str, float]:
    keys = _quota_keys(change)
    new = dict(old)
    seen: set[str] = set()
    for name, value in change.operations:
        if name in seen:
            raise _invalid(f"Duplicate quota key {name} not updating quota for this entity")
        seen.add(name)
        if value is None:
            new.pop(name, None)
            continue
        if name not in keys:
            raise _invalid(f"Invalid configuration key {name}")
        if not value > 0.0:
            raise _invalid(f"Quota {name} must be greater than 0")
        if keys[name] != "double":
            maximum, called = _LIMITS[keys[name]]
            if value > maximum:
                raise _invalid(f"Proposed value for {name} is too large for {called}.")
            if abs(value % 1.0) > 1e-6:
                raise _invalid(f"{name} cannot be a fractional value.")
        new[name] = value
    return new


def _quota_keys(change: QuotaChange) -> Mapping[str, str]:
    types = [entity_type for entity_type, _ in change.entity]
    if not types:
        raise _invalid("Invalid empty client quota entity")
    for entity_type in types:
        if entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {entity_type}")
    if len(set(types)) < len(types):
        raise _invalid("Invalid client quota entity, duplicate entity entry")
    for _, name in change.entity:
        if name == "":
            raise _invalid("Empty entity name: a default is named by null")
    if "ip" not in types:
        return QUOTA_KEYS
    if len(types) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    name = change.entity[0][1]
    if name is not None and not _is_address(name):
        raise _invalid(f"{name} is not a valid IP or resolvable host.")
    return IP_QUOTA_KEYS


def _is_address(name: str) -> bool:
    """An address, or what looks like a host's name: the controller asks no name server."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return len(name) <= 253 and _HOST_NAME.fullmatch(name) is not None and not name[-1].isdigit()
    return True


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


# --- delegation tokens (KIP-48) -----------------------------------------------------------------------------


def create_token(image: Image, command: CreateToken) -> Decision:
    if len(command.renewers) > MAX_RENEWERS:
        raise _invalid(f"more than {MAX_RENEWERS} renewers")
    if max(map(len, (command.owner, command.requester, *command.renewers))) > MAX_PRINCIPAL:
        raise _invalid(f"the name of a principal is longer than {MAX_PRINCIPAL} characters")
    if len(image.tokens) >= MAX_TOKENS:
        raise _invalid(f"there are {MAX_TOKENS} delegation tokens, the most that are kept")
    max_ms = command.now_ms + command.lifetime_ms
    token = Token(
        command.token_id,
        command.owner,
        command.requester,
        tuple(command.renewers),
        command.now_ms,
        min(max_ms, command.now_ms + command.renew_ms),
        max_ms,
    )
    return Decision([token], token)


def _token_of(image: Image, token_id: str) -> Token:
    token = image.tokens.get(token_id)
    if token is None:
        raise KafkaError(ErrorCode.delegation_token_not_found)
    return token


def _check_renewer(token: Token, principal: str) -> None:
    """Who requested a token for somebody else is neither."""
    if principal not in (token.owner, *token.renewers):
        raise KafkaError(ErrorCode.delegation_token_owner_mismatch)


def _check_time(token: Token, now_ms: int) -> None:
    if token.max_ms < now_ms or token.expires_ms < now_ms:
        raise KafkaError(ErrorCode.delegation_token_expired)


def renew_token(image: Image, command: RenewToken) -> Decision:
    token = _token_of(image, command.token_id)
    _check_time(token, command.now_ms)
    _check_renewer(token, command.principal)
    expires = min(token.max_ms, command.now_ms + command.renew_ms)
    return Decision([token._replace(expires_ms=expires)], expires)


def expire_token(image: Image, command: ExpireToken) -> Decision:
    token = _token_of(image, command.token_id)
    _check_renewer(token, command.principal)
    if command.period_ms < 0:  # also of one that has expired and was not removed yet
        return Decision([TokenGone(token.token_id)], command.now_ms)
    _check_time(token, command.now_ms)
    expires = min(token.max_ms, command.now_ms + command.period_ms)
    return Decision([token._replace(expires_ms=expires)], expires)


def remove_expired_tokens(image: Image, command: RemoveExpiredTokens) -> Decision:
    gone = [
        TokenGone(token.token_id)
        for token in image.tokens.values()
        if min(token.max_ms, token.expires_ms) < command.now_ms
    ][:MAX_RECORDS_PER_COMMAND]
    return Decision(gone, len(gone))


# --- service accounts ---------------------------------------------------------------------------------------

ACCOUNT_SCOPES = ("service-account", "api-key")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")


def change_account(image: Image, resource: Resource, changes: Sequence[ConfigChange]) -> Sequence[Record]:
    """Accounts and keys as resources with settings: these are set when it is made, and one is deleted when it
    goes. Nothing else can be changed. KafkaError for what is wrong."""
    if _ID.fullmatch(resource.name) is None:
        raise _invalid("an id has 1 to 64 letters, digits, dashes and underscores")
    is_key = resource.scope == "api-key"
    if any(change.op == ConfigOp.DELETE for change in changes):
        gone = (resource.name,)
        command = AlterAccounts(removed_keys=gone) if is_key else AlterAccounts(removed_accounts=gone)
        return alter_accounts(image, command).records
    values = {change.name: change.value or "" for change in changes if change.op == ConfigOp.SET}
    if not is_key:
        account = (resource.name, values.get("name", ""), values.get("description", ""))
        return alter_accounts(image, AlterAccounts(accounts=[account])).records
    if _HASH.fullmatch(values.get("secret.sha256", "")) is None:
        raise _invalid("secret.sha256 has to be 64 hexadecimal digits")
    try:
        created, expires = (int(values.get(name, "-1")) for name in ("created.ms", "expires.ms"))
    except ValueError:
        raise _invalid("created.ms and expires.ms are numbers") from None
    account_id, secret_hash = values.get("account", ""), values["secret.sha256"]
    key = (resource.name, account_id, secret_hash, created, expires, values.get("description", "")[:1000])
    return alter_accounts(image, AlterAccounts(keys=[key])).records


def alter_accounts(image: Image, command: AlterAccounts) -> Decision:
    records: list[Record] = []
    names = {account.name for account in image.accounts.values()}
    for account_id, name, description in command.accounts:
        if not name or len(name) > 255 or len(description) > 1000:
            raise _invalid("a service account needs a name of 1 to 255 characters")
        if account_id in image.accounts or name in names:
            raise KafkaError(ErrorCode.duplicate_resource, f"service account {name!r} exists already")
        if len(image.accounts) >= MAX_ACCOUNTS:
            raise _invalid(f"there are {MAX_ACCOUNTS} service accounts, the most that are kept")
        names.add(name)
        records.append(Account(account_id, name, description))
    for key in command.keys:
        record = ApiKey(*key)
        if record.account_id not in image.accounts:
            raise KafkaError(ErrorCode.resource_not_found, f"no service account {record.account_id!r}")
        if record.key_id in image.api_keys:
            raise KafkaError(ErrorCode.duplicate_resource, "that key id is taken")
        if len(image.api_keys) >= MAX_API_KEYS:
            raise _invalid(f"there are {MAX_API_KEYS} API keys, the most that are kept")
        records.append(record)
    for account_id in command.removed_accounts:
        if account_id not in image.accounts:
            raise KafkaError(ErrorCode.resource_not_found, f"no service account {account_id!r}")
        keys = [key for key, record in image.api_keys.items() if record.account_id == account_id]
        records += [ApiKeyGone(key_id) for key_id in keys]
        records.append(AccountGone(account_id))
    for key_id in command.removed_keys:
        if key_id not in image.api_keys:
            raise KafkaError(ErrorCode.resource_not_found, f"no API key {key_id!r}")
        records.append(ApiKeyGone(key_id))
    return Decision(records)
