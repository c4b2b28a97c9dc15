"""HTTPS, basic authentication and read-only users."""

import base64
import datetime
import hashlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from millstream.http.authentication import read_users
from millstream.registry.api.middleware import reads_only
from millstream.serdes import Encoder, RegistryRefused, SchemaRegistry
from millstream.testing import Broker
from tests.support.running import RunningRegistry


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A key with its own signature for 127.0.0.1: both in one PEM file, and the certificate alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "registry")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "server.pem").write_bytes(private + public)
    (folder / "ca.pem").write_bytes(public)
    return folder / "server.pem", folder / "ca.pem"


@pytest.fixture(scope="module")
def secured(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningRegistry, Path]]:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    folder = tmp_path_factory.mktemp("tls")
    server, ca = make_certificate(folder)
    users = folder / "users"
    digest = hashlib.md5(b"two", usedforsecurity=False).hexdigest()
    users.write_text(f"# users\nalice: one, admin\nbob: MD5:{digest}, readonly\ncarol: three, guest\n")
    settings = {
        "listeners": "https://127.0.0.1:0",
        "kafkastore.topic": "secured",
        "schema.registry.group.id": "secured",
        "ssl.keystore.location": server,
        "ssl.truststore.location": ca,
        "authentication.method": "BASIC",
        "authentication.user.file": users,
        "authentication.roles": "admin,readonly",
    }
    with RunningRegistry(broker.bootstrap_servers, settings, verify=str(ca)) as running:
        yield running, ca


def call(
    registry: RunningRegistry, user: str | None, method: str, path: str, **more: object
) -> httpx.Response:
    auth = tuple(user.split(":")) if user else None
    return registry.http.request(method, path, auth=auth, **more)  # type: ignore[arg-type]


def test_who_may_what(secured: tuple[RunningRegistry, Path]) -> None:
    registry, _ = secured
    body = {"schema": '"string"'}
    for user in (None, "alice:wrong", "nobody:one", "bob:one"):
        answer = call(registry, user, "GET", "/subjects")
        assert answer.status_code == 401 and answer.json()["error_code"] == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
    assert call(registry, "carol:three", "GET", "/subjects").status_code == 403
    assert call(registry, "alice:one", "POST", "/subjects/a/versions", json=body).status_code == 200
    assert call(registry, "bob:two", "GET", "/subjects").json() == ["a"]
    assert call(registry, "bob:two", "POST", "/subjects/a", json=body).status_code == 200
    assert (
        call(registry, "bob:two", "POST", "/compatibility/subjects/a/versions", json=body).status_code == 200
    )
    for method, path in (
        ("POST", "/subjects/a/versions"),
        ("POST", "/contexts/.c/subjects/a/versions"),
        ("PUT", "/config"),
        ("PUT", "/mode/a"),
        ("DELETE", "/subjects/a"),
        ("DELETE", "/config"),
    ):
        answer = call(registry, "bob:two", method, path, json=body if method != "DELETE" else None)
        assert (answer.status_code, answer.json()["error_code"]) == (403, 403), path
    broken = registry.http.get("/subjects", headers={"Authorization": "Basic %%%"})
    assert broken.status_code == 401
    empty = base64.b64encode(b"\xff\xfe").decode()
    assert registry.http.get("/subjects", headers={"Authorization": f"Basic {empty}"}).status_code == 401


def test_serdes_with_a_password(secured: tuple[RunningRegistry, Path]) -> None:
    registry, ca = secured
    schemas = SchemaRegistry(registry.url, user="alice", password="one", ca_file=str(ca))  # noqa: S106
    assert Encoder(schemas, '"string"').encode("t", "x")
    reader = SchemaRegistry(registry.url, user="bob", password="two", ca_file=str(ca))  # noqa: S106
    assert "t-value" in reader.subjects()
    with pytest.raises(RegistryRefused) as refused:
        Encoder(reader, '"int"').encode("other", 1)
    assert refused.value.status == 403


def test_users_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("a: b\n! comment\nc: {SHA256}" + hashlib.sha256(b"d").hexdigest() + ", r, s\n")
    users = read_users(str(path))
    assert users["a"].accepts("b") and not users["a"].accepts("B")
    assert users["c"].accepts("d") and users["c"].roles == {"r", "s"}
    path.write_text("nonsense\n")
    with pytest.raises(ValueError, match="line 1"):
        read_users(str(path))


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/anything", True),
        ("POST", "/subjects/a", True),
        ("POST", "/subjects/versions", False),
        ("POST", "/subjects/a/versions", False),
        ("POST", "/compatibility/subjects/a/versions", True),
        ("POST", "/subjects/a/versions/1/tags", False),
        ("PUT", "/config", False),
        ("PATCH", "/subjects", False),
    ],
)
def test_what_counts_as_reading(method: str, path: str, expected: bool) -> None:
    assert reads_only(method, path) is expected
