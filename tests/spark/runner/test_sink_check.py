"""What is wrong with a sink is said before a query starts, without waiting for its first batch."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from millstream.spark.errors import PipelineError
from millstream.spark.runner.sink_check import check_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def writer(spark: "SparkSession", columns: str = "cast(value as string) value", **options: str) -> Any:
    rows = spark.readStream.format("rate").load().selectExpr(columns)
    return rows.writeStream.format("millstream").options(**options)


def test_mistakes(spark: "SparkSession", broker: str, new_topic: Callable[..., str]) -> None:
    good = {"kafka.bootstrap.servers": broker, "topic": new_topic()}
    check_sink(writer(spark, **good))
    for options, message in [
        (good | {"delivery": "twice"}, "option 'delivery' must be"),
        (good | {"Topics": "x"}, "did you mean 'topic'?"),
        ({"kafka.bootstrap.servers": broker}, "no topic to write to"),
        (good | {"kafka.bootstrap.servers": "127.0.0.1:1"}, "connection refused"),
    ]:
        with pytest.raises(PipelineError, match=message.replace("?", r"\?")):
            check_sink(writer(spark, **options))
    with pytest.raises(PipelineError, match="column 'value' must be string or binary"):
        check_sink(writer(spark, "value", **good))


def test_other_sinks_are_left_alone(spark: "SparkSession") -> None:
    rows = spark.readStream.format("rate").load()
    check_sink(rows.writeStream.format("noop").option("topic", "x"))
    check_sink(rows.writeStream.foreachBatch(lambda df, number: None))
    check_sink(object())  # a query that the pipeline has started itself
