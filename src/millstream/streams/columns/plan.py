"""Which part of a topology runs on blocks, and running it.

Behind one source, every operator up to the sinks has to be one that `operators` knows, no store may be used
by two of them, and no topic written by two: then block after block gives what record after record would, in
the same order. Records with headers, with a timestamp below 0, timestamp extractors and timers by stream time
are left to the operators that take one record at a time; so is what follows a count, when that is not known
here: the count itself is still done for the whole block.

If anything goes wrong in a block before something was changed, its records go one by one, where errors are
dealt with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from millstream.streams.columns.blocks import (
    Block,
    ColumnFormat,
    Records,
    Shape,
    objects,
    opened,
    stays_bytes,
    to_bytes,
)
from millstream.streams.columns.operators import Later, answers_of
from millstream.streams.columns.stateful import made
from millstream.streams.operators.base import Process
from millstream.streams.operators.stateless import Branch

log = logging.getLogger("millstream.streams")

CollectColumns = Callable[[str, Any, Any, Any, int], None]
"""(topic, keys, values, timestamps, how many bytes of a key are its window): Arrow arrays of bytes, and
numpy's."""
Step = Callable[[Block, Later], None]
_FEWEST = 16
"""Fewer records are done sooner one by one."""


class ColumnPlan:
    """The nodes behind one source, on blocks. `for_source` gives None where there is no way."""

    def __init__(self, step: Step, key: ColumnFormat, value: ColumnFormat) -> None:
        self._step, self._key, self._value = step, key, value

    @classmethod
    def for_source(cls, task: Any, name: str) -> ColumnPlan | None:
        node = task.topology.nodes[name]
        if node.timestamps is not None or not _apart(task.topology, name):
            return None
        topic = task.topology.internal_name(node.topics[0] if node.topics else name, task.application)
        given = []
        for serde in (node.key or task.topology.key, node.value or task.topology.value):
            given.append(ColumnFormat(serde, serde.reader(topic)))
        # A column that does not stay as bytes is opened into objects, which have no serde any more.
        formats = [
            one if stays_bytes(one.serde) else ColumnFormat() for one in given if one.serde is not None
        ]
        step = _children(task, name, Shape(formats[0], formats[1]))
        return None if step is None else cls(step, given[0], given[1])

    def run(self, records: Records) -> bool:
        """Whether it could be done. If not, nothing has changed."""
        if len(records) < _FEWEST or records.headers is not None or int(records.stamps.min()) < 0:
            return False
        later: Later = []
        try:
            keys, values = opened(records.keys, self._key), opened(records.values, self._value)
            block = Block(keys, values, records.stamps, np.arange(len(records)))
            self._step(block, later)
        except (
            Exception
        ) as error:  # whatever it is: one by one it happens again, at the record that it belongs to
            log.debug("a block goes record by record: %s: %s", type(error).__name__, error)
            return False
        for change in later:
            change()
        return True


def _apart(topology: Any, source: str) -> bool:
    """Whether no two nodes behind a source meet in a store or a topic."""
    reached, ahead = [], [source]
    while ahead:
        name = ahead.pop()
        if name in reached:
            return False  # two ways lead here: their records would come in another order
        reached.append(name)
        ahead.extend(topology.nodes[name].children)
    nodes = [topology.nodes[name] for name in reached]
    stores = [store for node in nodes for store in node.stores]
    topics = [topic for node in nodes if node.type == "sink" for topic in node.topics]
    return len(stores) == len(set(stores)) and len(topics) == len(set(topics))


def _children(task: Any, name: str, shape: Shape) -> Step | None:
    steps = []
    for child in task.topology.nodes[name].children:
        step = _step(task, child, shape)
        if step is None:
            return None
        steps.append(step)
    if len(steps) == 1:
        return steps[0]

    def every(block: Block, later: Later) -> None:
        for step in steps:
            step(block, later)

    return every


def _step(task: Any, name: str, shape: Shape) -> Step | None:
    node = task.topology.nodes[name]
    if node.type == "sink":
        return _sink(task, node, shape)
    if isinstance(node.operator, Branch):
        return _branches(task, node.operator, shape)
    found = made(node.operator, task, shape)
    if found is None:
        return None
    run, children = found.run, _children(task, name, found.shape)
    if children is None and found.keeps_state:
        children = _one_by_one(task, name, found.shape)
    if children is None:
        return None
    follow = children

    def step(block: Block, later: Later) -> None:
        block = run(block, later)
        if len(block):
            follow(block, later)

    return step


def _branches(task: Any, operator: Branch, shape: Shape) -> Step | None:
    """Every branch has the records that it takes; only records that no earlier branch took are tested."""
    answers = [answers_of(predicate, shape) for predicate in operator.predicates]
    ways = [_step(task, child, shape) for child in operator.children]
    if any(way is None for way in ways):
        return None

    def step(block: Block, later: Later) -> None:
        for number, way in enumerate(ways):
            assert way is not None
            mask = answers[number](block) if number < len(answers) else np.ones(len(block), np.bool_)
            if mask.any():
                way(block.choose(mask), later)
            block = block.choose(~mask)
            if not len(block):
                return

    return step


def _one_by_one(task: Any, name: str, shape: Shape) -> Step:
    """What follows a node that keeps state and is not known here: after the state, each record on its own."""
    forward: Process = task.forwards[name]

    def step(block: Block, later: Later) -> None:
        keys, values = objects(block.keys, shape.key), objects(block.values, shape.value)
        if shape.is_table:
            values = [(value, None) for value in values]
        stamps, rows = block.stamps.tolist(), block.rows.tolist()
        later.append(lambda: task.forward_rows(forward, keys, values, stamps, rows))

    return step


def _sink(task: Any, node: Any, shape: Shape) -> Step | None:
    if node.topic_choice is not None or node.partitioner is not None or shape.is_table:
        return None
    topic = task.topology.internal_name(node.topics[0], task.application)
    key, value = node.key or task.topology.key, node.value or task.topology.value
    write_key, write_value = key.writer(topic), value.writer(topic)
    collect, collect_columns = task.collect, task.collect_columns

    def step(block: Block, later: Later) -> None:
        keys = to_bytes(block.keys, shape.key, key, write_key)
        values = to_bytes(block.values, shape.value, value, write_value)

        def send() -> None:
            if collect_columns is not None:
                collect_columns(topic, keys, values, block.stamps, key.window_bytes)
                return
            for row in zip(keys.to_pylist(), values.to_pylist(), block.stamps.tolist(), strict=True):
                collect(topic, *row, (), None)

        later.append(send)

    return step
