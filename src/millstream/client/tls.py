"""TLS around a connection to a broker."""

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from functools import lru_cache

from millstream.client.errors import Unreachable
from millstream.client.security import Tls
from millstream.client.transport import PlainTransport
from millstream.wire.compression import Buffer

JOINED = 64 * 1024  # parts up to this are sent as one: a TLS record of its own for a few bytes is waste


class TlsTransport(PlainTransport):
    """A TCP socket with TLS on it."""

    __slots__ = ()

    def __init__(self, host: str, port: int, timeout: float, tls: Tls) -> None:
        context = tls_context(tls)
        super().__init__(host, port, timeout)
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            self._refused(
                f"the certificate of the broker at {self.address} is not trusted: {error.verify_message}"
            )
        except TimeoutError:
            self._refused(f"no TLS handshake with {self.address} within {timeout:g} s", again=True)
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).lower().replace("_", " ")
            self._refused(
                f"no TLS with the broker at {self.address}: {reason} (is this listener one with TLS?)"
            )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            self._refused(f"the broker at {self.address} broke the TLS handshake off: {reason}", again=True)

    def send(self, parts: list[Buffer], deadline: float) -> None:
        views = [memoryview(part) for part in parts if len(part)]
        if sum(map(len, views)) <= JOINED:
            views = [memoryview(b"".join(views))]
        try:
            for view in views:
                self._socket.settimeout(self._left(deadline))
                self._socket.sendall(view)
        except TimeoutError:
            raise self._late() from None
        except OSError as error:
            raise self._broken(error) from None

    def _refused(self, message: str, again: bool = False) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        raise Unreachable(message, again=again) from None


@lru_cache(maxsize=16)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """Reading certificates takes milliseconds; a cluster has many connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.check_host
    what = "the certificates to trust (ssl.truststore)"
    try:
        if tls.ca_file or tls.ca_text:
            context.load_verify_locations(tls.ca_file or None, cadata=tls.ca_text or None)
        else:
            context.load_default_certs()
        if tls.certificate_file or tls.certificate_text:
            what = "the client's certificate and key (ssl.keystore)"
            with (
                _file(tls.certificate_file, tls.certificate_text) as certificate,
                _file(tls.key_file, tls.key_text) as key,
            ):
                context.load_cert_chain(certificate, key or None, tls.key_password or None)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise Unreachable(f"{what} cannot be used: {error}", again=False) from None
    return context


@contextlib.contextmanager
def _file(path: str, text: str) -> Iterator[str]:
    """A path for what may be text: Python's TLS reads our own certificate and key from files only."""
    if path or not text:
        yield path
        return
    handle, name = tempfile.mkstemp(suffix=".pem")  # readable by this user only
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield name
    finally:
        os.unlink(name)
