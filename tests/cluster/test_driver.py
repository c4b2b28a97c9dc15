"""The driver: group commit, order of listeners and replies, takeover, failures of the store, compaction."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millstream.cluster import driver, local_file, metadata_records, metadata_snapshots
from millstream.cluster.commands import (
    OK,
    AllocateProducerIds,
    AlterConfigs,
    BrokerLost,
    ConfigChange,
    ConfigOp,
    CreateTopics,
    DeleteTopics,
    FeatureUpdate,
    NewTopic,
    Resource,
    TopicCreated,
    UpdateFeatures,
    UpgradeType,
)
from millstream.cluster.controller import Context
from millstream.cluster.driver import Controller
from millstream.cluster.image import Delta, Image
from millstream.cluster.local_store import LocalStore
from millstream.cluster.metadata_records import (
    BrokerDown,
    BrokerUp,
    Endpoint,
    Feature,
    ProducerIds,
    UnknownMetadata,
    decode,
    encode,
)
from millstream.cluster.metadata_snapshots import KEEP_ENTRIES
from millstream.cluster.registration import Registration, command_for
from millstream.cluster.store import Entry, IdTaken, Member, MetadataStore, StoreBroken, UnsupportedLevel
from millstream.wire.errors import ErrorCode, KafkaError
from tests.support.memory_store import Hub, MemoryStore
from tests.support.waiting import let_tasks_run, wait_until_async


def registration(**more: Any) -> Registration:
    return Registration("life", (Endpoint("PLAINTEXT", "127.0.0.1", 9092),), **more)


def new_topic(name: str, partitions: int = 1) -> CreateTopics:
    return CreateTopics([NewTopic(name, partitions, 1)])


class Start:
    """Starts controllers, and closes them after the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub = Hub()
        self.started: list[Controller] = []

    async def local(self, context: Context | None = None, **more: Any) -> Controller:
        return await self.on(await LocalStore.open(self.folder), context=context, **more)

    async def shared(self, broker_id: int, **more: Any) -> tuple[Controller, MemoryStore]:
        store = MemoryStore(self.hub)
        return await self.on(store, broker_id, **more), store

    async def on(
        self,
        store: MetadataStore,
        broker_id: int = 1,
        context: Context | None = None,
        features: dict[str, tuple[int, int]] | None = None,
        **more: Any,
    ) -> Controller:
        controller = Controller(store, broker_id, context or Context(), **more)
        self.started.append(controller)
        async with asyncio.timeout(60):
            await controller.start(registration(features=features or {}))
        return controller


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    start = Start(tmp_path / "metadata")
    yield start
    for controller in start.started:
        await controller.close()


