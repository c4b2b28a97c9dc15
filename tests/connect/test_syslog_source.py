"""The syslog source: what messages say, and how they arrive."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.connect.connectors.syslog_message import Frames, parse
from millstream.connect.errors import RetriableError
from millstream.testing.connect import SourceRun

SYSLOG = "io.confluent.connect.syslog.SyslogSourceConnector"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def fields(text: str) -> dict[str, Any]:
    found = parse(text.encode(), "10.0.0.1", NOW)
    return {
        field.name: value
        for field, value in zip(found.schema.fields, found.values, strict=True)
        if value is not None and field.name not in ("rawMessage", "remoteAddress", "level", "tag")
    }


def test_rfc_5424() -> None:
    """The examples of section 6.5, and a few that it forbids."""
    text = "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff'su root' failed"
    assert fields(text) == {
        "type": "RFC5424", "facility": 4, "severity": 2, "version": 1, "host": "mymachine.example.com",
        "date": datetime(2003, 10, 11, 22, 14, 15, 3000, tzinfo=UTC), "appName": "su", "messageId": "ID47",
        "message": "'su root' failed",
    }  # fmt: skip
    found = fields(
        "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 evntslog 8710 - "
        '[exampleSDID@32473 iut="3" eventID="a \\"b\\" \\] \\\\"][other@1] An entry'
    )
    assert found["structuredData"] == {
        "exampleSDID@32473": {"iut": "3", "eventID": 'a "b" ] \\'},
        "other@1": {},
    }
    assert found["date"] == datetime(2003, 8, 24, 12, 14, 15, tzinfo=UTC)
    assert (found["processId"], found["message"]) == ("8710", "An entry")
    assert fields("<0>1 - - - - - -") == {
        "type": "RFC5424",
        "facility": 0,
        "severity": 0,
        "version": 1,
        "message": "",
    }
    assert fields("<34>1 yesterday host app - - - x")["type"] == "UNKNOWN"
    assert fields("<34>1 2003-10-11T22:14:15Z host app - - [broken x")["type"] == "UNKNOWN"


def test_rfc_3164() -> None:
    assert fields("<34>Oct 11 22:14:15 mymachine su[230]: 'su root' failed") == {
        "type": "RFC3164", "facility": 4, "severity": 2, "host": "mymachine", "appName": "su",
        "processId": "230", "date": datetime(2025, 10, 11, 22, 14, 15, tzinfo=UTC),
        "message": "'su root' failed",
    }  # fmt: skip
    assert fields("<13>Jan  3 00:00:00 host no tag here")["message"] == "no tag here"
    assert fields("<13>Jan 20 00:00:00 host x: y")["date"].year == 2026
    assert fields("<13>Feb 29 00:00:00 host x: y")["type"] == "UNKNOWN"


def test_anything_is_kept() -> None:
    for text in ("", "hello", "<999>x", "<34>", "<34>Foo 11 22:14:15 a b: c", "\x00\xff"):
        found = parse(text.encode("latin-1"), None, NOW)
        assert found.get("type") == "UNKNOWN"
        found.validate()


def test_frames_of_a_stream() -> None:
    frames = Frames()
    data = b"5 <1>ab<2>line\r\n<3>x\n\n7 <4>\nlast<5>rest"
    whole: list[bytes] = []
    for at in range(len(data)):
        whole += frames.feed(data[at : at + 1])
    assert whole == [b"<1>ab", b"<2>line\r", b"<3>x", b"<4>\nlas"]
    assert frames.rest() == b"t<5>rest"
    assert Frames().feed(data) == whole
    with pytest.raises(ValueError, match="bytes"):
        Frames().feed(b"9999999 <1>")
    with pytest.raises(ValueError, match="bytes"):
        Frames().feed(b"x" * (2 << 20))


def source(kind: str, **more: str) -> tuple[SourceRun, int]:
    settings = {"syslog.listener": kind, "syslog.port": "0", "syslog.listen.address": "127.0.0.1", **more}
    run = SourceRun(SYSLOG, settings)
    task: Any = run.task
    return run, task.port


def test_udp_from_logger() -> None:
    run, port = source("UDP")
    if logger := shutil.which("logger"):
        command = [logger, "--server", "127.0.0.1", "--port", str(port), "--udp", "--tag", "bell"]
        subprocess.run([*command, "--rfc5424", "--priority", "user.warning", "ding"], check=True)
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(
                f"<12>1 {datetime.now(UTC).isoformat()} h bell - - - ding".encode(), ("127.0.0.1", port)
            )
    (record,) = run.read(1)
    assert (record.topic, record.key) == ("syslog", "127.0.0.1")
    assert (record.value.get("message"), record.value.get("appName")) == ("ding", "bell")
    assert record.value.get("severity") == 4
    run.stop()


def test_tcp_from_many() -> None:
    run, port = source("TCP", **{"syslog.queue.max.size": "2", "batch.size": "3"})
    senders = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    for number, sender in enumerate(senders):
        for line in range(20):
            sender.sendall(f"<13>Jan  1 00:00:00 h s{number}: {line}\n".encode())
        sender.close()
    found = run.read(100)
    for number in range(5):
        mine = [one.value.get("message") for one in found if one.value.get("tag") == f"s{number}"]
        assert mine == [str(line) for line in range(20)]
    run.stop()


def test_tls(tmp_path: Path) -> None:
    certificate(tmp_path)
    run, port = source(
        "TCPSSL",
        **{
            "syslog.ssl.cert.chain.path": str(tmp_path / "cert.pem"),
            "syslog.ssl.private.key.path": str(tmp_path / "key.pem"),
        },
    )
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"<13>not secret\n")
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(b"15 <13>secret\nhere")
    (record,) = run.read(1)
    assert record.value.get("rawMessage") == "<13>secret\nhere"
    run.stop()


def certificate(folder: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def test_a_port_that_is_taken_is_tried_again() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(RetriableError, match="cannot listen"),
    ):
        source("TCP", **{"syslog.port": str(other.getsockname()[1])})
