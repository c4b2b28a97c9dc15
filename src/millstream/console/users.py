"""Who may log in. One user a line: a name, the hash of a password, and what the user may do.

    alice:scrypt$16384$8$1$c2FsdA==$aGFzaA==:editor,unmasked
    bob:scrypt$16384$8$1$c2FsdA==$aGFzaA==:viewer

A `viewer` changes nothing, an `editor` does; `unmasked` sees what masking rules hide from the others.
`millstream console hash-password` makes the hashes.
"""

import base64
import hashlib
import hmac
import os
import threading
import time
from dataclasses import dataclass

from millstream.console.console_config import readable

ROLES = ("viewer", "editor", "unmasked")
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 14, 8, 1
MAX_MEMORY = 64 * 1024 * 1024
MAX_FAILURES = 5  # wrong passwords for one name before it has to wait
LOCKOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class User:
    name: str
    hash: str
    roles: frozenset[str]

    @property
    def may_change(self) -> bool:
        return "editor" in self.roles


def hash_password(password: str, salt: bytes | None = None) -> str:
    salt = os.urandom(16) if salt is None else salt
    key = hashlib.scrypt(password.encode(), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, maxmem=MAX_MEMORY)
    return "$".join(["scrypt", str(SCRYPT_N), str(SCRYPT_R), str(SCRYPT_P), _text(salt), _text(key)])


def verify_password(password: str, stored: str) -> bool:
    try:
        kind, cost, block, parallel, salt, key = stored.split("$")
        if kind != "scrypt":
            return False
        wanted = base64.b64decode(key, validate=True)
        found = hashlib.scrypt(
            password.encode(),
            salt=base64.b64decode(salt, validate=True),
            n=int(cost),
            r=int(block),
            p=int(parallel),
            maxmem=MAX_MEMORY,
            dklen=len(wanted),
        )
    except ValueError:
        return False
    return hmac.compare_digest(found, wanted)


def read_users(path: str) -> dict[str, User]:
    """ValueError says which line is wrong."""
    users: dict[str, User] = {}
    for number, line in enumerate(readable(path).splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        parts = line.split(":")
        roles = {role.strip() for role in parts[2].split(",")} if len(parts) == 3 else set()
        if len(parts) != 3 or not parts[0] or not parts[1].startswith("scrypt$") or not roles <= set(ROLES):
            raise ValueError(
                f"{path}, line {number}: expected `name:scrypt$...:role,role` with roles {', '.join(ROLES)}"
            )
        users[parts[0]] = User(parts[0], parts[1], frozenset(roles))
    if not users:
        raise ValueError(f"{path} names no user: nobody could log in")
    return users


class LoginChecker:
    """Checks passwords, one at a time (a check is made to cost memory), and slows down whoever guesses."""

    def __init__(self, users: dict[str, User]) -> None:
        self._users = users
        self._failures: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()
        self._nobody = hash_password("nobody", b"0" * 16)

    def check(self, name: str, password: str) -> User | None:
        """The user, or None. Takes as long for a name that does not exist."""
        with self._lock:
            user = self._users.get(name)
            right = verify_password(password[:1000], user.hash if user is not None else self._nobody)
            if user is not None and right:
                self._failures.pop(name, None)
                return user
            if len(self._failures) > 10_000:
                self._failures.clear()
            count, _ = self._failures.get(name, (0, 0.0))
            self._failures[name] = (count + 1, time.monotonic())
            return None

    def seconds_to_wait(self, name: str) -> int:
        """Seconds that this name has to wait after too many wrong passwords."""
        count, last = self._failures.get(name, (0, 0.0))
        left = LOCKOUT_SECONDS - (time.monotonic() - last)
        if count < MAX_FAILURES or left <= 0:
            return 0
        return round(left) or 1


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
