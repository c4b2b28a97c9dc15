"""The application under fire: counts records by key, behind a repartition topic, exactly once.

Its tasks are slow (`slow`), so that most moments are in the middle of one. A process of its own, to be
killed.
"""

import argparse
import sys

from millstream.spark.session import spark
from millstream.streams import Streams, StreamsBuilder, Topology, serdes
from tests.faults.spark.slow import key_of
from tests.faults.spark.supervise import MASTER, SETTINGS, end_with_parent, supervise

APPLICATION, STORE = "counting", "counts"
MAX_BYTES = 20_000  # of a partition at a time


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
    end_with_parent()
    session = spark("faults", SETTINGS, master=MASTER)
    application = Streams(
        build(given.source, given.target),
        APPLICATION,
        bootstrap_servers=given.servers,
        state=given.state,
        max_bytes_per_task=MAX_BYTES,
    )
    return supervise(lambda: application.start(session))


if __name__ == "__main__":
    sys.exit(main())
