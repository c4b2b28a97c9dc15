"""`millstream topics`: what kafka-topics.sh does."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.cluster_access import INTERNAL_TOPICS, kafka_id
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.topics_describe import FAILED, describe_topics

if TYPE_CHECKING:
    from millstream.client.admin import Admin

REMOVED = {
    "--delete-config": "settings of a topic are changed by: millstream configs --alter --topic NAME "
    "--delete-config KEY",
    "--disable-rack-aware": "replicas are always spread over racks: leave it out",
}

ACTIONS = ("list", "describe", "create", "alter", "delete")
# Commands of their own, in modules of their own.
SEPARATE_COMMANDS = {
    "export": "transfer",
    "import": "transfer",
}
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
    "collide. "
    "To avoid issues it is best to use either, but not both."
)

NO_TOPIC_ID = "A" * 22  # all zeros

FILTERS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
ALLOWED = {
    "create": ("topic", "partitions", "replication-factor", "replica-assignment", "config", "if-not-exists"),
    "alter": ("topic", "partitions", "replica-assignment", "if-exists"),
    "delete": ("topic", "if-exists"),
    "list": ("topic", "exclude-internal"),
    "describe": (
        "topic",
        "topic-id",
        "exclude-internal",
        "if-exists",
        "topics-with-overrides",
        "partition-size-limit-per-response",
        *FILTERS,
    ),
}


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.action_options(arguments, ACTIONS, "--topic")


def command(
    list_topics: Annotated[bool, typer.Option("--list", help="List the topics.")] = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Show partitions, replicas and settings.")
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Create a topic.")] = False,
    alter: Annotated[bool, typer.Option("--alter", help="Add partitions to topics.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete topics.")] = False,
    topic: Annotated[
        str, typer.Option(help="The topic; except with --create also a regular expression.", metavar="NAME")
    ] = "",
    topic_id: Annotated[str, typer.Option(help="The topic to describe, by its id.", metavar="ID")] = "",
    partitions: Annotated[
        int | None,
        typer.Option(
            help="Number of partitions (--create, --alter). Partitions can be added, never removed; adding "
            "some "
            "changes which partition a key goes to.",
            metavar="N",
            callback=shared_options.in_range(-shared_options.LARGEST_INT32, shared_options.LARGEST_INT32),
        ),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(help="Copies of each partition (--create).", metavar="N")
    ] = None,
    replica_assignment: Annotated[
        str,
        typer.Option(
            help="Brokers of each partition (--create), or of all old and new partitions (--alter).",
            metavar="B:B,B:B,...",
        ),
    ] = "",
    config: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the new topic (--create); may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="No error if it exists (--create).")
    ] = False,
    if_exists: Annotated[
        bool,
        typer.Option("--if-exists", help="No error if it does not exist (--alter, --delete, --describe)."),
    ] = False,
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Leave out internal topics (--list, --describe).")
    ] = False,
    topics_with_overrides: Annotated[
        bool,
        typer.Option("--topics-with-overrides", help="Only topics with settings of their own (--describe)."),
    ] = False,
    under_replicated_partitions: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions with replicas out of sync.")
    ] = False,
    unavailable_partitions: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    under_min_isr_partitions: Annotated[
        bool, typer.Option("--under-min-isr-partitions", help="Only partitions below min.insync.replicas.")
    ] = False,
    at_min_isr_partitions: Annotated[
        bool, typer.Option("--at-min-isr-partitions", help="Only partitions exactly at min.insync.replicas.")
    ] = False,
    partition_size_limit_per_response: Annotated[
        int | None,
        typer.Option(
            help="Partitions to ask for at once (--describe).",
            metavar="N",
            callback=shared_options.in_range(1, shared_options.LARGEST_INT32),
        ),
    ] = None,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Create, list, describe, alter and delete topics.

    The action may also be written as a word: `millstream topics list`, `millstream topics describe orders`.

    `millstream topics export TOPIC FOLDER` and `millstream topics import TOPIC FOLDER` move records to files
    and back (Parquet, JSON lines, Avro), as Spark jobs; each has its own --help.
    """
    if version:
        return shared_options.show_version()
    style = check_style(output)
    actions = {"list": list_topics, "describe": describe, "create": create, "alter": alter, "delete": delete}
    action = shared_options.chosen_action(actions, "--list, --describe, --create, --alter or --delete")
    filters = {
        "under-replicated-partitions": under_replicated_partitions,
        "unavailable-partitions": unavailable_partitions,
        "under-min-isr-partitions": under_min_isr_partitions,
        "at-min-isr-partitions": at_min_isr_partitions,
    }
    given: dict[str, object] = {
        "topic": topic,
        "topic-id": topic_id,
        "partitions": partitions,
        "replication-factor": replication_factor,
        "replica-assignment": replica_assignment,
        "config": config,
        "if-not-exists": if_not_exists,
        "if-exists": if_exists,
        "exclude-internal": exclude_internal,
        "topics-with-overrides": topics_with_overrides,
        "partition-size-limit-per-response": partition_size_limit_per_response,
        **filters,
    }
    if action == "alter" and config:
        raise UsageError(
            "settings of a topic are changed by: millstream configs --alter --topic NAME --add-config ..."
        )
    shared_options.refuse_other_options(action, given, ALLOWED[action])
    if action == "describe":
        check_description(topic, topic_id, if_exists, topics_with_overrides, filters)
    if action in ("create", "alter", "delete") and not topic:
        raise UsageError('Missing required argument "[topic]"')
    if action == "alter" and partitions is None:
        raise UsageError('Missing required argument "[partitions]"')
    if action == "create":
        check_numbers(partitions, replication_factor, replica_assignment)
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-topics") as cluster:
        from millstream.client.admin import Admin

        admin = Admin(cluster)
        if action == "list":
            report = list_report(matching(admin, topic, exclude_internal))
        elif action == "create":
            report = create_topic(
                admin, topic, partitions, replication_factor, replica_assignment, config or [], if_not_exists
            )
        elif action == "alter":
            names = existing(admin, topic, if_exists)
            report = add_partitions(admin, names, partitions or 0, replica_assignment)
        elif action == "delete":
            report = delete_topics(admin, existing(admin, topic, if_exists))
        else:
            names = described_names(admin, topic, topic_id, exclude_internal, if_exists)
            report = describe_topics(
                admin,
                names,
                [name for name, on in filters.items() if on],
                topics_with_overrides,
                partition_size_limit_per_response or 2000,
            )
    emit(report, style)
    return 0


