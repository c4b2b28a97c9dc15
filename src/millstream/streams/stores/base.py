"""The stores as operators see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from millstream.streams.serdes import Serde

StoreType = Literal["key-value", "window", "session", "outer-join", "suppress", "versioned", "join-buffer"]
SEGMENT_AT_LEAST = 60_000
NEWEST, NOT_PUT = -1, -(1 << 63)
"""What `put_version` of a versioned store gives for a record that nothing newer follows, and for one that
came too late."""
Row = tuple[Any, int]
"""A value and its timestamp."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class StoreSpec:
    """What a store is, before any task opened one.

    retention   windows and sessions older than this (by the newest one seen) are gone
    duplicates  a window store keeps every value of a key and instant, not the last one (joins do)
    logged      it has a changelog topic
    final       windows of an aggregation that sends final results; they are kept a millisecond longer, as in
                Kafka Streams
    source_topic  the topic that the store is a copy of: it is restored from there, and nothing is written
    user        made by the application for its own processors, not by the DSL
    """

    name: str
    type: StoreType
    key: Serde
    value: Serde
    retention: int = 0
    window_size: int = 0
    duplicates: bool = False
    logged: bool = True
    final: bool = False
    user: bool = False
    other_value: Serde | None = None
    config: dict[str, str] = field(default_factory=dict)
    processors: list[str] = field(default_factory=list)
    source_topic: str | None = None

    @property
    def restored(self) -> bool:
        """Whether a topic brings it back."""
        return self.logged or self.source_topic is not None

    def changelog(self, application: str) -> str:
        if self.source_topic is not None:
            return self.source_topic
        return f"{application}-{self.name}-changelog"


def segment(spec: StoreSpec, time: int) -> int:
    """Kafka's persistent stores keep windows (by start) and sessions (by end) in segments of time, and scan
    one after the other; inside a segment they go by the bytes of key, time and number."""
    return time // max(spec.retention // 2, SEGMENT_AT_LEAST)


LogRecord = tuple[bytes, bytes | None, int]
"""(key, value, timestamp): one record for a changelog topic; no value is a tombstone."""


class Store(Protocol):
    spec: StoreSpec
    encode: Callable[[Any], bytes]
    """A key's bytes."""
    decode: Callable[[bytes], Any]

    def drain(self) -> list[LogRecord]:
        """What changed since the last time, for the changelog."""

    def restore(self, records: Iterable[LogRecord]) -> None:
        """What a changelog holds, in its order."""


class RowStore(Store, Protocol):
    """Rows by their bytes, many at once. A row key is its key in the changelog; a row is its
    timestamp and its value."""

    def read_rows(self, row_keys: list[bytes]) -> list[bytes | None]: ...

    def write_rows(self, row_keys: list[bytes], rows: list[bytes | None], stamps: list[int]) -> None: ...


class KeyValueStore(RowStore, Protocol):
    def get(self, key: bytes) -> Row | None: ...

    def put(self, key: bytes, value: Any, timestamp: int) -> None:
        """No value removes the row."""

    def range(
        self, first: bytes | None, last: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any, int]]:
        """Rows in the order of their keys, both ends included; the other way round if asked for."""

    def __len__(self) -> int: ...


class WindowStore(RowStore, Protocol):
    oldest: int
    """The first start that has not expired."""

    def add_rows(self, keys: list[bytes | None], starts: list[int], bodies: list[bytes | None]) -> None:
        """Of a store with duplicates: many `put`s, values as bytes."""

    def saw(self, newest: int) -> None:
        """After `write_rows`: the newest start among them."""

    def fetch_one(self, key: bytes, start: int) -> Row | None: ...

    def fetch(self, key: bytes, first: int, last: int) -> list[tuple[int, Row]]:
        """Windows of a key whose starts lie within, both ends included, ascending; the expired ones are not
        there."""

    def fetch_all(self, first: int, last: int) -> list[tuple[bytes, int, Row]]:
        """The same for all keys, by start and key."""

    def scan(
        self, first_key: bytes | None, last_key: bytes | None, first: int, last: int
    ) -> list[tuple[bytes, int, Row]]:
        """The same for a range of keys, in the order of Kafka's stores: see `segment`."""

    def put(self, key: bytes, start: int, value: Any, timestamp: int) -> None: ...


class SessionStore(Store, Protocol):
    def find(self, key: bytes, earliest_end: int, latest_start: int) -> list[tuple[int, int, Any]]:
        """(start, end, value) of the key's sessions that end not before and start not after, by end and
        start."""

    def find_all(self, earliest_end: int, latest_end: int) -> list[tuple[bytes, int, int, Any]]:
        """(key, start, end, value) of sessions that end within, by end, key and start; also of expired ones,
        if they are still there."""

    def scan(
        self, first_key: bytes | None, last_key: bytes | None, earliest_end: int, latest_start: int
    ) -> list[tuple[bytes, int, int, Any]]:
        """As `find`, for a range of keys, in the order of Kafka's stores: see `segment`."""

    def fetch_one(self, key: bytes, start: int, end: int) -> Any: ...

    def put(self, key: bytes, start: int, end: int, value: Any) -> None: ...


class OuterJoinStore(Store, Protocol):
    """Records of a stream-stream join that still wait for a partner, in the order of (time, right before
    left, key)."""

    def add(self, timestamp: int, is_left: bool, key: bytes, value: Any) -> None: ...

    def remove(self, timestamp: int, is_left: bool, key: bytes) -> None: ...

    def waiting(self) -> Iterator[tuple[int, bool, bytes, list[Any]]]: ...


class Buffered(NamedTuple):
    """A row held back: what is new, what was sent last (`prior`), and the record that brought the newest
    update."""

    key: bytes
    new: Any
    old: Any
    timestamp: int
    headers: Headers
    context: Any
    size: int


class SuppressBuffer(Store, Protocol):
    bytes_held: int

    def put(
        self, time: int, key: bytes, change: tuple[Any, Any], timestamp: int, headers: Headers, context: Any
    ) -> None: ...

    def prior(self, key: bytes) -> tuple[bool, Any]:
        """Whether the key is held back, and the value that was sent before."""

    def least_time(self) -> int | None: ...

    def pop(self) -> Buffered: ...

    def __len__(self) -> int: ...
