"""Quotas: the rates themselves, and clients that exceed theirs."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker import quotas as quotas_module
from millstream.broker.apis import client_quotas
from millstream.broker.apis.client_quotas import ClientQuotasApi
from millstream.broker.network.dispatch import Call
from millstream.broker.quotas import Quotas, applies
from millstream.broker.rates import Rate, TokenBucket
from millstream.client.config import ClientConfig
from millstream.client.connection import Connection
from millstream.cluster.image import Image
from millstream.cluster.security_commands import QuotaChange
from millstream.cluster.security_records import Quota
from millstream.testing import Broker
from millstream.wire.errors import ErrorCode
from millstream.wire.messages import codec
from tests.broker.conftest import Wire
from tests.support.effort import examples
from tests.support.waiting import wait_until


class Named(Wire):
    """A client with an id."""

    def __init__(self, servers: str, client_id: str) -> None:
        host, port = servers.split(":")
        config = dataclasses.replace(ClientConfig.of(servers), client_id=client_id)
        self.connection = Connection(config, host, int(port))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"quota.window.num": "3", "controller.quota.window.num": "5"}) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    wire = Wire(broker.bootstrap_servers)
    yield wire
    wire.connection.close()


def set_quota(wire: Wire, entity: dict[str, str | None], **values: float | None) -> None:
    answer = wire.ask(
        "alter_client_quotas",
        entries=[
            {
                "entity": [
                    {"entity_type": kind.replace("_", "-"), "entity_name": name}
                    for kind, name in entity.items()
                ],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in values.items()
                ],
            }
        ],
        validate_only=False,
    )
    assert answer.entries[0].error_code == 0, answer


def throttle_of(answer: Any) -> int:
    milliseconds: float = answer.throttle_time.total_seconds() * 1000
    return round(milliseconds)


def produce(wire: Wire, topic: str, size: int) -> int:
    """Throttle time of a write."""
    from millstream.wire.records import Record, encode_batch

    data = bytes(encode_batch([Record(0, 1_700_000_000_000, b"k", b"x" * size, ())]))
    answer = wire.ask(
        "produce",
        up_to=12,
        transactional_id=None,
        acks=-1,
        timeout=5000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": data}]}],
    )
    assert answer.responses[0].partition_responses[0].error_code == 0
    return throttle_of(answer)


# --- rates --------------------------------------------------------------------------------------------------


def test_a_rate_is_taken_over_at_least_all_but_one_window() -> None:
    rate = Rate(100.0, 11, 1000)
    assert rate.record(1000, 0) == 0.0  # 1,000 in 10 seconds
    assert rate.record(1000, 0) == pytest.approx(10_000)  # twice as much: wait as long again
    assert rate.value(5000) == pytest.approx(200)
    assert rate.over(10_500) > 0
    assert rate.over(11_000) == 0.0  # the sample has left the windows
    assert rate.value(11_000) == 0.0


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 500), st.booleans()), max_size=60),
)
def test_a_rate_is_what_its_samples_say(windows: int, steps: list[tuple[int, int, bool]]) -> None:
    """Against the definition: a sample holds what came within a window of its first value, and counts until
    all windows have passed since."""
    rate, bound, window = Rate(100.0, windows, 1000), 100.0, 1000
    samples: list[list[float]] = []
    now = 0.0
    for pause, value, records in steps:
        now += pause
        if records:
            if samples and now - samples[-1][0] < window:
                samples[-1][1] += value
            else:
                samples.append([now, value])
            found = rate.record(value, now)
        else:
            found = rate.over(now)
        kept = [one for one in samples if now - one[0] < windows * window]
        elapsed = now - kept[0][0] if kept else 0.0
        elapsed = max(elapsed + max(windows - 1 - elapsed // window, 0) * window, window)
        expected = sum(value for _, value in kept) / elapsed * 1000
        assert found == pytest.approx(max((expected - bound) / bound * elapsed, 0.0))
        assert rate.value(now) == pytest.approx(expected)


def test_a_bucket_has_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(1.0, 11, 1000)
    now = bucket._at
    assert bucket.record(11, now) == 0.0
    assert bucket.record(5, now) == pytest.approx(5000)
    assert bucket.over(now + 5000) == 0.0


def test_the_most_specific_entity_counts() -> None:
    order: list[tuple[tuple[tuple[str, str | None], ...], tuple[str, str]]] = [
        ((("client-id", "c"), ("user", "u")), ("u", "c")),
        ((("client-id", None), ("user", "u")), ("u", "c")),
        ((("user", "u"),), ("u", "")),
        ((("client-id", "c"), ("user", None)), ("u", "c")),
        ((("client-id", None), ("user", None)), ("u", "c")),
        ((("user", None),), ("u", "")),
        ((("client-id", "c"),), ("", "c")),
        ((("client-id", None),), ("", "c")),
    ]
    quotas = {
        entity: Quota(entity, {"request_percentage": float(number)})
        for number, (entity, _) in enumerate(order)
    }
    for number, (entity, counter) in enumerate(order):
        assert applies(quotas, "u", "c", "request_percentage") == (float(number), *counter)
        del quotas[entity]
    assert applies(quotas, "u", "c", "request_percentage") is None


def quotas_of_clients(served: list[int]) -> Quotas:
    """Each client id has a share of the loop of its own."""
    dispatcher = SimpleNamespace(dispatch=lambda _connection, view, *_: served.append(view[1]))
    settings = SimpleNamespace(integer=lambda _name: 2)
    broker: Any = SimpleNamespace(
        dispatcher=dispatcher, settings=settings, admission=SimpleNamespace(open=())
    )
    quotas = Quotas(broker)
    image = Image()
    image.apply([Quota((("client-id", None),), {"request_percentage": 50.0})], 1)
    quotas.follow(image)
    return quotas


def test_what_clients_call_themselves_takes_little_memory() -> None:
    served: list[int] = []
    quotas = quotas_of_clients(served)
    client_id = b"x" * 32_000
    connection: Any = SimpleNamespace(principal="User:ANONYMOUS")
    frame = memoryview(struct.pack(">hhih", 18, 0, 1, len(client_id)) + client_id)
    quotas.dispatch(connection, frame, 0, len(frame))  # ApiVersions: whoever has not logged in may send it
    assert served == [18] and not quotas.counters and not quotas._meters
    assert quotas.meters_of("User:u", client_id).request is not None
    assert all(len(part) <= 256 for key in (*quotas.counters, *quotas._meters) for part in key)


def test_room_for_new_clients_is_made_for_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every request of somebody who changes his client id would look at the counters of all."""
    monkeypatch.setattr(quotas_module, "MAX_COUNTERS", 100)
    monkeypatch.setattr(quotas_module, "ROOM", 10)
    looked_at = []

    def busy(counter: Rate, now: float) -> bool:
        looked_at.append(counter)
        return False

    monkeypatch.setattr(Rate, "idle", busy)
    quotas = quotas_of_clients([])
    for number in range(100):
        quotas.meters_of("User:u", b"client-%d" % number)
    assert len(quotas.counters) == 100 and not looked_at
    for number in range(100, 110):
        quotas.meters_of("User:u", b"client-%d" % number)
    assert len(looked_at) == len(quotas.counters) == 100
    assert {name for _, _, name in quotas.counters} == {f"client-{number}" for number in range(10, 110)}


