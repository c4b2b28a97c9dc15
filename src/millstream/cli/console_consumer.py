"""`millstream console-consumer`: what kafka-console-consumer.sh does.

Without --group it reads all partitions itself and commits nothing, where Kafka's tool makes a group that
nobody needs. With --group it is a member of that group (console_group.py): it shares the partitions, goes on
where the group is, and commits.
"""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, profile_store, schema_formats, shared_options, signals
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.message_formatter import (
    ConsumerRecord,
    DefaultMessageFormatter,
    deserializer,
    record_facts,
)
from millstream.cli.output import check_style, print_json, print_table, print_yaml
from millstream.cli.partition_consumer import BY_DURATION, PartitionConsumer, whole_number

if TYPE_CHECKING:
    from millstream.client import Cluster
    from millstream.filters import Filter

REMOVED = {
    "--whitelist": "use --include REGEX",
    "--blacklist": "name the topics that you want by --include REGEX",
    "--new-consumer": "there is only one consumer: leave it out",
    "--delete-consumer-offsets": "use millstream consumer-groups --delete-offsets",
    "--csv-reporter-enabled": "leave it out",
    "--metrics-dir": "leave it out",
    "--enable-systest-events": "this was for Kafka's own system tests: leave it out",
}

FORMATTERS = ("DefaultMessageFormatter", "LoggingMessageFormatter", "NoOpMessageFormatter")
LONGEST_WAIT_MS = 500
# Between looks for new partitions and topics, unless metadata.max.age.ms says otherwise.
METADATA_MAX_AGE_MS = "30000"


