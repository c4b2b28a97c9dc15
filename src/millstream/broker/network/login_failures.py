"""Failed logins: counted by address, so that nobody can try passwords without end.

An address with more failures in a minute than allowed is not let in for a minute: its new connections are
closed as they are accepted, those that are logged in go on. A user is never locked out, whoever guesses at
his password: that would let anybody lock out anybody. The log gets one line a minute for each address, with
the number of failures that it stands for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.broker.audit.log import Audit

logger = logging.getLogger("millstream.login")

WINDOW = 60.0  # seconds
MAX_ADDRESSES = 10_000  # that are remembered; beyond that the one that failed longest ago is forgotten
MAX_REASON = 300  # characters in the log: a reason may quote what a stranger has sent


class _Address:
    __slots__ = ("blocked_until", "failures", "guesses", "since", "unsaid")

    def __init__(self, since: float) -> None:
        self.since = since
        self.failures = 0
        self.guesses = 0  # those of them that count for the limit
        self.unsaid = 0  # failures without a line in the log
        self.blocked_until = 0.0


class LoginFailures:
    def __init__(self, per_address: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_address = per_address  # in a minute; 0: no limit
        self.total = 0
        self.turned_away = 0
        self.audit: Audit | None = None
        self._clock = clock
        self._addresses: dict[str, _Address] = {}

    def refuses(self, host: str) -> bool:
        """Whether a new connection from there is not let in now."""
        found = self._addresses.get(host)
        if found is None or found.blocked_until <= self._clock():
            return False
        self.turned_away += 1
        return True

    def handshake_failed(self, host: str, port: int | str, listener: str, reason: str) -> None:
        """A TLS handshake failed. Nothing can be guessed that way, so it is only logged."""
        self.failed(host, port, listener, reason, what="TLS handshake failed", guess=False)
        if self.audit is not None:
            self.audit.handshake_failed(host, listener, reason)

    def failed(
        self,
        host: str,
        port: int | str,
        listener: str,
        reason: str,
        what: str = "login refused",
        guess: bool = True,
    ) -> None:
        """A login was refused."""
        now = self._clock()
        self.total += 1
        found = self._addresses.pop(host, None)
        if found is None or now - found.since >= WINDOW:
            before, found = found, _Address(now)
            if before is not None:
                found.unsaid = before.unsaid
                found.blocked_until = before.blocked_until
            if len(self._addresses) >= MAX_ADDRESSES:
                del self._addresses[next(iter(self._addresses))]
        self._addresses[host] = found  # at the end: failed last
        found.failures += 1
        if found.failures == 1:
            more = f" ({found.unsaid} more from this address before)" if found.unsaid else ""
            found.unsaid = 0
            said = reason if len(reason) <= MAX_REASON else reason[:MAX_REASON] + "..."
            logger.warning("%s for %s:%s on %s: %s%s", what, host, port, listener, said, more)
        else:
            found.unsaid += 1
        found.guesses += guess
        limit = self.per_address
        if guess and limit and found.guesses >= limit and found.blocked_until <= now:
            found.blocked_until = now + WINDOW
            logger.warning(
                "%s has failed to log in %d times within a minute: its new connections are closed for a "
                "minute "
                "(millstream.login.failures.per.address)",
                host,
                found.guesses,
            )
