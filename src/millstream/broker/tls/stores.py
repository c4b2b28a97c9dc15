"""Keys and certificates of one listener, or of the connection to ZooKeeper, from its settings to an
`ssl.SSLContext`.

They come as PEM files, as PEM text in the settings, as JKS files, or as PKCS12 files (by `cryptography`, the
extra `tls`). What a file is, its first bytes say: Java reads PKCS12 under the type JKS too, so
`ssl.keystore.type` is only held against a file where it says PEM. JCEKS is refused with the line that
converts it.

Python's TLS reads a private key from a file only. What is not one is put into memory that has a path
(`memfd`), where there is such a thing, so that no key touches the disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from millstream.broker.tls import jks
from millstream.settings.principal_mapping import PrincipalMapping
from millstream.settings.resolve import BrokerSettings
from millstream.settings.values import InvalidSetting
from millstream.wire.certificate import Certificate, read_certificate

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_JCEKS = b"\xce\xce\xce\xce"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
MAX_STORE_BYTES = 4 << 20

NAMES = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.principal.mapping.rules",
)
ZOOKEEPER_NAMES = (
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.type",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.cipher.suites",
)


@dataclass(frozen=True, slots=True)
class Material:
    """A context, and what to know about its certificate."""

    context: ssl.SSLContext = field(repr=False)
    certificate: Certificate
    mapping: PrincipalMapping
    warnings: tuple[str, ...]


class TlsSettings:
    """The TLS settings of one listener: its own where it has them, otherwise those of the broker. As in
    Kafka, the broker's ssl.client.auth is for SSL listeners: where clients log in by SASL, only the
    listener's own setting asks them for a certificate too."""

    def __init__(self, settings: BrokerSettings, listener: str, protocol: str = "SSL") -> None:
        self.listener = listener
        self._names = {name: self._full_name(settings, name) for name in NAMES}
        self.values = {name: settings.text(full) or "" for name, full in self._names.items() if full}
        name = "ssl.client.auth"
        has_own = self._names[name] != name
        self.ignores_client_auth = protocol == "SASL_SSL" and not has_own and settings.is_set(name)
        if self.ignores_client_auth:
            self.values[name] = "none"

    def _full_name(self, settings: BrokerSettings, name: str) -> str:
        return settings.of_listener(self.listener, name)

    def wrong(self, name: str, reason: str) -> InvalidSetting:
        """The value is not part of the message where it may be a secret."""
        full, value = self._names[name], self.values[name]
        shown = (
            value if name.endswith((".location", ".type", ".auth", ".protocols", ".suites")) else "[hidden]"
        )
        return InvalidSetting(full, shown, reason, f"{full}={shown}: {reason}")

    def files(self) -> list[str]:
        return [
            path
            for name in ("ssl.keystore.location", "ssl.truststore.location")
            if (path := self.values[name])
        ]


class ZooKeeperTlsSettings(TlsSettings):
    """Those of the connection to ZooKeeper: zookeeper.ssl.keystore.location and so on."""

    def __init__(self, settings: BrokerSettings) -> None:
        super().__init__(settings, "")
        self.values = dict.fromkeys(NAMES, "") | self.values

    def _full_name(self, settings: BrokerSettings, name: str) -> str:
        full = f"zookeeper.{name}"
        return full if full in ZOOKEEPER_NAMES else ""


