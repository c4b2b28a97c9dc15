"""`millstream console-producer`: what kafka-console-producer.sh does.

Lines are collected per partition and sent as batches: when a batch is full, when the input has been silent
for the linger time, at its end, or one by one with --sync. A line with a key goes to the partition of its
key; lines without one stay on one partition for a batch and then move on.
"""

import os
import random
import select
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, profile_store, schema_formats, shared_options, signals
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.record_reader import LineMessageReader, ParsedRecord

if TYPE_CHECKING:
    from millstream.client import Cluster, Producer
    from millstream.wire.records import Record

REMOVED = {
    "--new-producer": "there is only one producer: leave it out",
    "--old-producer": "there is only one producer: leave it out",
    "--key-serializer": "lines are sent as they are: leave it out",
    "--value-serializer": "lines are sent as they are: leave it out",
    "--queue-size": "use --batch-size",
    "--queue-enqueuetimeout-ms": "use --max-block-ms",
}

# As Kafka's producer has them; -1 is gzip's own default.
LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
LINE_READER = "LineMessageReader"
DEFAULTS = {
    "retry.backoff.ms": "100",
    "default.api.timeout.ms": "60000",
    "batch.size": "16384",
    "linger.ms": "1000",
}
READ_SIZE = 1 << 16
OVERHEAD = 24  # bytes of a record beside key and value, roughly
MAX_PENDING = 20_000  # records collected before they are sent, however small


def prepare(arguments: list[str]) -> list[str]:
    """--compression-codec may stand alone and then means gzip."""
    found = list(arguments)
    for at, argument in enumerate(arguments):
        if argument == "--compression-codec" and (
            at + 1 == len(arguments) or arguments[at + 1].startswith("-")
        ):
            found[at] = "--compression-codec=gzip"
    return found


