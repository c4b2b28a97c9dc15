"""Which client pushes what and when: the rules of Kafka's ClientMetricsManager, and the settings of
subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.telemetry import instances, subscriptions
from millstream.broker.telemetry.instances import Instance, Instances, instance_name, subscription_id
from millstream.broker.telemetry.series import (
    MAX_OF_CLIENT,
    ClientSeries,
    label_name,
    metric_name,
    read_push,
)
from millstream.wire.compression import GZIP, compress
from millstream.wire.errors import ErrorCode, KafkaError
from tests.support.otlp import gauge, metrics_data, sum_of

ID = UUID(int=0x0123456789ABCDEF_FEDCBA9876543210)
CLIENT = {
    "client_id": "app-1",
    "client_software_name": "librdkafka",
    "client_software_version": "2.16.0",
    "client_source_address": "10.0.0.9",
    "client_source_port": "4711",
}


class Peer:
    closed = False


class Manager:
    """Instances with a clock that the test moves."""

    def __init__(self, **subscribed: dict[str, str]) -> None:
        self.now = 1000.0
        self.peer = Peer()
        self.instances = Instances(lambda: self.now)
        self.subscribe(**subscribed)

    def subscribe(self, **subscribed: dict[str, str]) -> None:
        self.instances.subscribe({name: subscriptions.parse(each) for name, each in subscribed.items()})

    def get(self, id: UUID | None = ID, attributes: Mapping[str, str] = CLIENT) -> Instance:
        return self.instances.get(id, attributes, self.peer)

    def push(self, subscription: int | None = None, **changes: Any) -> ErrorCode:
        fields: dict[str, Any] = {"terminating": False, "compression": 0, "size": 10, "max_bytes": 100}
        fields |= changes
        id = fields.pop("id", ID)
        known = self.instances.known.get(id)
        expected = known.subscription_id if known is not None else 0
        try:
            self.instances.push(
                id,
                CLIENT,
                self.peer,
                subscription_id=expected if subscription is None else subscription,
                **fields,
            )
        except KafkaError as error:
            return error.code
        return ErrorCode.none

    def refused_get(self) -> ErrorCode:
        with pytest.raises(KafkaError) as error:
            self.get()
        return error.value.code


# --- subscriptions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"metric": "a"}, ErrorCode.invalid_request),
        ({"interval.ms": "99"}, ErrorCode.invalid_request),
        ({"interval.ms": "3600001"}, ErrorCode.invalid_request),
        ({"interval.ms": "soon"}, ErrorCode.invalid_config),
        ({"match": "client_idx=a"}, ErrorCode.invalid_config),
        ({"match": "client_id"}, ErrorCode.invalid_config),
        ({"match": "client_id="}, ErrorCode.invalid_config),
        ({"match": "client_id=a=b"}, ErrorCode.invalid_config),
        ({"match": "client_id=["}, ErrorCode.invalid_config),
    ],
)
def test_settings_that_are_refused(values: dict[str, str], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as error:
        subscriptions.parse(values)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app", False),  # the whole of it
        ("client_id=app-1, client_software_name=librdkafka", True),
        ("client_id=app-1,client_software_version=1\\..*", False),  # all of them
        ("client_source_address=10\\.0\\..*,client_source_port=4711", True),
        (f"client_instance_id={instance_name(ID)}", True),
    ],
)
def test_selectors(match: str, matches: bool) -> None:
    found = Manager(one={"metrics": "a.", "match": match, "interval.ms": "1000"}).get()
    assert (found.metrics, found.interval_ms) == ((("a.",), 1000) if matches else ((), 300_000))


def test_all_that_matches_counts_at_the_shortest_interval() -> None:
    manager = Manager(
        one={"metrics": "a.,b."},
        two={"metrics": "b.,c.", "interval.ms": "2000"},
        other={"metrics": "d.", "interval.ms": "100", "match": "client_id=other"},
    )
    found = manager.get()
    assert (found.metrics, found.interval_ms) == (("a.", "b.", "c."), 2000)
    manager.subscribe(one={"metrics": "a."}, everything={"metrics": "*"})
    assert manager.get().metrics == ("*",)


def test_the_id_of_a_subscription_is_kafkas() -> None:
    """Figures of Kafka 4.3.1: Crc32C of "[*]1000" and "[]300000", with Uuid.hashCode."""
    assert subscription_id(("*",), 1000, ID) == 848016057
    assert subscription_id((), 300_000, ID) == -725132322


# --- when ---------------------------------------------------------------------------------------------------


def test_a_new_client_gets_an_id_and_the_zero_id_is_none() -> None:
    manager = Manager()
    assert manager.get(None).id != manager.get(None).id


def test_asking_and_pushing_before_the_time_is_throttled() -> None:
    manager = Manager(one={"metrics": "*", "interval.ms": "1000"})
    manager.get()
    assert manager.refused_get() == ErrorCode.throttling_quota_exceeded
    assert manager.push() == ErrorCode.none  # the first after a Get may come early
    assert manager.push() == ErrorCode.throttling_quota_exceeded
    manager.now += 999
    assert manager.push() == ErrorCode.throttling_quota_exceeded
    manager.now += 1
    assert manager.push() == ErrorCode.none
    assert manager.refused_get() == ErrorCode.throttling_quota_exceeded
    manager.now += 1000
    manager.get()
    assert manager.instances.throttled == 4


def test_a_change_is_told_at_once() -> None:
    manager = Manager(one={"metrics": "a.", "interval.ms": "1000"})
    old = manager.get().subscription_id
    manager.subscribe(one={"metrics": "b.", "interval.ms": "1000"})
    assert manager.push(old) == ErrorCode.unknown_subscription_id
    assert manager.get().metrics == ("b.",)
    assert manager.push() == ErrorCode.none
    assert manager.instances.unknown_subscriptions == 1


def test_what_is_wrong_with_a_push() -> None:
    manager = Manager(one={"metrics": "*", "interval.ms": "1000"})
    assert manager.push(id=None) == ErrorCode.invalid_request
    assert manager.push(id=UUID(int=1)) == ErrorCode.invalid_request
    manager.get()
    assert manager.push(compression=5) == ErrorCode.unsupported_compression_type
    manager.get()  # at once
    assert manager.push(size=101) == ErrorCode.telemetry_too_large
    assert manager.refused_get() == ErrorCode.throttling_quota_exceeded


def test_the_last_push_may_come_early_and_is_the_last() -> None:
    manager = Manager(one={"metrics": "*"})
    manager.get()
    assert manager.push() == ErrorCode.none
    assert manager.push(terminating=True) == ErrorCode.none
    assert manager.push(terminating=True) == ErrorCode.invalid_request


def test_a_broker_that_never_saw_the_client_takes_its_push() -> None:
    one, other = (Manager(one={"metrics": "*"}) for _ in range(2))
    assert other.push(one.get().subscription_id) == ErrorCode.none


def test_a_client_that_comes_again_on_another_connection_is_new() -> None:
    manager = Manager(one={"metrics": "*"})
    manager.get()
    manager.peer.closed = True
    manager.peer = Peer()
    manager.get()


def test_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager(one={"metrics": "*", "interval.ms": "30000"})
    manager.get()
    manager.now += 89_999
    manager.instances.forget()
    assert len(manager.instances.known) == 1
    manager.now += 1
    manager.instances.forget()
    assert not manager.instances.known
    monkeypatch.setattr(instances, "MAX_INSTANCES", 3)
    for _ in range(5):
        manager.get(None)
    assert len(manager.instances.known) == 3


# --- what was pushed ----------------------------------------------------------------------------------------


def pushed(manager: Manager, series: ClientSeries, *metrics: bytes, id: UUID = ID) -> None:
    instance = manager.get(id)
    manager.now += instance.interval_ms
    payload = compress(GZIP, metrics_data(*metrics, resource={"group_id": 'a"b', "group_member_id": "m"}))
    series.take(instance, read_push(payload, GZIP, 1 << 20, instance, "User:ann"))


def test_gauges_are_replaced_and_counters_add_up() -> None:
    manager = Manager()
    series = ClientSeries(100, lambda: manager.now)
    for value in (5.0, 3.0):
        pushed(
            manager,
            series,
            gauge("org.apache.kafka.consumer.lag", value, topic="t", client_id="forged"),
            sum_of("org.apache.kafka.consumer.records.total", 2, delta=True),
            sum_of("custom bytes", 7, delta=False),
        )
    name = instance_name(ID)
    client = f'group_id="a\\"b",client_id="app-1",client_instance_id="{name}"'
    labels = f'topic="t",client_id="app-1",group_id="a\\"b",client_instance_id="{name}"'
    assert series.by_name(counters=False) == [("kafka_client_consumer_lag", [(labels, 3.0)])]
    assert series.by_name(counters=True) == [
        ("kafka_client_consumer_records_total", [(client, 4)]),
        ("kafka_client_custom_bytes_total", [(client, 7)]),
    ]
    assert series.clients[ID].info.startswith('group_id="a\\"b",group_member_id="m",client_id="app-1",')
    assert 'principal="User:ann"' in series.clients[ID].info
    assert series.count == 3
    manager.now += 3 * 300_000
    series.forget()
    assert (series.count, series.clients) == (0, {})


def test_gauges_that_are_not_pushed_any_more_are_gone() -> None:
    manager = Manager()
    series = ClientSeries(100, lambda: manager.now)
    counter = sum_of("sent", 1, delta=True)
    pushed(manager, series, gauge("lag", 5.0, partition=0), gauge("lag", 6.0, partition=1), counter)
    pushed(manager, series, gauge("lag", 7.0, partition=1), gauge("lag", float("nan"), partition=2))
    ((_, samples),) = series.by_name(counters=False)
    assert [value for _, value in samples] == [7.0]
    assert series.count == 2


def test_series_are_bounded() -> None:
    manager = Manager()
    series = ClientSeries(MAX_OF_CLIENT + 10, lambda: manager.now)
    pushed(manager, series, *[gauge("m", 1.0, n=n) for n in range(MAX_OF_CLIENT + 5)])
    assert (series.count, series.dropped) == (MAX_OF_CLIENT, 5)
    pushed(manager, series, *[gauge("m", 1.0, n=n) for n in range(12)], id=UUID(int=77))
    assert (series.count, series.dropped) == (MAX_OF_CLIENT + 10, 7)


def test_a_bomb_is_refused() -> None:
    bomb = compress(GZIP, bytes(10_000_000))
    with pytest.raises(KafkaError):
        read_push(bomb, GZIP, 1 << 20, Manager().get(), "User:ann")


def test_names_are_those_that_prometheus_allows() -> None:
    assert metric_name('a"} 1\nb', False) == "kafka_client_a___1_b"
    assert metric_name("a.total", True) == "kafka_client_a_total"
    assert metric_name("a.total", False) == "kafka_client_a_total_gauge"
    assert [label_name(name) for name in ("a-b", "9", "", "__name__")] == ["a_b", "l_9", "l_", "name__"]
