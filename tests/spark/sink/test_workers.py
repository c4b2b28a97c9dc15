"""A task waits for brokers that are away for a moment; whoever starts a query with a wrong address is told at once."""

import threading
from dataclasses import replace

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from millstream.client import ClientConfig, Unreachable
from millstream.spark.sink import make_stream_writer, make_writer
from millstream.spark.sink.workers import patient_worker_for, worker_for, worker_of_task
from millstream.testing import Broker


def test_a_task_waits_for_the_broker():
    with Broker() as broker:
        broker.kill()
        starting = threading.Timer(0.5, broker.start)
        starting.start()
        try:
            worker = patient_worker_for(ClientConfig.of(broker.bootstrap_servers, client_id="patient"))
            assert worker.cluster.nodes
            worker.cluster.close()
        finally:
            starting.join()


def test_but_not_for_ever():
    with Broker() as broker:
        broker.kill()
        config = ClientConfig.of(broker.bootstrap_servers, {"default.api.timeout.ms": "300"})
        with pytest.raises(Unreachable):
            patient_worker_for(config)
        with pytest.raises(Unreachable):
            worker_for(config).cluster.refresh([])


NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.delivery.timeout.ms": "300"}
ROWS = StructType([StructField("value", StringType())])


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_streams_writer_is_made_while_the_brokers_are_away(delivery):
    """Spark makes one for every batch, and one for every commit."""
    with pytest.raises(Unreachable):
        make_writer(NOWHERE, ROWS, overwrite=False)
    writer = make_stream_writer({**NOWHERE, "delivery": delivery}, ROWS, overwrite=False)
    assert not writer.settings.answered


def test_only_a_first_batch_without_brokers_fails_at_once():
    unanswered = make_stream_writer(NOWHERE, ROWS, overwrite=False).settings
    for batch, answered, waits in [(0, False, False), (1, False, True), (0, True, True), (-1, True, True)]:
        with Waiting() as waiting, pytest.raises(Unreachable):
            worker_of_task(replace(unanswered, answered=answered), batch)
        assert waiting.waited == waits


class Waiting:
    """Whether anybody paused to wait."""

    def __enter__(self):
        self.waited = False
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr("millstream.spark.reconnect.time.sleep", self._sleep)
        self._sleeping = threading.Event()
        return self

    def __exit__(self, *_):
        self._patch.undo()

    def _sleep(self, seconds):
        self.waited = True
        self._sleeping.wait(seconds)
