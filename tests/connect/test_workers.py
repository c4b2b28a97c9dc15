"""Several workers of one group: who runs what, what moves, and what they agree on."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.connect.errors import ConnectError
from millstream.connect.herding.assignment import CONNECTOR, Item, assign
from millstream.connect.herding.members import Absences, decode_url, encode_metadata
from millstream.connect.stores.config_state import ConfigState, connector_record, task_records
from millstream.connect.stores.topic_store import make_sure_of_topic
from millstream.connect.worker_config import DistributedConfig
from millstream.host.local import LocalHost
from millstream.host.planner_server import HostSettings
from millstream.wire.errors import ErrorCode, KafkaError
from tests.connect.conftest import Worker
from tests.connect.test_worker import consume, lines, sink, source
from tests.support.waiting import wait_until

MakeWorker = Callable[..., Worker]
COUNTS = {f"c{number}": number % 4 + 1 for number in range(20)}


def test_everyone_has_a_share() -> None:
    found = assign(["a", "b", "c"], COUNTS)
    assert len(found) == len(COUNTS) + sum(COUNTS.values())
    tasks = Counter(worker for item, worker in found.items() if item.task != CONNECTOR)
    assert max(tasks.values()) - min(tasks.values()) <= 2
    assert assign(["c", "a", "b"], dict(reversed(COUNTS.items()))) == found
    assert assign([], COUNTS) == {}


def test_a_worker_that_comes_or_goes_moves_its_share() -> None:
    before, after = assign(["a", "b", "c"], COUNTS), assign(["a", "b"], COUNTS)
    stayed = [item for item, worker in before.items() if worker != "c"]
    moved = [item for item in stayed if before[item] != after[item]]
    assert len(moved) <= len(stayed) // 5
    more = assign(["a", "b", "c"], COUNTS | {"new": 1})
    assert sum(before[item] != more[item] for item in before) <= 3


def test_work_waits_for_a_worker_that_may_return() -> None:
    absences = Absences(10.0)
    absences.update(["a", "b"], 0.0)
    absences.update(["a"], 1.0)
    assert absences.counted(5.0) == {"a", "b"}
    assert absences.counted(11.5) == {"a"}
    absences.update(["a", "b"], 6.0)
    assert absences.next_change() is None
    at_once = Absences(0.0)
    at_once.update(["a", "b"], 0.0)
    at_once.update(["a"], 1.0)
    assert at_once.counted(1.0) == {"a"}


def test_a_worker_says_who_it_is_in_kafkas_layout() -> None:
    data = encode_metadata("http://h:8083/", 7)
    assert data == b"\0\0\0\x0ehttp://h:8083/" + (7).to_bytes(8, "big")
    assert decode_url(data) == "http://h:8083/"


def test_tasks_run_with_the_settings_of_their_deal() -> None:
    state = ConfigState()
    for settings in ({"a": "1"}, {"a": "2"}):
        for key, value in [
            connector_record("x", settings),
            *(task_records("x", [{}]) if settings["a"] == "1" else []),
        ]:
            state.apply(key, value)
    assert state.connectors["x"] == {"a": "2"}
    assert state.applied["x"] == {"a": "1"}


def test_two_workers_share_tasks_and_one_takes_over(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    first, second = make_worker(worker="127.0.0.1:1"), make_worker(worker="127.0.0.1:2")
    names = [f"s{number}" for number in range(6)]
    for number, name in enumerate(names):
        file = tmp_path / f"{name}.txt"
        file.write_text(f"{name}\n")
        worker = (first, second)[number % 2]
        answer = worker.http.put(f"/connectors/{name}/config", json=source(file, "shared"))
        assert answer.status_code == 201

    def owners() -> set[str]:
        found = [first.http.get(f"/connectors/{name}/tasks/0/status") for name in names]
        if any(one.status_code != 200 or one.json()["state"] != "RUNNING" for one in found):
            return set()
        return {one.json()["worker_id"] for one in found}

    wait_until(lambda: owners() == {"127.0.0.1:1", "127.0.0.1:2"})
    assert second.http.get("/connectors").json() == first.http.get("/connectors").json() == names
    assert len(consume(connect_broker, "shared", 6)) == 6
    second.stop()
    wait_until(lambda: owners() == {"127.0.0.1:1"})
    for name in names:
        with (tmp_path / f"{name}.txt").open("a") as file:
            file.write(f"{name} again\n")
    found = consume(connect_broker, "shared", 12)
    assert Counter(value for _, value in found).most_common(1)[0][1] == 1


def test_a_worker_that_vanishes_without_a_word(make_worker: MakeWorker, tmp_path: Path) -> None:
    first, second = make_worker(worker="127.0.0.1:1"), make_worker(worker="127.0.0.1:2")
    copied = tmp_path / "out.txt"
    written = tmp_path / "in.txt"
    written.write_text("one\n")
    first.http.put("/connectors/in/config", json=source(written, "vanish"))
    first.http.put("/connectors/out/config", json=sink(copied, "vanish"))
    wait_until(lambda: lines(copied) == ["one"])
    # No heartbeat any more, while its tasks go on: cut off from the group.
    members = second.herder._members
    assert members is not None
    members._member._member.heartbeat = lambda: None  # type: ignore[method-assign]
    owner = f"http://{first.id}/"
    wait_until(lambda: set(first.herder.worker.assignment.values()) == {owner})
    with written.open("a") as file:
        file.write("two\nthree\n")
    wait_until(lambda: lines(copied)[:3] == ["one", "two", "three"])
    wait_until(lambda: first.states("out") == ["RUNNING", "RUNNING"])
    assert lines(copied) == ["one", "two", "three"]


def test_two_workers_create_one_connector(make_worker: MakeWorker, tmp_path: Path) -> None:
    workers = [make_worker(worker="127.0.0.1:1"), make_worker(worker="127.0.0.1:2")]
    file = tmp_path / "in.txt"
    file.write_text("")
    for worker in workers:
        # Two applications of one process share their routes, which are prepared at the first request.
        worker.http.get("/none")
    for number in range(5):
        codes: list[int] = []

        def create(worker: Worker, number: int = number, codes: list[int] = codes) -> None:
            body = {"name": f"once-{number}", "config": source(file, "once")}
            codes.append(worker.http.post("/connectors", json=body).status_code)

        threads = [threading.Thread(target=create, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [201, 409]


def test_topics_that_a_connector_uses(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    written = tmp_path / "in.txt"
    written.write_text("one\n")
    worker.http.put("/connectors/uses/config", json=source(written, "used"))
    wait_until(lambda: worker.http.get("/connectors/uses/topics").json() == {"uses": {"topics": ["used"]}})
    assert worker.http.put("/connectors/uses/stop").status_code == 204
    wait_until(lambda: worker.states("uses") == ["STOPPED"])
    assert worker.http.put("/connectors/uses/topics/reset").status_code == 202
    assert worker.http.get("/connectors/uses/topics").json() == {"uses": {"topics": []}}
    assert worker.http.get("/connectors/nobody/topics").json() == {"nobody": {"topics": []}}
    untracked = make_worker(topic_tracking_enable="false")
    assert untracked.http.get("/connectors/uses/topics").status_code == 403


def test_a_task_that_failed_restarts_by_itself(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    worker = make_worker()
    missing = tmp_path / "nowhere" / "out.txt"
    settings = sink(
        missing, "restarts", **{"millstream.restarts": "50", "millstream.restarts.backoff.ms": "1"}
    )
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": connect_broker})
    producer.produce("restarts", b"one")
    producer.flush()
    worker.http.put("/connectors/again/config", json=settings)
    wait_until(lambda: "FAILED" in worker.states("again") or "RESTARTING" in worker.states("again"))
    missing.parent.mkdir()
    wait_until(lambda: lines(missing) == ["one"])
    wait_until(lambda: worker.states("again") == ["RUNNING", "RUNNING"])


def test_log_levels(make_worker: MakeWorker) -> None:
    worker = make_worker()
    name = "millstream.connect.rest"
    assert worker.http.get("/admin/loggers").json()["root"]["level"]
    assert worker.http.put(f"/admin/loggers/{name}", json={"level": "DEBUG"}).json() == [name]
    assert worker.http.get(f"/admin/loggers/{name}").json()["level"] == "DEBUG"
    missing = worker.http.get("/admin/loggers/none.such")
    assert (missing.status_code, missing.json()["message"]) == (404, "Logger none.such not found.")
    wrong = worker.http.put(f"/admin/loggers/{name}", json={"level": "LOUD"})
    assert (wrong.status_code, wrong.json()["message"]) == (404, "invalid log level 'LOUD'.")
    assert worker.http.put(f"/admin/loggers/{name}", json={}).status_code == 400
    cluster = worker.http.put(f"/admin/loggers/{name}?scope=cluster", json={"level": "INFO"})
    assert cluster.status_code == 204
    assert worker.herder.configs.loggers == {name: "INFO"}
    assert json.dumps(worker.http.get("/health").json()["status"]) == '"healthy"'


def test_secrets_stay_out_of_states_and_logs(
    make_worker: MakeWorker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="millstream")
    (tmp_path / "leaky.py").write_text(
        "from millstream.connect.api import SourceConnector, SourceTask\n"
        "from millstream.connect.config.config_def import ConfigDef\n"
        "class Task(SourceTask):\n"
        "    def start(self, settings, context):\n"
        "        raise ValueError('no entry with ' + settings['password'] + ' at http://u:hunter22@h/')\n"
        "    def poll(self):\n"
        "        return []\n"
        "class Leaky(SourceConnector):\n"
        "    task = Task\n"
        "    config = ConfigDef()\n"
    )
    (tmp_path / "secrets.properties").write_text("key=open sesame\n")
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    worker = make_worker(
        LocalHost(HostSettings(lanes=2, unit_retries=0)),
        plugin_path=str(tmp_path),
        config_providers="file",
        config_providers_file_class=provider,
    )
    password = "${file:" + str(tmp_path / "secrets.properties") + ":key}"
    answer = worker.http.put(
        "/connectors/leaky/config", json={"connector.class": "leaky.Leaky", "password": password}
    )
    assert answer.status_code == 201, answer.text
    wait_until(lambda: worker.states("leaky") == ["RUNNING", "FAILED"])
    task = worker.http.get("/connectors/leaky/tasks/0/status").json()
    assert "no entry with [hidden]" in task["trace"]
    assert "sesame" not in task["trace"]
    assert "hunter22" not in task["trace"]
    wait_until(lambda: "no entry with" in caplog.text)
    assert "sesame" not in caplog.text
    assert "hunter22" not in caplog.text


def test_internal_topics_that_would_lose_records_are_refused(connect_broker: str) -> None:
    with Cluster(ClientConfig.of(connect_broker)) as cluster:
        compact = {"cleanup.policy": "compact"}
        for topic, partitions, policy in (("wide", 3, compact), ("short-lived", 1, {})):
            Admin(cluster).create_if_missing(NewTopic(topic, partitions, 1, policy))
            cluster.wait_for_topics([topic])
        with pytest.raises(ConnectError, match="required to have a single partition"):
            make_sure_of_topic(cluster, "wide", 1, 1, "config.storage.topic", one_partition=True)
        with pytest.raises(ConnectError, match=r"currently has 'cleanup\.policy=delete'"):
            make_sure_of_topic(cluster, "short-lived", 5, 1, "status.storage.topic")
        make_sure_of_topic(cluster, "wide", 25, 1, "offset.storage.topic")


def test_a_plugin_that_does_not_import(make_worker: MakeWorker, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import none_such\n")
    worker = make_worker(plugin_path=str(tmp_path))
    answer = worker.http.put("/connectors/b/config", json={"connector.class": "broken.Source"})
    assert answer.status_code in (400, 500)
    assert "broken.Source" in answer.json()["message"]
    assert worker.http.get("/connectors").json() == []


def test_fifty_connectors_at_once(make_worker: MakeWorker, connect_broker: str, tmp_path: Path) -> None:
    worker = make_worker()
    for number in range(50):
        (tmp_path / f"{number}.txt").write_text(f"{number}\n")
        settings = source(tmp_path / f"{number}.txt", "fifty")
        assert worker.http.put(f"/connectors/n{number}/config", json=settings).status_code == 201
    found = consume(connect_broker, "fifty", 50)
    assert sorted(int(value or b"") for _, value in found) == list(range(50))
    states = worker.http.get("/connectors?expand=status").json()
    wait_until(lambda: all(worker.states(name) == ["RUNNING", "RUNNING"] for name in states))


def test_a_partition_that_is_empty_holds_up_no_other(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": connect_broker})
    admin.create_topics([NewTopic("sparse", 3, 1)])["sparse"].result()
    producer = Producer({"bootstrap.servers": connect_broker})
    for number in range(3):
        producer.produce("sparse", f"{number}".encode(), partition=2)
    producer.flush()
    copied = tmp_path / "out.txt"
    make_worker().http.put("/connectors/sparse/config", json=sink(copied, "sparse"))
    wait_until(lambda: lines(copied) == ["0", "1", "2"])


def test_a_lost_worker_is_noticed_as_soon_as_brokers_allow() -> None:
    config = DistributedConfig({})
    assert config.number("session.timeout.ms") == 6000  # group.min.session.timeout.ms
    assert config.number("heartbeat.interval.ms") * 3 <= config.number("session.timeout.ms")


def test_a_topic_that_brokers_hear_of_later(connect_broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka's brokers answer a creation before they know the topic."""
    real = Cluster.refresh
    answers: list[int] = []

    def refresh(cluster: Cluster, names: Any = (), *more: Any) -> Any:
        found = real(cluster, names, *more)
        if "made-late" in names and "made-late" not in found:
            answers.append(1)
            if len(answers) < 4:
                cluster.topics.pop("made-late", None)
                return {"made-late": KafkaError(ErrorCode.unknown_topic_or_partition, "not yet")}
        return found

    monkeypatch.setattr(Cluster, "refresh", refresh)
    with Cluster(ClientConfig.of(connect_broker)) as cluster:
        make_sure_of_topic(cluster, "made-late", 1, 1, "config.storage.topic")
        assert len(cluster.topic("made-late").partitions) == 1
    assert len(answers) >= 4


