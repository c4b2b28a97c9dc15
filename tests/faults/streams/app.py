"""The application under fire: counts records by key, behind a repartition topic, exactly once.

Its tasks are slow (`slow`), so that most moments are in the middle of one. A process of its own, to be killed. When its query fails it says
why and starts it again, as a supervisor would. It ends when its standard input does, so that it does not outlive a test.
"""

import argparse
import os
import sys
import threading
import time

from pyspark.errors import PySparkException

from millstream.spark.errors import explain
from millstream.spark.session import spark
from millstream.streams import StreamsBuilder, Topology, serdes
from millstream.streams.runtime import Streams
from millstream.wire.errors import KafkaError
from tests.faults.pipeline.app import SETTINGS
from tests.faults.streams.slow import key_of

APPLICATION, STORE = "counting", "counts"
MOST = 300  # records of a partition in a batch


def build(source: str, target: str) -> Topology:
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    counts = builder.stream(source).group_by(key_of).count(materialized=STORE)
    counts.to_stream().to(target, value=serdes.LONG)
    return builder.build()


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("servers", "source", "target", "state"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    session = spark("faults", SETTINGS, master="local[2,8]")
    topology = build(given.source, given.target)
    application = Streams(
        topology, APPLICATION, bootstrap_servers=given.servers, state=given.state, most=MOST
    )
    while True:
        try:
            query = application.start(session)
            print("started", flush=True)
            query.awaitTermination()
            return 0
        except (PySparkException, KafkaError) as error:
            print("failed:", explain(error) or str(error).splitlines()[0], flush=True)
        time.sleep(0.3)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
