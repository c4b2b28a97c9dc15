"""The broker as a process: listeners, settings, metrics, limits, start and stop."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from millstream.testing import Broker
from millstream.wire.errors import ErrorCode, KafkaError

from .conftest import Wire


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def run_broker(*arguments: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_each_listener_is_told_its_own_address(connect: Callable[[Broker], Wire]) -> None:
    inside, outside = free_port(), free_port()
    settings = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
        "advertised.listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://broker.example.org:19092",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with Broker(settings):
        told = {}
        for port in (inside, outside):
            wire = Wire(f"127.0.0.1:{port}")
            (node,) = wire.metadata().brokers
            told[port] = (node.host, node.port)
            wire.connection.close()
    assert told == {inside: ("127.0.0.1", inside), outside: ("broker.example.org", 19092)}


def test_metrics_and_health(connect: Callable[[Broker], Wire]) -> None:
    port = free_port()
    with Broker({"millstream.metrics.listener": f"127.0.0.1:{port}"}) as broker:
        wire = connect(broker)
        topic = wire.create(partitions=2)
        wire.produce(topic, b"a", b"b", b"c")
        wire.fetch({topic: {0: 0}})
        status, text = get(f"http://127.0.0.1:{port}/metrics")
        assert status == 200
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert lines[f'kafka_server_brokertopicmetrics_messagesin_total{{topic="{topic}"}}'] == "3"
        assert float(lines[f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}}']) > 0
        assert lines["kafka_controller_kafkacontroller_activecontrollercount"] == "1"
        assert lines[f'kafka_log_log_logendoffset{{topic="{topic}",partition="0"}}'] == "3"
        assert float(lines['kafka_network_requestmetrics_requests_total{request="Produce"}']) == 1
        assert get(f"http://127.0.0.1:{port}/health") == (200, '{"status": "ok", "offline_partitions": 0}\n')
        assert get(f"http://127.0.0.1:{port}/other")[0] == 404


def test_acls_that_nobody_would_check_are_refused(tmp_path: Path) -> None:
    done = run_broker("--set", f"log.dirs={tmp_path}", "--set", "authorizer.class.name=a.B")
    assert done.returncode == 1
    assert "authorizer.class.name asks for ACLs" in done.stderr


def test_no_metrics_unless_asked(millstream_broker: Broker) -> None:
    assert "metrics on" not in millstream_broker.log


def test_one_folder_one_broker(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        second = run_broker("--set", f"log.dirs={tmp_path}", "--set", "listeners=PLAINTEXT://127.0.0.1:0")
    assert second.returncode == 1
    assert "in use by another broker" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        result = run_broker(
            "--set",
            "log.dirs=" + str(Path("/proc/self/nowhere")),
            "--set",
            "listeners=PLAINTEXT://127.0.0.1:0",
        )
        assert result.returncode == 1 and "Traceback" not in result.stderr
        with Broker() as broker:
            other = broker.data_dir.parent / "other"
            result = run_broker(
                "--set", f"log.dirs={other}", "--set", f"listeners=PLAINTEXT://127.0.0.1:{port}"
            )
    assert result.returncode == 1
    assert f"127.0.0.1:{port}" in result.stderr and "Traceback" not in result.stderr


def test_bad_settings_are_usage_errors(tmp_path: Path) -> None:
    assert run_broker("--set", "num.partitions=many").returncode == 2
    assert "num.partitions" in run_broker("--set", "num.partitions=many").stderr
    assert run_broker("--set", "nonsense").returncode == 2
    assert run_broker("--config", str(tmp_path / "missing.properties")).returncode == 2
    secure = run_broker("--set", f"log.dirs={tmp_path}", "--set", "listeners=SSL://127.0.0.1:0")
    assert secure.returncode in (1, 2) and "SSL" in secure.stderr and "Traceback" not in secure.stderr


def test_print_config_is_a_working_file(tmp_path: Path) -> None:
    printed = run_broker("--print-config")
    assert printed.returncode == 0 and "log.retention.hours" in printed.stdout
    (tmp_path / "server.properties").write_text(printed.stdout)
    command = [
        *(sys.executable, "-m", "millstream", "broker", "--config", str(tmp_path / "server.properties")),
        *("--set", f"log.dirs={tmp_path / 'data'}", "--set", "listeners=PLAINTEXT://127.0.0.1:0"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.terminate()
        assert process.wait(20) == 0


def test_json_log(tmp_path: Path) -> None:
    with Broker({"millstream.log.format": "json"}) as broker:
        broker.stop()
        lines = [json.loads(line) for line in broker.log.splitlines() if line.startswith("{")]
    assert {"time", "level", "component", "message"} == set(lines[0])
    assert any(line["message"] == "stopped" for line in lines)


def test_max_connections_are_kept(connect: Callable[[Broker], Wire]) -> None:
    with Broker({"max.connections.per.ip": 3}) as broker:
        wires = [connect(broker) for _ in range(3)]
        with socket.create_connection((broker.host, broker.port), timeout=10) as fourth:
            assert fourth.recv(1) == b""
        wires[0].connection.close()
        # The place is free again as soon as the broker has seen the close.
        for _ in range(100):
            try:
                wires[0] = connect(broker)
                break
            except KafkaError:
                time.sleep(0.05)
        assert wires[0].metadata().brokers
        assert "max.connections.per.ip=3" in broker.log


def test_broker_settings_change_without_restart_and_survive_one(connect: Callable[[Broker], Wire]) -> None:
    with Broker() as broker:
        wire = connect(broker)
        topic = wire.create()
        change = {"name": "message.max.bytes", "config_operation": 0, "value": "1500"}
        answer = wire.ask(
            "incremental_alter_configs",
            resources=[{"resource_type": 4, "resource_name": "", "configs": [change]}],
            validate_only=False,
        )
        assert answer.responses[0].error_code == 0, answer
        assert wire.produce(topic, b"x" * 2000).error_code != 0
        broker.restart()
        wire = connect(broker)
        assert wire.produce(topic, b"x" * 2000).error_code != 0
        described = wire.ask(
            "describe_configs",
            resources=[
                {"resource_type": 2, "resource_name": topic, "configuration_keys": ["max.message.bytes"]}
            ],
            include_synonyms=True,
            include_documentation=False,
        )
        (entry,) = described.results[0].configs
        assert (entry.value, entry.config_source) == ("1500", 3)


def test_auto_creation_is_in_the_same_answer_and_can_be_off(connect: Callable[[Broker], Wire]) -> None:
    with Broker({"num.partitions": 3}) as broker:
        wire = connect(broker)
        (topic,) = wire.metadata("made", create=True).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 3)
        (topic,) = wire.metadata("kept out", create=True).topics
        assert topic.error_code == 17
        (topic,) = wire.metadata("asked", create=False).topics
        assert topic.error_code == 3
    with Broker({"auto.create.topics.enable": False}) as broker:
        wire = connect(broker)
        (topic,) = wire.metadata("made", create=True).topics
        assert topic.error_code == 3


def test_topics_and_their_data_survive_restarts(connect: Callable[[Broker], Wire]) -> None:
    with Broker() as broker:
        wire = connect(broker)
        keep, drop = wire.create(partitions=3), wire.create()
        wire.produce(keep, b"a", partition=2)
        wire.ask("delete_topics", topics=[{"name": drop, "topic_id": None}], timeout=5000)
        before = {t.name: t.topic_id for t in wire.metadata().topics}
        for restart in (broker.restart, lambda: (broker.kill(), broker.start())):
            restart()
            wire = connect(broker)
            assert {t.name: t.topic_id for t in wire.metadata().topics} == before
            found = wire.fetch({keep: {2: 0}}).responses[0].partitions[0]
            assert found.high_watermark == 1
        assert drop not in before


def test_metadata_by_topic_id_is_refused_where_versions_only_have_the_field(wire: Wire) -> None:
    """Versions 10 and 11 answer with topic ids, but may not be asked by them; 12 may."""
    topic = wire.create()
    topic_id = wire.metadata(topic).topics[0].topic_id
    for version, name in ((10, ""), (11, ""), (12, None), (13, None)):
        answer = wire.connection.request(
            "metadata",
            up_to=version,
            topics=[{"topic_id": topic_id, "name": name}],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        expected = ErrorCode.invalid_request if version < 12 else ErrorCode.none
        assert [found.error_code for found in answer.topics] == [expected], version
