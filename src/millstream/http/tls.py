"""TLS for HTTPS listeners, from Kafka's ssl.* settings. Changed stores are used for new connections."""

import asyncio
import logging
import os
import ssl
import tempfile
from pathlib import Path

from millstream.http.service_config import ServiceConfig

log = logging.getLogger(__name__)

RELOAD_SECONDS = 10.0


def server_context(config: ServiceConfig) -> ssl.SSLContext:
    """For HTTPS listeners. ValueError or OSError where key or certificates cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that offers both speaks HTTP/2, as with Jetty; the preface shows which one it is (upgrades.py).
    context.set_alpn_protocols(["h2", "http/1.1"])
    load_key(context, config)
    asked = client_authentication(config)
    if asked != "NONE":
        truststore = config.tls("ssl.truststore.location")
        if not truststore:
            raise ValueError("ssl.client.authentication needs ssl.truststore.location")
        context.load_verify_locations(truststore)
        context.verify_mode = ssl.CERT_REQUIRED if asked == "REQUIRED" else ssl.CERT_OPTIONAL
        # A resumed session is not verified again: with tickets, who is trusted no more would still come in.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def load_key(context: ssl.SSLContext, config: ServiceConfig) -> None:
    """The server's key and certificates, in place of others that the context may have."""
    location = config.tls("ssl.keystore.location")
    if not location:
        raise ValueError("an https listener needs ssl.keystore.location")
    store_type = config.tls("ssl.keystore.type").upper() or "PEM"
    try:
        if store_type == "PKCS12":
            _load_pkcs12(context, location, config.tls("ssl.keystore.password") or None)
        elif store_type == "PEM":
            # Without a password the library would ask for one on the terminal.
            context.load_cert_chain(location, password=config.tls("ssl.key.password") or "")
        else:
            raise ValueError(f"ssl.keystore.type={store_type} is not supported: use PEM or PKCS12")
    except ssl.SSLError as error:
        fits = "KEY_VALUES_MISMATCH" not in (error.reason or "")
        reason = f"it cannot be read ({error.reason})" if fits else "its key does not fit its certificate"
        raise ValueError(f"ssl.keystore.location={location}: {reason}") from None
    except OSError as error:
        raise ValueError(
            f"ssl.keystore.location={location}: {(error.strerror or str(error)).lower()}"
        ) from None


async def keep_stores(context: ssl.SSLContext, config: ServiceConfig) -> None:
    """Use the key store and the trust store anew when their files have changed, for ever. What cannot be used
    is said once, and the old stays. It is loaded in a thread, into a context of its own, for nothing can be
    taken out of one; each handshake changes over to the newest, in the callback for server names, because
    that is where OpenSSL lets a context be exchanged."""
    locations = [
        config.tls("ssl.keystore.location"),
        config.tls("ssl.truststore.location") if client_authentication(config) != "NONE" else "",
    ]
    known = [_stamp(location) for location in locations]
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        found = [_stamp(location) or before for location, before in zip(locations, known, strict=True)]
        if found == known:
            continue
        changed = [location for location, old, new in zip(locations, known, found, strict=True) if old != new]
        known = found
        try:
            newest = await loop.run_in_executor(None, server_context, config)
        except (OSError, ValueError) as error:
            log.warning("keys and trusted certificates stay what they were: %s", error)
            continue

        def exchange(
            connection: ssl.SSLObject | ssl.SSLSocket,
            _name: str | None,
            _context: ssl.SSLContext,
            newest: ssl.SSLContext = newest,
        ) -> None:
            connection.context = newest

        context.sni_callback = exchange
        log.info("new connections use what is now in %s", " and ".join(changed))


def _stamp(location: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(location)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def client_authentication(config: ServiceConfig) -> str:
    """NONE, REQUESTED or REQUIRED: whether clients show a certificate. `ssl.client.auth` is Kafka Connect's
    name for it, and an older one of Confluent's services, with true and false."""
    other = config.tls("ssl.client.auth")
    given = other or config.tls("ssl.client.authentication") or "NONE"
    found = {"TRUE": "REQUIRED", "FALSE": "NONE"}.get(given.upper(), given.upper())
    if found not in ("NONE", "REQUESTED", "REQUIRED"):
        name = "ssl.client.auth" if other else "ssl.client.authentication"
        raise ValueError(f"{name}={given} is unknown: use NONE, REQUESTED or REQUIRED")
    return found


def peer_context(config: ServiceConfig) -> ssl.SSLContext:
    """For requests to other instances of the same service, which trust each other by the settings with which
    they serve."""
    context = ssl.create_default_context()
    truststore = config.tls("ssl.truststore.location")
    if truststore:
        context.load_verify_locations(truststore)
    if config.given.get("ssl.endpoint.identification.algorithm", "https") in ("", "none"):
        context.check_hostname = False
    location = config.tls("ssl.keystore.location")
    if location and (config.tls("ssl.keystore.type").upper() or "PEM") == "PEM":
        context.load_cert_chain(location, password=config.tls("ssl.key.password") or None)
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
