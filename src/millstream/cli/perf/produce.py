"""`millstream perf produce`: what kafka-producer-perf-test.sh does."""

import os
import random
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options, signals
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.partition_consumer import whole_number
from millstream.cli.perf.statistics import ProducerStatistics
from millstream.cli.progress import progress

if TYPE_CHECKING:
    from millstream.cli.perf.payloads import Payloads
    from millstream.cli.perf.sender import Sender

REQUEST_BYTES = 1_048_576
SHORTEST_WAIT = 0.0002


def command(
    topic: Annotated[str, typer.Option(metavar="NAME", help="Send to this topic. Required.")] = "",
    num_records: Annotated[
        int, typer.Option(metavar="N", help="How many records. Required.", show_default=False)
    ] = 0,
    record_size: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Values of this size, random letters.")
    ] = None,
    payload_file: Annotated[
        str, typer.Option(metavar="FILE", help="Values from the lines of a file, in random order.")
    ] = "",
    payload_delimiter: Annotated[
        str, typer.Option(metavar="TEXT", help="What separates the values in the file.")
    ] = "\\n",
    payload_monotonic: Annotated[
        bool, typer.Option("--payload-monotonic", help="Values are numbers that count up.")
    ] = False,
    throughput: Annotated[
        float,
        typer.Option(metavar="N", help="At most this many records a second; -1: no limit."),
    ] = -1,
    command_property: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE ...",
            help="Settings of the producer: acks, batch.size, linger.ms, compression.type, "
            "enable.idempotence, "
            "max.in.flight.requests.per.connection, max.request.size, ...; one or more.",
        ),
    ] = None,
    producer_props: Annotated[list[str] | None, typer.Option("--producer-props", hidden=True)] = None,
    producer_config: Annotated[str, typer.Option("--producer.config", hidden=True)] = "",
    transactional_id: Annotated[str, typer.Option(hidden=True)] = "",
    transaction_duration_ms: Annotated[str, typer.Option(hidden=True)] = "",
    warmup_records: Annotated[
        int, typer.Option(metavar="N", help="Warm-up: leave the first N records out of a second summary.")
    ] = 0,
    reporting_interval: Annotated[
        int, typer.Option(metavar="MS", help="A line of progress so often.")
    ] = 5000,
    print_metrics: Annotated[
        bool, typer.Option("--print-metrics", help="Print requests, batches and bytes at the end.")
    ] = False,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Send records as fast as it goes, or at a rate, and print rates and latencies.

    A latency is the time from a record's making to its acknowledgement. Transactions are not measured by this
    release.
    """
    style = check_style(output)
    if not topic:
        raise UsageError('Missing required argument "[topic]"')
    if num_records < 1:
        raise UsageError("--num-records must be a number of 1 or more")
    if (record_size is not None) + bool(payload_file) + payload_monotonic != 1:
        raise UsageError("exactly one of --record-size, --payload-file and --payload-monotonic is needed")
    if record_size is not None and record_size < 1:
        raise UsageError("--record-size should be greater than zero")
    if throughput == 0:
        raise UsageError(
            "--throughput 0 would send nothing: use a number of records a second, or -1 for no limit"
        )
    if reporting_interval <= 0:
        raise UsageError("--reporting-interval should be greater than zero")
    warmup_records = max(0, warmup_records)
    if warmup_records >= num_records:
        raise UsageError("--warmup-records must be fewer than --num-records")
    shared_options.warn_of_old_names(
        ("--producer-props", producer_props, "--command-property", command_property),
        ("--producer.config", producer_config, "--command-config", command_config),
    )
    given = producer_props or command_property or []
    for item in given:
        if not item.partition("=")[2]:
            raise UsageError(f"Invalid property: {item}; write it as name=value")
    settings = {
        **cluster_access.read_client_properties(command_config or producer_config),
        **cluster_access.client_properties(given),
    }
    for name, value in (
        ("transactional.id", settings.get("transactional.id")),
        ("--transactional-id", transactional_id),
        ("--transaction-duration-ms", transaction_duration_ms),
    ):
        if value:
            raise UsageError(f"{name}: transactions are not measured by this release")
    options = producer_options(settings)
    values = payloads(record_size, payload_file, payload_delimiter, say=style == "lines")
    total = ProducerStatistics(interval=reporting_interval / 1000)
    steady = ProducerStatistics(" steady state") if warmup_records else None
    if steady is not None and style == "lines":
        print(
            f"Warmup first {warmup_records} records. Steady state results will print after the complete "
            f"test summary."
        )
    with (
        cluster_access.connect(bootstrap_server, settings, "perf-producer-client") as cluster,
        progress("producing", num_records, "records") as bar,
    ):
        from millstream.cli.perf.payloads import BatchMaker
        from millstream.cli.perf.sender import Sender

        def answered(seconds: float, records: int, size: int) -> None:
            total.answered(seconds, records, size)
            if steady is not None:
                if total.latencies.count > warmup_records:
                    steady.answered(seconds, records, size)
                else:
                    steady.began = time.perf_counter()
            bar.advance(records)

        maker = BatchMaker(options["codec"], options["level"])
        sender = Sender(
            cluster,
            topic,
            maker,
            acks=options["acks"],
            idempotent=options["idempotent"],
            in_flight=options["in_flight"],
            timeout_ms=30_000,
            answered=answered,
        )
        batch_records = maker.records_that_fit(values, options["batch_size"])
        load = Load(
            sender, values, num_records, throughput, batch_records, options["linger"], total, style == "lines"
        )
        stopped = load.run()
    total.end()
    if steady is not None:
        steady.end()
    report(total, steady, sender, print_metrics, style)
    return stopped


def payloads(size: int | None, file: str, delimiter: str, say: bool = False) -> "Payloads":
    from millstream.cli.perf.payloads import Payloads, Pool

    if size is not None:
        return Payloads.of_size(size)
    if not file:
        return Payloads.numbers()
    try:
        with open(file, "rb") as opened:
            content = opened.read()
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
    separator = delimiter.encode().replace(b"\\n", b"\n").replace(b"\\t", b"\t") or b"\n"
    lines = content.split(separator)
    if not lines[-1]:
        lines.pop()  # the end of the last value
    if not any(lines):
        raise CommandFailed(f"File does not exist or empty file provided: {file}")
    if say:
        print(f"Reading payloads from: {os.path.abspath(file)}\nNumber of records read: {len(lines)}")
    random.shuffle(lines)
    return Pool(lines)


def producer_options(settings: Mapping[str, str]) -> dict[str, Any]:
    """The settings that have a meaning here, with Kafka's defaults."""
    from millstream.cli.console_producer import LEVELS, compression_level
    from millstream.wire.compression import CODEC_IDS

    acks = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(settings.get("acks", "all"))
    if acks is None:
        raise UsageError(f"acks={settings['acks']}: use all, 1 or 0")
    codec = settings.get("compression.type", "none")
    if codec not in CODEC_IDS:
        raise UsageError(f"compression.type={codec}: use one of {', '.join(CODEC_IDS)}")

    def number(name: str, default: int) -> int:
        return whole_number(name, settings.get(name, str(default)))

    level = settings.get(f"compression.{codec}.level") if codec in LEVELS else None
    return {
        "acks": acks,
        "idempotent": settings.get("enable.idempotence", "true").lower() == "true" and acks == -1,
        "codec": CODEC_IDS[codec],
        "level": compression_level(codec, level) if level else None,
        "batch_size": min(number("batch.size", 16_384), number("max.request.size", REQUEST_BYTES)),
        "linger": number("linger.ms", 5) / 1000,
        "in_flight": max(1, number("max.in.flight.requests.per.connection", 5)),
    }


