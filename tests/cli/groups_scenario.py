"""The story of a few consumer groups and transactions, told to Kafka's tools (recorded in
recorded_groups.json by record_groups.py) and to ours. Between the commands the world changes: a consumer
joins, a transaction is left open.
"""

import re
from typing import Any

from tests.support.waiting import wait_until

from .scenario import Step

KAFKA_CLASSES = {
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
WORLD = "world"  # the "tool" of the steps that are methods of World
TO = "--bootstrap-server {bootstrap}"
NEW_YEAR = 1_735_689_600_000  # 2025-01-01 UTC: the records of partition n begin at that hour plus n days
HOUR = 3_600_000
WAIT = 30


def groups(name: str, args: str, file: str | None = None) -> Step:
    return Step(name, "consumer-groups", f"{TO} {args}", file=file)


def reset(name: str, args: str, file: str | None = None) -> Step:
    return groups(name, f"--reset-offsets {args}", file)


def transactions(name: str, args: str) -> Step:
    return Step(name, "transactions", f"{TO} {args}")


STORY = [
    groups("list nothing", "--list"),
    Step("make topics", WORLD, "make_topics"),
    Step("commit", WORLD, "commit"),
    groups("list", "--list"),
    groups("list states", "--list --state"),
    groups("list some states", "--list --state empty,stable"),
    groups("list no such state", "--list --state nonsense"),
    groups("list stable", "--list --state stable"),
    groups("list types", "--list --type"),
    groups("list types and states", "--list --type classic --state"),
    groups("list no such type", "--list --type nonsense"),
    groups("describe", "--describe --group billing"),
    groups("describe offsets", "--describe --offsets --group billing --verbose"),
    groups("describe members of nobody", "--describe --members --group billing"),
    groups("describe state", "--describe --state --group billing"),
    groups("describe state in full", "--describe --state --verbose --group billing"),
    groups("describe nothing", "--describe --group nobody"),
    groups("describe the state of nothing", "--describe --state --group nobody"),
    groups("describe two", "--describe --group billing --group shipping-with-a-very-long-name"),
    groups("describe all", "--describe --all-groups"),
    groups("describe no one", "--describe"),
    groups("describe too much", "--describe --members --offsets --group billing"),
    groups("describe a state by name", "--describe --state empty --group billing"),
    Step("join", WORLD, "join"),
    groups("describe active", "--describe --group workers"),
    groups("describe members", "--describe --members --group workers"),
    groups("describe members in full", "--describe --members --verbose --group workers"),
    groups("describe active state", "--describe --state --group workers"),
    groups("describe active state in full", "--describe --state --verbose --group workers"),
    groups("list with an active one", "--list --type --state"),
    reset("reset an active group", "--group workers --topic orders --to-earliest --execute"),
    groups("delete an active group", "--delete --group workers"),
    groups("delete an active and another", "--delete --group workers --group nobody"),
    groups("delete offsets in use", "--delete-offsets --group workers --topic orders"),
    Step("leave", WORLD, "leave"),
    reset("to earliest", "--group billing --topic orders --to-earliest --dry-run"),
    reset("to earliest by default", "--group billing --topic orders --to-earliest"),
    reset("to latest", "--group billing --topic orders --to-latest --dry-run"),
    reset("to current", "--group billing --topic orders --topic parcels --to-current --dry-run"),
    reset("to offset", "--group billing --topic orders --to-offset 3 --dry-run"),
    reset("to an offset too high", "--group billing --topic orders --to-offset 300 --dry-run"),
    reset("shift forth", "--group billing --all-topics --shift-by 2 --dry-run"),
    reset("shift back", "--group billing --all-topics --shift-by -3 --dry-run"),
    reset("shift what was never read", "--group billing --topic parcels --shift-by 1 --dry-run"),
    reset("to a time", "--group billing --topic orders --to-datetime 2025-01-01T03:00:00.000 --dry-run"),
    reset(
        "to a time with a zone",
        "--group billing --topic orders --to-datetime 2025-01-02T03:00:00.000+01:00 --dry-run",
    ),
    reset(
        "to a time in the future",
        "--group billing --topic orders --to-datetime 2125-01-01T03:00:00.000 --dry-run",
    ),
    reset("to no time", "--group billing --topic orders --to-datetime yesterday --dry-run"),
    reset("by duration", "--group billing --topic orders --by-duration P3000D --dry-run"),
    reset("by no duration", "--group billing --topic orders --by-duration 5m --dry-run"),
    reset("one partition", "--group billing --topic orders:1 --to-earliest --dry-run"),
    reset("two partitions", "--group billing --topic orders:0,1 --topic parcels:0 --to-latest --dry-run"),
    reset("no such partition", "--group billing --topic orders:7 --to-latest --dry-run"),
    reset("a bad partition", "--group billing --topic orders:x --to-latest --dry-run"),
    reset("no such topic", "--group billing --topic nothing --to-latest --dry-run"),
    reset("a new group", "--group fresh --topic orders --to-latest --dry-run"),
    reset("export", "--group billing --topic orders --to-latest --dry-run --export"),
    reset(
        "export of two groups",
        "--group billing --group fresh --topic orders:0 --to-latest --dry-run --export",
    ),
    reset("from a file", "--group billing --from-file {folder}/input --dry-run", "orders,0,2\norders,1,1\n"),
    reset(
        "from a file with groups",
        "--group billing --group fresh --from-file {folder}/input --dry-run",
        'billing,orders,0,2\n"fresh",orders,1,1\n',
    ),
    reset("from a bad file", "--group billing --from-file {folder}/input --dry-run", "junk\n"),
    reset("from no file", "--group billing --from-file {folder}/missing --dry-run"),
    reset("no scope", "--group billing --to-latest --dry-run"),
    reset("no mode", "--group billing --topic orders --dry-run"),
    reset("two modes", "--group billing --topic orders --to-latest --to-earliest --dry-run"),
    reset("both", "--group billing --topic orders --to-latest --dry-run --execute"),
    reset("no group", "--topic orders --to-latest --dry-run"),
    reset("execute", "--group billing --topic orders --shift-by -1 --execute"),
    groups("describe after", "--describe --group billing"),
    reset("execute for a new group", "--group fresh --topic orders:1 --to-latest --execute"),
    groups("describe the new group", "--describe --group fresh"),
    groups("delete offsets", "--delete-offsets --group billing --topic orders:1"),
    groups("describe what is left", "--describe --group billing"),
    groups("delete offsets of nothing", "--delete-offsets --group billing --topic nothing"),
    groups("delete offsets of a topic", "--delete-offsets --group billing --topic orders"),
    groups("delete offsets of nobody", "--delete-offsets --group nobody --topic orders"),
    groups("delete offsets without a topic", "--delete-offsets --group billing"),
    groups("delete", "--delete --group fresh"),
    groups("delete nobody", "--delete --group nobody"),
    groups("delete without a group", "--delete"),
    groups("delete with a topic", "--delete --group billing --topic orders"),
    groups("no action", "--group billing"),
    groups("two actions", "--list --describe --group billing"),
    Step("nowhere", "consumer-groups", "--list"),
    groups("a good expression", "--validate-regex or.*s"),
    Step(
        "read in a group",
        "console-consumer",
        f"{TO} --topic parcels --group readers --from-beginning --max-messages 2",
    ),
    Step(
        "read on",
        "console-consumer",
        f"{TO} --topic parcels --group readers --from-beginning --max-messages 1",
    ),
    groups("describe readers", "--describe --group readers"),
    transactions("list no transactions", "list"),
    Step("begin", WORLD, "begin"),
    transactions("list transactions", "list"),
    transactions("list by duration", "list --duration-filter 1"),
    transactions("list by long duration", "list --duration-filter 999999999"),
    transactions("list by pattern", "list --transactional-id-pattern pay.*"),
    transactions("list by other pattern", "list --transactional-id-pattern nobody.*"),
    transactions("describe a transaction", "describe --transactional-id payments"),
    transactions("describe no transaction", "describe --transactional-id nothing"),
    transactions("describe which transaction", "describe"),
    transactions("describe producers", "describe-producers --topic ledger --partition 0"),
    transactions(
        "describe producers on a broker", "describe-producers --topic ledger --partition 0 --broker-id 1"
    ),
    transactions("hanging", "find-hanging --topic ledger"),
    transactions("hanging on a broker", "find-hanging --broker-id 1"),
    transactions("hanging nowhere", "find-hanging"),
    transactions("hanging partition", "find-hanging --partition 0"),
    transactions("hanging partition of a broker", "find-hanging --partition 0 --broker-id 1"),
    transactions("abort nothing", "abort --topic ledger --partition 0 --start-offset 999"),
    transactions("abort which", "abort --topic ledger --partition 0"),
    transactions("abort without an epoch", "abort --topic ledger --partition 0 --producer-id 0"),
    transactions("terminate nothing", "forceTerminateTransaction --transactionalId nothing"),
    transactions("terminate", "forceTerminateTransaction --transactionalId payments"),
    transactions("list what was ended", "list"),
    transactions("producers after", "describe-producers --topic ledger --partition 0"),
    Step("begin again", WORLD, "begin"),
    transactions("abort", "abort --topic ledger --partition 0 --start-offset 4"),
    transactions("producers after the abort", "describe-producers --topic ledger --partition 0"),
    Step("forget", WORLD, "forget"),
]


# Steps that end in a failure for which Kafka's tool shows a Java exception, prints the options that it knows
# in the order of a hash map, or succeeds in part: ours says it in a sentence that contains this.
OWN_WORDS: dict[str, str] = {
    "describe no one": "Option [describe] takes one of these options: [group], [all-groups]",
    "to no time": "Error parsing timestamp. It does not contain a 'T' according to ISO8601 format",
    "by no duration": "'5m' is not a duration",
    "a bad partition": "Invalid partition 'x' specified in topic arg 'orders:x'",
    "from a bad file": "line 1 is not topic,partition,offset: junk",
    "from no file": "missing: no such file or directory",
    "no mode": "Option '[reset-offsets]' requires one of the following scenarios: [to-offset], [to-datetime]",
    "delete offsets of nothing": "Encountered some partition-level error, see the follow-up details.",
    "delete offsets without a topic": "Option [delete-offsets] takes the following options: [group], [topic]",
    "delete without a group": "Option [delete] takes one of these options: [group], [all-groups]",
    "two actions": "Command must include exactly one action: --list, --describe, --delete",
    "nowhere": "--bootstrap-server must be specified",
    "describe no transaction": "Failed to describe transaction state of transactional-id `nothing`: the ID "
    "could not be found",
    "describe which transaction": "--transactional-id",
}


class World:
    """What users of the cluster do between the commands. Made with confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._consumer: Any = None
        self._producer: Any = None

    def make_topics(self) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        counts = {"orders": 2, "parcels": 1, "ledger": 1}
        kept = {"retention.ms": "-1"}  # the records are old
        new = [NewTopic(name, count, 1, config=kept) for name, count in counts.items()]
        for future in admin.create_topics(new).values():
            future.result(WAIT)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for partition in (0, 1):
            for number in range(10):
                moment = NEW_YEAR + partition * 24 * HOUR + number * HOUR
                producer.produce("orders", b"%d" % number, partition=partition, timestamp=moment)
        for number in range(5):
            producer.produce("parcels", b"parcel %d" % number, partition=0)
        producer.flush(WAIT)

    def commit(self) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        for group, offsets in (
            ("billing", [TopicPartition("orders", 0, 4), TopicPartition("orders", 1, 10)]),
            ("shipping-with-a-very-long-name", [TopicPartition("parcels", 0, 1)]),
        ):
            consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
            # At first the topic of the offsets is being created.
            wait_until(
                lambda: consumer.commit(offsets=offsets, asynchronous=False),  # noqa: B023
                ignoring=KafkaException,
            )
            consumer.close()

    def join(self) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "workers",
                "client.id": "worker",
                "group.instance.id": "bench-1",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer.subscribe(["orders"])
        consumer, read = self._consumer, []

        def all_read() -> bool:
            read.extend(consumer.consume(20, 0.5))
            return len(read) >= 20

        wait_until(all_read, lambda: f"{len(read)} of 20 records")
        self._consumer.commit(asynchronous=False)

    def leave(self) -> None:
        self._consumer.close()
        self._consumer = None

    def begin(self) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": "payments",
                "transaction.timeout.ms": 600_000,
            }
        )
        self._producer.init_transactions(WAIT)
        self._producer.begin_transaction()
        for number in range(3):
            self._producer.produce("ledger", b"%d" % number, partition=0, timestamp=NEW_YEAR)
        self._producer.flush(WAIT)

    def forget(self) -> None:
        """The transaction's owner goes away without a word."""
        self._producer = None

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._producer = None


def same(text: str) -> list[str]:
    """Lines without what differs from run to run: member ids, ports, times, blanks that those take, and Java
    classes. Kafka prints the rows of some tables in the order of a hash map: here they are sorted."""
    text = re.sub(r"(rdkafka|worker|bench-1|console-consumer)-[0-9a-f-]{36}", r"\1-ID", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\b17\d{11}\b", "TIME", text)
    text = re.sub(r"(java|org)\.[a-z.]+\.[A-Za-z]+: ", "", text)
    text = re.sub(r"(TIME\s+)\d+(\s+ledger)", r"\1AGO\2", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return sorted(line for line in lines if line)