def command(
    topic: Annotated[str, typer.Option(help="The topic to send to. Required.", metavar="NAME")] = "",
    reader_property: Annotated[
        list[str] | None,
        typer.Option(
            help="How to read lines: parse.key, key.separator, parse.headers, headers.delimiter, "
            "headers.separator, "
            "headers.key.separator, null.marker, ignore.error; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    reader_config: Annotated[
        str, typer.Option(help="Properties file with reader properties.", metavar="FILE")
    ] = "",
    key_format: Annotated[
        str,
        typer.Option(
            help="avro, jsonschema or protobuf: keys are JSON, sent by the schema in --reader-property "
            "key.schema=...",
            metavar="FORMAT",
        ),
    ] = "",
    value_format: Annotated[
        str,
        typer.Option(
            help="The same for values: value.schema, value.schema.file or value.schema.id, and "
            "schema.registry.url=http://localhost:8081.",
            metavar="FORMAT",
        ),
    ] = "",
    sync: Annotated[
        bool, typer.Option("--sync", help="Send each line at once and wait for its answer.")
    ] = False,
    compression_codec: Annotated[
        str, typer.Option(help="none, gzip, snappy, lz4 or zstd; without a value gzip.", metavar="CODEC")
    ] = "",
    request_required_acks: Annotated[
        str,
        typer.Option(help="Who must have a record: all (-1), the leader (1), nobody (0).", metavar="ACKS"),
    ] = "",
    batch_size: Annotated[
        int | None, typer.Option(help="Bytes of a batch. [default: 16384]", metavar="BYTES")
    ] = None,
    timeout: Annotated[
        int | None, typer.Option(help="How long a line may wait for others. [default: 1000]", metavar="MS")
    ] = None,
    request_timeout_ms: Annotated[
        int | None, typer.Option(help="How long to wait for an answer. [default: 30000]", metavar="MS")
    ] = None,
    max_block_ms: Annotated[
        int | None, typer.Option(help="How long to keep trying, all in all. [default: 60000]", metavar="MS")
    ] = None,
    retry_backoff_ms: Annotated[
        int | None, typer.Option(help="Pause before trying again. [default: 100]", metavar="MS")
    ] = None,
    command_property: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the producer, as acks=1; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    old_property: Annotated[list[str] | None, typer.Option("--property", hidden=True)] = None,
    producer_property: Annotated[list[str] | None, typer.Option("--producer-property", hidden=True)] = None,
    producer_config: Annotated[str, typer.Option("--producer.config", hidden=True)] = "",
    line_reader: Annotated[str, typer.Option("--line-reader", hidden=True)] = LINE_READER,
    max_partition_memory_bytes: Annotated[int | None, typer.Option(hidden=True)] = None,
    max_memory_bytes: Annotated[int | None, typer.Option(hidden=True)] = None,
    message_send_max_retries: Annotated[int | None, typer.Option(hidden=True)] = None,
    metadata_expiry_ms: Annotated[int | None, typer.Option(hidden=True)] = None,
    socket_buffer_size: Annotated[int | None, typer.Option(hidden=True)] = None,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Send lines of standard input to a topic, one record a line."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if not topic:
        raise UsageError('Missing required argument "[topic]"')
    if line_reader.rpartition(".")[2] != LINE_READER:
        raise UsageError(
            f"--line-reader {line_reader}: Java classes cannot be loaded; there is {LINE_READER}"
        )
    shared_options.warn_of_old_names(
        ("--property", old_property, "--reader-property", reader_property),
        ("--producer-property", producer_property, "--command-property", command_property),
        ("--producer.config", producer_config, "--command-config", command_config),
        ("--max-partition-memory-bytes", max_partition_memory_bytes, "--batch-size", None),
    )
    reader_settings = {
        **cluster_access.read_properties(reader_config),
        **cluster_access.key_values(old_property or reader_property or []),
    }
    forms = (
        schema_formats.check("--key-format", key_format),
        schema_formats.check("--value-format", value_format),
    )
    by_schema, reader_settings = schema_formats.divided(reader_settings)
    if any(forms):
        by_schema = {**profile_store.registry_settings(bootstrap_server), **by_schema}
    reader = (
        schema_formats.SchemaMessageReader(topic, *forms, by_schema, reader_settings)
        if any(forms)
        else LineMessageReader(reader_settings)
    )
    options = {
        "retry.backoff.ms": retry_backoff_ms,
        "default.api.timeout.ms": max_block_ms,
        "batch.size": max_partition_memory_bytes or batch_size,
        "linger.ms": timeout,
        "request.timeout.ms": request_timeout_ms,
        "acks": request_required_acks or None,
        "compression.type": compression_codec or None,
    }
    settings = {
        **DEFAULTS,
        **cluster_access.read_client_properties(command_config or producer_config),
        **cluster_access.client_properties(producer_property or command_property or []),
        # What has an option of its own is said by that option first of all.
        **{name: str(value) for name, value in options.items() if value is not None},
    }
    producer_arguments = producer_settings(settings)
    with cluster_access.connect(bootstrap_server, settings, "console-producer") as cluster:
        from millstream.client import Producer

        session = ProducerSession(
            cluster, Producer(cluster, **producer_arguments), topic, _positive(settings, "batch.size")
        )
        linger = 0.0 if sync else _positive(settings, "linger.ms") / 1000
        code = run(session, reader, linger, sync)
    if style != "lines":
        emit(session.report(), style)
    return code or (1 if session.failures else 0)


def run(session: "ProducerSession", reader: LineMessageReader, linger: float, sync: bool) -> int:
    """Everything from standard input into the session. Returns 0, or the exit code of the signal that ended
    it."""
    with signals.InterruptGuard() as interrupts:
        code = 0
        try:
            for line in input_lines(linger, interrupts):
                if line is None:
                    session.flush()
                    continue
                session.add(reader.parse(line))
                if sync:
                    session.flush()
                    if session.failures:
                        return 1  # one at a time: what comes after a line that failed is not sent
        except signals.Interrupted as stopped:
            code = stopped.code
        except CommandFailed:
            session.flush()  # what was read before the bad line counts
            raise
        session.flush()
        return code


def input_lines(linger: float, interrupts: signals.InterruptGuard) -> Iterator[bytes | None]:
    """Lines of standard input without their ends; None whenever it has been silent for `linger` seconds."""
    source = sys.stdin.fileno()
    prompt = sys.stdin.isatty()
    pending = b""
    silent = False
    while True:
        if prompt and not pending and not silent:
            print(">", end="", flush=True)
        with interrupts.interruptible():
            ready, _, _ = select.select([source], [], [], None if silent else linger)
        if not ready:
            silent = True
            yield None
            continue
        silent = False
        chunk = os.read(source, READ_SIZE)
        if not chunk:
            if pending:
                yield pending.removesuffix(b"\r")
            return
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")


class ProducerSession:
    """Records waiting to be sent to one topic, and what became of those before."""

    def __init__(self, cluster: "Cluster", producer: "Producer", topic: str, batch_size: int) -> None:
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self._batch_size = batch_size
        self._waiting: dict[int, list[Record]] = {}
        self._sizes: dict[int, int] = {}
        self._count = 0
        self._sticky: int | None = None
        self._sent: dict[int, tuple[int, int, int]] = {}  # partition: first offset, last offset, records
        self.failures = 0

    def add(self, line: ParsedRecord, chosen: int | None = None) -> None:
        """To the partition that was chosen, or to that of its key."""
        from millstream.wire.records import Record

        partition = self._partition(line.key) if chosen is None else chosen
        record = Record(0, round(time.time() * 1000), line.key, line.value, line.headers)
        size = OVERHEAD + len(line.key or b"") + len(line.value or b"")
        if partition in self._waiting and self._sizes[partition] + size > self._batch_size:
            self.flush()
            partition = self._partition(line.key) if chosen is None else chosen
        self._waiting.setdefault(partition, []).append(record)
        self._sizes[partition] = self._sizes.get(partition, 0) + size
        self._count += 1
        if self._count >= MAX_PENDING:
            self.flush()

    def _partition(self, key: bytes | None) -> int:
        from millstream.wire.murmur2 import partition_for

        partitions = self._cluster.topic(self._topic, create=True).partitions
        if key is not None:
            return partition_for(key, len(partitions))
        if self._sticky is None or self._sticky not in partitions:
            with_leader = [index for index, part in partitions.items() if part.leader in self._cluster.nodes]
            self._sticky = random.choice(with_leader or list(partitions))
        return self._sticky

    def flush(self) -> None:
        if not self._waiting:
            return
        from millstream.client import TimedOut, Unreachable
        from millstream.wire.errors import ErrorCode, KafkaError

        waiting, self._waiting = self._waiting, {}
        self._sizes.clear()
        self._count = 0
        self._sticky = None
        batches = list(waiting.items())
        while batches:
            partition, records = batches.pop(0)
            try:
                sent = self._producer.send(self._topic, partition, records)
            except (Unreachable, TimedOut):
                raise
            except KafkaError as error:
                if error.code is ErrorCode.message_too_large and len(records) > 1:
                    # Perhaps it is one record that is too large, or only all of them together.
                    middle = len(records) // 2
                    batches[:0] = [(partition, records[:middle]), (partition, records[middle:])]
                    continue
                self.failures += 1
                print(
                    f"Error when sending {len(records)} records to topic {self._topic}: {error.message}",
                    file=sys.stderr,
                )
                continue
            first, _, count = self._sent.get(partition, (sent.offset, 0, 0))
            last = sent.offset + len(records) - 1 if sent.offset >= 0 else -1
            self._sent[partition] = (first, last, count + len(records))

    def report(self) -> Report:
        rows = [[self._topic, partition, *facts] for partition, facts in sorted(self._sent.items())]
        names = ("topic", "partition", "first_offset", "last_offset", "records")
        data = [dict(zip(names, row, strict=True)) for row in rows]
        return Report([], data, ["Topic", "Partition", "First offset", "Last offset", "Records"], rows)


def producer_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """The producer's settings by Kafka's names, as arguments of our producer."""
    from millstream.wire.compression import CODEC_IDS

    acks_text = settings.get("acks", "all")
    acks = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(acks_text)
    if acks is None:
        raise UsageError(f"acks={acks_text}: use all, 1 or 0")
    codec_name = settings.get("compression.type", "none")
    if codec_name not in CODEC_IDS:
        raise UsageError(f"compression {codec_name}: use one of {', '.join(CODEC_IDS)}")
    level = settings.get(f"compression.{codec_name}.level") if codec_name in LEVELS else None
    idempotent = settings.get("enable.idempotence", "true").lower() == "true" and acks == -1
    if settings.get("transactional.id"):
        raise UsageError("transactional.id is not supported by this tool: leave it out")
    return {
        "acks": acks,
        "idempotent": idempotent,
        "codec": CODEC_IDS[codec_name],
        "level": compression_level(codec_name, level) if level else None,
    }


def compression_level(codec: str, text: str) -> int:
    low, high = LEVELS[codec]
    try:
        level = int(text)
    except ValueError:
        level = high + 1
    if not low <= level <= high or (codec == "gzip" and level == 0):
        raise UsageError(f"compression.{codec}.level={text}: use a number from {low} to {high}")
    return level


def _positive(settings: Mapping[str, str], name: str) -> int:
    try:
        number = int(settings[name])
    except ValueError:
        number = -1
    if number < 0:
        raise UsageError(f"{name}={settings[name]} is not a number of 0 or more")
    return number
