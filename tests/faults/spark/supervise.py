"""How a program under fire runs its query: when it fails it says why and starts it again, as a supervisor
would. The program ends when its standard input does, so that it does not outlive a test. `Driver` reads what
is printed here."""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from millstream.spark.errors import explain
from millstream.streams import StreamsError
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from millstream.streams.runtime.running import RunningStreams

SETTINGS = {
    "spark.driver.memory": "700m",
    # It is started often, and lives short.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}
MASTER = "local[2,8]"
STARTED, FAILED = "started", "failed:"


def end_with_parent() -> None:
    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def supervise(start: Callable[[], "StreamingQuery | RunningStreams"]) -> int:
    """Run the query for ever, in as many lives as it takes."""
    while True:
        try:
            query = start()
            print(STARTED, flush=True)
            query.awaitTermination()
            return 0
        except (PySparkException, KafkaError, StreamsError) as error:
            print(FAILED, explain(error) or str(error).splitlines()[0], flush=True)
        # A broker that was killed needs a moment; the next life would fail like this one.
        time.sleep(0.3)
