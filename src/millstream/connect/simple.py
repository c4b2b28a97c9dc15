"""A connector of one's own in a few lines: one class with its settings, and one method.

    class Prices(Source):
        url = setting(str, doc="Where to ask")
        topic = setting(str)

        def read(self, partition, offset):
            for price in ask(self.url, after=(offset or {}).get("seq", 0)):
                yield Record(self.topic, key=price["id"], value=price, offset={"seq": price["seq"]})

The class is the connector (Kafka's `Connector` and `Task` are made of it): `partitions` says what can be read
apart and is dealt to tasks, `read` goes on behind an offset, and may be left after any record. A sink has
`write`; what it returns from is done for good. An attribute `poll_interval_ms` is the setting
`poll.interval.ms`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

from millstream.connect.api import (
    Settings,
    SinkConnector,
    SinkContext,
    SinkTask,
    SourceConnector,
    SourceContext,
    SourceTask,
)
from millstream.connect.config.config_def import REQUIRED, ConfigDef, ConfigKey
from millstream.connect.data.record import Header, SinkRecord, SourceRecord
from millstream.connect.data.schema import Schema
from millstream.settings.config_key import Importance
from millstream.settings.values import Password, Type

MAX_RECORDS = 2000
PARTITIONS = "millstream.partitions"
_TYPES = {str: Type.STRING, int: Type.LONG, float: Type.DOUBLE, bool: Type.BOOLEAN, list: Type.LIST}


class setting:
    """A setting of a connector; without a default it has to be given. Its values are checked before a task
    starts: `validator` is one of `millstream.connect.config.config_def`."""

    def __init__(
        self,
        kind: type = str,
        default: Any = REQUIRED,
        *,
        doc: str = "",
        secret: bool = False,
        validator: Any = None,
    ) -> None:
        self._type = Type.PASSWORD if secret else _TYPES[kind]
        self._default = tuple(default) if isinstance(default, list) else default
        self._doc, self._validator = doc, validator

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.replace("_", ".")

    def key(self) -> ConfigKey:
        importance = Importance.HIGH if self._default is REQUIRED else Importance.MEDIUM
        return ConfigKey(self.name, self._type, self._default, importance, self._doc, self._validator)

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        value = ConfigDef([self.key()]).parse(instance.settings)[self.name]
        return value.value if isinstance(value, Password) else value


def _config_of(connector: type) -> ConfigDef:
    found = {
        one.name: one.key()
        for base in reversed(connector.__mro__)
        for one in vars(base).values()
        if isinstance(one, setting)
    }
    return ConfigDef(found.values())


class Record:
    """What a source reads. `offset` is where to go on behind it."""

    def __init__(
        self,
        topic: str,
        *,
        value: Any = None,
        key: Any = None,
        offset: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
    ) -> None:
        self.offset = offset
        self._fields: dict[str, Any] = {
            "topic": topic,
            "key": key,
            "value": value,
            "timestamp": timestamp,
            "headers": tuple(Header(name, None, one) for name, one in (headers or {}).items()),
            "partition": partition,
            "key_schema": key_schema,
            "value_schema": value_schema,
        }

    def to_source_record(self, partition: Mapping[str, Any]) -> SourceRecord:
        if self.offset is None:
            return SourceRecord(**self._fields)
        return SourceRecord(**self._fields, source_partition=partition, source_offset=self.offset)


class Source(SourceConnector):
    poll_interval_ms = setting(int, 1000, doc="The pause after nothing new was read, in ms.")
    task: ClassVar[type[SourceTask]]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.config = _config_of(cls)
        cls.task = type(
            f"{cls.__name__}Task", (_SimpleSourceTask,), {"source": cls, "__module__": cls.__module__}
        )

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """What can be read apart; each has its own offset."""
        return [{}]

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterable[Record]:
        """Records behind an offset; None at first."""
        raise NotImplementedError

    def open(self) -> None:
        """Once in a task, before the first read: connections."""

    def close(self) -> None:
        """Once, after the last."""

    def task_settings(self, max_tasks: int) -> list[Settings]:
        partitions = list(self.partitions())
        count = max(1, min(max_tasks, len(partitions)))
        return [self.settings | {PARTITIONS: json.dumps(partitions[task::count])} for task in range(count)]


class _SimpleSourceTask(SourceTask):
    source: ClassVar[type[Source]]
    steady = True

    def __init__(self) -> None:
        self._source: Source | None = None
        self._offsets: list[tuple[dict[str, Any], Mapping[str, Any] | None]] = []
        self._reading: dict[int, Iterator[Record]] = {}

    def start(self, settings: Settings, context: SourceContext) -> None:
        self._source = self.source(settings)
        self.idle_ms = self._source.poll_interval_ms
        self._source.open()
        self._offsets = [(one, context.offset(one)) for one in json.loads(settings[PARTITIONS])]

    def poll(self) -> Sequence[SourceRecord]:
        """Some of each partition. A read that is not at its end goes on the next time."""
        assert self._source is not None
        found: list[SourceRecord] = []
        for index, (partition, offset) in enumerate(self._offsets):
            reading = self._reading.pop(index, None) or iter(self._source.read(partition, offset))
            records = list(islice(reading, MAX_RECORDS))
            if len(records) == MAX_RECORDS:
                self._reading[index] = reading
            for record in records:
                if record.offset is not None:
                    self._offsets[index] = (partition, record.offset)
                found.append(record.to_source_record(partition))
        return found

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()


class Sink(SinkConnector):
    task: ClassVar[type[SinkTask]]
    report: Any
    """`self.report(record, error)` sends a record to the dead letters."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.config = _config_of(cls)
        cls.task = type(
            f"{cls.__name__}Task", (_SimpleSinkTask,), {"sink": cls, "__module__": cls.__module__}
        )

    def write(self, records: Sequence[SinkRecord]) -> None:
        """They are done for good when this returns. RetriableError: the same records come again later."""
        raise NotImplementedError

    def open(self) -> None:
        """Once in a task, before the first write: connections."""

    def close(self) -> None:
        """Once, after the last."""


class _SimpleSinkTask(SinkTask):
    sink: ClassVar[type[Sink]]

    def __init__(self) -> None:
        self._sink: Sink | None = None

    def start(self, settings: Settings, context: SinkContext) -> None:
        self._sink = self.sink(settings)
        self._sink.report = context.report
        self._sink.open()

    def put(self, records: Sequence[SinkRecord]) -> None:
        assert self._sink is not None
        if records:
            self._sink.write(records)

    def stop(self) -> None:
        if self._sink is not None:
            self._sink.close()
