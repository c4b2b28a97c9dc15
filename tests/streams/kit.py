"""What the topologies of the vectors are made of: functions and windows as the Java side has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.streams import (
    JoinWindows,
    KTable,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
)
from millstream.streams.serdes import STRING

Build = Callable[[StreamsBuilder], Any]
BUILDS: dict[str, Build] = {}
CONFIGS: dict[str, dict[str, str]] = {}
"""What `build` is given, where it is given something."""


def topology(build: Build) -> Build:
    BUILDS[build.__name__] = build
    return build


def text(value: Any) -> str:
    """As Java writes it into a text."""
    return "null" if value is None else str(value)


def first(value: str | None) -> str | None:
    return value[0] if value else None


def letters(value: str | None) -> list[str]:
    return list(value or "")


def even(value: str | None) -> bool:
    return value is not None and len(value) % 2 == 0


def both(left: Any, right: Any) -> str:
    return f"{text(left)}/{text(right)}"


def plus(so_far: str, value: str | None) -> str:
    return f"{so_far}+{text(value)}"


def out(table: KTable[Any, Any]) -> None:
    table.to_stream().to("out")


def windowed(table: KTable[Any, Any]) -> None:
    table.to_stream(lambda key, _: f"{key.key}@{key.window.start}/{key.window.end}").to("out", key=STRING)


TUMBLING = TimeWindows.of_size(50).grace(20)
STRICT = TimeWindows.of_size(40)
HOPPING = TimeWindows.of_size(50).grace(30).advance_by(20)
SLIDING = SlidingWindows.of(30).grace(25)
SESSIONS = SessionWindows.of(15).grace(20)
EVEN = JoinWindows.of(20).grace(15)
SKEWED = JoinWindows.of(10).grace(5).before(30).after(5)
AFTER = JoinWindows.of(0).after(25)
NAMED = {"name": "pairs", "store_name": "kept", "key_serde": STRING}


def rekeyed(b: StreamsBuilder, topic: str) -> Any:
    return b.stream(topic).select_key(lambda k, v: first(v))


def by_letter(b: StreamsBuilder, **options: Any) -> Any:
    return b.stream("in").group_by(lambda k, v: first(v), **options)


def grouped(b: StreamsBuilder) -> Any:
    return b.stream("in").group_by_key()
