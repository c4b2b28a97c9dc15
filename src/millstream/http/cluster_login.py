"""Callers of an HTTP service are users of the cluster: name and password, API key and secret, a token, or a
client certificate (`certificate_callers`).

Who somebody is, the brokers alone know, so a service finds out by logging in as the caller. What a login
found is believed for a second (BELIEVED): a key that was deleted is refused within that time, and a caller
who sends a thousand requests a second costs one login. The same connection asks what the caller may do with
the cluster.

Guessing is limited by the caller's address. Each kind of login has a few threads and a queue with a bound:
one for callers whom the service knows, one for all others, so that those who guess hold up nobody who is at
work. A login that cannot be checked, because no broker answers, is no login.

A password is tried once by each mechanism that the listener offers, first by those that do not show it to
the broker; SaslHandshake says which there are before anything is sent. What worked is tried first the next
time. PLAIN, which shows the password to everybody on the way, is left out where there is no TLS, unless the
service logs in by it too, or is told to.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import os
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from millstream.client import ClientConfig, Connection
from millstream.client.errors import Unreachable, check
from millstream.client.sasl import MechanismNotOffered
from millstream.client.security import OAUTHBEARER, Sasl
from millstream.http.certificate_callers import SCRAM, CertificateCallers, NotAllowed, NotAUser
from millstream.http.login_failures import LoginFailures, TooManyTries, network
from millstream.wire.acls import Operation
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

BELIEVED = 1.0  # seconds for which the result of a login counts
KNOWN = 300.0  # seconds without a request after which a caller is a stranger again
MAX_KNOWN = 1000
MAX_WAITING = 64  # logins of strangers that are under way or wait
THREADS = 8
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 10.0
DELEGATION = "Delegation"  # our scheme of the Authorization header: id and HMAC of a token, as in Basic
LONGEST = 4096  # characters of a password, or of a user's name
LONGEST_TOKEN = 1 << 16
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
API_KEY = re.compile("[0-9A-F]{16}")  # ours log in by PLAIN alone
OFFERED_SECONDS = 300.0  # after that a mechanism that was not offered is asked for again
MAX_REMEMBERED = 10_000  # callers whose mechanism is known
PASSWORD, TOKEN, BY_CERTIFICATE, DELEGATED = "password", "token", "certificate", "delegation token"


class LoginRefused(Exception):
    """Wrong password, unknown user, deleted key, expired token: nobody is told which."""


class LoginNotChecked(Exception):
    """No broker could say who this is."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `key` stands for the credential without giving it away. The delegation tokens of
    one who comes by certificate replace each other; `lasting_key` stays the same."""

    name: str
    sasl: Sasl = field(repr=False)
    key: bytes = field(repr=False)
    cluster_operations: int
    _lasting: bytes = field(repr=False, default=b"")

    def may(self, operation: Operation) -> bool:
        """Whether the ACLs of the cluster (the resource of that name) allow it."""
        return bool(self.cluster_operations >> operation & 1)

    @property
    def lasting_key(self) -> bytes:
        return self._lasting or self.key

    @property
    def authorization(self) -> str:
        """The header by which another service of the platform knows the caller, too; empty where the one that
        came with the request does it."""
        if not self.sasl.delegated:
            return ""
        token = base64.b64encode(f"{self.sasl.username}:{self.sasl.password}".encode()).decode()
        return f"{DELEGATION} {token}"

    def config(self, service: ClientConfig) -> ClientConfig:
        """The configuration of a client that is the caller, made from the service's own."""
        return replace(service, sasl=self.sasl)


@dataclass(slots=True)
class _Known:
    caller: Caller
    until: float  # after that the login is checked again
    used: float


