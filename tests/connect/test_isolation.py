"""What one connector does to the others: nothing. Shown by conditions, not by time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.host.planner_server import HostSettings, PlannerServer
from tests.connect.test_worker import MakeWorker, consume, lines, sink, source
from tests.host.test_processes import Lanes
from tests.support.waiting import wait_until

OTHERS = 20
PLUGIN = '''
import os, time
from pathlib import Path
from millstream.connect import Sink, setting

class Stuck(Sink):
    """Comes back from a write when it is allowed to."""
    folder = setting(str)

    def write(self, records):
        (Path(self.folder) / "inside").touch()
        while not (Path(self.folder) / "free").exists():
            time.sleep(0.01)
        with (Path(self.folder) / "written").open("a") as file:
            file.writelines(record.value + "\\n" for record in records)

class Careful(Sink):
    """Its commits take 20 ms each."""
    folder = setting(str)

    def write(self, records):
        time.sleep(0.005)

class CarefulTask(Careful.task):
    def flush(self, offsets):
        began = time.monotonic()
        time.sleep(0.02)
        with (Path(self._sink.folder) / "commits").open("a") as file:
            file.write(f"{began} {time.monotonic()}\\n")
        return {}

Careful.task = CarefulTask

class Deadly(Sink):
    """Ends its process, as a fault in a library of C would."""
    def write(self, records):
        os._exit(9)
'''


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(120) == 0


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "bad_company.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_twenty_sinks_go_on_while_one_stays_in_its_put(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path, plugins: Path
) -> None:
    """It is slower than its topic by as much as one likes: the others do not see it, and it loses nothing."""
    worker = make_worker(plugin_path=str(plugins))
    wanted = [f"{number:05d}".encode() * 100 for number in range(3000)]
    produce(connect_broker, "stuck", wanted)
    stuck = {"connector.class": "bad_company.Stuck", "topics": "stuck", "folder": str(tmp_path)}
    assert worker.http.put("/connectors/stuck/config", json=stuck).status_code == 201
    wait_until((tmp_path / "inside").exists)
    for number in range(OTHERS):
        topic = f"beside-{number}"
        produce(connect_broker, topic, [b"a", b"b", b"c"])
        config = sink(tmp_path / topic, topic)
        assert worker.http.put(f"/connectors/{topic}/config", json=config).status_code == 201
    for number in range(OTHERS):
        wait_until(lambda number=number: sorted(lines(tmp_path / f"beside-{number}")) == ["a", "b", "c"])
    for number in range(OTHERS):
        produce(connect_broker, f"beside-{number}", [b"d"])
    for number in range(OTHERS):
        wait_until(lambda number=number: lines(tmp_path / f"beside-{number}")[3:] == ["d"])
    assert not (tmp_path / "written").exists(), "all of that happened while it was in its first put"
    assert worker.states("stuck") == ["RUNNING", "RUNNING"]
    (tmp_path / "free").touch()
    wait_until(lambda: len(lines(tmp_path / "written")) == len(wanted))
    assert sorted(lines(tmp_path / "written")) == [value.decode() for value in wanted]


class ProcessHost(PlannerServer):
    """Lanes in processes of their own, as Spark's are."""

    def __init__(self) -> None:
        super().__init__(HostSettings(lanes=2))
        self.lanes = Lanes(self, 2)

    def close(self) -> None:
        self.end(0.0)
        self.lanes.close()


@pytest.fixture
def process_host() -> Iterator[ProcessHost]:
    host = ProcessHost()
    yield host
    host.lanes.close()


