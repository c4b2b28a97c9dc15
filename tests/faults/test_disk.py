"""A disk that is full or read-only: the write fails with a clear error, the log stays valid, and there is a
way back."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing import Broker, BrokerFailed
from tests.support.waiting import wait_until

from .test_kill import WAIT, new_topic, read_all

STORAGE_ERROR = 56
DISK = 16 << 20


@contextmanager
def mounted(*arguments: str) -> Iterator[None]:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this needs the right to mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", arguments[-1]], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)):
        yield folder


def send(broker: Broker, number: int, size: int) -> KafkaError | None:
    """One record, no second try; its error."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "message.timeout.ms": WAIT * 1000,
            "retries": 0,
            "message.max.bytes": 2_000_000,
        }
    )
    errors: list[KafkaError | None] = []
    value = b"%06d" % number + os.urandom(size)
    producer.produce("log", value, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT)
    return errors[0]


def fill_up(disk: Path) -> Path:
    """Not a single byte is left afterwards, until the file that this returns is removed."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(4096))
        except OSError:
            pass
    return ballast


def test_a_full_disk_refuses_and_recovers(small_disk: Path) -> None:
    with Broker(data_dir=small_disk / "data") as broker:
        new_topic(broker, "log")
        written = 0
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(DISK // 2))
        while (error := send(broker, written, 900_000)) is None:
            written += 1
            assert written < 50, "the disk is never full"
        assert error.code() == STORAGE_ERROR, error
        assert written > 3
        assert send(broker, written, 900_000) is not None  # and again: it does not get worse
        assert broker.running
        assert [int(value[:6]) for value in read_all(broker, "log")] == list(range(written))

        lines = [line for line in broker.log.splitlines() if "space" in line.lower()]
        assert 1 <= len(lines) <= 5, broker.log

        ballast.unlink()
        assert send(broker, written, 900_000) is None  # room again: no restart is needed
        assert [int(value[:6]) for value in read_all(broker, "log")] == list(range(written + 1))

        broker.kill()
        broker.start()
        assert [int(value[:6]) for value in read_all(broker, "log")] == list(range(written + 1))


def test_a_full_disk_refuses_new_topics_and_recovers(small_disk: Path) -> None:
    with Broker(data_dir=small_disk / "data") as broker:
        new_topic(broker, "log")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        ballast = fill_up(small_disk)
        with pytest.raises(KafkaException):
            for number in range(200):
                admin.create_topics([NewTopic(f"more-{number}", 5, 1)], request_timeout=5)[
                    f"more-{number}"
                ].result(WAIT)
        assert broker.running
        ballast.unlink()
        new_topic(broker, "after")
        assert send(broker, 0, 10) is None
        broker.kill()
        broker.start()
        assert {"log", "after"} <= set(admin.list_topics(timeout=WAIT).topics)


def test_a_full_disk_at_start_serves_reads_and_deletions(small_disk: Path) -> None:
    with Broker(data_dir=small_disk / "data") as broker:
        new_topic(broker, "log", segment_bytes="1048576", file_delete_delay_ms="0")
        new_topic(broker, "other", file_delete_delay_ms="0")
        for number in range(4):
            assert send(broker, number, 400_000) is None
        broker.kill()
        fill_up(small_disk)
        for _ in range(2):
            broker.start()
            assert [int(value[:6]) for value in read_all(broker, "log")] == [0, 1, 2, 3]
            error = send(broker, 4, 400_000)
            assert error is not None and error.code() == STORAGE_ERROR
            broker.kill()
        broker.start()

        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic("more", 1, 1)])["more"].result(WAIT)
        assert refused.value.args[0].code() == STORAGE_ERROR
        # Inside of a segment the new start has to be saved, which fails; the segments before it go all the
        # same, and give it the room when it is tried again.
        where = TopicPartition("log", 0, 3)
        with pytest.raises(KafkaException) as refused:
            admin.delete_records([where])[where].result(WAIT)
        assert refused.value.args[0].code() == STORAGE_ERROR
        admin.delete_topics(["other"])["other"].result(WAIT)
        assert "other" not in admin.list_topics(timeout=WAIT).topics
        wait_until(
            lambda: len(list((broker.data_dir / "log-0").glob("*.log*"))) == 1, "the segments are still there"
        )
        assert admin.delete_records([where])[where].result(WAIT).low_watermark == 3
        assert [int(value[:6]) for value in read_all(broker, "log")] == [3]
        assert send(broker, 4, 400_000) is None
        new_topic(broker, "more")
        assert "Traceback" not in broker.log
        broker.restart()
        assert [int(value[:6]) for value in read_all(broker, "log")] == [3, 4]


def test_a_read_only_folder_is_a_clear_refusal_to_start(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with Broker(data_dir=folder) as broker:
        new_topic(broker, "log")
        assert send(broker, 0, 10) is None
        broker.stop()
        with mounted("--bind", str(folder), str(folder)):
            subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
            with pytest.raises(BrokerFailed, match=r"(?i)read-only"):
                broker.start()
            assert "Traceback" not in broker.log
        broker.start()
        assert len(read_all(broker, "log")) == 1


def test_a_folder_that_cannot_be_made_is_a_clear_refusal_to_start(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    broker = Broker({"log.dirs": str(blocked / "data")})
    with pytest.raises(BrokerFailed) as failed:
        broker.__enter__()
    assert str(blocked) in str(failed.value)
    assert "Traceback" not in str(failed.value)