def zookeeper_context(settings: BrokerSettings) -> ssl.SSLContext:
    """For the connection to ZooKeeper; InvalidSetting says what cannot be used, and why."""
    tls = ZooKeeperTlsSettings(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions_and_ciphers(context, tls)
    context.check_hostname = bool(settings.string("zookeeper.ssl.endpoint.identification.algorithm").strip())
    if not load_trust_store(context, tls):
        context.load_default_certs()
    if tls.values["ssl.keystore.location"]:
        load_key_store(context, tls)
    return context


def build(tls: TlsSettings) -> Material:
    """Everything that a listener needs for TLS; InvalidSetting says what cannot be used, and why."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    warnings = _set_versions_and_ciphers(context, tls)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    certificate = load_key_store(context, tls)
    _ask_for_certificates(context, tls, load_trust_store(context, tls))
    if tls.ignores_client_auth:
        warnings.append(
            f"ssl.client.auth is for SSL listeners. To ask the clients of listener {tls.listener} for a "
            f"certificate too, set listener.name.{tls.listener.lower()}.ssl.client.auth"
        )
    left = certificate.not_after - time.time()
    if left <= 0:
        warnings.append(f"the certificate of listener {tls.listener} has expired: clients refuse it")
    return Material(
        context, certificate, PrincipalMapping(tls.values["ssl.principal.mapping.rules"]), tuple(warnings)
    )


# ---------------------------------------------------------------------- our own key and certificates


def load_key_store(context: ssl.SSLContext, tls: TlsSettings) -> Certificate:
    location, chain = tls.values["ssl.keystore.location"], tls.values["ssl.keystore.certificate.chain"]
    password = tls.values["ssl.key.password"] or tls.values["ssl.keystore.password"]
    if location:
        name = "ssl.keystore.location"
        content = _content(tls, name)
        if b"-----BEGIN " in content:
            pem = content.decode("utf-8", "replace")
        else:
            pem, password = _from_java_store(tls, "keystore", content), ""
    elif chain:
        name = "ssl.keystore.certificate.chain"
        key = tls.values["ssl.keystore.key"]
        if not key:
            raise tls.wrong("ssl.keystore.key", "The certificates have no private key beside them")
        pem = f"{key}\n{chain}\n"
    else:
        raise tls.wrong(
            "ssl.keystore.location",
            f"Listener {tls.listener} speaks TLS and needs a private key with certificates: give a PEM or "
            "PKCS12 file, or PEM text in ssl.keystore.key and ssl.keystore.certificate.chain "
            "(`millstream secure init` makes one)",
        )
    first = _CERTIFICATE.search(pem)
    if first is None:
        raise tls.wrong(name, "There is no certificate in it")
    if "PRIVATE KEY-----" not in pem:
        raise tls.wrong(name, "There is no private key in it")
    try:
        with _as_file(pem) as path:
            # A function, because OpenSSL would ask at the terminal for a password that is not given.
            context.load_cert_chain(path, None, lambda: password)
        return read_certificate(ssl.PEM_cert_to_DER_cert(first[0]))
    except ssl.SSLError as error:
        if "PEM lib" in str(error) and "ENCRYPTED" in pem:
            reason = "The private key cannot be opened: ssl.key.password is wrong or missing"
            raise tls.wrong(name, reason) from None
        raise tls.wrong(name, _reason(error)) from None
    except ValueError:
        raise tls.wrong(name, "Its first certificate cannot be read") from None


def load_trust_store(context: ssl.SSLContext, tls: TlsSettings) -> bool:
    """False if there is none."""
    location, text = tls.values["ssl.truststore.location"], tls.values["ssl.truststore.certificates"]
    name = "ssl.truststore.location" if location else "ssl.truststore.certificates"
    if location:
        content = _content(tls, name)
        if b"-----BEGIN " in content:
            text = content.decode("utf-8", "replace")
        else:
            text = _from_java_store(tls, "truststore", content)
    if text:
        found = _CERTIFICATE.findall(text)
        if not found:
            raise tls.wrong(name, "There is no certificate in it")
        try:
            context.load_verify_locations(cadata="\n".join(found))
        except ssl.SSLError as error:
            raise tls.wrong(name, _reason(error)) from None
    return bool(text)


def _ask_for_certificates(context: ssl.SSLContext, tls: TlsSettings, trusts: bool) -> None:
    mode = _CLIENT_AUTH.get(tls.values["ssl.client.auth"].lower(), ssl.CERT_NONE)
    if mode != ssl.CERT_NONE and not trusts:
        raise tls.wrong(
            "ssl.client.auth",
            "Whose certificates count must be said: set ssl.truststore.location or "
            "ssl.truststore.certificates",
        )
    context.verify_mode = mode
    # As in Java, whatever is in the trust store counts: also the certificate of one client, though others
    # have the same subject, and an authority that is not its own issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _content(tls: TlsSettings, name: str) -> bytes:
    """The bytes of a store's file, of a kind that can be read."""
    path = tls.values[name]
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise tls.wrong(name, f"Cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(content) > MAX_STORE_BYTES:
        raise tls.wrong(name, f"Longer than {MAX_STORE_BYTES} bytes")
    if content.startswith(_JCEKS):
        raise tls.wrong(
            name,
            "A JCEKS store can be read by Java only. Convert it: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12",
        )
    kind = tls.values[name.replace("location", "type")].upper()
    if kind == "PEM" and b"-----BEGIN " not in content:
        raise tls.wrong(name, "Not PEM, although the type says so")
    if not content:
        raise tls.wrong(name, "The file is empty")
    return content


def _from_java_store(tls: TlsSettings, store: str, content: bytes) -> str:
    """A JKS or PKCS12 store as PEM text."""
    if not content.startswith(jks.MAGIC):
        return _from_pkcs12(tls, store, content)
    password = tls.values[f"ssl.{store}.password"]
    try:
        if store == "truststore":
            return jks.read_trusted(content, password)
        return jks.read_jks(content, password, tls.values["ssl.key.password"])
    except ValueError as error:
        raise tls.wrong(f"ssl.{store}.location", f"Not a JKS file that can be opened: {error}") from None


def _from_pkcs12(tls: TlsSettings, store: str, content: bytes) -> str:
    """A PKCS12 store as PEM text."""
    name = f"ssl.{store}.location"
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise tls.wrong(
            name, "A PKCS12 file needs the extra tls: pip install 'millstream[tls]', or convert it to PEM"
        ) from None
    password = tls.values[f"ssl.{store}.password"].encode()
    try:
        found: Any = pkcs12.load_pkcs12(content, password or None)
    except ValueError:
        setting = tls._names[f"ssl.{store}.password"]
        raise tls.wrong(name, f"Not a PKCS12 file that {setting} opens") from None
    pem = serialization.Encoding.PEM
    parts: list[bytes] = []
    others = [each.certificate for each in found.additional_certs]
    if found.key is not None and store == "truststore":
        others = _without_issuers(found.cert and found.cert.certificate, others)
    elif found.key is not None:
        parts.append(
            found.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
    if found.cert is not None:
        parts.append(found.cert.certificate.public_bytes(pem))
    parts += (certificate.public_bytes(pem) for certificate in others)
    return b"".join(parts).decode()


def _without_issuers(certificate: Any, others: list[Any]) -> list[Any]:
    """A private key in a trust store makes its own certificate trusted and not those who signed it, as in
    Java. Whoever stands there twice is trusted on his own account, too."""
    left = list(others)
    seen: list[Any] = []
    while certificate is not None:
        seen.append(certificate)
        certificate = next((each for each in left if each not in seen and _issued(each, certificate)), None)
        if certificate is not None:
            left.remove(certificate)
    return left


def _issued(issuer: Any, certificate: Any) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # another name or signature, or a key of an unknown kind
        return False
    return True


@contextlib.contextmanager
def _as_file(pem: str) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("millstream-tls")
        path = f"/proc/self/fd/{handle}"
    else:
        handle, path = tempfile.mkstemp(suffix=".pem")  # readable by this user only
    try:
        os.write(handle, pem.encode())
        yield path
    finally:
        os.close(handle)
        if not path.startswith("/proc/"):
            os.unlink(path)


def _reason(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    if reason == "KEY_VALUES_MISMATCH":
        return "The private key does not fit the first certificate"
    if reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"):
        return f"Too weak a key or signature for this machine's OpenSSL ({reason.lower().replace('_', ' ')})"
    return f"Cannot be used: {reason.lower().replace('_', ' ')}"


# ---------------------------------------------------------------------- versions and ciphers


def _set_versions_and_ciphers(context: ssl.SSLContext, tls: TlsSettings) -> list[str]:
    wanted = [part.strip() for part in tls.values["ssl.enabled.protocols"].split(",") if part.strip()]
    unknown = [part for part in wanted if part not in _VERSIONS]
    if unknown or not wanted:
        raise tls.wrong("ssl.enabled.protocols", "TLSv1.2 and TLSv1.3 are served; older ones are not safe")
    suites = [part.strip() for part in tls.values["ssl.cipher.suites"].split(",") if part.strip()]
    warnings = []
    if suites:
        older = [part for part in suites if "_WITH_" in part or not part.startswith("TLS_")]
        if len(older) < len(suites):
            warnings.append(
                f"{tls._names['ssl.cipher.suites']}: the suites of TLS 1.3 cannot be chosen with this "
                f"Python; all "
                "three are offered"
            )
        if older:
            try:
                context.set_ciphers(":".join(_openssl_name(part) for part in older))
            except ssl.SSLError:
                raise tls.wrong("ssl.cipher.suites", "This machine's OpenSSL knows none of them") from None
        else:
            wanted = [part for part in wanted if part == "TLSv1.3"]
            if not wanted:
                raise tls.wrong("ssl.cipher.suites", "Only suites of TLS 1.3, which is switched off")
    versions = sorted(_VERSIONS[part] for part in wanted)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    return warnings


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2, which Java calls as the RFCs do."""
    if "_WITH_" not in suite:
        return suite
    exchange, cipher = suite.removeprefix("TLS_").split("_WITH_", 1)
    exchange = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    cipher = re.sub(r"^(AES|CAMELLIA|ARIA)_(\d+)_", r"\1\2_", cipher).replace("_CBC", "")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20_POLY1305"
    return exchange + cipher.replace("_", "-")
