"""A task waits for brokers that are away for a moment; a query that is started with a wrong address fails at
once."""

import threading
from dataclasses import replace

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from millstream.client import ClientConfig, Unreachable
from millstream.spark.clusters import MAX_CLUSTERS, close_clusters, cluster_for_writing, shared_cluster
from millstream.spark.sink import make_stream_writer, make_writer
from millstream.spark.sink.task import Task, cluster_for_task
from millstream.testing import Broker


@pytest.fixture(autouse=True)
def no_clusters_left_open():
    yield
    close_clusters()


def test_source_and_sink_of_a_process_share_one_cluster():
    config = ClientConfig.of("127.0.0.1:1", client_id="shared")
    first = shared_cluster(config)
    assert shared_cluster(ClientConfig.of("127.0.0.1:1", client_id="shared")) is first
    for number in range(MAX_CLUSTERS - 1):
        shared_cluster(ClientConfig.of("127.0.0.1:1", client_id=f"other-{number}"))
    assert shared_cluster(config) is first
    for number in range(MAX_CLUSTERS):
        shared_cluster(ClientConfig.of("127.0.0.1:1", client_id=f"another-{number}"))
    assert shared_cluster(config) is not first


def test_a_task_waits_for_the_broker():
    with Broker() as broker:
        broker.kill()
        starting = threading.Timer(0.5, broker.start)
        starting.start()
        try:
            shared = cluster_for_writing(ClientConfig.of(broker.bootstrap_servers, client_id="patient"))
            assert shared.cluster.nodes
        finally:
            starting.join()


def test_but_not_for_ever():
    with Broker() as broker:
        broker.kill()
        config = ClientConfig.of(broker.bootstrap_servers, {"default.api.timeout.ms": "300"})
        with pytest.raises(Unreachable):
            cluster_for_writing(config)
        with pytest.raises(Unreachable):
            shared_cluster(config).cluster.refresh([])


NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.delivery.timeout.ms": "300"}
ROWS = StructType([StructField("value", StringType())])


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_streams_writer_is_made_while_the_brokers_are_away(delivery):
    """Spark makes one for every batch, and one for every commit."""
    with pytest.raises(Unreachable):
        make_writer(NOWHERE, ROWS, overwrite=False)
    writer = make_stream_writer({**NOWHERE, "delivery": delivery}, ROWS, overwrite=False)
    assert not writer.options.brokers_reachable


def test_only_a_first_batch_without_brokers_fails_at_once():
    unreached = make_stream_writer(NOWHERE, ROWS, overwrite=False).options
    for batch, reachable, waits in [(0, False, False), (1, False, True), (0, True, True), (-1, True, True)]:
        with Waiting() as waiting, pytest.raises(Unreachable):
            task = Task("query", "run", batch, 0, 0, adaptive=False)
            cluster_for_task(replace(unreached, brokers_reachable=reachable), task)
        assert waiting.waited == waits


class Waiting:
    """Whether anybody paused to wait."""

    def __enter__(self):
        self.waited = False
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr("millstream.client.cluster_cache.time.sleep", self._sleep)
        self._sleeping = threading.Event()
        return self

    def __exit__(self, *_):
        self._patch.undo()

    def _sleep(self, seconds):
        self.waited = True
        self._sleeping.wait(seconds)
