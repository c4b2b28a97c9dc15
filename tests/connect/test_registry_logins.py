"""How converters log in at a registry, and whom they trust."""

from __future__ import annotations

import json
import pickle
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.certificates import make_certificates
from millstream.client.security import Tls
from millstream.connect.config.config_def import ConfigError
from millstream.connect.converters.plugins import make_converter
from millstream.connect.data.schema import REQUIRED, Type
from millstream.connect.errors import RetriableError
from millstream.connect.runtime.pipeline import make_converters
from millstream.serdes import SchemaRegistry

AVRO = "io.confluent.connect.avro.AvroConverter"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="pw";'


class _Registry(BaseHTTPRequestHandler):
    callers: list[str | None]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.callers.append(self.headers.get("authorization"))
        data = json.dumps({"id": 7}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on the terminal."""


class RunningServer:
    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.callers: list[str | None] = []
        handler = type("Registry", (_Registry,), {"callers": self.callers})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def registry() -> Iterator[RunningServer]:
    running = RunningServer()
    yield running
    running.stop()


def write(settings: dict[str, str]) -> None:
    assert make_converter(AVRO, settings).from_connect("t", REQUIRED[Type.STRING], "x") is not None


@pytest.mark.parametrize(
    ("settings", "caller"),
    [
        ({}, None),
        ({"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "ann:pw"}, "Basic YW5uOnB3"),
        (
            {
                "basic.auth.credentials.source": "USER_INFO",
                "schema.registry.basic.auth.user.info": "ann:pw",
            },
            "Basic YW5uOnB3",
        ),
        ({"basic.auth.credentials.source": "SASL_INHERIT", "sasl.jaas.config": JAAS}, "Basic YW5uOnB3"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "abc"}, "Bearer abc"),
    ],
)
def test_logins(registry: RunningServer, settings: dict[str, str], caller: str | None) -> None:
    write({"schema.registry.url": f"http://127.0.0.1:{registry.port}", **settings})
    assert registry.callers == [caller]


def test_the_registry_of_the_worker(registry: RunningServer) -> None:
    url = f"http://127.0.0.1:{registry.port}"
    worker = {
        "key.converter": "StringConverter",
        "schema.registry.url": url,
        "schema.registry.basic.auth.user.info": "connect:pw",
    }
    # Neither address nor login; the same address; a login of one's own; another address.
    for own in (
        {},
        {"value.converter.schema.registry.url": url},
        {
            "value.converter.basic.auth.credentials.source": "USER_INFO",
            "value.converter.basic.auth.user.info": "ann:pw",
        },
        {"value.converter.schema.registry.url": f"http://localhost:{registry.port}"},
    ):
        made = make_converters({"value.converter": AVRO, **own}, worker)
        assert made.value.from_connect("t", REQUIRED[Type.STRING], "x") is not None
    assert registry.callers == ["Basic Y29ubmVjdDpwdw==", "Basic Y29ubmVjdDpwdw==", "Basic YW5uOnB3", None]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"basic.auth.credentials.source": "USER_INFO"}, "needs basic.auth.user.info"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "SASL_INHERIT"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "needs bearer.auth.token"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER"}, "Only STATIC_TOKEN"),
        ({"schema.registry.ssl.truststore.type": "JKS"}, "PEM"),
        ({"schema.registry.ssl.truststore.location": "/nowhere.pem"}, "nowhere"),
    ],
)
def test_logins_that_cannot_be(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        make_converter(AVRO, {"schema.registry.url": "https://u:geheim@127.0.0.1:1", **settings})
    assert "geheim" not in str(refused.value)


def test_a_registry_that_wants_a_certificate(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"], "connect", 2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "broker.pem")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    running = RunningServer(context)
    try:
        settings = {
            "schema.registry.url": f"https://localhost:{running.port}",
            "schema.registry.ssl.truststore.location": str(tmp_path / "ca.pem"),
            "schema.registry.ssl.keystore.location": str(tmp_path / "client.pem"),
        }
        write(settings)
        del settings["schema.registry.ssl.keystore.location"]
        with pytest.raises(RetriableError):
            write(settings)
        # A client that goes to another process trusts there whom it trusts here.
        ca, own = str(tmp_path / "ca.pem"), str(tmp_path / "client.pem")
        tls = Tls(ca_file=ca, certificate_file=own, key_file=own)
        client = SchemaRegistry(f"https://localhost:{running.port}", tls=tls)
        assert pickle.loads(pickle.dumps(client)).register("s", '"string"') == 7  # noqa: S301
    finally:
        running.stop()
