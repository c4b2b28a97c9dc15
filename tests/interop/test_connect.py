"""Apache Kafka's Connect workers beside ours: the same script of REST requests to both, answers and topics
compared; and one after the other on the same topics, both ways."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream.client import EARLIEST, ClientConfig, Cluster, list_offsets
from tests.connect.conftest import Worker
from tests.connect.test_worker import consume, lines
from tests.support.peers import broker_under_test
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop_slow
SOURCES = Path(__file__).with_name("connect-java")
FILE = "org.apache.kafka.connect.file.FileStream"
Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return maven_class_path(tmp_path_factory.mktemp("connect"))


def maven_class_path(folder: Path, *options: str) -> str:
    if not all(shutil.which(program) for program in ("mvn", "java")):
        pytest.skip("needs mvn and java")
    jars = folder / "class-path"
    command = ["mvn", "-B", "-q", "-f", str(SOURCES / "pom.xml"), *options, "dependency:build-classpath"]
    found = subprocess.run(
        [*command, f"-Dmdep.outputFile={jars}"], capture_output=True, text=True, timeout=600
    )
    if found.returncode != 0:
        pytest.skip(f"Maven cannot bring Kafka Connect: {found.stdout[-300:]}")
    return jars.read_text()


@pytest.fixture(scope="module")
def bootstrap(against: str) -> Iterator[str]:
    with broker_under_test(against, {"group.initial.rebalance.delay.ms": "0"}) as address:
        yield address


class JavaWorker:
    def __init__(self, class_path: str, bootstrap: str, group: str, folder: Path) -> None:
        self.port = free_port()
        self._class_path = class_path
        self._file = folder / f"worker-{group}.properties"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": f"http://127.0.0.1:{self.port}",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "hybrid_warn",
            **{
                f"{what}.storage.{name}": value
                for what in ("config", "offset", "status")
                for name, value in (("topic", f"{group}-{what}"), ("replication.factor", "1"))
            },
        }
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._output = folder / "java.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        with self._output.open("ab") as output:
            command = ["java", "-Xmx384m", "-cp", self._class_path, main, str(self._file)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        wait_until(self._answers, patience=120)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._output.read_text()[-2000:]
        with contextlib.suppress(httpx.HTTPError):
            return self.ask("GET", "/connectors").status_code == 200
        return False

    def ask(self, method: str, path: str, content: Any = None) -> httpx.Response:
        body = None if content is None else json.dumps(content)
        headers = {"Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.request(method, url, content=body, headers=headers, timeout=120)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None


@pytest.fixture
def java(class_path: str, bootstrap: str, tmp_path: Path) -> Iterator[Callable[[str], JavaWorker]]:
    made: list[JavaWorker] = []

    def make(group: str) -> JavaWorker:
        worker = JavaWorker(class_path, bootstrap, group, tmp_path)
        made.append(worker)
        worker.start()
        return worker

    yield make
    for worker in made:
        worker.stop()


@pytest.fixture
def ours(bootstrap: str) -> Iterator[Callable[[str], Worker]]:
    made: list[Worker] = []

    def make(group: str) -> Worker:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }
        worker = Worker(settings, {what: f"{group}-{what}" for what in ("config", "offset", "status")})
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.stop()


def ask_ours(worker: Worker) -> Ask:
    def ask(method: str, path: str, content: Any = None) -> Any:
        body = None if content is None else json.dumps(content)
        return worker.http.request(method, path, content=body, headers={"Content-Type": "application/json"})

    return ask


def running(ask: Ask, name: str, tasks: int) -> bool:
    found = ask("GET", f"/connectors/{name}/status")
    if found.status_code != 200:
        return False
    body = found.json()
    states = [body["connector"]["state"], *(task["state"] for task in body["tasks"])]
    return states == ["RUNNING"] * (tasks + 1)


def state_is(ask: Ask, name: str, state: str) -> bool:
    found = ask("GET", f"/connectors/{name}/status")
    return found.status_code == 200 and found.json()["connector"]["state"] == state


BY_NATURE = {
    "worker_id", "generation", "discoverTimestamp", "trace", "version", "kafka_cluster_id", "commit"
}  # fmt: skip


def normal(content: Any) -> Any:
    """Without what differs by nature: who, when, where, and traces."""
    if isinstance(content, dict):
        return {
            key: "*" if key in BY_NATURE else normal(one)
            for key, one in content.items()
            if key not in ("trace", "documentation")
        }
    if isinstance(content, list):
        return [normal(one) for one in content]
    return re.sub(r"available connectors are:.*", "", content) if isinstance(content, str) else content


def script(ask: Ask, folder: Path) -> list[tuple[str, int, Any]]:
    """Each request with its answer."""
    found: list[tuple[str, int, Any]] = []

    def say(method: str, path: str, content: Any = None) -> httpx.Response:
        answer = ask(method, path, content)
        body: Any = answer.text
        with contextlib.suppress(ValueError):
            body = answer.json()
        found.append((f"{method} {path}", answer.status_code, normal(body)))
        return answer

    file = folder / "in.txt"
    file.write_text("one\ntwo\n")
    source = {
        "connector.class": f"{FILE}SourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": "recorded",
    }
    say("GET", "/connectors")
    say("GET", "/connectors/none")
    say("GET", "/connectors/none/status")
    say("GET", "/connectors/none/config")
    say("GET", "/connectors/none/tasks")
    say("GET", "/connectors/none/tasks/0/status")
    say("GET", "/connectors/none/topics")
    say("GET", "/connectors/none/offsets")
    say("PUT", "/connectors/none/pause")
    say("PUT", "/connectors/none/resume")
    say("PUT", "/connectors/none/stop")
    say("POST", "/connectors/none/restart")
    say("POST", "/connectors/none/tasks/0/restart")
    say("DELETE", "/connectors/none")
    say("GET", "/none/such")
    say("PUT", "/connectors")
    say("POST", "/connectors", {"name": "x", "config": {}})
    say("POST", "/connectors", {"name": "x", "config": {"connector.class": "none.Such"}})
    say("POST", "/connectors", {"name": "x", "config": {**source, "name": "y"}})
    say("POST", "/connectors", {"name": "a", "config": source})
    wait_until(lambda: running(ask, "a", 1), patience=60)
    say("POST", "/connectors", {"name": "a", "config": source})
    say("GET", "/connectors")
    say("GET", "/connectors/a")
    say("GET", "/connectors/a/config")
    say("GET", "/connectors/a/status")
    say("GET", "/connectors/a/tasks")
    say("GET", "/connectors/a/tasks/0/status")
    say("GET", "/connectors/a/tasks/7/status")
    say("GET", "/connectors?expand=status")
    say("GET", "/connectors?expand=info&expand=status")
    topics = {"a": {"topics": ["recorded"]}}
    wait_until(lambda: ask("GET", "/connectors/a/topics").json() == topics, patience=60)
    say("GET", "/connectors/a/topics")
    wait_until(lambda: ask("GET", "/connectors/a/offsets").json()["offsets"], patience=60)
    say("GET", "/connectors/a/offsets")
    say("DELETE", "/connectors/a/offsets")
    say("PUT", "/connectors/a/config", {**source, "name": "b"})
    say("PUT", "/connectors/a/config", {**source, "batch.size": "many"})
    say("PATCH", "/connectors/a/config", {"batch.size": "10"})
    wait_until(lambda: running(ask, "a", 1), patience=60)
    say("PATCH", "/connectors/a/config", {"batch.size": None})
    say("PATCH", "/connectors/none/config", {"batch.size": None})
    wait_until(lambda: running(ask, "a", 1), patience=60)
    say("POST", "/connectors/a/restart?includeTasks=true&onlyFailed=true")
    say("POST", "/connectors/a/tasks/0/restart")
    say("POST", "/connectors/a/tasks/7/restart")
    say("POST", "/connectors/a/restart")
    wait_until(lambda: running(ask, "a", 1), patience=60)
    say("PUT", "/connectors/a/pause")
    wait_until(lambda: state_is(ask, "a", "PAUSED"), patience=60)
    say("PUT", "/connectors/a/stop")
    wait_until(lambda: state_is(ask, "a", "STOPPED"), patience=60)
    say("GET", "/connectors/a/tasks")
    partition = {"filename": str(file)}
    say("PATCH", "/connectors/a/offsets", {"offsets": []})
    say("PATCH", "/connectors/a/offsets", {"offsets": [{"partition": {"no": 1}, "offset": {"position": 1}}]})
    say(
        "PATCH", "/connectors/a/offsets", {"offsets": [{"partition": partition, "offset": {"position": "x"}}]}
    )
    say("PATCH", "/connectors/a/offsets", {"offsets": [{"partition": partition, "offset": {"position": 4}}]})
    say("GET", "/connectors/a/offsets")
    say("DELETE", "/connectors/a/offsets")
    say("GET", "/connectors/a/offsets")
    say("PUT", "/connectors/a/topics/reset")
    say("GET", "/connectors/a/topics")
    say("GET", "/connector-plugins/none/config")
    say("PUT", "/connector-plugins/FileStreamSource/config/validate", {"connector.class": "FileStreamSink"})
    say("DELETE", "/connectors/a")
    wait_until(lambda: ask("GET", "/connectors/a/status").status_code == 404, patience=60)
    say("GET", "/connectors")
    for content in (
        {"config": {}},
        {"config": source},
        {"name": "", "config": source},
        {"config": {**source, "name": "inside"}},
        {"name": "x", "config": {**source, "transaction.boundary": "connector"}},
        {"name": "x", "config": {**source, "transaction.boundary": "never"}},
        {"name": "x", "config": {**source, "transforms": "t", "transforms.t.type": "none.Such"}},
    ):
        say("POST", "/connectors", content)
    say("GET", "/connectors/")
    say("GET", "/connector-plugins/FileStreamSource/config?version=1.0")
    say("POST", "/connectors", {"name": "b", "config": source, "initial_state": "STOPPED"})
    wait_until(lambda: state_is(ask, "b", "STOPPED"), patience=60)
    say("GET", "/connectors/b/status")
    say("PATCH", "/connectors/b/offsets", {"offsets": [{"partition": None, "offset": {"position": 4}}]})
    for position in (-1, 1.5):
        wrong = {"partition": partition, "offset": {"position": position}}
        say("PATCH", "/connectors/b/offsets", {"offsets": [wrong]})
    sink_offsets(say, ask, folder)
    plugins(say, source)
    return found


def plugins(say: Callable[..., Any], source: dict[str, str]) -> None:
    """Settings of plugins of all kinds, and requests that change nothing."""
    for name in ("none.Such", "FileStreamSink", "Cast$Value"):
        say("PUT", f"/connector-plugins/{name}/config/validate", source)
    for plugin in (
        f"{FILE}SourceConnector",
        "FileStreamSink",
        "org.apache.kafka.connect.json.JsonConverter",
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        *(f"org.apache.kafka.connect.transforms.{name}" for name in TRANSFORMS),
    ):
        say("GET", f"/connector-plugins/{plugin}/config")
    say("PATCH", "/connectors/b/config", {"topic": ""})
    say("PUT", "/connectors/b/config", {})
    for nulls in ("tasks.max", "unknown", "transforms"):
        say("PUT", "/connectors/b/config", {**source, nulls: None})
    for name in ("n", "b"):
        say("PATCH", f"/connectors/{name}/config", {"unknown": None, "tasks.max": None})
    say("POST", "/connectors", {"name": "n", "config": {**source, "errors.tolerance": None}})
    say("PUT", "/connectors/n/config", {"connector.class": None})
    say("PUT", "/connectors/n/config", {**source, "name": None, "unknown": None})
    say("GET", "/connectors?expand=none")
    say("GET", "/connectors/b/tasks/x/status")
    say("POST", "/connectors/none/restart?includeTasks=true")
    say("DELETE", "/connectors/none/offsets")
    say("PATCH", "/connectors/none/offsets", {"offsets": [{"partition": {"filename": "f"}, "offset": None}]})
    say("PUT", "/connectors/none/topics/reset")
    say("PUT", "/admin/loggers/none.such", {})


TRANSFORMS = [
    "Filter", "HeaderFrom$Value", "InsertHeader", "DropHeaders", "RegexRouter", "TimestampRouter",
    "ValueToKey",
    "predicates.TopicNameMatches",
    "predicates.HasHeaderKey",
    "predicates.RecordIsTombstone",
    *(f"{name}$Key" for name in (
        "Cast", "ExtractField", "Flatten", "HoistField", "InsertField", "MaskField", "ReplaceField",
        "SetSchemaMetadata", "TimestampConverter",
    )),
]  # fmt: skip


def sink_offsets(say: Callable[..., Any], ask: Ask, folder: Path) -> None:
    sink = {
        "connector.class": f"{FILE}SinkConnector",
        "file": str(folder / "out.txt"),
        "topics": "recorded",
        "tasks.max": "1",
    }
    say("POST", "/connectors", {"name": "k", "config": sink})
    wait_until(lambda: running(ask, "k", 1), patience=60)
    wait_until(lambda: ask("GET", "/connectors/k/offsets").json()["offsets"], patience=60)
    say("PUT", "/connectors/k/stop")
    wait_until(lambda: state_is(ask, "k", "STOPPED"), patience=60)
    first = {"kafka_topic": "recorded", "kafka_partition": 0}
    for partition, offset in (
        (first, {"kafka_offset": 1}),
        (first | {"kafka_partition": "0"}, {"kafka_offset": "2"}),
        (first | {"kafka_partition": "x"}, {"kafka_offset": 2}),
        (first, {"kafka_offset": "x"}),
        (first, {"kafka_offset": -1}),
        (first, {"other": 1}),
        ({"kafka_topic": "recorded"}, {"kafka_offset": 1}),
        ({}, {"kafka_offset": 1}),
        (None, {"kafka_offset": 1}),
        (first, None),
    ):
        say("PATCH", "/connectors/k/offsets", {"offsets": [{"partition": partition, "offset": offset}]})
        say("GET", "/connectors/k/offsets")
    say("DELETE", "/connectors/k/offsets")
    say("GET", "/connectors/k/offsets")


def records(bootstrap: str, topic: str) -> dict[str, Any]:
    """The newest record of each key that is still there."""
    cluster = Cluster(ClientConfig.of(bootstrap, {}, "check"))
    try:
        from millstream.client import Fetcher, visible_batches
        from millstream.client.fetch import next_offset
        from millstream.wire.records import iter_records
        from millstream.wire.topic_partition import TopicPartition

        partitions = [TopicPartition(topic, number) for number in cluster.topic(topic).partitions]
        positions = {
            which: at.offset
            for which, at in list_offsets(cluster, dict.fromkeys(partitions, EARLIEST)).items()
        }
        fetcher = Fetcher(cluster, read_committed=True)
        found: dict[str, Any] = {}
        quiet = 0
        while quiet < 3:
            quiet += 1
            for fetched in fetcher.poll(positions, 300):
                which = TopicPartition(fetched.topic, fetched.partition)
                for _, batch in visible_batches(fetched, positions[which], read_committed=True):
                    for record in iter_records(batch):
                        quiet = 0
                        value = None if record.value is None else json.loads(record.value)
                        found[(record.key or b"").decode()] = value
                positions[which] = next_offset(fetched, positions[which])
        return found
    finally:
        cluster.close()


def test_the_same_answers(
    java: Callable[[str], JavaWorker],
    ours: Callable[[str], Worker],
    bootstrap: str,
    tmp_path: Path,
) -> None:
    theirs_folder, our_folder = tmp_path / "theirs", tmp_path / "ours"
    theirs_folder.mkdir()
    our_folder.mkdir()
    name = uuid.uuid4().hex[:6]
    expected = script(java(f"java-{name}").ask, theirs_folder)
    found = script(ask_ours(ours(f"ours-{name}")), our_folder)

    def comparable(answers: list[tuple[str, int, Any]], folder: Path) -> list[str]:
        return [json.dumps(one, sort_keys=True).replace(str(folder), "FOLDER") for one in answers]

    theirs, own = comparable(expected, theirs_folder), comparable(found, our_folder)
    (tmp_path / "answers.json").write_text(json.dumps({"java": theirs, "ours": own}, indent=1))
    different = [
        f"\nJava: {one}\nours: {other}" for one, other in zip(theirs, own, strict=True) if one != other
    ]
    assert not different, "".join(different)
    kept = {what: records(bootstrap, f"java-{name}-{what}") for what in ("config", "offset", "status")}
    own_kept = {what: records(bootstrap, f"ours-{name}-{what}") for what in ("config", "offset", "status")}
    for what in ("offset", "status"):
        assert {key.replace(str(theirs_folder), "F"): normal(value) for key, value in kept[what].items()} == {
            key.replace(str(our_folder), "F"): normal(value) for key, value in own_kept[what].items()
        }
    # Kafka keeps a session key and the settings that its tasks were made with, which are its own business.
    own_keys = {key for key in own_kept["config"]}
    assert own_keys >= {
        key for key in kept["config"] if not key.startswith(("session-key", "connector-applied"))
    }


def test_from_java_to_ours_and_back(
    java: Callable[[str], JavaWorker],
    ours: Callable[[str], Worker],
    bootstrap: str,
    tmp_path: Path,
) -> None:
    group = f"both-{uuid.uuid4().hex[:6]}"
    written, copied = tmp_path / "in.txt", tmp_path / "out.txt"
    written.write_text("1 java\n")
    source = {"connector.class": f"{FILE}SourceConnector", "file": str(written), "topic": group}
    sink = {"connector.class": f"{FILE}SinkConnector", "file": str(copied), "topics": group}
    theirs = java(group)
    for name, settings in (("in", source), ("out", sink)):
        assert theirs.ask("PUT", f"/connectors/{name}/config", settings).status_code == 201
    wait_until(lambda: lines(copied) == ["1 java"], patience=90)
    wait_until(lambda: theirs.ask("GET", "/connectors/in/offsets").json()["offsets"], patience=60)
    wait_until(lambda: theirs.ask("GET", "/connectors/out/offsets").json()["offsets"], patience=60)
    theirs.stop()

    with written.open("a") as file:
        file.write("2 ours\n")
    own = ours(group)
    assert sorted(own.http.get("/connectors").json()) == ["in", "out"]
    wait_until(lambda: lines(copied) == ["1 java", "2 ours"], patience=60)
    assert own.http.put("/connectors/out/pause").status_code == 202
    wait_until(lambda: own.states("out") == ["PAUSED", "PAUSED"])
    assert own.http.put("/connectors/out/resume").status_code == 202
    wait_until(lambda: own.states("out") == ["RUNNING", "RUNNING"])
    own.stop()

    with written.open("a") as file:
        file.write("3 java\n")
    theirs.start()
    wait_until(lambda: lines(copied)[2:] == ["3 java"], patience=90)
    found = [value for _, value in consume(bootstrap, group, 3)]
    assert found == [b"1 java", b"2 ours", b"3 java"]