# --- a running broker ---------------------------------------------------------------------------------------


def test_who_produces_too_much_is_told_and_muted_and_nobody_else(broker: Broker, wire: Wire) -> None:
    topic = wire.create()
    set_quota(wire, {"client_id": "greedy"}, producer_byte_rate=20_000.0)
    greedy, other = (Named(broker.bootstrap_servers, name) for name in ("greedy", "other"))
    assert produce(greedy, topic, 1000) == 0
    throttled = produce(greedy, topic, 45_000)
    assert 1 <= throttled <= 3000
    assert produce(other, topic, 200_000) == 0
    assert produce(other, topic, 100) == 0
    # Answered when it is listened to again, and served like any other.
    produce(greedy, topic, 100)
    set_quota(wire, {"client_id": "greedy"}, producer_byte_rate=None)
    assert produce(greedy, topic, 500_000) == 0
    for each in (greedy, other):
        each.connection.close()


def test_who_repeats_requests_by_the_fast_path_is_counted_as_well(broker: Broker, wire: Wire) -> None:
    topic = wire.create()
    client = Named(broker.bootstrap_servers, "greedy")
    for _ in range(5):
        assert produce(client, topic, 5000) == 0
    set_quota(wire, {"client_id": None}, producer_byte_rate=20_000.0)
    throttled = [produce(client, topic, 5000) for _ in range(10)]
    assert any(throttled)
    client.connection.close()


