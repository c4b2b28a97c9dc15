"""The records of the metadata log about who may do what, and how much of it.

Each is the full value of one thing, or says that it is gone, so all of them are handled alike: `KINDS` says
in which table of the image a record belongs and what its key is. No secret is in them but SCRAM's
salted keys: of an API key there is a hash, of a delegation token nothing but its id.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from millstream.wire.acls import AclBinding

# (user, client-id or ip; name, None for the default), sorted.
QuotaEntity = tuple[tuple[str, str | None], ...]


class Acl(NamedTuple):
    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclGone(NamedTuple):
    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class Scram(NamedTuple):
    """What SCRAM (RFC 5802) keeps of a password, bytes in hex. `mechanism` is Kafka's number: 1 for SHA-256,
    2 for SHA-512. Nobody can log in with it, but guesses can be tried on it: it is a secret."""

    user: str
    mechanism: int
    salt: str
    stored_key: str
    server_key: str
    iterations: int


class ScramGone(NamedTuple):
    user: str
    mechanism: int


class Quota(NamedTuple):
    """All quotas of one entity; none when the last one is removed."""

    entity: QuotaEntity
    values: dict[str, float]


class Token(NamedTuple):
    """A delegation token (KIP-48). Principals are texts like `User:alice`."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


class TokenGone(NamedTuple):
    token_id: str


class Account(NamedTuple):
    """A service account; its principal is `User:<account id>`."""

    account_id: str
    name: str
    description: str = ""


class AccountGone(NamedTuple):
    account_id: str


class ApiKey(NamedTuple):
    """A key of a service account. `secret_hash` is the SHA-256 of the secret, in hex."""

    key_id: str
    account_id: str
    secret_hash: str
    created_ms: int
    expires_ms: int = -1
    description: str = ""


class ApiKeyGone(NamedTuple):
    key_id: str


SecurityRecord = (
    Acl
    | AclGone
    | Scram
    | ScramGone
    | Quota
    | Token
    | TokenGone
    | Account
    | AccountGone
    | ApiKey
    | ApiKeyGone
)


class Kind(NamedTuple):
    """`name` is the type in the log, `table` the attribute of the image."""

    name: str
    table: str
    key: Callable[[Any], Hashable]
    is_gone: Callable[[Any], bool]
    decode: Callable[..., SecurityRecord]


def _never(record: Any) -> bool:
    return False


def _always(record: Any) -> bool:
    return True


def _binding(record: Any) -> AclBinding:
    return AclBinding(*record)


def _first(record: Any) -> str:
    key: str = record[0]
    return key


def _user_and_mechanism(record: Any) -> tuple[str, int]:
    return record[0], record[1]


def _quota(entity: list[list[str | None]], values: dict[str, float]) -> Quota:
    return Quota(tuple((str(kind), name) for kind, name in entity), values)


def _token(token_id: str, owner: str, requester: str, renewers: list[str], *times: int) -> Token:
    return Token(token_id, owner, requester, tuple(renewers), *times)


KINDS: dict[type, Kind] = {
    Acl: Kind("acl", "acls", _binding, _never, Acl),
    AclGone: Kind("acl-gone", "acls", _binding, _always, AclGone),
    Scram: Kind("scram", "scram", _user_and_mechanism, _never, Scram),
    ScramGone: Kind("scram-gone", "scram", _user_and_mechanism, _always, ScramGone),
    Quota: Kind("quota", "quotas", lambda record: record.entity, lambda record: not record.values, _quota),
    Token: Kind("token", "tokens", _first, _never, _token),
    TokenGone: Kind("token-gone", "tokens", _first, _always, TokenGone),
    Account: Kind("account", "accounts", _first, _never, Account),
    AccountGone: Kind("account-gone", "accounts", _first, _always, AccountGone),
    ApiKey: Kind("api-key", "api_keys", _first, _never, ApiKey),
    ApiKeyGone: Kind("api-key-gone", "api_keys", _first, _always, ApiKeyGone),
}
TABLES = tuple(dict.fromkeys(kind.table for kind in KINDS.values()))
DECODERS = {kind.name: kind.decode for kind in KINDS.values()}


def plain(record: Any) -> list[Any]:
    return [KINDS[type(record)].name, *record]
