"""`millstream pipeline` as a user runs it: a process of its own, a real broker, Spark."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from millstream.client import ClientConfig, Cluster, Fetcher, Producer, visible_batches
from millstream.client.groups import Committed, Groups
from millstream.spark.runner.status_records import FAILED, FINISHED, RUNNING, STOPPED, Status
from millstream.spark.runner.status_topic import StatusTopic
from millstream.wire.records import Record, iter_records
from tests.support.waiting import wait_until

PATIENCE = 200  # seconds; on a busy machine Spark needs a minute to start
pytestmark = [pytest.mark.spark, pytest.mark.timeout(560)]

COPY = """
from pyspark.sql import functions as f

def pipeline(spark, settings):
    source = (
        spark.readStream.format("millstream").options(**settings.kafka)
        .option("subscribe", settings["from"]).option("startingOffsets", "earliest").load()
    )
    return source.select("key", f.upper(f.col("value").cast("string")).alias("value")).writeStream.format(
        "millstream"
    ).options(**settings.kafka).option("topic", settings["to"])
"""


def command(broker: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "millstream", "pipeline", *words, "--bootstrap-server", broker]


def tool(broker: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(broker, *words), capture_output=True, text=True, timeout=PATIENCE)


@contextlib.contextmanager
def running(broker: str, app: Path, folder: Path | str, *words: str) -> Iterator[subprocess.Popen[str]]:
    arguments = command(broker, "run", str(app), "--checkpoint", str(folder), "--master", "local[1]", *words)
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(status_topic: StatusTopic, pipeline: str, fits: Callable[[Status], Any]) -> Status:
    newest = status_topic.read_all().get(pipeline)

    def fitting() -> Status | None:
        nonlocal newest
        if newest is None or not fits(newest):
            for about in status_topic.poll(500):
                if isinstance(about, Status) and about.pipeline == pipeline:
                    newest = about
        return newest if newest is not None and fits(newest) else None

    return wait_until(fitting, lambda: f"not in time; last: {newest}", patience=PATIENCE)


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    for answer in Fetcher(cluster).poll({(topic, 0): 0}, 500):
        for _, batch in visible_batches(answer, 0):
            found += [record.value for record in iter_records(batch)]
    return found


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "copy.py"
    path.write_text(COPY)
    return path


def test_run_stop_resume(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], app: Path, name: str, tmp_path: Path
) -> None:
    source, target = new_topic(1), new_topic(1)
    producer = Producer(cluster)
    settings = ("--name", name, "--set", f"from={source}", "--set", f"to={target}")
    folder = tmp_path / "pipelines"
    producer.send(source, 0, [Record(0, 0, None, b"one"), Record(0, 0, None, b"two")])

    with StatusTopic(ClientConfig.of(broker)) as status_topic:
        # Until told to stop, by the topic.
        with running(broker, app, folder, *settings) as process:
            status = wait_for(
                status_topic, name, lambda s: s.state == RUNNING and s.queries and s.queries[0].rows == 2
            )
            query = status.queries[0]
            assert (query.name, query.batch, query.lag) == (name, 0, 0)
            assert query.offsets == {source: {"0": 2}}
            assert status.master == "local[1]" and status.checkpoint == str(folder / name)
            second = tool(broker, "run", str(app), "--checkpoint", str(folder), *settings)
            assert second.returncode == 1
            assert f"pipeline {name} runs already (pid {process.pid})" in second.stderr
            listed = json.loads(tool(broker, "list", "-o", "json").stdout)
            assert [one["run"] for one in listed if one["pipeline"] == name] == [status.run]
            stopped = tool(broker, "stop", name)
            assert (stopped.returncode, stopped.stdout) == (0, f"Pipeline {name} stopped.\n")
            assert process.wait(PATIENCE) == 0
            assert process.stdout is not None
            assert f"Pipeline {name} stopped, 2 rows read." in process.stdout.read()
        assert status_topic.read_all()[name].state == STOPPED
        assert Groups(cluster).committed(f"pipeline-{name}") == {(source, 0): Committed(2, -1, "")}

        # What came meanwhile is processed after a start from the same checkpoint, and nothing twice.
        producer.send(source, 0, [Record(0, 0, None, b"three")])
        with running(broker, app, folder, *settings, "--available-now") as process:
            assert process.wait(PATIENCE) == 0
        status = status_topic.read_all()[name]
        assert status.state == FINISHED and status.queries[0].rows == 1
    assert values(cluster, target) == [b"ONE", b"TWO", b"THREE"]
    described = tool(broker, "describe", name).stdout
    assert f"pipeline     {name}" in described and "state        finished" in described
    assert tool(broker, "stop", name).stdout == f"Pipeline {name} does not run: it is finished.\n"
    assert tool(broker, "forget", name).returncode == 0
    assert name not in tool(broker, "list").stdout


def test_sigterm_is_a_graceful_stop_and_the_checkpoint_can_be_a_uri(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    app: Path,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hadoop's viewfs is a file system with a scheme of its own that needs no server."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    remote = tmp_path / "remote"
    remote.mkdir()
    mount = f"spark.hadoop.fs.viewfs.mounttable.far.link./data=file://{remote}"
    source, target = new_topic(1), new_topic(1)
    Producer(cluster).send(source, 0, [Record(0, 0, None, b"one")])
    settings = ("--name", name, "--set", f"from={source}", "--set", f"to={target}", "--conf", mount)
    with (
        StatusTopic(ClientConfig.of(broker)) as status_topic,
        running(broker, app, "viewfs://far/data/p", *settings) as process,
    ):
        wait_for(status_topic, name, lambda s: s.queries and s.queries[0].rows == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        status = status_topic.read_all()[name]
        assert (status.state, status.checkpoint) == (STOPPED, f"viewfs://far/data/p/{name}")
    assert (remote / "p" / name / name / "commits" / "0").is_file()
    assert not Path("viewfs:").exists()


def test_a_killed_jvm_fails_the_pipeline_in_one_line(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], app: Path, name: str, tmp_path: Path
) -> None:
    source, target = new_topic(1), new_topic(1)
    Producer(cluster).send(source, 0, [Record(0, 0, None, b"one")])
    settings = ("--name", name, "--set", f"from={source}", "--set", f"to={target}")
    with (
        StatusTopic(ClientConfig.of(broker)) as status_topic,
        running(broker, app, tmp_path / "p", *settings) as process,
    ):
        wait_for(status_topic, name, lambda s: s.queries and s.queries[0].rows == 1)
        (jvm,) = [child for child in psutil.Process(process.pid).children() if child.name() == "java"]
        jvm.kill()
        assert process.wait(PATIENCE) == 1
        assert process.stdout is not None
        printed = process.stdout.read()
        assert f"pipeline {name} failed: Spark's JVM was killed (SIGKILL) (see " in printed
        assert "Traceback" not in printed
        assert status_topic.read_all()[name].state == FAILED


def test_mistakes_are_one_line(broker: str, app: Path, name: str, tmp_path: Path) -> None:
    connect = tool(broker, "run", str(app), "--master", "sc://there")
    assert connect.returncode == 1 and connect.stderr.count("\n") == 1
    assert connect.stderr.startswith("Spark Connect (sc://there) is not supported: name the cluster's own")
    missing = tool(broker, "run", str(tmp_path / "none.py"))
    assert (missing.returncode, missing.stderr) == (1, f"there is no file {tmp_path / 'none.py'}\n")
    nowhere = tool("127.0.0.1:1", "run", str(app))
    assert nowhere.returncode == 1 and "the brokers at 127.0.0.1:1 cannot be used" in nowhere.stderr
    assert (
        tool(broker, "describe", "nobody").stderr
        == "there is no pipeline nobody; see millstream pipeline list\n"
    )
    with running(
        broker, app, tmp_path / "p", "--name", name, "--set", f"from={name}", "--set", "to=x"
    ) as process:
        assert process.wait(PATIENCE) == 1
        assert process.stdout is not None
        printed = process.stdout.read()
    assert f"pipeline {name} failed: " in printed and f"'{name}'" in printed
    assert "Traceback" not in printed and "\tat " not in printed
    with StatusTopic(ClientConfig.of(broker)) as status_topic:
        status = status_topic.read_all()[name]
    assert status.state == FAILED and status.last_error
