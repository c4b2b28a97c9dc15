"""The state of markers, fed with logs that were written by hand."""

import pytest

from millstream.spark.errors import PipelineError
from millstream.spark.sink.markers import Marker, MarkerState, already_written, check_counts, record_of
from millstream.wire.batch import read_header
from millstream.wire.records import encode_marker

QUERY = "q"


class Log:
    """A log of markers; every batch gets the producer's id, as a broker would have stored it."""

    def __init__(self, query=QUERY):
        self.state = MarkerState(query)

    def write(self, producer, marker, query=QUERY):
        batch = record_of(query, marker, 1_700_000_000_000)
        batch[43:51] = producer.to_bytes(8, "big")
        _sum(batch)
        self.state.add(read_header(batch), memoryview(batch))
        return self

    def end(self, producer, commit=True):
        batch = bytearray(
            encode_marker(commit, producer_id=producer, producer_epoch=0, timestamp=1_700_000_000_000)
        )
        self.state.add(read_header(batch), memoryview(batch))
        return self


def _sum(batch):
    from millstream.wire.batch import CRC_START, crc_of

    batch[CRC_START - 4 : CRC_START] = crc_of(batch).to_bytes(4, "big")


def marker(task, batch, tasks=2):
    return Marker(task, batch, tasks, 10, "run", 1, 0)


def test_only_what_is_committed_counts():
    log = Log().write(1, marker(0, 0)).write(2, marker(1, 0))
    assert already_written(log.state, 0, 0) is None
    log.end(2).end(1, False)
    assert already_written(log.state, 0, 0) is None
    assert already_written(log.state, 1, 0) == marker(1, 0)
    assert log.state.counts(0) == {2}


def test_a_committed_marker_behind_an_open_transaction_is_seen():
    log = Log().write(1, marker(0, 0, 0)).write(2, marker(1, 0)).end(2)
    assert already_written(log.state, 1, 0) == marker(1, 0)
    assert log.state.prepared(0, 0, "run") == marker(0, 0, 0)
    assert log.state.prepared(0, 0, "another run") is None


def test_other_queries_do_not_matter():
    log = Log().write(1, marker(0, 5), query="qq").end(1)
    assert log.state.last_batch == -1


def test_a_batch_whose_commit_is_on_its_way_is_the_last_one():
    log = Log().write(1, marker(0, 0)).end(1).write(1, marker(0, 1))
    assert already_written(log.state, 3, 2) is None, "a new task of batch 2 does not mistake this for a gap"
    assert (log.state.last_batch, log.state.last_begun) == (0, 1)


@pytest.mark.parametrize(("batch", "text"), [(1, "back at batch 1"), (4, "last marker"), (2, ""), (3, "")])
def test_gaps(batch, text):
    log = Log().write(1, marker(0, 2)).end(1)
    if text:
        with pytest.raises(PipelineError, match=text):
            already_written(log.state, 0, batch)
    else:
        already_written(log.state, 0, batch)


def test_counts():
    check_counts(1, 3, [3, 3])
    with pytest.raises(PipelineError, match="batch 1 was begun with 3 tasks and is replayed with 4"):
        check_counts(1, 4, [3])
