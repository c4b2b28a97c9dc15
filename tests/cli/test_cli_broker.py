"""The tools with our broker, beyond the recorded story: words as actions, styles, pipes and signals."""

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest
import yaml

from .conftest import PROGRAM


@pytest.fixture
def to(bootstrap):
    return ("--bootstrap-server", bootstrap)


@pytest.fixture
def topic(run, to):
    name = f"cli-{uuid.uuid4().hex[:12]}"
    assert run("topics", "create", name, "--partitions", "2", *to).out == f"Created topic {name}.\n"
    return name


@pytest.fixture
def filled(run, to, topic):
    """A topic with five keyed records."""
    lines = "".join(f"k{n}\tv{n}\n" for n in range(5))
    done = run("console-producer", "--topic", topic, "--property", "parse.key=true", *to, stdin=lines)
    assert (done.code, done.out) == (0, "")
    assert "--reader-property" in done.err
    return topic


# --- topics and settings ------------------------------------------------------------------------------------


def test_actions_as_words(run, to, topic):
    assert topic in run("topics", "list", *to).out.splitlines()
    assert f"Topic: {topic}\tPartition: 1" in run("topics", "describe", topic, *to).out
    assert run("topics", "alter", topic, "--partitions", "3", *to).code == 0
    assert run("configs", "alter", "--topic", topic, "--add-config", "retention.ms=9000", *to).code == 0
    assert "  retention.ms=9000 " in run("configs", "describe", "--topic", topic, *to).out
    assert run("topics", "delete", topic, *to).code == 0
    assert topic not in run("topics", "list", *to).out


def test_broker_list_is_an_alias(run, bootstrap, topic):
    assert topic in run("topics", "--list", "--broker-list", bootstrap).out


def test_unset_what_is_not_set(run, to, topic):
    done = run("configs", "alter", "--topic", topic, "--delete-config", "segment.bytes,flush.ms", *to)
    assert (done.code, done.out, done.err) == (0, f"Completed updating config for topic {topic}.\n", "")


def test_what_is_not_there_has_no_settings(run, to, topic):
    for entity, name in (
        ("topics", "nowhere"),
        ("brokers", "3"),
        ("broker-loggers", "3"),
        ("groups", "nobody"),
        ("client-metrics", "none"),
    ):
        done = run("configs", "describe", "--entity-type", entity, "--entity-name", name, *to)
        words = f"The {entity[:-1]} '{name}' doesn't exist and doesn't have dynamic config.\n"
        assert (done.code, done.out, done.err) == (1, "", words)
    done = run("configs", "describe", "--topic", "nowhere", "--all", *to)
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    done = run("configs", "alter", "--broker-logger", "1", "--add-config", "nothing.here=INFO", *to)
    assert (done.code, done.err) == (1, "Invalid broker logger(s): nothing.here\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("--topic", "TOPIC", "--delete-config", "retention.msec"),
            "Unknown topic config name: retention.msec; did you mean 'retention.ms'?",
        ),
        (("--topic", "TOPIC", "--delete-config", "flush.ms,x"), "Unknown topic config name: x"),
        (
            ("--group", "g", "--delete-config", "consumer.session.tmeout.ms"),
            "Unknown group config name: consumer.session.tmeout.ms; "
            "did you mean 'consumer.session.timeout.ms'?",
        ),
        (("--broker", "1", "--delete-config", "no.such"), "Unknown broker config name: no.such"),
        (("--broker-defaults", "--delete-config", "no.such"), "Unknown broker config name: no.such"),
        (
            ("--broker-defaults", "--add-config", "log.cleaner.thread=2"),
            "Unknown broker config name: log.cleaner.thread; did you mean 'log.cleaner.threads'?",
        ),
        (
            ("--broker-logger", "1", "--add-config", "millstream.brokr=INFO"),
            "Invalid broker logger(s): millstream.brokr; did you mean 'millstream.broker'?",
        ),
    ],
)
def test_a_mistyped_setting_is_not_removed_without_a_word(run, to, topic, words, says):
    done = run("configs", "alter", *(topic if word == "TOPIC" else word for word in words), *to)
    assert (done.code, done.out, done.err) == (1, "", f"{says}\n")


