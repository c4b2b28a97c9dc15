"""TLS and SASL settings, by the names of Kafka's Java clients and of librdkafka.

Certificates and keys are PEM, as files or as text. Java's own stores (JKS, PKCS12) are refused with a word on
how to convert them: Python's TLS cannot read them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"  # with a token that somebody brings; this client fetches none

_LOGIN = re.compile(
    r"\b(username|password|tokenauth)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))"
)


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust, and who we are. Files or PEM text; empty: the system's certificates, and no certificate
    of ours."""

    ca_file: str = ""
    ca_text: str = ""
    certificate_file: str = ""
    certificate_text: str = ""
    key_file: str = ""
    key_text: str = ""
    key_password: str = ""
    check_host: bool = True


@dataclass(frozen=True, slots=True)
class Sasl:
    """A login. For OAUTHBEARER the password is the token. `delegated`: name and password are id and HMAC of a
    delegation token (KIP-48), with which SCRAM logs in as its owner."""

    mechanism: str
    username: str
    password: str
    delegated: bool = False

    def __repr__(self) -> str:
        return f"Sasl({self.mechanism}, {self.username})"  # a password does not belong in a log


def read_security(given: Mapping[str, str]) -> tuple[str, Tls | None, Sasl | None]:
    """Protocol, TLS and SASL settings of a client; ValueError for what cannot be honoured."""
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol={protocol} is unknown: use {', '.join(PROTOCOLS)}")
    tls = _read_tls(given) if protocol.endswith("SSL") else None
    return protocol, tls, _read_sasl(given, protocol) if protocol.startswith("SASL") else None


def _read_tls(given: Mapping[str, str]) -> Tls:
    for store in ("truststore", "keystore"):
        store_type = given.get(f"ssl.{store}.type", "")
        if store_type and store_type.upper() != "PEM":
            raise ValueError(
                f"ssl.{store}.type={store_type} cannot be read: "
                "convert it to PEM (openssl pkcs12 -in ... -nodes)"
            )
    key_store = _pem_file(given, "ssl.keystore.location")
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("", "none", "https"):
        raise ValueError(
            f"ssl.endpoint.identification.algorithm={algorithm} is unknown: use https, or nothing"
        )
    return Tls(
        ca_file=_pem_file(given, "ssl.truststore.location") or _pem_file(given, "ssl.ca.location"),
        ca_text=given.get("ssl.truststore.certificates", "") or given.get("ssl.ca.pem", ""),
        certificate_file=key_store or _pem_file(given, "ssl.certificate.location"),
        certificate_text=given.get("ssl.keystore.certificate.chain", "")
        or given.get("ssl.certificate.pem", ""),
        key_file=key_store or _pem_file(given, "ssl.key.location"),
        key_text=given.get("ssl.keystore.key", "") or given.get("ssl.key.pem", ""),
        key_password=given.get("ssl.key.password", ""),
        check_host=algorithm == "https",
    )


def _pem_file(given: Mapping[str, str], name: str) -> str:
    path = given.get(name, "")
    if path:
        try:
            with open(path, "rb") as file:
                head = file.read(64 * 1024)
        except OSError as error:
            raise ValueError(
                f"{name}={path} cannot be read: {(error.strerror or str(error)).lower()}"
            ) from None
        if b"-----BEGIN " not in head:
            raise ValueError(f"{name}={path} is not PEM: convert it (openssl pkcs12 -in ... -nodes -out ...)")
    return path


def _read_sasl(given: Mapping[str, str], protocol: str) -> Sasl:
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise ValueError(
            f"security.protocol={protocol} with sasl.mechanism={mechanism} is not supported: use "
            f"{', '.join(MECHANISMS)}"
        )
    login = {match[1]: _unquoted(match) for match in _LOGIN.finditer(given.get("sasl.jaas.config", ""))}
    username = given.get("sasl.username") or login.get("username", "")
    password = given.get("sasl.password") or login.get("password", "")
    if not username:
        raise ValueError("sasl.jaas.config names no username (or give sasl.username and sasl.password)")
    delegated = login.get("tokenauth", "").lower() == "true" and mechanism.startswith("SCRAM")
    return Sasl(mechanism, username, password, delegated)


def _unquoted(found: re.Match[str]) -> str:
    quoted = found[2] if found[2] is not None else found[3]
    return found[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
