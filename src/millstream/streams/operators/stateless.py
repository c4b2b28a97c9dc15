"""Operators of streams that remember nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TextIO

from millstream.streams.operators.base import Headers, Out, Process, TaskContext


@dataclass(slots=True)
class Filter:
    predicate: Callable[[Any, Any], Any]
    negate: bool = False

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, predicate = out.forward, self.predicate

        def keep(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if predicate(key, value):
                forward(key, value, timestamp, headers)

        def drop(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if not predicate(key, value):
                forward(key, value, timestamp, headers)

        return drop if self.negate else keep


@dataclass(slots=True)
class NullKeys:
    """Before a repartition topic: records without a key have no partition to go to. `keep` lets them pass for
    left and outer joins downstream, which have a use for them."""

    keep: bool = False

    def build(self, task: TaskContext, out: Out) -> Process:
        if self.keep:
            return out.forward
        forward = out.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is not None:
                forward(key, value, timestamp, headers)

        return process


@dataclass(slots=True)
class Map:
    """The mapper gives a pair (key, value)."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, mapper = out.forward, self.mapper

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            key, value = mapper(key, value)
            forward(key, value, timestamp, headers)

        return process


@dataclass(slots=True)
class SelectKey:
    selector: Callable[[Any, Any], Any]

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, selector = out.forward, self.selector

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(selector(key, value), value, timestamp, headers)

        return process


@dataclass(slots=True)
class MapValues:
    """The mapper takes the value, or key and value (`with_key`)."""

    mapper: Callable[..., Any]
    with_key: bool = False

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, mapper = out.forward, self.mapper

        def of_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, mapper(value), timestamp, headers)

        def of_both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, mapper(key, value), timestamp, headers)

        return of_both if self.with_key else of_value


@dataclass(slots=True)
class FlatMap:
    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, mapper = out.forward, self.mapper

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for new_key, new_value in mapper(key, value):
                forward(new_key, new_value, timestamp, headers)

        return process


@dataclass(slots=True)
class FlatMapValues:
    mapper: Callable[..., Iterable[Any]]
    with_key: bool = False

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, mapper = out.forward, self.mapper

        def of_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for item in mapper(value):
                forward(key, item, timestamp, headers)

        def of_both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for item in mapper(key, value):
                forward(key, item, timestamp, headers)

        return of_both if self.with_key else of_value


@dataclass(slots=True)
class Peek:
    action: Callable[[Any, Any], Any]

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, action = out.forward, self.action

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)
            forward(key, value, timestamp, headers)

        return process


@dataclass(slots=True)
class ForEach:
    action: Callable[[Any, Any], Any]

    def build(self, task: TaskContext, out: Out) -> Process:
        action = self.action

        def process(key: Any, value: Any, _timestamp: int, _headers: Headers) -> None:
            action(key, value)

        return process


@dataclass(slots=True)
class Print:
    """`[label]: key, value` to a text stream; standard output when none is given."""

    label: str
    to: TextIO | None = None

    def build(self, task: TaskContext, out: Out) -> Process:
        def process(key: Any, value: Any, _timestamp: int, _headers: Headers) -> None:
            shown_key, shown_value = ("null" if field is None else field for field in (key, value))
            print(f"[{self.label}]: {shown_key}, {shown_value}", file=self.to)

        return process


@dataclass(slots=True)
class Branch:
    """Every record goes to the first branch whose predicate holds, or to the default one, or nowhere."""

    predicates: list[Callable[[Any, Any], Any]] = field(default_factory=list)
    children: list[str] = field(default_factory=list)

    def build(self, task: TaskContext, out: Out) -> Process:
        ways = [out.by_name[name] for name in self.children]
        chosen = list(zip(self.predicates, ways, strict=False))
        default = ways[len(self.predicates)] if len(ways) > len(self.predicates) else None

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for predicate, way in chosen:
                if predicate(key, value):
                    way(key, value, timestamp, headers)
                    return
            if default is not None:
                default(key, value, timestamp, headers)

        return process


@dataclass(slots=True)
class PassOn:
    """Branches, merges: a node that has a name and does nothing."""

    def build(self, task: TaskContext, out: Out) -> Process:
        return out.forward


@dataclass(slots=True)
class NewValueOnly:
    """From a table to a stream: the new value of every change."""

    def build(self, task: TaskContext, out: Out) -> Process:
        forward = out.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value[0], timestamp, headers)

        return process
