"""Commands to the controller about ACLs, quotas, delegation tokens and service accounts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millstream.cluster.commands import Command, Result
from millstream.cluster.security_records import QuotaEntity, Token
from millstream.wire.acls import AclBinding, AclFilter
from millstream.wire.errors import ErrorCode


@dataclass(slots=True, eq=False)
class CreateAcls(Command[list[Result]]):
    """A binding that exists is created once more without a record. Reply: one Result per binding."""

    bindings: Sequence[AclBinding]


class AclsDeleted(NamedTuple):
    """What one filter deleted, or why it deleted nothing."""

    deleted: Sequence[AclBinding] = ()
    error: ErrorCode = ErrorCode.none
    message: str | None = None


@dataclass(slots=True, eq=False)
class DeleteAcls(Command[list[AclsDeleted]]):
    """Reply: one AclsDeleted per filter. A binding that several filters match is in each of their results."""

    filters: Sequence[AclFilter]


class QuotaChange(NamedTuple):
    entity: QuotaEntity
    # (name, value); None removes.
    operations: Sequence[tuple[str, float | None]]


@dataclass(slots=True, eq=False)
class AlterQuotas(Command[list[Result]]):
    """Reply: one Result per change."""

    changes: Sequence[QuotaChange]
    validate_only: bool = False


@dataclass(slots=True, eq=False)
class CreateToken(Command[Token]):
    """Times are in ms; -1 for the longest lifetime allowed. `now_ms` is given in, since decisions read no
    clock."""

    token_id: str
    owner: str
    requester: str
    renewers: Sequence[str]
    now_ms: int
    lifetime_ms: int  # the broker's limit is in it already
    renew_ms: int


@dataclass(slots=True, eq=False)
class RenewToken(Command[int]):
    """Reply: when the token expires now."""

    token_id: str
    principal: str
    now_ms: int
    renew_ms: int


@dataclass(slots=True, eq=False)
class ExpireToken(Command[int]):
    """A negative period expires the token at once. Reply: when it expires now."""

    token_id: str
    principal: str
    now_ms: int
    period_ms: int


@dataclass(slots=True, eq=False)
class RemoveExpiredTokens(Command[int]):
    """Reply: how many went."""

    now_ms: int


@dataclass(slots=True, eq=False)
class AlterAccounts(Command[None]):
    """Create or delete service accounts and their API keys, all or none: `puts` are records, `removals` are
    ids by table ("accounts", "api_keys"). With an account go its keys."""

    accounts: Sequence[tuple[str, str, str]] = ()  # id, name, description
    keys: Sequence[tuple[str, str, str, int, int, str]] = ()  # fields of ApiKey
    removed_accounts: Sequence[str] = ()
    removed_keys: Sequence[str] = ()


QUOTA_KEYS: Mapping[str, str] = {
    "producer_byte_rate": "long",
    "consumer_byte_rate": "long",
    "request_percentage": "double",
    "controller_mutation_rate": "double",
}
IP_QUOTA_KEYS: Mapping[str, str] = {"connection_creation_rate": "int"}
