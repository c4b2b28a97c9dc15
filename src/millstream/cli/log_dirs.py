"""`millstream log-dirs`: what kafka-log-dirs.sh does."""

import json
from typing import Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit

ERRORS = {"kafka_storage_error": "org.apache.kafka.common.errors.KafkaStorageException"}


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.action_options(arguments, ("describe",))


def command(
    describe: Annotated[
        bool, typer.Option("--describe", help="Show data folders, their partitions and sizes.")
    ] = False,
    broker_list: Annotated[
        str, typer.Option(help="Brokers to ask, by id. Without it: all.", metavar="ID,...")
    ] = "",
    topic_list: Annotated[
        str, typer.Option(help="Topics to show. Without it: all.", metavar="NAME,...")
    ] = "",
    bootstrap_server: shared_options.BootstrapServer = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Show the data folders of brokers and what each replica takes in them."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if not describe:
        raise UsageError('Missing required argument "[describe]"')
    try:
        wanted = {int(item) for item in broker_list.split(",") if item.strip()}
    except ValueError:
        raise UsageError(f"--broker-list expects ids of brokers, as in 1,2,3, not {broker_list}") from None
    topics = {item.strip() for item in topic_list.split(",") if item.strip()}
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "log-dirs-tool") as cluster:
        from millstream.client.admin import Admin
        from millstream.wire.errors import ErrorCode

        admin = Admin(cluster)
        live = {node.id for node in admin.brokers()}
        if unknown := wanted - live:
            raise CommandFailed(
                f"ERROR: The given brokers do not exist from --broker-list: {_named(unknown)}. Current "
                f"existent brokers: {_named(live)}"
            )
        asked = sorted(wanted or live)
        folders = admin.describe_log_dirs(asked)
        healthy = ErrorCode.none
    brokers: dict[int, list[dict[str, Any]]] = {broker: [] for broker in asked}
    rows: list[list[Any]] = []
    for folder in folders:
        partitions = [
            {"partition": str(key), "size": size, "offsetLag": lag, "isFuture": is_future}
            for key, (size, lag, is_future) in sorted(folder.sizes.items())
            if not topics or key.topic in topics
        ]
        name = folder.error.name
        error = None if folder.error is healthy else ERRORS.get(name, name.upper())
        entry: dict[str, Any] = {"partitions": partitions, "error": error, "logDir": folder.path}
        if folder.total_bytes >= 0 and style in ("json", "yaml"):
            entry |= {"totalBytes": folder.total_bytes, "usableBytes": folder.usable_bytes}
        brokers[folder.broker].append(entry)
        rows += [
            [
                folder.broker,
                folder.path,
                found["partition"],
                found["size"],
                found["offsetLag"],
                "copy under way" if found["isFuture"] else error,
            ]
            for found in partitions
        ] or [[folder.broker, folder.path, None, None, None, error]]
    data = {
        "brokers": [{"broker": broker, "logDirs": entries} for broker, entries in brokers.items()],
        "version": 1,
    }
    lines = [
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {_named(asked)}",
        json.dumps(data, separators=(",", ":"), ensure_ascii=False),
    ]
    columns = ["Broker", "Folder", "Partition", "Bytes", "Lag", "Remark"]
    emit(Report(lines, data, columns, rows), style)
    return 0


def _named(brokers: "set[int] | list[int]") -> str:
    return ",".join(map(str, sorted(brokers)))
