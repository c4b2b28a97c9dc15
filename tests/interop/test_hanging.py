"""A transaction that hangs, made as it happens in life: a producer of the old protocol writes into a
partition that its coordinator never heard of, on a broker that does not check. `find-hanging` of Kafka's tool
and of ours name it, with the same words, and `abort` ends it.
"""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.client.connection import Connection
from millstream.testing import Broker
from millstream.wire.records import Record, encode_batch
from tests.support.peers import apache_kafka
from tests.support.waiting import wait_until

from .conftest import SETTINGS

pytestmark = pytest.mark.interop_slow
UNCHECKED = {**SETTINGS, "transaction.partition.verification.enable": "false"}
HOUR_MS = 3_600_000
OLD_PRODUCE = 11
KAFKA_TOOL = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture(scope="module")
def careless(against: str) -> Iterator[str]:
    """A broker that takes a producer's word for it."""
    peer = apache_kafka()  # also for its tools
    if against == "millstream":
        with Broker(UNCHECKED) as broker:
            yield broker.bootstrap_servers
    elif against == "kafka":
        with peer.ApacheKafka(settings=UNCHECKED) as kafka:
            yield kafka.bootstrap
    else:
        pytest.skip("needs a broker that does not verify partitions of transactions")


def make_it_hang(bootstrap: str, topic: str) -> tuple[int, int]:
    """The producer's id and epoch."""
    host, _, port = bootstrap.rpartition(":")
    with Connection(ClientConfig.of(bootstrap, client_id="careless"), host, int(port)) as connection:

        def retried(name: str, **fields: object) -> object:
            def once() -> object:
                answer = connection.request(name, **fields)
                found = answer.coordinators[0] if name == "find_coordinator" else answer
                return None if found.error_code else found

            return wait_until(once, f"{name} is refused")

        retried("find_coordinator", key=topic, key_type=1, coordinator_keys=[topic])
        producer = retried(
            "init_producer_id",
            transactional_id=topic,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        identity = (int(producer.producer_id), int(producer.producer_epoch))  # type: ignore[attr-defined]
        past = time.time_ns() // 1_000_000 - HOUR_MS
        batch = encode_batch(
            [Record(0, past, None, b"hangs", ())],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=0,
            transactional=True,
        )
        data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        answer = connection.request(
            "produce", up_to=OLD_PRODUCE, transactional_id=topic, acks=-1, timeout=30_000, topic_data=data
        )
        assert answer.responses[0].partition_responses[0].error_code == 0
        return identity


def kafka_tool(bootstrap: str, *arguments: str) -> list[str]:
    done = apache_kafka().tool(KAFKA_TOOL, "--bootstrap-server", bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return _cells(done.stdout)


def our_tool(bootstrap: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "millstream", "transactions", "--bootstrap-server", bootstrap]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return _cells(done.stdout)


def _cells(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def ends(bootstrap: str, topic: str) -> tuple[int, int]:
    """The last stable offset and the end."""
    with Cluster(ClientConfig.of(bootstrap, client_id="judge")) as cluster:
        cluster.refresh([topic])
        topic_partition = (topic, 0)
        stable = list_offsets(cluster, {topic_partition: LATEST}, read_committed=True)[topic_partition].offset
        return stable, list_offsets(cluster, {topic_partition: LATEST})[topic_partition].offset


@pytest.mark.timeout(300)
def test_a_hanging_transaction_is_found_and_ended(careless: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": careless})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    producer_id, epoch = make_it_hang(careless, name)
    assert ends(careless, name) == (0, 1)
    ours, theirs = (tool(careless, "find-hanging", "--topic", name) for tool in (our_tool, kafka_tool))
    assert ours == theirs
    assert len(ours) == 2
    assert ours[1].split()[:6] == [name, "0", str(producer_id), str(epoch), "-1", "0"]
    everywhere = our_tool(careless, "find-hanging", "--broker-id", "1")
    assert ours[1] in everywhere
    recent = ("find-hanging", "--topic", name, "--max-transaction-timeout", "120")
    assert our_tool(careless, *recent) == kafka_tool(careless, *recent) == ours[:1]
    our_tool(careless, "abort", "--topic", name, "--partition", "0", "--start-offset", "0")
    assert ends(careless, name) == (2, 2)
    assert our_tool(careless, "find-hanging", "--topic", name) == ours[:1]
