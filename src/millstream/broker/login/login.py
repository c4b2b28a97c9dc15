"""The login of one connection: who takes its frames until it is known who it is (KIP-43, 152, 368).

    HANDSHAKE     ApiVersions as often as the client likes, then SaslHandshake, which names a mechanism
    TOKENS        SaslAuthenticate, or, after SaslHandshake 0, the mechanism's messages as they are
    DONE          the dispatcher of all APIs takes the frames
    FAILED        the client has been told; the connection is closed after a pause

Anything else that a client sends before DONE closes the connection, as in Kafka; among TOKENS, ApiVersions
and SaslHandshake are told that they are out of place. On a connection that is logged in, SaslHandshake begins
a login anew: mechanism and principal must stay. A session that has a lifetime and did not log in again in
time is closed by its next request; a timer swaps who takes the frames, so that requests need not look at a
clock.

SaslHandshake 0-1
     1  messages come in SaslAuthenticate (KIP-152)
SaslAuthenticate 0-2
     1  how long the session lasts (KIP-368)
     2  flexible
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.broker.login.mechanism import Identity, LoginRefused, Mechanism, Step
from millstream.wire.errors import ErrorCode
from millstream.wire.messages import API_VERSIONS, Codec, body_start, codec
from millstream.wire.primitives import BAD_FRAME, INT32
from millstream.wire.varint import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.broker.login.listener_login import ListenerLogin
    from millstream.broker.network.connection import Connection

logger = logging.getLogger("millstream.login")

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
HIGHEST = {SASL_HANDSHAKE: 1, SASL_AUTHENTICATE: 2}
ALSO_ANSWERED = {API_VERSIONS: 4, SASL_HANDSHAKE: 1}  # answered where a SaslAuthenticate should come
TIMEOUT = 30.0  # seconds for a whole login
MAX_STEPS = 10  # messages of one login; no mechanism has more than three

HANDSHAKE, TOKENS, DONE, FAILED = "handshake", "tokens", "done", "failed"


class Session:
    """Somebody who has logged in."""

    __slots__ = ("_timer", "identity", "listener", "mechanism")

    def __init__(self, listener: ListenerLogin, mechanism: str, identity: Identity) -> None:
        self.listener = listener
        self.mechanism = mechanism
        self.identity = identity
        self._timer: asyncio.TimerHandle | None = None

    def expire_after(self, seconds: float, connection: Connection) -> None:
        self._timer = connection.loop.call_later(seconds, self._expired, connection)

    def _expired(self, connection: Connection) -> None:
        connection.front = ExpiredSession(self)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class ExpiredSession:
    """Takes the frames of a session whose time is over: it may log in again, nothing else."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def dispatch(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        if connection.front is not self:  # frames of one turn, after the first of them logged in
            connection.front.dispatch(connection, view, start, end)
            return
        if end - start >= 2 and int.from_bytes(view[start : start + 2], "big") == SASL_HANDSHAKE:
            log_in_again(connection, self._session, view, start, end)
            return
        self._session.listener.expired += 1
        connection.close()


def log_in_again(connection: Connection, session: Session, view: memoryview, start: int, end: int) -> None:
    """A SaslHandshake on a connection that is logged in."""
    login = Login(connection, session.listener, session)
    login.dispatch(connection, view, start, end)