def test_who_fetches_too_much_gets_nothing_for_a_while(broker: Broker, wire: Wire) -> None:
    topic = wire.create()
    for _ in range(3):
        produce(wire, topic, 100_000)
    set_quota(wire, {"user": "ANONYMOUS", "client_id": "greedy"}, consumer_byte_rate=60_000.0)
    greedy, other = (Named(broker.bootstrap_servers, name) for name in ("greedy", "other"))

    def fetch(client: Wire) -> tuple[int, int]:
        answer = client.fetch({topic: {0: 0}})
        found = answer.responses[0].partitions[0].records if answer.responses else b""
        return throttle_of(answer), len(found or b"")

    first = fetch(greedy)
    assert first[0] == 0
    assert first[1] <= 120_000 + 1  # of one fetch no more than the windows allow, but one batch
    results = [fetch(greedy) for _ in range(2)]
    refused = [throttled for throttled, size in results if size == 0]
    assert refused and all(throttled > 0 for throttled in refused)
    assert fetch(other)[1] > 200_000
    wait_until(lambda: fetch(greedy)[1] > 0)
    for each in (greedy, other):
        each.connection.close()


def test_a_session_goes_on_after_a_throttled_fetch(broker: Broker, wire: Wire) -> None:
    topic = wire.create()
    produce(wire, topic, 100_000)
    greedy = Named(broker.bootstrap_servers, "greedy")
    answer = greedy.fetch({topic: {0: 0}}, session=(0, 0))
    session = answer.session_id
    set_quota(wire, {"client_id": "greedy"}, consumer_byte_rate=20_000.0)
    epoch, throttled = 1, 0
    sizes: list[int] = []
    while len([size for size in sizes if size]) < 2:
        answer = greedy.fetch({topic: {0: 0}}, session=(session, epoch))
        assert (answer.error_code, answer.session_id) == (0, session)
        throttled += throttle_of(answer) > 0
        sizes.append(len(answer.responses[0].partitions[0].records) if answer.responses else 0)
        epoch += 1
    assert throttled
    greedy.connection.close()


def test_time_of_the_loop_has_a_quota(broker: Broker, wire: Wire) -> None:
    set_quota(wire, {"client_id": "busy"}, request_percentage=0.01)
    busy = Named(broker.bootstrap_servers, "busy")

    def throttle_time() -> int:
        return throttle_of(busy.metadata())

    wait_until(lambda: throttle_time() > 0)
    assert throttle_of(wire.metadata()) == 0
    assert throttle_time() <= 1000
    busy.connection.close()


def new_topics(wire: Wire, names: list[str], up_to: int) -> Any:
    return wire.ask(
        "create_topics",
        up_to=up_to,
        topics=[
            {"name": name, "num_partitions": 3, "replication_factor": 1, "assignments": (), "configs": ()}
            for name in names
        ],
        timeout=10_000,
        validate_only=False,
    )


def elapsed(began: float) -> float:
    return time.monotonic() - began