def test_a_worker_that_goes_while_the_other_one_deals(
    make_worker: MakeWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that stays sees it in the middle of its round: what that moves to it must not be lost."""
    worker = make_worker(worker="127.0.0.1:1")
    inner = worker.herder.worker
    here, there = "http://127.0.0.1:1/", "http://127.0.0.1:2/"
    members = {"now": frozenset({here, there})}
    monkeypatch.setattr(inner, "_members", lambda: members["now"])
    (tmp_path / "in.txt").write_text("x\n")
    settings = source(tmp_path / "in.txt", "while-dealing")
    first = [f"m{number}" for number in range(6)]
    for name in first:
        assert worker.http.put(f"/connectors/{name}/config", json=settings).status_code == 201
    wait_until(lambda: {item.connector for item in inner.assignment} == set(first))
    waiting = {item.connector for item, url in inner.assignment.items() if url == there}
    assert waiting, "nobody runs these"
    counts = {name: len(worker.herder.configs.tasks.get(name, [])) for name in first}
    names = (f"last{number}" for number in range(100))
    last = next(
        one for one in names if assign([here, there], counts | {one: 0})[Item(one, CONNECTOR)] == here
    )
    deal = inner._keep_tasks

    def gone_meanwhile(name: str, *arguments: Any) -> None:
        if name == last:
            members["now"] = frozenset({here})
        deal(name, *arguments)

    monkeypatch.setattr(inner, "_keep_tasks", gone_meanwhile)
    assert worker.http.put(f"/connectors/{last}/config", json=settings).status_code == 201
    wait_until(lambda: all(worker.states(name) == ["RUNNING"] * 2 for name in [*first, last]))
