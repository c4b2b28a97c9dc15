"""A pipeline and a Streams application on a standalone cluster of two workers, one of which is lost."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.client import Cluster, Producer
from millstream.wire.records import Record
from tests.spark.sink.reading import values_of
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(560)]

APP = """
from millstream.streams import Streams, StreamsBuilder

def pipeline(spark, settings):
    source = (
        spark.readStream.format("millstream").options(**settings.kafka)
        .option("subscribe", settings["from"]).option("startingOffsets", "earliest").load()
    )
    copy = (
        source.select("key", "value").writeStream.format("millstream").options(**settings.kafka)
        .option("topic", settings["copies"]).option("delivery", "exactly_once")
    )
    builder = StreamsBuilder()
    (
        builder.stream(settings["from"])
        .group_by_key().count(materialized="counts").to_stream().map_values(str).to(settings["counts"])
    )
    application = Streams(
        builder.build(), settings.name, bootstrap_servers=settings.bootstrap_servers,
        state=settings["state"],
    )
    return {"copy": copy, "counts": application.query(spark)}
"""
KEYS = 20


CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "700m",
    "spark.millstream.host.lanes": "2",
}


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    started = SparkCluster(tmp_path)
    yield started
    started.close()


def command(
    broker: str, name: str, master: str, folder: Path, settings: dict[str, str], conf: dict[str, str]
) -> list[str]:
    app = folder / "app.py"
    app.write_text(APP)
    words = [sys.executable, "-m", "millstream", "pipeline", "run", str(app), "--name", name]
    words += ["--bootstrap-server", broker, "--master", master, "--checkpoint", str(folder / "pipelines")]
    words += [word for pair in settings.items() for word in ("--set", "=".join(pair))]
    return words + [word for pair in conf.items() for word in ("--conf", "=".join(pair))]


def test_a_lost_machine(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    name: str,
    spark_cluster: SparkCluster,
    tmp_path: Path,
) -> None:
    source, copies, counts = new_topic(partitions=4), new_topic(partitions=2), new_topic(partitions=2)
    settings = {"from": source, "copies": copies, "counts": counts, "state": str(tmp_path / "state")}
    producer = Producer(cluster)

    def produce(value: str) -> None:
        for key in range(KEYS):
            producer.send(source, key % 4, [Record(0, 0, b"%d" % key, value.encode())])

    def all_through(rounds: int) -> bool:
        """Every record was copied once, and the newest count of every key is the number of rounds."""
        copied = Counter(values_of(cluster, copies))
        # Tasks of a batch commit one after the other, so some may be there before the rest.
        assert max(copied.values(), default=0) <= KEYS
        complete = len(copied) == rounds and set(copied.values()) == {KEYS}
        return complete and Counter(values_of(cluster, counts))[b"%d" % rounds] == KEYS

    log = tmp_path / "driver.log"
    with open(log, "wb") as out:
        words = command(broker, name, spark_cluster.master, tmp_path, settings, CONF)
        driver = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        produce("first")
        wait_until(lambda: all_through(1), lambda: log.read_text()[-3000:])
        spark_cluster.kill_machine("worker-1")
        produce("second")
        wait_until(lambda: all_through(2), lambda: log.read_text()[-3000:])
    finally:
        driver.terminate()
        assert driver.wait(120) == 0


@pytest.mark.slow
def test_executors_with_nothing_but_python_and_the_archive(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = sys._base_executable  # type: ignore[attr-defined]
    assert subprocess.run([bare, "-c", "import millstream"], capture_output=True, cwd="/").returncode == 1
    archive = tmp_path / "packages.tar.gz"
    subprocess.run([sys.executable, "-m", "millstream", "pipeline", "package", str(archive)], check=True)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("MILLSTREAM_PYTHON", bare)  # what an executor's PATH has as python3.N elsewhere
    spark_cluster = SparkCluster(tmp_path, workers=1)
    monkeypatch.delenv("MILLSTREAM_PYTHON")
    source, copies, counts = new_topic(partitions=2), new_topic(partitions=2), new_topic(partitions=2)
    Producer(cluster).send(source, 0, [Record(0, 0, b"k", b"v")])
    settings = {"from": source, "copies": copies, "counts": counts, "state": str(tmp_path / "state")}
    conf = {**CONF, "spark.archives": f"{archive}#millstream"}
    log = tmp_path / "driver.log"
    with open(log, "wb") as out:
        words = command(broker, name, spark_cluster.master, tmp_path, settings, conf)
        driver = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        wait_until(lambda: values_of(cluster, copies) == [b"v"], lambda: log.read_text()[-3000:])
        wait_until(lambda: values_of(cluster, counts) == [b"1"], lambda: log.read_text()[-3000:])
    finally:
        driver.terminate()
        driver.wait(120)
        spark_cluster.close()
    (program,) = tmp_path.glob("worker-1/app-*/*/millstream/bin/millstream-python")
    assert program.is_file()
