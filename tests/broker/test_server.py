"""The broker as a process: listeners, settings, metrics, limits, start and stop."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.testing import Broker, BrokerFailed
from millstream.wire.errors import ErrorCode, KafkaError
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from .conftest import Wire


def run_broker(*arguments: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310
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
        advertised = {}
        for port in (inside, outside):
            wire = Wire(f"127.0.0.1:{port}")
            (node,) = wire.metadata().brokers
            advertised[port] = (node.host, node.port)
            wire.connection.close()
    assert advertised == {inside: ("127.0.0.1", inside), outside: ("broker.example.org", 19092)}


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
        status, body = get(f"http://127.0.0.1:{port}/health")
        assert status == 200
        assert json.loads(body) == {"status": "ok", "offline_partitions": 0, "offline_log_dirs": 0}
        assert get(f"http://127.0.0.1:{port}/other")[0] == 404


def test_metrics_under_a_name_that_is_made_to_point_here() -> None:
    """A browser that was led here by DNS rebinding names the stranger's host."""
    port, url_path = free_port(), "/metrics"
    settings = {
        "millstream.metrics.listener": f"127.0.0.1:{port}",
        "millstream.metrics.allowed.hosts": "broker.corp.example",
    }
    with Broker(settings):

        def status(*headers: str) -> str:
            lines = [f"GET {url_path} HTTP/1.1", *headers, "", ""]
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall("\r\n".join(lines).encode())
                return connection.makefile("rb").readline().decode().split(" ")[1]

        assert status("Host: evil.example") == "421"
        assert status("host:evil.example:9404") == "421"
        assert status("Host: localhost", "Host: evil.example") == "421"
        for name in ("localhost", f"127.0.0.1:{port}", "broker.corp.example"):
            assert status(f"Host: {name}", "Accept-Language: en") == "200", name
        # HTTP/1.0, as load balancers check health
        assert status() == "200"


