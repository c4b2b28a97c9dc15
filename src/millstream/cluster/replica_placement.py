"""Where the replicas of new partitions go: round robin over brokers, replicas of one partition on different
racks.

The brokers are put in an order that alternates between racks. Partition after partition takes the next broker
of that order as its leader; its followers are the brokers after it, racks not yet used first. Each time the
leaders have gone once around, the followers shift by one, so that a dead broker's load spreads over all
others.
"""

from collections.abc import Iterable, Mapping


def alternate_racks(racks: Mapping[int, str | None]) -> list[int]:
    """Broker ids in an order in which neighbours are on different racks as long as that is possible."""
    by_rack: dict[str | None, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    queues = [by_rack[rack] for rack in sorted(by_rack, key=lambda rack: (rack is not None, rack or ""))]
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def assign_replicas(
    racks: Mapping[int, str | None], partitions: int, replicas: int, start: int
) -> Iterable[tuple[int, ...]]:
    """The replicas of each partition, leader first. Needs at least `replicas` brokers; `start` is any
    number."""
    order = alternate_racks(racks)
    count = len(order)
    made: dict[tuple[int, int], tuple[int, ...]] = {}
    for number in range(partitions):
        first = (start + number) % count
        shift = (number // count) % max(count - 1, 1)
        chosen = made.get((first, shift))
        if chosen is None:
            chosen = made[first, shift] = _one(order, racks, first, shift, replicas)
        yield chosen


def _one(
    order: list[int], racks: Mapping[int, str | None], first: int, shift: int, replicas: int
) -> tuple[int, ...]:
    count = len(order)
    chosen = [order[first]]
    others = [order[(first + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1)]
    used = {racks[order[first]]}
    while len(chosen) < replicas:
        pick = next((broker for broker in others if racks[broker] not in used), None)
        if pick is None:  # every rack has one: begin another round of racks
            used = set()
            pick = others[0]
        others.remove(pick)
        chosen.append(pick)
        used.add(racks[pick])
    return tuple(chosen)
