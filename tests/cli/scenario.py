"""One story told to Kafka's tools (recorded in recorded.json by record_kafka.py) and to ours: same words,
same lines.

`{bootstrap}` and `{folder}` in arguments are filled in when a step runs. Every step has a name, which is its
key in the recording; a step that is to fail names only the exit code and the sentence.
"""

import re
from typing import NamedTuple

KAFKA_CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}


class Step(NamedTuple):
    name: str
    tool: str
    args: str  # separated by blanks; `\t` is a tab, `\_` a blank
    stdin: str | None = None
    file: str | None = None  # content of {folder}/input


def show(*names: str) -> str:
    return " ".join(f"--formatter-property {name}" for name in names)


TO = "--bootstrap-server {bootstrap}"
READ = f"{TO} --topic tools-lines --from-beginning"
KEYS = "--reader-property parse.key=true"

# Kafka's tool prints an error and exits with 0; ours exits with 1, so that a script notices a mistyped name.
STRICTER = {"show missing"}

STORY = [
    Step("create", "topics", f"{TO} --create --topic tools.dotted --partitions 3 --replication-factor 1"),
    Step(
        "create with settings",
        "topics",
        f"{TO} --create --topic tools-orders --partitions 2 --config retention.ms=60000 --config "
        f"cleanup.policy=compact",
    ),
    Step("create again", "topics", f"{TO} --create --topic tools-orders"),
    Step("create if not there", "topics", f"{TO} --create --topic tools-orders --if-not-exists"),
    Step("create with a bad name", "topics", f"{TO} --create --topic bad\\_name"),
    Step("create too many copies", "topics", f"{TO} --create --topic tools-many --replication-factor 3"),
    Step("create with an unknown setting", "topics", f"{TO} --create --topic tools-bad --config nonsense=1"),
    Step("create with a bad setting", "topics", f"{TO} --create --topic tools-bad --config retention.ms=abc"),
    Step("create by assignment", "topics", f"{TO} --create --topic tools-assigned --replica-assignment 1,1"),
    Step("list", "topics", f"{TO} --list --topic tools.*"),
    Step("list several", "topics", f"{TO} --list --topic tools-orders,tools.dotted"),
    Step("describe", "topics", f"{TO} --describe --topic tools-orders"),
    Step("describe by pattern", "topics", f"{TO} --describe --topic tools-o.*|tools.d.*"),
    Step("describe what is missing", "topics", f"{TO} --describe --topic tools-nothing"),
    Step("describe if there", "topics", f"{TO} --describe --topic tools-nothing --if-exists"),
    Step("describe overrides", "topics", f"{TO} --describe --topic tools-orders --topics-with-overrides"),
    Step(
        "describe under-replicated",
        "topics",
        f"{TO} --describe --topic tools.* --under-replicated-partitions",
    ),
    Step("describe unavailable", "topics", f"{TO} --describe --topic tools.* --unavailable-partitions"),
    Step("describe under min isr", "topics", f"{TO} --describe --topic tools.* --under-min-isr-partitions"),
    Step("describe at min isr", "topics", f"{TO} --describe --topic tools-o.* --at-min-isr-partitions"),
    Step("add partitions", "topics", f"{TO} --alter --topic tools.dotted --partitions 4"),
    Step("remove partitions", "topics", f"{TO} --alter --topic tools.dotted --partitions 2"),
    Step("add partitions to what is missing", "topics", f"{TO} --alter --topic tools-nothing --partitions 2"),
    Step("describe four", "topics", f"{TO} --describe --topic tools.dotted"),
    Step("delete what is missing", "topics", f"{TO} --delete --topic tools-nothing"),
    Step("delete if there", "topics", f"{TO} --delete --topic tools-nothing --if-exists"),
    Step("delete", "topics", f"{TO} --delete --topic tools-assigned"),
    Step("no action", "topics", f"{TO} --topic x"),
    Step("two actions", "topics", f"{TO} --list --create --topic x"),
    Step("create nothing", "topics", f"{TO} --create"),
    Step("list nowhere", "topics", "--list"),
    Step(
        "set",
        "configs",
        f"{TO} --alter --entity-type topics --entity-name tools-orders "
        "--add-config segment.bytes=1048576,max.message.bytes=2000",
    ),
    Step("show", "configs", f"{TO} --describe --entity-type topics --entity-name tools-orders"),
    Step("show all", "configs", f"{TO} --describe --topic tools-orders --all"),
    Step("show none", "configs", f"{TO} --describe --topic tools.dotted"),
    Step("show missing", "configs", f"{TO} --describe --topic tools-nothing"),
    Step("unset", "configs", f"{TO} --alter --topic tools-orders --delete-config segment.bytes"),
    Step(
        "set a list",
        "configs",
        f"{TO} --alter --topic tools-orders --add-config cleanup.policy=[compact,delete]",
    ),
    Step("show the list", "configs", f"{TO} --describe --topic tools-orders"),
    Step("set nothing", "configs", f"{TO} --alter --topic tools-orders"),
    Step("set for no one", "configs", f"{TO} --alter --entity-type topics --add-config retention.ms=1"),
    Step(
        "set for a broker",
        "configs",
        f"{TO} --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
    ),
    Step("show a broker", "configs", f"{TO} --describe --broker 1"),
    Step("unset for a broker", "configs", f"{TO} --alter --broker 1 --delete-config log.cleaner.threads"),
    Step(
        "set for all brokers",
        "configs",
        f"{TO} --alter --broker-defaults --add-config log.cleaner.backoff.ms=16000",
    ),
    Step(
        "unset for all brokers",
        "configs",
        f"{TO} --alter --broker-defaults --delete-config log.cleaner.backoff.ms",
    ),
    Step("no action on settings", "configs", f"{TO} --topic tools-orders"),
    Step("lines topic", "topics", f"{TO} --create --topic tools-lines --partitions 1"),
    Step("lines", "console-producer", f"{TO} --topic tools-lines", "one\ntwo\n\nfour\n"),
    Step(
        "keys missing",
        "console-producer",
        f"{TO} --topic tools-lines {KEYS}",
        "k1\tv1\nk2\tv2\nnokey\nk4\tv4\n",
    ),
    Step(
        "keys and nulls",
        "console-producer",
        f"{TO} --topic tools-lines {KEYS} --reader-property key.separator=: --reader-property "
        f"null.marker=NULL",
        "k1:v1\nk2:v:2\nk3:NULL\nNULL:v4\n",
    ),
    Step(
        "headers",
        "console-producer",
        f"{TO} --topic tools-lines {KEYS} --reader-property parse.headers=true",
        "h1:v1,h2:v2\tk\tval\nh3:\tk\tval2\n",
    ),
    Step(
        "keys ignored",
        "console-producer",
        f"{TO} --topic tools-lines {KEYS} --reader-property ignore.error=true",
        "nosep\n",
    ),
    Step("compressed", "console-producer", f"{TO} --topic tools-lines --compression-codec zstd", "żółw\n"),
    Step(
        "no last newline",
        "console-producer",
        f"{TO} --topic tools-lines --compression-codec --sync",
        "a\r\nlast",
    ),
    Step("no topic", "console-producer", TO, ""),
    Step("read", "console-consumer", f"{READ} --max-messages 16"),
    Step("read three", "console-consumer", f"{READ} --max-messages 3"),
    Step(
        "read everything",
        "console-consumer",
        f"{READ} --max-messages 16 "
        + show(
            "print.key=true",
            "print.timestamp=true",
            "print.offset=true",
            "print.partition=true",
            "print.headers=true",
        ),
    ),
    Step(
        "read without values",
        "console-consumer",
        f"{READ} --max-messages 13 "
        + show(
            "print.key=true",
            "print.headers=true",
            "print.value=false",
            "null.literal=NIL",
            "key.separator=\\_|\\_",
            "headers.separator=;",
        ),
    ),
    Step(
        "read from an offset",
        "console-consumer",
        f"{TO} --topic tools-lines --partition 0 --offset 4 --max-messages 2",
    ),
    Step(
        "read from earliest",
        "console-consumer",
        f"{TO} --topic tools-lines --partition 0 --offset earliest --max-messages 1",
    ),
    Step(
        "read by pattern", "console-consumer", f"{TO} --include tools-l.* --from-beginning --max-messages 2"
    ),
    Step("read committed", "console-consumer", f"{READ} --max-messages 1 --isolation-level read_committed"),
    Step("bad offset", "console-consumer", f"{TO} --topic tools-lines --partition 0 --offset -5"),
    Step("offset of no partition", "console-consumer", f"{TO} --topic tools-lines --offset 4"),
    Step("partition of no topic", "console-consumer", f"{TO} --include x --partition 0"),
    Step("nothing to read", "console-consumer", TO),
    Step("ends", "get-offsets", f"{TO} --topic tools-lines"),
    Step("starts", "get-offsets", f"{TO} --topic tools-lines --time earliest"),
    Step("starts by number", "get-offsets", f"{TO} --topic tools-lines --time -2"),
    Step("at a time", "get-offsets", f"{TO} --topic tools-lines --time 1"),
    Step("in the future", "get-offsets", f"{TO} --topic tools-lines --time 9999999999999"),
    Step(
        "by patterns", "get-offsets", f"{TO} --topic-partitions tools.d.*:0-2,tools-lines:0,tools-orders:1-"
    ),
    Step("by partitions", "get-offsets", f"{TO} --topic tools.dotted --partitions 0,2"),
    Step("of nothing", "get-offsets", f"{TO} --topic tools-nothing"),
    Step("of bad partitions", "get-offsets", f"{TO} --topic tools.dotted --partitions x"),
    Step("of two kinds", "get-offsets", f"{TO} --topic tools.dotted --topic-partitions tools-lines:0"),
    Step(
        "delete records",
        "delete-records",
        f"{TO} --offset-json-file {{folder}}/input",
        file='{"partitions":[{"topic":"tools-lines","partition":0,"offset":3}],"version":1}',
    ),
    Step("starts later", "get-offsets", f"{TO} --topic tools-lines --time earliest"),
    Step("read what is left", "console-consumer", f"{READ} --max-messages 2 {show('print.offset=true')}"),
    Step(
        "delete records twice",
        "delete-records",
        f"{TO} --offset-json-file {{folder}}/input",
        file='{"partitions":[{"topic":"t","partition":0,"offset":3},{"topic":"t","partition":0,"offset":3}]}',
    ),
    Step("delete by junk", "delete-records", f"{TO} --offset-json-file {{folder}}/input", file="junk"),
    Step(
        "delete in the future",
        "delete-records",
        f"{TO} --offset-json-file {{folder}}/input",
        file='{"version":2,"partitions":[]}',
    ),
    Step(
        "delete without an offset",
        "delete-records",
        f"{TO} --offset-json-file {{folder}}/input",
        file='{"partitions":[{"topic":"t","partition":0}]}',
    ),
    Step("delete without a file", "delete-records", TO),
]


def arguments(step: Step, bootstrap: str, folder: str) -> list[str]:
    words = step.args.format(bootstrap=bootstrap, folder=folder).split(" ")
    return [word.replace("\\_", " ").replace("\\t", "\t") for word in words]


def same(text: str) -> list[str]:
    """Lines without what differs from run to run, and without what only Kafka has: settings of tiered
    storage, cordoned folders, and min.insync.replicas, which Kafka 4 sets for the whole cluster when it is
    formatted (its eligible leader replicas need that), so that it shows among the settings of every topic."""
    text = re.sub(r"TopicId: \S+", "TopicId: ID", text)
    text = re.sub(r"(CreateTime|LogAppendTime):\d+", r"\1:TIME", text)
    text = re.sub(r"(Configs: (?:\S+,)?)min\.insync\.replicas=1(?:,|$)", r"\1", text, flags=re.MULTILINE)
    text = text.replace("synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1, ", "synonyms={")
    text = text.replace(" or some brokers have all their log directories cordoned", "")
    lines = text.splitlines()
    return [line for line in lines if not line.startswith(("  remote.", "  local.retention."))]
