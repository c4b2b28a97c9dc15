"""Write the data folders that later versions must still start with: `python -m tests.releases.make_folder
NAME`.

Run with the code of the version that NAME stands for (a release, or a commit before a change that must not
touch the files on disk); the archives NAME-clean and NAME-killed are kept in this folder. Both hold one topic
per codec, idempotent and transactional writes (one aborted), offsets committed by a classic group, by a group
of the consumer protocol (KIP-848) and inside a transaction, settings of a topic and of the brokers, a topic
that was deleted, and a log whose first records were deleted. The broker of `clean` was stopped, that of
`killed` was not.
"""

from __future__ import annotations

import sys
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

from millstream.testing import Broker

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 300
TRANSACTIONAL_GROUP = "abcdefg"  # its hash is negative in Java
CONSUMER_GROUP = "consumer-protocol"
# Group -> committed offsets of codec-none, by partition.
OFFSETS = {
    "readers": {0: 17, 1: 23},
    TRANSACTIONAL_GROUP: {0: 31},
    CONSUMER_GROUP: {0: 41, 1: 43},
}


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
    write_transactions(basic)
    commit_offsets(basic)
    admin.delete_topics(["gone"])["gone"].result()
    for future in admin.delete_records([TopicPartition("codec-gzip", 0, 5)]).values():
        future.result()
    change = ConfigEntry("log.retention.ms", "999999999", incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change])]
    ).values():
        future.result()


def write_transactions(basic: dict[str, str]) -> None:
    producer = Producer({**basic, "transactional.id": "books"})
    consumer = Consumer({**basic, "group.id": TRANSACTIONAL_GROUP})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for line in range(10):
            producer.produce("ledger", f"entry {number}.{line}")
        if number == 1:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
        else:
            offsets = _offsets(TRANSACTIONAL_GROUP)
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30)
    consumer.close()


def commit_offsets(basic: dict[str, str]) -> None:
    reader = Consumer({**basic, "group.id": "readers", "enable.auto.commit": False})
    reader.commit(offsets=_offsets("readers"), asynchronous=False)
    reader.close()
    member = Consumer(
        {
            **basic,
            "group.id": CONSUMER_GROUP,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe(["codec-none"])
    while not member.assignment():
        member.poll(1)
    member.commit(offsets=_offsets(CONSUMER_GROUP), asynchronous=False)
    member.close()


def _offsets(group: str) -> list[TopicPartition]:
    return [TopicPartition("codec-none", partition, offset) for partition, offset in OFFSETS[group].items()]


def main(name: str) -> None:
    for ending in ("clean", "killed"):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "data")
            with Broker(data_dir=data) as broker:
                fill(broker.bootstrap_servers)
                broker.stop() if ending == "clean" else broker.kill()
            archive = HERE / f"{name}-{ending}.tar.xz"
            with tarfile.open(archive, "w:xz") as tar:
                tar.add(data, "data", filter=lambda info: None if info.name.endswith(".lock") else info)
            print(f"{archive.name}: {archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
