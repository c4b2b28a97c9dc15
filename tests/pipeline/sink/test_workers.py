"""A task waits for brokers that are away for a moment; whoever starts a query with a wrong address is told at once."""

import threading

import pytest

from millstream.client import ClientConfig, Unreachable
from millstream.pipeline.sink.workers import patient_worker_for, worker_for
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
