"""Where replicas go."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.replica_placement import alternate_racks, assign_replicas


def test_brokers_alternate_between_racks() -> None:
    assert alternate_racks({1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "c"}) == [1, 4, 6, 2, 5, 3]
    assert alternate_racks({3: None, 1: None}) == [1, 3]
    assert alternate_racks({}) == []


def test_one_broker() -> None:
    assert list(assign_replicas({7: None}, 3, 1, start=5)) == [(7,)] * 3


def test_round_robin_with_shifting_followers() -> None:
    assert list(assign_replicas(dict.fromkeys((1, 2, 3)), 6, 2, start=1)) == [
        (2, 3),
        (3, 1),
        (1, 2),
        (2, 1),
        (3, 2),
        (1, 3),
    ]


racks = st.dictionaries(st.integers(0, 50), st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9)


@given(racks, st.integers(1, 40), st.data())
def test_what_holds_always(racks: dict[int, str | None], partitions: int, data: st.DataObject) -> None:
    replicas = data.draw(st.integers(1, len(racks)))
    placed = list(assign_replicas(racks, partitions, replicas, data.draw(st.integers(0, 100))))
    assert len(placed) == partitions
    for chosen in placed:
        assert len(chosen) == len(set(chosen)) == replicas
        assert set(chosen) <= set(racks)
        assert len({racks[broker] for broker in chosen}) == min(replicas, len(set(racks.values())))
    leaders = Counter(chosen[0] for chosen in placed)
    leaders.update(dict.fromkeys(racks, 0))
    assert max(leaders.values()) - min(leaders.values()) <= 1