@pytest.fixture
def slow_changes(broker: Broker, wire: Wire) -> Iterator[Named]:
    """A client with one partition a second, and a burst of five."""
    set_quota(wire, {"client_id": "changes"}, controller_mutation_rate=1.0)
    client = Named(broker.bootstrap_servers, "changes")
    yield client
    client.connection.close()


def test_a_client_that_knows_the_error_is_refused_and_muted(wire: Wire, slow_changes: Named) -> None:
    """What it asks for at first is more than its burst, but allowed: it owes the rest."""
    began = time.monotonic()
    first = new_topics(slow_changes, ["a", "b"], 7)
    assert [topic.error_code for topic in first.topics] == [0, 0]
    assert throttle_of(first) == 0
    more = new_topics(slow_changes, ["c"], 7)
    assert more.topics[0].error_code == ErrorCode.throttling_quota_exceeded
    assert more.topics[0].error_message == "The throttling quota has been exceeded."
    wait = throttle_of(more) / 1000
    assert 0 < wait <= 1
    assert elapsed(began) < wait  # the response itself does not wait
    asked = time.monotonic()
    new_topics(wire, ["other"], 7)
    assert elapsed(asked) < wait  # nobody else waits
    slow_changes.metadata()
    assert elapsed(asked) > wait * 0.8
    assert new_topics(slow_changes, ["c"], 7).topics[0].error_code == 0


def test_an_old_client_gets_what_it_asks_for_and_is_muted(wire: Wire, slow_changes: Named) -> None:
    old = new_topics(slow_changes, ["a", "b"], 5)
    assert [topic.error_code for topic in old.topics] == [0, 0]
    wait = throttle_of(old) / 1000
    assert 0 < wait <= 1
    began = time.monotonic()
    slow_changes.metadata()
    assert elapsed(began) > wait * 0.8


def test_only_what_can_be_done_counts(wire: Wire, slow_changes: Named) -> None:
    """Topics that exist cost nothing, nor do those that are to be deleted and do not."""
    new_topics(wire, ["here"], 7)
    for _ in range(5):
        again = new_topics(slow_changes, ["here"], 7)
        assert again.topics[0].error_code == ErrorCode.topic_already_exists
        assert throttle_of(again) == 0
    assert new_topics(slow_changes, ["a", "b"], 7).topics[1].error_code == 0
    unknown = {"name": "nowhere", "topic_id": None}
    answer = slow_changes.ask(
        "delete_topics", topics=[{"name": "a", "topic_id": None}, unknown], timeout=10_000
    )
    assert {topic.name: topic.error_code for topic in answer.responses} == {
        "a": ErrorCode.throttling_quota_exceeded,
        "nowhere": ErrorCode.unknown_topic_or_partition,
    }
    assert throttle_of(answer) > 0


def test_more_partitions_count_like_new_topics(wire: Wire, slow_changes: Named) -> None:
    new_topics(wire, ["one", "two"], 7)

    def grow(up_to: int) -> Any:
        topics = [{"name": name, "count": 8, "assignments": None} for name in ("one", "two")]
        return slow_changes.ask(
            "create_partitions", up_to=up_to, topics=topics, timeout=10_000, validate_only=False
        )

    answer = grow(3)  # five each
    assert {topic.name: topic.error_code for topic in answer.results} == {"one": 0, "two": 0}
    again = grow(3)
    assert {topic.error_code for topic in again.results} == {ErrorCode.invalid_partitions}
    assert throttle_of(again) == 0
    gone = slow_changes.ask("delete_topics", topics=[{"name": "one", "topic_id": None}], timeout=10_000)
    assert gone.responses[0].error_code == ErrorCode.throttling_quota_exceeded


def test_topics_that_metadata_creates_count(slow_changes: Named, wire: Wire) -> None:
    new_topics(slow_changes, ["a", "b"], 7)

    def look_for(name: str) -> Any:
        return slow_changes.metadata(name, create=True).topics[0].error_code

    assert look_for("in-passing") == ErrorCode.unknown_topic_or_partition
    wait_until(lambda: look_for("in-passing") == 0)


