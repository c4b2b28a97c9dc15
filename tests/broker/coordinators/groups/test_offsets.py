"""The table of committed offsets: what counts, what waits for a transaction, what expires."""

import random

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.coordinators.groups import offset_records
from millstream.broker.coordinators.groups.offsets import OffsetTable

DAY = 86_400_000


def value(offset: int, time: int = 0, expire: int = -1) -> bytes:
    return offset_records.offset_value(offset, -1, "", time, expire)


def offset(table: OffsetTable, group: str = "g", topic: str = "t", partition: int = 0) -> int | None:
    found = table.get(group, topic, partition)
    return None if found is None else offset_records.parse_offset_value(found).offset


def test_put_get_remove() -> None:
    table = OffsetTable()
    table.put("g", "t", 0, value(5), 0)
    table.put("g", "t", 0, value(6), 1)
    table.put("g", "u", 3, value(7), 2)
    assert (offset(table), offset(table, topic="u", partition=3), table.count) == (6, 7, 2)
    assert table.of_group("g") == [("t", 0), ("u", 3)]
    assert table.of_topic("u") == [("g", 3)]
    table.remove("g", "t", 0)
    table.remove("g", "t", 9)
    assert (offset(table), table.count, "g" in table) == (None, 1, True)
    table.remove("g", "u", 3)
    # The group stays until somebody tidies up.
    assert (table.count, list(table), table.size("g")) == (
        0,
        ["g"],
        0,
    )
    table.forget_group("g")
    table.forget_group("g")
    assert list(table) == []


def test_a_group_with_offsets_is_not_forgotten() -> None:
    table = OffsetTable()
    table.put("g", "t", 0, value(5), 0)
    table.forget_group("g")
    assert offset(table) == 5


@given(st.lists(st.tuples(st.sampled_from("tuv"), st.integers(0, 6), st.integers(0, 3)), max_size=60))
def test_few_offsets_and_many_behave_the_same(steps: list[tuple[str, int, int]]) -> None:
    table = OffsetTable()
    expected: dict[tuple[str, int], bytes] = {}
    for at, (topic, partition, kind) in enumerate(steps):
        if kind:
            table.put("g", topic, partition, value(at), at)
            expected[topic, partition] = value(at)
        else:
            table.remove("g", topic, partition)
            expected.pop((topic, partition), None)
        assert {(t, p): v for t, p, v in table.items("g")} == expected
        assert table.count == table.size("g") == len(expected)
        assert table.get("g", topic, partition) == expected.get((topic, partition))
    for topic in "tuv":
        assert sorted(table.of_topic(topic)) == sorted(("g", p) for t, p in expected if t == topic)
    assert sorted(table.of_group("g")) == sorted(expected)


def test_a_transaction_counts_when_it_commits() -> None:
    table = OffsetTable()
    table.put("g", "t", 0, value(5), 0)
    table.put_pending(77, "g", "t", 0, value(9), 1)
    assert offset(table) == 5
    assert table.is_unstable("g", "t", 0)
    assert not table.is_unstable("g", "t", 1)
    assert table.in_transaction("g")
    table.end_transaction(77, commit=True)
    assert offset(table) == 9
    assert not table.is_unstable("g", "t", 0)
    assert not table.in_transaction("g")


def test_an_aborted_transaction_never_happened() -> None:
    table = OffsetTable()
    table.put_pending(77, "g", "t", 0, value(9), 1)
    table.end_transaction(77, commit=False)
    table.end_transaction(77, commit=True)
    assert (offset(table), table.count, table.size("g")) == (None, 0, 0)


def test_a_later_commit_wins_over_a_marker_that_comes_last() -> None:
    table = OffsetTable()
    table.put_pending(1, "g", "t", 0, value(9), 10)
    table.put("g", "t", 0, value(5), 11)
    assert table.is_unstable("g", "t", 0)
    table.end_transaction(1, commit=True)
    assert offset(table) == 5


def test_the_later_of_two_transactions_wins() -> None:
    table = OffsetTable()
    table.put_pending(1, "g", "t", 0, value(9), 10)
    table.put_pending(2, "g", "t", 0, value(8), 12)
    table.end_transaction(2, commit=True)
    table.end_transaction(1, commit=True)
    assert offset(table) == 8


def test_a_tombstone_ends_what_waits() -> None:
    table = OffsetTable()
    table.put_pending(1, "g", "t", 0, value(9), 10)
    assert table.of_group("g") == [("t", 0)]
    assert table.of_topic("t") == [("g", 0)]
    table.remove("g", "t", 0)
    table.end_transaction(1, commit=True)
    assert offset(table) is None
    assert not table.in_transaction("g")


def test_expiry_counts_from_the_commit_or_from_when_the_group_was_left() -> None:
    table = OffsetTable()
    table.put("g", "t", 0, value(1, time=0), 0)
    table.put("g", "t", 1, value(1, time=2 * DAY), 1)
    assert list(table.expired("g", None, 3 * DAY, 2 * DAY)) == [("t", 0)]
    assert list(table.expired("g", 2 * DAY, 3 * DAY, 2 * DAY)) == []
    assert list(table.expired("g", 0, 3 * DAY, 2 * DAY)) == [("t", 0), ("t", 1)]


def test_a_retention_of_its_own_overrides() -> None:
    table = OffsetTable()
    table.put("g", "t", 0, value(1, time=0, expire=10), 0)
    assert list(table.expired("g", None, 9, 5)) == []
    assert list(table.expired("g", None, 10, 50)) == [("t", 0)]


def test_what_a_transaction_may_change_does_not_expire() -> None:
    table = OffsetTable()
    table.put("g", "t", 0, value(1), 0)
    table.put_pending(1, "g", "t", 0, value(2), 1)
    assert list(table.expired("g", None, 3 * DAY, DAY)) == []


def replayed(log: list[tuple[int, bytes | None, bytes | None, bool]]) -> OffsetTable:
    table = OffsetTable()
    for position, (producer, key, data, commit) in enumerate(log):
        if key is None:
            table.end_transaction(producer, commit)
        else:
            table.replay(key, data, producer, position)
    table.loaded()
    return table


@given(st.integers(0, 2**32))
def test_replaying_the_log_gives_what_was_lived_through(seed: int) -> None:
    """Whatever happens, the log of it leads to the same offsets, the same unstable ones, the same count."""
    choose = random.Random(seed)
    live = OffsetTable()
    log: list[tuple[int, bytes | None, bytes | None, bool]] = []
    for step in range(60):
        group, topic, partition = choose.choice("ab"), choose.choice("tu"), choose.randrange(2)
        key = offset_records.offset_key(group, topic, partition)
        producer = choose.randrange(3)
        data = value(step)
        kind = choose.randrange(10)
        if kind < 4:
            live.put(group, topic, partition, data, len(log))
            log.append((-1, key, data, False))
        elif kind < 7:
            live.put_pending(producer, group, topic, partition, data, len(log))
            log.append((producer, key, data, False))
        elif kind < 8:
            live.remove(group, topic, partition)
            log.append((-1, key, None, False))
        else:
            commit = choose.random() < 0.6
            live.end_transaction(producer, commit)
            log.append((producer, None, None, commit))
    again = replayed(log)
    assert set(again) == set(live)
    for group in live:
        assert sorted(again.items(group)) == sorted(live.items(group))
    assert again.count == live.count == sum(live.size(group) for group in live)
    for group in "ab":
        for topic in "tu":
            for partition in range(2):
                assert live.is_unstable(group, topic, partition) == again.is_unstable(group, topic, partition)