def test_a_setting_that_a_plugin_may_know_can_be_set_and_removed(run, to):
    for change in (("--add-config", "our.plugin.rate=2"), ("--delete-config", "our.plugin.rate")):
        assert run("configs", "alter", "--broker", "1", *change, *to).code == 0
    done = run("configs", "alter", "--broker", "1", "--delete-config", "our.plugin.rate", *to)
    assert done.err == "Unknown broker config name: our.plugin.rate\n"


def test_groups_without_settings_are_there_too(run, to, filled):
    assert run("console-consumer", "--topic", filled, "--group", filled, "--timeout-ms", "500", *to).code == 0
    line = f"Dynamic configs for group {filled} are:"
    assert line in run("configs", "describe", "--entity-type", "groups", *to).out.splitlines()
    assert run("configs", "describe", "--group", filled, *to).out == f"{line}\n"


def test_settings_from_a_file(run, to, topic, tmp_path):
    file = tmp_path / "new.properties"
    file.write_text("retention.ms=1000\ncleanup.policy=compact,delete\n")
    assert run("configs", "alter", "--topic", topic, "--add-config-file", str(file), *to).code == 0
    data = json.loads(run("configs", "describe", "--topic", topic, "-o", "json", *to).out)
    found = {c["name"]: c["value"] for c in data[0]["configs"]}
    assert found == {"retention.ms": "1000", "cleanup.policy": "compact,delete"}


def test_describe_by_id(run, to, topic):
    (facts,) = json.loads(run("topics", "describe", topic, "-o", "json", *to).out)
    by_id = run("topics", "--describe", "--topic-id", facts["topic_id"], *to)
    assert by_id.out == run("topics", "describe", topic, *to).out
    assert run("topics", "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ", *to).code == 1
    # An id that nothing has.
    by_name = run("topics", "--describe", "--topic-id", "A" * 22, "--topic", topic, *to)
    assert by_name.out == by_id.out


@pytest.mark.parametrize("style", ["json", "yaml"])
def test_styles_for_programs(run, to, filled, style):
    parse = json.loads if style == "json" else yaml.safe_load

    def ask(*arguments):
        done = run(*arguments, *to, "-o", style)
        assert done.code == 0, done.err
        return parse(done.out)

    assert filled in ask("topics", "list")
    (topic,) = ask("topics", "describe", filled)
    assert [p["partition"] for p in topic["partitions"]] == [0, 1]
    assert topic["partitions"][0]["isr"] == topic["partitions"][0]["replicas"]
    (entity,) = ask("configs", "describe", "--topic", filled, "--all")
    by_name = {c["name"]: c for c in entity["configs"]}
    assert by_name["segment.bytes"]["source"] == "DEFAULT_CONFIG"
    offsets = ask("get-offsets", "--topic", filled)
    assert sum(entry["offset"] for entry in offsets) == 5
    new = f"cli-{uuid.uuid4().hex[:12]}"
    assert ask("topics", "create", new)["name"] == new
    assert ask("topics", "alter", new, "--partitions", "5") == [{"name": new, "partitions": 5}]
    assert ask("configs", "alter", "--topic", new, "--add-config", "flush.ms=5")["set"] == {"flush.ms": "5"}
    assert ask("topics", "delete", new) == [{"name": new, "deleted": True}]


def test_tables(run, to, filled, tmp_path):
    for arguments in (
        ["topics", "list"],
        ["topics", "describe", filled],
        ["configs", "describe", "--topic", filled, "--all"],
        ["get-offsets", "--topic", filled],
        ["console-consumer", "--topic", filled, "--from-beginning", "--max-messages", "5"],
    ):
        done = run(*arguments, *to, "-o", "table")
        assert done.code == 0
        assert "───" in done.out
        assert "\x1b" not in done.out, "no colours in a pipe"


def test_delete_records_reports_what_failed(run, to, filled, tmp_path):
    entries = [
        {"topic": filled, "partition": 0, "offset": -1},
        {"topic": filled, "partition": 1, "offset": 999},
        {"topic": "no-such-topic", "partition": 0, "offset": 1},
    ]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": entries}))
    done = run("delete-records", "--offset-json-file", str(file), *to)
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[2].startswith(f"partition: {filled}-0\tlow_watermark: ")
    assert lines[3].startswith(f"partition: {filled}-1\terror: OFFSET_OUT_OF_RANGE")
    assert lines[4].startswith("partition: no-such-topic-0\terror: UNKNOWN_TOPIC_OR_PARTITION")
    data = json.loads(run("delete-records", "--offset-json-file", str(file), "-o", "json", *to).out)
    assert ["low_watermark" in entry for entry in data] == [True, False, False]


