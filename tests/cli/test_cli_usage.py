"""Help, mistakes and exit codes: what needs no broker."""

import subprocess
import sys

import pytest

from millstream import __version__
from millstream.cli.app import COMMANDS
from millstream.cli.configs import parse_added
from millstream.cli.errors import UsageError
from millstream.cli.get_offsets import parse_time, pattern_filter
from millstream.cli.topics import parse_assignment
from millstream.cli.topics_describe import in_java_order
from millstream.client.admin import ConfigEntry

from .conftest import PROGRAM

COMMANDS = [
    name
    for name, tool in COMMANDS.items()
    if tool.module
    and name
    not in ("cluster", "connect", "features", "metadata-quorum", "perf", "pipeline", "profile", "streams")
]
WITHOUT_STYLES = ("up", "down", "logs", "demo", "completion", "secure", "format", "metadata")
NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


def test_overview(run):
    done = run("--help")
    assert done.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.out
    assert run("--version").out == f"millstream {__version__}\n"
    nothing = run()
    assert (nothing.code, nothing.out) == (2, "")
    assert "Usage" in nothing.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_tool_has_help_and_version(run, name):
    done = run(name, "--help")
    assert done.code == 0
    assert f"millstream {name}" in done.out
    assert ("-o, --output" in done.out) is (name not in WITHOUT_STYLES)
    assert run(name, "--version").out == f"{__version__}\n"


@pytest.mark.parametrize(
    "words",
    [("perf", "produce"), ("perf", "consume"), ("streams", "reset"), ("features", "describe")],
)
def test_tools_that_are_part_of_a_group_have_a_version_and_their_own_help(run, words):
    assert run(*words, "--version").out == f"{__version__}\n"
    assert run(*words, "--nonsense").err.endswith(f"(see millstream {' '.join(words)} --help)\n")
    assert f"millstream {' '.join(words)}" in run(*words, "--help").out


@pytest.mark.parametrize("service", ["registry", "rest", "console"])
def test_a_service_without_such_a_command(run, service):
    says = "there is neither a command 'list' nor a file of settings with that name"
    done = run(service, "list")
    assert (done.code, done.err) == (1, f"millstream {service}: {says}; see millstream {service} --help\n")
    assert "cannot read ./list: no such file" in run(service, "./list").err


def test_broker_has_help(run):
    with pytest.raises(SystemExit) as ended:  # argparse
        run("broker", "--help")
    assert ended.value.code == 0


