"""`millstream perf consume`: what kafka-consumer-perf-test.sh does.

Every record is opened, as a consumer would, as far as its key and its value. Without --group partitions are
read directly and no group is made for it; with --group the time that joining takes is counted as Kafka's tool
counts it.
"""

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options, signals
from millstream.cli.errors import UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.perf.statistics import MEGABYTE
from millstream.cli.progress import progress
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.cli.partition_consumer import PartitionConsumer

TITLES = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
DETAILED_TITLES = TITLES.replace("start.time, end.time", "time, threadId")
POLL_MS = 100
METADATA_MAX_AGE = 30.0
DATE_PARTS = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "",  # milliseconds
}


def command(
    topic: Annotated[str, typer.Option(metavar="NAME", help="The topic to read.")] = "",
    include: Annotated[str, typer.Option(metavar="REGEX", help="Or all topics of such names.")] = "",
    num_records: Annotated[
        int, typer.Option(metavar="N", help="How many records. Required.", show_default=False)
    ] = 0,
    messages: Annotated[int, typer.Option("--messages", hidden=True)] = 0,
    group: Annotated[
        str,
        typer.Option(metavar="NAME", help="Read as a member of this group; without it, outside of groups."),
    ] = "",
    fetch_size: Annotated[
        int,
        typer.Option(
            metavar="BYTES",
            help="Most bytes of a partition in an answer.",
            callback=shared_options.in_range(1, shared_options.LARGEST_INT32),
        ),
    ] = 1_048_576,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="Start with new records instead of the oldest.")
    ] = False,
    timeout: Annotated[
        int, typer.Option(metavar="MS", help="Give up when no record has arrived for this long.")
    ] = 10_000,
    reporting_interval: Annotated[int, typer.Option(metavar="MS", help="With --show-detailed-stats.")] = 5000,
    show_detailed_stats: Annotated[
        bool, typer.Option("--show-detailed-stats", help="A line for each reporting interval.")
    ] = False,
    hide_header: Annotated[bool, typer.Option("--hide-header", help="No line of titles.")] = False,
    date_format: Annotated[
        str, typer.Option(metavar="FORMAT", help="How times are printed: yyyy MM dd HH mm ss SSS.")
    ] = "yyyy-MM-dd HH:mm:ss:SSS",
    print_metrics: Annotated[
        bool, typer.Option("--print-metrics", help="Print fetches and bytes at the end.")
    ] = False,
    command_property: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE ...", help="Settings of the consumer, as fetch.min.bytes=100000."),
    ] = None,
    consumer_config: Annotated[str, typer.Option("--consumer.config", hidden=True)] = "",
    socket_buffer_size: Annotated[int, typer.Option(hidden=True)] = 0,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Read records as fast as it goes and print rates."""
    style = check_style(output)
    if num_records and messages:
        raise UsageError("Exactly one of the following arguments is required: [messages], [num-records]")
    count = num_records or messages
    if bool(topic) == bool(include):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if count < 1:
        raise UsageError("--num-records must be a number of 1 or more")
    if reporting_interval <= 0:
        raise UsageError("--reporting-interval must be positive")
    shared_options.warn_of_old_names(
        ("--messages", messages, "--num-records", num_records),
        ("--consumer.config", consumer_config, "--command-config", command_config),
    )
    from millstream.cli.console_consumer import fetch_sizes, new_consumer

    settings = {
        **cluster_access.read_client_properties(command_config or consumer_config),
        **cluster_access.client_properties(command_property or []),
    }
    sizes = {"partition_max_bytes": fetch_size, **fetch_sizes(settings)}
    shown = style == "lines"
    if shown and not hide_header:
        print(DETAILED_TITLES if show_detailed_stats else TITLES)
    with (
        cluster_access.connect(bootstrap_server, settings, "perf-consumer-client") as cluster,
        progress("consuming", count, "records") as bar,
    ):
        from millstream.client import Fetcher

        fetcher = Fetcher(
            cluster, read_committed=settings.get("isolation.level") == "read_committed", **sizes
        )
        consumer = new_consumer(
            cluster, fetcher, METADATA_MAX_AGE, group or settings.get("group.id", ""), settings
        )
        run = Run(consumer, count, timeout / 1000, date_format)
        interval = reporting_interval / 1000 if show_detailed_stats and shown else 0.0
        code = run.read(topic, include, "latest" if from_latest else "earliest", interval, bar)
    run.report(style, show_detailed_stats, print_metrics)
    return code


class Run:
    """One measurement."""

    def __init__(self, consumer: "PartitionConsumer", count: int, timeout: float, date_format: str) -> None:
        self._consumer = consumer
        self._wanted = count
        self._timeout = timeout
        self._date_format = date_format
        self.records = self.bytes = self.fetches = self.fetched_bytes = 0
        self.started = self.ended = time.time()
        self.joining = 0.0
        self.in_time = True
        self._window = (self.started, 0, 0)
        self._joined_before = 0.0

    def read(self, topic: str, include: str, start: str, interval: float, bar: Any) -> int:
        consumer = self._consumer
        code = 0
        self.started = time.time()
        self._window = (self.started, 0, 0)
        try:
            with signals.InterruptGuard() as interrupts:
                consumer.subscribe(topic, include, None)
                consumer.seek(start)
                consumer.refresh_assignment()  # a member of a group joins here
                if not consumer.positions or consumer.joins_group:
                    self.joining = time.time() - self.started
                last = time.monotonic()
                while self.records < self._wanted:
                    with interrupts.interruptible():
                        answers = consumer.poll(POLL_MS)
                    before = self.records
                    for fetched in answers:
                        self._count(fetched)
                    self.fetches += 1
                    bar.advance(self.records - before)
                    now = time.monotonic()
                    if self.records > before:
                        last = now
                    elif now - last > self._timeout:
                        self.in_time = False
                        break
                    if interval and time.time() - self._window[0] >= interval:
                        print(self.window_line(), flush=True)
        except signals.Interrupted as stopped:
            code = stopped.code
        self.ended = time.time()
        consumer.close()
        return code

    def _count(self, fetched: Any) -> None:
        """The records of an answer from the position on: their number, and the bytes of their keys and
        values."""
        from millstream.client.fetch import next_offset, visible_batches
        from millstream.wire.records import iter_records

        consumer = self._consumer
        topic_partition = TopicPartition(fetched.topic, fetched.partition)
        start = consumer.positions[topic_partition]
        self.fetched_bytes += len(fetched.records)
        for header, batch in visible_batches(fetched, start, consumer.fetcher.read_committed):
            size = 0
            count = 0
            for record in iter_records(batch):
                if record.offset >= start:
                    count += 1
                    size += len(record.value or b"") + len(record.key or b"")
            self.records += count
            self.bytes += size
            consumer.positions[topic_partition] = header.next_offset
        consumer.positions[topic_partition] = max(
            consumer.positions[topic_partition], next_offset(fetched, start)
        )

    # --- lines ----------------------------------------------------------------------------------------------

    def window_line(self) -> str:
        """One interval: all so far, and the rates of the interval."""
        now = time.time()
        began, records, size = self._window
        passed = max(now - began, 1e-9)
        joining, self._joined_before = self.joining - self._joined_before, self.joining
        fetching = max(passed - joining, 1e-9)
        new, new_bytes = self.records - records, (self.bytes - size) / MEGABYTE
        self._window = (now, self.records, self.bytes)
        return (
            f"{self._time(now)}, 0, {self.bytes / MEGABYTE:.4f}, {new_bytes / passed:.4f}, {self.records}, "
            f"{new / passed:.4f}, {joining * 1000:.0f}, {fetching * 1000:.0f}, {new_bytes / fetching:.4f}, "
            f"{new / fetching:.4f}"
        )

    def facts(self) -> dict[str, Any]:
        seconds = max(self.ended - self.started, 1e-9)
        fetching = max(seconds - self.joining, 1e-9)
        megabytes = self.bytes / MEGABYTE
        return {
            "start_time": round(self.started * 1000),
            "end_time": round(self.ended * 1000),
            "megabytes": round(megabytes, 4),
            "megabytes_per_second": round(megabytes / seconds, 4),
            "records": self.records,
            "records_per_second": round(self.records / seconds, 4),
            "rebalance_time_ms": round(self.joining * 1000),
            "fetch_time_ms": round(fetching * 1000),
            "fetch_megabytes_per_second": round(megabytes / fetching, 4),
            "fetch_records_per_second": round(self.records / fetching, 4),
        }

    def report(self, style: str, detailed: bool, print_metrics: bool) -> None:
        facts = self.facts()
        lines = []
        if not self.in_time:
            lines.append(
                f"WARNING: Exiting before consuming the expected number of records: timeout "
                f"({self._timeout * 1000:.0f} "
                "ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        if not detailed:
            lines.append(
                f"{self._time(self.started)}, {self._time(self.ended)}, {facts['megabytes']:.4f}, "
                f"{facts['megabytes_per_second']:.4f}, {facts['records']}, "
                f"{facts['records_per_second']:.4f}, "
                f"{facts['rebalance_time_ms']}, {facts['fetch_time_ms']}, "
                f"{facts['fetch_megabytes_per_second']:.4f}, "
                f"{facts['fetch_records_per_second']:.4f}"
            )
        if print_metrics:
            metrics = {
                "fetch-total": self.fetches,
                "incoming-byte-total": self.fetched_bytes,
                "fetch-size-avg": round(self.fetched_bytes / max(1, self.fetches), 3),
            }
            facts["metrics"] = metrics
            lines += ["", f"{'Metric Name':<60}Value"]
            lines += [
                f"{'consumer-fetch-manager-metrics:' + name:<60}: {value:.3f}"
                for name, value in metrics.items()
            ]
        columns = ["Records", "MB", "Records/s", "MB/s", "Joining ms", "Fetching ms"]
        names = ("records", "megabytes", "records_per_second", "megabytes_per_second")
        row = [facts[name] for name in (*names, "rebalance_time_ms", "fetch_time_ms")]
        emit(Report(lines, facts, columns, [row]), style)

    def _time(self, moment: float) -> str:
        when = datetime.fromtimestamp(moment)

        def part(found: re.Match[str]) -> str:
            form = DATE_PARTS[found[0]]
            return when.strftime(form) if form else f"{int(moment * 1000) % 1000:03d}"

        return re.sub("|".join(DATE_PARTS), part, self._date_format)
