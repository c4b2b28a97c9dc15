"""The store in a real ZooKeeper keeps the contract, also if connections break between request and answer."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest

from millstream.cluster.store import Compacted, Conflict, IdTaken, MetadataStore, StoreError, Unavailable
from millstream.cluster.zookeeper import election, layout
from millstream.cluster.zookeeper import store as store_module
from millstream.cluster.zookeeper.client import Client
from millstream.cluster.zookeeper.connect_string import ConnectString, parse_connect_string
from millstream.cluster.zookeeper.protocol import Part, PartFailed
from millstream.cluster.zookeeper.store import ZooKeeperStore
from tests.cluster.store_contract import Opener, SharedStoreContract, append_all, pairs, take
from tests.support.waiting import let_tasks_run, wait_until_async
from tests.support.zookeeper import RunningZooKeeper

from .cutting_proxy import CuttingProxy


class ZooKeeperOpener(Opener):
    """Every store has a session and a data folder of its own, as every broker has."""

    def __init__(self, connect: str, session_timeout: float = 6.0) -> None:
        super().__init__()
        self.connect = parse_connect_string(connect)
        self.session_timeout = session_timeout
        self.proxies: dict[ZooKeeperStore, CuttingProxy] = {}

    async def make(self, directory_id: str | None = None, inode: str = "here") -> ZooKeeperStore:
        client = Client(self.connect, session_timeout=self.session_timeout, patience=60)
        await client.start(60)
        return await ZooKeeperStore.open(client, directory_id or uuid.uuid4().hex, inode)


class TestZooKeeperStore(SharedStoreContract):
    @pytest.fixture
    async def opener(self, zookeeper: RunningZooKeeper) -> Opener:
        return ZooKeeperOpener(zookeeper.chroot())


class TestZooKeeperStoreWithCuts(SharedStoreContract):
    """The same through a proxy that cuts connections: their last request was sent and not answered."""

    @pytest.fixture
    async def opener(self, zookeeper: RunningZooKeeper) -> AsyncIterator[Opener]:
        async with CuttingProxy(zookeeper.port, seed=20) as proxy:
            chroot = parse_connect_string(zookeeper.chroot()).chroot
            yield ZooKeeperOpener(f"127.0.0.1:{proxy.port}{chroot}")
            assert proxy.cuts > 0


@pytest.fixture
async def opener(zookeeper: RunningZooKeeper) -> AsyncIterator[ZooKeeperOpener]:
    opener = ZooKeeperOpener(zookeeper.chroot())
    yield opener
    await opener.close_all()


async def open_store(
    opener: ZooKeeperOpener, directory_id: str | None = None, inode: str = "here"
) -> ZooKeeperStore:
    store = await opener.make(directory_id, inode)
    opener.opened.append(store)
    return store


async def test_a_position_that_was_compacted_cannot_be_written_again(opener: ZooKeeperOpener) -> None:
    """A controller that slept through a compaction finds no node at its position, and still may not write."""
    sleeper, writer = await open_store(opener), await open_store(opener)
    await append_all(sleeper, [b"1", b"2"])
    await append_all(writer, [b"3", b"4", b"5", b"6"], after=2)
    await writer.compact(6, [b"all"], keep=0)
    with pytest.raises(Conflict):
        await sleeper.append(3, b"late")
    with pytest.raises(Compacted):
        await sleeper.read(2)
    await sleeper.append(7, b"7")


async def test_a_reader_of_a_snapshot_that_is_replaced_gets_the_new_one(opener: ZooKeeperOpener) -> None:
    store = await open_store(opener)
    await append_all(store, [b"1", b"2", b"3"])
    await store.compact(1, [b"a" * 5000, b"b"], keep=0)
    assert await store.snapshot() == (1, [b"a" * 5000, b"b"])
    other = await open_store(opener)
    for version in (2, 3):
        reading = [asyncio.create_task(other.snapshot()) for _ in range(5)]
        await store.compact(version, [b"%d" % version], keep=0)
        for found in await asyncio.gather(*reading):
            assert found in ((version - 1, await_chunks(version - 1)), (version, [b"%d" % version]))


def await_chunks(version: int) -> list[bytes]:
    return [b"a" * 5000, b"b"] if version == 1 else [b"%d" % version]


async def test_chunks_and_entries_larger_than_a_node(opener: ZooKeeperOpener) -> None:
    store = await open_store(opener)
    noise = uuid.uuid4().bytes * 150_000  # 2.4 MB, which deflates well
    random_part = b"".join(uuid.uuid4().bytes for _ in range(125_000))  # 2 MB, which does not
    await store.append(1, noise)
    assert (await store.read(0))[0].payload == noise
    with pytest.raises(StoreError, match="too large"):
        await store.append(2, random_part)
    await store.compact(1, [noise, random_part, b""], keep=0)
    assert await store.snapshot() == (1, [noise, random_part, b""])


async def test_old_chunks_are_deleted(opener: ZooKeeperOpener) -> None:
    store = await open_store(opener)
    await append_all(store, [b"1", b"2"])
    await store.compact(1, [b"x", b"y", b"z"], keep=0)
    await store.compact(2, [b"sum"], keep=0)
    client = store._client
    assert len(await client.children(layout.SNAPSHOT)) == 1
    assert await client.children(layout.LOG) == []


async def test_a_broker_takes_over_what_its_earlier_life_left(opener: ZooKeeperOpener) -> None:
    """kill -9 and a fast restart: ZooKeeper still keeps the old session, whose node is in the way."""
    before = await open_store(opener, "folder")
    first = await before.register(1, b"before")
    now = await open_store(opener, "folder")
    assert await now.register(1, b"now") > first
    members = await anext(now.members().__aiter__())
    assert members[1].data == b"now"


async def test_a_copy_of_a_folder_does_not_take_its_id(
    opener: ZooKeeperOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both folders have one id. The second waits as long as a dead broker's session could last, or less in
    this test: the first one's must not end on a busy machine."""
    monkeypatch.setattr(store_module, "LEFTOVER_SESSIONS", 0.0)
    opener.session_timeout = 60.0
    first, copy = await open_store(opener, "folder"), await open_store(opener, "folder", "there")
    epoch = await first.register(1, b"first")
    with pytest.raises(IdTaken, match="one is a copy of the other"):
        await copy.register(1, b"copy")
    members = await anext(first.members().__aiter__())
    assert (members[1].epoch, members[1].data) == (epoch, b"first")


