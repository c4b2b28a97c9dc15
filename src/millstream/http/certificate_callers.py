"""Callers by client certificate act on the cluster by delegation tokens.

A certificate proves to a service who somebody is, but the service cannot show it to a broker: the key is the
caller's. So the service asks the cluster, with its own login, for a token whose owner is the caller (KIP-48,
KIP-373; CREATE_TOKENS on the user), and logs in with that. Nothing of this is ours alone: Apache Kafka's
brokers do the same. A token is used for half of its life, which is short; it is never written anywhere.
"""

import base64
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from millstream.client import ClientConfig, Cluster
from millstream.client.security import Sasl
from millstream.client.security_admin import DelegationToken, SecurityAdmin
from millstream.settings.principal_mapping import NoRuleMatches, PrincipalMapping
from millstream.wire.certificate import read_certificate
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

CERTIFICATE = "millstream.certificate"  # in the scope of a request: the caller's, in DER
LIFETIME_MS = 3_600_000
MAX_TOKENS = 1000
PATIENCE_SECONDS = 10.0
SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")


class NotAUser(Exception):
    """The certificate names nobody, or is no longer good."""


class NotAllowed(Exception):
    """The cluster gives the service no token for this user."""


@dataclass(slots=True)
class _Held:
    token: DelegationToken
    until: float  # from then on another one is used


class CertificateCallers:
    """Who a certificate stands for, and the login of that user. `of` is for any thread."""

    def __init__(self, config: ClientConfig, rules: str = "DEFAULT") -> None:
        """InvalidSetting for rules that cannot be read."""
        self._config = replace(config, total_timeout=min(config.total_timeout, PATIENCE_SECONDS))
        self._mapping = PrincipalMapping(rules)
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}

    def user(self, der: bytes) -> str:
        """The name behind `User:`. A connection may be older than its certificate may get, so that is looked
        at with every request."""
        try:
            found = read_certificate(der)
            name = self._mapping.user(found.subject)
        except (NoRuleMatches, ValueError) as error:
            raise NotAUser(str(error)) from None
        if not name or found.not_after < time.time():
            raise NotAUser("expired" if name else "no name")
        return name

    def log_in(self, user: str, act: Callable[[Sasl], int]) -> tuple[Sasl, int]:
        """The login of a user, and what `act` made of it. One that the cluster no longer takes (an
        administrator has ended the token) is replaced once."""
        token = self._token(user)
        try:
            return self._log_in(token, act)
        except KafkaError as error:
            if error.code is not ErrorCode.sasl_authentication_failed:
                raise
        self._drop(user, token)
        return self._log_in(self._token(user), act)

    def _log_in(self, token: DelegationToken, act: Callable[[Sasl], int]) -> tuple[Sasl, int]:
        from millstream.client.sasl import MechanismNotOffered

        secret = base64.b64encode(token.hmac).decode()
        refused: KafkaError | None = None
        for mechanism in SCRAM:
            sasl = Sasl(mechanism, token.token_id, secret, delegated=True)
            try:
                return sasl, act(sasl)
            except MechanismNotOffered as error:
                refused = error
        assert refused is not None
        raise refused

    def _token(self, user: str) -> DelegationToken:
        with self._lock:
            held = self._held.get(user)
            if held is not None and held.until > time.monotonic():
                self._held.move_to_end(user)
                return held.token
            making = self._making.setdefault(user, threading.Lock())
        with making:
            with self._lock:
                held = self._held.get(user)
                if held is not None and held.until > time.monotonic():
                    return held.token
            try:
                token = self._make(user)
                life = max(0.0, (min(token.expires_ms, token.max_ms) - token.issued_ms) / 1000)
                with self._lock:
                    self._held[user] = _Held(token, time.monotonic() + life / 2)
                    self._held.move_to_end(user)
                    if len(self._held) > MAX_TOKENS:
                        self._held.popitem(last=False)
                return token
            finally:
                with self._lock:
                    self._making.pop(user, None)

    def _make(self, user: str) -> DelegationToken:
        with Cluster(self._config) as cluster:
            try:
                return SecurityAdmin(cluster).create_token([], LIFETIME_MS, f"User:{user}")
            except KafkaError as error:
                if error.code is ErrorCode.delegation_token_authorization_failed:
                    raise NotAllowed(
                        f"the cluster gives this service no delegation token for User:{user}: it needs "
                        "CreateTokens on that user, who is no super user"
                    ) from None
                if error.code is ErrorCode.sasl_authentication_failed:  # which is not the caller's
                    raise KafkaError(
                        ErrorCode.broker_not_available, f"this service cannot log in itself: {error}"
                    ) from None
                if error.code is ErrorCode.delegation_token_auth_disabled:
                    raise KafkaError(
                        error.code,
                        "callers by certificate need delegation tokens: set delegation.token.secret.key on "
                        "all brokers",
                    ) from None
                raise

    def _drop(self, user: str, token: DelegationToken) -> None:
        with self._lock:
            held = self._held.get(user)
            if held is not None and held.token is token:
                del self._held[user]
