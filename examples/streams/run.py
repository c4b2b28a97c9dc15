"""Runs one of the examples beside this file on Spark.

    python examples/streams/run.py word_count                              starts a broker of its own for it
    python examples/streams/run.py word_count --bootstrap localhost:9092   on a cluster

Makes the topics that are missing, sends the example's records, prints what the application writes, and ends
when all of it is processed. `--forever` goes on until Ctrl-C instead, `--no-feed` leaves the records to you.
Started again on the same cluster and state folder, the application goes on from where it was.

    python examples/streams/run.py event_sourcing --serve 7070             and answers questions about its
                                                                           stores over HTTP

A process of its own serves them. The example's QUESTIONS are asked when all records are processed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import runpy
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.client import (
    LATEST,
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    Producer,
    list_offsets,
    visible_batches,
)
from millstream.client.fetch import next_offset
from millstream.streams import Streams, Topology
from millstream.streams.operators.joins import EMIT_EVERY
from millstream.testing import Broker
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record, encode_batch, iter_records

FOLDER = Path(__file__).parent


def topics_of(topology: Topology, node_type: str) -> list[str]:
    """The topics that are read ("source") or written ("sink"), but for the application's own internal
    ones."""
    found = [topic for node in topology.nodes.values() if node.type == node_type for topic in node.topics]
    return [topic for topic in dict.fromkeys(found) if topic not in topology.internal]


def make_topics(cluster: Cluster, names: list[str], partitions: int) -> None:
    for outcome in Admin(cluster).create_topics([NewTopic(name, partitions, -1) for name in names]).values():
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.topic_already_exists:
            raise outcome


def feed(cluster: Cluster, topology: Topology, records: list[tuple[str, Any, Any, int]]) -> None:
    """Every record to the partition of its key."""
    batches: dict[tuple[str, int], list[Record]] = {}
    for topic, key, value, timestamp in records:
        key_serde, value_serde = topology.serdes_of(topic)
        raw = key_serde.write(topic, key)
        partition = partition_for(raw, len(cluster.topic(topic, create=True).partitions)) if raw else 0
        record = Record(0, timestamp, raw, value_serde.write(topic, value))
        batches.setdefault((topic, partition), []).append(record)
    Producer(cluster).send_batches(
        {topic_partition: encode_batch(rows) for topic_partition, rows in batches.items()}
    )


class Outputs:
    """What is written to some topics from now on, committed records only."""

    def __init__(self, cluster: Cluster, topology: Topology, topics: list[str]) -> None:
        self._topology, self._fetcher = topology, Fetcher(cluster, read_committed=True)
        topic_partitions = [
            (topic, number) for topic in topics for number in cluster.topic(topic, create=True).partitions
        ]
        self._at = {
            topic_partition: found.offset
            for topic_partition, found in list_offsets(
                cluster, dict.fromkeys(topic_partitions, LATEST)
            ).items()
        }
        self._cluster = cluster

    def new(self) -> Iterator[tuple[str, Any, Any]]:
        # Not the last one that is committed: of a transaction that has just ended a reader may see the end a
        # moment later.
        latest = list_offsets(self._cluster, dict.fromkeys(self._at, LATEST))
        while left := {
            topic_partition: at
            for topic_partition, at in self._at.items()
            if at < latest[topic_partition].offset
        }:
            for answer in self._fetcher.poll(left, 500):
                topic_partition = (answer.topic, answer.partition)
                key_serde, value_serde = self._topology.serdes_of(answer.topic)
                for _, batch in visible_batches(answer, self._at[topic_partition], read_committed=True):
                    for record in iter_records(batch):
                        if record.offset >= self._at[topic_partition]:
                            key = key_serde.reader(answer.topic)(record.key)
                            yield answer.topic, key, value_serde.reader(answer.topic)(record.value)
                self._at[topic_partition] = next_offset(answer, self._at[topic_partition])


def application_of(example: str, topology: Topology, servers: str, given: argparse.Namespace) -> Streams:
    return Streams(
        topology,
        example.replace("_", "-"),
        bootstrap_servers=servers,
        state=given.state,
        delivery=given.delivery,
        # Lonely records of joins leave with the next record, not up to a second later.
        config={EMIT_EVERY: 0},
    )


def serve(example: str, servers: str, given: argparse.Namespace) -> None:
    """In a process of its own: answers from the application's changelogs, whatever the application does
    meanwhile."""
    topology: Topology = runpy.run_path(str(FOLDER / f"{example}.py"))["build"]()
    application_of(example, topology, servers, given).serve_queries(port=given.serve)


@contextlib.contextmanager
def serving(example: str, servers: str, given: argparse.Namespace) -> Iterator[None]:
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(example, servers, given))
    server.start()
    try:
        print("serving", ask("/stores", given.serve), flush=True)
        yield
    finally:
        server.terminate()
        server.join()


def ask(question: str, port: int) -> str:
    """The answer to a question; the server may need some seconds to begin."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{question}", timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def run(example: str, servers: str, given: argparse.Namespace) -> None:
    content = runpy.run_path(str(FOLDER / f"{example}.py"))
    topology: Topology = content["build"]()
    print(topology.describe(), flush=True)
    application = application_of(example, topology, servers, given)
    written = topics_of(topology, "sink")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(ClientConfig.of(servers)))
        make_topics(
            cluster, list(dict.fromkeys([*topics_of(topology, "source"), *written])), given.partitions
        )
        outputs = Outputs(cluster, topology, written)
        if given.feed:
            feed(cluster, topology, content["RECORDS"])
        if given.serve is not None:
            stack.enter_context(serving(example, servers, given))
        query = application.start()
        try:
            while query.isActive:
                done = application.lag() == 0
                for topic, key, value in outputs.new():
                    print(topic, key, value, flush=True)
                if done and not given.forever:
                    break
                time.sleep(0.2)
            if (failure := query.exception()) is not None:
                raise failure
            for question in content.get("QUESTIONS", []) if given.serve is not None else []:
                print("asked", question, ask(question, given.serve), flush=True)
        except KeyboardInterrupt:
            pass
        finally:
            query.stop()


def main() -> None:
    names = sorted(file.stem for file in FOLDER.glob("*.py") if file.name != Path(__file__).name)
    arguments = argparse.ArgumentParser(description="Runs an example on Spark.")
    arguments.add_argument("example", choices=names)
    arguments.add_argument(
        "--bootstrap", help="a cluster (default: starts a broker, which ends with the example)"
    )
    arguments.add_argument("--state", help="folder for stores and checkpoint (default: a temporary one)")
    arguments.add_argument("--delivery", default="exactly_once", choices=["exactly_once", "at_least_once"])
    arguments.add_argument(
        "--partitions", type=int, default=1, help="of the topics that are made (default 1)"
    )
    arguments.add_argument("--forever", action="store_true", help="go on until Ctrl-C")
    arguments.add_argument(
        "--no-feed", dest="feed", action="store_false", help="send nothing: the records come from elsewhere"
    )
    arguments.add_argument(
        "--serve", type=int, metavar="PORT", help="answer questions about the stores over HTTP there"
    )
    given = arguments.parse_args()
    with contextlib.ExitStack() as stack:
        if given.state is None:
            given.state = stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-streams-"))
        servers = given.bootstrap or stack.enter_context(Broker()).bootstrap_servers
        run(given.example, servers, given)


if __name__ == "__main__":
    main()
