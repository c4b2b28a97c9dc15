"""OAUTHBEARER (RFC 7628): the client shows a JSON Web Token (RFC 7519).

    client   n,a=authzid,^Aauth=Bearer TOKEN^Aextension=value^A^A
    server   nothing, or {"status":"invalid_token"}, which the client answers with ^A before it is refused

A token is believed if its signature fits a key of the configured JWKS (`jwks`), by an algorithm with public
keys, and its claims hold: exp in the future, nbf and iat in the past (give or take the clock skew), issuer
and audience as expected. An unsigned token (`alg` none) is believed only where the listener's
`sasl.server.callback.handler.class` names Kafka's unsecured validator: for development. The options of that
validator (`unsecuredValidatorRequiredScope` and so on, in the JAAS text) apply to it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.broker.login.mechanism import Identity, LoginRefused, Step, Work

_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01", re.DOTALL
)
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
MAX_TOKEN = 64 * 1024


class InvalidToken(ValueError):
    """Why a token is not believed, for the log: it names no part of the token but its claims."""

    answer = '{"status":"invalid_token"}'


class InsufficientScope(InvalidToken):
    """The token is right, but lacks a scope that the listener asks for."""

    def __init__(self, missing: str, required: tuple[str, ...]) -> None:
        super().__init__(f"it lacks the scope {missing!r}")
        # Java's way to print a list: clients show it to their users.
        self.answer = json.dumps({"status": "insufficient_scope", "scope": f"[{', '.join(required)}]"})


class Verifier(Protocol):
    """Whether a signature is right."""

    def verify(self, header: dict[str, Any], signed: bytes, signature: bytes) -> None:
        """InvalidToken if it is not."""


class Unsecured:
    def verify(self, header: dict[str, Any], signed: bytes, signature: bytes) -> None:
        if header.get("alg") != "none" or signature:
            raise InvalidToken("this listener takes unsigned tokens only (alg none)")


@dataclass(frozen=True, slots=True)
class Expected:
    """What the claims of a token must be."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    skew: float = 30  # seconds
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    scopes: tuple[str, ...] = ()  # all of them

    @classmethod
    def unsecured(cls, options: Mapping[str, str]) -> Expected:
        """What Kafka's unsecured validator expects, by the options of its JAAS text."""

        def option(name: str, default: str) -> str:
            return options.get(f"unsecuredValidator{name}", "").strip() or default

        milliseconds = option("AllowableClockSkewMs", "0")
        if not re.fullmatch("[0-9]{1,9}", milliseconds):
            raise ValueError(f"unsecuredValidatorAllowableClockSkewMs={milliseconds} is not a number of ms")
        return cls(
            skew=int(milliseconds) / 1000,
            subject_claim=option("PrincipalClaimName", "sub"),
            scope_claim=option("ScopeClaimName", "scope"),
            scopes=tuple(option("RequiredScope", "").split()),
        )


class OAuthBearer:
    def __init__(
        self, verifier: Verifier, expected: Expected, clock: Callable[[], float] = time.time
    ) -> None:
        self._verifier = verifier
        self._expected = expected
        self._clock = clock
        self._refusal: LoginRefused | None = None

    def respond(self, message: bytes) -> Step | Work:
        if self._refusal is not None:
            raise self._refusal
        found = _FIRST.fullmatch(message.decode("utf-8", "replace"))
        if found is None:
            raise LoginRefused("Invalid OAUTHBEARER client first message")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        scheme, _, token = pairs.get("auth", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise LoginRefused("Invalid OAUTHBEARER client first message: 'auth' not specified")
        authorization_id = found["authzid"] or ""
        return Work(lambda: self._check(token, authorization_id))

    def _check(self, token: str, authorization_id: str) -> Step:
        try:
            user, expires = check_token(token, self._verifier, self._expected, self._clock())
        except InvalidToken as error:
            self._refusal = LoginRefused(error.answer, f"token refused: {error}")
            return Step(error.answer.encode())
        if authorization_id not in ("", user):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name"
            )
        return Step(b"", Identity(f"User:{user}", None, expires))


def check_token(token: str, verifier: Verifier, expected: Expected, now: float) -> tuple[str, float]:
    """The user that a token names, and until when. InvalidToken if it is not to be believed."""
    if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
        raise InvalidToken("not a JSON Web Token")
    head, body, tail = token.split(".")
    header, claims = _json(head), _json(body)
    if "crit" in header:
        raise InvalidToken("it has header parameters that must be understood (crit)")
    verifier.verify(header, f"{head}.{body}".encode(), _decoded(tail))
    expires = _number(claims, "exp", required=True)
    if expires + expected.skew <= now:
        raise InvalidToken(f"it expired {now - expires:.0f} s ago")
    for name in ("nbf", "iat"):
        if _number(claims, name) - expected.skew > now:
            raise InvalidToken(f"its {name} is in the future: compare the clocks")
    if expected.issuer and claims.get("iss") != expected.issuer:
        raise InvalidToken(f"the issuer is {_shown(claims.get('iss'))}, not the expected one")
    if expected.audiences:
        given = claims.get("aud")
        audiences = given if isinstance(given, list) else [given]
        if not any(audience in expected.audiences for audience in audiences):
            raise InvalidToken(f"the audience is {_shown(given)}, not an expected one")
    user = claims.get(expected.subject_claim)
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"it has no claim {expected.subject_claim!r} that names a user")
    if expected.scopes:
        given = claims.get(expected.scope_claim)
        scopes = given if isinstance(given, list) else given.split() if isinstance(given, str) else []
        for scope in expected.scopes:
            if scope not in scopes:
                raise InsufficientScope(scope, expected.scopes)
    return user, expires


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("a part of it is not base64") from None


def _json(part: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(part))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidToken("a part of it is not a JSON object")
    return found


def _number(claims: dict[str, Any], name: str, required: bool = False) -> float:
    value = claims.get(name)
    if value is None and not required:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise InvalidToken(f"its {name} is missing or not a number")
    return float(value)


def _shown(value: object) -> str:
    return repr(value)[:100]
