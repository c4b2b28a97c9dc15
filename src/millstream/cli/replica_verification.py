"""`millstream replica-verification`: what kafka-replica-verification.sh does.

Every broker is asked for the batches of the replicas it holds, from the same offsets; what all replicas of a
partition show up to their high watermarks is compared, batch by batch, by offset and checksum. Replicas of
a compacted topic may differ while their brokers have not cleaned equally far.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.progress import progress
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client import Cluster
    from millstream.client.fetch import Fetched, Fetcher


class Batch(NamedTuple):
    last_offset: int
    checksum: int


class Mismatch(NamedTuple):
    """Two replicas that differ. After different offsets nothing can be compared any more."""

    partition: TopicPartition
    first: int
    second: int
    expected: Batch
    found: Batch

    @property
    def offsets_differ(self) -> bool:
        return self.expected.last_offset != self.found.last_offset

    def __str__(self) -> str:
        if self.offsets_differ:
            return (
                f"partition {self.partition}: replica {self.first}'s offset {self.expected.last_offset} "
                f"doesn't match replica {self.second}'s offset {self.found.last_offset}"
            )
        return (
            f"partition {self.partition} has unmatched checksum at offset {self.found.last_offset}; replica "
            f"{self.first}'s checksum {self.expected.checksum}; replica {self.second}'s checksum "
            f"{self.found.checksum}"
        )


@dataclass(slots=True)
class Checked:
    """How far a partition has been compared."""

    replicas: tuple[int, ...]
    offset: int
    high_watermark: int = -1
    mismatches: list[Mismatch] = field(default_factory=list)
    stuck: bool = False

    @property
    def lag(self) -> int:
        return max(0, self.high_watermark - self.offset)


def compare(
    partition: TopicPartition, offset: int, replicas: Mapping[int, Sequence[Batch]]
) -> tuple[int, list[Mismatch]]:
    """The offset up to which all replicas were compared, and where they differ."""
    mismatches: list[Mismatch] = []
    for batches in zip(*replicas.values(), strict=False):
        ids = list(replicas)
        for broker, batch in zip(ids[1:], batches[1:], strict=True):
            if batch != batches[0]:
                mismatches.append(Mismatch(partition, ids[0], broker, batches[0], batch))
        if mismatches and mismatches[-1].offsets_differ:
            return offset, mismatches
        offset = batches[0].last_offset + 1
    return offset, mismatches


def command(
    topics_include: Annotated[
        str, typer.Option(help="Topics to verify, by regular expression.", metavar="REGEX")
    ] = ".*",
    time_from: Annotated[
        str,
        typer.Option(
            "--time",
            help="Where to begin: -1 (the end), -2 (the beginning), or milliseconds since 1970.",
            metavar="TIME",
        ),
    ] = "-1",
    fetch_size: Annotated[
        int,
        typer.Option(
            help="Bytes of each partition in one request.",
            metavar="N",
            callback=shared_options.in_range(1, shared_options.LARGEST_INT32),
        ),
    ] = 1024 * 1024,
    max_wait_ms: Annotated[
        int,
        typer.Option(
            help="How long a broker may wait for records.",
            metavar="MS",
            callback=shared_options.in_range(0, shared_options.LARGEST_INT32),
        ),
    ] = 1000,
    report_interval_ms: Annotated[
        int,
        typer.Option(
            help="How often to report.",
            metavar="MS",
            callback=shared_options.in_range(0, shared_options.LARGEST_INT64),
        ),
    ] = 30_000,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="End when everything that is there now has been compared; 1 if something differs."
        ),
    ] = False,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Compare the replicas of partitions, until interrupted, or once with --once."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if style != "lines" and not once:
        raise UsageError(f"-o {style} needs --once: without it there is no end to report")
    matcher = cluster_access.topic_matcher(topics_include)
    try:
        moment = int(time_from)
    except ValueError:
        raise UsageError(f"--time expects -1, -2 or milliseconds, not {time_from}") from None
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-replica-verification") as cluster:
        from millstream.client import list_offsets
        from millstream.client.fetch import Fetcher
        from millstream.wire.client_produce_fetch import DEBUGGING_REPLICA

        cluster.refresh()
        partitions = {
            TopicPartition(name, index): partition.replicas
            for name, topic in cluster.topics.items()
            if matcher.fullmatch(name)
            for index, partition in topic.partitions.items()
        }
        if not partitions:
            raise CommandFailed(
                "No topics found. --topics-include, if specified, is either filtering out all topics or "
                "there is no topic."
            )
        if away := sorted(
            {broker for brokers in partitions.values() for broker in brokers} - set(cluster.nodes)
        ):
            raise CommandFailed(
                f"Replicas of brokers that are down cannot be compared: {', '.join(map(str, away))}"
            )
        starts = list_offsets(cluster, dict.fromkeys(partitions, moment))
        ends = list_offsets(cluster, dict.fromkeys(partitions, -1))
        checked = {
            key: Checked(replicas, ends[key].offset if starts[key].offset < 0 else starts[key].offset)
            for key, replicas in partitions.items()
        }
        for key, state in checked.items():
            state.high_watermark = ends[key].offset
        fetcher = Fetcher(
            cluster,
            min_bytes=0 if once else 1,
            partition_max_bytes=fetch_size,
            replica_id=DEBUGGING_REPLICA,
        )
        if style == "lines":
            print(f"{_now()}: verification process is started", flush=True)
        if not once:
            return _for_ever(cluster, fetcher, checked, max_wait_ms, report_interval_ms / 1000)
        _once(cluster, fetcher, checked, max_wait_ms)
    return _report(checked, style)


def _for_ever(
    cluster: "Cluster",
    fetcher: "Fetcher",
    checked: dict[TopicPartition, Checked],
    max_wait_ms: int,
    interval: float,
) -> int:
    reported = time.monotonic()
    while True:
        for mismatch in _round(cluster, fetcher, checked, max_wait_ms):
            print(f"{_now()}: {mismatch}", flush=True)
            if mismatch.offsets_differ:
                return 1
        if time.monotonic() - reported > interval:
            print(f"{_now()}: {lag_line(checked)}", flush=True)
            reported = time.monotonic()


def lag_line(checked: Mapping[TopicPartition, Checked]) -> str:
    key = max(checked, key=lambda each: checked[each].lag)
    state = checked[key]
    return (
        f"max lag is {state.lag} for partition {key} at offset {state.offset} among {len(checked)} partitions"
    )


def _once(
    cluster: "Cluster", fetcher: "Fetcher", checked: dict[TopicPartition, Checked], max_wait_ms: int
) -> None:
    ends = {key: state.high_watermark for key, state in checked.items()}
    total = sum(state.lag for state in checked.values())
    quiet_since = time.monotonic()
    with progress("comparing", total, "offsets") as bar:
        while True:
            left = {
                key: state for key, state in checked.items() if state.offset < ends[key] and not state.stuck
            }
            if not left:
                return
            before = {key: state.offset for key, state in left.items()}
            _round(cluster, fetcher, left, min(max_wait_ms, 100))
            moved = sum(state.offset - before[key] for key, state in left.items())
            bar.advance(moved)
            now = time.monotonic()
            if moved:
                quiet_since = now
            elif now - quiet_since > max(5.0, max_wait_ms / 1000):
                # A follower that does not come up to the others is what this tool is to find.
                for state in left.values():
                    state.stuck = True


def _round(
    cluster: "Cluster", fetcher: "Fetcher", checked: dict[TopicPartition, Checked], max_wait_ms: int
) -> list[Mismatch]:
    """Asks every broker once and compares what came."""
    from millstream.wire.errors import ErrorCode, KafkaError

    in_flight = []
    for broker in sorted({broker for state in checked.values() for broker in state.replicas}):
        positions = {key: state.offset for key, state in checked.items() if broker in state.replicas}
        in_flight.append((broker, *fetcher.send_to(broker, positions, max_wait_ms)))
    answers: dict[TopicPartition, dict[int, Fetched]] = {key: {} for key in checked}
    from millstream.wire.client_produce_fetch import read_fetch

    for broker, connection, version in in_flight:
        body = connection.receive(cluster.config.request_timeout + max_wait_ms / 1000)
        for answer in read_fetch(version, body, cluster.topic_names):
            key = TopicPartition(answer.topic, answer.partition)
            if answer.error is not ErrorCode.none:
                name = answer.error.name.upper()
                raise KafkaError(
                    answer.error, f"broker {broker} answers {name} for {key} at offset {checked[key].offset}"
                )
            answers[key][broker] = answer
    found: list[Mismatch] = []
    for key, by_broker in answers.items():
        state = checked[key]
        if len(by_broker) < len(state.replicas):
            continue
        state.high_watermark = max(answer.high_watermark for answer in by_broker.values())
        batches = {broker: visible(by_broker[broker], state.offset) for broker in state.replicas}
        state.offset, mismatches = compare(key, state.offset, batches)
        state.mismatches += mismatches
        state.stuck = any(mismatch.offsets_differ for mismatch in mismatches)
        found += mismatches
    return found


def visible(answer: "Fetched", offset: int) -> list[Batch]:
    """The batches from an offset on, below the high watermark."""
    from millstream.wire.records import iter_batches

    return [
        Batch(header.last_offset, header.crc)
        for header, _ in iter_batches(answer.records)
        if offset <= header.last_offset < answer.high_watermark
    ]


def _report(checked: Mapping[TopicPartition, Checked], style: str) -> int:
    lines = [f"{_now()}: {mismatch}" for state in checked.values() for mismatch in state.mismatches]
    lines.append(f"{_now()}: {lag_line(checked)}")
    rows: list[list[Any]] = []
    data: list[dict[str, Any]] = []
    for key, state in sorted(checked.items()):
        result = "differ" if state.mismatches else "behind" if state.stuck else "equal"
        rows.append([*key, ",".join(map(str, state.replicas)), state.offset, state.lag, result])
        data.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "replicas": list(state.replicas),
                "verified_to": state.offset,
                "lag": state.lag,
                "result": result,
                "mismatches": [str(mismatch) for mismatch in state.mismatches],
            }
        )
    emit(Report(lines, data, ["Topic", "Partition", "Replicas", "Verified to", "Lag", "Result"], rows), style)
    return 0 if all(row[-1] == "equal" for row in rows) else 1


def _now() -> str:
    moment = time.time()
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(moment))},{int(moment % 1 * 1000):03}"
