"""Several registries on one topic: who writes, what happens when the leader ends or sleeps, and what must
never happen."""

import os
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import pytest

from millstream.testing import Broker
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until

from .client import Api, field, record
from .conftest import BROKER

RUN = uuid.uuid4().hex[:6]  # topics and groups of this run alone


def settings_of(name: str, **more: object) -> dict[str, object]:
    own = {"kafkastore.topic": f"{name}-{RUN}", "schema.registry.group.id": f"{name}-{RUN}"}
    return {**FAST, **own, **{key.replace("_", "."): value for key, value in more.items()}}


FAST = {
    "kafkagroup.session.timeout.ms": 6000,
    "kafkagroup.heartbeat.interval.ms": 200,
    "kafkagroup.rebalance.timeout.ms": 3000,
    "millstream.leader.wait.ms": 20000,
}


def pair(broker: Broker, topic: str, **more: object) -> tuple[RunningRegistry, RunningRegistry]:
    settings = settings_of(topic, **more)
    first = RunningRegistry(broker.bootstrap_servers, settings).start()
    first.wait_until_leading()
    second = RunningRegistry(broker.bootstrap_servers, settings).start()
    return first, second


def schema(number: int) -> dict[str, object]:
    return record(f"R{number}", field("a"))


def wait_for_leader(instance: RunningRegistry, url: str) -> None:
    wait_until(lambda: instance.http.get("/health").json()["leader"] == url, instance.log)


def wait_for_more(confirmed: Mapping[str, int], count: int = 10) -> None:
    wanted = len(confirmed) + count
    wait_until(lambda: len(confirmed) >= wanted, lambda: f"{len(confirmed)} of {wanted}")


def all_schemas(instance: RunningRegistry, subjects: Iterable[str]) -> list[dict[str, Any]]:
    """What an instance knows. One that does not lead is a moment behind, so it is given a moment."""

    def known() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = Api(instance.http).get("/schemas")
        return found if set(subjects) <= {one["subject"] for one in found} else None

    return wait_until(known, instance.log) or []


def close(*instances: RunningRegistry) -> None:
    for instance in instances:
        if instance.process.poll() is None:
            instance.resume()
        instance.stop()


