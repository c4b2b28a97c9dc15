"""Who gets which partitions in a group of the consumer protocol (KIP-848): the assignors `uniform` and
`range`, as pure functions.

Both are given what each member reads, how many partitions the topics have, and what each member was meant to
have before, and return what each is meant to have now. Members are named in a fixed order, so the outcome
does not depend on chance.

`range` cuts each topic into consecutive pieces, the first members getting one more where it does not come out
even; topics with the same number of partitions are cut the same way, so partition n of all of them goes to
one member.

`uniform` gives every member the same number of partitions, give or take one, and moves as few as it can.
Where members read different topics that is not always possible; then no partition can be moved to a member
that has two fewer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from uuid import UUID

Assignment = dict[UUID, set[int]]  # topic -> partitions
Partition = tuple[UUID, int]
Reads = Mapping[str, Collection[UUID]]  # member -> topics, only such as exist
Assignor = Callable[
    [Reads, Mapping[UUID, int], Mapping[str, Mapping[UUID, Collection[int]]]], dict[str, Assignment]
]

MAX_PASSES = 20  # over all topics, looking for partitions to move; a handful is enough for anything sensible


def assign_range(
    reads: Reads, counts: Mapping[UUID, int], before: Mapping[str, Mapping[UUID, Collection[int]]]
) -> dict[str, Assignment]:
    result: dict[str, Assignment] = {member: {} for member in reads}
    for topic, readers in _readers(reads).items():
        each, more = divmod(counts[topic], len(readers))
        start = 0
        for number, member in enumerate(readers):
            stop = start + each + (1 if number < more else 0)
            if stop > start:
                result[member][topic] = set(range(start, stop))
            start = stop
    return result


def assign_uniform(
    reads: Reads, counts: Mapping[UUID, int], before: Mapping[str, Mapping[UUID, Collection[int]]]
) -> dict[str, Assignment]:
    if not reads:
        return {}
    kept = {member: _still_valid(before.get(member, {}), reads[member], counts) for member in reads}
    _drop_doubles(kept)
    topics = [frozenset(topics) for topics in reads.values()]
    if all(each == topics[0] for each in topics):
        return _everybody_reads_the_same(kept, {topic: counts[topic] for topic in topics[0]})
    return _everybody_reads_something_else(reads, counts, kept)


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


# --- all members read the same topics -------------------------------------------------------------


def _everybody_reads_the_same(
    kept: dict[str, list[Partition]], counts: Mapping[UUID, int]
) -> dict[str, Assignment]:
    quota, more = divmod(sum(counts.values()), len(kept))
    # Places for one more go first to those who have one more already.
    by_load = sorted(kept, key=lambda member: -len(kept[member]))
    share = {member: quota + (1 if number < more else 0) for number, member in enumerate(by_load)}
    result: dict[str, Assignment] = {member: {} for member in kept}
    taken: set[Partition] = set()
    for member, partitions in kept.items():
        for partition in partitions[: share[member]]:
            result[member].setdefault(partition[0], set()).add(partition[1])
            taken.add(partition)
            share[member] -= 1
    hungry = iter([member for member in kept for _ in range(share[member])])
    for topic, count in counts.items():
        for index in range(count):
            if (topic, index) not in taken:
                result[next(hungry)].setdefault(topic, set()).add(index)
    return result


# --- members read different topics ----------------------------------------------------------------


def _everybody_reads_something_else(
    reads: Reads, counts: Mapping[UUID, int], kept: dict[str, list[Partition]]
) -> dict[str, Assignment]:
    result: dict[str, Assignment] = {member: {} for member in reads}
    load = dict.fromkeys(reads, 0)
    taken: set[Partition] = set()
    for member, partitions in kept.items():
        for topic, index in partitions:
            result[member].setdefault(topic, set()).add(index)
            taken.add((topic, index))
        load[member] = len(partitions)
    readers = _readers(reads)
    # Topics with few readers leave the least choice, so they go first.
    for topic in sorted(readers, key=lambda each: len(readers[each])):
        free = [index for index in range(counts[topic]) if (topic, index) not in taken]
        if free:
            heap = [(load[member], number, member) for number, member in enumerate(readers[topic])]
            heapq.heapify(heap)
            for index in free:
                _, number, member = heap[0]
                result[member].setdefault(topic, set()).add(index)
                load[member] += 1
                heapq.heapreplace(heap, (load[member], number, member))
    for _ in range(MAX_PASSES):
        if not sum(_even_out(topic, members, result, load) for topic, members in readers.items()):
            break
    return result


def _even_out(topic: UUID, members: list[str], result: dict[str, Assignment], load: dict[str, int]) -> int:
    """Move partitions of a topic from its busiest readers to its idlest while that makes them more even."""
    owners = [(-load[member], number) for number, member in enumerate(members) if result[member].get(topic)]
    idle = [(load[member], number) for number, member in enumerate(members)]
    heapq.heapify(owners)
    heapq.heapify(idle)
    moved = 0
    while owners:
        busy = members[owners[0][1]]
        idlest = members[idle[0][1]]
        if -owners[0][0] != load[busy] or not result[busy].get(topic):
            _, number = heapq.heappop(owners)
            if result[busy].get(topic):
                heapq.heappush(owners, (-load[busy], number))
            continue
        if idle[0][0] != load[idlest]:
            heapq.heapreplace(idle, (load[idlest], idle[0][1]))
            continue
        if load[busy] - load[idlest] < 2:
            break
        index = result[busy][topic].pop()
        if not result[busy][topic]:
            del result[busy][topic]
        result[idlest].setdefault(topic, set()).add(index)
        load[busy] -= 1
        load[idlest] += 1
        moved += 1
    return moved


# --- for both -------------------------------------------------------------------------------------


def _readers(reads: Reads) -> dict[UUID, list[str]]:
    """The readers of each topic, in the order of the members."""
    readers: dict[UUID, list[str]] = {}
    for member, topics in reads.items():
        for topic in topics:
            readers.setdefault(topic, []).append(member)
    return readers


def _still_valid(
    before: Mapping[UUID, Collection[int]], reads: Collection[UUID], counts: Mapping[UUID, int]
) -> list[Partition]:
    """What a member had and may keep: it still reads the topic, and the partition is still there."""
    return [
        (topic, index)
        for topic, indexes in before.items()
        if topic in reads
        for index in sorted(indexes)
        if index < counts[topic]
    ]


def _drop_doubles(kept: dict[str, list[Partition]]) -> None:
    """Nothing may have two owners, not even if it had before."""
    seen: set[Partition] = set()
    for member, partitions in kept.items():
        kept[member] = [each for each in partitions if each not in seen]
        seen.update(partitions)
