"""Stores: those on disk behave as those in memory, and a changelog brings back what it was written from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.streams import StreamsBuilder, serdes
from millstream.streams.stores import StoreSpec
from millstream.streams.stores.layout import list_of, session_key, side_key, window_key
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.task import in_memory
from millstream.testing.topology import TopologyTestDriver
from tests.streams.kit import CONFIGS
from tests.streams.test_vectors import CLOCK, VECTORS, _bytes, _expected, _headers, _outputs
from tests.streams.topologies import BUILDS
from tests.support.effort import sample

FOREVER = 1 << 50


def _topology(name: str) -> Any:
    builder = StreamsBuilder()
    BUILDS[name](builder)
    return builder.build(CONFIGS.get(name))


WITH_STORES = sample(name for name in VECTORS if _topology(name).stores)


def _step(driver: TopologyTestDriver, step: list[Any]) -> None:
    if len(step) == 2:
        driver.advance_wall_clock(step[0])
    else:
        topic, key, value, timestamp, headers, _ = step
        driver.pipe_raw(topic, _bytes(key), _bytes(value), timestamp, _headers(headers))


def _content(store: Any) -> Any:
    kind = store.spec.type
    if kind == "key-value":
        return list(store.range(None, None))
    if kind == "window":
        return sorted((key, start, row[0]) for key, start, row in store.fetch_all(0, FOREVER))
    if kind == "session":
        return store.find_all(max(0, store._oldest), FOREVER)  # expired ones may be swept or not
    if kind == "outer-join":
        return list(store.waiting())
    if kind == "versioned":
        return {key: store.versions(key, 0, FOREVER) for key, _, _ in store._all()}
    if kind == "join-buffer":
        return store._order, store._rows
    return [_popped(store)._replace(context=None) for _ in range(len(store))]


def _popped(store: Any) -> Any:
    row = store.first()
    store.remove_first()
    return row


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


LONG_KEYS = [
    b"",
    b"a",
    b"m" * 510,
    b"m" * 511,
    b"m" * 494 + b"a" * 17,
    b"m" * 600,
    b"m" * 600 + b"z",
    b"z" * 100_000,
]
"""Around what LMDB takes, and some that begin alike: in the order of their bytes they are mixed with the
short ones."""


def test_keys_have_no_limit(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, size=64 << 20, durable=False)
    store = folder.open(_counts(), "app")
    for number, key in enumerate(LONG_KEYS):
        store.put(key, number, number)
    assert len(store.drain()) == len(LONG_KEYS)
    folder.commit(b"here")
    folder.close()
    folder = StoreFolder(tmp_path, size=64 << 20, durable=False)
    store = folder.open(_counts(), "app")
    assert [store.get(key) for key in LONG_KEYS] == [(number, number) for number in range(len(LONG_KEYS))]
    assert store.get(b"m" * 601) is None
    assert [row is not None for row in store.read_rows([*LONG_KEYS, b"n" * 601])] == [True] * len(
        LONG_KEYS
    ) + [False]
    assert len(store) == len(LONG_KEYS)
    order = sorted(LONG_KEYS)
    assert [key for key, _, _ in store.range(None, None)] == order
    for first in range(len(order)):
        for last in range(first, len(order)):
            expected = order[first : last + 1]
            assert [key for key, _, _ in store.range(order[first], order[last])] == expected
    assert [key for key, _, _ in store.range(b"m" * 512, b"m" * 600 + b"a")] == [b"m" * 600]
    store.put(LONG_KEYS[5], None, 9)
    store.put(LONG_KEYS[7], 70, 9)
    assert store.read_rows([LONG_KEYS[5]]) == [None]
    folder.commit(b"there")
    assert (store.get(LONG_KEYS[5]), store.get(LONG_KEYS[7])) == (None, (70, 9))
    assert len(store) == len(LONG_KEYS) - 1
    folder.clear(store)
    assert len(store) == 0 and list(store.range(None, None)) == []
    store.restore([(key, b"\0" * 8, 1) for key in LONG_KEYS])
    assert [key for key, _, _ in store.range(None, None)] == order
    folder.close()


@pytest.mark.parametrize("size", [498, 499, 5000])
def test_windows_and_sessions_of_long_keys(tmp_path: Path, size: int) -> None:
    """A window takes twelve bytes of a key, a session sixteen: both sizes of 498 and 499 are on the edge."""
    keys = [b"k" * size, b"k" * (size - 1) + b"l", b"k"]
    windows = StoreSpec("windows", "window", serdes.STRING, serdes.LONG, 100_000, window_size=10)
    sessions = StoreSpec("sessions", "session", serdes.STRING, serdes.LONG, 100_000)
    buffered = StoreSpec("waiting", "outer-join", serdes.STRING, serdes.LONG)
    for number, committed in enumerate((False, True)):
        folder = StoreFolder(tmp_path / str(number), size=64 << 20, durable=False)
        stores = [folder.open(spec, "app") for spec in (windows, sessions, buffered)]
        for key in keys:
            for start in (10, 20, 30):
                stores[0].put(key, start, start, start)
                stores[1].put(key, start, start + 5, start)
                stores[2].add(start, True, key, start)
        if committed:
            stores[2].drain()
            folder.commit()
            folder.close()
            folder = StoreFolder(tmp_path / str(number), size=64 << 20, durable=False)
            stores = [folder.open(spec, "app") for spec in (windows, sessions, buffered)]
        for key in keys:
            assert stores[0].fetch(key, 15, 30) == [(20, (20, 20)), (30, (30, 30))]
            assert stores[0].fetch_one(key, 20) == (20, 20)
            assert stores[1].find(key, 20, 20) == [(20, 25, 20)]
            assert stores[1].fetch_one(key, 30, 35) == 30
        assert [(start, key) for key, start, _ in stores[0].fetch_all(20, 30)] == [
            (start, key) for start in (20, 30) for key in sorted(keys)
        ]
        assert [(at, key) for at, _, key, _ in stores[2].waiting()] == [
            (start, key) for start in (10, 20, 30) for key in sorted(keys)
        ]
        stores[0].drain()
        stores[0].put(keys[0], 200_000, 1, 200_000)  # the others have expired and are swept
        assert len(stores[0].rows) == 1
        folder.close()


def _join_side() -> StoreSpec:
    return StoreSpec("side", "window", serdes.STRING, serdes.STRING, 1000, 10, duplicates=True)


@pytest.mark.parametrize("written", [True, False], ids=["", "folder-of-an-earlier-release"])
def test_a_join_keeps_partners_of_one_instant_across_processes(tmp_path: Path, written: bool) -> None:
    for value in ("one", "two", "three"):
        folder = StoreFolder(tmp_path, size=16 << 20)
        store = folder.open(_join_side(), "app")
        store.put(b"k", 5, value, 5)
        folder.commit()
        if not written:
            with folder._environment.begin(write=True) as transaction:
                assert transaction.delete(b"sequence side", db=folder._meta)
        folder.close()
    folder = StoreFolder(tmp_path, size=16 << 20)
    store = folder.open(_join_side(), "app")
    assert [row[0] for _, row in store.fetch(b"k", 0, 10)] == ["one", "two", "three"]
    folder.commit()
    store.put(b"k", 5, "four", 5)
    folder.roll_back()
    store.put(b"k", 5, "five", 5)
    assert [key[-1] for key, _, _ in store.drain()] == [4]
    folder.close()


def test_a_restored_join_goes_on_behind_the_rows_of_its_changelog(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, size=16 << 20)
    store = folder.open(_join_side(), "app")
    store.restore([(window_key(b"k", 5, 7), b"one", 5), (window_key(b"k", 5, 3), b"two", 5)])
    folder.commit()
    folder.close()
    folder = StoreFolder(tmp_path, size=16 << 20)
    store = folder.open(_join_side(), "app")
    store.put(b"k", 5, "three", 5)
    assert [row[0] for _, row in store.fetch(b"k", 0, 10)] == ["two", "one", "three"]
    folder.close()


def test_what_has_expired_is_not_restored(tmp_path: Path) -> None:
    """A changelog keeps windows longer than the store."""
    folder = StoreFolder(tmp_path, size=16 << 20)
    windows = folder.open(StoreSpec("windows", "window", serdes.STRING, serdes.LONG, 100, 10), "app")
    sessions = folder.open(StoreSpec("sessions", "session", serdes.STRING, serdes.LONG, 100), "app")
    starts = [0, 850, 901, 1000, 900]
    windows.restore([(window_key(b"k", start, 0), b"\0" * 8, start) for start in starts])
    sessions.restore([(session_key(b"k", start - 5, start), b"\0" * 8, start) for start in starts])
    assert [start for start, _ in windows.fetch(b"k", 0, FOREVER)] == [901, 1000]
    assert [end for _, end, _ in sessions.find(b"k", 0, FOREVER)] == [901, 1000]
    assert (len(windows.rows), len(sessions.rows)) == (2, 2)
    folder.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_expires_before_the_next_commit_reaches_the_changelog(tmp_path: Path, on_disk: bool) -> None:
    """As what it was, and not as a tombstone."""
    folder = StoreFolder(tmp_path, size=16 << 20)

    def opened(spec: StoreSpec) -> Any:
        return folder.open(spec, "app") if on_disk else in_memory(spec, "app")

    windows = opened(StoreSpec("windows", "window", serdes.STRING, serdes.STRING, 100, 10))
    sessions = opened(StoreSpec("sessions", "session", serdes.STRING, serdes.STRING, 100))
    joined = opened(_join_side())
    later = 9_000_000_000_000  # far enough for a sweep
    for start in (0, later):
        windows.put(b"k", start, "v", start)
        sessions.put(b"k", start, start, "v")
    joined.add_rows([b"k", b"k"], [0, later], [b"v", b"v"])
    for store in (windows, sessions, joined):
        assert [(value, stamp) for _, value, stamp in store.drain()] == [(b"v", 0), (b"v", later)], store
    folder.close()


class _NotSearched(list[bytes]):
    def remove(self, value: bytes) -> None:
        raise AssertionError("goes through all that waits")


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_waits_for_a_partner_is_found_by_its_key(tmp_path: Path, on_disk: bool) -> None:
    spec = StoreSpec("waiting", "outer-join", serdes.STRING, serdes.STRING)
    folder = StoreFolder(tmp_path, size=16 << 20)
    store = folder.open(spec, "app") if on_disk else in_memory(spec, "app")
    store._order = _NotSearched()
    for time in (3, 1, 2):
        for is_left in (True, False):
            store.add(time, is_left, b"k", f"{time}")
    store.remove(2, False, b"k")
    store.remove(2, False, b"k")
    store.remove(1, True, b"k")
    assert [row[:2] for row in store.waiting()] == [(1, False), (2, True), (3, False), (3, True)]
    store.restore([(side_key(3, False, b"k"), None, 3), (side_key(2, True, b"k"), list_of([b"new"]), 2)])
    assert [(row[0], row[3]) for row in store.waiting()] == [(1, ["1"]), (2, ["new"]), (3, ["3"])]
    folder.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_buffer_is_restored_in_pieces(tmp_path: Path, on_disk: bool) -> None:
    """What left, or changed, in a later piece of its changelog than the one that brought it."""
    spec = StoreSpec("held", "suppress", serdes.STRING, serdes.STRING)
    store = in_memory(spec, "app")
    pieces = []
    for number, key in enumerate((b"a", b"b", b"c")):
        store.put(number, key, (f"old {number}", None), number, (), None)
    pieces.append(store.drain())
    store.remove_first()
    store.put(1, b"b", ("a longer new value", None), 5, (), None)
    pieces.append(store.drain())
    folder = StoreFolder(tmp_path, size=16 << 20)
    again = folder.open(spec, "app") if on_disk else in_memory(spec, "app")
    for piece in pieces:
        again.restore(piece)
    assert (len(again), again.bytes_held, again.least_time()) == (2, store.bytes_held, 1)
    assert [_popped(again)[:2] for _ in range(2)] == [(b"b", "a longer new value"), (b"c", "old 2")]
    folder.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_rows_in_both_directions_with_keys_of_any_length(on_disk: bool, tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, size=16 << 20)
    spec = StoreSpec("rows", "key-value", serdes.BYTES, serdes.LONG)
    store = folder.open(spec, "app") if on_disk else in_memory(spec, "app")
    keys = sorted([b"", b"a", b"a" * 509, b"a" * 510, b"a" * 511, b"a" * 600, b"a" * 600 + b"b", b"b"])
    for number, key in enumerate(keys):
        store.put(key, number, 0)
    assert [key for key, _, _ in store.range(None, None, True)] == keys[::-1]
    for low in (None, *keys):
        for high in (None, *keys):
            wanted = [key for key in keys if (low is None or key >= low) and (high is None or key <= high)]
            assert [key for key, _, _ in store.range(low, high)] == wanted
            assert [key for key, _, _ in store.range(low, high, True)] == wanted[::-1]
    folder.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_versions_of_a_key(on_disk: bool, tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, size=16 << 20)
    spec = StoreSpec("rows", "versioned", serdes.STRING, serdes.STRING, 100)
    store = folder.open(spec, "app") if on_disk else in_memory(spec, "app")
    assert [store.put_version(b"k", value, at) for value, at in (("a", 10), ("c", 30), ("b", 20))] == [
        -1,
        -1,
        30,
    ]
    store.put_version(b"k", None, 40)
    store.put_version(b"kk", "other", 25)
    assert store.versions(b"k", 0, 1000) == [("c", 30, 40), ("b", 20, 30), ("a", 10, 20)]
    assert store.versions(b"k", 20, 30) == [("c", 30, 40), ("b", 20, 30)]
    assert store.versions(b"k", 40, 50) == []
    assert store.get_as_of(b"k", 29) == ("b", 20, 30)
    assert store.get(b"k") is None
    store.put_version(b"x", "later", 200_000)
    assert {key for key, _, _ in store._all()} == {b"kk", b"x"}  # a newest value stays, a deletion does not
    assert store.get_as_of(b"kk", 25) == ("other", 25, None)
    if on_disk:
        folder.commit()
        folder.close()
        folder = StoreFolder(tmp_path, size=16 << 20)
        store = folder.open(spec, "app")
        assert store.expired(199_899)
        assert not store.expired(199_900)
        assert len(store) == 2
    folder.close()


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
def test_a_value_that_its_serde_cannot_write_is_refused_where_it_is_put(
    kind: str, on_disk: bool, tmp_path: Path
) -> None:
    folder = StoreFolder(tmp_path, size=16 << 20)
    spec = StoreSpec("rows", kind, serdes.BYTES, serdes.STRING, retention=1000)
    store = folder.open(spec, "app") if on_disk else in_memory(spec, "app")
    put = {
        "key-value": lambda value: store.put(b"a", value, 5),
        "window": lambda value: store.put(b"a", 5, value, 5),
        "session": lambda value: store.put(b"a", 5, 6, value),
    }[kind]
    with pytest.raises(TypeError):
        put(1)
    assert not _content(store)
    assert not store.drain()
    put("text")
    with pytest.raises(TypeError):
        put(1)
    assert "text" in repr(_content(store))
    folder.close()
