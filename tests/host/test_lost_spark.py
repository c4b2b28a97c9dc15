"""Spark's JVM dies under an application: one on a user's session ends with the reason, one on a session of
the host's own goes on in another JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Cluster
from millstream.host.local import LocalHost
from millstream.streams import Streams, StreamsBuilder
from millstream.streams.errors import StreamsError
from millstream.streams.runtime.running import RunningStreams
from tests.spark.conftest import broker, cluster, new_topic
from tests.streams.runtime.kit import produce
from tests.support.waiting import wait_until

__all__ = ["broker", "cluster", "new_topic"]

PATIENCE = 240

SCRIPT = """
import json, os, signal, sys
from pyspark import SparkContext
from millstream.client import Cluster, ClientConfig, Producer
from millstream.spark.session import spark
from millstream.streams import Streams, StreamsBuilder
from millstream.wire.records import Record
from tests.support.waiting import wait_until

servers, source, target, state = sys.argv[1:]
os.environ["MILLSTREAM_SPARK_MASTER"] = "local[2]"
builder = StreamsBuilder()
builder.stream(source).to(target)
topology = builder.build()
found = {}

def application():
    return Streams(topology, f"{source}-app", bootstrap_servers=servers, state=state)

def passes(running, value):
    with Cluster(ClientConfig.of(servers)) as cluster:
        Producer(cluster).send(source, 0, [Record(0, 1000, b"k", value)])
    done = lambda: running.state == "RUNNING" and running.lag() == 0
    wait_until(done, running.exception, patience=200)

def kill_jvm():
    jvm = SparkContext._gateway.proc
    os.kill(jvm.pid, signal.SIGKILL)
    return jvm

session = spark("mine", {"spark.driver.memory": "512m"})
running = application().start(session)
passes(running, b"1")
kill_jvm()
try:
    running.awaitTermination(200)
except Exception as error:
    found["raised"] = str(error)
found["state"], found["exception"] = running.state, str(running.exception())
try:
    application().start(session)
except Exception as error:
    found["refused"] = f"{type(error).__name__}: {error}"

running = application().start()
passes(running, b"2")
lanes = {task.lane for task in running.tasks().values()}
first = kill_jvm()
# Its lanes may live a moment longer than it.
wait_until(lambda: getattr(SparkContext._gateway, "proc", None) not in (None, first), patience=200)
wait_until(lambda: lanes.isdisjoint(task.lane for task in running.tasks().values()), patience=200)
passes(running, b"3")
found["another"] = SparkContext._gateway.proc.pid != first.pid
running.stop()
found["stopped"] = running.state
print(json.dumps(found), flush=True)
"""


@pytest.mark.spark
@pytest.mark.timeout(560)
def test_the_jvm_is_killed(broker: str, new_topic: Callable[..., str], tmp_path: Path) -> None:
    source, target = new_topic(), new_topic()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker, source, target, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    lost = "Spark's JVM was killed (SIGKILL)"
    ended = f"{source}-app has ended: {lost}: start the application again, with another session"
    assert found == {
        "raised": ended,
        "exception": ended,
        "state": "ERROR",
        "refused": f"StreamsError: {source}-app cannot start: {lost}: start another session",
        "another": True,
        "stopped": "NOT_RUNNING",
    }


def test_all_units_fail_when_nothing_can_run(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """What the host does then, without a JVM."""
    source, target = new_topic(), new_topic()
    builder = StreamsBuilder()
    builder.stream(source).to(target)
    application = Streams(builder.build(), f"{source}-app", bootstrap_servers=broker, state=tmp_path)
    host = LocalHost()
    try:
        running = RunningStreams(application, host)
        produce(cluster, source, 0, (b"k", b"v"))
        wait_until(lambda: running.state == "RUNNING" and running.lag() == 0)
        host.fail_all("Spark is gone")
        with pytest.raises(StreamsError, match="-app has ended: Spark is gone"):
            running.awaitTermination(PATIENCE)
        assert running.state == "ERROR"
        assert not running.isActive
    finally:
        host.close()
