"""OpenTelemetry's metrics: what clients of Kafka send is read, anything else is refused within bounds."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.wire.otlp import MAX_ATTRIBUTES, MAX_FIELDS, MAX_TEXT, Kind, Metrics, Point, read_metrics
from millstream.wire.varint import Malformed, uvarint
from tests.support.effort import examples
from tests.support.otlp import attribute, field, gauge, metrics_data, number, sum_of


def test_gauges_sums_and_attributes() -> None:
    data = metrics_data(
        gauge("lag", 7.5, topic="orders", partition=3),
        sum_of("sent", -4, delta=True),
        sum_of("bytes", 12, delta=False),
        resource={"group_id": "billing"},
    )
    assert read_metrics(data, 10) == Metrics(
        (("group_id", "billing"),),
        [
            Point("lag", Kind.GAUGE, 7.5, (("topic", "orders"), ("partition", "3"))),
            Point("sent", Kind.DELTA, -4, ()),
            Point("bytes", Kind.CUMULATIVE, 12, ()),
        ],
        0,
    )


def test_attributes_of_every_type() -> None:
    """Negative numbers are varints of ten bytes."""
    data = metrics_data(gauge("m", 1.0, a=True, b=False, c=-1, d=0.5, e="text", f=1 << 62))
    (point,) = read_metrics(data, 10).points
    assert dict(point.attributes) == {
        "a": "true",
        "b": "false",
        "c": "-1",
        "d": "0.5",
        "e": "text",
        "f": str(1 << 62),
    }


def test_what_is_not_known_is_skipped() -> None:
    histogram = field(1, b"h") + field(9, field(1, field(7, b"")))
    known = gauge("m", 1.0) + field(3, b"unit") + b"\x9d\x06\x01\x02\x03\x04"  # field 99, four bytes
    data = metrics_data(histogram, known) + field(15, b"future")
    assert [point.name for point in read_metrics(data, 10).points] == ["m"]


def test_no_more_points_texts_and_attributes_than_allowed() -> None:
    many = {f"a{index}": "v" for index in range(MAX_ATTRIBUTES + 5)}
    data = metrics_data(gauge("x" * 5000, 1.0, **many), *[gauge(f"m{i}", 1.0) for i in range(9)])
    found = read_metrics(data, 4)
    assert len(found.points) == 4
    assert found.left_out == 6
    assert len(found.points[0].name) == MAX_TEXT
    assert len(found.points[0].attributes) == MAX_ATTRIBUTES


def test_a_message_of_very_many_fields_is_refused() -> None:
    with pytest.raises(Malformed, match="fields"):
        read_metrics(number(3, 0) * (MAX_FIELDS + 1), 10)
    # Also where they are spread over messages.
    with pytest.raises(Malformed, match="fields"):
        read_metrics(metrics_data(*[gauge("m", 1.0) + number(9, 0) * 100] * (MAX_FIELDS // 100)), 10)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",  # a field longer than the message
        b"\x0b",  # a group
        b"\x08" + b"\xff" * 11,  # a varint of eleven bytes
        b"\x08" + b"\xff" * 9 + b"\x7f",  # one of more than 64 bits
        b"\x08\xff",  # one that ends in the middle
        field(1, b"\x0a\xff"),
    ],
)
def test_bad_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((Malformed, IndexError)):
        read_metrics(data, 10)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_any_bytes_are_read_or_refused(noise: bytes, at: int, byte: int) -> None:
    whole = bytearray(metrics_data(gauge("m", 1.0, topic="t"), sum_of("s", 1, delta=True)))
    whole[at % len(whole)] = byte
    for data in (noise, bytes(whole), bytes(whole[: at % len(whole)])):
        try:
            found = read_metrics(data, 5)
        except (Malformed, IndexError):
            continue
        assert len(found.points) <= 5


def test_not_a_number_stays_one() -> None:
    point = field(1, field(7, attribute("k", "v")) + b"\x21" + struct.pack("<d", float("nan")))
    (found,) = read_metrics(metrics_data(field(1, b"m") + field(5, point)), 5).points
    assert found.value != found.value


def test_lengths_are_varints() -> None:
    assert field(1, b"x" * 300)[1:3] == uvarint(300)
