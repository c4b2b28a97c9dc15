"""Write the data folder that later releases must still start with: `python -m tests.releases.make_folder`.

Run once for each release, with the code of that release; the archive is kept in this folder. It holds one topic per codec,
idempotent and transactional writes (one aborted), a group's committed offsets, settings of a topic and of the brokers, a
topic that was deleted, and a log whose first records were deleted. `clean` was stopped, `killed` was not.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from millstream import __version__
from millstream.testing import Broker

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 300


def fill(servers: str) -> None:
    basic = {"bootstrap.servers": servers}
    admin = AdminClient(basic)
    topics = [NewTopic(f"codec-{codec}", 2, 1) for codec in CODECS]
    topics += [NewTopic("ledger", 1, 1, config={"retention.ms": "-1"}), NewTopic("gone", 1, 1)]
    topics.append(NewTopic("table", 1, 1, config={"cleanup.policy": "compact", "segment.ms": "100"}))
    for future in admin.create_topics(topics).values():
        future.result()
    for codec in CODECS:
        producer = Producer({**basic, "compression.type": codec, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce(f"codec-{codec}", f"{codec} {number}", str(number), headers={"n": str(number)})
        assert producer.flush(30) == 0
    plain = Producer(basic)
    for number in range(RECORDS):
        plain.produce("table", None if number % 7 == 0 else f"value {number}", f"key {number % 10}")
        plain.produce("gone", "x")
    assert plain.flush(30) == 0
    writer = Producer({**basic, "transactional.id": "books"})
    writer.init_transactions(30)
    for number in range(4):
        writer.begin_transaction()
        for line in range(10):
            writer.produce("ledger", f"entry {number}.{line}")
        if number == 1:
            assert writer.flush(30) == 0
            writer.abort_transaction(30)
        else:
            writer.commit_transaction(30)
    reader = Consumer({**basic, "group.id": "readers", "enable.auto.commit": False})
    reader.commit(
        offsets=[TopicPartition("codec-none", 0, 17), TopicPartition("codec-none", 1, 23)], asynchronous=False
    )
    reader.close()
    admin.delete_topics(["gone"])["gone"].result()
    for future in admin.delete_records([TopicPartition("codec-gzip", 0, 5)]).values():
        future.result()
    change = ConfigEntry("log.retention.ms", "999999999", incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change])]
    ).values():
        future.result()


def main() -> None:
    for kind in ("clean", "killed"):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "data")
            with Broker(data_dir=data) as broker:
                fill(broker.bootstrap_servers)
                broker.stop() if kind == "clean" else broker.kill()
            archive = HERE / f"{__version__}-{kind}.tar.xz"
            with tarfile.open(archive, "w:xz") as tar:
                tar.add(data, "data", filter=lambda info: None if info.name.endswith(".lock") else info)
            print(f"{archive.name}: {archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
