"""The table of last offsets: right, bounded, and honest about being full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.cleaning.offset_map import SLOT_BYTES, Marks, OffsetMap, largest_prime
from millstream.wire.record_walk import RecordSpan


def learn(table: OffsetMap, base: int, keys: list[bytes | None]) -> int:
    """Offsets from `base` on, a few keys at a time."""
    keyed = [(key, base + number) for number, key in enumerate(keys) if key is not None]
    taken = 0
    for first in range(0, len(keyed), 7):
        some = keyed[first : first + 7]
        taken += table.learn([key for key, _ in some], [offset for _, offset in some])
        if taken < first + len(some):
            break
    return taken


def spans(keys: list[bytes | None], has_value: bool = True) -> list[RecordSpan]:
    return [(0, 0, number, key, has_value) for number, key in enumerate(keys)]


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=300),
    st.sampled_from([1 << 20, 1 << 15, 300 * 40]),
)
def test_knows_the_last_offset_of_every_key(keys: list[bytes | None], memory: int) -> None:
    """In a dict, in a table, and after the move from one to the other."""
    table = OffsetMap(memory, 0.9)
    assert learn(table, 1000, keys) == len([key for key in keys if key is not None])
    assert table.memory <= memory
    last = {key: 1000 + number for number, key in enumerate(keys) if key is not None}
    assert {key: table.get(key) for key in last} == last
    assert len(table) == len(last)
    kept = table.survivors(1000, spans(keys), True)
    assert [span[2] + 1000 for span in kept] == sorted(last.values())


@given(st.lists(st.binary(min_size=1, max_size=2), max_size=200), st.integers(1, 60))
def test_never_holds_more_than_it_may(keys: list[bytes], slots: int) -> None:
    table = OffsetMap(slots * SLOT_BYTES, 0.9)
    assert table.memory <= max(slots, 3) * SLOT_BYTES
    taken = learn(table, 0, list(keys))
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
    table.learn([b"a"], [0])
    assert [span[3] for span in table.survivors(0, spans([b"b", None]), True)] == [b"b"]


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=1)), min_size=1, max_size=60),
    st.sampled_from([1, 3, 7, 500]),
)
def test_marks_tell_where_nothing_remains(keys: list[bytes | None], memory: int) -> None:
    table = OffsetMap(1 << 12, 0.9)
    learn(table, 1000, keys)
    marks = Marks(1000, 1005 + len(keys), memory)
    marks.learned(table, 1000 + len(keys))
    stay = table.survivors(1000, spans(keys), True)
    remain = {1000 + span[2] for span in stay}
    for first in range(len(keys)):
        for last in range(first, min(first + 5, len(keys))):
            some = not remain.isdisjoint(range(1000 + first, 1000 + last + 1))
            assert marks.may_keep(1000 + first, 1000 + last) >= some
            if memory == 500:
                assert marks.may_keep(1000 + first, 1000 + last) == some
            assert marks.must_look(1000 + first, 1000 + last) == marks.may_keep(1000 + first, 1000 + last)
    single = marks.of_records(1000, 999 + len(keys))
    kept = [1000 + number in remain for number in range(len(keys))]
    assert single == (None if marks.shift else bytes(kept))
    assert marks.of_records(999, 1000) is None
    assert marks.of_records(1000, 1000 + len(keys)) is None
    assert marks.may_keep(999, 1000) and marks.may_keep(999 + len(keys), 1000 + len(keys)), (
        "not for them to say"
    )


@given(st.sets(st.integers(990, 1050)), st.sampled_from([1, 7, 500]))
def test_a_batch_that_must_be_looked_at_need_not_keep_anything(offsets: set[int], memory: int) -> None:
    marks = Marks(1000, 1040, memory)
    for offset in offsets:
        marks.look_at(offset)
    marks.learned(OffsetMap(1 << 10, 0.9), 1040)
    for first in range(1000, 1040):
        assert marks.must_look(first, first) >= (first in offsets)
        assert not marks.may_keep(first, 1039)


@pytest.mark.parametrize("memory", [1 << 10, 1 << 20])
def test_tombstones_go_when_told(memory: int) -> None:
    table = OffsetMap(memory, 0.9)
    table.learn([b"a", b"b"], [0, 1])
    assert len(table.survivors(0, spans([b"a", b"b"], has_value=False), True)) == 2
    assert not table.survivors(0, spans([b"a", b"b"], has_value=False), False)


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
