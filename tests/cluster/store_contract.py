"""What every metadata store promises, as tests. A store's own test module subclasses these and says how to
open it.

`StoreContract` is for all stores. `SharedStoreContract` adds what holds between processes, for stores that
have more than one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from millstream.cluster.store import (
    Compacted,
    Conflict,
    Entry,
    IdTaken,
    MetadataStore,
    StoreClosed,
    StoreError,
)
from tests.support.waiting import let_tasks_run


class Opener:
    """Opens stores on one and the same log, and closes them after the test."""

    def __init__(self) -> None:
        self.opened: list[MetadataStore] = []

    async def make(self) -> MetadataStore:
        raise AssertionError("each store says how it is opened")

    async def __call__(self) -> MetadataStore:
        store = await self.make()
        self.opened.append(store)
        return store

    async def close_all(self) -> None:
        for store in self.opened:
            await store.close()


async def take(source: Any, count: int) -> list[Any]:
    found: list[Any] = []
    if count:
        async with aclosing(source) as items:
            async for item in items:
                found.append(item)
                if len(found) == count:
                    break
    return found


async def append_all(store: MetadataStore, payloads: list[bytes], after: int = 0) -> None:
    for version, payload in enumerate(payloads, after + 1):
        await store.append(version, payload)


def pairs(entries: list[Entry]) -> list[tuple[int, bytes]]:
    return [(entry.version, entry.payload) for entry in entries]


class StoreContract:
    @pytest.fixture
    def opener(self, tmp_path: Any) -> Opener:
        raise AssertionError("each store says how it is opened")

    @pytest.fixture
    async def open_store(self, opener: Opener) -> AsyncIterator[Opener]:
        yield opener
        await opener.close_all()

    @pytest.fixture
    async def store(self, open_store: Opener) -> MetadataStore:
        return await open_store()

    # the log

    async def test_an_empty_log(self, store: MetadataStore) -> None:
        assert await store.snapshot() == (0, [])
        assert await store.read(0) == []

    async def test_what_is_appended_can_be_read(self, store: MetadataStore) -> None:
        await append_all(store, [b"one", b"", b"three" * 1000])
        assert pairs(await store.read(0)) == [(1, b"one"), (2, b""), (3, b"three" * 1000)]
        assert pairs(await store.read(2)) == [(3, b"three" * 1000)]
        assert await store.read(3) == []
        assert pairs(await store.read(0, limit=2)) == [(1, b"one"), (2, b"")]

    async def test_entries_name_their_writer(self, store: MetadataStore) -> None:
        await append_all(store, [b"one", b"two"])
        first, second = await store.read(0)
        assert first.writer == second.writer != ""

    @pytest.mark.parametrize("at", [0, 1, 2, 4, 9, -1])
    async def test_only_the_next_position_can_be_written(self, store: MetadataStore, at: int) -> None:
        await append_all(store, [b"one", b"two"])
        with pytest.raises(Conflict):
            await store.append(at, b"other")
        assert pairs(await store.read(0)) == [(1, b"one"), (2, b"two")]
        await store.append(3, b"three")

    async def test_of_two_appends_at_one_position_one_wins(self, store: MetadataStore) -> None:
        results = await asyncio.gather(
            *(store.append(1, str(n).encode()) for n in range(5)), return_exceptions=True
        )
        assert sorted(map(type, results), key=str) == sorted([type(None), *[Conflict] * 4], key=str)
        winner = results.index(None)
        assert pairs(await store.read(0)) == [(1, str(winner).encode())]

    async def test_an_append_whose_caller_gave_up_is_whole_or_not_there(self, store: MetadataStore) -> None:
        append = asyncio.create_task(store.append(1, b"one"))
        await asyncio.sleep(0)
        append.cancel()
        await asyncio.gather(append, return_exceptions=True)
        try:
            await store.append(1, b"other")
            expected = b"other"
        except Conflict:
            expected = b"one"
        assert pairs(await store.read(0)) == [(1, expected)]
        assert pairs(await take(store.tail(0), 1)) == [(1, expected)]

    async def test_the_tail_has_everything_once_in_order(self, store: MetadataStore) -> None:
        await append_all(store, [b"1", b"2"])
        readers = [asyncio.create_task(take(store.tail(after), 6 - after)) for after in (0, 1, 2, 5)]
        await asyncio.sleep(0)
        await append_all(store, [b"3", b"4"], after=2)
        await let_tasks_run()
        await append_all(store, [b"5", b"6"], after=4)
        for after, reader in zip((0, 1, 2, 5), readers, strict=True):
            assert pairs(await reader) == [(n, str(n).encode()) for n in range(after + 1, 7)]

    async def test_the_tail_of_a_long_log(self, store: MetadataStore) -> None:
        await append_all(store, [str(n).encode() for n in range(1, 251)])
        assert pairs(await take(store.tail(0), 250)) == [(n, str(n).encode()) for n in range(1, 251)]

    async def test_the_tail_ends_when_the_store_is_closed(self, store: MetadataStore) -> None:
        reader = asyncio.create_task(take(store.tail(0), 1))
        members = asyncio.create_task(take(store.members(), 2))
        lost = asyncio.create_task(store.lost())
        await let_tasks_run()
        assert not lost.done()
        await store.close()
        async with asyncio.timeout(60):
            assert await reader == []
            assert len(await members) <= 1
            await lost
        with pytest.raises(StoreClosed):
            await store.append(1, b"late")

    # snapshots

    async def test_a_snapshot_replaces_the_entries_before_it(self, store: MetadataStore) -> None:
        await append_all(store, [str(n).encode() for n in range(1, 11)])
        await store.compact(8, [b"chunk-a", b"chunk-b"], keep=0)
        assert await store.snapshot() == (8, [b"chunk-a", b"chunk-b"])
        assert pairs(await store.read(8)) == [(9, b"9"), (10, b"10")]
        with pytest.raises(Compacted):
            await store.read(7)
        with pytest.raises(Compacted):
            await take(store.tail(2), 1)
        await store.append(11, b"11")
        assert pairs(await take(store.tail(9), 2)) == [(10, b"10"), (11, b"11")]

    async def test_some_entries_before_a_snapshot_are_kept(self, store: MetadataStore) -> None:
        await append_all(store, [str(n).encode() for n in range(1, 11)])
        await store.compact(8, [b"chunk"], keep=3)
        assert [entry.version for entry in await store.read(5)] == [6, 7, 8, 9, 10]
        with pytest.raises(Compacted):
            await store.read(4)
        await store.compact(10, [b"newer"], keep=100)
        assert [entry.version for entry in await store.read(5)] == [6, 7, 8, 9, 10]
        assert await store.snapshot() == (10, [b"newer"])

    async def test_a_snapshot_goes_forward_only(self, store: MetadataStore) -> None:
        await append_all(store, [b"1", b"2", b"3"])
        await store.compact(2, [b"at 2"], keep=0)
        for at in (1, 4):
            with pytest.raises(StoreError):
                await store.compact(at, [b"no"], keep=0)
        assert await store.snapshot() == (2, [b"at 2"])

    async def test_a_log_compacted_to_its_end_goes_on(self, store: MetadataStore) -> None:
        await append_all(store, [b"1", b"2"])
        await store.compact(2, [b"all"], keep=0)
        assert await store.read(2) == []
        with pytest.raises(Conflict):
            await store.append(2, b"again")
        await store.append(3, b"3")
        assert pairs(await store.read(2)) == [(3, b"3")]

    async def test_everything_is_there_after_reopening(self, open_store: Opener) -> None:
        store = await open_store()
        await append_all(store, [b"1", b"2", b"3"])
        await store.close()
        store = await open_store()
        assert pairs(await store.read(0)) == [(1, b"1"), (2, b"2"), (3, b"3")]
        await store.compact(2, [b"at 2"], keep=1)
        await store.append(4, b"4")
        await store.close()
        store = await open_store()
        assert await store.snapshot() == (2, [b"at 2"])
        assert pairs(await store.read(1)) == [(2, b"2"), (3, b"3"), (4, b"4")]
        with pytest.raises(Conflict):
            await store.append(4, b"again")
        await store.append(5, b"5")

    # liveness

    async def test_epochs_grow_and_are_never_used_again(self, open_store: Opener) -> None:
        epochs = []
        for round_ in range(3):
            store = await open_store()
            epochs += [await store.register(1, b"data"), await store.register(1, b"data")]
            await store.append(round_ + 1, b"x")
            if round_ == 1:
                await store.compact(2, [b"all"], keep=0)
            await store.close()
        assert epochs == sorted(set(epochs)) and epochs[0] > 0

    async def test_members_now_and_after_each_change(self, store: MetadataStore) -> None:
        async with aclosing(store.members()) as changes:  # type: ignore[type-var]
            assert await anext(changes) == {}
            epoch = await store.register(7, b"first")
            members = await anext(changes)
            assert [(m.broker_id, m.epoch, m.data) for m in members.values()] == [(7, epoch, b"first")]
            await store.update(b"second")
            members = await anext(changes)
            assert (members[7].epoch, members[7].data) == (epoch, b"second")

    async def test_update_before_register_is_refused(self, store: MetadataStore) -> None:
        with pytest.raises(StoreError):
            await store.update(b"data")

    async def test_whoever_is_alone_leads(self, store: MetadataStore) -> None:
        async with asyncio.timeout(60):
            await store.campaign()
        assert store.lease() > time.monotonic()


class SharedStoreContract(StoreContract):
    async def test_of_two_writers_at_one_position_one_wins(self, open_store: Opener) -> None:
        one, two = await open_store(), await open_store()
        won = [0, 0]
        for version in range(1, 30):
            results = await asyncio.gather(
                one.append(version, b"one"), two.append(version, b"two"), return_exceptions=True
            )
            assert sum(result is None for result in results) == 1
            won[results.index(None)] += 1
        assert [entry.version for entry in await one.read(0)] == list(range(1, 30))
        assert await one.read(0) == await two.read(0)

    async def test_both_see_the_same_tail(self, open_store: Opener) -> None:
        one, two = await open_store(), await open_store()
        reader = asyncio.create_task(take(two.tail(0), 2))
        await one.append(1, b"1")
        await two.append(2, b"2")
        assert pairs(await reader) == [(1, b"1"), (2, b"2")]

    async def test_an_id_belongs_to_one_process(self, open_store: Opener) -> None:
        one, two = await open_store(), await open_store()
        first = await one.register(1, b"one")
        with pytest.raises(IdTaken):
            await two.register(1, b"two")
        assert await two.register(2, b"two") > first
        members = await anext(two.members().__aiter__())
        assert sorted(members) == [1, 2]
        await one.close()
        assert await two.register(1, b"two") > first

    async def test_one_leads_at_a_time(self, open_store: Opener) -> None:
        one, two = await open_store(), await open_store()
        await one.campaign()
        second = asyncio.create_task(two.campaign())
        await let_tasks_run()
        assert not second.done()
        await one.close()
        async with asyncio.timeout(60):
            await second

    async def test_whoever_is_deposed_has_to_campaign_again(self, open_store: Opener) -> None:
        one, two, three = [await open_store() for _ in range(3)]
        epochs = [await store.register(number, b"data") for number, store in enumerate((one, two, three), 1)]
        await one.campaign()
        second = asyncio.create_task(two.campaign())
        await let_tasks_run()
        await three.depose(2, epochs[1])  # which does not lead
        assert not second.done()
        await asyncio.gather(
            three.depose(1, epochs[0]), two.depose(1, epochs[0])
        )  # the log decides what becomes of broker 1
        async with asyncio.timeout(60):
            await second
        again = asyncio.create_task(one.campaign())
        await three.depose(1, epochs[0])
        await let_tasks_run()
        assert not again.done()
        await two.close()
        async with asyncio.timeout(60):
            await again

    async def test_whoever_is_back_is_not_deposed_for_its_earlier_life(self, open_store: Opener) -> None:
        """The accuser has seen the earlier one die, and is late."""
        one, two = await open_store(), await open_store()
        earlier = await one.register(1, b"data")
        await one.campaign()
        await one.close()
        again = await open_store()
        assert await again.register(1, b"data") > earlier
        await again.campaign()
        await two.register(2, b"data")
        second = asyncio.create_task(two.campaign())
        await two.depose(1, earlier)
        await let_tasks_run()
        assert not second.done()
        second.cancel()
