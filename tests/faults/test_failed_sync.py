"""An fsync that fails: nothing is acknowledged any more on that disk, the broker says so, and a restart
brings back what is there."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from millstream.client.admin import Admin
from millstream.client.cluster import Cluster
from millstream.client.config import ClientConfig
from millstream.testing import Broker
from tests.support.waiting import wait_until

from .test_kill import WAIT, new_topic, read_all

STORAGE_ERROR = 56
INJECTED = Path(__file__).parent / "failing_sync"


class FailingDisk:
    """Data folders of which one can be told to fail its fsyncs."""

    def __init__(self, folder: Path) -> None:
        self._target = folder / "failing"
        self.env = {
            "MILLSTREAM_FAILING_SYNC": str(self._target),
            "PYTHONPATH": os.pathsep.join([str(INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }

    def fail(self, below: Path) -> None:
        self._target.write_text(str(below.resolve()))

    def recover(self) -> None:
        self._target.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    return FailingDisk(tmp_path)


def send(broker: Broker, topic: str, value: bytes, partition: int = 0) -> KafkaError | None:
    """One record, no second try; its error."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": WAIT * 1000, "retries": 0}
    )
    errors: list[KafkaError | None] = []
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT)
    return errors[0]


def critical_lines(broker: Broker) -> list[str]:
    return [line for line in broker.log.splitlines() if " CRITICAL " in line]


def test_a_closed_segment_that_is_not_durable_stops_a_broker_with_one_folder(disk: FailingDisk) -> None:
    with Broker(env=disk.env) as broker:
        new_topic(broker, "log", segment_bytes="1048576")
        acknowledged = 0
        disk.fail(broker.data_dir / "log-0")
        while broker.running and send(broker, "log", b"%06d" % acknowledged + bytes(300_000)) is None:
            acknowledged += 1
            assert acknowledged < 500, "the broker goes on acknowledging"
        wait_until(lambda: not broker.running, "the broker goes on")
        assert broker.returncode == 1
        assert len(critical_lines(broker)) == 1, broker.log
        assert "log-0" in critical_lines(broker)[0] and "Input/output error" in critical_lines(broker)[0]
        assert "Traceback" not in broker.log
        assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
        disk.recover()
        broker.start()
        assert [int(value[:6]) for value in read_all(broker, "log")][:acknowledged] == list(
            range(acknowledged)
        )
        assert send(broker, "log", b"000000") is None


def test_metadata_that_is_not_durable_stops_the_broker_with_one_line(disk: FailingDisk) -> None:
    with Broker(env=disk.env) as broker:
        new_topic(broker, "before")
        disk.fail(broker.data_dir / "millstream-metadata")
        with pytest.raises(Exception):  # noqa: B017 - an error or no answer
            new_topic(broker, "after")
        wait_until(lambda: not broker.running, "the broker goes on")
        assert broker.returncode == 1
        assert "Traceback" not in broker.log
        assert "cannot sync metadata: Input/output error" in broker.log


def test_one_of_two_folders_goes_out_of_service(tmp_path: Path, disk: FailingDisk) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    settings = {
        "log.dirs": ",".join(map(str, folders)),
        "millstream.metrics.listener": "127.0.0.1:0",
    }
    with Broker(settings, env=disk.env) as broker:
        new_topic(broker, "log", partitions=4, flush_messages="1")
        bad = [number for number in range(4) if (folders[1] / f"log-{number}").exists()]
        good = [number for number in range(4) if number not in bad]
        assert bad and good
        for number in range(4):
            assert send(broker, "log", b"first", number) is None
        assert health(broker)[0] == 200

        disk.fail(folders[1])
        for _ in range(2):  # not made durable, then refused
            error = send(broker, "log", b"second", bad[0])
            assert error is not None and error.code() == STORAGE_ERROR
        disk.recover()  # the next fsync would succeed, and mean nothing
        for number in bad:
            error = send(broker, "log", b"third", number)
            assert error is not None and error.code() == STORAGE_ERROR
        for number in good:
            assert send(broker, "log", b"second", number) is None
        assert read_all(broker, "log", bad[-1]) == [b"first"]
        assert broker.running

        assert len([line for line in critical_lines(broker) if "out of service" in line]) == 1, broker.log
        status, body = health(broker)
        assert status == 503
        assert body["offline_log_dirs"] == 1 and body["offline_partitions"] == len(bad)
        metrics = get(broker, "/metrics")[1]
        assert "kafka_log_logmanager_offlinelogdirectorycount 1" in metrics.splitlines()
        assert describe(broker) == {str(folders[0]): 0, str(folders[1]): STORAGE_ERROR}
        new_topic(broker, "later", partitions=3)
        assert not list(folders[1].glob("later-*")), "new partitions go where they can be written"

        broker.restart()
        for number in bad:
            assert send(broker, "log", b"fourth", number) is None
            assert read_all(broker, "log", number)[0] == b"first"
        assert health(broker)[0] == 200


def get(broker: Broker, path: str) -> tuple[int, str]:
    line = next(line for line in reversed(broker.log.splitlines()) if "metrics on http://" in line)
    address = line.split("http://")[1].split("/")[0]
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=WAIT) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def health(broker: Broker) -> tuple[int, dict[str, object]]:
    status, body = get(broker, "/health")
    return status, json.loads(body)


def describe(broker: Broker) -> dict[str, int]:
    """Error by data folder, as DescribeLogDirs has it."""
    with Cluster(ClientConfig.of(broker.bootstrap_servers, {})) as cluster:
        return {folder.path: int(folder.error) for folder in Admin(cluster).describe_log_dirs()}
