"""The check: every input had its effect once, as a consumer with read_committed of another project sees it."""

import time
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from millstream.client import EARLIEST, LATEST, ClientConfig, Cluster, Fetcher, list_offsets
from millstream.client.fetch import next_offset, visible_batches


def inputs_of(servers: str, topic: str) -> set[str]:
    """`partition:offset` of every record of the input."""
    with Cluster(ClientConfig.of(servers)) as cluster:
        places = [(topic, number) for number in cluster.topic(topic).partitions]
        at = {
            place: found.offset
            for place, found in list_offsets(cluster, dict.fromkeys(places, EARLIEST)).items()
        }
        ends = list_offsets(cluster, dict.fromkeys(places, LATEST))
        found: set[str] = set()
        fetcher = Fetcher(cluster)
        while left := {place: offset for place, offset in at.items() if offset < ends[place].offset}:
            for answer in fetcher.poll(left):
                place = (answer.topic, answer.partition)
                for header, _ in visible_batches(answer, at[place]):
                    found.update(
                        f"{answer.partition}:{o}" for o in range(header.base_offset, header.next_offset)
                    )
                at[place] = next_offset(answer, at[place])
        return found


def effects_of(servers: str, topic: str, isolation: str = "read_committed") -> Counter[str]:
    """How often each input is named in the output."""
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
    found: Counter[str] = Counter()
    try:
        numbers = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        at_end: set[int] = set()
        deadline = time.monotonic() + 120
        while len(at_end) < len(numbers) and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error() is not None:
                    at_end.add(message.partition())
                else:
                    found[message.value().decode()] += 1
    finally:
        consumer.close()
    return found


@dataclass(frozen=True)
class Verdict:
    inputs: int
    missing: list[str]
    repeated: list[str]
    unknown: list[str]
    undone: int  # rows that were written in transactions that did not make it

    @property
    def wrong(self) -> int:
        return len(self.missing) + len(self.repeated) + len(self.unknown)

    def __str__(self) -> str:
        return (
            f"{self.inputs:,} inputs, {len(self.missing)} missing, {len(self.repeated)} repeated, "
            f"{len(self.unknown)} from nowhere; {self.undone:,} rows written and undone"
        )


def judge(servers: str, source: str, target: str) -> Verdict:
    inputs = inputs_of(servers, source)
    effects = effects_of(servers, target)
    written = sum(effects_of(servers, target, "read_uncommitted").values())
    return Verdict(
        inputs=len(inputs),
        missing=sorted(inputs - effects.keys()),
        repeated=sorted(name for name, count in effects.items() if count > 1),
        unknown=sorted(effects.keys() - inputs),
        undone=written - sum(effects.values()),
    )


def wait_until_caught_up(servers: str, source: str, target: str, patience: float) -> bool:
    """Until the output has as many rows as the input. False if for `patience` seconds no row was added: the pipeline
    stands still. A slow machine only takes longer."""
    wanted = len(inputs_of(servers, source))
    seen, since = -1, time.monotonic()
    while (now := effects_of(servers, target).total()) < wanted:
        if now > seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > patience:
            return False
        time.sleep(0.5)
    return True
