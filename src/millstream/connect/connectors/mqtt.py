"""MQTT source: messages of topics as records, acknowledged when they are in Kafka.

A message is taken from the network by the client's thread, handed out by `poll`, and acknowledged after the
commit: what is lost in between is delivered again by the server (QoS 1 and 2), so nothing is missed and
something may come twice. With a session that is kept (`mqtt.clean.session.enabled=false`) that holds for what
was published while the task was away too. When Kafka is slower than the sender, the queue fills up, nothing
is read from the network any more, and the server holds the rest.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from millstream.connect.api import Settings, SourceConnector, SourceContext, SourceTask
from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    NonEmptyList,
    NonEmptyString,
    Range,
    ValidString,
)
from millstream.connect.data.record import Header, SourceRecord
from millstream.connect.data.schema import REQUIRED as SCHEMAS
from millstream.connect.data.schema import Type as SchemaType
from millstream.connect.errors import ConnectError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

log = logging.getLogger("millstream.connect")

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
SCHEMES = {"tcp": (1883, False), "mqtt": (1883, False), "ssl": (8883, True), "mqtts": (8883, True)}
_STRING, _BYTES = SCHEMAS[SchemaType.STRING], SCHEMAS[SchemaType.BYTES]
_BOOLEAN, _INT = SCHEMAS[SchemaType.BOOLEAN], SCHEMAS[SchemaType.INT32]
_REFUSALS = frozenset({4, 5, 132, 133, 134, 135, 138, 140})
"""Answers to a connection that will not change: protocol, client id, user, password, not authorized."""
TAKE_SECONDS = 0.2


def _uri(name: str, value: Any) -> None:
    for one in value or ():
        if urlsplit(one).scheme not in SCHEMES or not urlsplit(one).hostname:
            raise ConfigError.of(name, one, "a server is tcp://host:port or ssl://host:port")


class _Message(NamedTuple):
    """`connection` counts: an acknowledgement belongs to the connection that brought the message."""

    record: SourceRecord
    mid: int
    qos: int
    connection: int


class MqttSourceTask(SourceTask):
    idle_ms = 50

    def __init__(self) -> None:
        self._client: Any = None
        self._error: str | None = None
        self._connection = 0
        self._stopping = threading.Event()
        self._polled: list[_Message] = []

    def start(self, settings: Settings, context: SourceContext) -> None:
        parsed = self._set = MqttSource.config.parse(settings)
        self._queue: queue.Queue[_Message] = queue.Queue(parsed["records.buffer.queue.size"])
        server = urlsplit(parsed["mqtt.server.uri"][0])
        port, secure = SCHEMES[server.scheme]
        client = self._client = self._make(settings.get("name", "connect"), settings.get("task.id", "0"))
        if secure:
            client.tls_set(parsed["mqtt.ssl.ca.certs"] or None)
        if parsed["mqtt.username"]:
            password = parsed["mqtt.password"]
            client.username_pw_set(parsed["mqtt.username"], password.value if password else None)
        client.on_connect, client.on_message = self._connected, self._received
        client.on_disconnect = self._disconnected
        client.connect_timeout = parsed["mqtt.connect.timeout.seconds"]
        client.reconnect_delay_set(1, 30)
        client.connect_async(
            server.hostname or "", server.port or port, parsed["mqtt.keepalive.interval.seconds"]
        )
        client.loop_start()

    def _make(self, name: str, number: str) -> Any:
        try:
            import paho.mqtt.client as mqtt
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise ConfigError('the MQTT source needs paho-mqtt: pip install "millstream[mqtt]"') from None
        newest = self._set["mqtt.protocol.version"] == "5"
        clean = self._set["mqtt.clean.session.enabled"]
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"{name}-{number}",
            clean_session=None if newest else clean,
            protocol=mqtt.MQTTv5 if newest else mqtt.MQTTv311,
            manual_ack=True,
        )
        if newest:
            self._keep_session(client, clean)
        return client

    @staticmethod
    def _keep_session(client: Any, clean: bool) -> None:
        """In MQTT 5 a session is kept for as long as the client asks for: here, for good."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0 if clean else 0xFFFFFFFF
        connect = client.connect_async
        client.connect_async = lambda host, port, keepalive: connect(
            host, port, keepalive, clean_start=clean, properties=properties
        )

    # --- in the client's thread -----------------------------------------------------------------------------

    def _connected(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            text = f"the MQTT server refuses the connection: {reason}"
            log.warning("%s", text)
            if reason.value in _REFUSALS:
                self._error = text
            return
        self._connection += 1
        client.subscribe([(topic, self._set["mqtt.qos"]) for topic in self._set["mqtt.topics"]])

    def _disconnected(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if not self._stopping.is_set():
            log.warning("the MQTT server has closed the connection: %s; tried again soon", reason)

    def _received(self, _client: Any, _data: Any, message: Any) -> None:
        record = SourceRecord(
            topic=self._set["kafka.topic"],
            key_schema=_STRING,
            key=message.topic,
            value_schema=_BYTES,
            value=bytes(message.payload),
            headers=(
                Header("mqtt.message.id", _INT, message.mid),
                Header("mqtt.qos", _INT, message.qos),
                Header("mqtt.retained", _BOOLEAN, bool(message.retain)),
                Header("mqtt.duplicate", _BOOLEAN, bool(message.dup)),
            ),
        )
        held = _Message(record, message.mid, message.qos, self._connection)
        while not self._stopping.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(held, timeout=TAKE_SECONDS)
                return

    # --- in the task's thread -------------------------------------------------------------------------------

    def poll(self) -> Sequence[SourceRecord]:
        if self._error is not None:
            raise ConnectError(self._error)
        found: list[_Message] = []
        with contextlib.suppress(queue.Empty):
            while len(found) < self._set["records.buffer.queue.batch.size"]:
                found.append(self._queue.get_nowait())
        self._polled += found
        return [one.record for one in found]

    def committed(self) -> None:
        polled, self._polled = self._polled, []
        for one in polled:
            # Of an older connection: the server sends it again, perhaps with another message's number.
            if one.qos and one.connection == self._connection:
                self._client.ack(one.mid, one.qos)

    def stop(self) -> None:
        self._stopping.set()
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()


class MqttSource(SourceConnector):
    task = MqttSourceTask
    exactly_once = False
    config = ConfigDef(
        [
            ConfigKey(
                "mqtt.server.uri",
                Type.LIST,
                REQUIRED,
                HIGH,
                "The server: tcp://host:1883 or ssl://host:8883.",
                CheckedBy(_uri, "tcp:// or ssl://"),
            ),
            ConfigKey("mqtt.topics", Type.LIST, REQUIRED, HIGH, "Topics; + and # count.", NonEmptyList()),
            ConfigKey("kafka.topic", Type.STRING, "mqtt", HIGH, "Where records go.", NonEmptyString()),
            ConfigKey("mqtt.qos", Type.INT, 0, HIGH, "Quality of service; 0 may lose messages.", Range(0, 2)),
            ConfigKey("mqtt.username", Type.STRING, "", HIGH, "Who we are."),
            ConfigKey("mqtt.password", Type.PASSWORD, None, HIGH, "The password that belongs to it."),
            ConfigKey(
                "mqtt.clean.session.enabled",
                Type.BOOLEAN,
                True,
                LOW,
                "false: the server keeps messages for the task while it is away.",
            ),
            ConfigKey("mqtt.connect.timeout.seconds", Type.INT, 30, LOW, "To connect.", Range(1)),
            ConfigKey("mqtt.keepalive.interval.seconds", Type.INT, 60, LOW, "Signs of life.", Range(1)),
            ConfigKey(
                "mqtt.protocol.version", Type.STRING, "3.1.1", LOW, "Of MQTT.", ValidString(("3.1.1", "5"))
            ),
            ConfigKey("mqtt.ssl.ca.certs", Type.STRING, "", LOW, "Authorities (PEM), if not the system's."),
            ConfigKey("records.buffer.queue.size", Type.INT, 50_000, LOW, "In memory at most.", Range(1)),
            ConfigKey("records.buffer.queue.batch.size", Type.INT, 4096, LOW, "Of one poll.", Range(1)),
        ]
    )

    def task_settings(self, max_tasks: int) -> list[Settings]:
        """Topics are dealt to tasks."""
        topics = self.config.parse(self.settings)["mqtt.topics"]
        count = min(max_tasks, len(topics))
        return [
            self.settings | {"mqtt.topics": ",".join(topics[number::count]), "task.id": str(number)}
            for number in range(count)
        ]
