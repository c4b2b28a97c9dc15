"""JKS, the key store of Java: read as PEM text.

`keytool` before Java 9 wrote it, and a server.properties made for Kafka may name one. The file is a list of
entries, private keys with their certificates and trusted certificates, and at its end a SHA-1 over the
store's password and all of it. A key is PKCS8, hidden by a stream of SHA-1 digests over its password and a
salt: obfuscation by today's measure, so such a file wants the same care as a key in clear text.

JCEKS, with keys under Triple DES, is not read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct

from millstream.wire.certificate import der_elements

MAGIC = b"\xfe\xed\xfe\xed"
_KEY, _TRUSTED = 1, 2
_SALT = _DIGEST = 20
_WHITENER = b"Mighty Aphrodite"  # goes into the digest of every JKS file
_SUN_KEY_PROTECTOR = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1


def read_jks(content: bytes, password: str, key_password: str) -> str:
    """The first private key with its certificates, then every trusted certificate. Without a password the
    digest is not checked, as in Java. ValueError says what is wrong, never with a secret in it."""
    key, trusted = _opened(content, password, key_password or password)
    return "".join(key + trusted)


def read_trusted(content: bytes, password: str) -> str:
    """The certificates that the file makes trusted where it is a trust store: as in Java, of a private key
    its own certificate counts, and not those who signed it. The keys stay closed."""
    return "".join(_opened(content, password, None)[1])


def _opened(content: bytes, password: str, key_password: str | None) -> tuple[list[str], list[str]]:
    body, digest = content[:-_DIGEST], content[-_DIGEST:]
    secret = password.encode("utf-16-be")
    if password and not hmac.compare_digest(_sha1(secret + _WHITENER + body), digest):
        raise ValueError("the store was changed, or its password is wrong")
    try:
        return _entries(_Reader(body), key_password)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ValueError("the store is cut off or damaged") from None


def _entries(reader: _Reader, key_password: str | None) -> tuple[list[str], list[str]]:
    """The first private key with its certificates, and the trusted certificates. Without a password for keys
    the certificates that belong to them are among the trusted ones."""
    if reader.take(4) != MAGIC or (version := reader.int32()) not in (1, 2):
        raise ValueError("not a JKS store of version 1 or 2")
    key: list[str] = []
    trusted: list[str] = []
    for _ in range(reader.int32()):
        kind = reader.int32()
        reader.text()  # the alias
        reader.take(8)  # when it was made
        if kind == _KEY:
            hidden = reader.take(reader.int32())
            chain = [reader.certificate(version) for _ in range(reader.int32())]
            if key_password is None:
                trusted += chain[:1]
            elif not key:
                key = [_pem("PRIVATE KEY", _reveal(hidden, key_password)), *chain]
        elif kind == _TRUSTED:
            trusted.append(reader.certificate(version))
        else:
            raise ValueError(f"an entry of unknown kind {kind}")
    return key, trusted


def _reveal(hidden: bytes, password: str) -> bytes:
    """The PKCS8 key inside of an EncryptedPrivateKeyInfo of Sun's own algorithm."""
    outer, _ = _der(hidden, 0x30)
    algorithm, rest = _der(outer, 0x30)
    identifier, _ = _der(algorithm, 0x06)
    if identifier != _SUN_KEY_PROTECTOR:
        raise ValueError("a private key is encrypted in a way that JKS does not have")
    protected, _ = _der(rest, 0x04)
    salt, cipher, check = protected[:_SALT], protected[_SALT:-_DIGEST], protected[-_DIGEST:]
    secret = password.encode("utf-16-be")
    stream, digest = bytearray(), salt
    while len(stream) < len(cipher):
        digest = _sha1(secret + digest)
        stream += digest
    plain = bytes(left ^ right for left, right in zip(cipher, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret + plain), check):
        raise ValueError("the password does not open its private key")
    return plain


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _der(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the first DER element, and what follows it."""
    element = next(der_elements(data), None)
    if element is None or element.tag != tag:
        raise ValueError("a private key is not in the form that JKS has")
    return element.content, data[len(element.whole) :]


def _pem(name: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {name}-----\n{lines}\n-----END {name}-----\n"


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise IndexError(size)
        found = self._data[self._at : end]
        self._at = end
        return found

    def int32(self) -> int:
        value: int = struct.unpack(">i", self.take(4))[0]
        return value

    def text(self) -> str:
        size: int = struct.unpack(">H", self.take(2))[0]
        return self.take(size).decode("utf-8", "replace")

    def certificate(self, version: int) -> str:
        """As PEM. Version 2 names the kind of certificate; it is always X.509."""
        if version == 2:
            self.text()
        return _pem("CERTIFICATE", self.take(self.int32()))