def check_description(
    topic: str, topic_id: str, if_exists: bool, only_overrides: bool, filters: Mapping[str, bool]
) -> None:
    if if_exists and not topic and not topic_id:
        raise UsageError("--topic or --topic-id is required to describe a topic --if-exists")
    for name, given in filters.items():
        if given and only_overrides:
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[topics-with-overrides]"')


# --- which topics -------------------------------------------------------------------------------------------


def matching(admin: "Admin", pattern: str, exclude_internal: bool) -> list[str]:
    names = admin.topic_names()
    if pattern:
        matcher = cluster_access.topic_matcher(pattern)
        names = [name for name in names if matcher.fullmatch(name)]
    return [name for name in names if not (exclude_internal and name in INTERNAL_TOPICS)]


def existing(admin: "Admin", pattern: str, missing_ok: bool, exclude_internal: bool = False) -> list[str]:
    names = matching(admin, pattern, exclude_internal)
    if not names and pattern and not missing_ok:
        raise CommandFailed(f"{FAILED}Topic '{pattern}' does not exist as expected")
    return names


def described_names(
    admin: "Admin", pattern: str, topic_id: str, exclude_internal: bool, missing_ok: bool
) -> list[str]:
    if not topic_id or topic_id == NO_TOPIC_ID:
        return existing(admin, pattern, missing_ok, exclude_internal)
    names = [
        name
        for name in matching(admin, "", exclude_internal)  # an id counts more than a name
        if kafka_id(admin.cluster.topics[name].id) == topic_id
    ]
    if not names and not missing_ok:
        raise CommandFailed(f"{FAILED}TopicId '{topic_id}' does not exist as expected")
    return names