class Load:
    """The records that are to go out, and when."""

    def __init__(
        self,
        sender: "Sender",
        values: "Payloads",
        count: int,
        throughput: float,
        batch_records: int,
        linger: float,
        statistics: ProducerStatistics,
        lines: bool,
    ) -> None:
        self._sender = sender
        self._values = values
        self._left = count
        self._count = count
        self._rate = throughput
        self._batch_records = batch_records
        self._linger = linger
        self._statistics = statistics
        self._lines = lines
        self._next_partition = 0

    def run(self) -> int:
        """Until all is acknowledged, or a signal comes: then what has gone out is still counted."""
        self._statistics.began = time.perf_counter()
        code = 0
        try:
            with signals.InterruptGuard() as interrupts:
                run = self._at_a_rate if self._rate > 0 else self._full_speed
                run(interrupts)
        except signals.Interrupted as stopped:
            code = stopped.code
        self._sender.finish()
        return code

    def _full_speed(self, interrupts: signals.InterruptGuard) -> None:
        """A batch for each partition of a broker in a request, as Kafka's producer does it when it has
        plenty."""
        while self._left:
            with interrupts.interruptible():
                pass
            broker = self._sender.ready_broker()
            if broker is None:
                self._sender.collect(1.0)
                self._say()
                continue
            now = time.perf_counter()
            records = {}
            for partition in broker.partitions:
                count = min(self._batch_records, self._left)
                if not count:
                    break
                self._left -= count
                records[partition] = (self._values.take(count), (now, now))
            self._sender.send(broker, records)
            self._sender.collect(0)
            self._say()

    def _at_a_rate(self, interrupts: signals.InterruptGuard) -> None:
        """Records come to be at their time; a batch goes when it is full or its first record has waited for
        linger.ms."""
        began = time.perf_counter()
        made = sent = 0
        while sent < self._count:
            with interrupts.interruptible():
                pass
            now = time.perf_counter()
            made = min(self._count, int((now - began) * self._rate) + 1)
            pending = made - sent
            oldest = began + sent / self._rate
            if pending and (
                pending >= self._batch_records or now - oldest >= self._linger or made == self._count
            ):
                broker = self._sender.ready_broker()
                if broker is not None:
                    count = min(pending, self._batch_records)
                    newest = began + (sent + count - 1) / self._rate
                    partition = broker.partitions[self._next_partition % len(broker.partitions)]
                    self._next_partition += 1
                    self._sender.send(broker, {partition: (self._values.take(count), (oldest, newest))})
                    sent += count
                    self._sender.collect(0)
                    self._say()
                    continue
                self._sender.collect(1.0)
                continue
            until = oldest + self._linger if pending else began + made / self._rate
            self._sender.collect(min(max(until - now, SHORTEST_WAIT), 0.1))
            self._say()

    def _say(self) -> None:
        line = self._statistics.window_line(time.perf_counter())
        if line is not None and self._lines:
            print(line, flush=True)


