"""Speculative execution by Spark itself: needs executors of their own, since Spark does not speculate in local mode."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.testing import Broker
from tests.pipeline.sink.reading import values_of

pytest.importorskip("pyspark")

ROOT = Path(__file__).resolve().parents[3]
ROWS = 400

APP = """
import sys, time
from pyspark import TaskContext
from pyspark.sql.functions import udf
from millstream.pipeline.session import spark

servers, topic, folder, notes = sys.argv[1:5]
session = spark("speculation", {
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.4", "spark.speculation.minTaskRuntime": "200ms", "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
}, master="local-cluster[2,2,700]")

def slow_at_first(value):
    context = TaskContext.get()
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        time.sleep(0.05)  # for each row of the first attempt of one task
    with open(notes, "a") as file:
        file.write(f"{context.partitionId()} {context.attemptNumber()}\\n")
    return value

slow = udf(slow_at_first, "string", useArrow=False)
rows = (session.readStream.format("rate-micro-batch").option("rowsPerBatch", "400").option("numPartitions", "4").load()
    .selectExpr("cast(value as string) as value").select(slow("value").alias("value")))
query = (rows.writeStream.format("millstream").option("kafka.bootstrap.servers", servers).option("topic", topic)
    .option("delivery", "exactly_once").option("kafka.batch.size", "200").option("checkpointLocation", folder).start())
while query.isActive and len([p for p in query.recentProgress if p["numInputRows"]]) < 3:
    time.sleep(0.1)
problem = query.exception()
query.stop()
sys.exit(str(problem) if problem else 0)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_speculative_attempts_write_once(tmp_path):
    notes = tmp_path / "notes"
    with Broker() as broker, Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
        Admin(cluster).create_topics([NewTopic("out", 2, 1)])
        command = [
            sys.executable,
            "-c",
            APP,
            broker.bootstrap_servers,
            "out",
            str(tmp_path / "checkpoint"),
            str(notes),
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
