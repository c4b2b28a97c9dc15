"""The assignors of KIP-848: everything is assigned once, evenly, and as little as possible moves."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.coordinators.groups.assignors import Assignment, assign_range, assign_uniform
from tests.support.effort import examples

A, B, C = (UUID(int=number) for number in (1, 2, 3))


def sizes(result: dict[str, Assignment]) -> list[int]:
    return sorted(sum(map(len, assignment.values())) for assignment in result.values())


def check(result: dict[str, Assignment], reads: dict[str, set[UUID]], counts: dict[UUID, int]) -> None:
    owned = [
        (topic, index)
        for assignment in result.values()
        for topic, indexes in assignment.items()
        for index in indexes
    ]
    assert len(owned) == len(set(owned)), "two owners"
    read = set().union(*reads.values()) if reads else set()
    assert set(owned) == {(topic, index) for topic in read for index in range(counts[topic])}
    assert all(set(result[member]) <= reads[member] for member in reads)


def test_range_cuts_all_topics_the_same_way() -> None:
    reads = {"m1": {A, B}, "m2": {A, B}, "m3": {B}}
    result = assign_range(reads, {A: 3, B: 3}, {})
    assert result == {"m1": {A: {0, 1}, B: {0}}, "m2": {A: {2}, B: {1}}, "m3": {B: {2}}}


def test_uniform_is_even_and_moves_little() -> None:
    counts = {A: 6, B: 3}
    first = assign_uniform({"m1": {A, B}, "m2": {A, B}}, counts, {})
    assert sizes(first) == [4, 5]
    second = assign_uniform({name: {A, B} for name in ("m1", "m2", "m3")}, counts, first)
    assert sizes(second) == [3, 3, 3]
    for member in ("m1", "m2"):
        for topic, indexes in second[member].items():
            assert indexes <= first[member][topic]
    third = assign_uniform({"m1": {A, B}, "m2": {A, B}}, counts, second)
    for member in ("m1", "m2"):
        for topic, indexes in second[member].items():
            assert indexes <= third[member][topic]


def test_uniform_where_members_read_different_topics() -> None:
    reads = {"m1": {A}, "m2": {A, B}, "m3": {B, C}}
    result = assign_uniform(reads, {A: 4, B: 4, C: 1}, {})
    check(result, reads, {A: 4, B: 4, C: 1})
    assert sizes(result) == [3, 3, 3]


TOPICS = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 12), min_size=1)


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), TOPICS)
def test_any_group(data: st.DataObject, counts: dict[UUID, int]) -> None:
    everything = sorted(counts)
    pick = (
        st.sets(st.sampled_from(everything), min_size=1)
        if data.draw(st.booleans())
        else st.just(set(everything))
    )
    names = [f"m{number}" for number in range(data.draw(st.integers(1, 6)))]
    reads = {name: data.draw(pick) for name in names}
    before: dict[str, Assignment] = {}
    for _ in range(3):
        check(assign_range(reads, counts, before), reads, counts)
        result = assign_uniform(reads, counts, before)
        check(result, reads, counts)
        load = {member: sum(map(len, parts.values())) for member, parts in result.items()}
        for busy in reads:  # no partition can be moved to somebody who has two fewer
            for idle in reads:
                movable = [topic for topic, parts in result[busy].items() if parts and topic in reads[idle]]
                assert not movable or load[busy] - load[idle] < 2
        assert assign_uniform(reads, counts, result) == result, "moves without a reason"
        before = result
        reads = {name: topics for name, topics in reads.items() if name != "m0" or len(reads) == 1}
        reads[f"n{len(before)}"] = data.draw(pick)
