"""Salted keys of passwords, as SCRAM keeps them (RFC 5802), and where the broker finds them.

One store serves SCRAM and PLAIN: nothing that is kept lets anybody log in. A password is hashed with PBKDF2,
4096 times or more, which takes milliseconds and belongs in a helper thread.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from millstream.broker.tokens import Tokens
    from millstream.cluster.image import Image
    from millstream.cluster.security_records import ApiKey

SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASHES = {SCRAM_256: "sha256", SCRAM_512: "sha512"}
NUMBERS = {SCRAM_256: 1, SCRAM_512: 2}  # Kafka's, in its API and in our records
NAMES = {number: name for name, number in NUMBERS.items()}
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
SALT_BYTES = 24  # of those that are made here
REMEMBERED = 60.0  # seconds for which a password that was right is not hashed again
MAX_REMEMBERED = 10_000


class Credential(NamedTuple):
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def from_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return Credential(
        salt, iterations, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name)
    )


def make_credential(
    mechanism: str, password: str, iterations: int = MIN_ITERATIONS, salt: bytes = b""
) -> Credential:
    salt = salt or os.urandom(SALT_BYTES)
    return from_salted(
        mechanism, salted_password(mechanism, password.encode(), salt, iterations), salt, iterations
    )


class CredentialStore:
    """What the metadata log says about users, for those who log in."""

    def __init__(
        self, image: Callable[[], Image], tokens: Callable[[], Tokens], shared_secret: Callable[[], str]
    ) -> None:
        self._image = image
        self._tokens = tokens
        self._shared_secret = shared_secret  # that all brokers of the cluster have; may be empty
        self._process_key = os.urandom(32)
        self._right: OrderedDict[bytes, float] = OrderedDict()
        # By mechanism: the version of the image that they are from, and they.
        self._known_shapes: dict[int, tuple[int, list[tuple[int, int]]]] = {}

    def scram(self, user: str, mechanism: str) -> Credential | None:
        found = self._image().scram.get((user, NUMBERS[mechanism]))
        if found is None:
            return None
        return Credential(
            bytes.fromhex(found.salt),
            found.iterations,
            bytes.fromhex(found.stored_key),
            bytes.fromhex(found.server_key),
        )

    def fake(self, user: str, mechanism: str) -> Credential:
        """For a user that there is not: always the same salt, so that nobody can tell, and keys that nobody
        has. With delegation.token.secret.key all brokers of a cluster tell the same. The size of the salt and
        the number of iterations are those of some user: tools differ in them."""
        secret = self._shared_secret().encode() or self._process_key
        seed = hmac.digest(secret, f"{mechanism} {user}".encode(), "sha512")
        shapes = self._shapes(NUMBERS[mechanism])
        size, iterations = shapes[int.from_bytes(seed[:8], "big") % len(shapes)]
        return Credential(hashlib.shake_256(seed).digest(size), iterations, os.urandom(64), os.urandom(64))

    def _shapes(self, number: int) -> list[tuple[int, int]]:
        """The different sizes of salts and numbers of iterations that users of a mechanism have."""
        image = self._image()
        version, shapes = self._known_shapes.get(number, (-2, []))
        if version != image.version:
            found = {
                (len(each.salt) // 2, each.iterations)
                for (_, mechanism), each in list(image.scram.items())  # also asked in a helper thread
                if mechanism == number
            }
            shapes = sorted(found) or [(SALT_BYTES, MIN_ITERATIONS)]
            self._known_shapes[number] = image.version, shapes
        return shapes

    def has(self, credential: tuple[str, object] | None) -> bool:
        """Whether what somebody logs in with is still there (`Identity.credential`)."""
        return credential is None or credential[1] in getattr(self._image(), credential[0])

    def api_key(self, key_id: str) -> ApiKey | None:
        return self._image().api_keys.get(key_id)

    def token(self, token_id: str) -> tuple[str, str, int] | None:
        """Password, owner and time of expiry (ms) of a delegation token that is good now."""
        return self._tokens().login(token_id)

    # ------------------------------------------------------------------ passwords

    def check_password(self, user: str, password: str) -> tuple[str, object] | None:
        """Whether a password fits one of the user's SCRAM credentials; which one. Takes as long for a user
        that there is not."""
        for mechanism in (SCRAM_512, SCRAM_256):
            known = self.scram(user, mechanism)
            fits = self._fits(mechanism, known or self.fake(user, mechanism), password)
            if fits and known is not None:
                return "scram", (user, NUMBERS[mechanism])
        return None

    def _fits(self, mechanism: str, known: Credential, password: str) -> bool:
        seal = hmac.digest(self._process_key, known.stored_key + known.salt + password.encode(), "sha256")
        now = time.monotonic()
        if self._right.get(seal, 0.0) > now:
            return True
        made = make_credential(mechanism, password, known.iterations, known.salt)
        if not hmac.compare_digest(made.stored_key, known.stored_key):
            return False
        self._right[seal] = now + REMEMBERED
        while len(self._right) > MAX_REMEMBERED:
            self._right.popitem(last=False)
        return True
