"""What the plant does with its events, as a pipeline for `millstream pipeline run`.

audit    every event goes to plant.audit, exactly once, whatever is killed meanwhile. In the same transaction
         alerts go to plant.alerts, the critical ones to a partition of their own, and records that are no
         events to plant.dead.
trends   how many alerts each stage had in each ten seconds, to plant.trends: one key per stage and window, so
         that a compacted topic keeps the newest count of each.
stages   the same windows as a Streams application, with the names of the stages joined from a table: see
         stages.py.

millstream pipeline run examples/ebike/pipeline.py --registry http://127.0.0.1:8081
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from stages import application

from millstream.spark.columns import from_registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.spark.runner.pipeline_file import Settings

NAME = "ebike"  # what `millstream pipeline` calls it
EVENTS, AUDIT, ALERTS, TRENDS, DEAD = (
    "plant.events",
    "plant.audit",
    "plant.alerts",
    "plant.trends",
    "plant.dead",
)
CRITICAL_PARTITION, OTHER_PARTITIONS = 0, 2


def pipeline(spark: SparkSession, settings: Settings) -> dict[str, Any]:
    return {
        "audit": audit(events(spark, settings), settings),
        "trends": trends(events(spark, settings), settings),
        "stages": application(settings.bootstrap_servers, settings.registry, settings.checkpoint).query(
            spark
        ),
    }


def events(spark: SparkSession, settings: Settings) -> DataFrame:
    """The topic with the decoded event beside each record."""
    source = (
        spark.readStream.format("millstream")
        .options(**settings.kafka)
        .option("subscribe", EVENTS)
        .option("startingOffsets", "earliest")
        .load()
    )
    return source.withColumn("event", from_registry("value", settings.registry, topic=EVENTS))


def audit(decoded: DataFrame, settings: Settings) -> Any:
    good, level = f.col("event._corrupt").isNull(), f.col("event.level")
    critical = level == "critical"
    spread = f.abs(f.hash("event.stage")) % OTHER_PARTITIONS + 1
    record = f.when(good, _row(AUDIT, f.col("key"), f.lit(None).cast("int"))).otherwise(
        _row(DEAD, f.col("key"), f.lit(None).cast("int"))
    )
    alert = f.when(
        good & (level != "info"),
        _row(
            ALERTS,
            f.col("event.stage").cast("binary"),
            f.when(critical, CRITICAL_PARTITION).otherwise(spread),
        ),
    )
    rows = f.explode(f.filter(f.array(record, alert), lambda row: row.isNotNull())).alias("row")
    return (
        decoded.select(rows)
        .select("row.*")
        .writeStream.format("millstream")
        .options(**settings.kafka)
        .option("delivery", "exactly_once")
    )


def _row(topic: str, key: Any, partition: Any) -> Any:
    return f.struct(
        f.lit(topic).alias("topic"),
        key.alias("key"),
        f.col("value").alias("value"),
        partition.cast("int").alias("partition"),
    )


def trends(decoded: DataFrame, settings: Settings) -> Any:
    alerts = decoded.where("event.level != 'info'").select("event.at", "event.stage", "event.level")
    counted = (
        alerts.withWatermark("at", "1 minute")
        .groupBy(f.window("at", "10 seconds"), "stage")
        .agg(f.count("*").alias("alerts"), f.count_if(f.col("level") == "critical").alias("critical"))
    )
    start = f.date_format("window.start", "HH:mm:ss")
    rows = counted.select(
        f.concat_ws("@", "stage", f.col("window.start").cast("string")).alias("key"),
        f.to_json(f.struct("stage", start.alias("window"), "alerts", "critical")).alias("value"),
    )

    def upsert(batch: DataFrame, number: int) -> None:
        """A batch that is repeated writes the same counts under the same keys again."""
        batch.write.format("millstream").options(**settings.kafka).option("topic", TRENDS).mode(
            "append"
        ).save()

    # Spark lets a Python sink append only; counts that change go through foreachBatch.
    return rows.writeStream.outputMode("update").foreachBatch(upsert)
