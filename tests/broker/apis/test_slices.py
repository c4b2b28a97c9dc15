"""No request keeps the loop for long: whatever a handler has to work through, it takes up some elements, lets
others have their turn, and goes on.

`benchmarks/broker_lag.py` measures the same in seconds. Here elements are counted, so that the result does
not depend on the machine: those that a handler takes out of the lists of its request, the structures that it
makes for its response, and what it looks up in the table of partitions, all between two turns of the loop.
"""

from __future__ import annotations

import asyncio
import io
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from benchmarks.largest import PARTITIONS, TOPIC, largest_requests

from millstream.broker.apis import consumer_groups, fetch, metadata, produce
from millstream.broker.apis.configs import ConfigsApi
from millstream.broker.apis.consumer_groups import ConsumerGroupsApi
from millstream.broker.apis.find_coordinator import FindCoordinatorApi
from millstream.broker.apis.groups import GroupsApi
from millstream.broker.authorizer import AclIndex
from millstream.broker.network.connection import Connection
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import ELEMENTS_PER_SLICE, Slices, run_slice
from millstream.broker.server import Broker
from millstream.cluster import driver
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import Partition, Topic
from millstream.cluster.scram import AlterScram
from millstream.cluster.security_commands import CreateAcls
from millstream.cluster.security_records import Scram
from millstream.settings.resolve import BrokerSettings
from millstream.wire._kio import entity_writer
from millstream.wire.acls import AclBinding, AclFilter
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.messages import codec

ELEMENTS = 8 * ELEMENTS_PER_SLICE
SERVED = (
    *(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30),
    *(31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 55, 57, 60),
    *(61, 64, 65, 66, 68, 69, 71, 72, 74, 75),
)
# A handler may take up an element more than once, a topic counts besides its partition, and the audit log
# notes the first hundred.
LIMIT = 5 * ELEMENTS_PER_SLICE


class Counter:
    """Elements taken up in this turn of the loop, and in the turn with the most of them."""

    def __init__(self) -> None:
        self.now = self.largest = 0
        self._loop_thread = threading.get_ident()

    def one(self) -> None:
        if threading.get_ident() == self._loop_thread:
            self.now += 1

    def next_turn(self) -> None:
        self.largest = max(self.largest, self.now)
        self.now = 0

    async def count_turns(self) -> None:
        while True:
            self.next_turn()
            await asyncio.sleep(0)


def counted_sequence(counter: Counter) -> type[tuple[Any, ...]]:
    class Counted(tuple):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            for element in super().__iter__():
                counter.one()
                yield element

        def __getitem__(self, index: Any) -> Any:
            counter.one()
            return super().__getitem__(index)

    return Counted


class CountedTable(dict[Any, Any]):
    counter: Counter

    def get(self, key: Any, default: Any = None) -> Any:
        self.counter.one()
        return super().get(key, default)


class CountedCall(Call):
    counter: Counter

    def make(self, structure: str, /, **fields: Any) -> Any:
        self.counter.one()
        return super().make(structure, **fields)


