"""Update mode, which Spark refuses to sinks written in Python: through foreachBatch.

    counts.writeStream.outputMode("update").foreachBatch(upsert(topic="counts", **settings.kafka))

A batch that is repeated after a crash writes its rows again. With a key for each group, as a count has, a
reader that keeps the newest value of each key, or a compacted topic, does not see the difference. With
`delivery="exactly_once"` each batch appears at once or not at all.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def upsert(**options: str) -> "Callable[[DataFrame, int], None]":
    """A function for `foreachBatch` that writes each batch with these options of format("millstream")."""

    def write(batch: "DataFrame", batch_id: int) -> None:
        batch.write.format("millstream").options(**options).mode("append").save()

    return write
