"""The local KMS: a KEK of type `local-kms` whose key is derived from a secret, and new key material.

Both are those of Confluent's clients (Tink), so either side decrypts what the other encrypted. The KMS key
is HKDF-SHA256 (RFC 5869) of the secret, without salt and info, 16 bytes; it encrypts with AES-GCM, the nonce
of 12 bytes in front. Key material is the serialised Tink protobuf of the algorithm's key: AesGcmKey has its
bytes in field 3, AesSivKey in field 2.

A KMS of a cloud is not asked: a shared KEK there is answered with an error, an unshared one needs no KMS
here.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets

from millstream.registry.dek import errors
from millstream.registry.dek.keys import Dek, Kek

LOCAL_KMS = "local-kms"
SECRET_PROPERTY = "secret"  # noqa: S105, the name of a KEK's property
SECRET_VARIABLE = "LOCAL_SECRET"  # noqa: S105, the name of an environment variable
NONCE_BYTES = 12
# Algorithm -> tag of the protobuf field that holds the key (number << 3 | 2), and the key's length.
TINK_KEYS = {"AES128_GCM": (0x1A, 16), "AES256_GCM": (0x1A, 32), "AES256_SIV": (0x12, 64)}


class KmsFailed(Exception):
    """The KMS cannot do what it is asked for; the message says why."""


def new_key_material(algorithm: str) -> bytes:
    tag, length = TINK_KEYS[algorithm]
    return bytes((tag, length)) + secrets.token_bytes(length)


def encrypted(kek: Kek, dek: Dek, raw: bytes) -> str:
    """Key material under a KEK, as base64. RegistryError if the KMS refuses."""
    try:
        return base64.b64encode(_encrypt(_kms_key(kek), raw)).decode()
    except KmsFailed as error:
        raise errors.generation_failed(
            f"Could not generate encrypted dek for {dek.id.subject}: {error}"
        ) from None


def decrypted(kek: Kek, dek: Dek) -> bytes:
    """The key material of a DEK. RegistryError if the KMS refuses."""
    try:
        return _decrypt(_kms_key(kek), base64.b64decode(dek.encrypted_key_material or "", validate=True))
    except (KmsFailed, binascii.Error) as error:
        raise errors.generation_failed(f"Could not generate raw dek for {dek.id.subject}: {error}") from None


def _kms_key(kek: Kek) -> bytes:
    if kek.kms_type != LOCAL_KMS:
        raise KmsFailed(f"no KMS client for {kek.kms_type}://{kek.kms_key_id}; this registry has {LOCAL_KMS}")
    secret = dict(kek.kms_props).get(SECRET_PROPERTY) or os.environ.get(SECRET_VARIABLE)
    if not secret:
        raise KmsFailed(
            f"cannot load secret: neither kmsProps.{SECRET_PROPERTY} nor {SECRET_VARIABLE} is set"
        )
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), secret.encode(), "sha256")
    return hmac.digest(extracted, b"\x01", "sha256")[:16]


def _encrypt(key: bytes, plaintext: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, b"")


def _decrypt(key: bytes, ciphertext: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:], b"")
    except (InvalidTag, ValueError):
        raise KmsFailed("the key material was not encrypted with this secret") from None
