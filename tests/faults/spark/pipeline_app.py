"""The pipeline under fire: copies a topic into another one exactly once, each row naming the input that it
comes from.

Its tasks are slow and write in small batches, so that most moments are in the middle of one. A process of its
own, to be killed.
"""

import argparse
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from millstream.spark.session import spark
from tests.faults.spark.supervise import MASTER, SETTINGS, end_with_parent, supervise

SECONDS_PER_ROW = 0.0004


def slowly(value: str) -> str:
    time.sleep(SECONDS_PER_ROW)
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
    end_with_parent()
    session = spark("faults", SETTINGS, master=MASTER)
    return supervise(
        lambda: (
            rows(session, given.servers, given.source, given.shape)
            .writeStream.format("millstream")
            .option("kafka.bootstrap.servers", given.servers)
            .option("topic", given.target)
            .option("delivery", "exactly_once")
            .option("kafka.batch.size", "512")
            .option("checkpointLocation", given.checkpoint)
            .start()
        )
    )


if __name__ == "__main__":
    sys.exit(main())
