"""`millstream perf end-to-end`: what kafka-e2e-latency.sh does. One record at a time: sent, acknowledged,
read back."""

import random
import sys
import time
from typing import Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options, signals
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.perf.statistics import Latencies
from millstream.cli.progress import progress
from millstream.wire.topic_partition import TopicPartition

READ_BACK_TIMEOUT_MS = 60_000
PRINT_EVERY = 1_000


def command(
    topic: Annotated[
        str, typer.Option(metavar="NAME", help="Send to and read from this topic. Required.")
    ] = "",
    num_records: Annotated[
        int, typer.Option(metavar="N", help="How many records. Required.", show_default=False)
    ] = 0,
    producer_acks: Annotated[str, typer.Option(metavar="ACKS", help="1 or all.")] = "all",
    record_size: Annotated[int, typer.Option(metavar="BYTES", help="Values of this size.")] = 100,
    record_key_size: Annotated[int, typer.Option(metavar="BYTES", help="Keys of this size; 0: none.")] = 0,
    num_headers: Annotated[int, typer.Option(metavar="N", help="Headers of each record.")] = 0,
    record_header_key_size: Annotated[
        int, typer.Option(metavar="BYTES", help="Their names of this size.")
    ] = 0,
    record_header_size: Annotated[
        int, typer.Option(metavar="BYTES", help="Their values of this size; -1: null.")
    ] = 0,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Send one record at a time, wait until it has been read back, and print how long that takes."""
    style = check_style(output)
    if not topic:
        raise UsageError('Missing required argument "[topic]"')
    if num_records < 1:
        raise UsageError("--num-records must be a number of 1 or more")
    for name, number, least in (
        ("--record-size", record_size, 0),
        ("--record-key-size", record_key_size, 0),
        ("--num-headers", num_headers, 0),
        ("--record-header-key-size", record_header_key_size, 0),
        ("--record-header-size", record_header_size, -1),
    ):
        if number < least:
            raise UsageError(f"{name} {number}: use a number of {least} or more")
    if producer_acks not in ("1", "all", "-1"):
        raise UsageError("Latency testing requires synchronous acknowledgement. Please use 1 or all")
    settings = cluster_access.read_client_properties(command_config)
    latencies = Latencies()
    code = 0
    with (
        cluster_access.connect(bootstrap_server, settings, "perf-latency-client") as cluster,
        cluster_access.connect(bootstrap_server, settings, "perf-latency-client") as reading_cluster,
        progress("measuring", num_records, "records") as bar,
    ):
        from millstream.client import LATEST, Fetcher, Producer, list_offsets
        from millstream.wire.records import Record

        acks = 1 if producer_acks == "1" else -1
        producer = Producer(cluster, acks=acks, idempotent=acks == -1)
        if topic not in reading_cluster.topics and reading_cluster.refresh([topic]):
            print(
                f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication '
                f"factor = 1",
                file=sys.stdout if style == "lines" else sys.stderr,
            )
            create(cluster, topic)
        partitions = sorted(reading_cluster.topic(topic).partitions)
        fetcher = Fetcher(reading_cluster)
        topic_partitions = dict.fromkeys([TopicPartition(topic, number) for number in partitions], LATEST)
        positions = {
            topic_partition: answer.offset
            for topic_partition, answer in list_offsets(reading_cluster, topic_partitions).items()
        }
        headers = [
            (
                random_letters(record_header_key_size).decode(),
                random_letters(record_header_size) if record_header_size >= 0 else None,
            )
            for _ in range(num_headers)
        ]
        try:
            with signals.InterruptGuard() as interrupts, interrupts.interruptible():
                for number in range(num_records):
                    value = random_letters(record_size)
                    key = random_letters(record_key_size) if record_key_size else None
                    partition = partitions[number % len(partitions)]
                    record = Record(0, round(time.time() * 1000), key, value, headers)
                    began = time.perf_counter()
                    producer.send(topic, partition, [record])
                    check_back(fetcher, positions, value, topic)
                    took = time.perf_counter() - began
                    latencies.add(took)
                    bar.advance(1)
                    if number % PRINT_EVERY == 0 and style == "lines":
                        print(f"{number}\t{took * 1000:f}")
        except signals.Interrupted as stopped:
            code = stopped.code
    middle, high, highest = latencies.percentiles(0.5, 0.99, 0.999)
    lines = [
        f"Avg latency: {latencies.mean:.4f} ms",
        f"Percentiles: 50th = {middle:.0f}, 99th = {high:.0f}, 99.9th = {highest:.0f}",
    ]
    facts = {
        "records": latencies.count,
        "average_ms": round(latencies.mean, 4),
        "p50_ms": middle,
        "p99_ms": high,
        "p99_9_ms": highest,
        "max_ms": round(latencies.max * 1000, 4),
    }
    emit(
        Report(lines, facts, ["Records", "Average ms", "50 %", "99 %", "99.9 %", "Max"], [[*facts.values()]]),
        style,
    )
    return code


def random_letters(size: int) -> bytes:
    return bytes(random.choices(range(65, 91), k=size))


def create(cluster: Any, topic: str) -> None:
    from millstream.client import Admin, NewTopic
    from millstream.wire.errors import KafkaError

    outcome = Admin(cluster).create_topics([NewTopic(topic, 1, 1)])[topic]
    if isinstance(outcome, KafkaError):
        raise CommandFailed(outcome.message or f"cannot create topic {topic}")


def check_back(fetcher: Any, positions: dict[TopicPartition, int], value: bytes, topic: str) -> None:
    """Wait for the record that was just sent; anything else means that somebody else writes there."""
    from millstream.client.fetch import next_offset, visible_batches
    from millstream.wire.records import iter_records

    deadline = time.monotonic() + READ_BACK_TIMEOUT_MS / 1000
    while time.monotonic() < deadline:
        found = []
        for fetched in fetcher.poll(positions, 500):
            topic_partition = TopicPartition(fetched.topic, fetched.partition)
            start = positions[topic_partition]
            for _, batch in visible_batches(fetched, start):
                found += [record.value for record in iter_records(batch) if record.offset >= start]
            positions[topic_partition] = next_offset(fetched, start)
        if found == [value]:
            return
        if found:
            raise CommandFailed(
                f"Expected 1 record, but {len(found)} came, or another one: somebody else writes to {topic}"
            )
    raise CommandFailed(
        f"a record that was acknowledged has not come back after {READ_BACK_TIMEOUT_MS // 1000} s"
    )