class World:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.loop = asyncio.get_running_loop()

    async def largest_turn(self, api: Api, request: Any, counter: Counter) -> int:
        """The most elements taken up in one turn while this request is served."""
        counting = self.loop.create_task(counter.count_turns())
        try:
            if api.raw is not None:
                await self._exchange(api, request, counter)
            else:
                call = CountedCall(self._peer(), codec(api.key, api.highest), 1, request)
                call.counter = counter
                call.is_large = True
                response = await asyncio.wait_for(self.broker.dispatcher._handle(api, call), 60)
                assert type(response) is not bytes or len(response) < ELEMENTS, "encoded in the loop"
        finally:
            counting.cancel()
            counter.next_turn()
        return counter.largest

    def _peer(self) -> Any:
        context = SimpleNamespace(name="PLAINTEXT", protocol="SASL_PLAINTEXT")  # tokens need a login
        return SimpleNamespace(
            peer="127.0.0.1:1",
            principal="User:ANONYMOUS",
            client_host="127.0.0.1",
            client_id="client",
            software="client/1",
            token_authenticated=False,
            closed=False,
            loop=self.loop,
            context=context,
        )

    async def _exchange(self, api: Api, request: Any, counter: Counter) -> None:
        """For the two APIs that read their frames themselves: over a socket, with a counting table."""
        partitions = self.broker.partitions
        CountedTable.counter = counter
        for name in ("by_id", "by_name"):
            table = getattr(partitions, name)
            counted = CountedTable({topic: CountedTable(hosted) for topic, hosted in table.items()})
            setattr(partitions, name, counted)
        out = io.BytesIO()
        entity_writer(codec(api.key, api.highest).request)(out, request)
        header = struct.pack(">hhihB", api.key, api.highest, 1, -1, 0)
        counter.now = counter.largest = 0
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        context = self.broker.acceptors[0].context
        connection = Connection(ours, "127.0.0.1:1", context, self.broker.dispatcher, self.loop)
        try:
            body = header + out.getvalue()
            sending = self.loop.create_task(
                self.loop.sock_sendall(theirs, struct.pack(">i", len(body)) + body)
            )
            assert len(await asyncio.wait_for(self.loop.sock_recv(theirs, 4), 60)) == 4
            await sending
        finally:
            connection.close()
            theirs.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
        # Where there are none of these, requests about them are refused before any work is done.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
        "millstream.metrics.listener": "127.0.0.1:0",
        "millstream.audit.log": f"file:{tmp_path / 'audit.log'}",
    }
    broker = Broker(BrokerSettings(settings))
    await broker.start()
    await broker.controller.submit(CreateTopics([NewTopic(TOPIC, PARTITIONS, 1)]))
    await broker.groups.runtime.ensure_exists()
    await broker.transactions.runtime.ensure_exists()
    yield World(broker)
    await broker.stop()


async def test_every_api_is_in_the_list(world: World) -> None:
    assert tuple(sorted(world.broker.dispatcher.apis)) == SERVED