async def code_of(future: asyncio.Future[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await future
    return raised.value.code


# --- a cluster of one ---------------------------------------------------------------------------------------


async def test_the_first_start(start: Start) -> None:
    context = Context(first_features={"metadata.version": 7})
    controller = await start.local(context, features={"metadata.version": (1, 9)})
    image = controller.image
    assert controller.leading and controller.broker_epoch == 1
    assert (image.controller_id, image.controller_epoch) == (1, 1)
    assert image.features == {"metadata.version": 7}
    broker = image.brokers[1]
    assert (broker.epoch, broker.incarnation) == (1, "life")
    assert broker.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    assert image.version == 2  # the claim and the registration


async def test_a_new_life_has_its_lease_when_the_image_shows_it(start: Start) -> None:
    """Until then the image may be older than the end of the life before, and show what it led."""
    controller = await start.local()
    assert controller.holds_lease()
    controller.broker_epoch += 1  # registered anew; the entry has not come yet
    assert not controller.holds_lease()


async def test_commands_of_all_kinds(start: Start) -> None:
    controller = await start.local()
    [made] = await controller.submit(new_topic("a", 3))
    assert made.error is ErrorCode.none and controller.image.topic("a") is not None
    resource = Resource("topic", "a")
    change = AlterConfigs([(resource, [ConfigChange("retention.ms", ConfigOp.SET, "5")])])
    assert await controller.submit(change) == {resource: OK}
    assert (await controller.submit(AllocateProducerIds(1, controller.broker_epoch))).first == 0
    [again] = await controller.submit(new_topic("a"))
    assert again.error is ErrorCode.topic_already_exists
    [gone] = await controller.submit(DeleteTopics(["a"]))
    assert gone.error is ErrorCode.none and controller.image.topic("a") is None
    assert await code_of(controller.submit(AllocateProducerIds(1, 99))) is ErrorCode.stale_broker_epoch


async def test_a_restart_keeps_everything_and_is_one_entry(start: Start) -> None:
    controller = await start.local()
    await controller.submit(CreateTopics([NewTopic("a", 2000, 1, configs={"retention.ms": "1"})]))
    await controller.submit(AllocateProducerIds(1, 1))
    before = controller.image.copy()
    await controller.close()

    controller = await start.local()
    image = controller.image
    assert controller.broker_epoch == 2
    assert image.version == before.version + 2  # the claim, and everything about the return
    assert image.topics_by_id == before.topics_by_id and image.configs == before.configs
    assert image.next_producer_id == 1000
    assert all((p.leader, p.leader_epoch, p.partition_epoch) == (1, 1, 1) for p in image.all_partitions())
    await controller.close()

    store = await LocalStore.open(start.folder)
    entries = await store.read(before.version)
    _, records = decode(entries[1].payload)
    assert records[0] == BrokerDown(1, 1) and isinstance(records[1], BrokerUp) and len(records) == 2002
    await store.close()


async def test_what_a_reply_promises_is_on_disk(start: Start) -> None:
    """As after kill -9: nothing is closed, and the file as it is now is opened elsewhere."""
    controller = await start.local()
    await asyncio.gather(*(controller.submit(new_topic(f"t{n}")) for n in range(20)))
    copy = start.folder.parent / "copy"
    copy.mkdir()
    (copy / local_file.FILE_NAME).write_bytes((start.folder / local_file.FILE_NAME).read_bytes())
    after = await start.on(await LocalStore.open(copy))
    assert after.image.topics_by_name == controller.image.topics_by_name


# --- listeners ----------------------------------------------------------------------------------------------


async def test_a_listener_hears_everything_first_and_then_each_change_before_the_reply(start: Start) -> None:
    controller = await start.local()
    [made] = await controller.submit(new_topic("early", 2))
    heard: list[Delta] = []
    replies: list[int] = []

    async def listen(image: Image, delta: Delta) -> None:
        assert image is controller.image and image.version == delta.version
        await let_tasks_run()
        assert not replies
        heard.append(delta)

    await controller.listen(listen)
    assert [p.index for p in heard[0].roles(1).lead] == [0, 1] and list(heard[0].topics_created) == [
        made.topic_id
    ]
    future = controller.submit(new_topic("late"))
    future.add_done_callback(lambda _: replies.append(len(heard)))
    [late] = await future
    await let_tasks_run()
    assert replies == [2]
    assert list(heard[1].topics_created) == [late.topic_id]
    assert [p.leader_epoch for p in heard[1].roles(1).lead] == [0]


async def test_a_listener_that_fails_stops_nothing(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    controller = await start.local()
    heard = []

    def bad(image: Image, delta: Delta) -> None:
        raise RuntimeError("broken listener")

    await controller.listen(bad)
    await controller.listen(lambda image, delta: heard.append(delta.version))
    await controller.submit(new_topic("a"))
    assert len(heard) == 2 and "broken listener" in caplog.text


# --- group commit -------------------------------------------------------------------------------------------


async def test_commands_that_arrive_during_an_append_share_the_next_entry(start: Start) -> None:
    controller, store = await start.shared(1)
    store.gate.clear()
    version, appends = controller.image.version, len(store.appends)
    first = controller.submit(new_topic("first"))
    await let_tasks_run()
    later = [controller.submit(new_topic(f"t{n}")) for n in range(50)]
    twin = controller.submit(new_topic("t7"))
    deleted = controller.submit(DeleteTopics(["t8"]))
    changed = controller.submit(
        AlterConfigs([(Resource("topic", "t9"), [ConfigChange("x", ConfigOp.SET, "1")])])
    )
    await let_tasks_run()
    assert not first.done() and controller.image.version == version
    store.gate.set()
    await first
    replies = [reply for future in later for reply in await future]
    assert all(reply.error is ErrorCode.none for reply in replies)
    assert [reply.error for reply in await twin] == [ErrorCode.topic_already_exists]
    assert [reply.error for reply in await deleted] == [ErrorCode.none]
    assert (await changed)[Resource("topic", "t9")] == OK
    assert len(store.appends) == appends + 2 and controller.image.version == version + 2
    assert "t7" in controller.image.topics_by_name and "t8" not in controller.image.topics_by_name


async def test_a_command_without_records_makes_no_entry(start: Start) -> None:
    controller = await start.local()
    version = controller.image.version
    replies = await asyncio.gather(*(controller.submit(DeleteTopics(["nothing"])) for _ in range(3)))
    assert [r.error for reply in replies for r in reply] == [ErrorCode.unknown_topic_or_partition] * 3
    assert controller.image.version == version


async def test_whoever_has_given_up_is_not_served(start: Start) -> None:
    controller, store = await start.shared(1)
    store.gate.clear()
    first = controller.submit(new_topic("first"))
    await let_tasks_run()
    second, third = controller.submit(new_topic("second")), controller.submit(new_topic("third"))
    second.cancel()
    store.gate.set()
    await asyncio.gather(first, third)
    assert sorted(controller.image.topics_by_name) == ["first", "third"]


async def test_an_entry_has_a_limit(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MAX_ENTRY_BYTES", 1500)
    controller, store = await start.shared(1)
    store.gate.clear()
    first = controller.submit(new_topic("first"))
    await let_tasks_run()
    together = [controller.submit(new_topic(f"t{n}")) for n in range(20)]  # too large as one entry
    # Too large by itself.
    alone = controller.submit(CreateTopics([NewTopic(f"x{n}", 1, 1) for n in range(100)]))
    more = controller.submit(new_topic("more"))
    store.gate.set()
    await first
    for future in together:
        assert [reply.error for reply in await future] == [ErrorCode.none]
    assert await code_of(alone) is ErrorCode.policy_violation
    assert (await more)[0].error is ErrorCode.none
    assert len(controller.image.topics_by_name) == 22
    assert all(len(payload) <= 1500 for payload in store.appends)


async def test_news_of_a_broker_may_fill_several_entries(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes more partitions than one entry can hold. The broker comes last: a new controller that finds
    the work half done begins it again."""
    context = Context(min_insync_replicas=1)
    one, store = await start.shared(1, context=context)
    two, lost = await start.shared(2, context=context)
    two.stay_away()
    topics = [NewTopic(f"t{n}", assignments=[(0, [2, 1])]) for n in range(50)]
    await one.submit(CreateTopics(topics))
    monkeypatch.setattr(driver, "MAX_ENTRY_BYTES", 1000)
    monkeypatch.setattr(driver, "MAX_ENTRY_RECORDS", 6)
    before = len(store.appends)
    lost.expire()
    await wait_until_async(lambda: 2 in one.image.brokers_down)
    entries = [decode(payload)[1] for payload in store.appends[before:]]
    assert [len(records) for records in entries] == [6] * 8 + [3]
    assert isinstance(entries[-1][-1], BrokerDown)
    assert {partition.leader for partition in one.image.all_partitions()} == {1}


async def test_nothing_follows_the_entry_of_another_between_two_parts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind another controller's claim, a part of the older epoch would make the log unreadable for all."""
    context = Context(min_insync_replicas=1)
    one, store = await start.shared(1, context=context)
    two, lost = await start.shared(2, context=context)
    two.stay_away()
    await one.submit(CreateTopics([NewTopic(f"t{n}", assignments=[(0, [2, 1])]) for n in range(50)]))
    monkeypatch.setattr(driver, "MAX_ENTRY_BYTES", 1000)
    monkeypatch.setattr(driver, "MAX_ENTRY_RECORDS", 6)
    hub, epoch, append = store.hub, one.image.controller_epoch, store.append
    between: list[int] = []

    async def append_and_be_overtaken(at: int, payload: bytes) -> None:
        await append(at, payload)
        if not between:
            between.append(at + 1)
            hub.entries[at + 1] = Entry(at + 1, "another", encode([ProducerIds(10**6)], epoch))
            hub.version = at + 1
            hub.wake()

    monkeypatch.setattr(store, "append", append_and_be_overtaken)
    lost.expire()
    await wait_until_async(lambda: 2 in one.image.brokers_down)
    later = [entry for version, entry in hub.entries.items() if version > between[0]]
    assert later and all(decode(entry.payload)[0] > epoch for entry in later)
    assert {partition.leader for partition in one.image.all_partitions()} == {1}


async def test_a_registration_that_cannot_be_read_is_ignored(start: Start) -> None:
    """A newer version wrote it. The broker is not in the cluster, nor is its earlier life, and all others
    go on."""
    one, store = await start.shared(1)
    two, _ = await start.shared(2)
    two.stay_away()
    hub = store.hub
    hub.members[2] = Member(2, hub.last_epoch + 1, b'{"v": 2}')
    hub.members[3] = Member(3, hub.last_epoch + 2, b"what is this")
    hub.wake()
    await wait_until_async(lambda: set(one.image.brokers) == {1})
    assert (await one.submit(new_topic("a")))[0].error is ErrorCode.none
    assert one.leading and not one._failed.done()


async def test_a_refused_broker_is_let_in_when_the_level_is_lowered(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Its registration stays as it is. The life before it ends although the next one is refused."""
    levels = {"x": (0, 3)}
    context = Context(supported_features=levels)
    one, store = await start.shared(1, context=context, features=levels)
    two, _ = await start.shared(2, features=levels)
    two.stay_away()
    await one.submit(UpdateFeatures([FeatureUpdate("x", 3, UpgradeType.UPGRADE)]))
    older = registration(features={"x": (0, 2)})
    store.hub.members[2] = Member(2, two.broker_epoch + 100, older.encode())
    store.hub.wake()
    await wait_until_async(lambda: set(one.image.brokers) == {1})
    refusal = "broker 2 is not let in: the cluster uses x level 3, and broker 2 supports 0 to 2"
    await wait_until_async(lambda: refusal in caplog.text)
    await one.submit(new_topic("a"))
    await one.submit(UpdateFeatures([FeatureUpdate("x", 2, UpgradeType.SAFE_DOWNGRADE)]))
    await wait_until_async(lambda: 2 in one.image.brokers)
    assert caplog.text.count("is not let in") == 1


async def test_a_level_that_changes_before_the_members_are_known_declares_nobody_dead(start: Start) -> None:
    """Neither those of an earlier time as the leader, nor none at all, are the members."""
    one, _ = await start.shared(1)
    two, _ = await start.shared(2)
    await wait_until_async(lambda: 2 in one.image.brokers)
    watcher = one._watcher
    watcher._members = {1: start.hub.members[1]}
    watcher.begin()
    watcher.levels_changed()
    looking = asyncio.create_task(watcher.look_again())
    await let_tasks_run()
    looking.cancel()
    await one.submit(new_topic("a"))
    assert set(one.image.brokers) == {1, 2} and one.image.brokers[2].epoch == two.broker_epoch


async def test_a_broker_that_cannot_follow_a_new_level_ends(start: Start) -> None:
    """It was away when an administrator raised it, or it would have been asked."""
    levels = {"x": (0, 3)}
    one, _ = await start.shared(1, context=Context(supported_features=levels), features=levels)
    two, second = await start.shared(2, features={"x": (0, 2)})
    second.barred = True
    second.expire()
    await wait_until_async(lambda: 2 not in one.image.brokers)
    await one.submit(UpdateFeatures([FeatureUpdate("x", 3, UpgradeType.UPGRADE)]))
    async with asyncio.timeout(60):
        problem = await two.failed()
    assert isinstance(problem, UnsupportedLevel)
    assert str(problem).startswith("the cluster uses x level 3, and broker 2 supports 0 to 2")


async def test_a_broker_whose_id_is_anothers_now_ends(start: Start) -> None:
    one, _ = await start.shared(1)
    two, store = await start.shared(2)
    store.hub.owners[2] = "somebody else"
    await one.submit(BrokerLost(2, two.broker_epoch))
    async with asyncio.timeout(60):
        assert isinstance(await two.failed(), IdTaken)


async def test_a_bug_in_a_decision_fails_that_command_only(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    controller = await start.local()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    controller.context = Context(new_topic_id=broken)  # type: ignore[arg-type]
    failing = controller.submit(new_topic("a"))
    good = controller.submit(AllocateProducerIds(1, 1))
    assert await code_of(failing) is ErrorCode.unknown_server_error
    assert (await good).count == 1000
    assert "a bug" in caplog.text


# --- when the store fails -----------------------------------------------------------------------------------


async def test_a_full_disk_fails_commands_until_there_is_room(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = await start.local()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_file.os, "pwrite", full)
    with pytest.raises(KafkaError, match="No space left on device") as raised:
        await controller.submit(new_topic("a"))
    assert raised.value.code is ErrorCode.kafka_storage_error
    assert controller.leading and not controller.image.topics_by_name
    monkeypatch.undo()
    assert (await controller.submit(new_topic("a")))[0].error is ErrorCode.none


async def test_a_full_disk_at_start_is_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await start.local()).close()
    store = await LocalStore.open(start.folder)
    real, room = local_file.os.pwrite, [1]

    def full(*args: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        return real(*args)

    monkeypatch.setattr(local_file.os, "pwrite", full)
    with pytest.raises(Exception, match="No space left on device"):
        await start.on(store)


async def test_a_sync_that_fails_ends_the_controller(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = await start.local()

    def failing(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(local_file.os, "fdatasync", failing)
    assert await code_of(controller.submit(new_topic("a"))) is ErrorCode.not_controller
    async with asyncio.timeout(60):
        assert isinstance(await controller.failed(), StoreBroken)
    assert not controller.leading
    assert await code_of(controller.submit(new_topic("b"))) is ErrorCode.not_controller


async def test_a_snapshot_that_may_vanish_ends_the_controller(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = await start.local(snapshot_entries=5)

    def failing(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(local_file, "_sync_folder", failing)
    # The one that brings the snapshot on may hear of its failure.
    submitted = [controller.submit(new_topic(f"topic-{number}")) for number in range(5)]
    await asyncio.gather(*submitted, return_exceptions=True)
    for number in range(5):
        await asyncio.gather(controller.submit(new_topic(f"later-{number}")), return_exceptions=True)
    async with asyncio.timeout(60):
        assert isinstance(await controller.failed(), StoreBroken)
    assert await code_of(controller.submit(new_topic("late"))) is ErrorCode.not_controller


@pytest.mark.parametrize(
    "payload",
    [
        b'{"v":1,"c":1,"r":[["teleporter",1]]}',
        b'{"v":9,"c":1,"r":[]}',
        encode([Feature("f", 1)], controller_epoch=7),
        encode([ProducerIds(1)], controller_epoch=0),
    ],
)
async def test_a_log_that_cannot_be_understood(start: Start, payload: bytes) -> None:
    controller, store = await start.shared(1)
    await store.append(controller.image.version + 1, payload)
    async with asyncio.timeout(60):
        assert isinstance(await controller.failed(), UnknownMetadata)
        with pytest.raises(UnknownMetadata):
            await controller.waits_for(controller.image.version + 1)
    with pytest.raises(UnknownMetadata):
        await start.on(MemoryStore(start.hub), 2)


async def test_closing_answers_what_is_pending(start: Start) -> None:
    controller, store = await start.shared(1)
    store.gate.clear()
    futures = [controller.submit(new_topic("a"))]
    await let_tasks_run()
    futures += [controller.submit(new_topic("b")), controller.submit(new_topic("c"))]
    await controller.close()
    assert [await code_of(future) for future in futures] == [ErrorCode.not_controller] * 3
    assert await code_of(controller.submit(new_topic("d"))) is ErrorCode.not_controller


# --- several processes --------------------------------------------------------------------------------------


async def test_others_follow_and_do_not_decide(start: Start) -> None:
    leader, _ = await start.shared(1)
    other, _ = await start.shared(2)
    assert leader.leading and not other.leading
    assert sorted(leader.image.brokers) == [1, 2]
    assert await code_of(other.submit(new_topic("a"))) is ErrorCode.not_controller
    await leader.submit(new_topic("a", 4))
    await other.waits_for(leader.image.version)
    assert other.image == leader.image
    assert {p.leader for p in other.image.all_partitions()} == {1, 2}


async def test_another_takes_over(start: Start) -> None:
    one, first = await start.shared(1)
    two, _ = await start.shared(2)
    await one.submit(CreateTopics([NewTopic("a", 2, 2)]))
    first.barred = True
    first.expire()
    await wait_until_async(lambda: two.leading)
    await wait_until_async(lambda: not one.leading)  # it saw the claim in the log
    assert await code_of(one.submit(new_topic("b"))) is ErrorCode.not_controller
    await wait_until_async(lambda: 1 in two.image.brokers_down)
    assert [p.leader for p in two.image.all_partitions()] == [2, 2]
    assert (await two.submit(new_topic("b")))[0].error is ErrorCode.none
    assert two.image.controller_epoch == 2


async def test_a_broker_that_was_declared_dead_registers_again(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = await start.shared(1)
    two, second = await start.shared(2)
    await one.submit(CreateTopics([NewTopic("a", 2, 2)]))
    first_life = two.broker_epoch
    second.expire()  # its session is over
    await wait_until_async(lambda: two.broker_epoch > first_life)
    await wait_until_async(lambda: 2 in one.image.brokers and one.image.brokers[2].epoch > first_life)
    second_life = two.broker_epoch
    await one.submit(BrokerLost(2, second_life))  # the controller's own verdict; the session lasts
    await wait_until_async(lambda: two.broker_epoch > second_life)
    await wait_until_async(lambda: 2 in one.image.brokers and one.image.brokers[2].epoch > second_life)
    assert one.leading and "broker 2 registered again" in caplog.text
    assert [p.leader for p in one.image.all_partitions()] == [1, 1]


async def test_lost_data_is_reported_until_the_log_knows_of_it(start: Start) -> None:
    """Its first registration ends before the controller has heard of it; the second says the same."""
    start.hub.candidates.append("somebody who does nothing")
    two = Controller(MemoryStore(start.hub), 2, Context())
    start.started.append(two)
    starting = asyncio.create_task(two.start(registration(lost_data=True)))
    await wait_until_async(lambda: 2 in start.hub.members and bool(two._tasks))
    first = start.hub.members[2].epoch
    two._keeper._fenced.set()  # as if its session had been lost
    await wait_until_async(lambda: start.hub.members[2].epoch > first)
    assert command_for(start.hub.members[2]).lost_data
    starting.cancel()


async def test_an_epoch_that_is_known_after_the_image_shows_it(start: Start) -> None:
    """The entry with a broker's new life may be read before the answer to the registration has come."""
    one, _ = await start.shared(1)
    waiting = asyncio.create_task(one._until(lambda: one.broker_epoch == 7))
    await let_tasks_run()

    async def register(broker_id: int, data: bytes) -> int:
        return 7

    one._store.register = register  # type: ignore[method-assign]
    one._keeper._fenced.set()
    async with asyncio.timeout(60):
        await waiting


async def test_a_snapshot_that_is_written_during_the_start(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the older one needed is gone by the time it is read: the newer one is loaded."""
    one, first = await start.shared(1)
    await one.submit(new_topic("a"))
    store = MemoryStore(start.hub)
    read = store.snapshot
    calls = 0

    async def snapshot() -> tuple[int, list[bytes]]:
        nonlocal calls
        calls += 1
        found = await read()
        if calls == 1:
            await first.compact(
                one.image.version, list(metadata_records.encode_chunks(one.image.records())), 0
            )
        return found

    monkeypatch.setattr(store, "snapshot", snapshot)
    two = await start.on(store, 2)
    assert calls == 2 and two.image.topic("a") is not None


async def test_an_old_controller_cannot_write(start: Start) -> None:
    """Its append is under way when the other claims the log: it loses the position, and says so."""
    one, first = await start.shared(1)
    two, _ = await start.shared(2)
    first.gate.clear()
    late = one.submit(new_topic("late"))
    await let_tasks_run()
    first.barred = True
    first.expire()
    await wait_until_async(lambda: two.leading and 1 in two.image.brokers_down)
    first.gate.set()
    assert await code_of(late) is ErrorCode.not_controller
    assert not one.leading
    await one.waits_for(two.image.version)
    assert one.image == two.image and not two.image.topics_by_name


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_lost_during_an_append(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    """Whether the entry is there is unknown: whoever asked is told to ask again, and the log says what
    happened."""
    monkeypatch.setattr(driver, "RETRY_SECONDS", 0.01)
    controller, store = await start.shared(1)
    store.fail_next = when
    assert await code_of(controller.submit(new_topic("a"))) is ErrorCode.not_controller
    await wait_until_async(lambda: controller.leading)
    assert controller.image.controller_epoch == 2
    [reply] = await controller.submit(new_topic("a"))
    expected = ErrorCode.topic_already_exists if when == "after" else ErrorCode.none
    assert reply.error is expected and list(controller.image.topics_by_name) == ["a"]


async def test_a_broker_drains(start: Start) -> None:
    controller, _ = await start.shared(1)
    await start.shared(2)
    await controller.submit(CreateTopics([NewTopic("a", 2, 2)]))
    await controller.update(registration(draining=True))
    await wait_until_async(lambda: controller.image.brokers[1].draining)
    assert [p.leader for p in controller.image.all_partitions()] == [2, 2]


# --- compaction ---------------------------------------------------------------------------------------------


async def test_the_log_is_compacted(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    controller = await start.local(snapshot_entries=50)
    for number in range(KEEP_ENTRIES + 60):
        await controller.submit(new_topic(f"t{number}"))
    await controller.close()
    assert "metadata compacted" in caplog.text
    store = await LocalStore.open(start.folder)
    version, chunks = await store.snapshot()
    assert version >= 150 and chunks
    oldest = version - KEEP_ENTRIES + 1
    assert (await store.read(oldest - 1, 1))[0].version == oldest
    await store.close()
    again = await start.local()
    assert again.image.topics_by_id == controller.image.topics_by_id


async def test_many_records_are_compacted_early(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what a start has to read stays in proportion to what there is."""
    monkeypatch.setattr(metadata_snapshots, "SNAPSHOT_RECORDS", 100)
    controller = await start.local()
    for number in range(30):
        [reply] = await controller.submit(new_topic("again", 20))
        assert reply.error is ErrorCode.none, number
        await controller.submit(DeleteTopics(["again"]))
    await controller.close()
    store = await LocalStore.open(start.folder)
    version, _ = await store.snapshot()
    assert version > 40
    await store.close()


async def test_a_compaction_that_fails_is_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    controller = await start.local(snapshot_entries=5)

    def failing(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_file.os, "rename", failing)
    for number in range(7):
        await controller.submit(new_topic(f"t{number}"))
    await wait_until_async(lambda: "metadata not compacted" in caplog.text)
    monkeypatch.undo()
    for number in range(7):
        await controller.submit(new_topic(f"u{number}"))
    await controller.close()
    store = await LocalStore.open(start.folder)
    assert (await store.snapshot())[0] > 0
    await store.close()


async def test_one_who_fell_behind_a_snapshot_catches_up(start: Start) -> None:
    leader, store = await start.shared(1)
    other, _ = await start.shared(2)
    free = asyncio.Event()
    heard: list[Delta] = []

    async def slow(image: Image, delta: Delta) -> None:
        if "t0" in image.topics_by_name:
            await free.wait()
        heard.append(delta)

    await other.listen(slow)
    made: list[TopicCreated] = []
    for number in range(5):
        made += await leader.submit(new_topic(f"t{number}"))
        await leader.submit(DeleteTopics(["t1"]))
    records = leader.image.records()
    await store.compact(leader.image.version, [encode(records[:3]), encode(records[3:])], keep=0)
    free.set()
    await other.waits_for(leader.image.version)
    assert other.image == leader.image
    await leader.submit(new_topic("last"))
    await other.waits_for(leader.image.version)
    assert other.image == leader.image
    announced = {topic_id for delta in heard for topic_id in delta.topics_created}
    assert announced == set(leader.image.topics_by_id)


# --- registration -------------------------------------------------------------------------------------------


def test_what_a_broker_says_of_itself() -> None:
    sent = registration(rack="r", features={"f": (1, 2)}, draining=True, lost_data=True)
    command = command_for(Member(3, 9, sent.encode()))
    assert (command.broker_id, command.epoch, command.incarnation) == (3, 9, "life")
    assert (command.endpoints, command.rack, command.features) == (sent.endpoints, "r", {"f": (1, 2)})
    assert command.draining and command.lost_data


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"v": 2}', b'{"v": 1}', b"\xff"])
def test_what_a_broker_says_and_nobody_understands(data: bytes) -> None:
    with pytest.raises(UnknownMetadata, match="broker 3"):
        command_for(Member(3, 9, data))