async def test_a_folder_that_has_moved_waits_for_the_old_session(opener: ZooKeeperOpener) -> None:
    opener.session_timeout = 60.0
    before, now = await open_store(opener, "folder"), await open_store(opener, "folder", "there")
    first = await before.register(1, b"before")
    registering = asyncio.create_task(now.register(1, b"now"))
    await let_tasks_run()
    assert not registering.done()
    await before.close()
    assert await registering > first


async def test_whoever_registers_again_does_not_take_the_id_from_its_new_owner(
    opener: ZooKeeperOpener,
) -> None:
    """The session of the first had ended, and another broker came."""
    first, second = await open_store(opener), await open_store(opener)
    await first.register(1, b"first")
    await first._client.delete(f"{layout.BROKERS}/1")
    epoch = await second.register(1, b"second")
    with pytest.raises(Unavailable, match="another process"):
        await first.update(b"draining")
    with pytest.raises(IdTaken, match="another running broker"):
        await first.register(1, b"first")
    members = await anext(first.members().__aiter__())
    assert (members[1].epoch, members[1].data) == (epoch, b"second")


async def test_a_broker_that_led_before_it_was_killed_leads_again(opener: ZooKeeperOpener) -> None:
    """At once, though ZooKeeper still keeps the old session with its /controller."""
    before = await open_store(opener, "folder")
    await before.register(1, b"before")
    await before.campaign()
    now = await open_store(opener, "folder")
    await now.register(1, b"now")
    await now.campaign()
    node = await now._client.get(layout.CONTROLLER)
    assert node.stat.ephemeral_owner == (await now._client.session()).id


