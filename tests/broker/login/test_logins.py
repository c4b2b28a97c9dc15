# ruff: noqa: S106
"""Logins at a whole broker: the order of requests, limits, sessions that end, secrets that stay secret."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from millstream.broker.network.login_failures import LoginFailures
from millstream.client import ClientConfig, Cluster
from millstream.client.connection import Connection
from millstream.client.messages import exchange, request_header
from millstream.client.sasl import Scram, log_in
from millstream.client.security import Sasl
from millstream.testing import Broker, BrokerFailed
from millstream.wire.errors import ErrorCode, KafkaError
from tests.support.secured import PASSWORD, Secured
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    more: dict[str, Any] = {"millstream__metrics__listener": "127.0.0.1:0"}
    with Secured(tmp_path_factory.mktemp("logins"), **more) as made:
        made.add_user()
        yield made
        assert "Traceback" not in made.broker.log
        assert PASSWORD not in made.broker.log


class Raw:
    """A connection that sends what it is told to."""

    def __init__(self, address: str, source: str = "127.0.0.1") -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), 20, (source, 0))

    def frame(self, content: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(content)) + content)

    def read(self) -> bytes | None:
        """The next frame; None if the broker hung up."""
        try:
            head = self._exactly(4)
            return None if head is None else self._exactly(struct.unpack(">i", head)[0])
        except ConnectionError:
            return None

    def _exactly(self, size: int) -> bytes | None:
        got = b""
        while len(got) < size:
            piece = self.socket.recv(size - len(got))
            if not piece:
                return None
            got += piece
        return got

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        form = exchange(api, version)
        self.frame(request_header(form.key, version, 7, b"raw", form.flexible) + form.encode(fields))
        answer = self.read()
        return None if answer is None else form.decode(memoryview(answer)[4:])

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def raw(secured: Secured) -> Iterator[Raw]:
    made = Raw(secured.servers["SASL_PLAINTEXT"])
    yield made
    made.close()


def plain(user: str = "alice", password: str = PASSWORD) -> bytes:
    return f"\0{user}\0{password}".encode()


def metadata(raw: Raw) -> Any:
    return raw.ask(
        "metadata",
        9,
        topics=[],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


# ---------------------------------------------------------------------- the order of requests


def test_the_usual_order(raw: Raw) -> None:
    assert raw.ask("api_versions", 3, client_software_name="x", client_software_version="1").error_code == 0
    assert raw.ask("api_versions", 0).error_code == 0
    assert "SCRAM-SHA-512" in raw.ask("sasl_handshake", 1, mechanism="PLAIN").mechanisms
    answer = raw.ask("sasl_authenticate", 2, auth_bytes=plain())
    assert answer.error_code == 0
    assert metadata(raw) is not None


def test_tokens_without_a_header_after_handshake_0(raw: Raw) -> None:
    assert raw.ask("sasl_handshake", 0, mechanism="PLAIN").error_code == 0
    raw.frame(plain())
    assert raw.read() == b""
    assert metadata(raw) is not None


def test_a_wrong_token_without_a_header_just_ends(raw: Raw) -> None:
    raw.ask("sasl_handshake", 0, mechanism="PLAIN")
    raw.frame(plain(password="x"))
    assert raw.read() is None


def test_everything_in_one_packet(raw: Raw) -> None:
    handshake, login = exchange("sasl_handshake", 1), exchange("sasl_authenticate", 2)
    versions = exchange("api_versions", 0)
    parts = [
        request_header(17, 1, 1, b"raw", False) + handshake.encode({"mechanism": "PLAIN"}),
        request_header(36, 2, 2, b"raw", True) + login.encode({"auth_bytes": plain()}),
        request_header(18, 0, 3, b"raw", False) + versions.encode({}),
    ]
    raw.socket.sendall(b"".join(struct.pack(">i", len(part)) + part for part in parts))
    numbers = [struct.unpack(">i", (raw.read() or b"")[:4])[0] for _ in parts]
    assert numbers == [1, 2, 3]


def test_requests_before_the_login_end_the_connection(secured: Secured) -> None:
    for first in (lambda raw: None, lambda raw: raw.ask("sasl_handshake", 1, mechanism="PLAIN")):
        raw = Raw(secured.servers["SASL_PLAINTEXT"])
        first(raw)
        assert metadata(raw) is None
        raw.close()
    raw = Raw(secured.servers["SASL_PLAINTEXT"])
    assert raw.ask("sasl_authenticate", 1, auth_bytes=plain()) is None  # without a mechanism
    raw.close()


@pytest.mark.parametrize("version", [0, 3, 4])
def test_api_versions_in_the_middle_of_a_login_is_told_so(raw: Raw, version: int) -> None:
    raw.ask("sasl_handshake", 1, mechanism="PLAIN")
    answer = raw.ask("api_versions", version, client_software_name="x", client_software_version="1")
    assert answer.error_code == ErrorCode.illegal_sasl_state
    assert raw.read() is None


def test_a_second_handshake_in_the_middle_of_a_login_is_told_so(raw: Raw) -> None:
    raw.ask("sasl_handshake", 1, mechanism="PLAIN")
    answer = raw.ask("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
    assert answer.error_code == ErrorCode.illegal_sasl_state
    assert raw.read() is None


def test_an_unknown_mechanism_is_told_what_there_is(raw: Raw) -> None:
    answer = raw.ask("sasl_handshake", 1, mechanism="GSSAPI")
    assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
    assert tuple(answer.mechanisms) == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    assert raw.read() is None


def test_a_refusal_is_answered_then_the_connection_ends(raw: Raw) -> None:
    raw.ask("sasl_handshake", 1, mechanism="PLAIN")
    answer = raw.ask("sasl_authenticate", 1, auth_bytes=plain(password="guess"))
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert raw.read() is None


def test_where_nobody_logs_in(secured: Secured) -> None:
    raw = Raw(secured.servers["PLAINTEXT"])
    assert raw.ask("sasl_handshake", 1, mechanism="PLAIN").error_code == ErrorCode.illegal_sasl_state
    assert raw.ask("sasl_authenticate", 1, auth_bytes=b"").error_code == ErrorCode.illegal_sasl_state
    raw.close()


@pytest.mark.parametrize("size", [600_000, 2**31 - 1, -1])
def test_frames_before_the_login_are_small(secured: Secured, raw: Raw, size: int) -> None:
    raw.socket.sendall(struct.pack(">i", size) + bytes(100))
    assert raw.read() is None
    wait_until(lambda: "(sasl.server.max.receive.size)" in secured.broker.log)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", bytes(9), bytes(20), b"\0\x11\0\x01\0\0\0\1\xff\xff\x7f\xff", b"\0\x24" + bytes(30)],
)
def test_frames_before_the_login_that_make_no_sense(raw: Raw, content: bytes) -> None:
    raw.frame(content)
    assert raw.read() is None


# ---------------------------------------------------------------------- sessions


def _connect(
    secured: Secured, mechanism: str = "SCRAM-SHA-512", user: str = "alice", password: str = PASSWORD
) -> Connection:
    host, port = secured.servers["SASL_PLAINTEXT"].split(":")
    given = secured.properties("SASL_PLAINTEXT", mechanism, password, user)
    return Connection(ClientConfig.of(f"{host}:{port}", given), host, int(port))


def test_logging_in_again(secured: Secured) -> None:
    with _connect(secured) as connection:
        for _ in range(3):
            log_in(connection.request, Sasl("SCRAM-SHA-512", "alice", PASSWORD), "again")
            connection.request("list_groups")


def test_logging_in_again_as_somebody_else(secured: Secured) -> None:
    with (
        _connect(secured, "PLAIN") as connection,
        pytest.raises(KafkaError, match="Cannot change principals"),
    ):
        log_in(connection.request, Sasl("PLAIN", "bob", "bob-secret"), "again")
    with _connect(secured, "PLAIN") as connection, pytest.raises(KafkaError):
        log_in(connection.request, Sasl("SCRAM-SHA-512", "alice", PASSWORD), "again")


def test_a_session_that_does_not_log_in_again_ends(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "listener__name__sasl_plaintext__scram-sha-512__connections__max__reauth__ms": 3000
    }
    with Secured(tmp_path, **more) as secured:
        secured.add_user()
        raw = Raw(secured.servers["SASL_PLAINTEXT"])
        raw.ask("sasl_handshake", 1, mechanism="PLAIN")
        assert raw.ask("sasl_authenticate", 1, auth_bytes=plain()).session_lifetime.total_seconds() == 0
        with _connect(secured) as connection:
            connection.request("list_groups")
            wait_until(lambda: _gone(connection))
        with _connect(secured) as connection:  # one that logs in again lives on
            for _ in range(8):
                log_in(connection.request, Sasl("SCRAM-SHA-512", "alice", PASSWORD), "again")
                connection.request("list_groups")
        raw.close()


def _gone(connection: Connection) -> bool:
    try:
        connection.request("list_groups")
    except KafkaError:
        return True
    return False


def test_librdkafka_logs_in_again_by_itself(tmp_path: Path) -> None:
    with Secured(tmp_path, connections__max__reauth__ms=1000) as secured:
        secured.add_user()
        admin = AdminClient(secured.rdkafka("SASL_PLAINTEXT", "SCRAM-SHA-256"))
        before = secured.broker.log.count("is User:alice")
        admin.list_topics(timeout=20)

        def several() -> bool:
            admin.list_topics(timeout=20)
            return secured.broker.log.count("is User:alice") >= before + 6

        wait_until(several, patience=30)


def test_a_token_that_expires_ends_the_session(secured: Secured) -> None:
    raw = Raw(secured.servers["SASL_PLAINTEXT"])
    raw.ask("sasl_handshake", 1, mechanism="OAUTHBEARER")
    first = f"n,,\x01auth=Bearer {secured.tokens.token(seconds=4)}\x01\x01".encode()
    answer = raw.ask("sasl_authenticate", 1, auth_bytes=first)
    assert 0 < answer.session_lifetime.total_seconds() <= 4
    wait_until(lambda: metadata(raw) is None)
    raw.close()


def test_removing_a_user_ends_his_sessions(secured: Secured) -> None:
    secured.add_user("carol", "carols")
    secured.add_user("dave", "daves")
    carol, by_password = (
        _connect(secured, user="carol", password="carols"),
        _connect(secured, "PLAIN", "carol", "carols"),
    )
    dave = _connect(secured, user="dave", password="daves")
    admin = AdminClient({"bootstrap.servers": secured.servers["PLAINTEXT"]})
    change = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(20)
    for connection in (carol, by_password):
        with pytest.raises(KafkaError):
            connection.request("list_groups")
        connection.close()
    dave.request("list_groups")
    dave.close()
    with pytest.raises(KafkaError, match="failed"):
        _connect(secured, user="carol", password="carols")


def test_a_user_who_is_removed_during_his_login_does_not_come_in(secured: Secured, raw: Raw) -> None:
    secured.add_user("erin", "erins")
    client = Scram(Sasl("SCRAM-SHA-512", "erin", "erins"), "nonce-of-erin")
    raw.ask("sasl_handshake", 1, mechanism="SCRAM-SHA-512")
    challenge = raw.ask("sasl_authenticate", 1, auth_bytes=client.first)
    admin = AdminClient({"bootstrap.servers": secured.servers["PLAINTEXT"]})
    change = UserScramCredentialDeletion("erin", ScramMechanism.SCRAM_SHA_512)
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(20)
    answer = raw.ask("sasl_authenticate", 1, auth_bytes=client.answer(bytes(challenge.auth_bytes)))
    assert answer.error_code is ErrorCode.sasl_authentication_failed
    assert raw.read() is None


# ---------------------------------------------------------------------- guessing


def test_a_failure_does_not_end_a_lock_out() -> None:
    now = 0.0
    failures = LoginFailures(2, lambda: now)
    failures.failed("h", 1, "L", "first")
    now = 59.0
    failures.failed("h", 1, "L", "second")
    assert failures.refuses("h")
    now = 61.0  # a new minute has begun, on a connection that was inside already
    failures.failed("h", 1, "L", "third")
    assert failures.refuses("h")
    now = 120.0
    assert not failures.refuses("h")


def test_an_address_that_guesses_is_locked_out_but_not_those_inside(tmp_path: Path) -> None:
    with Secured(tmp_path, millstream__login__failures__per__address=5) as secured:
        secured.add_user()
        inside = _connect(secured)
        for _ in range(5):
            with pytest.raises(KafkaError):
                _connect(secured, "PLAIN", password="guess")
        with pytest.raises(KafkaError, match=r"closed|broke|reset"):
            _connect(secured)
        inside.request("list_groups")
        inside.close()
        assert "has failed to log in 5 times" in secured.broker.log
        assert secured.broker.log.count("login refused") == 1  # a line a minute
        with Cluster(ClientConfig.of(secured.servers["PLAINTEXT"])) as cluster:  # no login, nothing to guess
            cluster.refresh([])


def test_failed_handshakes_do_not_count_as_guesses() -> None:
    failures = LoginFailures(3)
    for _ in range(50):  # a health check that does not speak TLS
        failures.handshake_failed("h", 1, "L", "no TLS")
    failures.failed("h", 1, "L", "mistyped")
    assert not failures.refuses("h")
    for _ in range(2):
        failures.failed("h", 1, "L", "wrong")
    assert failures.refuses("h")


def test_connections_that_were_opened_before_are_locked_out_too(tmp_path: Path) -> None:
    with Secured(tmp_path, millstream__login__failures__per__address=5) as secured:
        ready = [Raw(secured.servers["SASL_PLAINTEXT"]) for _ in range(12)]
        for raw in ready:
            assert raw.ask("sasl_handshake", 1, mechanism="PLAIN").error_code == 0
        answers = [raw.ask("sasl_authenticate", 1, auth_bytes=plain(password="guess")) for raw in ready[:-1]]
        assert [answer is not None for answer in answers] == [True] * 5 + [False] * 6
        assert ready[-1].ask("sasl_authenticate", 1, auth_bytes=plain()) is None  # nor is it told what fits
        for raw in ready:
            raw.close()


def test_who_leaves_while_a_password_is_hashed_is_counted(tmp_path: Path) -> None:
    with Secured(tmp_path, millstream__login__failures__per__address=5) as secured:

        def locked_out() -> bool:
            raw = Raw(secured.servers["SASL_PLAINTEXT"])
            try:
                if raw.ask("sasl_handshake", 1, mechanism="PLAIN") is None:
                    return True
                body = exchange("sasl_authenticate", 1).encode({"auth_bytes": plain("nobody", "guess")})
                raw.frame(request_header(36, 1, 1, b"raw", False) + body)
            except ConnectionError:
                return True
            finally:
                raw.close()
            return False

        wait_until(locked_out)
        assert "never retrieved" not in secured.broker.log


def test_many_wrong_passwords_do_not_hold_up_others(secured: Secured) -> None:
    guessing = [Raw(secured.servers["SASL_PLAINTEXT"]) for _ in range(50)]
    for raw in guessing:
        raw.ask("sasl_handshake", 1, mechanism="PLAIN")
        form = exchange("sasl_authenticate", 1)
        body = form.encode({"auth_bytes": plain("somebody", "guess")})
        raw.frame(request_header(36, 1, 1, b"raw", False) + body)
    with _connect(secured, "SCRAM-SHA-256") as connection:
        connection.request("list_groups")
    for raw in guessing:
        assert raw.read() is not None
        raw.close()


def test_a_thousand_wrong_passwords_at_once(tmp_path: Path) -> None:
    """From many addresses, so that none is locked out early. All are refused; who knows his password comes in
    meanwhile, and what the broker held for the others is given back."""
    more: dict[str, Any] = {"millstream__metrics__listener": "127.0.0.1:0"}
    with Secured(tmp_path, millstream__login__failures__per__address=20, **more) as secured:
        secured.add_user()
        inside = _connect(secured)
        form = exchange("sasl_authenticate", 1)
        guessing = []
        for number in range(1000):
            raw = Raw(secured.servers["SASL_PLAINTEXT"], f"127.0.1.{number % 100 + 1}")
            guessing.append(raw)
            handshake = exchange("sasl_handshake", 1).encode({"mechanism": "PLAIN"})
            raw.frame(request_header(17, 1, 1, b"raw", False) + handshake)
            body = form.encode({"auth_bytes": plain(f"user-{number % 7}", f"guess-{number}")})
            raw.frame(request_header(36, 1, 2, b"raw", False) + body)
        for _ in range(5):
            inside.request("list_groups")
            with _connect(secured, "SCRAM-SHA-256") as connection:
                connection.request("list_groups")
        for raw in guessing:
            assert raw.read() is not None
            answer = raw.read()
            assert answer is not None
            refused = form.decode(memoryview(answer)[4:])
            assert refused.error_code == ErrorCode.sasl_authentication_failed
            assert raw.read() is None
            raw.close()
        inside.request("list_groups")
        inside.close()
        port = secured.broker.log.split("metrics on http://127.0.0.1:")[1].split("/")[0]

        def metric(name: str) -> int:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
                text = page.read().decode()
            return int(float(text.split(f"\n{name} ")[1].split()[0]))

        wait_until(lambda: metric("millstream_unfinished_login_bytes") == 0)
        assert secured.broker.log.count("login refused") < 500  # a line a minute for each of 100 addresses


# ---------------------------------------------------------------------- SCRAM credentials


def test_scram_credentials_by_confluent_kafka(secured: Secured) -> None:
    admin = AdminClient({"bootstrap.servers": secured.servers["PLAINTEXT"]})
    secured.add_user("erin", "erins")
    found = admin.describe_user_scram_credentials(["erin"])["erin"].result(20)
    assert [(info.mechanism, info.iterations) for info in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096),
        (ScramMechanism.SCRAM_SHA_512, 4096),
    ]
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["nobody"])["nobody"].result(20)

    def alter(change: Any) -> None:
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(20)

    with pytest.raises(KafkaException, match="does not exist"):
        alter(UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_256))
    few = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100)
    with pytest.raises(KafkaException, match="Too few iterations"):
        alter(UserScramCredentialUpsertion("erin", few, b"x"))
    many = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 16385)
    with pytest.raises(KafkaException, match="Too many iterations"):
        alter(UserScramCredentialUpsertion("erin", many, b"x"))


def test_users_survive_a_restart(tmp_path: Path) -> None:
    with Secured(tmp_path) as secured:
        secured.add_user()
        secured.broker.kill()
        secured.broker.start()
        ready = [line for line in secured.broker.log.splitlines() if line.startswith("ready ")][-1]
        for listener in ready.split("listeners=")[1].split()[0].split(","):
            name, _, address = listener.partition("://")
            secured.servers[name] = address
        with _connect(secured) as connection:
            connection.request("list_groups")


# ---------------------------------------------------------------------- start, and secrets


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "can offer PLAIN, SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI needs the broker's key"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "needs the keys of the token server"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "planted-secret"}, "sasl.jaas.config"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "ftp://x"},
            "https:// or file://",
        ),
    ],
)
def test_what_cannot_be_used_is_said_at_start(more: dict[str, object], words: str) -> None:
    with pytest.raises(BrokerFailed) as failed, Broker({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **more}):
        pass
    assert words in str(failed.value)
    assert "planted-secret" not in str(failed.value)


def test_secrets_are_nowhere_to_be_seen(secured: Secured) -> None:
    """Not in the log, the metrics, the settings as clients see them, or errors."""
    with _connect(secured) as connection:
        resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
        answer = connection.request(
            "describe_configs", resources=[resource], include_synonyms=True, include_documentation=False
        )
    shown = str(answer)
    assert "plain.sasl.jaas.config" in shown
    port = secured.broker.log.split("metrics on http://127.0.0.1:")[1].split("/")[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        metrics = page.read().decode()
    assert "millstream_logins_total" in metrics
    for text in (shown, metrics, secured.broker.log):
        for secret in (PASSWORD, "bob-secret"):
            assert secret not in text


def test_importing_a_plain_broker_loads_no_login() -> None:
    code = "import sys, millstream.broker.server; print([n for n in sys.modules if 'broker.login' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_half_a_login_takes_nothing_from_those_who_are_in(secured: Secured) -> None:
    """Their memory is counted by itself, and given back when they leave."""

    def held(name: str) -> int:
        port = secured.broker.log.split("metrics on http://127.0.0.1:")[1].split("/")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            text = page.read().decode()
        return int(text.split(f"\nmillstream_unfinished_{name}_bytes ")[1].split()[0])

    strangers = [Raw(secured.servers["SASL_PLAINTEXT"]) for _ in range(3)]
    for stranger in strangers:
        stranger.socket.sendall(struct.pack(">i", 500_000) + bytes(300_000))
    wait_until(lambda: held("login") >= 900_000)
    assert held("request") < 300_000
    for stranger in strangers:
        stranger.socket.close()
    wait_until(lambda: held("login") == 0)
