"""Kafka Streams: word count with `exactly_once_v2`, while the application, or the broker, is killed in the
middle.

The application (streams/WordCount.java) writes one count for every word it reads. So whoever reads committed
records must find, for each word, the counts 1, 2, 3, ... in this order, each once, up to the number of times
it was written.
"""

import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing import Broker
from tests.support.peers import apache_kafka
from tests.support.waiting import wait_until

from .conftest import SETTINGS

pytestmark = pytest.mark.interop_slow
SOURCES = Path(__file__).with_name("streams")
WORDS = [f"word{number}" for number in range(50)]
LINES, WORDS_A_LINE = 6000, 5
PARTITIONS = 2
PATIENCE = 150.0


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not all(shutil.which(program) for program in ("mvn", "javac", "java")):
        pytest.skip("needs mvn, javac and java")
    folder = tmp_path_factory.mktemp("streams")
    jars = folder / "class-path"
    command = ["mvn", "-B", "-q", "-f", str(SOURCES / "pom.xml"), "dependency:build-classpath"]
    found = subprocess.run(
        [*command, f"-Dmdep.outputFile={jars}"], capture_output=True, text=True, timeout=600
    )
    if found.returncode != 0:
        pytest.skip(f"Maven cannot bring Kafka Streams: {found.stdout[-300:]}")
    compiled = subprocess.run(
        ["javac", "-d", str(folder), "-cp", jars.read_text(), str(SOURCES / "WordCount.java")],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert compiled.returncode == 0, compiled.stderr
    return f"{folder}:{jars.read_text()}"


class Application:
    """The word count in a process that can be killed and started again; its folder stays."""

    def __init__(self, class_path: str, bootstrap: str, name: str, folder: Path) -> None:
        self._command = ["java", "-Xmx256m", "-cp", class_path, "WordCount", bootstrap, name]
        self._command += [f"{name}-in", f"{name}-out", str(folder / "state")]
        self.output = folder / "output"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.output.open("ab") as file:
            self._process = subprocess.Popen(self._command, stdout=file, stderr=file)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Counts(threading.Thread):
    """Reads what is committed to the output topic, from the beginning on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.found: dict[str, list[int]] = {word: [] for word in WORDS}
        self.total = 0
        self.stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "by-assignment",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self.found[message.key().decode()].append(int(message.value()))
                    self.total += 1
        self._consumer.close()

    def wait_for(self, total: int, application: Application) -> None:
        wait_until(
            lambda: self.total >= total,
            lambda: f"{self.total} of {total} counts came\n{application.output.read_text()[-3000:]}",
            patience=PATIENCE,
        )


class Lines(threading.Thread):
    """Writes lines of words at a steady pace."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.written: Counter[str] = Counter()
        self.failed = 0
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )

    def run(self) -> None:
        choose = random.Random(5)
        for number in range(LINES):
            words = choose.choices(WORDS, k=WORDS_A_LINE)
            self.written.update(words)
            self._producer.produce(
                self._topic, " ".join(words), partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0)
            if number % 100 == 0:
                # The pace of the input, so that the kills hit an application at work.
                time.sleep(0.25)
        self.failed += self._producer.flush(60)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failed += 1


@contextmanager
def counting(
    class_path: str, bootstrap: str, name: str, folder: Path
) -> Iterator[tuple[Application, Counts]]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics(
        [NewTopic(f"{name}-in", PARTITIONS, 1), NewTopic(f"{name}-out", PARTITIONS, 1)]
    ).values():
        future.result(30)
    application = Application(class_path, bootstrap, name, folder)
    counts = Counts(bootstrap, f"{name}-out")
    counts.start()
    application.start()
    try:
        yield application, counts
    finally:
        application.kill()
        counts.stopping.set()
        counts.join()


def run(
    class_path: str, bootstrap: str, name: str, folder: Path, trouble: Callable[[Application, Counts], None]
) -> None:
    with counting(class_path, bootstrap, name, folder) as (application, counts):
        lines = Lines(bootstrap, f"{name}-in")
        lines.start()
        trouble(application, counts)
        lines.join()
        assert lines.failed == 0
        counts.wait_for(LINES * WORDS_A_LINE, application)
        # Were there a count too many, it would come now. Nothing tells that none will.
        time.sleep(1)
        assert counts.found == {word: list(range(1, lines.written[word] + 1)) for word in WORDS}


@pytest.mark.timeout(600)
def test_the_application_is_killed(class_path: str, bootstrap: str, name: str, tmp_path: Path) -> None:
    def trouble(application: Application, counts: Counts) -> None:
        for kill in range(2):
            counts.wait_for((kill + 1) * LINES, application)
            application.kill()
            application.start()

    run(class_path, bootstrap, name, tmp_path, trouble)


@pytest.fixture
def mortal(against: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A broker for this test alone: its address, and what kills it and starts it again."""
    if against == "millstream":
        with Broker(SETTINGS) as broker:
            yield broker.bootstrap_servers, lambda: _again(broker)
    elif against == "kafka":
        with apache_kafka().ApacheKafka(settings=SETTINGS) as kafka:
            yield kafka.bootstrap, lambda: _again(kafka)
    else:
        pytest.skip("somebody else's broker is not killed")


def _again(broker: Any) -> None:
    broker.kill()
    broker.start()


@pytest.mark.timeout(600)
def test_the_broker_is_killed(
    class_path: str, mortal: tuple[str, Callable[[], None]], name: str, tmp_path: Path
) -> None:
    bootstrap, kill_and_start = mortal

    def trouble(application: Application, counts: Counts) -> None:
        for kill in range(3):
            counts.wait_for((kill + 1) * LINES, application)
            kill_and_start()

    run(class_path, bootstrap, name, tmp_path, trouble)
