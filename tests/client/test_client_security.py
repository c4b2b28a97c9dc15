"""TLS and SASL of the client: settings, the login conversations, and TLS to a real broker through a small
tunnel."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.client import ClientConfig, Connection, Unreachable
from millstream.client.sasl import Scram
from millstream.client.security import Sasl, Tls, read_security
from millstream.testing import Broker

from .certificates import Authority

# --- settings -----------------------------------------------------------------------------------------------


def test_login_by_java_and_by_librdkafka_names() -> None:
    java = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="a \\"b\\";c";',
    }
    assert read_security(java) == ("SASL_PLAINTEXT", None, Sasl("SCRAM-SHA-512", "alice", 'a "b";c'))
    other = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "plain",
        "sasl.username": "bob",
        "sasl.password": "x",
    }
    assert read_security(other) == ("SASL_SSL", Tls(), Sasl("PLAIN", "bob", "x"))
    assert "x" not in repr(read_security(other)[2]).removeprefix("Sasl")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is unknown"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config names no username"),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "JKS"},
            "ssl.truststore.type=JKS cannot be read",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/does/not/exist"},
            "ssl.ca.location=/does/not/exist",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.location": __file__}, "is not PEM"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "=x is unknown"),
    ],
)
def test_mistakes(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        ClientConfig.of("a:1", properties)
    assert message in str(caught.value)


# --- SCRAM --------------------------------------------------------------------------------------------------

# The example of RFC 7677.
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_as_in_the_rfc() -> None:
    scram = Scram(Sasl("SCRAM-SHA-256", "user", "pencil"), NONCE)
    assert scram.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.answer(CHALLENGE) == PROOF
    scram.finish(LAST)


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"rOpr", b"xxxx"),
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=99999999"),
        CHALLENGE.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        b"nonsense",
    ],
)
def test_scram_refuses_a_bad_challenge(challenge: bytes) -> None:
    with pytest.raises(ValueError):
        Scram(Sasl("SCRAM-SHA-256", "user", "pencil"), NONCE).answer(challenge)


def test_scram_refuses_a_broker_that_does_not_know_the_password() -> None:
    scram = Scram(Sasl("SCRAM-SHA-256", "user", "pencil"), NONCE)
    scram.answer(CHALLENGE)
    for last in (b"v=AAAA", b"", b"e=other-error"):
        with pytest.raises(ValueError):
            scram.finish(last)


# --- TLS ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def tunnel(port: int, context: ssl.SSLContext) -> Iterator[int]:
    """TLS on a port of its own, plain to the broker behind it."""
    opened: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as threads:

        def start(target: Callable[..., None], *arguments: socket.socket) -> None:
            thread = threading.Thread(target=target, args=arguments)
            thread.start()
            threads.callback(thread.join)

        def pump(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    raw, _ = listener.accept()
                    try:
                        outside = context.wrap_socket(raw, server_side=True)
                    except OSError:
                        raw.close()
                        continue
                    inside = socket.create_connection(("127.0.0.1", port))
                    opened.extend((outside, inside))
                    for pair in ((outside, inside), (inside, outside)):
                        start(pump, *pair)

        start(serve)
        try:
            yield listener.getsockname()[1]
        finally:
            for end in (listener, *opened):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
    for end in opened:
        end.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def connect(port: int, **properties: str) -> int:
    """How many brokers the metadata name, asked for over TLS."""
    given = {"security.protocol": "SSL"} | {
        name.replace("_", "."): value for name, value in properties.items()
    }
    with Connection(ClientConfig.of(f"127.0.0.1:{port}", given), "127.0.0.1", port) as connection:
        return len(
            connection.request(
                "metadata",
                topics=[],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            ).brokers
        )


def test_tls(broker: Broker, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker"))
    with tunnel(broker.port, context) as port:
        assert connect(port, ssl_truststore_location=str(authority.pem)) == 1
        assert connect(port, ssl_truststore_certificates=authority.pem.read_text()) == 1
        with pytest.raises(Unreachable, match=r"is not trusted: unable to get local issuer") as caught:
            connect(port, ssl_truststore_location=str(stranger.pem))
        assert not caught.value.again
    with pytest.raises(Unreachable, match=r"no TLS with the broker at|broke the TLS handshake off"):
        connect(broker.port, ssl_truststore_location=str(authority.pem))


def test_tls_names_and_client_certificates(broker: Broker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("elsewhere", host="127.0.0.2"))
    context.load_verify_locations(authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    own = str(authority.issue("client", password="secret"))  # noqa: S106
    trusted = {
        "ssl_ca_location": str(authority.pem),
        "ssl_keystore_location": own,
        "ssl_key_password": "secret",
    }
    with tunnel(broker.port, context) as port:
        with pytest.raises(Unreachable, match="is not trusted: IP address mismatch"):
            connect(port, **trusted)
        unchecked = {"ssl_endpoint_identification_algorithm": ""}
        assert connect(port, **trusted, **unchecked) == 1
        with pytest.raises(Unreachable):
            connect(port, ssl_ca_location=str(authority.pem), **unchecked)
        with pytest.raises(Unreachable, match="the client's certificate and key"):
            connect(port, **{**trusted, "ssl_key_password": "wrong"}, **unchecked)
