"""Aggregations by key and window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millstream.streams.dsl.grouped import KGroupedStream
from millstream.streams.dsl.options import Materialized
from millstream.streams.dsl.table import KTable
from millstream.streams.errors import TopologyError
from millstream.streams.operators.aggregates import SessionAggregate, WindowAggregate, count_one
from millstream.streams.operators.sliding import SlidingAggregate
from millstream.streams.serdes import LONG, Serde, session_windowed, time_windowed
from millstream.streams.stores import StoreSpec
from millstream.streams.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windowed,
)

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
AnyTimeWindows = TimeWindows | SlidingWindows | UnlimitedWindows


def window_spec(
    grouped: KGroupedStream[Any, Any],
    windows: AnyTimeWindows,
    store: str,
    kept: Materialized,
    value: Serde | None,
    final: bool = False,
) -> StoreSpec:
    """The store of time windows: kept as long as a late record may still change them."""
    if not isinstance(windows, SlidingWindows):
        size, open_for = windows.size, windows.size + windows.grace_ms
    else:
        size, open_for = windows.difference, 2 * windows.difference + windows.grace_ms
    return StoreSpec(
        store,
        "window",
        kept.key or grouped._key or grouped._defaults.key,
        kept.value or value or grouped._defaults.value,
        kept.retained(open_for),
        window_size=size,
        final=final,
        logged=kept.logged,
        config=dict(kept.config),
    )


def session_spec(
    grouped: KGroupedStream[Any, Any],
    windows: SessionWindows,
    store: str,
    kept: Materialized,
    value: Serde | None,
) -> StoreSpec:
    return StoreSpec(
        store,
        "session",
        kept.key or grouped._key or grouped._defaults.key,
        kept.value or value or grouped._defaults.value,
        kept.retained(windows.gap + windows.grace_ms),
        logged=kept.logged,
        config=dict(kept.config),
    )


def window_operator(
    windows: AnyTimeWindows,
    store: str,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    final: bool = False,
) -> WindowAggregate | SlidingAggregate:
    operator = SlidingAggregate if isinstance(windows, SlidingWindows) else WindowAggregate
    return operator(windows, store, initializer, aggregator, final)  # type: ignore[arg-type]


class TimeWindowedKStream(Generic[K, V]):
    """Tumbling, hopping, sliding and unlimited windows. `emit_final()` sends each window once, when it has
    closed."""

    def __init__(self, grouped: KGroupedStream[K, V], windows: AnyTimeWindows, final: bool = False) -> None:
        self._grouped, self._windows, self._final = grouped, windows, final

    def emit_final(self) -> TimeWindowedKStream[K, V]:
        return self.emit_strategy(EmitStrategy.on_window_close())

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        if strategy.final and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError("windows without an end never close")
        return TimeWindowedKStream(self._grouped, self._windows, strategy.final)

    def count(
        self, *, name: str | None = None, materialized: Materialized | str | None = None
    ) -> KTable[Windowed, int]:
        counting = not isinstance(self._windows, SlidingWindows)
        name, store, kept = self._grouped._named("KSTREAM-AGGREGATE-", name, materialized, counting=counting)
        return self._to_table(name, store, kept, LONG, int, count_one)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[Windowed, V]:
        name, store, kept = self._grouped._named("KSTREAM-REDUCE-", name, materialized)
        return self._to_table(
            name, store, kept, self._grouped._value, nothing_yet, reducer_as_aggregator(reducer)
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[Windowed, A]:
        name, store, kept = self._grouped._named("KSTREAM-AGGREGATE-", name, materialized)
        return self._to_table(name, store, kept, None, initializer, aggregator)

    def _to_table(
        self,
        name: str,
        store: str,
        kept: Materialized,
        value: Serde | None,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> KTable[Any, Any]:
        spec = window_spec(self._grouped, self._windows, store, kept, value, self._final)
        operator = window_operator(self._windows, store, initializer, aggregator, self._final)
        return self._grouped._to_table(name, operator, spec, time_windowed(spec.key, spec.window_size))


class SessionWindowedKStream(Generic[K, V]):
    def __init__(self, grouped: KGroupedStream[K, V], windows: SessionWindows, final: bool = False) -> None:
        self._grouped, self._windows, self._final = grouped, windows, final

    def emit_final(self) -> SessionWindowedKStream[K, V]:
        return self.emit_strategy(EmitStrategy.on_window_close())

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        return SessionWindowedKStream(self._grouped, self._windows, strategy.final)

    def count(
        self, *, name: str | None = None, materialized: Materialized | str | None = None
    ) -> KTable[Windowed, int]:
        name, store, kept = self._grouped._named("KSTREAM-AGGREGATE-", name, materialized, counting=True)
        return self._to_table(name, store, kept, LONG, int, count_one, add_counts)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[Windowed, V]:
        name, store, kept = self._grouped._named("KSTREAM-REDUCE-", name, materialized)
        aggregator = reducer_as_aggregator(reducer)

        def merger(key: Any, one: Any, other: Any) -> Any:
            return aggregator(key, other, one)

        return self._to_table(name, store, kept, self._grouped._value, nothing_yet, aggregator, merger)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[Windowed, A]:
        """`merger(key, one, other)` makes one aggregate of two sessions that turned out to be one."""
        name, store, kept = self._grouped._named("KSTREAM-AGGREGATE-", name, materialized)
        return self._to_table(name, store, kept, None, initializer, aggregator, merger)

    def _to_table(
        self,
        name: str,
        store: str,
        kept: Materialized,
        value: Serde | None,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any],
    ) -> KTable[Any, Any]:
        spec = session_spec(self._grouped, self._windows, store, kept, value)
        operator = SessionAggregate(self._windows, store, initializer, aggregator, merger, self._final)
        return self._grouped._to_table(name, operator, spec, session_windowed(spec.key))


def add_counts(_key: Any, one: int, other: int) -> int:
    return one + other


def nothing_yet() -> None:
    """What a reduction starts from."""


def reducer_as_aggregator(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def aggregator(_key: Any, value: Any, so_far: Any) -> Any:
        return value if so_far is None else reducer(so_far, value)

    return aggregator
