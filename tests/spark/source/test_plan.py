"""Offsets into tasks: nothing lost, nothing twice, and the same answer every time."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.source.plan import PACK, Range, ranges_between, share, split

sizes = st.lists(st.integers(1, 3 * PACK), min_size=1, max_size=30)


def made(of: list[int]) -> list[Range]:
    return [Range(f"t{i % 3}", i // 3, 10 * i, 10 * i + size) for i, size in enumerate(of)]


def covered(ranges: list[Range]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """The offsets of each partition, neighbours joined."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for r in sorted(ranges):
        parts = found.setdefault((r.topic, r.partition), [])
        if parts and parts[-1][1] == r.first:
            parts[-1] = (parts[-1][0], r.until)
        else:
            parts.append((r.first, r.until))
    return found


@given(sizes, st.none() | st.integers(1, 60), st.none() | st.integers(500, 2 * PACK))
def test_tasks_cover_everything_once(of: list[int], min_tasks: int | None, max_records: int | None) -> None:
    ranges = made(of)
    plan = split(ranges, min_tasks, max_records)
    flat = [r for task in plan for r in task]
    assert covered(flat) == covered(ranges)
    assert sum(r.size for r in flat) == sum(of)
    if max_records is not None:
        assert all(r.size <= max_records for r in flat)
    if min_tasks is not None:
        assert len(plan) >= min(min_tasks, sum(of))
    assert plan == split(ranges, min_tasks, max_records)


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    assert len(split(made([10] * 30))) == 1
    assert len(split(made([PACK, PACK + 1, 5]))) == 3
    assert split([]) == []


@given(sizes, st.integers(1, 100_000))
def test_a_share_is_within_the_limit_and_fair(of: list[int], max_offsets: int) -> None:
    ranges = made(of)
    shared = share(ranges, max_offsets)
    total = sum(r.size for r in shared)
    assert total == min(max_offsets, sum(of))
    whole = {(r.topic, r.partition): r for r in ranges}
    for r in shared:
        assert r.first == whole[r.topic, r.partition].first
        assert r.until <= whole[r.topic, r.partition].until
    if max_offsets >= len(ranges):
        assert len(shared) == len(ranges)  # nobody starves


def test_ranges_between() -> None:
    start = {("a", 0): 5, ("a", 1): 3, ("b", 0): 0}
    end = {("a", 0): 9, ("a", 1): 3, ("b", 0): 2, ("c", 0): 7}
    assert ranges_between(start, end) == [Range("a", 0, 5, 9), Range("b", 0, 0, 2)]
