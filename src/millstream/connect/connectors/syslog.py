"""Syslog source: a port that takes messages over UDP, TCP or TLS.

The task listens on the machine where it runs, and there is one task: on a cluster of several machines the
port moves with it. Syslog acknowledges nothing: messages that arrive while the task is away are lost over
UDP, and wait with their sender over TCP; what was received and not committed is lost with the process. When
Kafka is slower than the senders, TCP makes them wait, and UDP drops.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import socketserver
import ssl
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from millstream.connect.api import Settings, SourceConnector, SourceContext, SourceTask
from millstream.connect.config.config_def import (
    REQUIRED,
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigKey,
    NonEmptyString,
    Range,
)
from millstream.connect.connectors.syslog_message import MAX_MESSAGE_BYTES, MESSAGE, Frames, parse
from millstream.connect.data.record import SourceRecord
from millstream.connect.data.schema import REQUIRED as SCHEMAS
from millstream.connect.data.schema import Type as SchemaType
from millstream.connect.errors import ConnectError, RetriableError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

log = logging.getLogger("millstream.connect")

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
TAKE_SECONDS = 0.2
CHUNK = 1 << 16
ALL_NETWORKS = "0.0.0.0"  # noqa: S104 - Confluent's default
_KEY = SCHEMAS[SchemaType.STRING]


class _Received(NamedTuple):
    data: bytes
    remote: str
    at: datetime


class SyslogSourceTask(SourceTask):
    idle_ms = 50

    def __init__(self) -> None:
        self._server: Any = None
        self._stopping = threading.Event()
        self._dropped = 0

    def start(self, settings: Settings, context: SourceContext) -> None:
        parsed = self._set = SyslogSource.config.parse(settings)
        self._queue: queue.Queue[_Received] = queue.Queue(parsed["syslog.queue.max.size"])
        self._listen()

    def _listen(self) -> None:
        kind = self._set["syslog.listener"].upper()
        address = (self._set["syslog.listen.address"], self._set["syslog.port"])
        try:
            if kind == "UDP":
                self._server = _UdpServer(address, _Datagram)
            else:
                server = _TcpServer(address, _Stream)
                server.context = self._tls() if kind == "TCPSSL" else None
                self._server = server
        except OSError as error:
            text = f"cannot listen on {address[0]}:{address[1]}: {error.strerror or error}"
            if isinstance(error, PermissionError | ssl.SSLError | FileNotFoundError):
                raise ConnectError(text) from None
            raise RetriableError(text) from None  # whoever had the port before may be on the way out
        self._server.task = self
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="syslog", daemon=True).start()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        password = self._set["syslog.ssl.private.key.password"]
        context.load_cert_chain(
            self._set["syslog.ssl.cert.chain.path"],
            self._set["syslog.ssl.private.key.path"] or None,
            password.value if password else None,
        )
        return context

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def take(self, data: bytes, remote: str, *, wait: bool) -> None:
        """From a connection's thread."""
        held = _Received(data, remote, datetime.now(UTC))
        while not self._stopping.is_set():
            try:
                self._queue.put(held, timeout=TAKE_SECONDS if wait else None, block=wait)
                return
            except queue.Full:
                if not wait:
                    self._dropped += 1
                    return

    def poll(self) -> Sequence[SourceRecord]:
        if self._dropped:
            log.warning("syslog: %d datagrams were dropped, the queue is full", self._dropped)
            self._dropped = 0
        found: list[SourceRecord] = []
        with contextlib.suppress(queue.Empty):
            while len(found) < self._set["batch.size"]:
                found.append(self._record(self._queue.get_nowait()))
        return found

    def _record(self, received: _Received) -> SourceRecord:
        return SourceRecord(
            topic=self._set["topic"],
            key_schema=_KEY,
            key=received.remote,
            value_schema=MESSAGE,
            value=parse(received.data, received.remote, received.at),
            timestamp=int(received.at.timestamp() * 1000),
        )

    def stop(self) -> None:
        self._stopping.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _UdpServer(socketserver.UDPServer):
    max_packet_size = 1 << 16
    allow_reuse_address = True


class _TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    context: ssl.SSLContext | None = None


class _Datagram(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        task: SyslogSourceTask = self.server.task  # type: ignore[attr-defined]
        task.take(self.request[0], self.client_address[0], wait=False)


class _Stream(socketserver.BaseRequestHandler):
    """The handshake is made here, in the connection's own thread: nobody else waits for it."""

    def handle(self) -> None:
        server: Any = self.server
        task: SyslogSourceTask = server.task
        remote, frames = self.client_address[0], Frames()
        connection: socket.socket = self.request
        try:
            if server.context is not None:
                connection.settimeout(10)
                connection = server.context.wrap_socket(connection, server_side=True)
            connection.settimeout(TAKE_SECONDS)
            while not task._stopping.is_set():
                try:
                    data = connection.recv(CHUNK)
                except TimeoutError:
                    continue
                for message in frames.feed(data):
                    task.take(message, remote, wait=True)
                if not data:
                    break
            rest = frames.rest()
            if rest:
                task.take(rest[:MAX_MESSAGE_BYTES], remote, wait=True)
        except (OSError, ValueError) as error:
            log.warning("syslog: the connection from %s ends: %s", remote, error)
        finally:
            connection.close()


class SyslogSource(SourceConnector):
    task = SyslogSourceTask
    exactly_once = False
    config = ConfigDef(
        [
            ConfigKey(
                "syslog.listener",
                Type.STRING,
                "UDP",
                HIGH,
                "UDP, TCP or TCPSSL.",
                CaseInsensitiveValidString(("UDP", "TCP", "TCPSSL")),
            ),
            ConfigKey("syslog.port", Type.INT, REQUIRED, HIGH, "Where to listen; 0: any.", Range(0, 65535)),
            ConfigKey("syslog.listen.address", Type.STRING, ALL_NETWORKS, LOW, "Of which network."),
            ConfigKey("topic", Type.STRING, "syslog", HIGH, "Where records go.", NonEmptyString()),
            ConfigKey("syslog.queue.max.size", Type.INT, 50_000, LOW, "In memory at most.", Range(1)),
            ConfigKey("batch.size", Type.INT, 1000, LOW, "Messages of one poll.", Range(1)),
            ConfigKey("syslog.ssl.cert.chain.path", Type.STRING, "", MEDIUM, "Certificate of TCPSSL (PEM)."),
            ConfigKey("syslog.ssl.private.key.path", Type.STRING, "", MEDIUM, "PEM file of its key."),
            ConfigKey("syslog.ssl.private.key.password", Type.PASSWORD, None, MEDIUM, "The key's password."),
        ]
    )