def list_report(names: list[str]) -> Report:
    return Report(names, names, ["Topic"], [[name] for name in names])


# --- changes ------------------------------------------------------------------------------------------------


def check_numbers(partitions: int | None, factor: int | None, assignment: str) -> None:
    if partitions is not None and partitions < 1:
        raise UsageError("The partitions must be greater than 0")
    if factor is not None and not 1 <= factor <= 32767:
        raise UsageError("The replication factor must be between 1 and 32767 inclusive")
    if assignment and (partitions is not None or factor is not None):
        raise UsageError("--replica-assignment says it all: leave out --partitions and --replication-factor")


def parse_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3`: the brokers of partition 0, then of partition 1, the preferred leader first."""
    try:
        found = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"'{text}' is not a replica assignment: write the brokers of each partition as 1:2,2:3"
        ) from None
    for number, brokers in enumerate(found):
        if not all(0 <= broker <= shared_options.LARGEST_INT32 for broker in brokers):
            raise UsageError(f"partition {number} names what is no id of a broker: {text}")
        if len(set(brokers)) < len(brokers):
            raise UsageError(f"partition {number} names a broker twice: {text}")
        if len(brokers) != len(found[0]):
            raise UsageError(f"Partition {number} has different replication factor: {brokers}")
    return found


def parse_configs(items: Iterable[str]) -> dict[str, str]:
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--config {item}: write it as name=value")
        found[name.strip()] = value.strip()
    return found


def create_topic(
    admin: "Admin",
    name: str,
    partitions: int | None,
    factor: int | None,
    assignment: str,
    configs: Iterable[str],
    exists_ok: bool,
) -> Report:
    from millstream.client.admin import NewTopic
    from millstream.wire.errors import ErrorCode, KafkaError

    new = NewTopic(
        name,
        -1 if partitions is None else partitions,
        -1 if factor is None else factor,
        parse_configs(configs),
        dict(enumerate(parse_assignment(assignment))) if assignment else {},
    )
    lines = [COLLISION] if "." in name or "_" in name else []
    created = admin.create_topics([new])[name]
    if not isinstance(created, KafkaError):
        facts = {
            "name": name,
            "topic_id": kafka_id(created.id),
            "partitions": created.partitions,
            "replication_factor": created.replication_factor,
        }
        lines.append(f"Created topic {name}.")
        return Report(lines, facts, ["Topic", "Id", "Partitions", "Replication"], [list(facts.values())])
    if exists_ok and created.code is ErrorCode.topic_already_exists:
        return Report(lines, {"name": name, "exists": True}, ["Topic"], [[name]])
    raise CommandFailed(f"{FAILED}{created.message}")


def add_partitions(admin: "Admin", names: list[str], count: int, assignment: str) -> Report:
    given: dict[str, list[list[int]]] = {}
    if assignment:
        every = parse_assignment(assignment)
        for name in names:
            given[name] = every[len(admin.cluster.topic(name).partitions) :]
    outcome = admin.create_partitions(dict.fromkeys(names, count), given) if names else {}
    raise_first(outcome)
    rows = [[name, count] for name in names]
    return Report([], [{"name": name, "partitions": count} for name in names], ["Topic", "Partitions"], rows)


def delete_topics(admin: "Admin", names: list[str]) -> Report:
    outcome = admin.delete_topics(names) if names else {}
    raise_first(outcome)
    return Report(
        [], [{"name": name, "deleted": True} for name in names], ["Deleted"], [[name] for name in names]
    )


def raise_first(outcome: Mapping[str, Any]) -> None:
    for error in outcome.values():
        if error is not None:
            raise CommandFailed(f"{FAILED}{error.message}")
