"""Public keys of a token server (RFC 7517), from a file or a URL, and the signatures that they check.

Read again each hour, or when a token names a key that is not known, at most once a second. Only the keys from
there count: what a token says about keys of its own (jku, jwk, x5c) is ignored. Algorithms with a shared
secret (HS) and `none` are never taken. Needs `cryptography` (the extra `oauth`).

Tokens are checked in the threads that check passwords, too, so those must not wait for a server of somebody
else. Keys are read by a thread of their own. Meanwhile the known ones count; of the logins that need one that
is not known, one waits, for a moment, and the others are refused. Clients try again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from typing import Any

from millstream.broker.login.oauth import InvalidToken, _decoded

logger = logging.getLogger("millstream.login")

MAX_JWKS = 1 << 20
TIMEOUT = 5.0  # seconds without a byte
TOTAL_TIMEOUT = 30.0
WAIT = 2.0  # seconds that a login waits
LEAST_PAUSE = 1.0  # seconds between two readings
_HASHES = {"256": "SHA256", "384": "SHA384", "512": "SHA512"}
_CURVES = {"P-256": ("SECP256R1", "ES256"), "P-384": ("SECP384R1", "ES384"), "P-521": ("SECP521R1", "ES512")}
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)


class Jwks:
    def __init__(self, url: str, refresh: float) -> None:
        self.url = url
        self.refresh = refresh
        self._keys: dict[str, dict[str, Any]] = {}
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._lock = threading.Lock()
        self._reading: threading.Event | None = None  # set when the keys that are being read are there
        self._waiter = threading.Semaphore(1)  # held by the one login that waits

    def verify(self, header: dict[str, Any], signed: bytes, signature: bytes) -> None:
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise InvalidToken(f"the algorithm {str(algorithm)[:20]!r} is not taken")
        key = self._key(header.get("kid"))
        if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
            raise InvalidToken("its key is meant for something else")
        try:
            _check(key, str(algorithm), signed, signature)
        except InvalidToken:
            raise
        except Exception as error:  # InvalidSignature, and whatever a broken key raises
            raise InvalidToken(f"its signature is wrong ({type(error).__name__})") from None

    def _key(self, kid: object) -> dict[str, Any]:
        age = time.monotonic() - self._read_at
        found = self._find(kid)
        if found is None or age > self.refresh:
            reading = self._read_soon()
            if reading is not None and (found is None or age > 2 * self.refresh):
                self._wait(reading)
            found = self._find(kid)
        if found is None:
            raise InvalidToken("the token server has no key of that name, or has not answered yet")
        return found

    def _wait(self, reading: threading.Event) -> None:
        if self._waiter.acquire(blocking=False):
            try:
                reading.wait(WAIT)
            finally:
                self._waiter.release()

    def _find(self, kid: object) -> dict[str, Any] | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(str(kid)) if kid is not None else None

    def _read_soon(self) -> threading.Event | None:
        """The reading that is under way, or a new one; None if the last was a moment ago. A file is read at
        once."""
        with self._lock:
            now = time.monotonic()
            if self._reading is not None or now - self._tried_at < LEAST_PAUSE:
                return self._reading
            self._tried_at = now
            reading = self._reading = threading.Event()
        if self.url.startswith("file:"):
            self._read(reading)
            return reading
        try:
            threading.Thread(target=self._read, args=(reading,), name="jwks", daemon=True).start()
        except RuntimeError as error:  # the system gives no thread now; later it may
            logger.warning("the keys at %s cannot be read, the old ones count: %s", self.url, error)
            with self._lock:
                self._reading = None
            reading.set()
        return reading

    def _read(self, done: threading.Event) -> None:
        began = time.monotonic()
        try:
            # The scheme was checked when the setting was read.
            with urllib.request.urlopen(self.url, timeout=TIMEOUT) as answer:  # noqa: S310
                content = _content(answer, began + TOTAL_TIMEOUT)
            keys = json.loads(content)["keys"]
            self._keys = {str(key.get("kid", number)): dict(key) for number, key in enumerate(keys)}
            self._read_at = began
        except Exception as error:  # whatever it is, the next reading must be possible
            logger.warning("the keys at %s cannot be read, the old ones count: %s", self.url, error)
        finally:
            with self._lock:
                self._reading = None
            done.set()


def _content(answer: Any, deadline: float) -> bytes:
    """Of a server that may send one byte at a time."""
    content = b""
    while piece := answer.read1(65536):
        content += piece
        if len(content) > MAX_JWKS:
            raise ValueError(f"longer than {MAX_JWKS} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not there within {TOTAL_TIMEOUT:g} s")
    return content


def _check(key: dict[str, Any], algorithm: str, signed: bytes, signature: bytes) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

    def number(name: str) -> int:
        return int.from_bytes(_decoded(str(key[name])), "big")

    kind = key.get("kty")
    if algorithm == "EdDSA":
        if kind != "OKP" or key.get("crv") != "Ed25519":
            raise InvalidToken("algorithm and key do not fit")
        ed25519.Ed25519PublicKey.from_public_bytes(_decoded(str(key["x"]))).verify(signature, signed)
        return
    digest = getattr(hashes, _HASHES[algorithm[2:]])()
    if algorithm.startswith("ES"):
        curve, fits = _CURVES.get(str(key.get("crv")), ("", ""))
        if kind != "EC" or fits != algorithm:
            raise InvalidToken("algorithm and key do not fit")
        public = ec.EllipticCurvePublicNumbers(number("x"), number("y"), getattr(ec, curve)()).public_key()
        half = len(signature) // 2
        r, s = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
        public.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        return
    if kind != "RSA":
        raise InvalidToken("algorithm and key do not fit")
    modulus = number("n")
    if not 2048 <= modulus.bit_length() <= 16384:
        raise InvalidToken("its RSA key has an unsafe length")
    public_rsa = rsa.RSAPublicNumbers(number("e"), modulus).public_key()
    if algorithm.startswith("PS"):
        scheme: Any = padding.PSS(padding.MGF1(digest), digest.digest_size)
    else:
        scheme = padding.PKCS1v15()
    public_rsa.verify(signature, signed, scheme, digest)
