"""PLAIN (RFC 4616): authorization id, user and password, separated by NULs.

A user comes from the listener's JAAS text, is an API key with its secret, or has a SCRAM credential that the
password fits. The authorization id must be empty or the user.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping

from millstream.broker.login.credentials import CredentialStore
from millstream.broker.login.mechanism import Identity, LoginRefused, Step, Work

WRONG = "Authentication failed: Invalid username or password"
MAX_PASSWORD = 4096  # bytes: hashing a longer one is an attack


class Plain:
    def __init__(self, users: Mapping[str, str], store: CredentialStore) -> None:
        self._users = users
        self._store = store

    def respond(self, message: bytes) -> Step | Work:
        try:
            authorization_id, user, password = message.decode().split("\0")
        except ValueError:
            raise LoginRefused(
                "Invalid SASL/PLAIN response: expected 3 tokens, the message has others"
            ) from None
        if not user:
            raise LoginRefused("Authentication failed: username not specified")
        if not password:
            raise LoginRefused("Authentication failed: password not specified")
        if authorization_id not in ("", user):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if len(password) > MAX_PASSWORD:
            raise LoginRefused(WRONG, f"{user!r}: a password of {len(password)} characters")
        known = self._users.get(user)
        if known is not None:
            if hmac.compare_digest(known.encode(), password.encode()):
                return Step(b"", Identity(f"User:{user}"))
            return Work(lambda: self._refuse(password, f"wrong password of {user!r}"))
        key = self._store.api_key(user)
        if key is not None:
            fits = hmac.compare_digest(hashlib.sha256(password.encode()).hexdigest(), key.secret_hash)
            if fits and not 0 <= key.expires_ms <= time.time() * 1000:
                expires = key.expires_ms / 1000 if key.expires_ms >= 0 else None
                return Step(b"", Identity(f"User:{key.account_id}", ("api_keys", user), expires))
            return Work(lambda: self._refuse(password, f"wrong secret of API key {user!r}"))
        return Work(lambda: self._by_store(user, password))

    def _refuse(self, password: str, reason: str) -> Step:
        """After as long as a user takes that there is not: the time would tell them apart."""
        self._store.check_password("", password)
        raise LoginRefused(WRONG, reason)

    def _by_store(self, user: str, password: str) -> Step:
        credential = self._store.check_password(user, password)
        if credential is None:
            raise LoginRefused(WRONG, f"unknown user or wrong password: {user!r}")
        return Step(b"", Identity(f"User:{user}", credential))