def test_overview_and_broker_do_without_the_heavy_libraries():
    code = (
        "import sys; from millstream.__main__ import main; main(['--help']);"
        "print([m for m in ('typer', 'rich', 'kio', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr
    code = (
        "import sys; from millstream.__main__ import main\n"
        "try: main(['broker', '--help'])\n"
        "except SystemExit: print([m for m in sys.modules if m.split('.')[0] in ('typer', 'rich') or '.cli' "
        "in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [("topic", "topics"), ("kafka-topics.sh", "topics"), ("console-consume", "console-consumer")],
)
def test_unknown_commands_are_answered_with_a_guess(run, given, meant):
    done = run(given, "--list")
    assert done.code == 2
    assert f"did you mean '{meant}'?" in done.err


@pytest.mark.parametrize("name", ["share-groups", "kafka-share-groups.sh", "kafka-share-groups"])
def test_what_is_not_there_yet_is_said(run, name):
    done = run(name, "--list")
    assert done.code == 2
    assert "is not there yet: this release has" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topics", "--list", "--zookeeper", "localhost:2181"], "--bootstrap-server"),
        (["topics", "--list", "--zookeeper=localhost:2181"], "--bootstrap-server"),
        (["topics", "--alter", "--topic", "t", "--delete-config", "x"], "millstream configs --alter"),
        (["topics", "--alter", "--topic", "t", "--config", "x=1"], "millstream configs --alter"),
        (["configs", "--zookeeper", "x", "--describe"], "--bootstrap-server"),
        (["console-consumer", "--whitelist", "x"], "--include"),
        (["console-consumer", "--topic", "t", "--new-consumer"], "leave it out"),
        (["console-producer", "--topic", "t", "--new-producer"], "leave it out"),
        (["get-offsets", "--topic", "t", "--offsets", "3"], "leave it out"),
    ],
)
def test_options_that_are_gone_name_the_one_to_use(run, arguments, words):
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics"],
        ["topics", "--list", "--describe"],
        ["topics", "--list"],
        ["topics", "--nonsense"],
        ["topics", "--list", "-o", "xml", *NOWHERE],
        ["topics", "--list", "--partitions", "3", *NOWHERE],
        ["topics", "--create", "--topic", "t", "--partitions", "0", *NOWHERE],
        ["topics", "--create", "--topic", "t", "--partitions", "many", *NOWHERE],
        ["topics", "--create", "--topic", "t", "--replication-factor", "0", *NOWHERE],
        ["topics", "--create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1", *NOWHERE],
        ["topics", "--list", "--bootstrap-server", "host:port"],
        ["topics", "--alter", "--topic", "t", *NOWHERE],
        ["topics", "--create", "--topic", "t", "--topic", "u", *NOWHERE],
        ["topics", "--create", "--topic", "t", "--partitions", "2147483648", *NOWHERE],
        ["topics", "--create", "--topic", "t", "--replica-assignment", "99999999999", *NOWHERE],
        ["topics", "--describe", "--if-exists", *NOWHERE],
        ["topics", "--describe", "--topics-with-overrides", "--unavailable-partitions", *NOWHERE],
        ["topics", "--describe", "--partition-size-limit-per-response", "0", *NOWHERE],
        ["configs", "--describe", *NOWHERE],
        ["configs", "--describe", "--entity-type", "planets", *NOWHERE],
        ["configs", "--describe", "--topic", "a", "--broker", "1", *NOWHERE],
        ["configs", "--describe", "--broker", "one", *NOWHERE],
        ["configs", "--describe", "--topic", "a", "--add-config", "b=c", *NOWHERE],
        ["configs", "--alter", "--topic", "a", "--add-config", "b", *NOWHERE],
        ["configs", "--alter", "--user", "alice", *NOWHERE],
        ["acls", "--add", "--topic", "t", *NOWHERE],
        ["acls", *NOWHERE],
        ["delegation-tokens", "--create", *NOWHERE],
        ["client-metrics", "--list", "--name", "x", *NOWHERE],
        ["client-metrics", "--delete", *NOWHERE],
        ["client-metrics", "--alter", "--name", "x", "--generate-name", *NOWHERE],
        ["api-keys", "create", *NOWHERE],
        ["service-accounts", "create", *NOWHERE],
        ["configs", "--describe", "--entity-type", "topics", "--entity-default", *NOWHERE],
        ["configs", "--describe", "--entity-type", "broker-loggers", *NOWHERE],
        ["configs", "--describe", "--topic", "a", "--entity-name", "b", *NOWHERE],
        [
            "configs",
            "--describe",
            "--entity-type",
            "brokers",
            "--entity-name",
            "1",
            "--entity-default",
            *NOWHERE,
        ],
        ["configs", "--describe", "--topic", "a", "--bootstrap-controller", "127.0.0.1:1"],
        ["configs", "--alter", "--topic", "a", "--add-config", "b=c", "--add-config-file", "f", *NOWHERE],
        ["configs", "--alter", "--topic", "a", "--add-config", "b;c=d", *NOWHERE],
        ["configs", "--alter", "--topic", "a", "--add-config", "b==", *NOWHERE],
        ["configs", "--alter", "--topic", "a", "--add-config", "b=[c,d,e=f", *NOWHERE],
        ["get-offsets", "--time", "noon", *NOWHERE],
        ["get-offsets", "--time", "99999999999999999999", *NOWHERE],
        ["get-offsets", "--topic", "(", *NOWHERE],
        ["get-offsets", "--topic-partitions", "t:x", *NOWHERE],
        ["console-producer", *NOWHERE],
        ["console-producer", "--topic", "t", "--compression-codec", "rar", *NOWHERE],
        ["console-producer", "--topic", "t", "--request-required-acks", "2", *NOWHERE],
        ["console-producer", "--topic", "t", "--line-reader", "com.example.Reader", *NOWHERE],
        ["console-producer", "--topic", "t", "--reader-property", "parse.kye=true", *NOWHERE],
        ["console-producer", "--topic", "t", "--reader-property", "a=1", "--property", "b=1", *NOWHERE],
        [
            "console-producer",
            "--topic",
            "t",
            "--command-property",
            "a=1",
            "--producer-property",
            "b=1",
            *NOWHERE,
        ],
        ["console-producer", "--topic", "t", "--command-config", "a", "--producer.config", "b", *NOWHERE],
        [
            "console-producer",
            "--topic",
            "t",
            "--compression-codec",
            "gzip",
            "--command-property",
            "compression.gzip.level=10",
            *NOWHERE,
        ],
        ["console-consumer", *NOWHERE],
        ["console-consumer", "--topic", "t", "--group", "g", "--command-property", "group.id=h", *NOWHERE],
        ["console-consumer", "--topic", "t", "--partition", "-1", *NOWHERE],
        ["console-consumer", "--topic", "t", "--partition", "0", "--offset", "9223372036854775808", *NOWHERE],
        ["console-consumer", "--topic", "t", "--partition", "0", "--offset", "-3", *NOWHERE],
        ["console-consumer", "--topic", "t", "--formatter-property", "a=1", "--property", "b=1", *NOWHERE],
        [
            "console-consumer",
            "--topic",
            "t",
            "--command-property",
            "a=1",
            "--consumer-property",
            "b=1",
            *NOWHERE,
        ],
        ["console-consumer", "--topic", "t", "--command-config", "a", "--consumer.config", "b", *NOWHERE],
        [
            "console-consumer",
            "--topic",
            "t",
            "--from-beginning",
            "--command-property",
            "auto.offset.reset=latest",
            *NOWHERE,
        ],
        ["console-consumer", "--topic", "t", "--command-property", "auto.offset.reset=5", *NOWHERE],
        ["console-consumer", "--topic", "t", "--command-property", "auto.offset.reset=none", *NOWHERE],
        ["console-consumer", "--topic", "t", "--command-property", "fetch.max.bytes=2147483648", *NOWHERE],
        ["consumer-groups", "--delete-offsets", "--group", "g", "--group", "h", "--topic", "t", *NOWHERE],
        ["consumer-groups", "--list", "--timeout", "-1", *NOWHERE],
        ["transactions", "describe-producers", "--topic", "t", "--partition", "2147483648", *NOWHERE],
        [
            "console-consumer",
            "--topic",
            "t",
            "--partition",
            "0",
            "--offset",
            "1",
            "--from-beginning",
            *NOWHERE,
        ],
        ["console-consumer", "--topic", "t", "--isolation-level", "some", *NOWHERE],
        ["console-consumer", "--topic", "t", "--formatter", "com.example.Formatter", *NOWHERE],
        ["console-consumer", "--topic", "t", "--command-property", "security.protocol=SASL_SSL", *NOWHERE],
        ["dump-log"],
        ["dump-log", "--files", "x.log", "--offsets-decoder"],
        ["delete-records", *NOWHERE],
    ],
    ids=" ".join,
)
def test_mistakes_end_with_2_and_one_line(run, arguments):
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert done.err.endswith(f"(see millstream {arguments[0]} --help)\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "--list"],
        ["configs", "--describe", "--topic", "t"],
        ["get-offsets"],
        ["console-consumer", "--topic", "t"],
    ],
    ids=" ".join,
)
def test_a_broker_that_is_not_there_is_one_line(run, arguments):
    done = run(*arguments, *NOWHERE)
    assert (done.code, done.out) == (1, "")
    assert done.err == "cannot reach a broker at 127.0.0.1:1: connection refused\n"


