"""The same log, cleaned by Apache Kafka and by us: what is left must be the same, batch by batch.

Kafka writes a topic that is not compacted yet: keys over and over, tombstones, every codec, transactions that
commit and abort. The folder is copied; then Kafka compacts its own and we compact the copy. Twice, so that
the second round meets what the first one left: delete horizons, markers without data, bare headers, gaps, and
Kafka's cleaner checkpoint.

    pytest tests/storage/cleaning -m kafka
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.storage import checkpoints
from millstream.storage.log import PartitionLog
from tests.support.peers import apache_kafka
from tests.support.waiting import wait_until

from .helpers import batches, clean, compacted, read_committed

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

TOPIC = "compacted"
SEGMENT = 1 << 20
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
KEYS = 300


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Any]:
    broker = apache_kafka().ApacheKafka(
        tmp_path / "kafka",
        settings={"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "0"},
        heap="512m",
    )
    try:
        yield broker
    finally:
        broker.close()


def settle(admin: Any, **settings: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(name.replace("_", "."), text, incremental_operation=AlterConfigOpType.SET)
        for name, text in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def write(bootstrap: str, seed: int) -> None:
    """About four segments, by producers of every kind."""
    from confluent_kafka import Producer

    choose = random.Random(seed)

    def fill(producer: Any, count: int) -> None:
        for _ in range(count):
            key = b"key-%d" % choose.randrange(KEYS)
            text = None if choose.random() < 0.15 else choose.randbytes(choose.randrange(2000))
            producer.produce(TOPIC, text, key, partition=0, headers=[("h", b"1")] if text else None)
            producer.poll(0)
        producer.flush(30)

    plain = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": once,
                "linger.ms": 5,
            }
        )
        for codec, once in zip(CODECS, (True, False, True, False, True), strict=True)
    ]
    transactional = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t{number}", "linger.ms": 5})
        for number in range(3)
    ]
    for producer in transactional:
        producer.init_transactions(30)
    for _ in range(12):
        for producer in plain:
            fill(producer, choose.randrange(60))
        for producer in transactional:
            producer.begin_transaction()
            fill(producer, choose.randrange(1, 30))
            if choose.random() < 0.5:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)


def checkpointed(folder: Path) -> int:
    return checkpoints.read_offsets(str(folder), checkpoints.CLEANED_OFFSETS).get((TOPIC, 0), 0)


def opened(folder: Path) -> PartitionLog:
    config = compacted(segment_bytes=SEGMENT, index_interval_bytes=4096, delete_retention_ms=0)
    log = PartitionLog.open(folder, config, clean=True)
    log.set_high_watermark(log.end_offset)
    return log


def shape(log: PartitionLog) -> list[tuple[Any, ...]]:
    """Everything about the batches that a client or another broker can see."""
    return [
        (
            seen.header._replace(length=0, crc=0, base_timestamp=0),
            seen.horizon is not None,
            seen.records,
        )
        for seen in batches(log)
    ]


def test_what_kafka_keeps_and_drops(kafka: Any, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    folder = kafka.log_dir / f"{TOPIC}-0"
    kafka.start()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    settings = {
        "cleanup.policy": "delete",
        "segment.bytes": str(SEGMENT),
        "min.cleanable.dirty.ratio": "0.0001",
        "delete.retention.ms": "0",
        "file.delete.delay.ms": "0",
    }
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(30)
    for number in (1, 2, 3):
        write(kafka.bootstrap, number)
        kafka.stop()
        clean_before = checkpointed(kafka.log_dir)
        ours = tmp_path / f"ours-{number}" / f"{TOPIC}-0"
        shutil.copytree(folder, ours)
        active = max(int(path.stem) for path in folder.glob("*.log"))

        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        settle(admin, cleanup_policy="compact")
        wait_until(lambda: checkpointed(kafka.log_dir) == active)  # noqa: B023
        settle(admin, cleanup_policy="delete")
        kafka.stop()
        theirs = tmp_path / f"theirs-{number}" / f"{TOPIC}-0"
        shutil.copytree(folder, theirs)

        mine, its = opened(ours), opened(theirs)
        mine.cleaned_to = clean_before
        before = len([record for seen in batches(mine) for record in seen.records])
        summary = clean(mine, int(time.time() * 1000))
        assert summary.end_offset == active
        assert summary.records_after < summary.records_before <= before
        assert shape(mine) == shape(its)
        assert mine.bases == its.bases
        assert mine.aborted_transactions(0, mine.end_offset) == its.aborted_transactions(0, its.end_offset)
        assert read_committed(mine, 1 << 20) == read_committed(its, 1 << 20)
        print(f"round {number}: {before} records, {summary.records_after} of {summary.records_before} remain")
        mine.close()
        its.close()
        assert complaints(ours) == complaints(theirs)
        kafka.start()


def complaints(folder: Path) -> list[str]:
    """What Kafka's own tool finds wrong with the files. Gaps are no news in a compacted log; and it does not
    understand a time that leads to a bare header, not in Kafka's files either."""
    suffixes = {".log", ".index", ".timeindex", ".txnindex"}
    names = [str(path) for path in sorted(folder.iterdir()) if path.suffix in suffixes]
    done = apache_kafka().tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--verify-index-only",
        "--files",
        ",".join(names),
    )
    assert done.returncode == 0, done.stderr
    words = ("mismatch", "index timestamp", "out of order", "corrupt", "error")
    lines = [line for line in done.stdout.splitlines() if any(word in line.lower() for word in words)]
    return [line.replace(str(folder), "") for line in lines]
