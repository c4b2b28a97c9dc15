"""TLS for HTTPS listeners, from Kafka's ssl.* settings."""

import ssl
import tempfile
from pathlib import Path

from millstream.http.service_config import ServiceConfig


def server_context(config: ServiceConfig) -> ssl.SSLContext:
    """For HTTPS listeners. ValueError or OSError where key or certificates cannot be used."""
    location = config.value("ssl.keystore.location")
    if not location:
        raise ValueError("an https listener needs ssl.keystore.location")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that offers both speaks HTTP/2, as with Jetty; the preface shows which one it is (upgrades.py).
    context.set_alpn_protocols(["h2", "http/1.1"])
    store_type = str(config.value("ssl.keystore.type")).upper()
    if store_type == "PKCS12":
        _load_pkcs12(context, location, config.secret("ssl.keystore.password"))
    elif store_type == "PEM":
        context.load_cert_chain(location, password=config.secret("ssl.key.password"))
    else:
        raise ValueError(f"ssl.keystore.type={store_type} is not supported: use PEM or PKCS12")
    client_authentication = str(config.value("ssl.client.authentication")).upper()
    if client_authentication != "NONE":
        truststore = config.value("ssl.truststore.location")
        if not truststore:
            raise ValueError("ssl.client.authentication needs ssl.truststore.location")
        context.load_verify_locations(truststore)
        context.verify_mode = ssl.CERT_REQUIRED if client_authentication == "REQUIRED" else ssl.CERT_OPTIONAL
    return context


def _load_pkcs12(context: ssl.SSLContext, location: str, password: str | None) -> None:
    """Python's ssl module reads PEM files only, so the contents go through one that exists for a moment."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ValueError("PKCS12 files need the package `cryptography`; PEM files work without") from None
    data = Path(location).read_bytes()
    key, certificate, chain = pkcs12.load_key_and_certificates(data, password.encode() if password else None)
    if key is None or certificate is None:
        raise ValueError(f"{location} holds no key with its certificate")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem += b"".join(link.public_bytes(Encoding.PEM) for link in (certificate, *chain))
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