def test_an_authorizer_that_is_not_known_is_refused(tmp_path: Path) -> None:
    settings = (f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0", "authorizer.class.name=a.B")
    done = run_broker(*(word for setting in settings for word in ("--set", setting)))
    assert done.returncode == 1
    assert "authorizer.class.name=a.B is not known here" in done.stderr


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
        assert process.wait(60) == 0


def test_json_log(tmp_path: Path) -> None:
    with Broker({"millstream.log.format": "json"}) as broker:
        broker.stop()
        lines = [json.loads(line) for line in broker.log.splitlines() if line.startswith("{")]
    assert {"time", "level", "component", "message"} == set(lines[0])
    assert any(line["message"] == "stopped" for line in lines)


@pytest.mark.parametrize(
    "name", ["max.connections", "max.connections.per.ip", "listener.name.plaintext.max.connections"]
)
def test_max_connections_are_kept(connect: Callable[[Broker], Wire], name: str) -> None:
    with Broker({name: 3}) as broker:
        wires = [connect(broker) for _ in range(3)]
        with socket.create_connection((broker.host, broker.port), timeout=60) as fourth:
            assert fourth.recv(1) == b""
        wires[0].connection.close()
        # There is room again as soon as the broker has seen the close.
        wires[0] = wait_until(lambda: connect(broker), ignoring=KafkaError)
        assert wires[0].metadata().brokers
        assert f" {name}=3 reached" in broker.log


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


def test_whoever_asks_for_access_rules_is_told_that_there_are_none(wire: Wire) -> None:
    """As Kafka does without an authorizer: each rule refused by its own line, none kept."""
    rule = {
        "resource_type": 2,
        "resource_name": "topic",
        "resource_pattern_type": 3,
        "principal": "User:somebody",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    wanted = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    for version in (1, 2, 3):
        found = wire.ask("describe_acls", up_to=version, **wanted)
        made = wire.ask("create_acls", up_to=version, creations=[rule, rule]).results
        gone = wire.ask("delete_acls", up_to=version, filters=[wanted, wanted, wanted]).filter_results
        assert found.resources == ()
        assert (len(made), len(gone)) == (2, 3)
        assert {one.error_code for one in (found, *made, *gone)} == {ErrorCode.security_disabled}
        assert {one.error_message for one in (found, *made, *gone)} == {"No Authorizer is configured."}


def test_the_quorum_is_who_keeps_the_metadata(wire: Wire) -> None:
    (node,) = wire.metadata().brokers
    for version in (0, 1, 2):
        metadata_log = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
        (topic,) = wire.ask("describe_quorum", up_to=version, topics=[metadata_log]).topics
        (log,) = topic.partitions
        assert (log.error_code, log.leader_id, log.leader_epoch) == (ErrorCode.none, node.node_id, 1)
        assert [voter.replica_id for voter in log.current_voters] == [node.node_id]
        before = log.high_watermark
        wire.create()
        answer = wire.ask("describe_quorum", up_to=version, topics=[metadata_log])
        (log,) = answer.topics[0].partitions
        assert log.high_watermark == log.current_voters[0].log_end_offset > before
        if version >= 2:
            assert [(at.host, at.port) for at in answer.nodes[0].listeners] == [(node.host, node.port)]
        unknown = {"topic_name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 3}]}
        (topic,) = wire.ask("describe_quorum", up_to=version, topics=[unknown]).topics
        errors = [part.error_code for part in topic.partitions]
        assert errors == [ErrorCode.unknown_topic_or_partition] * 2


def test_features_change_their_level(wire: Wire) -> None:
    """One that cannot change keeps all of them from changing."""

    def finalized() -> dict[str, int]:
        answer = wire.ask("api_versions", client_software_name="test", client_software_version="1")
        return {one.name: one.max_version_level for one in answer.finalized_features}

    def update(version: int, only_check: bool = False, **levels: tuple[int, int]) -> ErrorCode:
        updates = [
            {
                "feature": name.replace("_", "."),
                "max_version_level": level,
                "upgrade_type": kind,
                "allow_downgrade": kind > 1,
            }
            for name, (level, kind) in levels.items()
        ]
        return wire.ask(
            "update_features",
            up_to=version,
            timeout=5000,
            feature_updates=updates,
            validate_only=only_check,
        ).error_code

    first = finalized()
    assert first["transaction.version"] == 2
    for version in (0, 1, 2):
        refused = ErrorCode.invalid_update_version
        assert update(version, transaction_version=(1, 1)) is refused  # a downgrade must say so
        assert update(version, transaction_version=(1, 2), no_such_feature=(1, 1)) is refused
        assert update(version, transaction_version=(3, 1)) is refused
        assert finalized() == first
        assert update(version, transaction_version=(1, 2)) is ErrorCode.none
        assert finalized() == first | {"transaction.version": 1}
        assert update(version, transaction_version=(2, 1)) is ErrorCode.none
        assert finalized() == first
    assert update(2, only_check=True, transaction_version=(1, 2)) is ErrorCode.none
    assert finalized() == first


def test_eligible_leader_replicas_are_a_feature_that_stays_on(wire: Wire) -> None:
    """Kafka's tools and tests raise it before they count on it, and would otherwise be told it is unknown."""
    name = "eligible.leader.replicas.version"

    def update(level: int, upgrade_type: int) -> ErrorCode:
        updates = [{"feature": name, "max_version_level": level, "upgrade_type": upgrade_type}]
        answer = wire.ask("update_features", timeout=5000, feature_updates=updates, validate_only=False)
        return answer.error_code

    answer = wire.ask("api_versions", client_software_name="t", client_software_version="1")
    assert {one.name: one.max_version_level for one in answer.finalized_features}[name] == 1
    assert {one.name: one.min_version for one in answer.supported_features}[name] == 1
    assert update(1, 1) is ErrorCode.none
    assert update(0, 2) is ErrorCode.invalid_update_version


def test_without_its_feature_the_consumer_protocol_is_not_served(wire: Wire) -> None:
    off = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
    beat = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 5000,
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    assert (
        wire.ask("update_features", timeout=5000, feature_updates=[off], validate_only=False).error_code == 0
    )
    wire.ask("find_coordinator", up_to=3, key="g", key_type=0)
    assert wire.ask("consumer_group_heartbeat", **beat).error_code is ErrorCode.unsupported_version
    on = off | {"max_version_level": 1, "upgrade_type": 1}
    assert (
        wire.ask("update_features", timeout=5000, feature_updates=[on], validate_only=False).error_code == 0
    )
    assert wire.ask("consumer_group_heartbeat", **beat).error_code is ErrorCode.none


def test_a_partition_in_two_data_folders_stops_the_start(
    connect: Callable[[Broker], Wire], tmp_path: Path
) -> None:
    with Broker({"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}) as broker:
        topic = connect(broker).create(partitions=1)
        broker.stop()
        (home,) = tmp_path.glob(f"*/{topic}-0")
        (other,) = (folder for folder in tmp_path.iterdir() if folder != home.parent)
        shutil.copytree(home, other / home.name)
        with pytest.raises(BrokerFailed) as failed:
            broker.start()
    assert "is in two data folders" in str(failed.value)
    assert "Traceback" not in str(failed.value)
