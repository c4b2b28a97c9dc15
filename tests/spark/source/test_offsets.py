"""What is missing once is asked for again; what stays missing is lost, and said once. No broker: its answers
are made up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from millstream.client import Unreachable
from millstream.client.cluster import Partition, Topic
from millstream.client.cluster_cache import SharedCluster
from millstream.client.messages import NO_ID
from millstream.client.offsets import EARLIEST, Offset
from millstream.spark.errors import OptionError, PipelineError
from millstream.spark.source import offsets, stream
from millstream.spark.source.offsets import Source
from millstream.spark.source.plan import Range
from millstream.spark.source.read_options import ReadOptions, parse_read_options
from millstream.spark.source.task import TaskReader
from millstream.wire.arrow import Columns
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

from .reading import Stream

UNKNOWN = KafkaError(ErrorCode.unknown_topic_or_partition, "unknown")
NO_LEADER = KafkaError(ErrorCode.leader_not_available, "no leader")


@dataclass
class Answers:
    """A cluster whose topics have one partition each, which end where `ends` says. `troubles` come before the
    truth: for each question about topics, what is wrong with which of them; `short` are ends that are
    answered first."""

    ends: dict[str, int]
    troubles: list[Mapping[str, KafkaError]] = field(default_factory=list)
    short: list[int] = field(default_factory=list)
    topics: dict[str, Topic] = field(default_factory=dict)
    asked: int = 0

    def refresh(self, wanted: Iterable[str] | None = None) -> dict[str, KafkaError]:
        self.asked += 1
        trouble = self.troubles.pop(0) if self.troubles else {}
        names = set(self.ends if wanted is None else wanted)
        problems = {name: trouble.get(name, UNKNOWN) for name in names - (self.ends.keys() - trouble.keys())}
        self.topics = {
            name: Topic(name, NO_ID, False, {0: Partition(0, 1, 0, (1,), (1,), ())})
            for name in names - problems.keys()
        }
        return problems if wanted is not None else {}

    def list_offsets(
        self, cluster: object, wanted: Mapping[TopicPartition, int], **_: object
    ) -> dict[TopicPartition, Offset]:
        ends = {t: self.short.pop(0) if self.short and self.ends[t] else end for t, end in self.ends.items()}
        return {
            topic_partition: Offset(0 if moment == EARLIEST else ends[topic_partition[0]], -1, -1)
            for topic_partition, moment in wanted.items()
        }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers({"t": 5, "u": 5})
    monkeypatch.setattr(offsets, "list_offsets", made.list_offsets)
    shared = SharedCluster(cast("Any", made))
    monkeypatch.setattr(stream, "shared_cluster", lambda config: shared)
    monkeypatch.setattr(SharedCluster, "wait_until_reachable", lambda self: self)
    return made


def settings(**options: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t,u", "fetchoffset.retryintervalms": "0"}
    if "subscribepattern" in options:
        del given["subscribe"]
    return parse_read_options(given | options, True)


def source(answers: Any, **options: str) -> Source:
    return Source(settings(**options), answers)


@pytest.mark.parametrize("trouble", [UNKNOWN, NO_LEADER])
def test_a_topic_that_is_missing_once(answers: Answers, trouble: KafkaError) -> None:
    answers.troubles = [{"t": trouble}, {"u": trouble}]
    assert source(answers).topic_partitions() == [("t", 0), ("u", 0)]
    assert answers.asked == 3


@pytest.mark.parametrize("trouble", [UNKNOWN, NO_LEADER])
def test_a_topic_that_stays_missing(answers: Answers, trouble: KafkaError) -> None:
    answers.troubles = [{"t": trouble}] * 3
    with pytest.raises((OptionError, KafkaError), match=r"topic 't' of option 'subscribe'|no leader"):
        source(answers, **{"fetchoffset.numretries": "2"}).topic_partitions()
    assert answers.asked == 2


def test_a_broker_that_is_away_has_been_waited_for_already(answers: Answers) -> None:
    answers.troubles = [{"t": Unreachable("away")}] * 3
    with pytest.raises(Unreachable):
        source(answers).topic_partitions()
    assert answers.asked == 1


def test_an_end_before_what_was_read(answers: Answers) -> None:
    answers.short = [3]
    assert source(answers, subscribe="t").newest({("t", 0): 5}) == {("t", 0): 5}
    answers.short = [3]
    assert source(answers).latest([("t", 0)], {("t", 0): 5}) == {("t", 0): 5}
    answers.short = [3] * 6
    assert source(answers, subscribe="t").newest({("t", 0): 5}) == {("t", 0): 3}


def test_a_pattern_fits_any_part_of_a_name(answers: Answers) -> None:
    answers.ends = dict.fromkeys(("orders", "my-orders.v1", "order"), 1)
    assert [t for t, _ in source(answers, subscribepattern="orders").topic_partitions()] == [
        "my-orders.v1",
        "orders",
    ]
    assert [t for t, _ in source(answers, subscribepattern="^orders$").topic_partitions()] == ["orders"]


def test_a_stream_whose_topic_is_missing_once(answers: Answers) -> None:
    """It must not come back as a new one, to be read from its start."""
    for options in ({"subscribe": "t,u"}, {"subscribePattern": "."}):
        careless = Stream("h:1", failOnDataLoss="false", **{"fetchOffset.retryIntervalMs": "0"}, **options)
        start = {"offsets": {"t": {"0": 5}, "u": {"0": 5}}}
        answers.troubles = [{"t": UNKNOWN}, {"t": UNKNOWN}]
        assert careless.reader.latestOffset(start, careless.reader.getDefaultReadLimit()) == start


@pytest.mark.parametrize("more", [{}, {"minOffsetsPerTrigger": "100"}])
def test_what_is_lost_is_said_once(
    answers: Answers, capsys: pytest.CaptureFixture[str], more: dict[str, str]
) -> None:
    options = {"subscribe": "t,u", "fetchOffset.retryIntervalMs": "0", **more}
    careful, careless = Stream("h:1", **options), Stream("h:1", **options, failOnDataLoss="false")
    for one in (careful, careless):
        one.start = {"offsets": {"t": {"0": 5}, "u": {"0": 7}}}
        one.reader._last_batch = 1e12
    del answers.ends["t"]
    answers.ends["u"] = 0  # deleted and created again, with nothing in it
    with pytest.raises(PipelineError, match="partition t-0 does not exist any more; some data may be lost"):
        careful.reader.latestOffset(careful.start, careful.reader.getDefaultReadLimit())
    for _ in range(3):
        limit = careless.reader.getDefaultReadLimit()
        end = careless.reader.latestOffset(careless.start, limit)
        if end != careless.start:  # the exactly-once sink needs a task in every batch
            assert [task.ranges for task in careless.reader.partitions(careless.start, end)] == [()]
        careless.start = end
    assert careless.start["offsets"] == {"u": {"0": 0}}
    printed = capsys.readouterr().err
    assert printed.count("partition t-0 does not exist any more; going on without it") == 1
    assert printed.count("partition u-0 ends at 0, before the offset 7") == 1


# --- in a task ----------------------------------------------------------------------------------------------


class TaskAnswers(Answers):
    """Knows no leader, so that a task has to ask about its topics."""

    def retry(self, timeout: float) -> Any:
        class Retry:
            def pause(self, error: KafkaError) -> None: ...

        return Retry()

    def by_leader(self, topic_partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        raise UNKNOWN if self.asked < 3 else RuntimeError("read on")


def task(answers: Any, **options: str) -> TaskReader:
    return TaskReader(settings(**options), answers, [Range("t", 0, 0, 5)], Columns(True, True, False))


def test_a_task_whose_topic_is_missing_once() -> None:
    answers = TaskAnswers({"t": 5}, [{"t": UNKNOWN}, {"t": UNKNOWN}])
    with pytest.raises(RuntimeError, match="read on"):
        list(task(answers).chunks())
    gone = TaskAnswers({})
    with pytest.raises(PipelineError, match="topic 't' was deleted while it was read"):
        list(task(gone).chunks())
    assert gone.asked == 3
    assert list(task(TaskAnswers({}), failondataloss="false").chunks()) == []


def test_out_of_range_by_a_broker_that_did_not_know_better(answers: Answers) -> None:
    reader = task(TaskAnswers({"t": 5}))
    reader._out_of_range(TopicPartition("t", 0))
    assert ("t", 0) in reader._open
    answers.ends["t"] = -1  # ends before where it is to be read
    with pytest.raises(PipelineError, match="offset 0 of partition t-0 is gone"):
        reader._out_of_range(TopicPartition("t", 0))
