"""Kafka's files are ours: folders that Apache Kafka 4.2 wrote are opened, and Kafka's own tool reads what we
write.

The archives hold data folders of a Kafka 4.2.0 broker (small `segment.index.bytes`, so that segments roll):
one after a clean stop, one after kill -9, with preallocated indexes and no checkpoints. Topic `clean` has 200
records of idempotent producers in every codec, `append-time` the same under LogAppendTime, `tx` committed,
aborted and open transactions.

The tests with Kafka's tool run where Java and the jars in the local Maven repository are found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from millstream.settings.log_config import LogConfig
from millstream.storage.dump import dump
from millstream.storage.log_dirs import LogDirs
from millstream.wire.batch import LOG_APPEND_TIME
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import iter_records

from .batches import NOW, contents, headers, real, small

ARCHIVES = Path(__file__).parent / "kafka_folders"
KAFKA = "4.2.0"


@pytest.fixture(params=["clean", "killed"])
def log_dirs(request: pytest.FixtureRequest, tmp_path: Path) -> LogDirs:
    with tarfile.open(ARCHIVES / f"kafka-{KAFKA}-{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    assert log_dirs.clean[str(tmp_path)] == (request.param == "clean")
    log_dirs.load(lambda topic: LogConfig(segment_index_bytes=160, index_interval_bytes=200))
    return log_dirs


def test_partitions_and_ids(log_dirs: LogDirs) -> None:
    assert sorted(log_dirs.logs) == [("append-time", 0), ("clean", 0), ("tx", 0)]
    assert all(log.topic_id is not None for log in log_dirs.logs.values())
    assert len(log_dirs.cluster_id) == 22
    log_dirs.close()


def test_records(log_dirs: LogDirs) -> None:
    log = log_dirs.logs["clean", 0]
    assert (log.start_offset, log.end_offset) == (0, 200)
    codecs = set()
    records = []
    for header, data in contents(log):
        codecs.add(header.codec)
        records += list(iter_records(data))
    assert codecs == {0, 1, 2, 3, 4}
    assert [record.offset for record in records] == list(range(200))
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    for number, record in enumerate(records):
        codec, item = names[number // 40], number % 40
        assert record.key == (f"k{item}".encode() if item % 3 else None)
        assert record.value == (f"{codec}-{item}-{'v' * (item * 3)}".encode() if item % 7 else None)
        assert record.timestamp == NOW + item * 1000
    assert log.offset_for_timestamp(NOW + 20_000) == (NOW + 20_000, 20, 0)
    assert log.max_timestamp() == (NOW + 39_000, 39, 0)
    log_dirs.close()


def test_log_append_time(log_dirs: LogDirs) -> None:
    log = log_dirs.logs["append-time", 0]
    assert [segment.base_offset for segment in log.segments] == [0, 130]
    assert all(header.attributes & LOG_APPEND_TIME for header in headers(log))
    log_dirs.close()


def test_transactions(log_dirs: LogDirs) -> None:
    log = log_dirs.logs["tx", 0]
    log.set_high_watermark(log.end_offset)
    assert (log.end_offset, log.last_stable_offset) == (73, 72)
    aborted = log.aborted_transactions(0, 73)
    assert [(entry.first_offset, entry.last_offset) for entry in aborted] == [
        (18, 23), (24, 29), (30, 35), (36, 41), (42, 47), (48, 53),
    ]  # fmt: skip
    (opened,) = [producer for producer in log.describe_producers() if producer.txn_start_offset >= 0]
    assert opened.txn_start_offset == 72
    log.append_marker(opened.producer_id, opened.producer_epoch, False, 5, 9, NOW)
    log.set_high_watermark(74)
    assert log.last_stable_offset == 74
    log_dirs.close()


def test_producers_go_on_where_they_were(log_dirs: LogDirs) -> None:
    log = log_dirs.logs["clean", 0]
    producers = log.describe_producers()
    assert [(producer.producer_id, producer.last_sequence) for producer in producers] == [
        (n, 39) for n in range(5)
    ]

    def send(sequence: int) -> bool:
        data = real([b"x"], producer_id=3, producer_epoch=0, base_sequence=sequence)
        return log.append_leader(data, 1, NOW).duplicate

    with pytest.raises(KafkaError) as raised:
        send(41)
    assert raised.value.code is ErrorCode.out_of_order_sequence_number
    assert not send(40)
    assert send(40)
    log_dirs.close()


def test_written_on_and_closed_by_us(log_dirs: LogDirs, tmp_path: Path) -> None:
    for log in log_dirs.logs.values():
        for number in range(30):
            log.append_leader(real([b"ours"] * 2, codec=number % 5), 3, NOW)
    before = {key: list(contents(log)) for key, log in log_dirs.logs.items()}
    log_dirs.close()
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    log_dirs.load()
    assert {key: list(contents(log)) for key, log in log_dirs.logs.items()} == before
    log_dirs.close()


# -- Kafka's own tool ----------------------------------------------------------------------------------------

JARS = {
    "org/apache/kafka": (
        "kafka_2.13",
        "kafka-clients",
        "kafka-storage",
        "kafka-server",
        "kafka-server-common",
        "kafka-metadata",
        "kafka-raft",
        "kafka-group-coordinator",
        "kafka-group-coordinator-api",
        "kafka-coordinator-common",
        "kafka-share-coordinator",
        "kafka-transaction-coordinator",
        "kafka-tools-api",
        "kafka-storage-api",
    ),
    "org/scala-lang": ("scala-library", "scala-reflect"),
    "net/sf/jopt-simple": ("jopt-simple",),
    "org/slf4j": ("slf4j-api",),
    "com/fasterxml/jackson/core": ("jackson-databind", "jackson-core", "jackson-annotations"),
    "com/fasterxml/jackson/dataformat": ("jackson-dataformat-csv",),
    "com/fasterxml/jackson/datatype": ("jackson-datatype-jdk8",),
    "com/yammer/metrics": ("metrics-core",),
    "com/github/luben": ("zstd-jni",),
    "org/lz4": ("lz4-java",),
    "at/yawk/lz4": ("lz4-java",),
    "org/xerial/snappy": ("snappy-java",),
    "com/typesafe/scala-logging": ("scala-logging_2.13",),
}


def class_path() -> str | None:
    if shutil.which("java") is None:
        return None
    found = []
    for group, names in JARS.items():
        for name in names:
            jars = sorted((Path.home() / ".m2/repository" / group / name).glob(f"*/{name}-*.jar"))
            if group == "org/apache/kafka":
                jars = [jar for jar in jars if jar.parent.name == KAFKA]
                if not jars:
                    return None
            found += [str(jar) for jar in jars[-1:]]
    return os.pathsep.join(found)


@pytest.fixture(scope="module")
def kafka_classes() -> str:
    path = class_path()
    if path is None:
        pytest.skip(f"needs Java and Kafka {KAFKA} in the local Maven repository")
    return path


def kafkas_dump(classes: str, folder: Path, *arguments: str) -> tuple[list[str], list[str]]:
    done = subprocess.run(
        [
            "java",
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            classes,
            "kafka.tools.DumpLogSegments",
            *arguments,
        ],
        cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    noise = ("SLF4J", "WARNING:", "Picked up")
    return (
        [line for line in done.stdout.splitlines() if not line.startswith(noise)],
        [line for line in done.stderr.splitlines() if not line.startswith(noise)],
    )


def our_dump(folder: Path, files: list[str], **options: bool) -> tuple[list[str], list[str]]:
    here = os.getcwd()
    os.chdir(folder)
    try:
        lines = list(dump(files, **options))  # type: ignore[arg-type]
    finally:
        os.chdir(here)
    return [line.text for line in lines if not line.error], [line.text for line in lines if line.error]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A partition with everything in it."""
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    log = log_dirs.create("ours", 0, None, small(segment_bytes=6000, index_interval_bytes=300))
    for number in range(120):
        fields = (
            {"producer_id": number % 3, "producer_epoch": 0, "base_sequence": number // 3 * 4}
            if number % 4
            else {}
        )
        if fields and (known := log.producers.by_id.get(number % 3)) is not None:
            fields["base_sequence"] = known.next_sequence
        log.append_leader(
            real(
                [b"value", None, b"", b"x" * number],
                codec=number % 5,
                timestamp=NOW + number,
                step=1,
                **fields,
            ),
            2,
            NOW,
        )
    for producer, commit in ((7, True), (8, False), (9, False), (8, False)):
        known = log.producers.by_id.get(producer)
        sequence = known.next_sequence if known is not None else 0
        log.append_leader(
            real([b"t"], producer_id=producer, producer_epoch=1, base_sequence=sequence, transactional=True),
            4,
            NOW,
        )
        if producer != 9:
            log.append_marker(producer, 1, commit, 6, 4, NOW + 500)
    log_dirs.close()
    return tmp_path / "ours-0"


@pytest.mark.kafka
@pytest.mark.parametrize(
    "options",
    [
        ("--print-data-log",),
        ("--deep-iteration",),
        (),
        ("--verify-index-only",),
        ("--index-sanity-check",),
        ("--print-data-log", "--skip-record-metadata"),
    ],
)
def test_kafka_reads_our_files_and_says_the_same(
    kafka_classes: str, written: Path, options: tuple[str, ...]
) -> None:
    names = sorted(path.name for path in written.iterdir() if path.name[:20].isdecimal())
    assert {Path(name).suffix for name in names} == {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}
    kafkas = kafkas_dump(kafka_classes, written, *options, "--files", ",".join(names))
    ours = our_dump(written, names, **{option[2:].replace("-", "_"): True for option in options})
    assert ours == kafkas
    assert kafkas[1] == [], "Kafka finds nothing wrong"
    assert len(kafkas[0]) >= len(names)


@pytest.mark.kafka
def test_both_tools_say_the_same_of_damaged_files(kafka_classes: str, written: Path) -> None:
    first, torn = sorted(written.glob("*.log"))[:2]
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    torn.write_bytes(torn.read_bytes()[:-7])
    index = first.with_suffix(".index")
    raw = bytearray(index.read_bytes())
    raw[11] ^= 3
    index.write_bytes(raw + bytes(16))
    times = first.with_suffix(".timeindex")
    raw = bytearray(times.read_bytes())
    raw[19] ^= 1
    times.write_bytes(raw + bytes(24))
    names = [first.name, torn.name, index.name, times.name]
    kafkas = kafkas_dump(kafka_classes, written, "--files", ",".join(names))
    assert our_dump(written, names) == kafkas
    assert kafkas[1]
