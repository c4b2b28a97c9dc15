"""What workers and connectors say of producers and consumers (KIP-458)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Cluster, Fetcher
from millstream.client.groups import Groups
from millstream.connect.config.config_def import ConfigError
from millstream.wire.compression import LZ4, ZSTD
from millstream.wire.records import iter_batches
from millstream.wire.topic_partition import TopicPartition
from tests.connect.conftest import Worker
from tests.connect.test_worker import lines, sink, source
from tests.support.waiting import wait_until

POLICIES = "org.apache.kafka.connect.connector.policy"
MakeWorker = Callable[..., Worker]


def codec_of(worker: Worker, topic: str) -> int:
    cluster = Cluster(worker.config.client)
    try:
        cluster.refresh({topic})
        (fetched,) = Fetcher(cluster).poll({TopicPartition(topic, 0): 0}, 5000)
        header, _ = next(iter_batches(fetched.records))
        return header.attributes & 7
    finally:
        cluster.close()


def test_batches_are_compressed_as_the_worker_or_the_connector_says(
    make_worker: MakeWorker, tmp_path: Path
) -> None:
    worker = make_worker(producer_compression_type="lz4")
    written, copied = tmp_path / "in.txt", tmp_path / "out.txt"
    written.write_text("".join(f"line {number}\n" for number in range(100)))
    own = source(written, "squeezed", **{"producer.override.compression.type": "zstd"})
    worker.http.put("/connectors/own/config", json=own)
    worker.http.put("/connectors/default/config", json=source(written, "pressed"))
    worker.http.put("/connectors/out/config", json=sink(copied, "squeezed,pressed"))
    wait_until(lambda: len(lines(copied)) == 200)
    assert codec_of(worker, "squeezed") == ZSTD
    assert codec_of(worker, "pressed") == LZ4


def test_a_group_of_another_name(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    written, copied = tmp_path / "in.txt", tmp_path / "out.txt"
    written.write_text("one\n")
    worker.http.put("/connectors/i/config", json=source(written, "grouped"))
    own = {"consumer.override.group.id": "shared", "consumer.override.max.poll.records": "1"}
    worker.http.put("/connectors/o/config", json=sink(copied, "grouped", **own))
    wait_until(lambda: lines(copied) == ["one"])
    wait_until(lambda: worker.http.get("/connectors/o/offsets").json()["offsets"])
    cluster = Cluster(worker.config.client)
    try:
        assert Groups(cluster).committed("shared")
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("policy", "name", "allowed"),
    [
        ("All", "producer.override.compression.type", True),
        ("None", "producer.override.compression.type", False),
        ("Principal", "producer.override.compression.type", False),
        ("Principal", "producer.override.security.protocol", True),
        (f"{POLICIES}.NoneConnectorClientConfigOverridePolicy", "admin.override.x", False),
    ],
)
def test_what_a_worker_lets_connectors_override(
    make_worker: MakeWorker, tmp_path: Path, policy: str, name: str, allowed: bool
) -> None:
    http = make_worker(connector_client_config_override_policy=policy).http
    value = "none" if name.endswith("type") else "PLAINTEXT"
    body = {"name": "c", "config": source(tmp_path / "f", "t", **{name: value})}
    answer = http.post("/connectors", json=body)
    assert answer.status_code == (201 if allowed else 400)
    if not allowed:
        own = name.partition(".override.")[2]
        assert f"policy does not allow '{own}' to be overridden" in answer.json()["message"]


def test_a_wrong_override_is_refused(make_worker: MakeWorker, tmp_path: Path) -> None:
    http = make_worker().http
    wrong = source(tmp_path / "f", "t", **{"producer.override.compression.type": "rar"})
    answer = http.put("/connectors/c/config", json=wrong)
    assert answer.status_code == 400
    assert "Invalid value rar for configuration compression.type" in answer.json()["message"]


def test_a_policy_that_is_not_there_stops_the_worker(make_worker: MakeWorker) -> None:
    with pytest.raises(ConfigError, match="All, None, Principal"):
        make_worker(connector_client_config_override_policy="Mine")
