"""What a SASL mechanism is: it takes the client's messages one by one and says what to send back.

A mechanism does no I/O and waits for nothing. Work that takes more than a fraction of a millisecond (a
password hash, a signature, keys from a server) comes back as `Work`, which the caller runs in a helper
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class LoginRefused(Exception):
    """`str()` is for the client, and says the same for an unknown user as for a wrong password; `reason` is
    for the log."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class Identity(NamedTuple):
    """Who has logged in."""

    principal: str  # User:alice
    credential: tuple[str, object] | None = None  # (table of the image, key): without it the session ends
    expires_at: float | None = None  # seconds since 1970
    by_token: bool = False  # logged in with a delegation token


class Step(NamedTuple):
    """What one message of the client comes to. With an identity the login is done."""

    response: bytes
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """To be run in a helper thread. Raises LoginRefused as `respond` does."""

    run: Callable[[], Step]


class Mechanism(Protocol):
    def respond(self, message: bytes) -> Step | Work:
        """LoginRefused when it is over."""