def report(
    total: ProducerStatistics,
    steady: ProducerStatistics | None,
    sender: "Sender",
    print_metrics: bool,
    style: str,
) -> None:
    lines = [total.line()] + ([steady.line()] if steady is not None else [])
    data = total.facts()
    if steady is not None:
        data["steady_state"] = steady.facts()
    metrics = {
        "request-total": sender.requests,
        "batch-total": sender.batches,
        "batch-size-avg": round(sender.bytes_out / max(1, sender.batches), 3),
        "records-per-request-avg": round(total.latencies.count / max(1, sender.requests), 3),
        "outgoing-byte-total": sender.bytes_out,
        "compression-rate-avg": round(sender.bytes_out / max(1, total.bytes), 3),
        "request-latency-avg": round(1000 * sender.request_time / max(1, sender.requests), 3),
    }
    if print_metrics:
        lines += ["", f"{'Metric Name':<60}Value"]
        lines += [f"{'producer-metrics:' + name:<60}: {value:.3f}" for name, value in metrics.items()]
        data["metrics"] = metrics
    latency = data["latency_ms"]
    row = [data["records"], data["records_per_second"], data["megabytes_per_second"], *latency.values()]
    columns = ["Records", "Records/s", "MB/s", "Average ms", "Max", "50 %", "95 %", "99 %", "99.9 %"]
    emit(Report(lines, data, columns, [row]), style)
    sys.stdout.flush()