def test_no_traceback_ever(run):
    done = run("console-producer", "--topic", "t", *NOWHERE, stdin="line\n")
    assert done.code == 1
    assert done.err == "cannot reach a broker at 127.0.0.1:1: connection refused\n"


def test_files_that_cannot_be_read(run, tmp_path):
    missing = str(tmp_path / "missing")
    for arguments in (
        ["topics", "--list", "--command-config", missing],
        ["delete-records", "--offset-json-file", missing],
        ["dump-log", "--files", missing],
    ):
        done = run(*arguments, *(() if arguments[0] == "dump-log" else NOWHERE))
        assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert missing in done.err


def test_old_names_are_warned_of(run):
    done = run("console-consumer", "--topic", "t", "--property", "print.key=true", *NOWHERE)
    assert done.err.splitlines()[0] == "Option --property is deprecated. Use --formatter-property instead."


def test_an_option_that_may_be_repeated_may_be_repeated(run, tmp_path):
    files = ("--files", str(tmp_path / "a"), "--files", str(tmp_path / "b"))
    assert run("dump-log", *files).err == f"{tmp_path / 'a'} is not a file\n"
    done = run("topics", "--create", "--topic", "t", "--config", "a=1", "--config", "b=2", *NOWHERE)
    assert "cannot reach" in done.err
    assert "more than once" in run("topics", "--list", "--topic=t", "--topic", "u", *NOWHERE).err
    assert "more than once" in run("topics", "--list", *NOWHERE, "--broker-list", "127.0.0.1:1").err


