"""Speculative execution by Spark itself. It needs executors on two hosts: Spark does not speculate in local
mode, and never puts the second attempt of a task on the host of the first. Here the hosts are two addresses
of this machine."""

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.testing import Broker
from tests.spark.sink.reading import values_of
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")

ROOT = Path(__file__).resolve().parents[3]
ROWS = 400

APP = """
import sys, time
from pyspark import TaskContext
from pyspark.sql.functions import udf
from millstream.spark.session import spark

servers, topic, folder, notes, master = sys.argv[1:6]
session = spark("speculation", {
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.4", "spark.speculation.minTaskRuntime": "200ms",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20", "spark.speculation.efficiency.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}, master=master)

def slow_at_first(value):
    context = TaskContext.get()
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        time.sleep(0.05)  # for each row of the first attempt of one task
    with open(notes, "a") as file:
        file.write(f"{context.partitionId()} {context.attemptNumber()}\\n")
    return value

slow = udf(slow_at_first, "string", useArrow=False)
rows = (session.readStream.format("rate-micro-batch")
    .option("rowsPerBatch", "400").option("numPartitions", "4").load()
    .selectExpr("cast(value as string) as value").select(slow("value").alias("value")))
query = (rows.writeStream.format("millstream").option("kafka.bootstrap.servers", servers)
    .option("topic", topic).option("delivery", "exactly_once").option("kafka.batch.size", "200")
    .option("checkpointLocation", folder).start())
while query.isActive and len([p for p in query.recentProgress if p["numInputRows"]]) < 3:
    time.sleep(0.1)
problem = query.exception()
query.stop()
sys.exit(str(problem) if problem else 0)
"""


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A Spark cluster of two hosts with two cores each. Yields its address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.2", "127.0.0.3"):
        options = ["--host", host, "-c", "2", "-m", "700m", "--webui-port", "0"]
        commands.append([f"{deploy}.worker.Worker", *options, "-d", str(folder / host), master])
    environment = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    running: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "spark.log").open("ab") as log:
            for command in commands:
                program = [str(home / "bin" / "spark-class"), *command]
                running.append(subprocess.Popen(program, env=environment, stdout=log, stderr=log))
        spark_log = folder / "spark.log"
        wait_until(
            lambda: spark_log.read_text(errors="replace").count("Registering worker") >= 2,
            lambda: spark_log.read_text()[-3000:],
        )
        yield master
    finally:
        for process in reversed(running):  # spark-class replaces itself by Java: this is the process itself
            process.terminate()
        for process in running:
            process.wait(30)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(500)
def test_speculative_attempts_write_once(tmp_path):
    notes = tmp_path / "notes"
    with (
        Broker() as broker,
        standalone(tmp_path) as master,
        Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster,
    ):
        Admin(cluster).create_topics([NewTopic("out", 2, 1)])
        command = [
            sys.executable,
            "-c",
            APP,
            broker.bootstrap_servers,
            "out",
            str(tmp_path / "checkpoint"),
            str(notes),
            master,
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=280,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        attempts = set(notes.read_text().splitlines())
        assert "0 1" in attempts, "no speculative attempt was made"
        counts = Counter(int(value) for value in values_of(cluster, "out"))
        assert set(counts.values()) == {1}
        assert set(counts) == set(range(len(counts)))
        assert len(counts) >= 3 * ROWS