class ClusterLogin:
    """Checks logins. For one event loop."""

    def __init__(
        self,
        config: ClientConfig,
        failures_per_address: int = 20,
        *,
        mechanisms: Sequence[str] = (),
        mapping_rules: str | None = None,
    ) -> None:
        """ValueError if the cluster has no logins, as far as the service's settings say. `mechanisms` are
        tried in their order, also without TLS; `mapping_rules` lets callers come by certificate."""
        if not config.security_protocol.startswith("SASL"):
            raise ValueError(
                "callers can log in as users of the cluster only if the service reaches it by SASL_SSL or "
                "SASL_PLAINTEXT (security.protocol); for users of its own it needs authentication.user.file"
            )
        if config.tls is None or not (config.tls.certificate_file or config.tls.certificate_text):
            log.warning(
                "wrong passwords of callers count as failed logins of this machine at the broker "
                "(millstream.login.failures.per.address): give this service a client certificate, and the "
                "listener ssl.client.auth=requested"
            )
        self._config = replace(config, connect_timeout=CONNECT_SECONDS, request_timeout=ANSWER_SECONDS)
        self._per_address = failures_per_address
        self._failures = LoginFailures()
        self._secret = os.urandom(32)
        self._wanted = _mechanisms(config, mechanisms)
        self._not_offered: dict[str, float] = {}  # until when that is believed
        self._worked: OrderedDict[bytes, str] = OrderedDict()
        self.certificates: CertificateCallers | None = None
        if mapping_rules is not None:
            self.certificates = CertificateCallers(self._config, mapping_rules)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        self._checking: dict[bytes, asyncio.Task[Caller]] = {}
        self._waiting = 0
        self._under_way: Counter[str] = Counter()  # strangers' logins, by address
        self._strangers = ThreadPoolExecutor(THREADS, thread_name_prefix="login")
        self._acquaintances = ThreadPoolExecutor(THREADS, thread_name_prefix="login-again")
        self.on_refused: list[Callable[[Caller], None]] = []  # a caller who was known may no longer come in

    async def password(self, user: str, password: str, address: str) -> Caller:
        """The caller with that password or secret. LoginRefused, LoginNotChecked, or TooManyTries."""
        if not user or not password or "\0" in user + password or len(user) + len(password) > LONGEST:
            raise LoginRefused
        return await self._check(user, password, PASSWORD, address)

    async def token(self, token: str, address: str) -> Caller:
        """The same for a bearer token, which the broker checks (OAUTHBEARER)."""
        if not token or len(token) > LONGEST_TOKEN or not token.isascii() or not token.isprintable():
            raise LoginRefused
        return await self._check(subject_of(token), token, TOKEN, address)

    async def certificate(self, der: bytes, address: str) -> Caller:
        """The same for a client certificate that TLS has verified."""
        if self.certificates is None or not der:
            raise LoginRefused
        try:
            user = self.certificates.user(der)
        except NotAUser as error:
            log.info("a certificate names no user: %s", str(error)[:300])
            raise LoginRefused from None
        return await self._check(user, "", BY_CERTIFICATE, address)

    async def delegated(self, token_id: str, secret: str, address: str) -> Caller:
        """The same for a delegation token, with which services pass on those who came by certificate."""
        if self.certificates is None or not token_id or not secret or len(token_id) + len(secret) > LONGEST:
            raise LoginRefused
        return await self._check(token_id, secret, DELEGATED, address)

    async def _check(self, user: str, secret: str, kind: str, address: str) -> Caller:
        text = f"{kind}\0{user}\0{secret}".encode("utf-8", "surrogateescape")
        key = hmac.digest(self._secret, text, hashlib.sha256)
        now = time.monotonic()
        known = self._known.get(key)
        if known is not None and now - known.used > KNOWN:
            known = None
        if known is not None:
            known.used = now
            self._known.move_to_end(key)
            if known.until > now:
                return known.caller
        checking = self._checking.get(key)
        if checking is None:
            if known is None:
                self._admit(key, address, now, kind)
            checking = asyncio.ensure_future(self._log_in(key, user, secret, kind, address, known))
            self._checking[key] = checking
            checking.add_done_callback(lambda done: done.cancelled() or done.exception())
        # A caller who hangs up ends neither the check nor its count.
        return await asyncio.shield(checking)

    def _admit(self, key: bytes, address: str, now: float, kind: str) -> None:
        """Whether a stranger's login is tried at all. Those under way from one address are no more than may
        still turn out to be wrong; the others soon come again. Nobody guesses certificates."""
        if self._refused.get(key, 0.0) > now:
            raise LoginRefused
        subnet = network(address)
        if self._per_address and kind != BY_CERTIFICATE:
            wait = self._failures.seconds_to_wait(subnet, self._per_address)
            if wait:
                raise TooManyTries(wait)
            if self._under_way[subnet] >= max(1, self._per_address - self._failures.count(subnet)):
                raise TooManyTries(1)
        if self._waiting >= MAX_WAITING:
            raise TooManyTries(1)
        self._waiting += 1
        self._under_way[subnet] += 1

    async def _log_in(
        self, key: bytes, user: str, secret: str, kind: str, address: str, known: _Known | None
    ) -> Caller:
        began = time.monotonic()
        pool = self._strangers if known is None else self._acquaintances
        loop = asyncio.get_running_loop()
        try:
            caller = await loop.run_in_executor(pool, self._caller, key, user, secret, kind)
        except LoginRefused:
            if known is None and kind != BY_CERTIFICATE:
                self._failures.add(network(address))
            self._refuse(key, known)
            raise
        except KafkaError as error:
            log.warning("a login could not be checked: %s", error)
            raise LoginNotChecked(str(error)) from None
        finally:
            del self._checking[key]
            if known is None:
                self._waiting -= 1
                self._under_way -= Counter([network(address)])  # which forgets those without any
        self._known[key] = _Known(caller, began + BELIEVED, began)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return caller

    def _refuse(self, key: bytes, known: _Known | None) -> None:
        self._known.pop(key, None)
        self._refused[key] = time.monotonic() + BELIEVED
        if len(self._refused) > MAX_KNOWN:
            self._refused.popitem(last=False)
        if known is not None:
            for act in self.on_refused:
                act(known.caller)

    def forget(self, caller: Caller) -> None:
        """What was found about the caller no longer counts; the next request asks again."""
        for found in self._known.values():
            if found.caller.key == caller.key:
                found.until = 0.0

    def _caller(self, key: bytes, user: str, secret: str, kind: str) -> Caller:
        """In a thread."""
        if kind == BY_CERTIFICATE:
            return self._by_certificate(user)
        refused: KafkaError | None = None
        for sasl in self._logins(key, user, secret, kind):
            try:
                operations = self._operations(sasl)
            except MechanismNotOffered as error:
                until = time.monotonic() + OFFERED_SECONDS
                offered = frozenset(error.offered)
                self._not_offered |= {one: until for one in MECHANISMS if one not in offered}
                if refused is None or refused.code is not ErrorCode.sasl_authentication_failed:
                    refused = error
                continue
            except KafkaError as error:
                if error.code is not ErrorCode.sasl_authentication_failed:
                    raise
                refused = error
                continue
            self._remember(key, sasl.mechanism)
            return Caller(user, sasl, key, operations)
        if refused is None or kind == TOKEN or refused.code is ErrorCode.sasl_authentication_failed:
            raise LoginRefused
        raise refused

    def _logins(self, key: bytes, user: str, secret: str, kind: str) -> Iterator[Sasl]:
        """Each is made when the one before has failed: by then more is known of what the listener offers."""
        if kind == TOKEN:
            yield Sasl(OAUTHBEARER, user, secret)
            return
        delegated = kind == DELEGATED
        wanted = SCRAM if delegated else self._wanted
        first = self._worked.get(key) or ("PLAIN" if API_KEY.fullmatch(user) else "")
        all_known = all(self._not_offered.get(one, 0.0) > time.monotonic() for one in wanted)
        for mechanism in sorted(wanted, key=lambda one: one != first):
            if all_known or self._not_offered.get(mechanism, 0.0) <= time.monotonic():
                yield Sasl(mechanism, user, secret, delegated)

    def _remember(self, key: bytes, mechanism: str) -> None:
        self._worked[key] = mechanism
        if len(self._worked) > MAX_REMEMBERED:
            self._worked.popitem(last=False)

    def _by_certificate(self, user: str) -> Caller:
        assert self.certificates is not None
        try:
            sasl, operations = self.certificates.log_in(user, self._operations)
        except NotAllowed as error:
            log.warning("%s", error)
            raise LoginRefused from None
        except KafkaError as error:
            if error.code is ErrorCode.sasl_authentication_failed:
                raise LoginRefused from None
            raise
        # Clients that hold on to a token that was replaced are not those of the new one.
        key, lasting = (
            hmac.digest(self._secret, f"{kind}\0{name}".encode(), hashlib.sha256)
            for kind, name in (("delegated", sasl.username), (BY_CERTIFICATE, user))
        )
        return Caller(user, sasl, key, operations, lasting)

    def _operations(self, sasl: Sasl) -> int:
        """Log in; what the caller may do with the cluster, as a set of bits."""
        config = replace(self._config, sasl=sasl)
        unreachable: Unreachable | None = None
        for host, port in config.bootstrap:
            try:
                connection = Connection(config, host, port)
            except Unreachable as error:
                unreachable = error
                continue
            with connection:
                answer = connection.request(
                    "describe_cluster",
                    include_cluster_authorized_operations=True,
                    endpoint_type=1,
                    include_fenced_brokers=False,
                )
                check(answer.error_code, answer.error_message)
                return max(0, int(answer.cluster_authorized_operations))
        raise unreachable or Unreachable("no broker address is known")

    def close(self) -> None:
        for pool in (self._strangers, self._acquaintances):
            pool.shutdown(wait=False, cancel_futures=True)


def _mechanisms(config: ClientConfig, given: Sequence[str]) -> tuple[str, ...]:
    """ValueError for one that is not known, or if none is left."""
    wanted = tuple(one.strip().upper() for one in given if one.strip())
    for one in wanted:
        if one not in MECHANISMS:
            raise ValueError(f"authentication.sasl.mechanisms={one} is unknown: use {', '.join(MECHANISMS)}")
    if wanted:
        return wanted
    encrypted = config.security_protocol == "SASL_SSL"
    own = config.sasl.mechanism if config.sasl is not None else ""
    return tuple(one for one in MECHANISMS if one != "PLAIN" or encrypted or own == "PLAIN")


def subject_of(token: str) -> str:
    """Whom a token claims to name. The broker says whether that is true; until then it is for show only."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_"))
        found = claims.get("sub")
    except (IndexError, ValueError, AttributeError, RecursionError, binascii.Error):
        return "token"
    return found[:200] if isinstance(found, str) and found.isprintable() else "token"
