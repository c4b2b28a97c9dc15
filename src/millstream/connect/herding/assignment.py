"""Which worker runs which connector and which task: a pure function, so that all workers agree.

Each connector and each task prefers the workers in an order of its own (a hash of both names). It goes to the
first that has room: nobody gets more than its share. A worker that comes or goes moves about its share; a new
connector moves little or nothing, and nothing is stopped for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import NamedTuple

CONNECTOR = -1
"""In place of a task's number: the connector itself."""


class Item(NamedTuple):
    connector: str
    task: int


def assign(workers: Collection[str], task_counts: Mapping[str, int]) -> dict[Item, str]:
    """`task_counts` has the tasks of each connector."""
    names = sorted(set(workers))
    if not names:
        return {}
    connectors = [Item(name, CONNECTOR) for name in sorted(task_counts)]
    tasks = [Item(name, number) for name in sorted(task_counts) for number in range(task_counts[name])]
    return _dealt(connectors, names) | _dealt(tasks, names)


def _dealt(items: list[Item], workers: list[str]) -> dict[Item, str]:
    room = dict.fromkeys(workers, -(-len(items) // len(workers)))
    # Those that prefer a worker most get it first, whatever the order of their names.
    wishes = sorted((_preference(item, worker), item, worker) for item in items for worker in workers)
    found: dict[Item, str] = {}
    for _, item, worker in wishes:
        if item not in found and room[worker] > 0:
            found[item] = worker
            room[worker] -= 1
    return found


def _preference(item: Item, worker: str) -> bytes:
    text = f"{item.connector}\0{item.task}\0{worker}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
