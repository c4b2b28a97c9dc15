"""Which folder a record belongs to: Confluent's partitioners.

A path below the topic's own folder is made of `name=value` segments: the Kafka partition, fields of the
record, or its time. Time patterns are Joda's, in which Y is the year (in SimpleDateFormat the week's year).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.connect.config.config_def import ConfigError
from millstream.connect.data.java_names import to_string
from millstream.connect.data.logical import to_millis
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.simple_date_format import SimpleDateFormat
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
DAILY_FORMAT = "'year'=YYYY/'month'=MM/'day'=dd"
HOURLY_FORMAT = f"{DAILY_FORMAT}/'hour'=HH"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_NO_FOLDER = frozenset({".", ".."})

Clock = Callable[[], int]
"""The time that counts for records of a wall-clock partitioner, in ms."""


def now_ms() -> int:
    return int(time.time() * 1000)


def escaped(text: str) -> str:
    """As Hive writes partition values, so that no value makes folders of its own."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def folder_name(text: str) -> str:
    """A topic's name as a folder; a transform may have made it."""
    safe = text.replace("\\", "%5C").replace("/", "%2F").replace("\x00", "%00")
    return safe.replace(".", "%2E") if safe in _NO_FOLDER or not safe else safe


def field_of(record: SinkRecord, path: str) -> Any:
    """A field of the value; dots lead into structs and maps."""
    found = record.value
    if isinstance(found, Mapping) and path in found:
        return found[path]
    for name in path.split("."):
        if isinstance(found, Struct) and found.schema.field(name) is not None:
            found = found.get(name)
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            raise DataError(f"the record has no field {path}")
    return found


class Partitioner:
    """`path` is below the topic's folder, `path_at` where it depends on time alone. `timestamp` is what
    rotation by record time counts with. `wall_clock`: all of it depends on when a record is processed."""

    wall_clock = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.delim: str = settings["directory.delim"]
        self._extract = _extractor(settings)

    def path(self, record: SinkRecord, clock: Clock) -> str:
        return f"partition={record.partition}"

    def path_at(self, millis: int | None) -> str:
        raise AssertionError("its folders do not depend on time")

    def timestamp(self, record: SinkRecord, clock: Clock) -> int | None:
        """Of the record also where the extractor is Wallclock: such cuts follow from the records."""
        return self._extract(record)


class FieldPartitioner(Partitioner):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._fields: tuple[str, ...] = settings["partition.field.name"]
        if not self._fields:
            raise ConfigError.of("partition.field.name", "", "FieldPartitioner needs at least one field")

    def path(self, record: SinkRecord, clock: Clock) -> str:
        return self.delim.join(f"{name}={_partition_value(record, name)}" for name in self._fields)


def _partition_value(record: SinkRecord, name: str) -> str:
    value = field_of(record, name)
    if value is None:
        return NULL_PARTITION
    if isinstance(value, str | int | bool):
        return escaped(to_string(value))
    raise DataError(f"field {name} is of a type that no files are partitioned by: {type(value).__name__}")


class TimeBasedPartitioner(Partitioner):
    def __init__(
        self, settings: Mapping[str, Any], duration_ms: int | None = None, pattern: str | None = None
    ) -> None:
        super().__init__(settings)
        self.wall_clock = settings["timestamp.extractor"].rpartition(".")[2].startswith("Wallclock")
        self._duration = duration_ms or settings["partition.duration.ms"]
        self._pattern = pattern or settings["path.format"]
        if self._duration <= 0:
            raise ConfigError.of("partition.duration.ms", self._duration, "it has to be positive")
        if not self._pattern:
            raise ConfigError.of("path.format", "", "TimeBasedPartitioner needs one")
        self._zone = _zone(settings["timezone"])
        self._format = _joda(self._pattern, settings["locale"])
        self._last: tuple[int, str] = (-1, "")

    def timestamp(self, record: SinkRecord, clock: Clock) -> int | None:
        return clock() if self.wall_clock else self._extract(record)

    def path(self, record: SinkRecord, clock: Clock) -> str:
        return self.path_at(self.timestamp(record, clock))

    def path_at(self, millis: int | None) -> str:
        if millis is None or millis < 0:
            raise DataError("the record has no time to be partitioned by")
        local = datetime.fromtimestamp(millis / 1000, UTC).astimezone(self._zone).replace(tzinfo=UTC)
        bucket = to_millis(local) // self._duration
        if bucket != self._last[0]:
            begin = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=bucket * self._duration)
            self._last = (bucket, self._format.format(begin).replace("/", self.delim))
        return self._last[1]


def make_partitioner(settings: Mapping[str, Any]) -> Partitioner:
    """By the last part of the class's name."""
    name = settings["partitioner.class"].rpartition(".")[2].removesuffix("Partitioner")
    if name == "Field":
        return FieldPartitioner(settings)
    if name == "TimeBased":
        return TimeBasedPartitioner(settings)
    if name == "Hourly":
        return TimeBasedPartitioner(settings, HOUR_MS, HOURLY_FORMAT)
    if name == "Daily":
        return TimeBasedPartitioner(settings, DAY_MS, DAILY_FORMAT)
    if name == "Default":
        return Partitioner(settings)
    raise ConfigError.of(
        "partitioner.class",
        settings["partitioner.class"],
        "one of DefaultPartitioner, FieldPartitioner, TimeBasedPartitioner, HourlyPartitioner, "
        "DailyPartitioner",
    )


# --- time ---------------------------------------------------------------------------------------------------


def _extractor(settings: Mapping[str, Any]) -> Callable[[SinkRecord], int | None]:
    name = settings["timestamp.extractor"].rpartition(".")[2].removesuffix("TimestampExtractor")
    if name == "RecordField":
        field = settings["timestamp.field"]
        return lambda record: _field_time(field_of(record, field), field)
    if name in ("Record", "Wallclock"):
        return lambda record: record.timestamp
    reason = "one of Wallclock, Record, RecordField"
    raise ConfigError.of("timestamp.extractor", settings["timestamp.extractor"], reason)


def _field_time(value: Any, field: str) -> int:
    if isinstance(value, datetime):
        return to_millis(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise DataError(f"field {field} is not a time: {value}") from None
        return to_millis(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    raise DataError(f"field {field} is not a time")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError.of("timezone", name, "no such time zone") from None


def _joda(pattern: str, locale: str) -> SimpleDateFormat:
    """Joda's Y, x and e are SimpleDateFormat's y, Y and u; zones and centuries have no place in paths."""
    translated, quoted = "", False
    for char in pattern:
        quoted ^= char == "'"
        if not quoted and char in "CzZXSG":
            raise ConfigError.of("path.format", pattern, f"the letter {char} is not supported in paths")
        translated += char if quoted else {"Y": "y", "x": "Y", "e": "u"}.get(char, char)
    try:
        found = SimpleDateFormat(translated)
    except ValueError as error:
        raise ConfigError.of("path.format", pattern, str(error)) from None
    if ("MMM" in translated or "E" in translated) and not locale.lower().startswith("en"):
        raise ConfigError.of("locale", locale, "names of months and days are there in English only")
    return found