def test_who_connects_too_often_is_kept_out(broker: Broker, wire: Wire) -> None:
    set_quota(wire, {"ip": "127.0.0.3"}, connection_creation_rate=1.0)
    host, port = broker.bootstrap_servers.split(":")

    def closed_at_once(source: str) -> bool:
        with socket.create_connection((host, int(port)), source_address=(source, 0)) as sock:
            sock.settimeout(0.5)
            try:
                return sock.recv(1) == b""
            except TimeoutError:
                return False

    found = [closed_at_once("127.0.0.3") for _ in range(5)]
    assert not found[0]
    assert any(found)
    assert not any(closed_at_once("127.0.0.4") for _ in range(5))


def test_a_host_that_nobody_knows_has_no_quota(wire: Wire) -> None:
    """The names under `invalid` resolve nowhere (RFC 2606)."""
    rate = {"key": "connection_creation_rate", "value": 1.0, "remove": False}
    answer = wire.ask(
        "alter_client_quotas",
        entries=[
            {"entity": [{"entity_type": "ip", "entity_name": name}], "ops": [rate]}
            for name in ("host.invalid", "127.0.0.9", "not a host")
        ],
        validate_only=True,
    )
    assert [entry.error_code for entry in answer.entries] == [
        ErrorCode.invalid_request,
        ErrorCode.none,
        ErrorCode.invalid_request,
    ]
    assert answer.entries[0].error_message == "host.invalid is not a valid IP or resolvable host."


def test_a_request_asks_name_servers_for_some_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MAX_LOOK_UPS", 3)
    asked: list[str] = []

    async def look_up(_loop: Any, host: str, _port: Any) -> list[Any]:
        asked.append(host)
        return []

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    names = ["127.0.0.9", "::1", "a.example", "b.example", "a.example", "c.example", "d.example", "e.example"]
    changes = [QuotaChange((("ip", name),), [("connection_creation_rate", 1.0)]) for name in names]
    anyone: Any = None
    call = Call(anyone, codec(49, 1), 1, anyone)
    unknown = asyncio.run(ClientQuotasApi(anyone)._unknown_hosts(call, changes))
    assert asked == ["a.example", "b.example", "c.example"], "addresses and repeats are not looked up"
    assert unknown == {("ip", "d.example"), ("ip", "e.example")}


def test_quotas_are_described_by_filters_and_survive_a_restart(broker: Broker, wire: Wire) -> None:
    set_quota(wire, {"user": "bob", "client_id": None}, producer_byte_rate=5.0, request_percentage=2.5)
    set_quota(wire, {"user": "bob"}, consumer_byte_rate=7.0)
    set_quota(wire, {"ip": None}, connection_creation_rate=3.0)

    def described(strict: bool, *parts: tuple[str, int, str | None]) -> Any:
        answer = wire.ask(
            "describe_client_quotas",
            components=[
                {"entity_type": kind, "match_type": match_type, "match": match}
                for kind, match_type, match in parts
            ],
            strict=strict,
        )
        assert answer.error_code == 0, answer
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in answer.entries
        }

    assert described(True, ("user", 0, "bob")) == {(("user", "bob"),): {"consumer_byte_rate": 7.0}}
    assert len(described(False, ("user", 2, None))) == 2
    assert len(described(False)) == 3
    assert described(True, ("ip", 1, None)) == {(("ip", None),): {"connection_creation_rate": 3.0}}
    bad = wire.ask(
        "describe_client_quotas",
        components=[{"entity_type": "user", "match_type": 0, "match": None}],
        strict=False,
    )
    assert bad.error_code == ErrorCode.invalid_request
    broker.restart()
    again = Wire(broker.bootstrap_servers)
    answer = again.ask("describe_client_quotas", components=(), strict=False)
    assert len(answer.entries) == 3
    again.connection.close()
