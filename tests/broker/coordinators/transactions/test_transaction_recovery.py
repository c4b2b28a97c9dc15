"""A broker that is killed in the middle of a transaction finishes it after the restart, or aborts it. Nothing
in between.

The steps at which it can die are made by hand: a transaction runs to its end, the broker is killed, and the
logs are cut back to what they held at the step in question. So every step is tried, each time, without luck.
"""

import random
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer

from millstream.broker.coordinators.transactions.transaction_records import State
from millstream.testing import Broker
from millstream.wire.errors import ErrorCode
from tests.support.waiting import wait_until

from .log_files import cut_markers, cut_transaction_log, log_partition
from .raw_transactions import Client, Identity, batch, name
from .test_transaction_clients import read_all

PARTITIONS = 3
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}


class Case(NamedTuple):
    """A transaction, how it was to end, and what of it is in the logs when the broker comes back."""

    txn: str
    topic: str
    identity: Identity
    version: int
    commit: bool
    decided: bool
    markers: int


class Names:
    """Transactional ids that share no partition of the transaction log."""

    def __init__(self) -> None:
        self.used: set[int] = set()

    def new(self) -> str:
        while log_partition(txn := name("txn")) in self.used:
            pass
        self.used.add(log_partition(txn))
        return txn


def run(client: Client, txn: str, version: int, commit: bool, **options: Any) -> tuple[str, Identity]:
    """A whole transaction over all partitions of a topic of its own."""
    topic = client.topic(PARTITIONS)
    identity = client.init(txn, **options)
    if version == 1:
        client.add(txn, identity, *((topic, partition) for partition in range(PARTITIONS)))
    for partition in range(PARTITIONS):
        client.produce(txn, topic, batch(identity), 11 if version == 1 else 12, partition)
    client.end(txn, identity, commit, 4 if version == 1 else 5)
    client.wait_for_state(txn, "CompleteCommit", "CompleteAbort")
    return topic, identity


def test_killed_at_every_step(tmp_path: Path) -> None:
    names, cases = Names(), []
    with Broker(SETTINGS, data_dir=tmp_path) as broker:
        with Client(broker.bootstrap_servers) as client:
            for version in (1, 2):
                for commit in (True, False):
                    for decided, markers in ((False, 0), *((True, n) for n in range(PARTITIONS + 1))):
                        txn = names.new()
                        topic, identity = run(client, txn, version, commit)
                        cases.append(Case(txn, topic, identity, version, commit, decided, markers))
        broker.kill()
        for case in cases:
            complete = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
            prepared = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
            cut_transaction_log(broker, case.txn, *(complete if case.decided else prepared))
            for partition in range(case.markers, PARTITIONS):
                cut_markers(broker, case.topic, partition)
        broker.start()
        with Client(broker.bootstrap_servers) as client:
            for case in cases:
                check_recovered(client, case)
        broker.restart()
        with Client(broker.bootstrap_servers) as client:
            for case in cases:
                client.coordinator(case.txn)
                assert client.state(case.txn) in ("CompleteCommit", "CompleteAbort")
        assert "Traceback" not in broker.log, broker.log[-4000:]


def check_recovered(client: Client, case: Case) -> None:
    client.coordinator(case.txn)
    if not case.decided:
        assert client.state(case.txn) == "Ongoing"
        for partition in range(PARTITIONS):
            assert client.end_offset(case.topic, committed=True, partition=partition) == 0
        client.end(case.txn, case.identity, case.commit, 4 if case.version == 1 else 5)
    client.wait_for_state(case.txn, "CompleteCommit" if case.commit else "CompleteAbort")
    for partition in range(PARTITIONS):
        assert client.committed_values(case.topic, partition) == ([b"v"] if case.commit else []), case
        ends = [
            client.end_offset(case.topic, committed=committed, partition=partition) for committed in (0, 1)
        ]
        assert ends[0] == ends[1], f"{case}: not everything is stable"
    bumped = case.identity.epoch + (1 if case.version == 2 else 0)
    assert client.describe(case.txn)[0].producer_epoch == bumped
    repeated = client.try_end(case.txn, case.identity, case.commit, 4 if case.version == 1 else 5)
    assert repeated.error is ErrorCode.none, "the producer missed the answer and asks again"
    if case.version == 2:
        assert repeated[1:] == (case.identity.id, bumped)


def test_killed_before_the_decision_the_next_producer_or_the_clock_aborts(tmp_path: Path) -> None:
    names = Names()
    with Broker(SETTINGS, data_dir=tmp_path) as broker:
        with Client(broker.bootstrap_servers) as client:
            replaced, late = names.new(), names.new()
            topics = {
                replaced: run(client, replaced, 2, True)[0],
                late: run(client, late, 2, True, timeout_ms=3000)[0],
            }
        broker.kill()
        for txn, topic in topics.items():
            cut_transaction_log(broker, txn, State.PREPARE_COMMIT)
            for partition in range(PARTITIONS):
                cut_markers(broker, topic, partition)
        broker.start()
        with Client(broker.bootstrap_servers) as client:
            assert client.init(replaced).epoch == 2
            client.wait_for_state(late, "CompleteAbort")
            for topic in topics.values():
                for partition in range(PARTITIONS):
                    assert client.committed_values(topic, partition) == []
                    assert client.end_offset(topic, committed=True, partition=partition) == 2


