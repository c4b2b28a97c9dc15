"""Runs one of the examples beside this file on Spark, against a cluster.

python examples/streams/run.py word_count --bootstrap localhost:9092 [--state FOLDER] [--delivery at_least_once]

Its topics have to be there. It runs until it is stopped with Ctrl-C, and goes on from there when it is started again.
"""

import argparse
import runpy
from pathlib import Path

from millstream.pipeline.streams.runtime import Streams

FOLDER = Path(__file__).parent


def main() -> None:
    names = sorted(file.stem for file in FOLDER.glob("*.py") if file != Path(__file__))
    arguments = argparse.ArgumentParser(description="Runs an example on Spark, against a cluster.")
    arguments.add_argument("example", choices=names)
    arguments.add_argument("--bootstrap", default="localhost:9092")
    arguments.add_argument("--state", default="streams-state")
    arguments.add_argument("--delivery", default="exactly_once", choices=["exactly_once", "at_least_once"])
    given = arguments.parse_args()
    topology = runpy.run_path(str(FOLDER / f"{given.example}.py"))["build"]()
    print(topology.describe())
    application = Streams(
        topology,
        given.example.replace("_", "-"),
        bootstrap_servers=given.bootstrap,
        state=given.state,
        delivery=given.delivery,
    )
    query = application.start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


if __name__ == "__main__":
    main()
