"""SQL and Connect as subjects: a service whose tasks run on Spark, in a driver child.

SQL counts by key, as the Streams application does: the counts of a key must be 1, 2, 3 ... up to the number
of its inputs. Connect has two connectors: a file sink, whose file must have a line for each record of the
input, and a file source, whose topic must have a record for each line of a file that grows meanwhile.
"""

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.client.groups import Groups
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition
from tests.faults.spark.driver import Driver
from tests.faults.spark.harness import SOURCE, TARGET, Verdict, messages_of
from tests.faults.spark.service_app import SERVICE_ID
from tests.faults.spark.streams import compare, records_of

_LINE = re.compile(r"Struct\{v=input,p=(\d+),o=(\d+)\}")
LINES_A_SECOND = 50


class ServiceDriver(Driver):
    """The service itself goes on when its JVM is killed: it has to find another one. How far it is, its group
    says."""

    LOOK_EVERY = 0.05

    def __init__(self, what: str, servers: str, folder: Path, group: Callable[[Groups], str]) -> None:
        command = ["tests.faults.spark.service_app", what, "--servers", servers, "--source", SOURCE]
        command += ["--target", TARGET, "--folder", str(folder)]
        super().__init__(command, SOURCE, folder / "no checkpoint", folder / "driver.log")
        self._client = ClientConfig.of(servers, {"default.api.timeout.ms": "1000"})
        self._group = group
        self._committed, self._looked_at = 0, 0.0

    def start(self) -> None:
        if not self.running:
            super().start()

    def kill_jvm(self) -> None:
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                if process.name() == "java":
                    process.kill()

    def forget_commit(self) -> bool:
        return False

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
                self._committed = sum(committed(cluster, self._group).values())
            self._looked_at = time.monotonic()
        return self._committed

    @property
    def progress(self) -> str:
        return f"{self.planned} inputs committed"


def committed(cluster: Cluster, group: Callable[[Groups], str]) -> dict[TopicPartition, int]:
    """How far a group is in the input."""
    groups = Groups(cluster)
    name = group(groups)
    return {
        which: found.offset
        for which, found in (groups.committed(name) if name else {}).items()
        if which.topic == SOURCE and not isinstance(found, KafkaError)
    }


def behind(servers: str, partitions: int, group: Callable[[Groups], str]) -> int:
    with Cluster(ClientConfig.of(servers)) as cluster:
        wanted = {TopicPartition(SOURCE, number): LATEST for number in range(partitions)}
        ends = list_offsets(cluster, wanted)
        done = committed(cluster, group)
    return sum(end.offset - done.get(which, 0) for which, end in ends.items())


class SqlServer:
    partitions = 2

    def driver(self, servers: str, folder: Path) -> Driver:
        return ServiceDriver("sql", servers, folder, self.group)

    @staticmethod
    def group(groups: Groups) -> str:
        """That of the query, whose id has the place of its statement."""
        prefix = f"_confluent-ksql-{SERVICE_ID}query_"
        return next((one.group_id for one in groups.listed() if one.group_id.startswith(prefix)), "")

    def lose_stores(self, _folder: Path) -> None:
        return None

    def lag(self, servers: str) -> int:
        return behind(servers, self.partitions, self.group)

    def judge(self, servers: str) -> Verdict:
        inputs = Counter(key for key, _ in records_of(servers, SOURCE))
        outputs = records_of(servers, TARGET)
        newest: dict[bytes, bytes | None] = dict(outputs)
        problems = compare(inputs, outputs, newest)
        if lag := self.lag(servers):
            problems.append(f"{lag} records are not processed")
        undone = len(records_of(servers, TARGET, "read_uncommitted")) - len(outputs)
        return Verdict(inputs.total(), len(outputs), undone, problems)


class ConnectWorker:
    """A file grows until nothing more is fed."""

    partitions = 2

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._folder = Path()
        self._writer = threading.Thread(target=self._write, daemon=True)

    def driver(self, servers: str, folder: Path) -> Driver:
        self._folder = folder
        (folder / "source.txt").touch()
        self._writer.start()
        return ServiceDriver("connect", servers, folder, self.group)

    def _write(self) -> None:
        number = 0
        with (self._folder / "source.txt").open("a") as file:
            # The pace of the load.
            while not self._stop.wait(0.1):
                for _ in range(LINES_A_SECOND // 10):
                    file.write(f"line {number}\n")
                    number += 1
                file.flush()

    @staticmethod
    def group(_groups: Groups) -> str:
        return "connect-sink"

    def lose_stores(self, _folder: Path) -> None:
        return None

    def _stopped(self) -> None:
        self._stop.set()
        self._writer.join()

    def lag(self, servers: str) -> int:
        self._stopped()
        lines = len((self._folder / "source.txt").read_text().splitlines())
        there = sum(1 for _ in messages_of(servers, TARGET))
        return behind(servers, self.partitions, self.group) + max(0, lines - there)

    def judge(self, servers: str) -> Verdict:
        self._stopped()
        inputs = {f"{message.partition()}:{message.offset()}" for message in messages_of(servers, SOURCE)}
        written = Counter(places((self._folder / "sink.txt").read_text()))
        lines = (self._folder / "source.txt").read_text().splitlines()
        found = Counter((message.value() or b"").decode() for message in messages_of(servers, TARGET))
        problems = differences("the sink's file", inputs, written)
        problems += differences("the source's topic", set(lines), found)
        undone = sum(1 for _ in messages_of(servers, TARGET, "read_uncommitted")) - found.total()
        return Verdict(len(inputs) + len(lines), written.total() + found.total(), undone, problems)


def places(text: str) -> Iterable[str]:
    """Where the record of each line was; a line that is none stands for itself."""
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        yield f"{match[1]}:{match[2]}" if match else line


def differences(where: str, expected: set[str], found: Counter[str]) -> list[str]:
    missing = [f"{where}: {one} is missing" for one in sorted(expected - found.keys())]
    unknown = [f"{where}: {one} is unknown" for one in sorted(found.keys() - expected)]
    twice = [f"{where}: {one} is there {count} times" for one, count in sorted(found.items()) if count > 1]
    return missing + unknown + twice
