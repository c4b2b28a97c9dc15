"""One run, the same for every subject: a broker, input all the time, an application, kills all the time; in
the end the application gets the time to catch up, and the subject says what is wrong."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, Message, TopicPartition

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.testing import Broker
from tests.faults.spark.chaos import RESTLESS, Chaos
from tests.faults.spark.driver import Driver
from tests.faults.spark.feed import Feed

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "log.flush.interval.messages": "9223372036854775807",
}
SOURCE, TARGET = "input", "output"
START_PATIENCE = 300.0
# Seconds in which nothing is processed: then the application stands still.
STANDSTILL = 180.0
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """What a consumer with read_committed of another project saw."""

    inputs: int
    outputs: int
    # Outputs of transactions that were aborted.
    undone: int
    problems: list[str]

    def __str__(self) -> str:
        return (
            f"{self.inputs:,} inputs, {self.outputs:,} outputs, {len(self.problems)} problems; "
            f"{self.undone:,} written and undone"
        )


class Subject(Protocol):
    """What is under fire."""

    partitions: int

    def driver(self, servers: str, folder: Path) -> Driver: ...

    def lose_stores(self, folder: Path) -> Callable[[bool], None] | None:
        """How to lose local state below this folder, where there is any."""

    def lag(self, servers: str) -> int:
        """How many inputs have no effect yet."""

    def judge(self, servers: str) -> Verdict: ...


@dataclass(frozen=True)
class Outcome:
    chaos: Chaos
    driver: Driver
    verdict: Verdict


def run(
    subject: Subject,
    folder: Path,
    *,
    kills: int,
    seed: int,
    rate: int,
    seconds: float,
    acts: tuple[str, ...] = (),
    patience: float = RESTLESS,
    hasty: float = 0.0,
    tell: Tell = lambda _: None,
) -> Outcome:
    """Break what `acts` names, one after the other; then at random until there were enough kills or the time
    is up; then judge."""
    with Broker(SETTINGS, data_dir=folder / "broker", start_timeout=START_PATIENCE) as broker:
        servers = broker.bootstrap_servers
        with Cluster(ClientConfig.of(servers)) as cluster:
            Admin(cluster).create_topics([NewTopic(SOURCE, subject.partitions, 1), NewTopic(TARGET, 2, 1)])
        driver = subject.driver(servers, folder)
        lose_stores = subject.lose_stores(folder)
        chaos = Chaos(broker, driver, seed, lose_stores=lose_stores, patience=patience, hasty=hasty)
        deadline = time.monotonic() + seconds
        try:
            with Feed(servers, SOURCE, subject.partitions, rate, lambda: driver.planned):
                driver.start()
                for act in acts:
                    chaos.once(act)
                while chaos.total < kills and time.monotonic() < deadline:
                    act = chaos.once()
                    left = deadline - time.monotonic()
                    tell(f"{chaos.total} kills ({act}), {driver.progress}, {left:.0f} s left")
            tell("catching up")
            if not reaches_zero(lambda: subject.lag(servers), STANDSTILL):
                tell(f"no progress for {STANDSTILL:.0f} s; the driver's last lines:\n{driver.tail()}")
            return Outcome(chaos, driver, subject.judge(servers))
        finally:
            driver.stop()


def reaches_zero(lag: Callable[[], int], patience: float) -> bool:
    """Waits for a lag to become 0. False if it stays as it is for so many seconds: a slow machine only takes
    longer."""
    seen, since = -1, time.monotonic()
    while now := lag():
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > patience:
            return False
        # A look at the lag is a dozen requests.
        time.sleep(0.5)
    return True


def messages_of(servers: str, topic: str, isolation: str = "read_committed") -> Iterator[Message]:
    """All messages of a topic, each partition's in order, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "verdict",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=120).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        at_end: set[int] = set()
        progress = time.monotonic()
        while len(at_end) < len(partitions):
            if time.monotonic() - progress > STANDSTILL:
                raise TimeoutError(f"{topic} cannot be read to its end")
            for message in consumer.consume(10_000, timeout=1.0):
                progress = time.monotonic()
                if message.error() is not None:
                    at_end.add(message.partition())
                else:
                    yield message
    finally:
        consumer.close()
