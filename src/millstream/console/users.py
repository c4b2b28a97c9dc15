"""Who may log in. One user a line: a name, the hash of a password, and what the user may do.

    alice:scrypt$16384$8$1$c2FsdA==$aGFzaA==:editor,unmasked
    bob:scrypt$16384$8$1$c2FsdA==$aGFzaA==:viewer

A `viewer` changes nothing, an `editor` does; `unmasked` sees what masking rules hide from the others.
`millstream console hash-password` makes the hashes.
"""

import asyncio
import base64
import hashlib
import hmac
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from millstream.console.console_config import readable
from millstream.http.cluster_login import Caller
from millstream.http.login_failures import LoginFailures, TooManyTries, network
from millstream.wire.acls import Operation

ROLES = ("viewer", "editor", "unmasked")
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 14, 8, 1
MAX_MEMORY = 64 * 1024 * 1024
MAX_FAILURES = 5  # wrong passwords for one name before it has to wait
MAX_WAITING = 16  # logins that wait for their check; each keeps a password, the one at work 16 MB or more


@dataclass(frozen=True, slots=True)
class User:
    name: str
    hash: str
    roles: frozenset[str]

    @property
    def may_change(self) -> bool:
        return "editor" in self.roles


def user_of(caller: Caller) -> User:
    """A user of the cluster. The console works as a user of its own, so it lends them to those only who
    have as much: DESCRIBE on the cluster to look, ALTER to change and to see what is masked."""
    roles = [("viewer", Operation.DESCRIBE), ("editor", Operation.ALTER), ("unmasked", Operation.ALTER)]
    return User(caller.name, "", frozenset(role for role, needed in roles if caller.may(needed)))


def hash_password(password: str, salt: bytes | None = None) -> str:
    salt = os.urandom(16) if salt is None else salt
    key = hashlib.scrypt(password.encode(), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, maxmem=MAX_MEMORY)
    return "$".join(["scrypt", str(SCRYPT_N), str(SCRYPT_R), str(SCRYPT_P), _text(salt), _text(key)])


def verify_password(password: str, stored: str) -> bool:
    try:
        algorithm, cost, block, parallel, salt, key = stored.split("$")
        if algorithm != "scrypt":
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
    """Checks passwords, and slows down whoever guesses: by the name and by the address.

    Those under way, for one name or from one address, are no more than may still turn out to be wrong. So
    guesses that arrive together count like guesses that arrive one after the other, and right passwords that
    arrive together are no guesses: the others soon come again. scrypt is made to cost memory: one thread
    checks, and only a few tries wait for it.
    """

    def __init__(self, users: dict[str, User], max_address_failures: int) -> None:
        self._users = users
        self._max_address_failures = max_address_failures
        self._names = LoginFailures()
        self._addresses = LoginFailures()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-login")
        self._waiting = 0
        self._under_way: Counter[tuple[str, str]] = Counter()  # by what, and which
        self._nobody = hash_password("nobody", b"0" * 16)

    async def check(self, name: str, password: str, address: str) -> User | None:
        """The user, or None; takes as long for a name that does not exist. TooManyTries: not checked."""
        name_key, address_key = name[:200], network(address)
        limits = [("name", self._names, name_key, MAX_FAILURES)]
        if self._max_address_failures:
            limits.append(("address", self._addresses, address_key, self._max_address_failures))
        wait = max(failures.seconds_to_wait(key, limit) for _, failures, key, limit in limits)
        crowded = self._waiting >= MAX_WAITING or any(
            self._under_way[what, key] >= max(1, limit - failures.count(key))
            for what, failures, key, limit in limits
        )
        if wait or crowded:
            raise TooManyTries(wait or 1)
        counted = Counter((what, key) for what, _, key, _ in limits)
        self._under_way += counted
        self._waiting += 1
        user = self._users.get(name)
        stored = user.hash if user is not None else self._nobody
        loop = asyncio.get_running_loop()
        checking = loop.run_in_executor(self._thread, verify_password, password[:1000], stored)

        def checked(done: asyncio.Future[bool]) -> None:
            self._waiting -= 1
            self._under_way -= counted  # which forgets those without any
            if user is None or done.cancelled() or done.exception() is not None or not done.result():
                self._names.add(name_key)
                self._addresses.add(address_key)
            else:
                # The address keeps its count: a password of one's own makes no room for guesses at others.
                self._names.forget(name_key)

        checking.add_done_callback(checked)
        # A browser that hangs up ends neither the check nor its count.
        right = await asyncio.shield(checking)
        return user if user is not None and right else None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
