"""Every command of `millstream`, by kind: the table behind the overview, the dispatch and the completion."""

from typing import NamedTuple


class Tool(NamedTuple):
    """`module` in millstream.cli, with `command` or `SUBCOMMANDS`; empty for a service, which __main__ starts
    by itself."""

    module: str
    summary: str


class CommandGroup(NamedTuple):
    title: str
    tools: dict[str, Tool]


COMMAND_GROUPS = (
    CommandGroup(
        "Run the platform",
        {
            "up": Tool("up", "start broker, registry and the other services together"),
            "down": Tool("down", "stop what `up` started"),
            "status": Tool("status", "show what `up` started: addresses, processes, restarts"),
            "logs": Tool("logs", "show or follow what the services print"),
            "demo": Tool("demo", "the platform with made-up data flowing through it, to look around in"),
            "doctor": Tool(
                "doctor", "check Python, Java, ports, disk and limits, with a cure for each problem"
            ),
        },
    ),
    CommandGroup(
        "Run one service",
        {
            "broker": Tool("", "run a broker"),
            "registry": Tool("", "run the Schema Registry; `registry codegen` makes classes from a schema"),
            "rest": Tool("", "run the REST Proxy"),
            "console": Tool("", "run the web console"),
            "connect": Tool(
                "connect", "run a Kafka Connect worker; list, create, change and watch connectors"
            ),
            "sql-server": Tool("", "run a SQL server with ksqlDB's API"),
            "sql": Tool("sql", "a shell for SQL: statements, queries, live tables"),
            "pipeline": Tool("pipeline", "run Spark pipelines, see how they do, stop them"),
        },
    ),
    CommandGroup(
        "Topics and records",
        {
            "topics": Tool("topics", "create, list, describe, alter and delete topics"),
            "console-producer": Tool("console_producer", "send lines of standard input to a topic"),
            "console-consumer": Tool(
                "console_consumer", "print the records of a topic, all or those that match"
            ),
            "get-offsets": Tool("get_offsets", "show first, last or other offsets of partitions"),
            "delete-records": Tool("delete_records", "delete the records of partitions before an offset"),
        },
    ),
    CommandGroup(
        "Groups, transactions, settings",
        {
            "consumer-groups": Tool(
                "consumer_groups", "show consumer groups and their lag, reset and delete their offsets"
            ),
            "streams": Tool("streams", "take a Streams application back to its beginning"),
            "transactions": Tool(
                "transactions", "show transactions and their producers, end those that hang"
            ),
            "configs": Tool("configs", "show and change the settings of topics and brokers"),
        },
    ),
    CommandGroup(
        "Look inside, measure",
        {
            "dump-log": Tool("dump_log", "print the files of a partition's log"),
            "perf": Tool("perf", "measure producing, consuming and the time from end to end, of any Kafka"),
        },
    ),
    CommandGroup(
        "This program",
        {
            "profile": Tool("profile", "named clusters: addresses and client settings under a name"),
            "completion": Tool("completion", "print the completion script of a shell"),
        },
    ),
)

COMMANDS: dict[str, Tool] = {name: tool for group in COMMAND_GROUPS for name, tool in group.tools.items()}

# The commands with the options of one of Kafka's tools.
KAFKA_COMMANDS = frozenset(
    name
    for group in COMMAND_GROUPS
    if group.title in ("Topics and records", "Groups, transactions, settings", "Look inside, measure")
    for name in group.tools
)

NOT_YET = {
    "acls": "this release has no access control lists",
    "reassign-partitions": "this release has clusters of one broker, so there is nowhere to move a "
    "partition to",
    "replica-verification": "this release has clusters of one broker, so there is one replica of everything",
    "leader-election": "this release has clusters of one broker, which leads every partition",
    "share-groups": "this release has no share groups",
    "console-share-consumer": "this release has no share groups: use console-consumer",
    "delegation-tokens": "this release has no delegation tokens",
    "mirror": "mirroring between clusters comes with a later release",
}
