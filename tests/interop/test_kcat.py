"""kcat, the command line client on an older librdkafka."""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping

import pytest

from .clients import Client, Record

NewTopic = Callable[..., str]
KCAT = shutil.which("kcat") or shutil.which("kafkacat")


@pytest.fixture
def kcat(bootstrap: str) -> Callable[..., str]:
    def run(*arguments: str, text: str = "") -> str:
        assert KCAT is not None
        command = [KCAT, "-b", bootstrap, "-X", "message.timeout.ms=20000", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_list_of_brokers_and_topics(
    kcat: Callable[..., str], new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic(partitions=3)
    listed = json.loads(kcat("-L", "-J", "-t", topic))
    assert [one["name"] for one in listed["brokers"]] == [bootstrap.replace("localhost", "127.0.0.1")]
    (found,) = listed["topics"]
    assert (found["topic"], len(found["partitions"])) == (topic, 3)
    assert f'topic "{topic}" with 3 partitions' in kcat("-L")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_in_lines_out(
    kcat: Callable[..., str], new_topic: NewTopic, clients: Mapping[str, Client], codec: str
) -> None:
    topic = new_topic()
    lines = "".join(f"key{n}:value number {n}\n" for n in range(500))
    kcat("-P", "-t", topic, "-K:", "-z", codec, "-H", "from=kcat", text=lines)
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k:%s\n") == lines
    got = clients["kafka-python"].consume(topic, 0, count=500)
    assert [(one.key, one.value) for one in got] == [
        (b"key%d" % n, b"value number %d" % n) for n in range(500)
    ]
    assert list(got[0].headers) == [("from", b"kcat")]


def test_it_reads_what_others_wrote(
    kcat: Callable[..., str], new_topic: NewTopic, clients: Mapping[str, Client]
) -> None:
    topic = new_topic(configs={"retention.ms": "-1"})
    records = [Record(b"v%d" % n, None, [("h", b"1")], 0, 1_700_000_000_000 + n) for n in range(10)]
    clients["aiokafka"].produce(topic, [*records, Record(None, b"gone", (), 0)])
    printed = kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J").splitlines()
    first, *_, last = (json.loads(line) for line in printed)
    assert len(printed) == 11
    assert (first["payload"], first["key"], first["ts"], first["headers"]) == (
        "v0",
        None,
        1_700_000_000_000,
        ["h", "1"],
    )
    assert (last["payload"], last["key"]) == (None, "gone")


def test_offsets_by_position_and_time(
    kcat: Callable[..., str], new_topic: NewTopic, clients: Mapping[str, Client]
) -> None:
    topic = new_topic(configs={"retention.ms": "-1"})
    t0 = 1_700_000_000_000
    clients["confluent"].produce(topic, [Record(b"%d" % n, None, (), 0, t0 + n * 1000) for n in range(10)])
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "7", "-e", "-q").split() == ["7", "8", "9"]
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "-2", "-e", "-q").split() == ["8", "9"]
    assert kcat("-C", "-t", topic, "-p", "0", "-o", f"s@{t0 + 8500}", "-e", "-q").split() == ["9"]
    assert f"{topic} [0] offset 5" in kcat("-Q", "-t", f"{topic}:0:{t0 + 4500}")


def test_it_makes_a_topic_by_writing_to_it(kcat: Callable[..., str], name: str) -> None:
    kcat("-P", "-t", name, text="first\n")
    assert kcat("-C", "-t", name, "-p", "0", "-o", "beginning", "-e", "-q") == "first\n"


def test_idempotent_and_acks(kcat: Callable[..., str], new_topic: NewTopic) -> None:
    topic = new_topic()
    kcat("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", text="a\nb\n")
    for acks in ("0", "1", "all"):
        kcat("-P", "-t", topic, "-p", "0", "-X", f"acks={acks}", text=f"{acks}\n")
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "5", "-q").split() == [
        "a",
        "b",
        "0",
        "1",
        "all",
    ]


def test_a_message_of_one_megabyte(
    kcat: Callable[..., str], new_topic: NewTopic, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = new_topic()
    file = tmp_path_factory.mktemp("kcat") / "big"
    file.write_text("x" * 1_000_000)
    kcat("-P", "-t", topic, "-p", "0", "-X", "message.max.bytes=2000000", str(file))
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "0", "-c", "1", "-q", "-f", "%S") == "1000000"
