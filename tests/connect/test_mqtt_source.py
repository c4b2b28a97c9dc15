"""The MQTT source against a real mosquitto."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from millstream.connect.config.config_def import ConfigError
from millstream.connect.errors import ConnectError
from millstream.testing.connect import SourceRun
from tests.support.waiting import wait_until

MQTT = "io.confluent.connect.mqtt.MqttSourceConnector"


class Mosquitto:
    """A server with a user `me` whose password is `geheim`; everybody else may come in without one."""

    def __init__(self, folder: Path, *, anonymous: bool = True) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self._config = folder / "mosquitto.conf"
        users = folder / "users"
        program = shutil.which("mosquitto_passwd")
        if program:
            subprocess.run([program, "-b", "-c", str(users), "me", "geheim"], check=True)
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"allow_anonymous {'true' if anonymous else 'false'}",
            *([f"password_file {users}"] if program else []),
            # Without this it gives up root's rights, and cannot read this folder.
            *(["user root"] if os.getuid() == 0 else []),
            "max_inflight_messages 10",
        ]
        self._config.write_text("\n".join(lines) + "\n")
        self.start()

    def start(self) -> None:
        log = self._config.with_suffix(".log")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["mosquitto", "-c", str(self._config)], stdout=output, stderr=output
            )

        def answers() -> bool:
            assert self._process.poll() is None, log.read_text()
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True

        wait_until(answers, ignoring=OSError)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def publish(self, *messages: tuple[str, bytes], qos: int = 1, retain: bool = False) -> None:
        client = mqtt.Client(CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        for topic, payload in messages:
            client.publish(topic, payload, qos, retain).wait_for_publish(60)
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    server = Mosquitto(tmp_path)
    yield server
    server.stop()


def source(server: Mosquitto, **more: str) -> SourceRun:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    run = SourceRun(MQTT, {"mqtt.server.uri": server.url, "mqtt.topics": "a/#", "mqtt.qos": "1", **settings})
    task: Any = run.task
    wait_until(lambda: task._connection or task._error)
    return run


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_messages_become_records(mosquitto: Mosquitto, version: str) -> None:
    mosquitto.publish(("a/kept", b"old"), retain=True)
    run = source(mosquitto, kafka_topic="sensors", mqtt_protocol_version=version)
    (kept,) = run.read(1)
    mosquitto.publish(("a/b", b"\x00\x01"), ("other", b"no"), qos=2)
    (record,) = run.read(1)
    assert (record.topic, record.key, record.value) == ("sensors", "a/b", b"\x00\x01")
    assert {header.name: header.value for header in kept.headers}["mqtt.retained"] is True
    assert {header.name: header.value for header in record.headers}["mqtt.qos"] == 1
    run.stop()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_what_is_not_committed_comes_again(mosquitto: Mosquitto, version: str) -> None:
    """A session that is kept: messages wait for the task while it is away."""
    settings = {"mqtt_clean_session_enabled": "false", "mqtt_protocol_version": version}
    run = source(mosquitto, **settings)
    mosquitto.publish(*((f"a/{number}", str(number).encode()) for number in range(5)))
    first: list[bytes] = []
    wait_until(lambda: len(first.extend(one.value for one in run.poll(commit=False)) or first) == 5)
    run.task._polled = run.task._polled[:2]  # type: ignore[attr-defined]
    run.task.committed()
    run.stop()
    mosquitto.publish(("a/later", b"later"))
    again = source(mosquitto, **settings)
    assert [record.value for record in again.read(4)] == [b"2", b"3", b"4", b"later"]
    again.stop()
    last = source(mosquitto, **settings)
    mosquitto.publish(("a/last", b"last"))
    assert [record.value for record in last.read(1)] == [b"last"]
    last.stop()


def test_a_slow_task_leaves_messages_with_the_server(mosquitto: Mosquitto) -> None:
    """More than the queue holds and more than the server has in flight: all of them, in order."""
    run = source(mosquitto, records_buffer_queue_size="3", records_buffer_queue_batch_size="2")
    mosquitto.publish(*(("a/n", str(number).encode()) for number in range(60)))
    assert [int(record.value) for record in run.read(60)] == list(range(60))
    run.stop()


def test_a_server_that_is_away_comes_back(mosquitto: Mosquitto) -> None:
    run = source(mosquitto)
    mosquitto.stop()
    assert run.poll() == []
    mosquitto.start()
    task: Any = run.task
    wait_until(lambda: task._connection == 2)
    wait_until(lambda: mosquitto.publish(("a/b", b"x")) is None and run.poll())
    run.stop()


@pytest.mark.mosquitto
def test_who_is_refused_fails_and_says_no_password(tmp_path: Path) -> None:
    server = Mosquitto(tmp_path, anonymous=False)
    run = source(server, mqtt_username="nobody", mqtt_password="geheim")  # noqa: S106 - that is the test
    with pytest.raises(ConnectError, match="refuses") as raised:
        run.poll()
    assert "geheim" not in str(raised.value)
    run.stop()
    server.stop()


def test_topics_are_dealt_to_tasks_and_settings_are_checked() -> None:
    from millstream.connect.connectors.mqtt import MqttSource

    settings = {"mqtt.server.uri": "tcp://localhost", "mqtt.topics": "a,b,c"}
    dealt = MqttSource(settings).task_settings(2)
    assert [one["mqtt.topics"] for one in dealt] == ["a,c", "b"]
    for wrong in ({"mqtt.server.uri": "http://x"}, {"mqtt.qos": "3"}, {"mqtt.topics": ""}):
        with pytest.raises(ConfigError):
            SourceRun(MQTT, {**settings, **wrong})
