"""`millstream transactions`: what kafka-transactions.sh does."""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client.transactions import ProducerState, Transactions
    from millstream.wire.errors import KafkaError

AT_ONCE = 500  # partitions in one request when many are searched
MINUTE = 60_000

# The commands with the options that each knows; those in the first tuple have to be there.
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "list": ((), ("duration-filter", "transactional-id-pattern")),
    "describe": (("transactional-id",), ()),
    "describe-producers": (("topic", "partition"), ("broker-id",)),
    "abort": (
        ("topic", "partition"),
        ("start-offset", "producer-id", "producer-epoch", "coordinator-epoch"),
    ),
    "find-hanging": ((), ("broker-id", "max-transaction-timeout", "topic", "partition")),
    "forceTerminateTransaction": (("transactional-id",), ()),
}
WHICH = (
    "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) "
    "or with "
    "--producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
)


def command(
    action: Annotated[str, typer.Argument(metavar="COMMAND", show_default=False)] = "",
    transactional_id: Annotated[
        str,
        typer.Option(
            "--transactional-id",
            "--transactionalId",
            help="The transactional id (describe, forceTerminateTransaction).",
            metavar="ID",
        ),
    ] = "",
    topic: Annotated[
        str, typer.Option(help="The topic (describe-producers, abort, find-hanging).", metavar="NAME")
    ] = "",
    partition: shared_options.PartitionOfTopic = None,
    broker_id: Annotated[
        int | None,
        typer.Option(help="Ask this broker (describe-producers), search on it (find-hanging).", metavar="ID"),
    ] = None,
    duration_filter: Annotated[
        int | None,
        typer.Option(
            help="Only those open for longer than so long (list).",
            metavar="MS",
            callback=shared_options.in_range(-shared_options.LARGEST_INT64, shared_options.LARGEST_INT64),
        ),
    ] = None,
    transactional_id_pattern: Annotated[
        str | None, typer.Option(help="Only ids that match a regular expression (list).", metavar="REGEX")
    ] = None,
    max_transaction_timeout: Annotated[
        int | None,
        typer.Option(
            help="What is open for longer than this may hang (find-hanging; 15).", metavar="MINUTES"
        ),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(help="Where the transaction begins in the partition (abort).", metavar="OFFSET"),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            help="Instead of --start-offset (abort).",
            metavar="ID",
            callback=shared_options.in_range(0, shared_options.LARGEST_INT64),
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option(
            help="Instead of --start-offset (abort).",
            metavar="N",
            callback=shared_options.in_range(0, shared_options.LARGEST_INT16),
        ),
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            help="Instead of --start-offset (abort).",
            metavar="N",
            callback=shared_options.in_range(-1, shared_options.LARGEST_INT32),
        ),
    ] = None,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Show transactions and their producers, find those that hang, and end them.

    Commands: list; describe --transactional-id ID; describe-producers --topic T --partition N; find-hanging
    --topic T or --broker-id ID; abort --topic T --partition N --start-offset OFFSET;
    forceTerminateTransaction --transactional-id ID.
    """
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if action not in COMMANDS:
        words = f"there is no command '{action}'" if action else "a command is missing"
        raise UsageError(f"{words}: use one of {', '.join(COMMANDS)}")
    check_options(
        action,
        {
            "transactional-id": transactional_id or None,
            "topic": topic or None,
            "partition": partition,
            "broker-id": broker_id,
            "duration-filter": duration_filter,
            "transactional-id-pattern": transactional_id_pattern,
            "max-transaction-timeout": max_transaction_timeout,
            "start-offset": start_offset,
            "producer-id": producer_id,
            "producer-epoch": producer_epoch,
            "coordinator-epoch": coordinator_epoch,
        },
    )
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-transactions") as cluster:
        from millstream.client.transactions import Transactions

        transactions = Transactions(cluster)
        if action == "list":
            report = list_report(transactions, duration_filter, transactional_id_pattern)
        elif action == "describe":
            report = describe_report(transactions, transactional_id)
        elif action == "describe-producers":
            report = producers_report(transactions, TopicPartition(topic, partition or 0), broker_id)
        elif action == "find-hanging":
            minutes = 15 if max_transaction_timeout is None else max_transaction_timeout
            report = hanging_report(transactions, topic, partition, broker_id, minutes)
        elif action == "abort":
            identity = (producer_id, producer_epoch, coordinator_epoch)
            report = abort(transactions, TopicPartition(topic, partition or 0), start_offset, identity)
        else:
            report = terminate(transactions, transactional_id)
    emit(report, style)
    return 0


def check_options(action: str, given: dict[str, Any]) -> None:
    needed, allowed = COMMANDS[action]
    shared_options.refuse_other_options(action, given, (*needed, *allowed))
    for name in needed:
        if given[name] is None:
            raise UsageError(f"{action}: argument --{name} is required")
    if action == "find-hanging":
        if given["topic"] is None and given["broker-id"] is None:
            raise UsageError(
                "The `find-hanging` command requires either --topic or --broker-id to limit the scope of "
                "the search"
            )
        if given["partition"] is not None and given["topic"] is None:
            raise UsageError("The --partition argument requires --topic to be provided")
    if action == "abort" and given["start-offset"] is None:
        if given["producer-id"] is None:
            raise UsageError(WHICH)
        for name in ("producer-epoch", "coordinator-epoch"):
            if given[name] is None:
                raise UsageError(f"Missing required argument --{name}")


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], data: Any) -> Report:
    """Kafka's lines: columns as wide as their widest cell, with a tab after each."""
    texts = [list(head), *([("None" if cell is None else str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in texts]
    return Report(lines, data, head, rows)


def fail(what: str, error: "KafkaError") -> NoReturn:
    from millstream.wire.errors import ErrorCode

    reason = error.message
    if error.code is ErrorCode.transactional_id_not_found:
        reason = "the ID could not be found"
    raise CommandFailed(f"{what}: {reason}") from None


# --- showing ------------------------------------------------------------------------------------------------


def list_report(transactions: "Transactions", longer_than: int | None, pattern: str | None) -> Report:
    from millstream.wire.errors import ErrorCode, KafkaError

    try:
        found = transactions.listed(
            longer_than_ms=-1 if longer_than is None else longer_than, pattern=pattern
        )
    except KafkaError as error:
        if error.code is ErrorCode.invalid_regular_expression:
            raise UsageError(
                f"--transactional-id-pattern {pattern}: this is not a valid regular expression (RE2)"
            ) from None
        raise
    data = [
        {
            "transactional_id": transaction.transactional_id,
            "coordinator": transaction.coordinator,
            "producer_id": transaction.producer_id,
            "state": transaction.state,
        }
        for transaction in found
    ]
    rows = [list(entry.values()) for entry in data]
    return table(["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], rows, data)


def describe_report(transactions: "Transactions", transactional_id: str) -> Report:
    from millstream.wire.errors import KafkaError

    try:
        transaction = transactions.describe(transactional_id)
    except KafkaError as error:
        fail(f"Failed to describe transaction state of transactional-id `{transactional_id}`", error)
    duration = None if transaction.start_ms is None else round(time.time() * 1000) - transaction.start_ms
    data = {
        "coordinator": transaction.coordinator,
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "state": transaction.state,
        "timeout_ms": transaction.timeout_ms,
        "start_time_ms": transaction.start_ms,
        "duration_ms": duration,
        "partitions": [f"{name}-{number}" for name, number in transaction.partitions],
    }
    row = [*list(data.values())[:-1], ",".join(f"{name}-{number}" for name, number in transaction.partitions)]
    head = ["CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"]
    head += [
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ]
    return table(head, [row], data)


def producers_of(
    transactions: "Transactions", topic_partition: TopicPartition, broker: int | None, what: str
) -> "list[ProducerState]":
    from millstream.wire.errors import KafkaError

    try:
        found = transactions.producers([topic_partition], broker)[topic_partition]
    except KafkaError as error:
        found = error
    if isinstance(found, KafkaError):
        fail(what, found)
    return found


def producers_report(
    transactions: "Transactions", topic_partition: TopicPartition, broker: int | None
) -> Report:
    answering = "leader" if broker is None else f"broker {broker}"
    what = f"Failed to describe producers for partition {topic_partition} on {answering}"
    data = [
        {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "latest_coordinator_epoch": producer.coordinator_epoch,
            "last_sequence": producer.last_sequence,
            "last_timestamp": producer.last_timestamp,
            "current_transaction_start_offset": producer.transaction_start,
        }
        for producer in producers_of(transactions, topic_partition, broker, what)
    ]
    head = ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"]
    head += ["CurrentTransactionStartOffset"]
    return table(head, [list(entry.values()) for entry in data], data)


def hanging_report(
    transactions: "Transactions", topic: str, partition: int | None, broker: int | None, minutes: int
) -> Report:
    now = round(time.time() * 1000)
    candidates: list[tuple[TopicPartition, ProducerState]] = []
    topic_partitions = searched_partitions(transactions, topic, partition, broker)
    for at in range(0, len(topic_partitions), AT_ONCE):
        candidates += open_too_long(
            transactions, topic_partitions[at : at + AT_ONCE], broker, now - minutes * MINUTE
        )
    data = [
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "start_offset": producer.transaction_start,
            "last_timestamp": producer.last_timestamp,
            "duration_minutes": (now - producer.last_timestamp) // MINUTE,
        }
        for topic_partition, producer in without_owner(transactions, candidates)
    ]
    head = ["Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset"]
    head += ["LastTimestamp", "Duration(min)"]
    return table(head, [list(entry.values()) for entry in data], data)


def searched_partitions(
    transactions: "Transactions", topic: str, partition: int | None, broker: int | None
) -> list[TopicPartition]:
    if topic and partition is not None:
        return [TopicPartition(topic, partition)]
    cluster = transactions.cluster
    problems = cluster.refresh([topic] if topic else None)
    for error in problems.values():
        fail("Failed to describe 1 topics", error)
    return [
        TopicPartition(name, number)
        for name, known in sorted(cluster.topics.items())
        if not topic or name == topic
        for number, state in known.partitions.items()
        if broker is None or broker in state.replicas
    ]


def open_too_long(
    transactions: "Transactions", topic_partitions: Sequence[TopicPartition], broker: int | None, before: int
) -> "list[tuple[TopicPartition, ProducerState]]":
    from millstream.wire.errors import KafkaError

    found = []
    for topic_partition, producers in transactions.producers(topic_partitions, broker).items():
        if isinstance(producers, KafkaError):
            fail(f"Failed to describe producers for {len(topic_partitions)} partitions", producers)
        found += [
            (topic_partition, producer)
            for producer in producers
            if producer.transaction_start is not None and producer.last_timestamp < before
        ]
    return found


def without_owner(
    transactions: "Transactions", candidates: "Sequence[tuple[TopicPartition, ProducerState]]"
) -> "Iterable[tuple[TopicPartition, ProducerState]]":
    """Those that no coordinator knows of, or not with this partition: nobody is going to write their
    marker."""
    from millstream.wire.errors import ErrorCode, KafkaError

    if not candidates:
        return
    ids = {producer.producer_id for _, producer in candidates}
    owners = {
        transaction.producer_id: transaction.transactional_id
        for transaction in transactions.listed(producer_ids=ids)
    }
    expected: dict[str, set[TopicPartition]] = {}
    for transactional_id in owners.values():
        try:
            expected[transactional_id] = set(transactions.describe(transactional_id).partitions)
        except KafkaError as error:
            if error.code is not ErrorCode.transactional_id_not_found:
                fail(f"Failed to describe {len(owners)} transactions", error)
            expected[transactional_id] = set()
    for topic_partition, producer in candidates:
        owner = owners.get(producer.producer_id)
        if owner is None or topic_partition not in expected[owner]:
            yield topic_partition, producer


# --- ending -------------------------------------------------------------------------------------------------


def abort(
    transactions: "Transactions",
    topic_partition: TopicPartition,
    start_offset: int | None,
    identity: tuple[int | None, int | None, int | None],
) -> Report:
    from millstream.wire.errors import KafkaError

    name = f"{topic_partition}"
    if start_offset is not None:
        producers = producers_of(
            transactions, topic_partition, None, f"Failed to validate producer state for partition {name}"
        )
        found = next((producer for producer in producers if producer.transaction_start == start_offset), None)
        if found is None:
            raise CommandFailed(
                f"Could not find any open transactions starting at offset {start_offset} on partition {name}"
            )
        identity = (found.producer_id, found.producer_epoch, found.coordinator_epoch)
    producer_id, producer_epoch, coordinator_epoch = (value or 0 for value in identity)
    # A transaction that hangs since its producer's first one has seen no coordinator yet (-1): 0 is older
    # than any.
    coordinator_epoch = max(0, coordinator_epoch)
    try:
        transactions.abort(topic_partition, producer_id, producer_epoch, coordinator_epoch)
    except KafkaError as error:
        fail(f"Failed to abort transaction of producer {producer_id} in partition {name}", error)
    data = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "producer_id": producer_id,
        "aborted": True,
    }
    return Report([], data, ["Topic", "Partition", "Producer"], [[*topic_partition, producer_id]])


def terminate(transactions: "Transactions", transactional_id: str) -> Report:
    from millstream.wire.errors import KafkaError

    try:
        transactions.terminate(transactional_id)
    except KafkaError as error:
        fail(f"Failed to force terminate transactionalId `{transactional_id}`", error)
    data = {"transactional_id": transactional_id, "terminated": True}
    return Report([], data, ["Terminated"], [[transactional_id]])