@pytest.mark.parametrize("commit", [True, False])
def test_killed_before_offsets_of_the_transaction_became_the_groups(tmp_path: Path, commit: bool) -> None:
    with Broker(SETTINGS, data_dir=tmp_path) as broker:
        with Client(broker.bootstrap_servers) as client:
            txn, topic, group = name("txn"), client.topic(), name("group")
            client.coordinator_of_group(group)
            identity = client.init(txn)
            client.commit_offset(txn, identity, group, topic, 42)
            assert client.committed_offset(group, topic) == -1
            client.end(txn, identity, commit, 5)
            client.wait_for_state(txn, "CompleteCommit" if commit else "CompleteAbort")
            assert client.committed_offset(group, topic) == (42 if commit else -1)
        broker.kill()
        cut_transaction_log(broker, txn, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        cut_markers(broker, "__consumer_offsets", log_partition(group))
        broker.start()
        with Client(broker.bootstrap_servers) as client:
            client.coordinator(txn)
            client.coordinator_of_group(group)
            client.wait_for_state(txn, "CompleteCommit" if commit else "CompleteAbort")
            assert client.committed_offset(group, topic) == (42 if commit else -1)


def test_a_clean_restart_keeps_everything(tmp_path: Path) -> None:
    with Broker(SETTINGS, data_dir=tmp_path) as broker:
        with Client(broker.bootstrap_servers) as client:
            txn, topic = name("txn"), client.topic()
            identity = client.init(txn, timeout_ms=54_321)
            client.produce(txn, topic, batch(identity), 12)
            before = client.describe(txn)
        broker.restart()
        with Client(broker.bootstrap_servers) as client:
            client.coordinator(txn)
            assert client.describe(txn) == before
            client.produce(txn, topic, batch(identity, 1), 12)
            ended = client.end(txn, identity, True, 5)
            assert ended[1:] == (identity.id, 1)
            assert client.committed_values(topic) == [b"v", b"v"]
            assert client.try_init(None).id > identity.id, "producer ids are not given twice"


# ------------------------------------------------------------------ without cutting


class Writer(threading.Thread):
    """Writes the same number into two topics in one transaction, over and over, and remembers how each
    ended."""

    def __init__(self, bootstrap: str, topics: tuple[str, str]) -> None:
        super().__init__()
        self.bootstrap = bootstrap
        self.topics = topics
        self.txn = name("txn")
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.stopping = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while not self.stopping.is_set():
                producer = Producer(
                    {
                        "bootstrap.servers": self.bootstrap,
                        "transactional.id": self.txn,
                        "transaction.timeout.ms": 60_000,
                        "reconnect.backoff.max.ms": 200,
                        "log_level": 0,
                    }
                )
                self.patiently(producer.init_transactions)
                usable = True
                while usable and not self.stopping.is_set():
                    number += 1
                    usable = self.one(producer, b"%d" % number, commit=number % 4 != 0)
        except BaseException as error:
            self.problem = error

    def wait_for_progress(self, count: int = 5) -> None:
        wanted = len(self.committed) + count
        wait_until(
            lambda: len(self.committed) >= wanted or not self.is_alive(), "no transaction gets through"
        )
        assert self.is_alive(), self.problem

    def patiently(self, call: Any) -> None:
        """Until it succeeds, as the client asks for."""
        while True:
            try:
                call(5)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def one(self, producer: Producer, value: bytes, commit: bool) -> bool:
        """One transaction; false if the producer is of no more use."""
        try:
            producer.begin_transaction()
            for topic in self.topics:
                producer.produce(topic, value)
            self.patiently(producer.commit_transaction if commit else producer.abort_transaction)
            (self.committed if commit else self.aborted).add(value)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self.patiently(producer.abort_transaction)
                self.aborted.add(value)
            else:
                return False
        return True


def test_killed_again_and_again_under_load(tmp_path: Path) -> None:
    chance = random.Random(7)
    with Broker(SETTINGS, data_dir=tmp_path) as broker:
        with Client(broker.bootstrap_servers) as client:
            topics = (client.topic(), client.topic())
        writer = Writer(broker.bootstrap_servers, topics)
        writer.start()
        for _ in range(6):
            writer.wait_for_progress()
            # Killed at any moment of a transaction.
            time.sleep(chance.uniform(0, 0.2))
            broker.kill()
            broker.start()
        writer.wait_for_progress()
        writer.stopping.set()
        writer.join(60)
        assert writer.problem is None
        with Client(broker.bootstrap_servers) as client:
            client.init(writer.txn)  # whatever was open is aborted
            stable = [client.end_offset(topic, committed=True) for topic in topics]
            assert stable == [client.end_offset(topic, committed=False) for topic in topics]
        one, two = (read_all(broker.bootstrap_servers, topic) for topic in topics)
        assert len(one) == len(set(one)), "written twice"
        assert one == two, "a transaction was torn"
        assert writer.committed <= set(one), "an acknowledged commit is lost"
        assert not writer.aborted & set(one), "an aborted transaction is seen"
