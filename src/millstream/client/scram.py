"""Passwords as SCRAM keeps them (RFC 5802), for those who make users: the broker never sees the password."""

import hashlib
import os
from typing import NamedTuple

MECHANISMS = {"SCRAM-SHA-256": ("sha256", 1), "SCRAM-SHA-512": ("sha512", 2)}
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384


class SaltedPassword(NamedTuple):
    mechanism: int  # Kafka's number
    iterations: int
    salt: bytes
    salted: bytes


def salt_password(mechanism: str, password: str, iterations: int = 4096, salt: bytes = b"") -> SaltedPassword:
    name, number = MECHANISMS[mechanism]
    salt = salt or os.urandom(24)
    return SaltedPassword(
        number, iterations, salt, hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    )
