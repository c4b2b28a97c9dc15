"""The Streams application as a subject: every input must be counted once.

The counts of a key in the output must be 1, 2, 3 ... up to the number of its inputs: one that is missing or
comes twice shows up. The last value of each key in the store's changelog must be the same, and the group must
be at the end of its inputs.
"""

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from millstream.client import ClientConfig, Cluster
from millstream.client.groups import Groups
from millstream.streams import Streams
from millstream.wire.errors import KafkaError
from tests.faults.spark.driver import Driver
from tests.faults.spark.harness import SOURCE, TARGET, Verdict, messages_of
from tests.faults.spark.streams_app import APPLICATION, STORE, build

CHANGELOG = f"{APPLICATION}-{STORE}-changelog"
KeyValue = tuple[bytes, bytes | None]


class StreamsDriver(Driver):
    """How far it is, its group says: what Spark counts of the host's jobs means nothing. Its tasks are slow,
    so every moment is in the middle of one."""

    LOOK_EVERY = 0.05

    def __init__(self, command: Sequence[str], servers: str, folder: Path) -> None:
        super().__init__(command, SOURCE, folder / "no checkpoint", folder / "driver.log")
        self._client = ClientConfig.of(servers, {"default.api.timeout.ms": "1000"})
        self._committed, self._looked_at = 0, 0.0

    @property
    def in_batch(self) -> bool:
        return True

    @property
    def batches(self) -> int:
        return self.planned

    @property
    def planned(self) -> int:
        if time.monotonic() > self._looked_at + self.LOOK_EVERY:
            with contextlib.suppress(KafkaError), Cluster(self._client) as cluster:
                found = Groups(cluster).committed(APPLICATION).items()
                self._committed = sum(
                    committed.offset
                    for which, committed in found
                    if which.topic == SOURCE and not isinstance(committed, KafkaError)
                )
            self._looked_at = time.monotonic()
        return self._committed

    @property
    def progress(self) -> str:
        return f"{self.planned} inputs committed"


class StreamsApplication:
    partitions = 2

    def driver(self, servers: str, folder: Path) -> Driver:
        state = folder / "state"
        command = ["tests.faults.spark.streams_app", "--servers", servers, "--source", SOURCE]
        command += ["--target", TARGET, "--state", str(state)]
        return StreamsDriver(command, servers, folder)

    def lose_stores(self, folder: Path) -> Callable[[bool], None]:
        state = folder / "state" / APPLICATION

        def lose(everything: bool) -> None:
            shutil.rmtree(state if everything else state / "stores", ignore_errors=True)

        return lose

    def lag(self, servers: str) -> int:
        return Streams(build(SOURCE, TARGET), APPLICATION, bootstrap_servers=servers).lag()

    def judge(self, servers: str) -> Verdict:
        inputs = Counter(key for key, _ in records_of(servers, SOURCE))
        outputs = records_of(servers, TARGET)
        problems = compare(inputs, outputs, dict(records_of(servers, CHANGELOG)))
        if lag := self.lag(servers):
            problems.append(f"{lag} records are not processed")
        undone = len(records_of(servers, TARGET, "read_uncommitted")) - len(outputs)
        return Verdict(inputs.total(), len(outputs), undone, problems)


def records_of(servers: str, topic: str, isolation: str = "read_committed") -> list[KeyValue]:
    """All of them, each key's in order."""
    return [(message.key() or b"", message.value()) for message in messages_of(servers, topic, isolation)]


def number(value: bytes | None) -> int:
    return int.from_bytes((value or b"")[-8:], "big", signed=True)


def compare(
    inputs: Counter[bytes], outputs: list[KeyValue], changelog: dict[bytes, bytes | None]
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
