"""The exactly-once writer against a broker, its tasks and driver called by hand in every order that a crash
can leave."""

import json
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from millstream.spark.errors import PipelineError
from millstream.spark.sink import exactly_once
from millstream.spark.sink.exactly_once import ExactlyOnceWriter
from millstream.spark.sink.left_open import abort_left_open
from millstream.spark.sink.task import Task
from millstream.spark.sink.write_options import parse_write_options
from tests.spark.sink.reading import values_of

SCHEMA = StructType().add("key", "string").add("value", "string")


class Query:
    """A streaming query without Spark: `task` runs one attempt of a task, `commit` and `abort` are the
    driver's."""

    def __init__(self, broker, topic, monkeypatch, run="run 1", query=None):
        options = {"kafka.bootstrap.servers": broker, "topic": topic, "delivery": "exactly_once"}
        self.writer = ExactlyOnceWriter(parse_write_options(options, SCHEMA))
        self.id = query or str(uuid.uuid4())
        self.run = run
        self._patch = monkeypatch

    def again(self, run="run 2"):
        """The same query after a restart, with processes that know nothing."""
        other = Query.__new__(Query)
        other.__dict__.update(self.__dict__, run=run)
        exactly_once._logs.clear()
        return other

    def task(self, batch, number, values, attempt=0, during=lambda: None):
        def batches():
            yield pa.record_batch({"key": ["k"] * len(values), "value": values})
            during()

        self.be(Task(self.id, self.run, batch, number, attempt, False))
        return self.writer.write(batches())

    def be(self, task):
        self._patch.setattr(exactly_once, "this_task", lambda: task)

    def commit(self, batch, *messages):
        self.writer.commit(list(messages), batch)

    def abort(self, batch, *messages):
        self.writer.abort(list(messages), batch)


@pytest.fixture
def topic(new_topic):
    return new_topic(2)


@pytest.fixture
def query(broker, topic, monkeypatch):
    return Query(broker, topic, monkeypatch)


@pytest.fixture
def seen(cluster, topic):
    return lambda settled=True: sorted(v.decode() for v in values_of(cluster, topic, settled=settled))


def test_rows_show_when_the_driver_commits(query, seen):
    one, two = query.task(0, 0, ["a"]), query.task(0, 1, ["b", "c"])
    assert seen(settled=False) == []
    query.commit(0, one, two)
    assert seen() == ["a", "b", "c"]
    query.commit(1, query.task(1, 0, ["d"]), query.task(1, 1, []))
    assert seen() == ["a", "b", "c", "d"]


def test_a_batch_replayed_after_its_commit_is_skipped(query, seen):
    query.commit(0, query.task(0, 0, ["a"]), query.task(0, 1, ["b"]))
    later = query.again()
    later.commit(0, later.task(0, 0, ["a"]), later.task(0, 1, ["b"]))
    later.commit(1, later.task(1, 0, ["c"]), later.task(1, 1, []))
    assert seen() == ["a", "b", "c"]


def test_a_driver_that_dies_between_two_commits(query, seen, monkeypatch):
    one, two, three = (query.task(0, number, [name]) for number, name in enumerate("abc"))
    real = exactly_once.end_all
    monkeypatch.setattr(
        exactly_once, "end_all", lambda cluster, handles, commit: real(cluster, handles[1:2], commit)
    )
    query.commit(0, one, two, three)
    monkeypatch.setattr(exactly_once, "end_all", real)
    assert set(seen(settled=False)) <= {"b"}, "the other transactions may hide it for now"
    later = query.again()
    later.commit(0, *(later.task(0, number, [name]) for number, name in enumerate("abc")))
    assert seen() == ["a", "b", "c"]


def test_a_driver_that_dies_before_any_commit(query, seen):
    query.task(0, 0, ["a"])
    later = query.again()
    later.commit(0, later.task(0, 0, ["a"]))
    assert seen() == ["a"]


def test_a_zombie_driver_is_fenced(query, seen):
    old = query.task(0, 0, ["a"])
    later = query.again()
    new = later.task(0, 0, ["a"])
    with pytest.raises(PipelineError, match="taken over by another run"):
        query.commit(0, old)
    later.commit(0, new)
    assert seen() == ["a"]
    with pytest.raises(PipelineError, match="taken over by another run"):
        query.commit(0, old)
    assert seen() == ["a"]


def test_a_zombie_task_after_the_batch_is_done_stops(query, seen):
    query.commit(0, query.task(0, 0, ["a"]))
    query.commit(1, query.task(1, 0, ["b"]))
    with pytest.raises(PipelineError, match="has written batch 1 already"):
        query.task(0, 0, ["a"])
    assert seen() == ["a", "b"]


def test_a_speculative_attempt_that_overtakes(query, seen):
    """The second attempt starts and ends while the first one writes: both report the second one's
    transaction."""
    inner = []
    first = Task(query.id, query.run, 0, 0, 0, False)

    def overtake():
        inner.append(query.task(0, 0, ["a", "b"], attempt=1))
        query.be(first)

    outer = query.task(0, 0, ["a", "b"], during=overtake)
    assert outer.handle == inner[0].handle
    query.commit(0, outer)
    assert seen() == ["a", "b"]


def test_a_speculative_attempt_that_comes_late(query, seen):
    """The first attempt is done, and waits for the driver: the second one leaves it alone."""
    first = query.task(0, 0, ["a"])
    exactly_once._logs.clear()
    late = query.task(0, 0, ["a"], attempt=1)
    assert late.handle == first.handle
    query.commit(0, first)
    assert seen() == ["a"]