class Login:
    def __init__(
        self, connection: Connection, listener: ListenerLogin, before: Session | None = None
    ) -> None:
        self.state = HANDSHAKE
        self._listener = listener
        self._before = before
        self.identity = None if before is None else before.identity  # who this connection is until then
        self._mechanism: Mechanism | None = None
        self._name = ""
        self._raw = False
        self._steps = 0
        self._timer = connection.loop.call_later(TIMEOUT, self._too_late, connection)
        if before is None:
            connection.use_context(listener.context_before)
        else:
            before.end()  # its time cannot run out in the middle of this; there is a limit on the whole
        connection.front = self
        connection.session = self

    def end(self) -> None:
        self._timer.cancel()

    def _too_late(self, connection: Connection) -> None:
        if self.state not in (DONE, FAILED):
            connection.close(f"not logged in within {TIMEOUT:g} s")

    # ------------------------------------------------------------------ frames

    def dispatch(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """Nothing that a client sends makes this raise."""
        if self.state == DONE:  # frames of one turn, behind the one that ended the login
            connection.front.dispatch(connection, view, start, end)
            return
        if self.state == FAILED:
            return
        try:
            if self.state == TOKENS and self._raw:
                self._token(connection, bytes(view[start:end]), self._raw_response(connection))
            else:
                self._request(connection, view, start, end)
        except BAD_FRAME as error:
            connection.dispatcher.malformed += 1
            connection.close(f"login cannot be served: {error}")
        except Exception:
            logger.exception("login from %s failed", connection.peer)
            connection.close("the login failed with an unexpected error, see above")

    def _request(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        frame = view[start:end]
        if len(frame) < 10:
            raise Malformed(f"a frame of {len(frame)} bytes is shorter than a request header")
        key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
        correlation_id = INT32.unpack_from(frame, 4)[0]
        size = int.from_bytes(frame[8:10], "big", signed=True)
        if key == API_VERSIONS and self.state == HANDSHAKE and self._before is None:
            connection.dispatcher.dispatch(connection, view, start, end)
            return
        if self.state == TOKENS and version in range(ALSO_ANSWERED.get(key, -1) + 1):
            form = codec(key, version)
            answer = form.answer(error_code=ErrorCode.illegal_sasl_state, api_keys=(), mechanisms=())
            connection.send(form.pack(correlation_id, answer))
            self._fail(connection, f"API {key} in the middle of a login")
            return
        if key != (SASL_HANDSHAKE if self.state == HANDSHAKE else SASL_AUTHENTICATE):
            raise Malformed(f"API {key} before the login is done")
        if not 0 <= version <= HIGHEST[key]:
            raise Malformed(f"version {version} of API {key} is not served here")
        form = codec(key, version)
        if size > 0:
            connection.client_id = str(frame[10 : 10 + size], "utf-8", "replace")
        request = form.read(frame, body_start(frame, size, form.flexible))
        if key == SASL_HANDSHAKE:
            self._handshake(connection, form, correlation_id, request.mechanism)
        else:
            self._token(
                connection, bytes(request.auth_bytes), _Authenticate(connection, form, correlation_id)
            )

    def _handshake(self, connection: Connection, form: Codec, correlation_id: int, mechanism: str) -> None:
        offered = self._listener.offered
        error = ErrorCode.none
        if mechanism not in offered:
            error = ErrorCode.unsupported_sasl_mechanism
        answer = form.answer(error_code=error, mechanisms=tuple(offered))
        connection.send(form.pack(correlation_id, answer))
        if error is not ErrorCode.none:
            self._fail(connection, f"SASL mechanism {mechanism[:40]!r} is not offered here")
            return
        if self._before is not None and mechanism != self._before.mechanism:
            self._fail(connection, f"another mechanism at re-authentication: {mechanism}")
            return
        self._name = mechanism
        self._mechanism = self._listener.start(mechanism)
        self._raw = form.version == 0
        self.state = TOKENS

    # ------------------------------------------------------------------ messages of the mechanism

    def _token(self, connection: Connection, message: bytes, response: Callable[..., None]) -> None:
        assert self._mechanism is not None
        if self._turned_away(connection):
            return
        self._steps += 1
        try:
            if self._steps > MAX_STEPS:
                raise LoginRefused("Too many messages")
            outcome = self._mechanism.respond(message)
        except LoginRefused as refusal:
            self._refused(connection, refusal, response)
            return
        if isinstance(outcome, Step):
            self._step(connection, outcome, response)
            return
        work = self._listener.threads.submit(outcome.run)
        connection.park(work)  # whose client leaves takes back what no thread has begun
        working = asyncio.wrap_future(work, loop=connection.loop)
        working.add_done_callback(lambda done: self._worked(connection, done, response))

    def _worked(
        self, connection: Connection, done: asyncio.Future[Step], response: Callable[..., None]
    ) -> None:
        if done.cancelled():
            return
        if connection.closed:  # who does not wait for the answer has made the broker work all the same
            refused = done.exception()
            if isinstance(refused, LoginRefused):
                self._listener.failed(connection, self._name, f"{self._name}: {refused.reason}")
            return
        if self._turned_away(connection):
            return
        try:
            step = done.result()
        except LoginRefused as refusal:
            self._refused(connection, refusal, response)
            return
        except Exception:
            logger.exception("login from %s failed", connection.peer)
            connection.close("the login failed with an unexpected error, see above")
            return
        self._step(connection, step, response)
        if self.state != FAILED and not connection.closed:
            connection.resume()

    def _turned_away(self, connection: Connection) -> bool:
        """Too many logins from this address have failed since this connection was let in: otherwise whoever
        opens many connections first could try one password on each."""
        if self._before is not None or not self._listener.failures.refuses(connection.client_host):
            return False
        connection.close()
        return True

    def _step(self, connection: Connection, step: Step, response: Callable[..., None]) -> None:
        identity = step.identity
        if identity is None:
            response(step.response)
            return
        before = self._before
        if not self._listener.store.has(identity.credential):
            refusal = LoginRefused("Authentication failed: the credential was removed during the login")
            self._refused(connection, refusal, response)
            return
        if before is not None and before.identity.principal != identity.principal:
            refusal = LoginRefused(
                f"Cannot change principals during re-authentication from {before.identity.principal} to "
                f"{identity.principal}"
            )
            self._refused(connection, refusal, response)
            return
        self._timer.cancel()
        self.state = DONE
        session = connection.session = Session(self._listener, self._name, identity)
        connection.principal = identity.principal
        connection.use_context(self._listener.context)
        connection.front = connection.dispatcher
        lifetime = self._lifetime_ms(identity)
        if lifetime is not None:
            session.expire_after(lifetime / 1000, connection)
        self._listener.succeeded(connection, self._name, again=before is not None)
        response(step.response, lifetime=lifetime or 0)

    def _lifetime_ms(self, identity: Identity) -> int | None:
        """The least of what the setting and the credential allow; None for ever."""
        limits = []
        max_reauth = self._listener.max_reauth_ms(self._name)
        if max_reauth > 0:
            limits.append(max_reauth)
        if identity.expires_at is not None:
            limits.append(max(0, int((identity.expires_at - time.time()) * 1000)))
        return min(limits) if limits else None

    def _raw_response(self, connection: Connection) -> Callable[..., None]:
        def respond(message: bytes, error: str | None = None, lifetime: int = 0) -> None:
            if error is None:
                connection.send(INT32.pack(len(message)) + message)

        return respond

    # ------------------------------------------------------------------ failure

    def _refused(self, connection: Connection, refusal: LoginRefused, response: Callable[..., None]) -> None:
        response(b"", error=str(refusal))
        self._fail(connection, f"{self._name}: {refusal.reason}")

    def _fail(self, connection: Connection, reason: str) -> None:
        """Told already: close, but not at once, so that a client that tries without end is slow."""
        self.state = FAILED
        self._timer.cancel()
        connection.park(None)
        self._listener.failed(connection, self._name, reason)
        delay = self._listener.failure_delay()
        if delay > 0:
            connection.loop.call_later(delay, connection.close)
        else:
            connection.loop.call_soon(connection.close)


class _Authenticate:
    """Answers a SaslAuthenticate."""

    def __init__(self, connection: Connection, form: Codec, correlation_id: int) -> None:
        self._connection = connection
        self._form = form
        self._correlation_id = correlation_id

    def __call__(self, message: bytes, error: str | None = None, lifetime: int = 0) -> None:
        answer: Any = self._form.answer(
            error_code=ErrorCode.none if error is None else ErrorCode.sasl_authentication_failed,
            error_message=error,
            auth_bytes=message,
            session_lifetime=timedelta(milliseconds=lifetime),
        )
        self._connection.send(self._form.pack(self._correlation_id, answer))
