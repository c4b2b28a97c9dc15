"""Any broker takes any administrative request; the controller decides, and the answer is seen where it was
asked for."""

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.network.dispatch import Call
from millstream.client.messages import exchange, request_header
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.wire.envelope import (
    EnvelopeResponse,
    pack_envelope,
    pack_envelope_response,
    pack_principal,
    read_address,
    read_envelope_response,
    read_principal,
)
from millstream.wire.errors import ErrorCode
from millstream.wire.varint import Malformed
from tests.support.memory_cluster import MemoryCluster, new_topic
from tests.support.waiting import let_tasks_run, wait_until_async


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(tmp_path, offsets_topic_replication_factor=1) as cluster:
        yield cluster


async def create(wire: Any, *topics: dict[str, Any], patience: int = 30_000) -> list[ErrorCode]:
    answer = await wire.request("create_topics", topics=topics, timeout=patience, validate_only=False)
    return [topic.error_code for topic in answer.topics]


async def names(wire: Any) -> set[str]:
    answer = await wire.request(
        "metadata",
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return {topic.name for topic in answer.topics}


async def test_whoever_is_asked_the_controller_decides(cluster: MemoryCluster) -> None:
    wires = [await cluster.wire(broker_id) for broker_id in cluster.brokers]
    for number, wire in enumerate(wires):
        assert await create(wire, new_topic(f"t{number}", 3)) == [ErrorCode.none]
        assert f"t{number}" in await names(wire), "who creates a topic and asks the same broker finds it"
        assert await create(wire, new_topic(f"t{number}")) == [ErrorCode.topic_already_exists]
    answer = await wires[1].request(
        "create_partitions",
        topics=[{"name": "t0", "count": 5, "assignments": None}],
        timeout=30_000,
        validate_only=False,
    )
    assert answer.results[0].error_code is ErrorCode.none
    answer = await wires[2].request(
        "delete_topics", topics=[{"name": "t1", "topic_id": None}], timeout=30_000
    )
    assert answer.responses[0].error_code is ErrorCode.none
    assert await names(wires[2]) == {"t0", "t2"}
    image = cluster.brokers[3].image
    assert len(image.partitions[image.topics_by_name["t0"].topic_id]) == 5


async def test_the_broker_that_forwards_mutes_who_changes_too_much(cluster: MemoryCluster) -> None:
    """A quota is counted at the controller, for the client itself; the other broker holds it to the wait."""
    wire = await cluster.wire(cluster.others[0].node_id)
    quota = {
        "entity": [{"entity_type": "user", "entity_name": None}],
        "ops": [{"key": "controller_mutation_rate", "value": 2.0, "remove": False}],
    }
    answer = await wire.request("alter_client_quotas", entries=[quota], validate_only=False)
    assert answer.entries[0].error_code == ErrorCode.none
    assert await create(wire, new_topic("a", 24)) == [ErrorCode.none]  # a burst of 22
    answer = await wire.request("create_topics", topics=[new_topic("b")], timeout=30_000, validate_only=False)
    assert answer.topics[0].error_code == ErrorCode.throttling_quota_exceeded
    wait = answer.throttle_time.total_seconds()
    assert 0 < wait <= 1
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked = await wire.request(
        "metadata",
        topics=[{"topic_id": None, "name": "c"}],
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    assert loop.time() - began > wait * 0.8
    assert asked.topics[0].error_code in (ErrorCode.none, ErrorCode.unknown_topic_or_partition)


async def test_every_version_of_a_request_is_answered_in_its_form(cluster: MemoryCluster) -> None:
    broker = cluster.others[0]
    wire = await cluster.wire(broker.node_id)
    for version in range(2, 8):
        answer = await wire.request(
            "create_topics",
            up_to=version,
            topics=[new_topic(f"v{version}"), new_topic("bad name")],
            timeout=30_000,
            validate_only=False,
        )
        codes = [topic.error_code for topic in answer.topics]
        assert codes == [ErrorCode.none, ErrorCode.invalid_topic_exception]


async def test_the_client_is_named_to_the_controller(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, str, bool]] = []
    api = cluster.controller.dispatcher.apis[19]
    handler = api.handler
    assert handler is not None

    def look(call: Call) -> Any:
        seen.append((call.principal, call.host, call.connection.client_id, call.is_forwarded))
        return handler(call)

    monkeypatch.setattr(api, "handler", look)
    other = cluster.others[0]
    wire = await cluster.wire(other.node_id)
    (connection,) = (each for each in other.admission.open if each.client_id == "test")
    connection.principal = "User:alice"
    assert await create(wire, new_topic("t")) == [ErrorCode.none]
    assert seen == [("User:alice", "127.0.0.1", "test", True)]


async def test_a_broker_that_asks_for_itself_is_who_it_logged_in_as(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    api = cluster.controller.dispatcher.apis[19]
    handler = api.handler
    assert handler is not None

    def look(call: Call) -> Any:
        seen.append(call.principal)
        return handler(call)

    monkeypatch.setattr(api, "handler", look)
    other = cluster.others[0]
    await other.forwarding.create_topics([NewTopic("first", 1, 1)])
    for connection in cluster.controller.admission.open:
        connection.principal = "User:broker"
    (made,) = await other.forwarding.create_topics([NewTopic("second", 1, 1)])
    assert (made.error, seen) == (ErrorCode.none, ["User:ANONYMOUS", "User:broker"])


async def test_large_requests_are_forwarded_too(cluster: MemoryCluster) -> None:
    wire = await cluster.wire(cluster.others[0].node_id)
    assert set(await create(wire, *(new_topic(f"t{n}") for n in range(300)))) == {ErrorCode.none}
    assert len(await names(wire)) == 300


async def test_a_request_waits_for_the_next_controller(cluster: MemoryCluster) -> None:
    last = cluster.controller
    wire = await cluster.wire(cluster.others[0].node_id)
    await cluster.stop(last.node_id)
    assert await create(wire, new_topic("t")) == [ErrorCode.none]
    assert "t" in await names(wire)


async def test_without_a_controller_the_answer_is_not_controller(cluster: MemoryCluster) -> None:
    other = cluster.others[0]
    wire = await cluster.wire(other.node_id)
    for broker in cluster.brokers.values():
        broker.store.gate.clear()  # nobody can write the log any more
    cluster.controller.controller.resign("the test says so")
    assert await create(wire, new_topic("t"), patience=200) == [ErrorCode.not_controller]
    for broker in cluster.brokers.values():
        broker.store.gate.set()


async def test_an_answer_waits_until_this_broker_sees_the_change(cluster: MemoryCluster) -> None:
    other = cluster.others[0]
    wire = await cluster.wire(other.node_id)
    async with other.controller._telling:  # its image cannot change
        creating = asyncio.create_task(create(wire, new_topic("t")))
        await wait_until_async(lambda: cluster.controller.image.topic("t") is not None)
        await let_tasks_run()
        assert not creating.done()
    assert await creating == [ErrorCode.none]


def change(kind: str, name: str, setting: str, value: str | None, operation: int = 0) -> dict[str, Any]:
    types = {"topic": 2, "broker": 4, "logger": 8}
    return {
        "resource_type": types[kind],
        "resource_name": name,
        "configs": [{"name": setting, "config_operation": operation, "value": value}],
    }


async def alter(wire: Any, *resources: dict[str, Any]) -> list[ErrorCode]:
    answer = await wire.request("incremental_alter_configs", resources=resources, validate_only=False)
    return [ErrorCode(response.error_code) for response in answer.responses]


async def test_settings_of_one_broker_take_effect_on_it_alone(cluster: MemoryCluster) -> None:
    other = cluster.others[0]
    me = str(other.node_id)
    wire = await cluster.wire(other.node_id)
    assert await create(wire, new_topic("t")) == [ErrorCode.none]
    codes = await alter(
        wire,
        change("broker", me, "max.connections", "77"),
        change("topic", "t", "retention.ms", "5"),
        change("logger", me, "millstream.groups", "DEBUG"),
        change("broker", "", "message.max.bytes", "54321"),
        change("broker", str(cluster.controller.node_id), "max.connections", "78"),
        change("topic", "gone", "retention.ms", "5"),
    )
    assert codes == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.invalid_request,  # only that broker can judge it
        ErrorCode.unknown_topic_or_partition,
    ]
    await cluster.in_step()
    for broker in cluster.brokers.values():
        assert broker.settings.integer("message.max.bytes") == 54321
        assert (broker.settings.integer("max.connections") == 77) is (broker is other)
    await alter(wire, change("logger", me, "millstream.groups", None, 1))


async def test_a_broker_judges_its_own_settings(cluster: MemoryCluster) -> None:
    other = cluster.others[0]
    wire = await cluster.wire(other.node_id)
    before = cluster.hub.version
    codes = await alter(wire, change("broker", str(other.node_id), "max.connections", "many"))
    assert codes == [ErrorCode.invalid_config] or codes == [ErrorCode.invalid_request]
    assert cluster.hub.version == before


async def test_the_old_way_to_alter_configs(cluster: MemoryCluster) -> None:
    other = cluster.others[0]
    wire = await cluster.wire(other.node_id)
    await create(wire, new_topic("t", retention_ms="5"))
    answer = await wire.request(
        "alter_configs",
        resources=[
            {
                "resource_type": 2,
                "resource_name": "t",
                "configs": [{"name": "retention.bytes", "value": "6"}],
            }
        ],
        validate_only=False,
    )
    assert answer.responses[0].error_code is ErrorCode.none
    topic = other.image.topic("t")
    assert topic is not None
    assert dict(other.image.topic_config(topic.topic_id)) == {"retention.bytes": "6"}


async def test_producer_ids_are_unique_over_brokers(cluster: MemoryCluster) -> None:
    ids = []
    for broker_id in cluster.brokers:
        wire = await cluster.wire(broker_id)
        for _ in range(3):
            answer = await wire.request(
                "init_producer_id",
                transactional_id=None,
                transaction_timeout=1000,
                producer_id=-1,
                producer_epoch=-1,
            )
            assert answer.error_code is ErrorCode.none
            ids.append(answer.producer_id)
    assert len(set(ids)) == 9
    assert {each // 1000 for each in ids} == {0, 1, 2}


async def test_a_topic_that_a_client_needs_is_created_by_way_of_the_controller(
    cluster: MemoryCluster,
) -> None:
    wire = await cluster.wire(cluster.others[0].node_id)
    answer = await wire.request(
        "metadata",
        topics=[{"topic_id": None, "name": "wanted"}, {"topic_id": None, "name": "not a name"}],
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.none,
        ErrorCode.invalid_topic_exception,
    ]
    assert cluster.controller.image.topic("wanted") is not None


# --- the envelope itself ------------------------------------------------------------------------------------


def inner(api: str, version: int, **fields: Any) -> bytes:
    form = exchange(api, version)
    return request_header(form.key, version, 77, b"inner", form.flexible) + form.encode(fields)


async def open_envelope(wire: Any, request: bytes, principal: bytes | None = None) -> Any:
    return await wire.request(
        "envelope",
        request_data=request,
        request_principal=pack_principal("User:bob") if principal is None else principal,
        client_host_address=b"\x7f\0\0\1",
    )


async def test_what_may_be_in_an_envelope(cluster: MemoryCluster) -> None:
    wire = await cluster.wire(cluster.controller.node_id)
    good = inner("delete_topics", 4, topic_names=["gone"], timeout=1000)
    answer = await open_envelope(wire, good)
    assert answer.error_code is ErrorCode.none
    assert struct.unpack_from(">i", answer.response_data)[0] == 77
    for bad in (
        b"",
        b"\0\1",
        good[:-3],
        inner("metadata", 4, topics=None, allow_auto_topic_creation=False),  # is never forwarded
        struct.pack(">hhih", 20, 99, 1, -1),  # a version that there is not
        struct.pack(">hhih", 999, 0, 1, -1),
    ):
        assert (await open_envelope(wire, bad)).error_code is ErrorCode.invalid_request, bad
    assert (await open_envelope(wire, good, b"\0\1x")).error_code is ErrorCode.invalid_request


async def test_only_brokers_may_send_one(tmp_path: Path) -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"
    protocols = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"
    settings: dict[str, object] = {
        "listeners": listeners,
        "listener_security_protocol_map": protocols,
        "inter_broker_listener_name": "INTERNAL",
    }
    async with MemoryCluster(tmp_path, 2, **settings) as cluster:
        wire = await cluster.wire(cluster.controller.node_id)  # the listener of the clients
        answer = await open_envelope(wire, inner("delete_topics", 4, topic_names=["t"], timeout=1000))
        assert answer.error_code is ErrorCode.cluster_authorization_failed
        ids = await wire.request("allocate_producer_ids", broker_id=1, broker_epoch=1)
        assert ids.error_code is ErrorCode.cluster_authorization_failed
        other = await cluster.wire(cluster.others[0].node_id)
        assert await create(other, new_topic("t")) == [ErrorCode.none], "brokers use their own listener"


async def test_a_broker_that_is_not_the_controller_says_so(cluster: MemoryCluster) -> None:
    wire = await cluster.wire(cluster.others[0].node_id)
    answer = await open_envelope(wire, inner("delete_topics", 4, topic_names=["t"], timeout=1000))
    assert answer.error_code is ErrorCode.not_controller


def test_the_bytes_of_envelopes() -> None:
    packed = pack_envelope(b"request", "User:CN=a:b", "127.0.0.1")
    assert packed.startswith(b"\x08request")
    assert read_principal(pack_principal("User:CN=a:b")) == "User:CN=a:b"
    assert read_address(b"\x7f\0\0\1") == "127.0.0.1"
    assert read_address(bytes(15) + b"\1") == "::1"
    for response in (EnvelopeResponse(0, b"data", 5), EnvelopeResponse(41, None, 0)):
        assert read_envelope_response(memoryview(b"\0" + pack_envelope_response(response))) == response
    theirs = b"\0\x05data\0\0\0"  # of a broker that names no version
    assert read_envelope_response(memoryview(theirs)) == EnvelopeResponse(0, b"data", 0)
    for bad in (b"", b"\0", b"\0\x05da", b"\0\x01\0"):
        with pytest.raises(Malformed):
            read_envelope_response(memoryview(bad))
    for principal in (b"", b"\0\1\x01\x01\0\0", b"\0\0\x7f"):
        with pytest.raises(Malformed):
            read_principal(principal)
    with pytest.raises(Malformed):
        read_address(b"123")


async def test_a_broker_that_will_not_come_back_is_forgotten(cluster: MemoryCluster) -> None:
    wire = await cluster.wire(cluster.others[0].node_id)
    victim = cluster.others[1].node_id
    await cluster.stop(victim)
    await cluster.in_step()
    assert (await wire.request("unregister_broker", broker_id=victim)).error_code is ErrorCode.none
    again = await wire.request("unregister_broker", broker_id=victim)
    assert again.error_code is ErrorCode.broker_id_not_registered
    assert not cluster.controller.image.knows_broker(victim)


@pytest.mark.parametrize("which", ["controller", "another"])
async def test_a_broker_that_is_forgotten_alive_stays_away_until_it_restarts(
    cluster: MemoryCluster, which: str
) -> None:
    await cluster.controller.controller.submit(CreateTopics([NewTopic("t", 1, 3)]))
    await cluster.in_step()
    victim = cluster.controller if which == "controller" else cluster.others[0]
    rest = [broker for broker in cluster.brokers.values() if broker is not victim]
    wire = await cluster.wire(rest[0].node_id)
    answer = await wire.request("unregister_broker", broker_id=victim.node_id)
    assert answer.error_code is ErrorCode.none, answer
    await wait_until_async(lambda: any(broker.controller.leading for broker in rest))
    assert not victim.controller.leading and not victim.controller.holds_lease()
    # Others come and go, and each time its node in the store is looked at again.
    another = rest[1].node_id
    await cluster.stop(another)
    await cluster.start(another)
    await cluster.in_step()
    image = cluster.controller.image
    assert not image.knows_broker(victim.node_id)
    [partition] = image.all_partitions()
    assert partition.leader in (rest[0].node_id, another) and victim.node_id not in partition.isr
    await cluster.stop(victim.node_id)
    await cluster.start(victim.node_id)
    await wait_until_async(lambda: len(next(cluster.controller.image.all_partitions()).isr) == 3)
