"""The pipeline under fire: copies a topic into another one exactly once, each row naming the input that it comes from.

Its tasks are slow and write in small batches, so that most moments are in the middle of one.
A process of its own, to be killed. When its query fails it says why and starts it again, as a supervisor would. It ends when
its standard input does, so that it does not outlive a test.
"""

import argparse
import os
import sys
import threading
import time

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from millstream.spark.errors import explain
from millstream.spark.session import spark

SETTINGS = {
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # it is started often, and lives short
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}


PAUSE = 0.0004  # for each row


def slowly(value: str) -> str:
    time.sleep(PAUSE)
    return value


def rows(session: SparkSession, servers: str, source: str, shape: str) -> DataFrame:
    stream = (
        session.readStream.format("millstream")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "1200")
        .option("minPartitions", "3")
        .load()
        .selectExpr("key", "concat(partition, ':', offset) as value")
    )
    cut = stream.repartition(3, "key") if shape == "shuffle" else stream
    slow = udf(slowly, StringType(), useArrow=False)
    return cut.select("key", slow("value").alias("value"))


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("servers", "source", "target", "checkpoint", "shape"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    session = spark("faults", SETTINGS, master="local[2,8]")
    while True:
        query = (
            rows(session, given.servers, given.source, given.shape)
            .writeStream.format("millstream")
            .option("kafka.bootstrap.servers", given.servers)
            .option("topic", given.target)
            .option("delivery", "exactly_once")
            .option("kafka.batch.size", "512")
            .option("checkpointLocation", given.checkpoint)
            .start()
        )
        print("started", flush=True)
        try:
            query.awaitTermination()
            return 0
        except PySparkException as error:
            print("failed:", explain(error) or str(error).splitlines()[0], flush=True)
        time.sleep(0.3)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
