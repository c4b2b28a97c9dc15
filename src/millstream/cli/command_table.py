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
        "Secure it",
        {
            "secure": Tool("secure", "certificates, an admin and settings for a secured broker in one step"),
            "format": Tool("format", "users in a data folder whose broker does not run: the first admin"),
        },
    ),
    CommandGroup(
        "Run one service",
        {
            "broker": Tool("", "run a broker"),
            "zookeeper": Tool("", "run Apache ZooKeeper, for a cluster of several brokers"),
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
            "acls": Tool("acls", "show, add and remove access control lists"),
            "delegation-tokens": Tool(
                "delegation_tokens", "create, renew, expire and show delegation tokens"
            ),
            "client-metrics": Tool(
                "client_metrics", "choose which clients push which metrics, for /metrics to show"
            ),
            "configs": Tool("configs", "show and change the settings of topics and brokers"),
        },
    ),
    CommandGroup(
        "Replicas and the cluster",
        {
            "reassign-partitions": Tool(
                "reassign_partitions", "move replicas between brokers and between data folders"
            ),
            "leader-election": Tool("leader_election", "elect the leaders of partitions anew"),
            "replica-verification": Tool(
                "replica_verification", "check that the replicas of partitions are the same"
            ),
            "log-dirs": Tool("log_dirs", "show data folders and what each replica takes in them"),
            "cluster": Tool("cluster", "show id and brokers of the cluster; forget a broker that is gone"),
            "features": Tool("features", "show and change the levels of features"),
            "metadata-quorum": Tool(
                "metadata_quorum", "show who leads the metadata and who follows, how far"
            ),
            "metadata": Tool("metadata", "dump the records of the metadata, of a folder or of ZooKeeper"),
            "broker-api-versions": Tool("broker_api_versions", "show which APIs brokers serve"),
        },
    ),
    CommandGroup(
        "Users for programs",
        {
            "service-accounts": Tool("service_accounts", "create, list and delete service accounts"),
            "api-keys": Tool("api_keys", "create, list and delete the API keys of service accounts"),
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
    if group.title
    in (
        "Topics and records",
        "Groups, transactions, settings",
        "Replicas and the cluster",
        "Look inside, measure",
    )
    for name in group.tools
)

NOT_YET = {
    "share-groups": "this release has no share groups",
    "console-share-consumer": "this release has no share groups: use console-consumer",
    "mirror": "mirroring between clusters comes with a later release",
}
