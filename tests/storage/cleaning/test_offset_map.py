"""The table of last offsets: right, bounded, and honest about being full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.cleaning.offset_map import SLOT_BYTES, Marks, OffsetMap, largest_prime
from millstream.wire.record_walk import RecordSpan


def places(keys: list[bytes | None], has_value: bool = True) -> list[RecordSpan]:
    return [(0, 0, number, key, has_value) for number, key in enumerate(keys)]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=300))
def test_knows_the_last_offset_of_every_key(keys: list[bytes | None]) -> None:
    table = OffsetMap(1 << 20, 0.9)
    assert table.learn(1000, places(keys)) == len(keys)
    last = {key: 1000 + number for number, key in enumerate(keys) if key is not None}
    assert {key: table.get(key) for key in last} == last
    assert len(table) == len(last)
    kept = table.survivors(1000, places(keys), True)
    assert [place[2] + 1000 for place in kept] == sorted(last.values())


@given(st.lists(st.binary(min_size=1, max_size=2), max_size=200), st.integers(1, 60))
def test_never_holds_more_than_it_may(keys: list[bytes], slots: int) -> None:
    table = OffsetMap(slots * SLOT_BYTES, 0.9)
    assert table.memory <= max(slots, 3) * SLOT_BYTES
    taken = table.learn(0, places(list(keys)))
    assert len(table) <= max(1, int(table.slots * 0.9)) < table.slots
    different = list(dict.fromkeys(keys))
    if len(different) <= table.limit:
        assert taken == len(keys)
    else:
        assert keys[taken] == different[table.limit], "it stops at the first key that has no room"
        assert all(table.get(key) >= 0 for key in keys[:taken])
        assert table.get(keys[taken]) == -1


def test_an_unknown_key_survives_and_a_record_without_key_does_not() -> None:
    table = OffsetMap(1 << 10, 0.9)
    table.learn(0, places([b"a"]))
    assert [place[3] for place in table.survivors(0, places([b"b", None]), True)] == [b"b"]


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=1)), min_size=1, max_size=60),
    st.sampled_from([1, 3, 7, 500]),
)
def test_marks_tell_where_nothing_remains(keys: list[bytes | None], memory: int) -> None:
    table = OffsetMap(1 << 12, 0.9)
    table.learn(1000, places(keys))
    marks = Marks(table, 1000, 1000 + len(keys), memory)
    remain = {1000 + place[2] for place in table.survivors(1000, places(keys), True)}
    for first in range(len(keys)):
        for last in range(first, min(first + 5, len(keys))):
            some = not remain.isdisjoint(range(1000 + first, 1000 + last + 1))
            assert marks.may_keep(1000 + first, 1000 + last) >= some
            if memory == 500:
                assert marks.may_keep(1000 + first, 1000 + last) == some
    assert marks.may_keep(999, 1000) and marks.may_keep(999 + len(keys), 1000 + len(keys)), (
        "not for them to say"
    )


def test_tombstones_go_when_told() -> None:
    table = OffsetMap(1 << 10, 0.9)
    table.learn(0, places([b"a", b"b"], has_value=False))
    assert len(table.survivors(0, places([b"a", b"b"], has_value=False), True)) == 2
    assert not table.survivors(0, places([b"a", b"b"], has_value=False), False)


def test_is_no_larger_than_the_log_needs() -> None:
    assert OffsetMap(128 << 20, 0.9, max_keys=100).memory < 4096
    assert OffsetMap(128 << 20, 0.9, max_keys=100).limit >= 100
    assert OffsetMap(0, 0.9).limit >= 1


@pytest.mark.parametrize(
    ("bound", "prime"), [(0, 3), (3, 3), (4, 3), (8, 7), (100, 97), (5_592_405, 5_592_379)]
)
def test_primes(bound: int, prime: int) -> None:
    found = largest_prime(bound)
    assert all(found % divisor for divisor in range(2, int(found**0.5) + 1))
    assert found == prime or bound > 1000
    assert found <= max(bound, 3)