async def test_a_late_deposition_does_not_hit_a_successor(
    opener: ZooKeeperOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one of the same broker: the election in between is noticed."""
    leader, accuser = await open_store(opener), await open_store(opener)
    epoch = await leader.register(1, b"1")
    await leader.campaign()
    client = accuser._client
    multi = client.multi

    async def late(parts: Sequence[Part]) -> PartFailed | None:
        await election.depose(leader._client, 1, epoch)
        await leader.campaign()
        return await multi(parts)

    monkeypatch.setattr(client, "multi", late)
    await accuser.depose(1, epoch)
    assert await client.exists(layout.CONTROLLER) is not None


async def test_two_writers_and_broken_connections_write_one_log(zookeeper: RunningZooKeeper) -> None:
    chroot = parse_connect_string(zookeeper.chroot()).chroot
    async with (
        CuttingProxy(zookeeper.port, seed=1) as one,
        CuttingProxy(zookeeper.port, seed=2) as two,
    ):
        openers = [ZooKeeperOpener(f"127.0.0.1:{proxy.port}{chroot}") for proxy in (one, two)]
        stores = [await opener() for opener in openers]
        acknowledged: dict[int, bytes] = {}

        async def write(name: bytes, store: MetadataStore) -> None:
            version = 0
            for number in range(60):
                payload = name + b"%d" % number
                while True:
                    try:
                        await store.append(version + 1, payload)
                    except Conflict:
                        version += 1
                        continue
                    version += 1
                    assert version not in acknowledged
                    acknowledged[version] = payload
                    break

        readers = [asyncio.create_task(take(store.tail(0), 120)) for store in stores]
        await asyncio.gather(*(write(b"%d-" % n, store) for n, store in enumerate(stores)))
        for reader in readers:
            assert pairs(await reader) == sorted(acknowledged.items())
        assert one.cuts + two.cuts > 0
        for opener in openers:
            await opener.close_all()


async def test_a_lost_session_is_noticed_and_the_store_goes_on(zookeeper: RunningZooKeeper) -> None:
    chroot = parse_connect_string(zookeeper.chroot()).chroot
    async with CuttingProxy(zookeeper.port) as proxy:
        away = await open_store(ZooKeeperOpener(f"127.0.0.1:{proxy.port}{chroot}", 1.0))
        near = await open_store(ZooKeeperOpener(f"127.0.0.1:{zookeeper.port}{chroot}"))
        first = await away.register(1, b"away")
        await near.register(2, b"near")
        await away.campaign()
        lost = asyncio.create_task(away.lost())
        tail = asyncio.create_task(take(away.tail(0), 2))
        members = near.members()
        assert sorted(await anext(members)) == [1, 2]  # type: ignore[arg-type]
        takes_over = asyncio.create_task(near.campaign())
        proxy.refusing = True
        proxy.cut()
        await takes_over
        assert sorted(await anext(members)) == [2]  # type: ignore[arg-type]
        await members.aclose()  # type: ignore[attr-defined]
        await wait_until_async(lambda: away.lease() < time.monotonic())
        assert not lost.done()  # only ZooKeeper can say that a session is gone
        await near.append(1, b"1")
        proxy.refusing = False
        await lost
        assert away.lease() < time.monotonic()
        assert await away.register(1, b"again") > first
        assert away.lease() > time.monotonic()
        await near.append(2, b"2")
        assert pairs(await tail) == [(1, b"1"), (2, b"2")]
        await away.close()
        await near.close()


async def test_without_zookeeper_requests_fail_after_the_patience(zookeeper: RunningZooKeeper) -> None:
    connect = parse_connect_string(zookeeper.chroot())
    async with CuttingProxy(zookeeper.port) as proxy:
        client = Client(
            ConnectString((("127.0.0.1", proxy.port),), connect.chroot), session_timeout=6, patience=0.2
        )
        await client.start(60)
        store = await ZooKeeperStore.open(client, "folder")
        await store.append(1, b"1")
        proxy.refusing = True
        proxy.cut()
        with pytest.raises(Unavailable):
            await store.append(2, b"2")
        with pytest.raises(Unavailable):
            await store.read(0)
        proxy.refusing = False
        await wait_until_async(lambda: client.is_connected)
        await store.close()


@pytest.mark.parametrize("data", [b"", b"\x09", b"x" * 30, b"\x01\x01" + bytes(24) + b"not deflated"])
async def test_an_entry_of_a_stranger_is_an_error(opener: ZooKeeperOpener, data: bytes) -> None:
    store = await open_store(opener)
    await store._client.create(layout.entry_path(1), data)
    with pytest.raises(StoreError):
        await store.read(0)
