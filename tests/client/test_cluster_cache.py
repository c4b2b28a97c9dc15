"""Clusters are kept by their configuration, up to a limit, each for the process that made it."""

import os

from millstream.client import ClientConfig
from millstream.client.cluster_cache import ClusterCache
from millstream.testing import Broker


def config(name: str) -> ClientConfig:
    return ClientConfig.of("127.0.0.1:1", client_id=name)


def test_equal_configurations_lead_to_one_cluster():
    cache = ClusterCache()
    assert cache.get(config("a")) is cache.get(config("a"))
    assert cache.get(config("a")) is not cache.get(config("b"))


def test_caches_share_nothing():
    assert ClusterCache().get(config("a")) is not ClusterCache().get(config("a"))


def test_the_one_that_was_not_used_for_the_longest_time_goes_first():
    cache = ClusterCache(max_clusters=2)
    first, second = cache.get(config("a")), cache.get(config("b"))
    cache.get(config("a"))
    cache.get(config("c"))
    assert cache.get(config("a")) is first
    assert cache.get(config("b")) is not second


def test_without_a_limit_nobody_loses_his_connections():
    cache = ClusterCache()
    first = cache.get(config("first"))
    for number in range(100):
        cache.get(config(f"other-{number}"))
    assert cache.get(config("first")) is first


def test_a_child_process_makes_connections_of_its_own(monkeypatch):
    cache = ClusterCache()
    parents = cache.get(config("a"))
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert cache.get(config("a")) is not parents


def test_closing_closes_the_connections_and_the_cache_goes_on():
    with Broker() as broker:
        wanted = ClientConfig.of(broker.bootstrap_servers, client_id="closing")
        cache = ClusterCache()
        first = cache.get(wanted).wait_until_reachable()
        cache.close()
        again = cache.get(wanted)
        assert again is not first
        assert again.wait_until_reachable().cluster.nodes
        cache.close()
