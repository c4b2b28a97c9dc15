"""Our operators against Kafka Streams: what its TopologyTestDriver gave for the same topologies and records.

The vectors are recorded by `python tests/pipeline/streams/record.py`. Every output of every step is compared: topic, key, value,
timestamp and headers, in order; so are the names of all topics written to, and the text of `describe()`.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from millstream.pipeline.streams import StreamsBuilder
from millstream.testing.topology import RawRecord, TopologyTestDriver
from tests.pipeline.streams.topologies import BUILDS

FOLDER = Path(__file__).with_name("vectors")
CLOCK = 1_000_000


def _load() -> dict[str, dict[str, Any]]:
    found = {}
    for file in sorted(FOLDER.glob("*.json.gz")):
        for vector in json.loads(gzip.decompress(file.read_bytes())):
            found[vector["name"]] = vector
    return found


VECTORS = _load()


def _bytes(shown: Any) -> bytes | None:
    if shown is None:
        return None
    return bytes.fromhex(shown[0]) if isinstance(shown, list) else shown.encode()


def _headers(shown: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, _bytes(value)) for name, value in shown)


def _is_compared(topic: str) -> bool:
    return not topic.endswith(("-changelog", "-topic"))


def _outputs(driver: TopologyTestDriver) -> list[tuple[str, RawRecord]]:
    return [
        (topic, record)
        for topic in sorted(driver.produced_topics)
        if _is_compared(topic)
        for record in driver.read_raw(topic)
    ]


def _driver(name: str) -> TopologyTestDriver:
    builder = StreamsBuilder()
    BUILDS[name](builder)
    return TopologyTestDriver(builder.build(), application="vectors", start=CLOCK)


def _expected(shown: list[Any]) -> list[tuple[str, RawRecord]]:
    return [
        (topic, RawRecord(_bytes(key), _bytes(value), timestamp, _headers(headers)))
        for topic, key, value, timestamp, headers in shown
    ]


def test_every_vector_has_a_topology() -> None:
    assert VECTORS.keys() == BUILDS.keys()


@pytest.mark.parametrize("name", VECTORS)
def test_outputs_are_kafka_streams(name: str) -> None:
    produced: set[str] = set()
    for run, steps in enumerate(VECTORS[name]["runs"]):
        driver = _driver(name)
        for number, step in enumerate(steps):
            if len(step) == 2:
                driver.advance_wall_clock(step[0])
            else:
                topic, key, value, timestamp, headers, _ = step
                driver.pipe_raw(topic, _bytes(key), _bytes(value), timestamp, _headers(headers))
            assert _outputs(driver) == _expected(step[-1]), f"run {run}, step {number}: {step[:-1]}"
        produced |= driver.produced_topics
    assert sorted(produced) == VECTORS[name]["topics"]


@pytest.mark.parametrize("name", VECTORS)
def test_describe_is_kafka_streams(name: str) -> None:
    if name == "to_chosen_topic":
        pytest.xfail("the text holds the address of a Java object there")
    builder = StreamsBuilder()
    BUILDS[name](builder)
    assert builder.build().describe() == VECTORS[name]["describe"]
