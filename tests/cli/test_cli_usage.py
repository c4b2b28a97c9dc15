"""Help, mistakes and exit codes: what needs no broker."""

import subprocess
import sys

import pytest

from millstream import __version__
from millstream.cli.app import TOOLS
from millstream.cli.configs import parse_added
from millstream.cli.errors import UsageError
from millstream.cli.get_offsets import parse_time, pattern_filter
from millstream.cli.topics import in_java_order, parse_assignment
from millstream.client.admin import Setting

from .conftest import PROGRAM

COMMANDS = [
    name
    for name, tool in TOOLS.items()
    if tool.module and name not in ("perf", "pipeline", "profile", "streams")
]
WITHOUT_STYLES = ("up", "down", "logs", "demo", "completion")
NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


def test_overview(run):
    done = run("--help")
    assert done.code == 0
    for name in TOOLS:
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
        "except SystemExit: print([m for m in sys.modules if m.split('.')[0] in ('typer', 'rich') or '.cli' in m])"
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
        ["configs", "--describe", *NOWHERE],
        ["configs", "--describe", "--entity-type", "planets", *NOWHERE],
        ["configs", "--describe", "--topic", "a", "--broker", "1", *NOWHERE],
        ["configs", "--describe", "--broker", "one", *NOWHERE],
        ["configs", "--describe", "--topic", "a", "--add-config", "b=c", *NOWHERE],
        ["configs", "--alter", "--topic", "a", "--add-config", "b", *NOWHERE],
        ["configs", "--describe", "--user", "alice", *NOWHERE],
        ["configs", "--describe", "--entity-type", "topics", "--entity-default", *NOWHERE],
        ["get-offsets", "--time", "noon", *NOWHERE],
        ["get-offsets", "--topic", "(", *NOWHERE],
        ["get-offsets", "--topic-partitions", "t:x", *NOWHERE],
        ["console-producer", *NOWHERE],
        ["console-producer", "--topic", "t", "--compression-codec", "rar", *NOWHERE],
        ["console-producer", "--topic", "t", "--request-required-acks", "2", *NOWHERE],
        ["console-producer", "--topic", "t", "--line-reader", "com.example.Reader", *NOWHERE],
        ["console-producer", "--topic", "t", "--reader-property", "parse.kye=true", *NOWHERE],
        ["console-consumer", *NOWHERE],
        ["console-consumer", "--topic", "t", "--group", "g", "--command-property", "group.id=h", *NOWHERE],
        ["console-consumer", "--topic", "t", "--partition", "-1", *NOWHERE],
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


def test_command_config_is_read(run, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers = 127.0.0.1:2\nclient.id=me\n")
    assert "127.0.0.1:2" in run("topics", "--list", "--command-config", str(file)).err


# --- parsers -------------------------------------------------------------------------------------------------------------


def test_added_settings():
    assert parse_added("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    assert parse_added(" a = 1 , b=u=v ") == {"a": "1", "b": "u=v"}
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
    with pytest.raises(UsageError):
        parse_time("-7")


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
    settings = [Setting(name, "", 1, False, False, [], None) for name in names + fill]
    ordered = [s.name for s in in_java_order(settings) if s.name in names]
    assert ordered == ["min.insync.replicas", "cleanup.policy", "retention.ms", "max.message.bytes"]


def test_program_runs_as_a_module():
    done = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("millstream ")
