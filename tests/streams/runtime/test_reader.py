"""Where batches begin, without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.client import LATEST, ClientConfig
from millstream.client.groups import Committed
from millstream.streams.runtime import reader as module
from millstream.streams.runtime.assignments import Plan, SubTopologyPlan
from millstream.streams.runtime.reader import StreamsReader
from millstream.wire.topic_partition import TopicPartition

CLIENT = ClientConfig.of("127.0.0.1:1")


class Log:
    """The first and the next offset of each partition, and what the group has committed."""

    def __init__(
        self, ends: dict[TopicPartition, tuple[int, int]], committed: dict[TopicPartition, int]
    ) -> None:
        self.ends, self.offsets = ends, committed

    def topic(self, name: str) -> Any:
        return SimpleNamespace(partitions={number: None for topic, number in self.ends if topic == name})

    def list_offsets(
        self, _cluster: Any, wanted: dict[TopicPartition, int], **_: Any
    ) -> dict[TopicPartition, Any]:
        return {
            topic_partition: SimpleNamespace(offset=self.ends[topic_partition][which == LATEST])
            for topic_partition, which in wanted.items()
        }

    def committed(
        self, _group: str, topic_partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        return {
            topic_partition: Committed(self.offsets[topic_partition], -1, "")
            for topic_partition in topic_partitions
            if topic_partition in self.offsets
        }

    def commit(self, _group: str, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, None]:
        self.offsets.update(offsets)
        return dict.fromkeys(offsets)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log({("old", 0): (0, 10), ("cleaned", 0): (4, 9), ("new", 0): (2, 50)}, {("old", 0): 10})
    monkeypatch.setattr(module, "list_offsets", log.list_offsets)
    monkeypatch.setattr(module, "Groups", lambda _: log)
    monkeypatch.setattr(module, "aligned", lambda *_: {})
    return log


def _reader(log: Log) -> StreamsReader:
    reader = StreamsReader("", 1000)
    sub_topologies = [
        SubTopologyPlan(number, [topic], False) for number, topic in enumerate(("old", "cleaned", "new"))
    ]
    reader._loaded = (Plan("app", CLIENT, sub_topologies, frozenset(), frozenset({"new"})), log)
    return reader


CHECKPOINT = {"v": 1, "offsets": {"old": {"0": 10}}, "timers": 0}


def test_a_source_that_is_new_since_the_checkpoint_begins_as_in_a_new_application(log: Log) -> None:
    reader = _reader(log)
    end = reader.latestOffset(CHECKPOINT, None)
    assert end["offsets"] == {"old": {"0": 10}, "cleaned": {"0": 9}, "new": {"0": 50}}
    (assignment,) = [partition.assignment for partition in reader.partitions(CHECKPOINT, end)]  # type: ignore[attr-defined]
    assert assignment.ranges == (("cleaned", 4, 9),)  # from its beginning; the other one from its end


def test_the_end_that_was_chosen_stays(log: Log) -> None:
    log.ends["cleaned", 0] = (4, 4)
    assert _reader(log).latestOffset(CHECKPOINT, None) == CHECKPOINT  # nothing to do yet
    log.ends["new", 0] = (2, 53)
    again = _reader(log)  # another process, with the same checkpoint
    end = again.latestOffset(CHECKPOINT, None)
    (assignment,) = [partition.assignment for partition in again.partitions(CHECKPOINT, end)]  # type: ignore[attr-defined]
    assert assignment.ranges == (("new", 50, 53),)
    assert again.initialOffset()["offsets"] == {"old": {"0": 10}, "cleaned": {"0": 4}, "new": {"0": 50}}