def test_a_connector_that_ends_its_process_fails_alone(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path, plugins: Path, process_host: ProcessHost
) -> None:
    worker = make_worker(host=process_host, plugin_path=str(plugins))
    files = [tmp_path / f"copy-{number}" for number in range(3)]
    for file in files:
        produce(connect_broker, file.name, [b"before"])
        config = sink(file, file.name)
        assert worker.http.put(f"/connectors/{file.name}/config", json=config).status_code == 201
    for file in files:
        wait_until(lambda file=file: lines(file) == ["before"])
    produce(connect_broker, "deadly", [b"x"])
    deadly = {"connector.class": "bad_company.Deadly", "topics": "deadly"}
    assert worker.http.put("/connectors/deadly/config", json=deadly).status_code == 201
    wait_until(lambda: worker.states("deadly") == ["RUNNING", "FAILED"])
    status = worker.http.get("/connectors/deadly/status").json()
    assert "its process has ended" in status["tasks"][0]["trace"]
    for file in files:
        produce(connect_broker, file.name, [b"after"])
    for file in files:
        wait_until(lambda file=file: lines(file) == ["before", "after"])
        assert worker.states(file.name) == ["RUNNING", "RUNNING"]


def test_records_and_letters_that_are_too_large(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path
) -> None:
    worker = make_worker()
    written = tmp_path / "long.txt"
    written.write_text("x" * 3_000_000 + "\n")
    assert worker.http.put("/connectors/long/config", json=source(written, "too-long")).status_code == 201
    wait_until(lambda: worker.states("long")[1:] == ["FAILED"])
    trace = worker.http.get("/connectors/long/status").json()["tasks"][0]["trace"]
    assert "The message is 3000088 bytes when serialized which is larger than 1048576, which is" in trace
    # What the producer may send, the topic may still refuse: once, not at every try.
    more = {"producer.override.max.request.size": "5000000"}
    config = source(written, "too-long", **more)
    assert worker.http.put("/connectors/longer/config", json=config).status_code == 201
    wait_until(lambda: worker.states("longer")[1:] == ["FAILED"])
    trace = worker.http.get("/connectors/longer/status").json()["tasks"][0]["trace"]
    assert "max.message.bytes is" in trace
    # Where errors are tolerated, the record is left out.
    written.write_text("x" * 3_000_000 + "\nshort\n")
    config = source(written, "long-left-out", **{"errors.tolerance": "all"})
    assert worker.http.put("/connectors/tolerant/config", json=config).status_code == 201
    assert consume(connect_broker, "long-left-out", 1) == [(None, b"short")]
    # Poison that fills more than a batch with its traces, and one record that leaves no room for headers.
    poison = [b"{" * 10] * 1500 + [b"{" * 1_040_000]
    producer = Producer({"bootstrap.servers": connect_broker, "message.max.bytes": 2_000_000})
    for value in poison:
        producer.produce("all-poison", value)
    producer.flush()
    config = sink(
        tmp_path / "none",
        "all-poison",
        **{
            "value.converter": "JsonConverter",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "all-dead",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        },
    )
    assert worker.http.put("/connectors/poison/config", json=config).status_code == 201
    found = consume(connect_broker, "all-dead", len(poison))
    assert sorted(len(value or b"") for _, value in found) == sorted(map(len, poison))
    assert worker.states("poison") == ["RUNNING", "RUNNING"]


def test_a_sink_that_is_behind_commits_for_a_tenth_of_its_time(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path, plugins: Path
) -> None:
    worker = make_worker(plugin_path=str(plugins))
    produce(connect_broker, "careful", [b"x"] * 2000)
    careful = {
        "connector.class": "bad_company.Careful",
        "topics": "careful",
        "folder": str(tmp_path),
        "consumer.override.max.poll.records": "10",
    }
    assert worker.http.put("/connectors/careful/config", json=careful).status_code == 201

    def offset() -> int:
        found = worker.http.get("/connectors/careful/offsets").json()["offsets"]
        return int(found[0]["offset"]["kafka_offset"]) if found else 0

    wait_until(lambda: offset() == 2000)
    times = [tuple(map(float, line.split())) for line in lines(tmp_path / "commits")]
    # The first one is that of its start; behind the last one there is nothing more.
    pauses = [began - ended for (_, ended), (began, _) in itertools.pairwise(times[1:-1])]
    assert len(pauses) >= 2
    assert min(pauses) > 0.15