@pytest.mark.parametrize("key", SERVED)
async def test_no_turn_takes_up_more_than_some_elements(
    world: World, key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = world.broker.dispatcher.apis[key]
    monkeypatch.setattr(fetch, "LARGE_FRAME", 1024)
    monkeypatch.setattr(driver, "decide", decides_in_a_thread(driver.decide))
    too_long = {}
    counter = Counter()
    for name, request in largest_requests(
        codec(key, api.highest).request, ELEMENTS, counted_sequence(counter)
    ):
        counter.now = counter.largest = 0
        largest = await world.largest_turn(api, request, counter)
        if largest > LIMIT:
            too_long[name] = largest
    assert not too_long


async def test_a_short_request_about_many_acls_is_decided_in_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = world.broker.controller
    bindings = [AclBinding(2, f"t{number}", 3, "User:u", "*", 3, 3) for number in range(1000)]
    await controller.submit(CreateAcls(bindings))
    threads = []

    def decided(image: Any, command: Any, context: Any) -> Any:
        threads.append(threading.get_ident())
        return decide(image, command, context)

    decide = driver.decide
    monkeypatch.setattr(driver, "decide", decided)
    for filters in (1, 20):
        delete_filter = SimpleNamespace(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter="User:nobody",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        request = SimpleNamespace(filters=(delete_filter,) * filters)
        call = Call(world._peer(), codec(31, 3), 1, request)
        await world.broker.dispatcher._handle(world.broker.dispatcher.apis[31], call)
    assert threads[0] == threading.get_ident() != threads[1]


async def test_large_entries_of_the_metadata_log_are_encoded_in_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def encoded(*arguments: Any) -> bytes:
        threads.append(threading.get_ident())
        return encode(*arguments)

    encode = driver.encode
    monkeypatch.setattr(driver, "encode", encoded)
    for count in (1, driver.ENCODED_IN_LOOP + 1):
        bindings = [AclBinding(2, f"t{count}-{number}", 3, "User:u", "*", 3, 3) for number in range(count)]
        await world.broker.controller.submit(CreateAcls(bindings))
    assert threads[0] == threading.get_ident() != threads[1]


async def test_large_entries_of_the_metadata_log_are_decoded_in_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another controller: its own need no decoding."""
    controller = world.broker.controller
    threads = {}
    decode = driver.decode

    def decoded(payload: bytes) -> Any:
        threads[len(payload) > driver.DECODED_IN_LOOP] = threading.get_ident()
        return decode(payload)

    monkeypatch.setattr(driver, "decode", decoded)
    monkeypatch.setattr(driver, "_Flight", lambda *_: None)
    for count in (1, 5000):
        bindings = [
            AclBinding(2, str(UUID(int=7**20 * number)), 3, f"User:{number}", "*", 3, 3)
            for number in range(count)
        ]
        await controller.submit(CreateAcls(bindings))
    assert threads[False] == threading.get_ident() != threads[True]


async def test_changes_of_many_acls_and_users_come_into_effect_in_slices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter()
    image, add = world.broker.image, AclIndex.add
    apply_other, versions = Image._apply_other, set()

    def applied(image: Image, *arguments: Any) -> None:
        counter.one()
        versions.add(image.version)
        apply_other(image, *arguments)

    def indexed(index: AclIndex, acl: AclBinding) -> None:
        counter.one()
        add(index, acl)

    monkeypatch.setattr(Image, "_apply_other", applied)
    monkeypatch.setattr(AclIndex, "add", indexed)
    acls = [AclBinding(2, f"t{number}", 3, "User:u", "*", 3, 3) for number in range(ELEMENTS)]
    users = [Scram(f"u{number}", 1, "aa", "bb", "cc", 4096) for number in range(ELEMENTS)]
    for command in (CreateAcls(acls), AlterScram(users)):
        counter.now = counter.largest = 0
        versions.clear()
        before = image.version
        counting = world.loop.create_task(counter.count_turns())
        await world.broker.controller.submit(command, is_large=True)
        counting.cancel()
        assert 1 < counter.largest <= driver.APPLIED_AT_ONCE
        assert versions == {before}, "the version says that all of an entry is there"
        assert image.version == before + 1
    assert len(image.acls) == len(image.scram) == ELEMENTS
    assert len(world.broker.authorizer.index.acls) == ELEMENTS


@pytest.mark.parametrize("resources", [1, ELEMENTS])
async def test_many_acls_are_described_in_slices(
    world: World, resources: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bindings = [
        AclBinding(2, f"t{number % resources}", 3, f"User:u{number}", "*", 3, 3) for number in range(ELEMENTS)
    ]
    await world.broker.controller.submit(CreateAcls(bindings))
    counter = Counter()
    matches = AclFilter.matches

    def counted(wanted: AclFilter, binding: AclBinding) -> bool:
        counter.one()
        return matches(wanted, binding)

    monkeypatch.setattr(AclFilter, "matches", counted)
    request = SimpleNamespace(
        resource_type_filter=2,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert 1 < await world.largest_turn(world.broker.dispatcher.apis[29], request, counter) <= LIMIT


async def test_many_renewers_of_a_token_are_refused_unseen(world: World) -> None:
    counter = Counter()
    renewers = [SimpleNamespace(principal_type="User", principal_name=f"u{n}") for n in range(ELEMENTS)]
    request = SimpleNamespace(
        owner_principal_name=None,
        renewers=counted_sequence(counter)(renewers),
        max_lifetime=timedelta(days=1),
    )
    call = Call(world._peer(), codec(38, 3), 1, request)
    answer = await world.broker.dispatcher._handle(world.broker.dispatcher.apis[38], call)
    assert answer is not None
    assert counter.now == 0
    assert not world.broker.image.tokens


async def test_rights_on_many_topics_of_a_group_are_looked_up_in_slices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics that a described group reads, and those that a heartbeat names."""
    counter = Counter()

    def counted(*arguments: Any, **options: Any) -> bool:
        counter.one()
        return may(*arguments, **options)

    may = consumer_groups.may
    monkeypatch.setattr(consumer_groups, "may", counted)
    api = ConsumerGroupsApi(world.broker)
    names = {UUID(int=number): f"t{number}" for number in range(ELEMENTS)}
    member = SimpleNamespace(member_id="m", assigned=dict.fromkeys(names), revoking={})
    group: Any = SimpleNamespace(members={"m": member}, target=lambda _member_id: {})
    monkeypatch.setattr(api.groups.consumer_groups.topics, "name_of", names.get)
    call = Call(world._peer(), codec(69, 1), 1, SimpleNamespace())
    looking = counter_turns(api._may_see_topics(call, group), counter)
    assert looking.value is True and counter.largest <= ELEMENTS_PER_SLICE
    counter.now = counter.largest = 0
    heartbeat = next(
        request
        for name, request in largest_requests(codec(68, 1).request, ELEMENTS)
        if name.startswith("subscribed_topic_names, all different")
    )
    served = await world.largest_turn(world.broker.dispatcher.apis[68], heartbeat, counter)
    assert 1 < served <= LIMIT


async def test_a_handler_without_slices_is_noticed(world: World) -> None:
    def describe(call: Call) -> Any:
        return call.answer(groups=[group for group in call.request.groups if group == "nobody"])

    counter = Counter()
    describe_groups = Api(15, "DescribeGroups", 6, 6, describe)
    schema = codec(15, 6).request
    for _, request in largest_requests(schema, ELEMENTS, counted_sequence(counter)):
        assert await world.largest_turn(describe_groups, request, counter) > LIMIT


def decides_in_a_thread(decide: Any) -> Any:
    """What the controller has to decide is as long as the request."""
    loop_thread = threading.get_ident()

    def checked(image: Any, command: Any, context: Any) -> Any:
        elements = getattr(command, "topics", getattr(command, "resources", ())) or ()
        if len(elements) > ELEMENTS_PER_SLICE:
            assert threading.get_ident() != loop_thread
        return decide(image, command, context)

    return checked


def test_a_request_that_fits_is_not_served_in_slices() -> None:
    assert fetch.MANY_PARTITIONS <= LIMIT
    assert produce.MANY_PARTITIONS <= LIMIT


def counter_turns(slices: Slices[Any], counter: Counter) -> StopIteration:
    """All of the slices; how they ended."""
    while True:
        try:
            run_slice(slices)
        except StopIteration as end:
            return end
        finally:
            counter.next_turn()


def not_found(group_id: str) -> Any:
    raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")


def test_partitions_of_one_topic_are_packed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = [Partition(UUID(int=1), index, (1,), (1,), 1) for index in range(ELEMENTS)]
    topic = Topic(UUID(int=1), TOPIC)
    image = SimpleNamespace(
        topics_by_id={topic.topic_id: topic}, partitions={topic.topic_id: partitions}, brokers={}
    )
    image.controller_id = 1
    image.topic = {TOPIC: topic}.get
    broker: Any = SimpleNamespace(
        image=image, node_id=1, cluster_id="x", authorizer=None, settings=SimpleNamespace(boolean=bool)
    )
    counter = Counter()
    pack_partition = metadata.pack_partition

    def counted(*arguments: Any) -> bytes:
        counter.one()
        return pack_partition(*arguments)

    monkeypatch.setattr(metadata, "pack_partition", counted)
    for topics in (None, (SimpleNamespace(name=TOPIC, topic_id=None),)):
        peer: Any = None
        request = SimpleNamespace(topics=topics, allow_auto_topic_creation=False)
        slices = metadata.MetadataApi(broker).metadata(Call(peer, codec(3, 12), 1, request))
        turns = 0
        while True:
            turns += 1
            counter.now = 0
            try:
                run_slice(slices)
            except StopIteration as end:
                assert len(end.value) > ELEMENTS
                break
            assert counter.now <= ELEMENTS_PER_SLICE
        assert turns > ELEMENTS // ELEMENTS_PER_SLICE


def test_what_is_named_again_is_answered_once() -> None:
    broker: Any = SimpleNamespace(
        image=Image(),
        groups=SimpleNamespace(classic_group=not_found, delete_group=not_found),
        settings=SimpleNamespace(),
        authorizer=None,
    )
    resource = SimpleNamespace(resource_type=2, resource_name="missing", configuration_keys=("a",))
    other = SimpleNamespace(resource_type=2, resource_name="missing", configuration_keys=("b",))
    groups, coordinators, configs = GroupsApi(broker), FindCoordinatorApi(broker), ConfigsApi(broker)
    for handler, key, version, expected, request in (
        (coordinators.find_coordinator, 10, 6, 1, {"key_type": 0, "coordinator_keys": ["a"] * 5}),
        (groups.describe_groups, 15, 6, 1, {"groups": ["a"] * 5, "include_authorized_operations": False}),
        (groups.delete_groups, 42, 2, 1, {"groups_names": ["a"] * 5}),
        (configs.describe_configs, 32, 4, 2, {"resources": [resource, other] * 5}),
    ):
        peer: Any = None
        call = CountedCall(peer, codec(key, version), 1, SimpleNamespace(**request))
        call.counter = Counter()
        with pytest.raises(StopIteration):
            run_slice(handler(call))
        assert call.counter.now == expected
