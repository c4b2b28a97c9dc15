"""`millstream dump-log`: what kafka-dump-log.sh does, with the files of Millstream and of Apache Kafka
alike."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.message_formatter import text_or_base64
from millstream.cli.output import Report, check_style, emit

DECODERS: dict[str, Callable[[bytes], str]] = {
    "StringDecoder": lambda data: data.decode("utf-8", "replace"),
    "DefaultDecoder": lambda data: data.hex(),
    "IntegerDecoder": lambda data: str(int.from_bytes(data, "big", signed=True)),
    "LongDecoder": lambda data: str(int.from_bytes(data, "big", signed=True)),
}
# For lack of room.
NOT_IN_TABLES = ("records", "producer_epoch", "leader_epoch", "transactional", "control", "crc")
INTERNAL_DECODERS = "the decoders of internal topics are not part of this release: use --print-data-log"


def prepare(arguments: list[str]) -> list[str]:
    """Files may stand without --files; decoder options without a value mean text."""
    found: list[str] = []
    files: list[str] = []
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        if argument in ("--key-decoder-class", "--value-decoder-class"):
            bare = following.startswith("-") or os.path.exists(following)
            found += [argument, "StringDecoder" if bare else following]
            at += 1 if bare else 2
        elif argument in ("--files", "--max-bytes", "--max-message-size", "-o", "--output"):
            found += arguments[at : at + 2]
            at += 2
        elif argument.startswith("-"):
            found.append(argument)
            at += 1
        else:
            files.append(argument)
            at += 1
    for file in files:
        found += ["--files", file]
    return found


def command(
    files: Annotated[
        list[str] | None,
        typer.Option(
            help="Files of a log, separated by commas (or plain arguments). Required.", metavar="FILE,..."
        ),
    ] = None,
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Print the content of records too.")
    ] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Print each record of a batch, not only the batch.")
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option(
            "--index-sanity-check", help="Check indexes as a broker does at its start, print no entries."
        ),
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Compare indexes with the log, print no entries.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Print only keys and values of records.")
    ] = False,
    max_bytes: Annotated[int, typer.Option(help="Read no more of each log.", metavar="BYTES")] = 2147483647,
    max_message_size: Annotated[
        int, typer.Option(help="Size of the largest batch.", metavar="BYTES")
    ] = 5242880,
    key_decoder_class: Annotated[
        str, typer.Option(help=f"How to print keys: {', '.join(DECODERS)}.", metavar="NAME")
    ] = "",
    value_decoder_class: Annotated[
        str, typer.Option(help=f"How to print values: {', '.join(DECODERS)}.", metavar="NAME")
    ] = "",
    offsets_decoder: Annotated[bool, typer.Option("--offsets-decoder", hidden=True)] = False,
    transaction_log_decoder: Annotated[bool, typer.Option("--transaction-log-decoder", hidden=True)] = False,
    cluster_metadata_decoder: Annotated[
        bool, typer.Option("--cluster-metadata-decoder", hidden=True)
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool, typer.Option("--remote-log-metadata-decoder", hidden=True)
    ] = False,
    share_group_state_decoder: Annotated[
        bool, typer.Option("--share-group-state-decoder", hidden=True)
    ] = False,
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Print the files of a partition's log: .log, .index, .timeindex, .txnindex, .snapshot. No broker is
    needed."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if any(
        (
            offsets_decoder,
            transaction_log_decoder,
            cluster_metadata_decoder,
            remote_log_metadata_decoder,
            share_group_state_decoder,
        )
    ):
        raise UsageError(INTERNAL_DECODERS)
    paths = [path.strip() for item in files or [] for path in item.split(",") if path.strip()]
    if not paths:
        raise UsageError('Missing required argument "[files]"')
    for path in paths:
        if not os.path.isfile(path):
            raise CommandFailed(f"{path} is not a file")
        stem = os.path.basename(path).split(".", 1)[0]
        if path.endswith((".log", ".index", ".timeindex")) and not stem.isdecimal():
            raise CommandFailed(f"{path} is not a file of a log: its name must be its first offset")
    decoders = decoder(key_decoder_class), decoder(value_decoder_class)
    show_data = print_data_log or any(decoders)
    if style == "lines":
        from millstream.storage.dump import dump

        failed = False
        for line in dump(
            paths,
            print_data_log=show_data,
            deep_iteration=deep_iteration,
            index_sanity_check=index_sanity_check,
            verify_index_only=verify_index_only,
            skip_record_metadata=skip_record_metadata,
            max_message_size=max_message_size,
            max_bytes=max_bytes,
            decode_key=decoders[0],
            decode_value=decoders[1],
        ):
            if line.error:
                sys.stdout.flush()
            print(line.text, file=sys.stderr if line.error else sys.stdout)
            failed = failed or line.unusable
        return 1 if failed else 0
    emit(report(paths, deep_iteration or show_data, show_data, max_bytes), style)
    return 0


def decoder(name: str) -> Callable[[bytes], str] | None:
    if not name:
        return None
    found = DECODERS.get(name.rpartition(".")[2])
    if found is None:
        raise UsageError(f"unknown decoder {name}; there are {', '.join(DECODERS)}")
    return found


# --- for programs and eyes ----------------------------------------------------------------------------------


def report(paths: list[str], deep: bool, content: bool, max_bytes: int) -> Report:
    data: list[dict[str, Any]] = []
    columns: list[str] = ["File"]
    rows: list[list[Any]] = []
    for path in paths:
        entries = list(entries_of(path, deep, content, max_bytes))
        data.append({"file": path, "entries": entries})
        for entry in entries:
            columns += [name for name in entry if name not in columns and name not in NOT_IN_TABLES]
            rows.append([os.path.basename(path), entry])
    table = [[name, *(facts.get(column) for column in columns[1:])] for name, facts in rows]
    return Report([], data, columns, table)


def entries_of(path: str, deep: bool, content: bool, max_bytes: int) -> Iterator[dict[str, Any]]:
    from millstream.storage import dump

    try:
        suffix = os.path.splitext(path)[1]
        if suffix == ".log":
            for entry in dump.read_log(path, max_bytes=max_bytes):
                yield batch_facts(entry, deep, content)
            return
        readers: dict[str, Callable[[str], Iterator[Any]]] = {
            ".index": dump.read_offset_index,
            ".timeindex": dump.read_time_index,
            ".txnindex": dump.read_txn_index,
            ".snapshot": dump.read_snapshot,
        }
        if suffix not in readers:
            raise CommandFailed(
                f"{path} is no file of a log: use .log, .index, .timeindex, .txnindex or .snapshot"
            )
        for item in readers[suffix](path):
            yield plain_facts(item)
    except ValueError as error:
        raise CommandFailed(f"cannot read {path}: {error}") from None


def plain_facts(item: Any) -> dict[str, Any]:
    names = getattr(item, "_fields", None) or getattr(item, "__slots__", None) or vars(item)
    facts = {str(name): getattr(item, name) for name in names}
    return {
        name: value
        if value is None or isinstance(value, bool | int | str)
        else [list(part) for part in value]
        for name, value in facts.items()
    }


def batch_facts(entry: Any, deep: bool, content: bool) -> dict[str, Any]:
    from millstream.wire.compression import CODEC_NAMES
    from millstream.wire.errors import KafkaError

    header = entry.header
    facts: dict[str, Any] = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "position": entry.position,
        "size": header.size,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "leader_epoch": header.leader_epoch,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "codec": CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else header.codec,
        "crc": header.crc,
        "valid": entry.valid,
    }
    if deep:
        try:
            facts["records"] = [record_facts(record, content) for record in entry.records()]
        except KafkaError as error:
            facts["records"] = []
            facts["error"] = error.message
    return facts


def record_facts(record: Any, content: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "headers": [
            name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name, _ in record.headers
        ],
    }
    if content:
        facts["key"] = text_or_base64(record.key)
        facts["value"] = text_or_base64(record.value)
    return facts