def test_writes_are_passed_on_and_the_lead_moves(broker: Broker) -> None:
    first, second = pair(broker, "moves")
    try:
        wait_for_leader(second, first.url)
        follower, leader = Api(second.http), Api(first.http)
        schema_id = follower.register("a", schema(1))
        assert leader.get("/subjects/a/versions/1")["id"] == schema_id
        assert follower.put("/config/a", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
        with pytest.raises(Exception, match="42201"):
            follower.register("a", "{")
        assert first.stop() == 0  # leaves the group: the other takes over at once
        assert follower.register("a", schema(2)) > schema_id
        assert follower.get("/health")["leads"]
        third = RunningRegistry(
            broker.bootstrap_servers,
            settings_of("moves"),
        ).start()
        try:
            assert Api(third.http).get("/subjects/a/versions") == [1, 2]
        finally:
            third.stop()
    finally:
        close(first, second)


def test_a_write_waits_for_the_next_leader(broker: Broker) -> None:
    """The leader is gone, and the group has not noticed it yet: nothing listens at its address."""
    first, second = pair(broker, "killed")
    try:
        wait_for_leader(second, first.url)
        first.kill()
        assert second.http.get("/health").json()["leader"] == first.url
        assert Api(second.http).register("a", schema(1)) > 0
        assert second.http.get("/health").json()["leads"]
    finally:
        close(first, second)


def test_a_leader_that_stays_away(broker: Broker) -> None:
    first, second = pair(broker, "away", millstream_leader_wait_ms=500)
    try:
        wait_for_leader(second, first.url)
        first.kill()
        answer = second.http.post("/subjects/a/versions", json={"schema": '"int"'})
        assert (answer.status_code, answer.json()["error_code"]) == (500, 50003)
        assert first.url in answer.json()["message"]
    finally:
        close(first, second)


def test_an_instance_that_may_not_lead(broker: Broker) -> None:
    settings = settings_of("never", leader_eligibility="false")
    with RunningRegistry(broker.bootstrap_servers, {**settings, "millstream.leader.wait.ms": 500}) as alone:
        answer = alone.http.post("/subjects/a/versions", json={"schema": '"int"'})
        assert (answer.status_code, answer.json()["error_code"]) == (500, 50004)
        assert alone.http.get("/subjects").json() == []


def test_a_paused_leader_writes_nothing_more(broker: Broker) -> None:
    """The leader sleeps with writes on the way, another one takes over, the first one wakes up: no id twice,
    nothing lost."""
    # What the second one passes on to a leader that sleeps must not take a minute to come back.
    first, second = pair(broker, "paused", leader_read_timeout_ms=2000)
    confirmed: dict[str, int] = {}
    stop = threading.Event()

    def write(instance: RunningRegistry, name: str) -> None:
        number = 0
        with httpx.Client(base_url=instance.url, timeout=60) as http:
            while not stop.is_set():
                subject = f"{name}-{number}"
                number += 1
                try:
                    confirmed[subject] = Api(http).register(
                        subject, record(subject.replace("-", "_"), field("a"))
                    )
                except Exception:
                    # Nobody leads for a moment: not all of it should go into retries.
                    time.sleep(0.02)

    try:
        wait_for_leader(second, first.url)
        writers = [
            threading.Thread(target=write, args=(instance, f"{name}{index}"))
            for index in range(2)
            for instance, name in ((first, "first"), (second, "second"))
        ]
        for writer in writers:
            writer.start()
        wait_for_more(confirmed)
        first.pause()
        wait_for_leader(second, second.url)
        wait_for_more(confirmed)
        first.resume()
        wait_for_leader(first, second.url)
        wait_for_more(confirmed)
        stop.set()
        for writer in writers:
            writer.join()
        assert len(confirmed) > 20
        for instance in (first, second):
            found = all_schemas(instance, confirmed)
            by_id: dict[int, set[str]] = {}
            for one in found:
                by_id.setdefault(one["id"], set()).add(one["schema"])
            assert all(len(texts) == 1 for texts in by_id.values()), "two schemas under one id"
            subjects = {one["subject"]: one["id"] for one in found}
            assert all(subjects.get(subject) == schema_id for subject, schema_id in confirmed.items())
            assert len(set(confirmed.values())) == len(confirmed)
    finally:
        stop.set()
        close(first, second)


def test_two_who_both_believe_to_lead(broker: Broker) -> None:
    """Two groups, one topic: both instances are told that they lead. The topic lets only the newer one
    write."""
    settings = settings_of("both")
    with (
        RunningRegistry(
            broker.bootstrap_servers, {**settings, "schema.registry.group.id": f"one-{RUN}"}
        ) as first,
        RunningRegistry(
            broker.bootstrap_servers, {**settings, "schema.registry.group.id": f"two-{RUN}"}
        ) as second,
    ):
        first.wait_until_leading()
        second.wait_until_leading()
        ids = {}
        for number in range(30):
            instance = (first, second)[number % 2]
            ids[number] = Api(instance.http).register(f"s{number}", schema(number))
        assert len(set(ids.values())) == 30
        found = all_schemas(first, [f"s{number}" for number in ids])
        assert len({one["id"] for one in found}) == len(found) == 30


def test_ids_do_not_come_back(broker: Broker) -> None:
    settings = settings_of("ids")
    with RunningRegistry(broker.bootstrap_servers, settings) as running:
        api = Api(running.http)
        ids = [api.register(f"s{number}", schema(number)) for number in range(3)]
        api.delete("/subjects/s2")
        api.delete("/subjects/s2", permanent=True)
    with RunningRegistry(broker.bootstrap_servers, settings) as running:
        api = Api(running.http)
        assert api.register("s3", schema(3)) == max(ids) + 1
        assert api.get("/subjects") == ["s0", "s1", "s3"]


@pytest.mark.skipif("MILLSTREAM_TEST_BOOTSTRAP" in os.environ, reason="somebody else's broker is not stopped")
def test_the_broker_goes_away_and_comes_back() -> None:
    with (
        Broker(BROKER) as broker,
        RunningRegistry(
            broker.bootstrap_servers,
            {**FAST, "kafkastore.timeout.ms": 1000, "millstream.leader.wait.ms": 1500},
        ) as running,
    ):
        api = Api(running.http)
        running.wait_until_leading()
        first = api.register("a", schema(1))
        broker.kill()
        answer = running.http.post("/subjects/b/versions", json={"schema": '"int"'})
        assert answer.status_code == 500 and answer.json()["error_code"] in (50001, 50002, 50004)
        assert api.get(f"/schemas/ids/{first}")["schema"]  # reading needs no broker
        broker.start()

        def registered() -> httpx.Response | None:
            answer = running.http.post("/subjects/b/versions", json={"schema": '"int"'})
            return answer if answer.status_code == 200 else None

        found = wait_until(registered, running.log)
        assert found is not None
        assert found.json()["id"] == first + 1
        assert api.register("a", schema(1)) == first


def test_a_topic_that_must_not_be_used(broker: Broker) -> None:
    from millstream.client import Admin, ClientConfig, Cluster, NewTopic

    with Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
        Admin(cluster).create_topics(
            [
                NewTopic(f"wide-{RUN}", 2),
                NewTopic(f"deleting-{RUN}", 1, configs={"cleanup.policy": "delete"}),
            ]
        )
    for topic, word in (("wide", "partitions"), ("deleting", "cleanup.policy")):
        with pytest.raises(RuntimeError, match=word):
            RunningRegistry(broker.bootstrap_servers, settings_of(topic)).start()
