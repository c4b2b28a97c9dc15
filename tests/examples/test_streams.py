"""The examples of examples/streams: each runs by itself and prints what its text says; and on Spark, against
a broker, each writes what it writes in the test driver."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.testing import Broker
from millstream.testing.topology import TopologyTestDriver
from tests.support.ports import free_port

FOLDER = Path(__file__).parents[2] / "examples" / "streams"

PRINTED = {
    "upper_case": "1 HELLO\n2 MILL\n",
    "word_count": "all        2\nstreams    2\nlead       1\nto         1\nkafka      1\njoin       1\n",
    "pageviews_by_region": "asia@0 min      1\neurope@0 min    2\neurope@1 min    1\n",
    "clicks_and_users": "Alice, shoes: clicked\nb, hats: ignored\n",
    "sum_six_or_five": "as a stream: 6\nas a table:  5\n",
    "event_sourcing": (
        "event   o1 placed\nevent   o2 placed\nevent   o1 paid\nevent   o2 paid\nevent   o2 "
        "refused\nevent   o1 cancelled\n"
        "order   o1 cancelled ute 30\norder   o2 paid ute 12\n"
        "revenue ute 30\nrevenue ute 42\nrevenue ute 42\nrevenue ute 12\n"
    ),
    "orders": (
        "order   o1 accepted\norder   o2 refused\norder   o3 refused\n"
        "invoice ute 2 x City bike 4800\nstock   city 1\nstock   cargo 0\n"
    ),
    "plant": (
        "alerts-error    battery  Battery assembly: no cells left\n"
        "alerts-warning  frame    Frame welding: 81 degrees\n"
        "alerts-warning  frame    Frame welding: 90 degrees\n"
        "alerts-warning  frame    Frame welding: 100 degrees\n"
        "alerts-warning  battery  Battery assembly: slow\n"
        "alerts-warning  frame    Frame welding: next shift\n"
        "trends          battery  fine\n"
        "trends          frame    too many warnings\n"
    ),
}


def test_every_example_is_here() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} - {"run"} == PRINTED.keys()


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == PRINTED[name]


def _run(name: str, *options: str, **environment: str) -> dict[str, list[str]]:
    """What `run.py` says was written, by topic."""
    command = [sys.executable, str(FOLDER / "run.py"), name, *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    printed = done.stdout.split("\n\n")[-1].splitlines()  # behind the description of the topology
    found: dict[str, list[str]] = {}
    for line in filter(None, printed):
        found.setdefault(line.split(" ")[0], []).append(line)
    return found


def _in_the_test_driver(name: str) -> dict[str, list[str]]:
    content: dict[str, Any] = runpy.run_path(str(FOLDER / f"{name}.py"))
    topology = content["build"]()
    driver = TopologyTestDriver(topology)
    for topic, key, value, timestamp in content["RECORDS"]:
        driver.input_topic(topic).pipe(key, value, timestamp)
    sinks = [node.topics[0] for node in topology.nodes.values() if node.type == "sink"]
    found = {
        topic: [f"{topic} {key} {value}" for key, value in driver.output_topic(topic).read_key_values()]
        for topic in sinks
        if topic not in topology.internal
    }
    return {topic: lines for topic, lines in found.items() if lines}


@pytest.mark.parametrize("name", PRINTED)
def test_questions_are_about_stores_that_can_be_asked(name: str) -> None:
    content = runpy.run_path(str(FOLDER / f"{name}.py"))
    stores = content["build"]().stores
    asked = {question.split("/")[2] for question in content.get("QUESTIONS", [])}
    assert all(stores[store].logged for store in asked)


ANSWERS = {
    "event_sourcing": [
        {"key": "o1", "value": {"was": "cancelled", "customer": "ute", "amount": 30}},
        {"rows": [{"key": "o2", "value": {"was": "paid", "customer": "ute", "amount": 12}, "timestamp": 4}]},
        {"key": "ute", "value": 12},
    ],
    "orders": [{"key": "city", "value": 1}],
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(220)
@pytest.mark.parametrize("name", ANSWERS)
def test_views_are_served_over_http(name: str) -> None:
    """Beside the application, in a process of its own: it writes what it always writes, and the views
    answer."""
    port = free_port()
    found = _run(name, "--serve", str(port))
    assert len(found.pop("serving")) == 1
    asked = [line.split(" ", 2) for line in found.pop("asked")]
    assert found == _in_the_test_driver(name)
    assert [question for _, question, _ in asked] == runpy.run_path(str(FOLDER / f"{name}.py"))["QUESTIONS"]
    answers = [json.loads(answer) for *_, answer in asked]
    assert all(answer.pop("offsets") for answer in answers)
    for answer in answers:
        answer.pop("timestamp", None)  # a processor's own store has none
    assert answers == ANSWERS[name]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(220)
@pytest.mark.parametrize("name", PRINTED)
def test_example_on_spark(name: str) -> None:
    """One command: it starts a broker and Spark, and writes the same records in the same order."""
    assert _run(name) == _in_the_test_driver(name)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_stopped_and_started_again_with_other_parallelism_on_another_machine(tmp_path: Path) -> None:
    """Three times the same lines: on one core, then on two with another folder, then on one again. No count
    is lost."""
    with Broker() as broker:
        options = ("--bootstrap", broker.bootstrap_servers, "--partitions", "4")
        for times, (cores, folder) in enumerate(((1, "one"), (2, "two"), (1, "two")), 1):
            found = _run(
                "word_count",
                *options,
                "--state",
                str(tmp_path / folder),
                MILLSTREAM_SPARK_MASTER=f"local[{cores}]",
            )
            once = Counter({"all": 2, "streams": 2, "lead": 1, "to": 1, "kafka": 1, "join": 1})
            wanted = {
                f"word-counts {word} {times * count - less}"
                for word, count in once.items()
                for less in range(count)
            }
            assert set(found["word-counts"]) == wanted
            assert len(found["word-counts"]) == once.total()
