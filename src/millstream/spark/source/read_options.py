"""What is to be read, and how: the options of a reader, parsed and checked.

Names, defaults and precedence are those of Spark's Kafka source: a timestamp for everything wins over
timestamps per partition, which win over offsets. A stream starts at `latest` unless an option says otherwise,
a batch read at `earliest`.
"""

import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.client import ClientConfig
from millstream.spark.errors import OptionError
from millstream.spark.options import Options
from millstream.wire.topic_partition import TopicPartition

EARLIEST, LATEST, OFFSETS, TIMESTAMP = "earliest", "latest", "offsets", "timestamp"
FROM_LATEST, FROM_EARLIEST = -1, -2  # as an offset in JSON

WHICH = ("subscribe", "subscribePattern", "assign")
NAMES = (
    *WHICH,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "commitOffsets",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",  # accepted: partitions are looked up at every trigger
)
STREAM_ONLY = ("commitOffsets",)
OF_TRIGGERS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")  # a batch read has none
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
REFUSED = {
    "auto.offset.reset": "use the option 'startingOffsets'",
    "key.deserializer": "keys are read as bytes; convert them with columns",
    "value.deserializer": "values are read as bytes; convert them with columns",
    "enable.auto.commit": "give a 'kafka.group.id', and each finished batch is committed to that group",
    "interceptor.classes": "there are no interceptors here",
}
DEFAULT_DELAY = 15 * 60 * 1000
DEFAULT_TIMEOUT = 120_000
DEFAULT_TRIES, DEFAULT_PAUSE = 3, 1000


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to start or to end. `per_partition` holds offsets or timestamps; `moment` a timestamp for all
    partitions."""

    option: str
    type: str
    per_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    moment: int | None = None
    or_latest: bool = False  # whether "no record is that young" means the end of the log; else it is an error


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """One reader. Picklable: it travels to the tasks."""

    client: ClientConfig
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    start: Bound
    end: Bound
    headers: bool
    read_committed: bool
    check_crcs: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    min_tasks: int | None
    max_records: int | None
    group_id: str | None  # where to commit, if anywhere
    timeout: float  # seconds without a record that must be there
    tries: (
        int  # how often to look them up before partitions or offsets that should be there are taken for lost
    )
    pause: float  # seconds between two tries
    fetch_bytes: int | None
    partition_bytes: int | None


def parse_read_options(given: Mapping[str, str], streaming: bool | None) -> ReadOptions:
    """Check all options. `streaming` None: not known yet, so take the options of both."""
    options = Options(given if streaming is not False else _without_triggers(given), NAMES, "read")
    options.refuse(REFUSED)
    for name in () if streaming is None else BATCH_ONLY if streaming else STREAM_ONLY:
        if name in options:
            only_for = "a batch read" if streaming else "a stream"
            raise OptionError(f"option '{name}' is only for {only_for}")
    topics, pattern, assigned = _which(options)
    start = _bound(options, "starting", EARLIEST if streaming is False else LATEST)
    end = _bound(options, "ending", LATEST)
    if streaming is False and (start.type == LATEST or FROM_LATEST in _json_offsets(start)):
        raise OptionError("option 'startingOffsets' cannot be latest in a batch read: it would read nothing")
    if end.type == EARLIEST or FROM_EARLIEST in _json_offsets(end):
        raise OptionError("option 'endingOffsets' cannot be earliest: it would read nothing")
    _check_order(start, end)
    max_offsets, min_offsets = options.number("maxOffsetsPerTrigger"), options.number("minOffsetsPerTrigger")
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            f"option 'minOffsetsPerTrigger' ({min_offsets}) is larger than 'maxOffsetsPerTrigger' "
            f"({max_offsets})"
        )
    options.number("partition.metadata.cache.ttl.ms", least=-1)
    group_id, client_id = _group(options)
    return ReadOptions(
        client=options.client(client_id),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=start,
        end=end,
        headers=options.boolean("includeHeaders", False),
        read_committed=options.choice(
            "kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted"
        )
        == "read_committed",
        check_crcs=options.boolean("kafka.check.crcs", True),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        max_offsets=max_offsets,
        min_offsets=min_offsets,
        max_delay_ms=options.milliseconds("maxTriggerDelay", DEFAULT_DELAY),
        min_tasks=options.number("minPartitions"),
        max_records=options.number("maxRecordsPerPartition"),
        group_id=group_id,
        timeout=(options.number("kafkaConsumer.pollTimeoutMs", DEFAULT_TIMEOUT) or DEFAULT_TIMEOUT) / 1000,
        tries=options.number("fetchOffset.numRetries") or DEFAULT_TRIES,
        pause=(options.number("fetchOffset.retryIntervalMs", DEFAULT_PAUSE, least=0) or 0) / 1000,
        fetch_bytes=options.number("kafka.fetch.max.bytes"),
        partition_bytes=options.number("kafka.max.partition.fetch.bytes"),
    )


def _without_triggers(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a batch read. Those about triggers do nothing there, and a line says so, as in Spark's
    source: a job may use the same options for both."""
    ignored = {name.lower(): name for name in OF_TRIGGERS}
    for name in given:
        if name.lower() in ignored:
            print(f"millstream: option '{ignored[name.lower()]}' is ignored in a batch read", file=sys.stderr)
    return {name: value for name, value in given.items() if name.lower() not in ignored}