def command(
    topic: Annotated[
        str, typer.Option(help="The topic to read. This or --include is required.", metavar="NAME")
    ] = "",
    include: Annotated[
        str, typer.Option(help="Regular expression for the topics to read.", metavar="REGEX")
    ] = "",
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the oldest record instead of new ones.")
    ] = False,
    partition: Annotated[int | None, typer.Option(help="Read this partition only.", metavar="N")] = None,
    offset: Annotated[
        str,
        typer.Option(help="Where to start in --partition: a number, earliest or latest.", metavar="OFFSET"),
    ] = "",
    from_time: Annotated[
        str,
        typer.Option(
            help="Start with the first record at or after a time: 2026-01-31T12:30Z, -1h (s, m, h, d, w "
            "before now), "
            "or milliseconds since 1970.",
            metavar="TIME",
        ),
    ] = "",
    where: Annotated[
        str,
        typer.Option(
            help='Print only records that match: \'value.status == "CRITICAL" and headers.source != '
            '"test"\'. There '
            "are value, key (text; value.name goes inside), headers.name, timestamp, partition, offset, "
            "topic; == != < "
            "<= > >= in contains startswith endswith matches, and, or, not.",
            metavar="EXPRESSION",
        ),
    ] = "",
    max_messages: Annotated[
        int | None, typer.Option(help="Stop after this many records.", metavar="N")
    ] = None,
    timeout_ms: Annotated[
        int | None, typer.Option(help="Stop when no record has arrived for this long.", metavar="MS")
    ] = None,
    isolation_level: Annotated[
        str,
        typer.Option(
            help="read_committed leaves out records of transactions that are open or aborted. "
            "[default: read_uncommitted]",
            metavar="LEVEL",
        ),
    ] = "",
    formatter_property: Annotated[
        list[str] | None,
        typer.Option(
            help="What to print: print.timestamp, print.partition, print.offset, print.epoch, print.headers, "
            "print.key (true or false; print.value is true), key.separator, line.separator, "
            "headers.separator, "
            "null.literal, key.deserializer, value.deserializer, header.deserializer; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    formatter_config: Annotated[
        str, typer.Option(help="Properties file with formatter properties.", metavar="FILE")
    ] = "",
    formatter: Annotated[
        str, typer.Option(help=f"How to print: {', '.join(FORMATTERS)}.", metavar="NAME")
    ] = "DefaultMessageFormatter",
    key_deserializer: Annotated[
        str, typer.Option(help="How to read keys, for example IntegerDeserializer.", metavar="NAME")
    ] = "",
    value_deserializer: Annotated[
        str, typer.Option(help="How to read values, for example LongDeserializer.", metavar="NAME")
    ] = "",
    key_format: Annotated[
        str,
        typer.Option(help="avro, jsonschema or protobuf: read keys by a schema registry.", metavar="FORMAT"),
    ] = "",
    value_format: Annotated[
        str,
        typer.Option(
            help="avro, jsonschema or protobuf: read values by a schema registry "
            "(--formatter-property schema.registry.url=http://localhost:8081) and print JSON.",
            metavar="FORMAT",
        ),
    ] = "",
    skip_message_on_error: Annotated[
        bool, typer.Option("--skip-message-on-error", help="Go on after a record that cannot be read.")
    ] = False,
    command_property: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting of the consumer, as fetch.min.bytes=1000; may be repeated.", metavar="NAME=VALUE"
        ),
    ] = None,
    group: Annotated[
        str,
        typer.Option(
            help="Read as a member of this group: go on where it is, and commit what was read.",
            metavar="NAME",
        ),
    ] = "",
    old_property: Annotated[list[str] | None, typer.Option("--property", hidden=True)] = None,
    consumer_property: Annotated[list[str] | None, typer.Option("--consumer-property", hidden=True)] = None,
    consumer_config: Annotated[str, typer.Option("--consumer.config", hidden=True)] = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Print the records of a topic, new ones as they come."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    start = check_start(topic, include, partition, offset, from_beginning)
    moment = start_time(from_time, from_beginning or bool(offset))
    shared_options.warn_of_old_names(
        ("--property", old_property, "--formatter-property", formatter_property),
        ("--consumer-property", consumer_property, "--command-property", command_property),
        ("--consumer.config", consumer_config, "--command-config", command_config),
    )
    from_file = cluster_access.read_client_properties(command_config or consumer_config)
    from_options = cluster_access.client_properties(consumer_property or command_property or [])
    settings = {**from_file, **from_options}
    given = group_of(group, from_options, from_file)
    if moment is not None and given:
        raise UsageError(
            "--from-time is for reading without a group; a group is moved by: millstream consumer-groups "
            "--reset-offsets --to-datetime"
        )
    level = isolation_level or settings.get("isolation.level", "read_uncommitted")
    if level not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"isolation level {level}: use read_committed or read_uncommitted")
    reset = settings.get("auto.offset.reset")
    if from_beginning and reset not in (None, "earliest"):
        raise UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove "
            f"one option"
        )
    start = start or check_reset(reset, bool(given))
    format_settings = cluster_access.read_properties(formatter_config)
    if key_deserializer:
        format_settings["key.deserializer"] = key_deserializer
    if value_deserializer:
        format_settings["value.deserializer"] = value_deserializer
    format_settings |= cluster_access.key_values(old_property or formatter_property or [])
    by_schema, format_settings = schema_formats.divided(format_settings)
    forms = (
        schema_formats.check("--key-format", key_format),
        schema_formats.check("--value-format", value_format),
    )
    if any(forms):
        by_schema = {**profile_store.registry_settings(bootstrap_server), **by_schema}
    decode = schema_formats.SchemaPrinter(*forms, by_schema) if any(forms) else None
    printer = RecordPrinter(style, formatter, format_settings, decode)
    matches = record_filter(where)
    sizes = fetch_sizes(settings)
    metadata_max_age = (
        whole_number("metadata.max.age.ms", settings.get("metadata.max.age.ms", METADATA_MAX_AGE_MS)) / 1000
    )
    with cluster_access.connect(bootstrap_server, settings, "console-consumer") as cluster:
        from millstream.client import Fetcher

        fetcher = Fetcher(cluster, read_committed=level == "read_committed", **sizes)
        consumer = new_consumer(cluster, fetcher, metadata_max_age, given, settings)
        consumer.subscribe(topic, include, partition)
        if moment is None:
            consumer.seek(start or "latest")
        else:
            consumer.seek_to_time(moment)
        code = follow(consumer, printer, matches, max_messages, timeout_ms, skip_message_on_error)
        consumer.close()
    printer.finish()
    print(f"Processed a total of {printer.count} messages", file=sys.stderr)
    return code


