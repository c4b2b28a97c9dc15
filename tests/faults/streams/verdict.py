"""The check: every input was counted once, as a consumer with read_committed of another project sees it.

The counts of a key in the output must be 1, 2, 3 ... up to the number of its inputs: one that is missing or comes twice shows up. The
last value of each key in the store's changelog must be the same, and the group must be at the end of its inputs.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from millstream.streams.runtime import Streams
from tests.faults.streams.app import APPLICATION, STORE, build

CHANGELOG = f"{APPLICATION}-{STORE}-changelog"


def records_of(
    servers: str, topic: str, isolation: str = "read_committed"
) -> list[tuple[bytes, bytes | None]]:
    """All of them, each key's in order."""
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
    found: list[tuple[bytes, bytes | None]] = []
    try:
        numbers = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        at_end: set[int] = set()
        deadline = time.monotonic() + 120
        while len(at_end) < len(numbers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} cannot be read to its end")
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error() is not None:
                    at_end.add(message.partition())
                else:
                    found.append((message.key(), message.value()))
    finally:
        consumer.close()
    return found


@dataclass(frozen=True)
class Verdict:
    inputs: int
    outputs: int
    undone: int  # outputs of transactions that did not make it
    problems: list[str]

    @property
    def wrong(self) -> int:
        return len(self.problems)

    def __str__(self) -> str:
        return (
            f"{self.inputs:,} inputs, {self.outputs:,} counts, {self.wrong} problems; "
            f"{self.undone:,} counts written and undone"
        )


def number(value: bytes | None) -> int:
    return int.from_bytes((value or b"")[-8:], "big", signed=True)


def judge(servers: str, source: str, target: str) -> Verdict:
    inputs = Counter(key for key, _ in records_of(servers, source))
    outputs = records_of(servers, target)
    problems = compare(inputs, outputs, dict(records_of(servers, CHANGELOG)))
    if lag := Streams(build(source, target), APPLICATION, bootstrap_servers=servers).lag():
        problems.append(f"{lag} records are not processed")
    undone = len(records_of(servers, target, "read_uncommitted")) - len(outputs)
    return Verdict(inputs.total(), len(outputs), undone, problems)


def compare(
    inputs: Counter[bytes], outputs: list[tuple[bytes, bytes | None]], changelog: dict[bytes, bytes | None]
) -> list[str]:
    """What is wrong."""
    counts: dict[bytes, list[int]] = {}
    for key, value in outputs:
        counts.setdefault(key, []).append(number(value))
    problems = []
    for key in sorted(inputs.keys() | counts.keys() | changelog.keys()):
        wanted, found = inputs[key], counts.get(key, [])
        if found != list(range(1, wanted + 1)):
            first = next((n for n, count in enumerate(found, 1) if count != n), len(found) + 1)
            problems.append(
                f"key {key!r}: {wanted} inputs, {len(found)} counts, the first wrong one is number {first}"
            )
        if number(changelog.get(key)) != wanted:
            problems.append(f"key {key!r}: the changelog says {number(changelog.get(key))}, not {wanted}")
    return problems


def wait_until_caught_up(servers: str, source: str, target: str, patience: float) -> bool:
    """Until all is processed. False if for `patience` seconds nothing moved: the application stands still. A slow machine only
    takes longer."""
    return stands_at_zero(
        Streams(build(source, target), APPLICATION, bootstrap_servers=servers).lag, patience
    )


def stands_at_zero(lag: Callable[[], int], patience: float) -> bool:
    """Waits for a lag to become 0. False if it stays as it is for so many seconds."""
    seen, since = -1, time.monotonic()
    while now := lag():
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > patience:
            return False
        time.sleep(0.5)
    return True
