"""Logical types: Decimal, Date, Time and Timestamp over bytes and numbers, as Kafka Connect names them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from millstream.connect.data.schema import Schema, Type
from millstream.connect.errors import DataError

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
LOGICAL_NAMES = frozenset({DECIMAL, DATE, TIME, TIMESTAMP})

DATE_SCHEMA = Schema(Type.INT32, name=DATE, version=1)
TIME_SCHEMA = Schema(Type.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA = Schema(Type.INT64, name=TIMESTAMP, version=1)

MILLIS_PER_DAY = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def decimal_schema(scale: int, **attributes: object) -> Schema:
    given = {"name": DECIMAL, "version": 1, "parameters": {"scale": str(scale)}}
    return Schema(Type.BYTES, **(given | attributes))  # type: ignore[arg-type]


def from_millis(millis: int) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        raise DataError(f"{millis} ms since 1970 is outside of the years 1 to 9999") from None


def to_millis(moment: datetime) -> int:
    return (moment - EPOCH) // _MILLISECOND


# --- numbers and bytes, as they are stored ------------------------------------------------------------------


def scale_of(schema: Schema) -> int:
    text = (schema.parameters or {}).get("scale")
    if text is None:
        raise DataError("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError:
        raise DataError("Invalid scale parameter found in Decimal schema: ") from None


def decimal_scale(value: Decimal) -> int:
    """Digits behind the point; below zero where the number ends in so many zeros."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise DataError(f"{value} is not a number")
    return -exponent


def unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    return -number if sign else number


def decimal_to_bytes(schema: Schema, value: Decimal) -> bytes:
    """The unscaled number in two's complement, as few bytes as hold it."""
    scale = scale_of(schema)
    if decimal_scale(value) != scale:
        raise DataError(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {scale}, value has scale {decimal_scale(value)}."
        )
    number = unscaled(value)
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def decimal_from_bytes(schema: Schema, data: bytes) -> Decimal:
    if not data:
        raise DataError("Zero length BigInteger")
    return decimal_from_unscaled(int.from_bytes(data, "big", signed=True), scale_of(schema))


def decimal_from_unscaled(number: int, scale: int) -> Decimal:
    return Decimal((1 if number < 0 else 0, tuple(map(int, str(abs(number)))), -scale))


def date_to_days(value: datetime) -> int:
    millis = to_millis(value)
    if millis % MILLIS_PER_DAY:
        raise DataError("Kafka Connect Date type should not have any time fields set to non-zero values.")
    return millis // MILLIS_PER_DAY


def days_to_date(days: int) -> datetime:
    return from_millis(days * MILLIS_PER_DAY)


def time_to_millis(value: datetime) -> int:
    millis = to_millis(value)
    if not 0 <= millis <= MILLIS_PER_DAY:
        raise DataError("Kafka Connect Time type should not have any date fields set to non-zero values.")
    return millis


def millis_to_time(millis: int) -> datetime:
    if not 0 <= millis <= MILLIS_PER_DAY:
        raise DataError("Time values must use number of milliseconds greater than 0 and less than 86400000")
    return from_millis(millis)