def _which(options: Options) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    named = [name for name in WHICH if name in options]
    if not named:
        raise OptionError(
            "which topics? One of the options 'subscribe', 'subscribePattern' or 'assign' is needed"
        )
    if len(named) > 1:
        raise OptionError(
            f"only one of the options {' and '.join(repr(name) for name in named)} can be given"
        )
    if named == ["subscribe"]:
        topics = tuple(
            dict.fromkeys(name.strip() for name in options.text("subscribe").split(",") if name.strip())
        )
        if not topics:
            raise OptionError("option 'subscribe' names no topic")
        return topics, None, ()
    if named == ["subscribePattern"]:
        pattern = options.text("subscribePattern")
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is not a regular expression: {error}") from None
        if not pattern:
            raise OptionError("option 'subscribePattern' is empty")
        return (), pattern, ()
    shape = 'such as {"topic":[0,1]}'
    listed = options.json("assign")
    if not isinstance(listed, dict) or not all(isinstance(numbers, list) for numbers in listed.values()):
        raise OptionError(f"option 'assign' must be JSON {shape}")
    topic_partitions = tuple(
        TopicPartition(topic, _whole(number, "assign", shape))
        for topic, numbers in listed.items()
        for number in numbers
    )
    if not topic_partitions:
        raise OptionError("option 'assign' names no partition")
    return (), None, tuple(dict.fromkeys(topic_partitions))


def _bound(options: Options, side: str, default: str) -> Bound:
    or_latest = side == "ending" or (
        options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
    )
    name = f"{side}Timestamp"
    if name in options:
        return Bound(name, TIMESTAMP, moment=options.number(name, least=0), or_latest=or_latest)
    name = f"{side}OffsetsByTimestamp"
    if name in options:
        return Bound(name, TIMESTAMP, _per_partition(options, name, 0), or_latest=or_latest)
    name = f"{side}Offsets"
    value = options.text(name, default).lower()
    if value in (EARLIEST, LATEST):
        return Bound(name, value)
    if not value.startswith("{"):
        raise OptionError(f"option '{name}' must be earliest, latest or JSON, not '{options.text(name)}'")
    return Bound(name, OFFSETS, _per_partition(options, name, FROM_EARLIEST))


def _check_order(start: Bound, end: Bound) -> None:
    """An end before the start is a mistake, whatever is in the topics. (A negative offset is not one yet.)"""
    if start.type != end.type:
        return
    for topic_partition in sorted(start.per_partition.keys() | end.per_partition.keys()) or [
        TopicPartition("", 0)
    ]:
        first = start.per_partition.get(topic_partition, start.moment)
        last = end.per_partition.get(topic_partition, end.moment)
        if first is not None and last is not None and first > last >= 0:
            where = f" of partition {topic_partition}" if topic_partition.topic else ""
            raise OptionError(f"option '{end.option}' ({last}{where}) is before '{start.option}' ({first})")


def _per_partition(options: Options, name: str, least: int) -> dict[TopicPartition, int]:
    shape = 'such as {"topic":{"0":23,"1":-2}}'
    listed = options.json(name)
    if not isinstance(listed, dict) or not all(isinstance(numbers, dict) for numbers in listed.values()):
        raise OptionError(f"option '{name}' must be JSON {shape}")
    found: dict[TopicPartition, int] = {}
    for topic, numbers in listed.items():
        for partition, value in numbers.items():
            value = _whole(value, name, shape)
            if value < least:
                raise OptionError(f"option '{name}': {value} for {topic}-{partition} is not possible")
            found[TopicPartition(topic, _whole(partition, name, shape))] = value
    return found


def _whole(value: Any, name: str, shape: str) -> int:
    try:
        if isinstance(value, bool | float):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise OptionError(f"option '{name}' must be JSON {shape}, '{value}' is not a whole number") from None


def _json_offsets(bound: Bound) -> frozenset[int]:
    return frozenset(bound.per_partition.values()) if bound.type == OFFSETS else frozenset()


def _group(options: Options) -> tuple[str | None, str]:
    """The group to commit to, and the name that this client goes by."""
    given = options.text("kafka.group.id")
    client_id = options.text("kafka.client.id")
    if given:
        return (given if options.boolean("commitOffsets", True) else None), client_id or given
    if options.boolean("commitOffsets", False):
        raise OptionError("option 'commitOffsets' needs the option 'kafka.group.id': commit to which group?")
    prefix = options.text("groupIdPrefix", "spark-kafka-source")
    return None, client_id or f"{prefix}-{uuid.uuid4()}"