def check_start(
    topic: str, include: str, partition: int | None, offset: str, from_beginning: bool
) -> str | None:
    """Where to start: a number, earliest, latest, or None if nothing was said."""
    if bool(topic) == bool(include):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if partition is None:
        if offset:
            raise UsageError("The partition is required when offset is specified.")
    elif not topic:
        raise UsageError("The topic is required when partition is specified.")
    elif partition < 0:
        raise UsageError(f"--partition {partition}: partitions are numbered from 0")
    elif from_beginning and offset:
        raise UsageError("Options from-beginning and offset cannot be specified together.")
    offset = offset.lower()
    if offset not in ("", "earliest", "latest") and not is_offset(offset):
        raise UsageError(
            f"The provided offset value '{offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return offset or ("earliest" if from_beginning else None)


def is_offset(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) <= shared_options.LARGEST_INT64


def group_of(option: str, from_options: Mapping[str, str], from_file: Mapping[str, str]) -> str:
    """The one group that is named, wherever it is named."""
    named = [name for name in (option, from_options.get("group.id"), from_file.get("group.id")) if name]
    if len(set(named)) > 1:
        raise UsageError(
            f"The group ids provided in different places (directly using '--group', via "
            f"'--command-property', or via "
            f"'--command-config') do not match. Detected group ids: {', '.join(named)}"
        )
    return named[0] if named else ""


def check_reset(reset: str | None, in_group: bool) -> str | None:
    """auto.offset.reset: where to begin, unless an option says it. `none` is for groups that have been there
    before."""
    if reset is None or reset in ("earliest", "latest") or (in_group and reset == "none"):
        return reset
    if reset.startswith(BY_DURATION):
        from millstream.cli.consumer_groups_reset import parse_duration

        if parse_duration(reset.removeprefix(BY_DURATION)) >= 0:
            return reset
    also = " or none" if in_group else ""
    raise UsageError(f"auto.offset.reset={reset}: use earliest, latest, {BY_DURATION}PnDTnHnMnS{also}")


def start_time(text: str, other_start: bool) -> int | None:
    if not text:
        return None
    if other_start:
        raise UsageError("--from-time, --from-beginning and --offset all say where to start: use one of them")
    from millstream.filters import BadTime, parse_time

    try:
        return parse_time(text)
    except BadTime as error:
        raise UsageError(f"--from-time {error}") from None


def record_filter(where: str) -> "Filter | None":
    if not where:
        return None
    from millstream.filters import FilterError, compile_filter

    try:
        return compile_filter(where)
    except FilterError as error:
        raise UsageError(f"--where: {error.pointing()}") from None


def fetch_sizes(settings: Mapping[str, str]) -> dict[str, Any]:
    names = {
        "fetch.min.bytes": "min_bytes",
        "fetch.max.bytes": "max_bytes",
        "max.partition.fetch.bytes": "partition_max_bytes",
    }
    found = {}
    for name, argument in names.items():
        if name in settings:
            found[argument] = whole_number(name, settings[name], shared_options.LARGEST_INT32)
    return found


# --- reading ----------------------------------------------------------------------------------------------


def new_consumer(
    cluster: "Cluster", fetcher: Any, metadata_max_age: float, group: str, settings: Mapping[str, str]
) -> PartitionConsumer:
    if not group:
        return PartitionConsumer(cluster, fetcher, metadata_max_age, settings)
    from millstream.cli.group_consumer import GroupConsumer

    return GroupConsumer(cluster, fetcher, metadata_max_age, group, settings)


def follow(
    consumer: PartitionConsumer,
    printer: "RecordPrinter",
    matches: "Filter | None",
    max_messages: int | None,
    timeout_ms: int | None,
    skip_errors: bool,
) -> int:
    """Read until a limit, a silence or a signal ends it. Returns the exit code."""
    limit = max_messages if max_messages is not None and max_messages >= 0 else None
    timeout = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    last = time.monotonic()
    try:
        with signals.InterruptGuard() as interrupts, interrupts.interruptible():
            while limit is None or printer.count < limit:
                wait = LONGEST_WAIT_MS
                if timeout is not None:
                    left = last + timeout - time.monotonic()
                    if left <= 0:
                        return 0
                    wait = max(1, min(wait, round(left * 1000)))
                for fetched in consumer.poll(wait):
                    for consumed in consumer.records(fetched, skip_errors):
                        last = time.monotonic()
                        if matches is not None:
                            seen = printer.readable(consumed, skip_errors)
                            if seen is None or not matches(seen):
                                continue
                        printer.put(consumed, skip_errors)
                        if limit is not None and printer.count >= limit:
                            return 0
                    printer.flush()
            return 0
    except signals.Interrupted as stopped:
        return stopped.code
    finally:
        printer.flush()


# --- printing -----------------------------------------------------------------------------------------------


class RecordPrinter:
    """Where records go: lines as Kafka's formatters print them, a json or yaml document each, or a table at
    the end."""

    def __init__(
        self,
        style: str,
        formatter: str,
        properties: Mapping[str, str],
        decode: schema_formats.SchemaPrinter | None = None,
    ) -> None:
        name = formatter.rpartition(".")[2]
        if name not in FORMATTERS:
            raise UsageError(
                f"--formatter {formatter}: Java classes cannot be loaded; there are {', '.join(FORMATTERS)}"
            )
        self.count = 0
        self._style = style
        self._decode = decode
        self._formatter = DefaultMessageFormatter(properties)
        self._read_key = deserializer(properties.get("key.deserializer", ""))
        self._read_value = deserializer(properties.get("value.deserializer", ""))
        self._write = {
            "json": lambda record: print_json(self._facts(record), indent=None),
            "yaml": lambda record: print_yaml(self._facts(record), separate=True),
            "table": self._collect,
        }.get(style, self._line)
        if name == "NoOpMessageFormatter":
            self._write = lambda record: None
        elif name == "LoggingMessageFormatter":
            self._write = self._log
        self._lines: list[bytes] = []
        self._rows: list[list[Any]] = []
        self._out = sys.stdout.buffer

    def readable(self, record: ConsumerRecord, skip_errors: bool) -> ConsumerRecord | None:
        """The record as expressions see it; None for one that cannot be decoded."""
        if self._decode is None:
            return record
        try:
            return self._decode.readable(record)
        except ValueError as error:
            self.count += 1
            self._complain(record, error, skip_errors)
            return None

    def put(self, record: ConsumerRecord, skip_errors: bool) -> None:
        self.count += 1
        try:
            self._write(record if self._decode is None else self._decode(record))
        except ValueError as error:
            self._complain(record, error, skip_errors)

    def _complain(self, record: ConsumerRecord, error: ValueError, skip_errors: bool) -> None:
        where = f"{record.topic}-{record.partition} at offset {record.offset}"
        if not skip_errors:
            raise CommandFailed(f"cannot print the record of {where}: {error}") from None
        print(f"Skipped the record of {where}: {error}", file=sys.stderr)

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._out.write(b"".join(lines))
        sys.stdout.flush()

    def finish(self) -> None:
        if self._style == "table":
            columns = ["Topic", "Partition", "Offset", "Timestamp", "Key", "Value", "Headers"]
            print_table(columns, self._rows)
        self.flush()

    def _facts(self, record: ConsumerRecord) -> dict[str, Any]:
        key = None if record.key is None else self._read_key(record.key)
        value = None if record.value is None else self._read_value(record.value)
        return record_facts(record._replace(key=key, value=value))

    def _line(self, record: ConsumerRecord) -> None:
        self._lines.append(self._formatter.line(record))

    def _log(self, record: ConsumerRecord) -> None:
        """The line, and where it came from on the error stream."""
        self._line(record)
        print(
            f"{record.timestamp_type}:{record.timestamp}, key:{record.key!r}, value:{record.value!r}",
            file=sys.stderr,
        )

    def _collect(self, record: ConsumerRecord) -> None:
        facts = self._facts(record)
        headers = ",".join(f"{header['name']}:{header['value']}" for header in facts["headers"])
        self._rows.append(
            [
                *(facts[name] for name in ("topic", "partition", "offset", "timestamp", "key", "value")),
                headers,
            ]
        )
