"""`millstream reassign-partitions`: what kafka-reassign-partitions.sh does."""

from typing import Annotated

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import check_style, emit

REMOVED = {
    "--bootstrap-controller": "every broker passes the request on to the controller: use --bootstrap-server",
}
ACTIONS = ("generate", "execute", "verify", "cancel", "list")
REQUIRED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
ALLOWED = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
        "wait",
        "preserve-throttles",
    ),
    "verify": ("preserve-throttles", "wait"),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.action_options(arguments, ACTIONS)


def command(
    generate: Annotated[
        bool, typer.Option("--generate", help="Propose where the partitions of topics could go.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Begin to move replicas as a plan says.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Show how far a plan is; removes throttles when nothing moves."),
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Go back to the replicas from before the move.")
    ] = False,
    list_moves: Annotated[bool, typer.Option("--list", help="List the moves under way.")] = False,
    reassignment_json_file: Annotated[
        str,
        typer.Option(
            help='The plan: {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2], '
            '"log_dirs": ["any", "/data/2"]}], "version": 1}. log_dirs may be left out.',
            metavar="FILE",
        ),
    ] = "",
    topics_to_move_json_file: Annotated[
        str,
        typer.Option(
            help='Topics to plan for (--generate): {"topics": [{"topic": "orders"}], "version": 1}.',
            metavar="FILE",
        ),
    ] = "",
    broker_list: Annotated[
        str, typer.Option(help="Brokers to plan for, by id (--generate).", metavar="ID,...")
    ] = "",
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Plan without regard to racks (--generate).")
    ] = False,
    throttle: Annotated[
        int | None,
        typer.Option(
            help="Bytes a second at which replicas move between brokers (--execute). Run --verify "
            "afterwards: it removes the throttle.",
            metavar="N",
        ),
    ] = None,
    replica_alter_log_dirs_throttle: Annotated[
        int | None,
        typer.Option(
            help="Bytes a second at which replicas move between data folders of a broker (--execute).",
            metavar="N",
        ),
    ] = None,
    additional: Annotated[
        bool,
        typer.Option(
            "--additional",
            help="Begin although other moves are under way; also to change their throttle (--execute).",
        ),
    ] = False,
    disallow_replication_factor_change: Annotated[
        bool,
        typer.Option(
            "--disallow-replication-factor-change",
            help="Refuse a plan that changes how many replicas a partition has (--execute).",
        ),
    ] = False,
    preserve_throttles: Annotated[
        bool, typer.Option("--preserve-throttles", help="Leave throttles as they are.")
    ] = False,
    timeout: Annotated[
        int | None,
        typer.Option(
            help="How long moves between data folders may take to begin, in milliseconds (10000).",
            metavar="MS",
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until the plan is done, with a progress bar (--execute, --verify)."
        ),
    ] = False,
    bootstrap_server: shared_options.BootstrapServer = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Move replicas of partitions between brokers, and between the data folders of a broker."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    action = shared_options.chosen_action(
        {
            "generate": generate,
            "execute": execute,
            "verify": verify,
            "cancel": cancel,
            "list": list_moves,
        },
        "--generate, --execute, --verify, --cancel, --list",
    )
    given = {
        "reassignment-json-file": reassignment_json_file,
        "topics-to-move-json-file": topics_to_move_json_file,
        "broker-list": broker_list,
        "disable-rack-aware": disable_rack_aware,
        "throttle": throttle,
        "replica-alter-log-dirs-throttle": replica_alter_log_dirs_throttle,
        "additional": additional,
        "disallow-replication-factor-change": disallow_replication_factor_change,
        "preserve-throttles": preserve_throttles,
        "timeout": timeout,
        "wait": wait,
    }
    for option in REQUIRED[action]:
        if not given[option]:
            raise UsageError(f'Missing required argument "[{option}]"')
    for option, value in given.items():
        if value not in (None, False, "") and option not in (*REQUIRED[action], *ALLOWED[action]):
            raise UsageError(f'Option "[{option}]" can\'t be used with action "[{action}]"')
    if preserve_throttles and execute and not wait:
        raise UsageError(
            'Option "[preserve-throttles]" can\'t be used with action "[execute]" but with --wait'
        )
    from millstream.cli import reassignment, reassignment_plan

    text = _read(topics_to_move_json_file or reassignment_json_file) if REQUIRED[action] else ""
    topics = reassignment_plan.parse_topics(text) if generate else []
    brokers = reassignment_plan.parse_brokers(broker_list) if generate else []
    plan = reassignment_plan.parse_plan(text) if action in ("execute", "verify", "cancel") else None
    timeout_ms = 10_000 if timeout is None else timeout
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "reassign-partitions-tool") as cluster:
        from millstream.client.cluster_admin import ClusterAdmin

        admin = ClusterAdmin(cluster)
        if generate:
            report = reassignment.generate(admin, topics, brokers, not disable_rack_aware)
        elif list_moves or plan is None:
            report = reassignment.list_moves(admin)
        elif execute:
            options = reassignment.ExecuteOptions(
                additional,
                -1 if throttle is None else throttle,
                -1 if replica_alter_log_dirs_throttle is None else replica_alter_log_dirs_throttle,
                timeout_ms,
                not disallow_replication_factor_change,
            )
            report = reassignment.execute(admin, plan, options)
            if wait:
                emit(report, style)
                report = reassignment.verify(admin, plan, preserve_throttles, wait=True)
        elif verify:
            report = reassignment.verify(admin, plan, preserve_throttles, wait)
        else:
            report = reassignment.cancel(admin, plan, preserve_throttles, timeout_ms)
    emit(report, style)
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        raise CommandFailed(f"Unable to read file {path}") from None
