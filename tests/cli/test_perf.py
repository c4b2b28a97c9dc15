"""`millstream perf`: Kafka's lines, and what is really in the topic afterwards."""

import json
import re

import pytest

from millstream.cli.perf import prepare
from millstream.cli.perf.payloads import BatchMaker, Payloads, Pool
from millstream.cli.perf.statistics import Latencies
from millstream.wire.compression import CODEC_IDS
from millstream.wire.records import iter_records

from .conftest import Run

SUMMARY = (
    r"(\d+)( steady state)? records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
PRODUCE = ("produce", "--topic", "t", "--num-records", "1", "--record-size", "1")
CONSUME = ("consume", "--topic", "t", "--num-records", "1")
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
CONSUMED = rf"{STAMP}, {STAMP}, ([\d.]+), [\d.]+, (\d+), [\d.]+, (\d+), \d+, [\d.]+, [\d.]+"


def ends(run: Run, bootstrap: str, topic: str) -> int:
    done = run("get-offsets", "--topic", topic, "--bootstrap-server", bootstrap)
    return sum(int(line.rpartition(":")[2]) for line in done.out.splitlines())


def test_produce_and_consume(run: Run, bootstrap: str) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", "perf-both")
    run("topics", "--create", "--partitions", "3", *to)
    words = ["--num-records", "5000", "--record-size", "50", "--throughput", "-1", "--print-metrics"]
    words += ["--reporting-interval", "600000"]  # no line before the summary, however slow
    done = run("perf", "produce", *to, *words)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert re.fullmatch(SUMMARY, lines[0]), lines[0]
    assert lines[2].startswith("Metric Name")
    assert ends(run, bootstrap, "perf-both") == 5000
    done = run("perf", "consume", *to, "--num-records", "5000", "--timeout", "5000")
    assert done.code == 0, done.err
    titles, line = done.out.splitlines()
    assert titles.startswith("start.time, end.time, data.consumed.in.MB, MB.sec")
    found = re.fullmatch(CONSUMED, line)
    assert found, line
    assert (float(found[1]), found[2], found[3]) == (round(5000 * 50 / 1024 / 1024, 4), "5000", "0")


def test_the_values_are_what_was_asked_for(run: Run, bootstrap: str, tmp_path) -> None:
    def produced(topic: str, *words: str) -> list[str]:
        to = ("--bootstrap-server", bootstrap, "--topic", topic)
        assert run("perf", "produce", *to, *words).code == 0
        count = words[words.index("--num-records") + 1]
        read = run("console-consumer", *to, "--from-beginning", "--max-messages", count, "-o", "json")
        return [json.loads(line)["value"] for line in read.out.splitlines()]

    assert produced("perf-count", "--payload-monotonic", "--num-records", "20") == [str(n) for n in range(20)]
    (tmp_path / "lines").write_text("one|two||three|")
    words = ["--payload-file", str(tmp_path / "lines"), "--payload-delimiter", "|", "--num-records", "50"]
    assert set(produced("perf-file", *words)) == {"one", "two", "", "three"}
    letters = produced(
        "perf-zstd",
        "--record-size",
        "30",
        "--num-records",
        "40",
        "--producer-props",
        "compression.type=zstd",
        "acks=1",
        "batch.size=400",
    )
    assert len(letters) == 40
    assert all(re.fullmatch("[A-Z]{30}", text) for text in letters)


def test_a_rate_and_a_warmup(run: Run, bootstrap: str) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", "perf-rate", "--record-size", "10")
    words = [
        "--num-records",
        "600",
        "--throughput",
        "2000",
        "--warmup-records",
        "200",
        "--reporting-interval",
        "100",
    ]
    done = run("perf", "produce", *to, *words)
    assert done.code == 0
    first, *windows, total, steady = done.out.splitlines()
    assert first.startswith("Warmup first 200 records.")
    assert windows
    assert windows[0].endswith("ms max latency.")
    assert re.fullmatch(SUMMARY, total)[1] == "600"
    assert re.fullmatch(SUMMARY, steady)[2] == " steady state"
    facts = json.loads(
        run("perf", "produce", *to, "--num-records", "10", "-o", "json", "--producer-props", "acks=0").out
    )
    assert facts["records"] == 10
    assert ends(run, bootstrap, "perf-rate") == 610


def test_consume_in_a_group_with_details(run: Run, bootstrap: str) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", "perf-group")
    run("perf", "produce", *to, "--num-records", "300", "--record-size", "10")
    done = run(
        "perf",
        "consume",
        *to,
        "--num-records",
        "300",
        "--group",
        "perf",
        "--show-detailed-stats",
        "--reporting-interval",
        "1",
        "--command-property",
        "max.partition.fetch.bytes=2000",
    )
    assert done.code == 0, done.err
    titles, *lines = done.out.splitlines()
    assert titles.startswith("time, threadId, ")
    assert all(re.match(rf"{STAMP}, 0, ", line) for line in lines)
    done = run(
        "perf", "consume", *to, "--num-records", "10", "--group", "perf", "--timeout", "200", "--hide-header"
    )
    warning, line = done.out.splitlines()
    assert warning.startswith(
        "WARNING: Exiting before consuming the expected number of records: timeout (200 ms)"
    )
    found = re.fullmatch(CONSUMED, line)
    assert found[2] == "0"  # the group had read them all
    assert int(found[3]) > 0  # joining takes time, which counts as rebalance.time.ms


def test_times_as_one_likes(run: Run, bootstrap: str) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", "perf-date", "--num-records", "1")
    done = run("perf", "produce", *to, "--record-size", "1", "--warmup-records", "-1")  # no warmup
    assert (done.code, len(done.out.splitlines())) == (0, 1)
    done = run("perf", "consume", *to, "--hide-header", "--date-format", "{at} %d HH:mm SSS")
    assert re.match(r"\{at\} %d \d\d:\d\d \d{3}, \{at\} ", done.out), done


def test_end_to_end(run: Run, bootstrap: str) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", "perf-e2e")
    done = run("perf", "end-to-end", *to, "--num-records", "30")
    assert done.code == 0, done.err
    created, first, average, percentiles = done.out.splitlines()
    assert (
        created
        == 'Topic "perf-e2e" does not exist. Will create topic with 1 partition(s) and replication factor = 1'
    )
    assert re.fullmatch(r"0\t[\d.]+", first)
    assert re.fullmatch(r"Avg latency: [\d.]+ ms", average)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+", percentiles)
    words = [
        "--record-key-size",
        "4",
        "--num-headers",
        "2",
        "--record-header-size",
        "3",
        "--producer-acks",
        "1",
    ]
    facts = json.loads(run("perf", "end-to-end", *to, "--num-records", "5", *words, "-o", "json").out)
    assert facts["records"] == 5
    words = [
        "--num-headers",
        "1",
        "--record-header-key-size",
        "4",
        "--record-header-size",
        "-1",
        "--record-size",
        "0",
    ]
    assert run("perf", "end-to-end", *to, "--num-records", "1", *words).code == 0
    read = run(
        "console-consumer", *to, "--partition", "0", "--offset", "35", "--max-messages", "1", "-o", "json"
    )
    record = json.loads(read.out)
    assert record["value"] == ""
    assert [(len(header["name"]), header["value"]) for header in record["headers"]] == [(4, None)]
    done = run("perf", "end-to-end", bootstrap, "perf-e2e", "2", "all", "10")  # as it was said once
    assert done.code == 0
    assert "deprecated" in done.err
    assert ends(run, bootstrap, "perf-e2e") == 38


def test_programs_get_json_only(run: Run, bootstrap: str) -> None:
    words = ("--bootstrap-server", bootstrap, "--topic", "perf-new", "--num-records", "1", "-o", "json")
    done = run("perf", "end-to-end", *words)
    assert json.loads(done.out)["records"] == 1
    assert done.err.startswith('Topic "perf-new" does not exist.')


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["produce"], 'Missing required argument "[topic]"'),
        (["produce", "--topic", "t"], "--num-records"),
        (["produce", "--topic", "t", "--num-records", "1"], "exactly one of --record-size"),
        ([*PRODUCE, "--payload-monotonic"], "exactly one"),
        ([*PRODUCE, "--producer-props", "acks=2"], "acks=2"),
        (
            [*PRODUCE, "--command-property", "compression.type=rar"],
            "compression.type=rar",
        ),
        (["produce", "--topic", "t", "--num-records", "1", "--record-size", "0"], "greater than zero"),
        ([*PRODUCE, "--throughput", "0"], "-1 for no limit"),
        ([*PRODUCE, "--transactional-id", "x"], "not measured"),
        (
            [*PRODUCE, "--transaction-duration-ms", "1"],
            "not measured",
        ),
        (
            [*PRODUCE, "--producer-props", "acks=1", "--command-property", "acks=1"],
            "cannot be specified together",
        ),
        ([*PRODUCE, "--command-property"], "NAME=VALUE"),
        ([*PRODUCE, "--command-property", "a"], "Invalid property"),
        (
            [*PRODUCE, "--command-property", "compression.type=zstd", "compression.zstd.level=99"],
            "from -131072 to 22",
        ),
        (["produce", "--topic", "t", "--num-records", "1", "--num-records", "2"], "more than once"),
        ([*CONSUME, "--messages", "1"], "[messages], [num-records]"),
        ([*CONSUME, "--fetch-size", "0"], "--fetch-size"),
        (
            [*CONSUME, "--command-config", "a", "--consumer.config", "b"],
            "cannot be specified together",
        ),
        (["end-to-end", "--topic", "t", "--num-records", "1", "--record-size", "-1"], "--record-size -1"),
        (["end-to-end", "--topic", "t", "--num-records", "1", "--num-headers", "-1"], "--num-headers -1"),
        (["end-to-end", "a:1", "t", "1", "1", "1", "f", "more"], "5 or 6 positional arguments, but got 7"),
        (["consume", "--num-records", "1"], "[topic], [include]"),
        (["consume", "--topic", "t"], "--num-records"),
        (["end-to-end", "--topic", "t", "--num-records", "1", "--producer-acks", "0"], "synchronous"),
        (["prduce"], "No such command"),
    ],
)
def test_misuse(run: Run, words: list[str], says: str) -> None:
    done = run("perf", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_what_cannot_be_sent_or_read_is_one_line(run: Run, bootstrap: str, tmp_path) -> None:
    words = ["--topic", "perf-none", "--num-records", "1", "--bootstrap-server"]
    done = run("perf", "produce", *words, "127.0.0.1:1", "--record-size", "1")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    done = run("perf", "produce", *words, bootstrap, "--payload-file", str(tmp_path / "missing"))
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    done = run(
        "perf",
        "produce",
        *words,
        bootstrap,
        "--record-size",
        "3000000",
        "--producer-props",
        "batch.size=4000000",
        "max.request.size=4000000",
    )
    assert done.code == 1
    assert "refuses a batch for perf-none-0" in done.err


# --- parts --------------------------------------------------------------------------------------------------


def test_many_values_after_one_option() -> None:
    given = ["produce", "--producer-props", "a=1", "b=2", "--topic", "t"]
    assert prepare(given) == ["produce", "--producer-props", "a=1", "--producer-props", "b=2", "--topic", "t"]


@pytest.mark.parametrize("codec", CODEC_IDS.values())
def test_batches(codec: int) -> None:
    maker = BatchMaker(codec)
    values = Payloads.numbers()
    batch = maker.batch(values.take(9000), 7, 1, 5)
    found = list(iter_records(batch))
    assert [record.value for record in found] == [str(n).encode() for n in range(9000)]
    assert [record.offset for record in found] == list(range(9000))
    assert {(record.key, tuple(record.headers)) for record in found} == {(None, ())}
    pool = Pool([b"a", b"bb", b"x" * 70])
    sizes = [len(record.value or b"") for record in iter_records(maker.batch(pool.take(200)))]
    assert sorted(set(sizes)) == [1, 2, 70]
    assert len(sizes) == 200


@pytest.mark.parametrize("size", [0, 1, 50, 1000, 5000, 100_000])
def test_batches_are_about_as_large_as_asked(size: int) -> None:
    maker, values = BatchMaker(), Payloads.of_size(size)
    count = maker.records_that_fit(values, 16_384)
    batch = maker.batch(values.take(count))
    assert count == 1 or 12_000 < len(batch) < 17_000


def test_percentiles() -> None:
    found = Latencies()
    for number in range(1, 101):
        found.add(number / 1000)
    assert found.percentiles(0.5, 0.99, 1.0) == pytest.approx([50, 99, 100], abs=0.11)
    assert found.mean == pytest.approx(50.5)
    assert Latencies().percentiles(0.5) == [0]