# --- producer and consumer ----------------------------------------------------------------------------------


def test_json_lines(run, to, filled):
    done = run(
        "console-consumer", "--topic", filled, "--from-beginning", "--max-messages", "5", "-o", "json", *to
    )
    records = [json.loads(line) for line in done.out.splitlines()]
    assert sorted((r["key"], r["value"]) for r in records) == [(f"k{n}", f"v{n}") for n in range(5)]
    assert done.err == "Processed a total of 5 messages\n"
    done = run(
        "console-consumer", "--topic", filled, "--from-beginning", "--max-messages", "5", "-o", "yaml", *to
    )
    assert len(list(yaml.safe_load_all(done.out))) == 5


def test_keys_choose_partitions_as_java_does(run, to, filled):
    from millstream.wire.murmur2 import partition_for

    done = run(
        "console-consumer", "--topic", filled, "--from-beginning", "--max-messages", "5", "-o", "json", *to
    )
    for record in map(json.loads, done.out.splitlines()):
        assert record["partition"] == partition_for(record["key"].encode(), 2)


def test_silence_ends_it(run, to, filled):
    done = run("console-consumer", "--topic", filled, "--timeout-ms", "100", *to)
    assert (done.code, done.out) == (0, "")


def test_bytes_pass_unchanged(run, to, topic):
    data = bytes(b for b in range(256) if b not in (10, 13))
    assert run("console-producer", "--topic", topic, *to, stdin=data + b"\n").code == 0
    command = [*PROGRAM, "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "1", *to]
    assert subprocess.run(command, capture_output=True, timeout=60).stdout == data + b"\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "none"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_codecs_and_acks(run, to, topic, codec, acks):
    arguments = ["--compression-codec", codec, "--request-required-acks", acks]
    done = run("console-producer", "--topic", topic, *arguments, "-o", "json", *to, stdin="a\nb\n")
    assert sum(entry["records"] for entry in json.loads(done.out)) == 2
    read = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2", *to)
    assert read.out == "a\nb\n"


@pytest.mark.parametrize(("options", "sent"), [((), "a\nb\nc\n"), (("--sync",), "a\n")])
def test_a_record_too_large(run, to, options, sent):
    """It does not take along those that are sent with it; one at a time it is the last."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    run("topics", "create", name, "--partitions", "1", "--config", "max.message.bytes=1000", *to)
    done = run("console-producer", "--topic", name, *options, *to, stdin=f"a\n{'x' * 5000}\nb\nc\n")
    assert done.code == 1
    assert "max.message.bytes" in done.err
    assert run("console-producer", "--topic", name, *to, stdin="end\n").code == 0
    count = str(len(sent.splitlines()) + 1)
    read = run("console-consumer", "--topic", name, "--from-beginning", "--max-messages", count, *to)
    assert read.out == sent + "end\n"


def test_options_count_more_than_properties(run, to, topic):
    options = (
        "--request-required-acks",
        "1",
        "--timeout",
        "5",
        "--batch-size",
        "1000",
        "--max-block-ms",
        "9000",
    )
    bad = [w for name in ("acks", "linger.ms", "batch.size") for w in ("--command-property", f"{name}=bad")]
    done = run("console-producer", "--topic", topic, *options, *bad, *to, stdin="one\n")
    assert (done.code, done.err) == (0, "")
    read = ("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "1", *to)
    done = run(*read, "--isolation-level", "read_committed", "--command-property", "isolation.level=bad")
    assert done.out == "one\n"
    number = "key.deserializer=IntegerDeserializer"
    assert run(*read, "--key-deserializer", "Nonsense", "--formatter-property", number).out == "one\n"


def test_where_to_begin(run, to, filled):
    read = ("console-consumer", "--topic", filled, *to)
    to_the_first, to_silence = ("--max-messages", "1"), ("--timeout-ms", "500")
    for words, found in (
        (("--partition", "0", "--offset", "EARLIEST"), True),
        (("--command-property", "auto.offset.reset=earliest"), True),
        (("--command-property", "auto.offset.reset=by_duration:PT1H"), True),
        (("--command-property", "auto.offset.reset=by_duration:PT0S"), False),
        (("--command-property", "auto.offset.reset=by_duration:PT1H", "--group", f"{filled}-ago"), True),
        (("--command-property", "auto.offset.reset=latest"), False),
    ):
        done = run(*read, *words, *(to_the_first if found else to_silence))
        assert (done.code, bool(done.out)) == (0, found), (words, done)


def test_topic_is_created_by_the_first_line(run, to):
    name = f"cli-{uuid.uuid4().hex[:12]}"
    assert run("console-producer", "--topic", name, *to, stdin="first\n").code == 0
    assert (
        run("console-consumer", "--topic", name, "--from-beginning", "--max-messages", "1", *to).out
        == "first\n"
    )


@pytest.mark.parametrize("more", [(), ("--group", "readers")])
def test_reading_creates_no_topic_unless_it_is_to(run, to, topic, more):
    mistyped = f"{topic}x"
    read = ("console-consumer", "--topic", mistyped, "--timeout-ms", "100", *more, *to)
    done = run(*read)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"topic {mistyped} does not exist; did you mean '{topic}'? ")
    assert mistyped not in run("topics", "list", *to).out
    assert run(*read, "--command-property", "allow.auto.create.topics=true").code == 0
    assert mistyped in run("topics", "list", *to).out.splitlines()


@pytest.mark.parametrize(
    "tool",
    [
        ("console-consumer",),
        ("console-producer",),
        ("perf", "produce", "--num-records", "1", "--record-size", "1"),
        ("perf", "consume", "--num-records", "1"),
    ],
)
def test_a_mistyped_property_is_refused_and_mentioned_in_a_file(run, to, tool, tmp_path):
    topic = ("--topic", "nowhere")
    done = run(*tool, *topic, *to, "--command-property", "request.timeoutms=5")
    assert done.code == 2
    says = "'request.timeoutms' is not a property of a Kafka client; did you mean 'request.timeout.ms'?"
    assert done.err.startswith(says)
    file = tmp_path / "client.properties"
    file.write_text("request.timeoutms=5\nof.another.program=1\nacks=bad\nfetch.min.bytes=bad\n")
    done = run(*tool, *topic, *to, "--command-config", str(file))
    assert done.err.splitlines()[0] == f"{file}: {says}"
    assert len(done.err.splitlines()) == 2


def test_offsets_gone_by_retention_are_skipped_over(run, to, filled, tmp_path):
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": [{"topic": filled, "partition": 0, "offset": -1}]}))
    run("delete-records", "--offset-json-file", str(file), *to)
    done = run(
        "console-consumer", "--topic", filled, "--partition", "0", "--offset", "0", "--timeout-ms", "500", *to
    )
    assert (done.code, done.out) == (0, "")
    assert "out of range" in done.err


def test_missing_partition(run, to, topic):
    done = run("console-consumer", "--topic", topic, "--partition", "7", *to)
    assert (done.code, done.err) == (1, f"topic {topic} has no partition 7: it has 2, from 0\n")


def test_unreadable_records_stop_it_or_are_skipped(run, to, filled):
    arguments = ["--topic", filled, "--from-beginning", "--max-messages", "5"]
    arguments += ["--value-deserializer", "LongDeserializer"]
    done = run("console-consumer", *arguments, *to)
    assert done.code == 1
    assert "8 bytes expected" in done.err
    done = run("console-consumer", *arguments, "--skip-message-on-error", *to)
    assert done.code == 0
    assert done.err.count("Skipped the record") == 5


def test_a_reader_that_has_seen_enough(to, filled):
    command = " ".join([*PROGRAM, "console-consumer", "--topic", filled, "--from-beginning", *to])
    script = f"set -o pipefail; {command} --timeout-ms 3000 | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_following_a_topic_until_a_signal(run, to, topic, number, code):
    command = [*PROGRAM, "console-consumer", "--topic", topic, "--from-beginning", *to]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        run("console-producer", "--topic", topic, *to, stdin="live\n")
        assert process.stdout is not None
        assert process.stdout.readline() == b"live\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err == b"Processed a total of 1 messages\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_read_is_sent_before_a_signal_ends_it(run, to, topic, number, code):
    command = [
        *PROGRAM,
        "console-producer",
        "--topic",
        topic,
        "--batch-size",
        "30",
        "--timeout",
        "60000",
        *to,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"full batch\nwaiting\n")  # the second line sends the first and then waits
        process.stdin.flush()
        read = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "1", *to)
        assert read.out == "full batch\n"
        process.send_signal(number)
        assert process.wait(30) == code
    read = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2", *to)
    assert sorted(read.out.split("\n")) == ["", "full batch", "waiting"]


def test_lines_are_sent_while_the_input_is_open(run, to, topic):
    command = [*PROGRAM, "console-producer", "--topic", topic, "--timeout", "50", *to]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"early\n")
        process.stdin.flush()
        read = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "1", *to)
        assert read.out == "early\n"
        process.stdin.close()
        assert process.wait(30) == 0


def test_new_partitions_and_topics_are_noticed(run, to, topic):
    often = ("--command-property", "metadata.max.age.ms=100")
    command = [*PROGRAM, "console-consumer", "--include", f"{topic}.*", "--from-beginning", *often, *to]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        run("console-producer", "--topic", topic, *to, stdin="old\n")
        assert process.stdout.readline() == b"old\n"
        run("topics", "alter", topic, "--partitions", "3", *to)
        keyed = ("--reader-property", "parse.key=true")
        run(
            "console-producer",
            "--topic",
            topic,
            *keyed,
            *to,
            stdin="".join(f"k{n}\tnew\n" for n in range(20)),
        )
        assert [process.stdout.readline() for _ in range(20)] == [b"new\n"] * 20
        run("console-producer", "--topic", f"{topic}-second", *to, stdin="other\n")
        assert process.stdout.readline() == b"other\n"
        process.terminate()


# --- dump-log -----------------------------------------------------------------------------------------------


KAFKA_LOG = Path(__file__).with_name("kafka_log")
LOG_NAME = "00000000000000000000.log"


@pytest.mark.parametrize(
    ("name", "options"), [("plain", []), ("deep", ["--deep-iteration"]), ("data", ["--print-data-log"])]
)
def test_dump_of_a_log_that_kafka_wrote(run, monkeypatch, name, options):
    monkeypatch.chdir(KAFKA_LOG)
    done = run("dump-log", "--files", LOG_NAME, *options)
    assert (done.code, done.err) == (0, "")
    assert done.out == (KAFKA_LOG / f"{name}.txt").read_text()
    assert run("dump-log", LOG_NAME, *options).out == done.out


def test_dump_for_programs(run):
    path = str(KAFKA_LOG / LOG_NAME)
    (file,) = json.loads(run("dump-log", path, "--print-data-log", "-o", "json").out)
    batches = file["entries"]
    assert [b["base_offset"] for b in batches] == [0, 4, 6, 9, 11, 12, 16]
    assert batches[-1]["codec"] == "zstd"
    assert [r["value"] for r in batches[0]["records"]] == ["one", "two", "", "four"]
    assert "records" not in json.loads(run("dump-log", path, "-o", "json").out)[0]["entries"][0]
    assert "base_offset" in run("dump-log", path, "-o", "table").out


def test_dump_of_our_own_folder(run, to, filled, millstream_broker):
    folders = [Path(millstream_broker.data_dir) / f"{filled}-{n}" for n in range(2)]
    logs = [str(path) for folder in folders for path in folder.glob("*.log")]
    done = run("dump-log", "--files", ",".join(logs), "--print-data-log")
    assert done.code == 0
    for n in range(5):
        assert f"key: k{n} payload: v{n}" in done.out


def test_dump_of_what_is_no_log(run, tmp_path):
    (tmp_path / "name.log").write_bytes(b"")
    done = run("dump-log", "--files", str(tmp_path / "name.log"))
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    index = tmp_path / "00000000000000000000.index"
    (tmp_path / "00000000000000000000.log").write_bytes(b"")
    index.write_bytes(b"\0" * 9)
    done = run("dump-log", "--files", str(index), "--index-sanity-check")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    (tmp_path / LOG_NAME).write_bytes(os.urandom(500))
    done = run("dump-log", "--files", str(tmp_path / LOG_NAME))
    assert done.code == 0
    assert "500 invalid bytes" in done.out
