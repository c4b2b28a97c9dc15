"""`millstream consumer-groups` and `console-consumer --group` beyond the recorded story: styles, files,
several members."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.cli.consumer_groups import parse_states, parse_types, prepare, regex_problem
from millstream.cli.consumer_groups_describe import assignment_text
from millstream.cli.consumer_groups_reset import parse_datetime, parse_duration, read_plan
from millstream.cli.errors import CommandFailed, UsageError
from millstream.client import ClientConfig, Cluster
from millstream.client.groups import Committed, Groups
from millstream.client.range_assignor import (
    decode_assignment,
    encode_assignment,
    range_assign,
)
from millstream.testing import Broker
from millstream.wire.consumer_protocol import encode_subscription, topics_of
from tests.support.waiting import wait_until

from .conftest import PROGRAM, Run

WAIT = 30


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[Broker]:
    """One that does not wait for more members when the first one comes."""
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture
def bootstrap(quick_broker: Broker) -> str:
    return quick_broker.bootstrap_servers


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    producer.flush(WAIT)


def groups_of(bootstrap: str) -> Groups:
    return Groups(Cluster(ClientConfig.of(bootstrap)))


# --- words --------------------------------------------------------------------------------------------------


def test_moments() -> None:
    assert parse_datetime("2025-01-01T00:00:00.000") == 1_735_689_600_000
    assert parse_datetime("2025-01-01T00:00:00.123Z") == 1_735_689_600_123
    assert parse_datetime("2025-01-01T01:00:00.000+01:00") == 1_735_689_600_000
    assert parse_datetime("2024-12-31T19:00:00-0500") == 1_735_689_600_000
    for bad in ("2025-01-01", "2025-13-01T00:00:00", "Tomorrow"):
        with pytest.raises(UsageError):
            parse_datetime(bad)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P1D", 86_400_000),
        ("PT2H30M", 9_000_000),
        ("P1DT1H1M1.5S", 90_061_500),
        ("pt5m", 300_000),
        ("-PT1S", -1000),
        ("PT-6H", -21_600_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "5m", "P1M", "PT1X", "1D"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration(text)


def test_states_and_types() -> None:
    assert parse_states("stable, EMPTY") == ["Stable", "Empty"]
    assert parse_types("classic") == ["Classic"]
    with pytest.raises(UsageError, match="Invalid state list 'a,b'"):
        parse_states("a,b")
    with pytest.raises(UsageError, match="Invalid types list 'share'"):
        parse_types("share")


def test_options_whose_value_may_be_missing() -> None:
    assert prepare(["--list", "--state"]) == ["--list", "--state="]
    assert prepare(["--list", "--state", "--type", "x"]) == ["--list", "--state=", "--type", "x"]
    assert prepare(["describe", "g", "--state"]) == ["--describe", "--group", "g", "--state="]


def test_expressions(run) -> None:
    for valid in ("a.*b", r"\p{L}+", r"a\\1"):
        assert regex_problem(valid) == ""
    assert regex_problem("(a")
    for perl in ("(?=a)b", "(?<!a)b"):
        assert "unsupported" in regex_problem(perl)
    assert regex_problem(r"(a)\1") == "invalid escape sequence"
    command = ("consumer-groups", "--validate-regex", "[foo.*", "--bootstrap-server", "127.0.0.1:1")
    done = run(*command)
    # Kafka's tool prints the same line and ends with 0.
    assert (done.code, done.out) == (1, "The regular expression `[foo.*` is invalid: missing closing ].\n")


def test_files_with_offsets(tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text('orders,0,5\r\n"odd,name",1,7\n\n')
    assert read_plan(str(file), ["g"], True) == {"g": {("orders", 0): 5, ("odd,name", 1): 7}}
    file.write_text("g,orders,0,5\nh,orders,0,6\n")
    assert read_plan(str(file), ["g", "h"], False) == {"g": {("orders", 0): 5}, "h": {("orders", 0): 6}}
    assert read_plan(str(file), ["g"], True)["g"] == {("orders", 0): 5}
    for bad in ("orders,0\n", "orders,x,1\n", "orders,0,1\norders\n"):
        file.write_text(bad)
        with pytest.raises(CommandFailed, match="line"):
            read_plan(str(file), ["g"], True)


def test_what_members_tell_each_other() -> None:
    assert topics_of(encode_subscription(["a", "żółw"])) == ("a", "żółw")
    topic_partitions = (("a", 0), ("a", 3), ("b", 1))
    assert decode_assignment(encode_assignment(topic_partitions)) == topic_partitions
    assert decode_assignment(b"") == () == decode_assignment(b"\0\0\0\0\0\x09junk")
    assert assignment_text(topic_partitions) == "a:0,3;b:1"
    shares = range_assign({"x": ["a"], "y": ["a", "b"], "z": []}, {"a": 3, "b": 1, "c": 5})
    assert shares == {"x": [("a", 0), ("a", 1)], "y": [("a", 2), ("b", 0)], "z": []}


# --- styles -------------------------------------------------------------------------------------------------


def test_json_yaml_and_tables(run: Run, bootstrap: str) -> None:
    fill(bootstrap, "cg-styles", 2, 10)
    to = ("--bootstrap-server", bootstrap)
    scope = ("--group", "cg-styles", "--topic", "cg-styles", "--to-offset", "2")
    done = run("consumer-groups", *to, "--reset-offsets", *scope, "--execute", "-o", "json")
    assert done.code == 0
    assert json.loads(done.out) == [
        {"group": "cg-styles", "topic": "cg-styles", "partition": n, "new_offset": 2} for n in (0, 1)
    ]
    done = run("consumer-groups", "describe", "cg-styles", *to, "-o", "json")
    (group,) = json.loads(done.out)
    assert (group["group"], group["state"], group["type"]) == ("cg-styles", "Empty", "Classic")
    assert [(p["current_offset"], p["log_end_offset"], p["lag"]) for p in group["partitions"]] == [
        (2, 5, 3)
    ] * 2
    listed = yaml.safe_load(run("consumer-groups", "list", *to, "-o", "yaml").out)
    assert {"group": "cg-styles", "type": "Classic", "state": "Empty"} in listed
    table = run("consumer-groups", "describe", "cg-styles", *to, "-o", "table").out.splitlines()
    assert table[0].split() == [
        "Group",
        "Topic",
        "Partition",
        "Current",
        "End",
        "Lag",
        "Consumer",
        "Host",
        "Client",
    ]
    done = run("consumer-groups", *to, "--describe", "--state", "--group", "cg-styles", "-o", "json")
    assert json.loads(done.out)[0]["members"] == 0
    done = run("consumer-groups", *to, "--delete", "--group", "cg-styles", "-o", "json")
    assert json.loads(done.out) == [{"group": "cg-styles", "deleted": True, "error": None}]


def test_an_exported_plan_can_be_read_back(run: Run, bootstrap: str, tmp_path: Path) -> None:
    fill(bootstrap, "cg-export", 2, 10)
    to = ("--bootstrap-server", bootstrap, "--reset-offsets", "--group", "cg-export")
    plan = run("consumer-groups", *to, "--topic", "cg-export", "--to-latest", "--dry-run", "--export")
    assert plan.out == "cg-export,0,5\ncg-export,1,5\n\n"
    (tmp_path / "plan.csv").write_text(plan.out)
    done = run("consumer-groups", *to, "--from-file", str(tmp_path / "plan.csv"), "--execute")
    assert done.code == 0
    known = groups_of(bootstrap).committed("cg-export")
    assert {
        topic_partition: entry.offset
        for topic_partition, entry in known.items()
        if isinstance(entry, Committed)
    } == {
        ("cg-export", 0): 5,
        ("cg-export", 1): 5,
    }


def test_offsets_outside_of_the_log_are_moved_into_it(run: Run, bootstrap: str) -> None:
    fill(bootstrap, "cg-range", 1, 4)
    to = (
        "--bootstrap-server",
        bootstrap,
        "--reset-offsets",
        "--group",
        "cg-range",
        "--topic",
        "cg-range",
        "--dry-run",
    )
    done = run("consumer-groups", *to, "--to-offset", "99", "-o", "json")
    assert json.loads(done.out)[0]["new_offset"] == 4
    assert "New offset (99) is higher than latest offset for topic partition cg-range-0" in done.err
    done = run("consumer-groups", *to, "--to-offset", "-7", "-o", "json")
    assert json.loads(done.out)[0]["new_offset"] == 0
    assert "is lower than earliest offset" in done.err


def test_a_plan_without_the_group(run: Run, bootstrap: str, tmp_path: Path) -> None:
    fill(bootstrap, "cg-plan", 1, 4)
    file = tmp_path / "plan.csv"
    file.write_text("cg-plan,cg-plan,0,2\n")
    words = ("consumer-groups", "--bootstrap-server", bootstrap, "--reset-offsets", "--from-file", str(file))
    done = run(*words, "--group", "cg-plan", "--group", "cg-nobody", "--execute", "-o", "json")
    assert done.code == 1
    assert done.err == "Error: No reset plan for group cg-nobody found\n"
    assert [(entry["group"], entry["new_offset"]) for entry in json.loads(done.out)] == [("cg-plan", 2)]


def test_to_current_keeps_what_is_committed(run: Run, bootstrap: str) -> None:
    """Also where it is outside of the log by now."""
    fill(bootstrap, "cg-current", 2, 4)
    groups_of(bootstrap).commit("cg-current", {("cg-current", 0): 99})
    words = ("--reset-offsets", "--group", "cg-current", "--topic", "cg-current", "--to-current", "--dry-run")
    done = run("consumer-groups", "--bootstrap-server", bootstrap, *words, "-o", "json")
    assert [entry["new_offset"] for entry in json.loads(done.out)] == [99, 2]
    assert done.err == ""


def test_a_group_of_the_newer_protocol(run: Run, bootstrap: str) -> None:
    fill(bootstrap, "cg-newer", 2, 4)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "cg-newer",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "client.id": "worker",
        }
    )
    try:
        consumer.subscribe(["cg-newer"])
        read: list[object] = []

        def all_read() -> bool:
            read.extend(consumer.consume(4, 0.2))
            return len(read) >= 4

        wait_until(all_read, lambda: f"{len(read)} of 4 records")
        consumer.commit(asynchronous=False)
        to = ("--bootstrap-server", bootstrap)
        describe = ("consumer-groups", "describe", "cg-newer", *to)
        lines = run(*describe, "--members", "--verbose").out.splitlines()
        assert [line.split()[4:] for line in lines[2:]] == [["2", "2", "cg-newer:0,1", "2", "cg-newer:0,1"]]
        lines = run(*describe, "--state", "--verbose").out.splitlines()
        assert lines[2].split()[3:] == ["uniform", "Stable", "2", "2", "1"]
        (group,) = json.loads(run(*describe, "-o", "json").out)
        assert [(p["lag"], p["client_id"]) for p in group["partitions"]] == [(0, "worker")] * 2
        assert "cg-newer" in run("consumer-groups", "list", *to, "--type", "consumer").out
    finally:
        consumer.close()


# --- console-consumer --group -------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_was(run: Run, bootstrap: str) -> None:
    fill(bootstrap, "cc-on", 1, 5)
    read = (
        "console-consumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        "cc-on",
        "--group",
        "cc-on",
        "--from-beginning",
    )
    assert run(*read, "--max-messages", "3").out == "0\n1\n2\n"
    assert run(*read, "--max-messages", "1").out == "3\n"
    assert run(*read, "--max-messages", "1").out == "4\n"
    assert run(*read, "--timeout-ms", "300").out == ""
    (described,) = groups_of(bootstrap).describe(["cc-on"]).values()
    assert getattr(described, "state", None) == "Empty"


def test_without_a_commit_a_group_begins_again(run: Run, bootstrap: str) -> None:
    fill(bootstrap, "cc-off", 1, 2)
    read = (
        "console-consumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        "cc-off",
        "--group",
        "cc-off",
        "--from-beginning",
    )
    for _ in range(2):
        done = run(*read, "--max-messages", "2", "--command-property", "enable.auto.commit=false")
        assert done.out == "0\n1\n"


def test_one_partition_for_a_group(run: Run, bootstrap: str) -> None:
    fill(bootstrap, "cc-part", 2, 6)
    read = ("console-consumer", "--bootstrap-server", bootstrap, "--topic", "cc-part", "--group", "cc-part")
    done = run(*read, "--partition", "1", "--offset", "earliest", "--max-messages", "2")
    assert done.out == "1\n3\n"
    assert groups_of(bootstrap).committed("cc-part") == {("cc-part", 1): Committed(2, -1, "")}


def test_a_group_is_shared_with_other_clients(bootstrap: str) -> None:
    """librdkafka has all partitions, we come and get half of them, we leave, and it has all of them again."""
    fill(bootstrap, "cc-share", 4, 0)
    other = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "cc-share",
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "range",
        }
    )
    held: list[int] = []
    other.subscribe(
        ["cc-share"],
        on_assign=lambda _, partitions: held.append(len(partitions)),
    )
    stop = threading.Event()

    def follow() -> None:
        while not stop.is_set():
            other.poll(0.1)

    follower = threading.Thread(target=follow)
    follower.start()
    command = [
        "console-consumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        "cc-share",
        "--group",
        "cc-share",
    ]
    process = None
    try:
        wait_until(lambda: held == [4])
        process = subprocess.Popen([*PROGRAM, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: held[-1] == 2)
        groups = groups_of(bootstrap)
        wait_until(lambda: len(getattr(groups.describe(["cc-share"])["cc-share"], "members", ())) == 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 130
        wait_until(lambda: held[-1] == 4)
    finally:
        stop.set()
        follower.join()
        other.close()
        if process is not None:
            process.kill()
            process.communicate()
