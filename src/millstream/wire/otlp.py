"""OpenTelemetry's metrics, as clients push them (KIP-714): just enough protobuf to read `MetricsData` v1.

    MetricsData      1 resource_metrics
    ResourceMetrics  1 resource (1 attributes), 2 scope_metrics
    ScopeMetrics     2 metrics
    Metric           1 name, 5 gauge (1 data_points), 7 sum (1 data_points, 2 aggregation_temporality)
    NumberDataPoint  7 attributes, 4 as_double, 6 as_int (a sfixed64)
    KeyValue         1 key, 2 value (1 text, 2 bool, 3 int, 4 double)

Kafka's clients send gauges and sums; histograms and summaries are left out, as are units, descriptions,
times and exemplars. The bytes come from outside: every field that is looked at is counted, a message that has
too many is refused (`Malformed`), and no more points are returned than asked for.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from millstream.wire.varint import Malformed, read_uvarlong

MAX_FIELDS = 200_000  # of a whole message; a point of a client has about 20
MAX_ATTRIBUTES = 16  # of a point, and of a resource
MAX_TEXT = 256  # characters of a name or a value

_DOUBLE = struct.Struct("<d")
_SFIXED64 = struct.Struct("<q")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63

Attributes = tuple[tuple[str, str], ...]


class Kind(IntEnum):
    GAUGE = 0
    DELTA = 1  # the growth of a sum since it was last sent
    CUMULATIVE = 2


class Point(NamedTuple):
    name: str
    kind: Kind
    value: float
    attributes: Attributes


class Metrics(NamedTuple):
    """What a client pushed; `left_out` points were more than asked for."""

    resource: Attributes
    points: list[Point]
    left_out: int


def read_metrics(data: bytes | bytearray | memoryview, max_points: int) -> Metrics:
    """Malformed (or an IndexError) if these are not metrics."""
    reader = _Reader(max_points)
    reader.metrics_data(memoryview(data))
    return Metrics(tuple(reader.resource.items()), reader.points, reader.left_out)


class _Reader:
    def __init__(self, max_points: int) -> None:
        self.resource: dict[str, str] = {}
        self.points: list[Point] = []
        self.left_out = 0
        self._max_points = max_points
        self._fields = MAX_FIELDS

    def metrics_data(self, data: memoryview) -> None:
        for resource_metrics in self._messages(data, 1):
            for number, value in self._fields_of(resource_metrics):
                if number == 1 and isinstance(value, memoryview):
                    for attribute in self._messages(value, 1):
                        if len(self.resource) < MAX_ATTRIBUTES:
                            self.resource.update((self._attribute(attribute),))
                elif number == 2 and isinstance(value, memoryview):
                    for metric in self._messages(value, 2):
                        self._metric(metric)

    def _metric(self, data: memoryview) -> None:
        name = ""
        found: list[tuple[int, memoryview]] = []
        for number, value in self._fields_of(data):
            if isinstance(value, memoryview):
                if number == 1:
                    name = _text(value)
                elif number in (5, 7):
                    found.append((number, value))
        for number, value in found:
            kind = Kind.GAUGE
            points = []
            for field, content in self._fields_of(value):
                if field == 1 and isinstance(content, memoryview):
                    points.append(content)
                elif field == 2 and number == 7:
                    kind = Kind.DELTA if content == 1 else Kind.CUMULATIVE
            for point in points:
                self._point(name, kind, point)

    def _point(self, name: str, kind: Kind, data: memoryview) -> None:
        if len(self.points) >= self._max_points:
            self.left_out += 1
            return
        amount: float | None = None
        attributes: dict[str, str] = {}
        for number, value in self._fields_of(data):
            if isinstance(value, memoryview):
                if number == 7 and len(attributes) < MAX_ATTRIBUTES:
                    attributes.update((self._attribute(value),))
                elif number == 4 and len(value) == 8:
                    amount = _DOUBLE.unpack(value)[0]
                elif number == 6 and len(value) == 8:
                    amount = _SFIXED64.unpack(value)[0]
        if amount is not None and name:
            self.points.append(Point(name, kind, amount, tuple(attributes.items())))

    def _attribute(self, data: memoryview) -> tuple[str, str]:
        key = text = ""
        for number, value in self._fields_of(data):
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                key = _text(value)
            elif number == 2:
                for kind, content in self._fields_of(value):
                    if kind == 1 and isinstance(content, memoryview):
                        text = _text(content)
                    elif kind == 2:
                        text = "true" if content else "false"
                    elif kind == 3 and isinstance(content, int):
                        text = str(content - 2 * _SIGN if content & _SIGN else content)
                    elif kind == 4 and isinstance(content, memoryview) and len(content) == 8:
                        text = str(_DOUBLE.unpack(content)[0])
        return key, text

    def _messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, value in self._fields_of(data):
            if number == wanted and isinstance(value, memoryview):
                yield value

    def _fields_of(self, data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        """Numbers of fields with their values: a number for a varint, the bytes of all others."""
        at, end = 0, len(data)
        while at < end:
            self._fields -= 1
            if self._fields < 0:
                raise Malformed(f"more than {MAX_FIELDS} fields")
            tag, at = read_uvarlong(data, at)
            wire_type = tag & 7
            if wire_type == _VARINT:
                value, at = read_uvarlong(data, at)
                yield tag >> 3, value
                continue
            if wire_type == _BYTES:
                size, at = read_uvarlong(data, at)
            elif wire_type in (_FIXED64, _FIXED32):
                size = 8 if wire_type == _FIXED64 else 4
            else:
                raise Malformed(f"a field of the unknown type {wire_type}")
            if size > end - at:
                raise Malformed(f"a field of {size} bytes, where {end - at} are left")
            yield tag >> 3, data[at : at + size]
            at += size


def _text(data: memoryview) -> str:
    return str(data[: 4 * MAX_TEXT], "utf-8", "replace")[:MAX_TEXT]
