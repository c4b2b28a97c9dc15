"""Stores: those on disk behave as those in memory, and a changelog brings back what it was written from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.pipeline.streams import StreamsBuilder, serdes
from millstream.pipeline.streams.stores import StoreSpec
from millstream.pipeline.streams.stores.lmdb import StoreFolder
from millstream.pipeline.streams.task import in_memory
from millstream.testing.topology import TopologyTestDriver
from tests.pipeline.streams.test_vectors import CLOCK, VECTORS, _bytes, _expected, _headers, _outputs
from tests.pipeline.streams.topologies import BUILDS

FOREVER = 1 << 50


def _topology(name: str) -> Any:
    builder = StreamsBuilder()
    BUILDS[name](builder)
    return builder.build()


WITH_STORES = [name for name in VECTORS if _topology(name).stores]


def _step(driver: TopologyTestDriver, step: list[Any]) -> None:
    if len(step) == 2:
        driver.advance_wall_clock(step[0])
    else:
        topic, key, value, timestamp, headers, _ = step
        driver.pipe_raw(topic, _bytes(key), _bytes(value), timestamp, _headers(headers))


def _content(store: Any) -> Any:
    kind = store.spec.kind
    if kind == "key-value":
        return list(store.range(None, None))
    if kind == "window":
        return sorted((key, start, row[0]) for key, start, row in store.fetch_all(0, FOREVER))
    if kind == "session":
        return store.find_all(max(0, store._oldest), FOREVER)  # expired ones may be swept or not
    if kind == "outer-join":
        return list(store.waiting())
    return [store.pop()._replace(context=None) for _ in range(len(store))]


@pytest.mark.parametrize("name", WITH_STORES)
def test_outputs_are_the_same_with_stores_on_disk(name: str, tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, size=64 << 20, durable=False)
    driver = TopologyTestDriver(_topology(name), application="vectors", start=CLOCK, stores=folder.open)
    for number, step in enumerate(VECTORS[name]["runs"][1]):
        _step(driver, step)
        assert _outputs(driver) == _expected(step[-1]), f"step {number}: {step[:-1]}"
        if number % 20 == 0:
            folder.commit(b"%d" % number)
    folder.close()


@pytest.mark.parametrize("name", WITH_STORES)
def test_a_changelog_brings_a_store_back(name: str, tmp_path: Path) -> None:
    driver = TopologyTestDriver(_topology(name), application="vectors", start=CLOCK)
    for step in VECTORS[name]["runs"][2]:
        _step(driver, step)
    folder = StoreFolder(tmp_path, size=64 << 20, durable=False)
    for store in driver._task.stores.values():
        if not store.spec.logged:
            continue
        changelog = [
            (raw.key or b"", raw.value, raw.timestamp)
            for raw in driver.read_raw(store.spec.changelog("vectors"))
        ]
        again, on_disk = in_memory(store.spec, "vectors"), folder.open(store.spec, "vectors")
        again.restore(changelog)
        on_disk.restore(changelog)
        expected = _content(store)
        assert _content(again) == expected
        assert _content(on_disk) == expected
    folder.close()


def _counts() -> StoreSpec:
    return StoreSpec("counts", "key-value", serdes.STRING, serdes.LONG)


def test_a_folder_holds_what_was_committed(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, size=16 << 20)
    store = folder.open(_counts(), "app")
    store.put(b"a", 1, 10)
    folder.commit(b"first")
    store.put(b"a", 2, 11)
    store.put(b"b", 1, 12)
    folder.roll_back()
    assert store.get(b"a") == (1, 10)
    assert store.get(b"b") is None
    store.put(b"c", 3, 13)
    assert [key for key, _, _ in store.drain()] == [b"c"]
    folder.commit(b"second")
    store.put(b"d", 4, 14)
    folder.close()
    folder = StoreFolder(tmp_path, size=16 << 20)
    store = folder.open(_counts(), "app")
    assert folder.position == b"second"
    assert list(store.range(None, None)) == [(b"a", 1, 10), (b"c", 3, 13)]
    folder.close()


def test_a_window_store_on_disk_remembers_its_newest_window(tmp_path: Path) -> None:
    spec = StoreSpec("windows", "window", serdes.STRING, serdes.LONG, 100, window_size=10)
    folder = StoreFolder(tmp_path, size=16 << 20)
    store = folder.open(spec, "app")
    store.put(b"a", 0, 1, 0)
    store.put(b"a", 500, 1, 500)
    folder.commit()
    folder.close()
    folder = StoreFolder(tmp_path, size=16 << 20)
    store = folder.open(spec, "app")
    assert store.newest == 500
    assert store.fetch(b"a", 0, 1000) == [(500, (1, 500))]
    folder.close()


def test_aggregates_that_change_in_place_do_not_change_what_was_sent() -> None:
    spec = StoreSpec("lists", "key-value", serdes.STRING, serdes.JSON)
    store = in_memory(spec, "app")
    given = [1]
    store.put(b"a", given, 0)
    given.append(2)
    found = store.get(b"a")
    found[0].append(3)
    assert store.get(b"a") == ([1], 0)
