"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677), the server's half.

    client   n,,n=user,r=nonce                      [,tokenauth=true]
    server   r=nonce+ours,s=salt,i=iterations
    client   c=biws,r=nonce+ours,p=proof
    server   v=signature

An unknown user gets a salt as well and fails at the proof, like a wrong password. With `tokenauth=true` the
user is a delegation token's id and the password its secret (KIP-48); the principal is the token's owner. A
token's id is enough where there is no user of that name, for clients that cannot send the extension
(librdkafka).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

from millstream.broker.login.credentials import HASHES, NUMBERS, Credential, CredentialStore, make_credential
from millstream.broker.login.mechanism import Identity, LoginRefused, Step, Work

_FIRST = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authzid>[^,]*))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]+)*))"
)
_FINAL = re.compile(
    r"(?P<proofless>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,]+)*),"
    r"p=(?P<proof>[A-Za-z0-9+/=]+)"
)
MAX_MESSAGE = 16 * 1024


class Scram:
    def __init__(self, mechanism: str, store: CredentialStore) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._store = store
        self._wrong = (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{mechanism}"
        )
        self._first: re.Match[str] | None = None
        self._credential: Credential | None = None
        self._identity: Identity | None = None  # None for a user that there is not
        self._server_first = ""
        self._nonce = ""
        self._user = ""

    def respond(self, message: bytes) -> Step | Work:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise LoginRefused("Invalid SCRAM message") from None
        if len(text) > MAX_MESSAGE:
            raise LoginRefused("Invalid SCRAM message")
        return self._begin(text) if self._first is None else self._finish(text)

    def _begin(self, text: str) -> Step | Work:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise LoginRefused("Invalid SCRAM client first message")
        self._first = found
        user = self._user = _unescaped(found["user"])
        if found["authzid"] and _unescaped(found["authzid"]) != user:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if ",tokenauth=true" in found["extensions"].lower():
            return self._begin_with_token(user)
        known = self._store.scram(user, self._mechanism)
        if known is None and self._store.token(user) is not None:
            return self._begin_with_token(user)
        if known is not None:
            self._identity = Identity(f"User:{user}", ("scram", (user, NUMBERS[self._mechanism])))
        return self._challenge(known or self._store.fake(user, self._mechanism))

    def _begin_with_token(self, token_id: str) -> Step | Work:
        """A token that there is not takes the same way as one that there is, with the same salt each time."""
        found = self._store.token(token_id)
        fake = self._store.fake(token_id, self._mechanism)
        if found is None:
            password = secrets.token_hex()
        else:
            password, principal, expires_ms = found
            self._identity = Identity(principal, ("tokens", token_id), expires_ms / 1000, by_token=True)
        return Work(
            lambda: self._challenge(make_credential(self._mechanism, password, fake.iterations, fake.salt))
        )

    def _challenge(self, credential: Credential) -> Step:
        assert self._first is not None
        self._credential = credential
        self._nonce = self._first["nonce"] + secrets.token_urlsafe(24)
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return Step(self._server_first.encode())

    def _finish(self, text: str) -> Step:
        assert self._first is not None and self._credential is not None
        found = _FINAL.fullmatch(text)
        if found is None:
            raise LoginRefused("Invalid SCRAM client final message")
        try:
            proof = base64.b64decode(found["proof"], validate=True)
            channel = base64.b64decode(found["channel"], validate=True)
        except (binascii.Error, ValueError):
            raise LoginRefused("Invalid SCRAM client final message") from None
        if not hmac.compare_digest(found["nonce"], self._nonce) or channel != self._first["gs2"].encode():
            raise LoginRefused("Invalid client nonce in the final client message.")
        known = self._credential
        signed = ",".join((self._first["bare"], self._server_first, found["proofless"])).encode()
        signature = hmac.digest(known.stored_key, signed, self._hash)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), known.stored_key)
        if not right or len(proof) != len(signature) or self._identity is None:
            raise LoginRefused(self._wrong, f"unknown user or wrong password: {self._user!r}")
        server_signature = hmac.digest(known.server_key, signed, self._hash)
        return Step(b"v=" + base64.b64encode(server_signature), self._identity)


def _unescaped(name: str) -> str:
    """A name in which `=2C` is a comma and `=3D` an equals sign; any other equals sign is an error."""
    if re.search(r"=(?!2C|3D)", name):
        raise LoginRefused("Invalid username: " + "an equals sign must be written as =3D")
    return name.replace("=2C", ",").replace("=3D", "=")
