"""SQL and Connect as subjects: services whose tasks run on Spark, in driver children. Two of them share the
work, or one stands by: when it is killed, the other goes on.

SQL counts by key, as the Streams application does: the counts of a key must be 1, 2, 3 ... up to the number
of its inputs. Connect has two connectors: a file sink, whose file must have a line for each record of the
input, and a file source, whose topic must have a record for each line of a file that grows meanwhile.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets
from millstream.client.groups import Groups
from millstream.wire.topic_partition import TopicPartition
from tests.faults.spark.driver import Driver
from tests.faults.spark.harness import SOURCE, TARGET, Verdict, messages_of
from tests.faults.spark.service_app import SERVICE_ID
from tests.faults.spark.service_driver import Group, Services, committed
from tests.faults.spark.streams import compare, records_of

_LINE = re.compile(r"Struct\{v=input,p=(\d+),o=(\d+)\}")
LINES_A_SECOND = 50


def behind(servers: str, partitions: int, group: Group) -> tuple[int, int]:
    """How many records of the input a group has not read, and how many it has."""
    with Cluster(ClientConfig.of(servers)) as cluster:
        wanted = {TopicPartition(SOURCE, number): LATEST for number in range(partitions)}
        ends = list_offsets(cluster, wanted)
        done = committed(cluster, group)
    read = sum(done.values())
    return sum(end.offset for end in ends.values()) - read, read


class SqlServer:
    """`count` servers of one service."""

    partitions = 2

    def __init__(self, count: int = 1) -> None:
        self._count = count

    def driver(self, servers: str, folder: Path) -> Driver:
        return Services("sql", servers, folder, self._count, self.group)

    @staticmethod
    def group(groups: Groups) -> str:
        """That of the query, whose id has the place of its statement."""
        prefix = f"_confluent-ksql-{SERVICE_ID}query_"
        names = [one.group_id for one in groups.listed() if one.group_id.startswith(prefix)]
        return next((name for name in names if not name.endswith("-planner")), "")

    def lose_stores(self, _folder: Path) -> None:
        return None

    def lag(self, servers: str) -> int:
        """What is not read yet, and what is on its way through the repartition topic."""
        unread, read = behind(servers, self.partitions, self.group)
        return unread + max(0, read - sum(1 for _ in messages_of(servers, TARGET)))

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
    """`count` workers of one group. A file grows until nothing more is fed."""

    partitions = 2

    def __init__(self, count: int = 1) -> None:
        self._count = count
        self._stop = threading.Event()
        self._folder = Path()
        self._writer = threading.Thread(target=self._write, daemon=True)

    def driver(self, servers: str, folder: Path) -> Driver:
        self._folder = folder
        (folder / "source.txt").touch()
        self._writer.start()
        return Services("connect", servers, folder, self._count, self.group)

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
        return behind(servers, self.partitions, self.group)[0] + max(0, lines - there)

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