def test_groups_have_to_agree_on_their_name(run, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("group.id=a\n")
    words = ("console-consumer", "--topic", "t", "--command-config", str(file), *NOWHERE)
    done = run(*words, "--command-property", "group.id=b")
    assert done.code == 2
    assert "do not match. Detected group ids: b, a" in done.err
    assert "cannot reach" in run(*words, "--group", "a", "--command-property", "group.id=a").err


def test_the_file_for_deletions_has_numbers_that_fit(run, tmp_path):
    file = tmp_path / "offsets.json"
    for name, partition, offset in (("partition", 1 << 31, 0), ("offset", 0, 1 << 63), ("offset", 0, -2)):
        entry = f'{{"topic": "t", "partition": {partition}, "offset": {offset}}}'
        file.write_text(f'{{"partitions": [{entry}]}}')
        done = run("delete-records", "--offset-json-file", str(file), *NOWHERE)
        assert (done.code, len(done.err.splitlines())) == (1, 1)
        assert f"`{name}` is out of range" in done.err


def test_command_config_is_read(run, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers = 127.0.0.1:2\nclient.id=me\n")
    assert "127.0.0.1:2" in run("topics", "--list", "--command-config", str(file)).err


# --- parsers ------------------------------------------------------------------------------------------------


def test_added_settings():
    assert parse_added("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    assert parse_added(" a = 1 , b=[u=v] ") == {"a": "1", "b": "u=v"}
    assert parse_added("a=[b=c,d=e],f=g") == {"a": "b=c,d=e", "f": "g"}
    assert parse_added("") == {}


def test_replica_assignments():
    assert parse_assignment("1:2,2:3") == [[1, 2], [2, 3]]
    for bad in ("1:1", "1:2,3", "a", "1:,2"):
        with pytest.raises(UsageError):
            parse_assignment(bad)


def test_times():
    assert [parse_time(t) for t in ("latest", "-2", "max-timestamp", "1700000000000")] == [
        -1,
        -2,
        -3,
        1700000000000,
    ]
    for bad in ("-7", str(1 << 63), "noon"):
        with pytest.raises(UsageError):
            parse_time(bad)


def test_partition_patterns():
    def accepted(text):
        wanted = pattern_filter(text)
        return [(t, p) for t in ("a", "bc") for p in range(5) if wanted(t, p)]

    assert accepted("a:1") == [("a", 1)]
    assert accepted("a:1-3") == [("a", 1), ("a", 2)]
    assert accepted("a:3-") == [("a", 3), ("a", 4)]
    assert accepted("b.*:-2") == [("bc", 0), ("bc", 1)]
    assert accepted(":0") == [("a", 0), ("bc", 0)]
    assert len(accepted("a,bc")) == 10


def test_java_order():
    """As Kafka's tool printed them for a topic with 33 settings in all."""
    names = ["cleanup.policy", "max.message.bytes", "min.insync.replicas", "retention.ms"]
    fill = [f"other.{n}" for n in range(29)]
    settings = [ConfigEntry(name, "", 1, False, False, [], None) for name in names + fill]
    ordered = [s.name for s in in_java_order(settings) if s.name in names]
    assert ordered == ["min.insync.replicas", "cleanup.policy", "retention.ms", "max.message.bytes"]


def test_program_runs_as_a_module():
    done = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("millstream ")