def test_an_attempt_that_fails_is_followed_by_another(query, seen):
    with pytest.raises(RuntimeError, match="bad row"):
        query.task(0, 0, ["a"], during=_fail)
    query.commit(0, query.task(0, 0, ["a"], attempt=1))
    assert seen() == ["a"]


def test_a_failed_batch_is_undone_at_once(query, seen, cluster, topic):
    query.abort(0, query.task(0, 0, ["a"]), None)
    assert seen() == []
    later = query.again()
    later.commit(0, later.task(0, 0, ["a"]), later.task(0, 1, ["b"]))
    assert seen() == ["a", "b"]


def test_a_stopped_query_leaves_nothing_open(query, seen, cluster, topic, tmp_path):
    """Spark kills the tasks of a query that is stopped: the driver finds their ids by the checkpoint."""
    from millstream.client import LATEST, list_offsets

    (tmp_path / "metadata").write_text(json.dumps({"id": query.id}))
    query.writer.options = replace(query.writer.options, checkpoint=str(tmp_path))
    query.task(0, 0, ["a"])
    query.abort(0, None, None)
    topic_partitions = dict.fromkeys([(topic, 0), (topic, 1)], LATEST)
    assert list_offsets(cluster, topic_partitions, read_committed=True) == list_offsets(
        cluster, topic_partitions
    )
    later = query.again()
    later.commit(0, later.task(0, 0, ["a"]), later.task(0, 1, ["b"]))
    assert seen() == ["a", "b"]


def test_another_number_of_tasks_stops_the_replay(query, seen, monkeypatch):
    messages = [query.task(0, number, [name]) for number, name in enumerate("abc")]
    real = exactly_once.end_all
    monkeypatch.setattr(
        exactly_once, "end_all", lambda cluster, handles, commit: real(cluster, handles[2:], commit)
    )
    query.commit(0, *messages)  # only the last task's commit gets through
    monkeypatch.setattr(exactly_once, "end_all", real)
    later = query.again()
    with pytest.raises(PipelineError, match="begun with 3 tasks and is replayed with 2"):
        later.commit(0, later.task(0, 0, ["a", "c"]), later.task(0, 1, ["b"]))
    third = query.again("run 3")
    third.commit(0, *(third.task(0, number, [name]) for number, name in enumerate("abc")))
    assert seen() == ["a", "b", "c"]
    third.commit(1, third.task(1, 0, ["d"]))
    third.commit(2, *(third.task(2, number, [name]) for number, name in enumerate("efgh")))
    assert seen() == list("abcdefgh"), "between batches the number of tasks may change"


def test_other_rows_in_a_replay_stop_it(query, seen):
    query.commit(0, query.task(0, 0, ["a", "b"]))
    later = query.again()
    with pytest.raises(PipelineError, match="wrote 2 rows and is replayed with 1"):
        later.task(0, 0, ["a"])
    assert seen() == ["a", "b"]


def test_a_checkpoint_without_markers_stops(query, seen):
    with pytest.raises(PipelineError, match="at batch 7, but there is no marker"):
        query.task(7, 0, ["a"])
    query.commit(0, query.task(0, 0, ["a"]))
    with pytest.raises(PipelineError, match="at batch 5, but the last marker"):
        query.again().task(5, 0, ["b"])
    assert seen() == ["a"]


def test_adaptive_execution_is_refused(query):
    query.be(Task(query.id, query.run, 0, 0, 0, True))
    with pytest.raises(PipelineError, match=r"spark\.sql\.adaptive"):
        query.writer.write(iter(()))


def test_a_transaction_that_took_too_long(query, seen, broker, topic, monkeypatch):
    query.writer.options = replace(query.writer.options, transaction_timeout_ms=10**9)
    with pytest.raises(Exception, match=r"(?i)timeout"):
        query.task(0, 0, ["a"])


def _fail():
    raise RuntimeError("bad row")


def test_what_a_stopped_query_left_open_is_aborted_at_once(broker, cluster, topic, monkeypatch):
    """Spark's stop may interrupt commit or abort: nobody ends the transactions that the tasks prepared."""
    query, other = Query(broker, topic, monkeypatch), Query(broker, topic, monkeypatch)
    query.commit(0, query.task(0, 0, ["a"]), query.task(0, 1, ["b"]))
    left = [query.task(1, 0, ["c"]), query.task(1, 1, ["d"])]
    abort_left_open(cluster, [query.id])
    assert sorted(values_of(cluster, topic)) == [b"a", b"b"]
    with pytest.raises(PipelineError, match="taken over"):
        query.commit(1, *left)
    again = query.again()
    again.commit(1, again.task(1, 0, ["c"]), again.task(1, 1, ["d"]))
    message = other.task(0, 0, ["e"])
    abort_left_open(cluster, [query.id, "another"])
    abort_left_open(cluster, [])
    other.commit(0, message)
    assert sorted(values_of(cluster, topic)) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_cancelled_task_that_goes_on_after_its_query_has_ended_is_fenced(
    broker, cluster, topic, monkeypatch
):
    """Its id is taken, its transaction has not begun."""
    monkeypatch.setattr(exactly_once, "FENCED_TIMEOUT", 0.0)
    query = Query(broker, topic, monkeypatch)
    query.commit(0, query.task(0, 0, ["a"]))
    producer_begin = exactly_once.TransactionalProducer.begin

    def begin(producer):
        producer_begin(producer)
        with monkeypatch.context() as inner:
            inner.setattr(exactly_once.TransactionalProducer, "begin", producer_begin)
            abort_left_open(cluster, [query.id])

    monkeypatch.setattr(exactly_once.TransactionalProducer, "begin", begin)
    with pytest.raises(PipelineError, match="fenced"):
        query.task(1, 0, ["b"])
    assert values_of(cluster, topic) == [b"a"]
