"""The sinks that write files, each record once, with every partitioner and every way to cut.

Records are encoded as they come, into one open file per folder. When a range of offsets is complete it goes
three steps: its end is committed beside the group's offset (`Intent`), its files get their names, and the
offset behind it is committed. A task that starts between the first step and the last reads the same range
again and makes the same files, whatever the clock or the configuration say by then.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from millstream.connect.api import Position, Settings, SinkConnector, SinkContext, SinkTask
from millstream.connect.config.config_def import ConfigDef, ConfigError, ConfigValue
from millstream.connect.connectors.storage import sink_config as config
from millstream.connect.connectors.storage.formats import Format, Writer, make_format
from millstream.connect.connectors.storage.partitioners import (
    DAY_MS,
    Partitioner,
    folder_name,
    make_partitioner,
    now_ms,
)
from millstream.connect.connectors.storage.projection import project
from millstream.connect.connectors.storage.rotation import Cutter, Intent, Rules, schema_cuts
from millstream.connect.connectors.storage.stores import LocalStore, S3Store, Store, remote_store
from millstream.connect.data.logical import to_millis
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.schema import Schema
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError
from millstream.wire.topic_partition import TopicPartition

CLOCK_SECONDS = 0.5
"""How often the clock is looked at where files depend on it."""


@dataclass(slots=True)
class _File:
    writer: Writer
    folder: str
    stem: str
    first: int
    last: int
    records: int = 0


@dataclass(slots=True)
class _Range:
    """Offsets [begin, end), and a file for each folder of its records."""

    begin: int
    end: int
    schema: Schema | None
    cutter: Cutter
    files: dict[str, _File] = field(default_factory=dict)


class _Partition:
    """What is collected of one partition. `written` is an offset below which all files have their names."""

    def __init__(self, intent: Intent | None) -> None:
        self.intent = intent
        self.intent_committed = intent is not None
        self.open: _Range | None = None
        self.closed: deque[_Range] = deque()
        self.written: int | None = None
        self.next = -1
        self.clock = 0 if intent is None else intent.clock
        self.rotate_at: int | None = None


class StorageTask(SinkTask):
    config: ClassVar[ConfigDef]
    end_in_name: ClassVar[bool] = True

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._store: Store | None = None

    def parsed(self, settings: Settings) -> dict[str, Any]:
        return self.config.parse(config.with_synonyms(settings))

    def make_partitioner(self, settings: Mapping[str, Any]) -> Partitioner:
        return make_partitioner(settings)

    def make_format(self, settings: Mapping[str, Any]) -> Format:
        return make_format(settings)

    def make_names(self, settings: Mapping[str, Any], extension: str) -> Names:
        return Names(settings, extension, with_end=self.end_in_name)

    @abstractmethod
    def make_store(self, settings: Mapping[str, Any], unfinished: str) -> Store:
        """`unfinished` is a folder for files without a name yet."""

    def start(self, settings: Settings, context: SinkContext) -> None:
        parsed = self.parsed(settings)
        self._context = context
        self._rules = Rules(parsed["flush.size"], parsed["rotate.interval.ms"])
        self._schedule_ms: int = parsed["rotate.schedule.interval.ms"]
        self._zone = ZoneInfo(parsed["timezone"])
        self._partitioner = self.make_partitioner(parsed)
        self._format = self.make_format(parsed)
        self._compatibility: str = parsed["schema.compatibility"]
        self._ignore_nulls = parsed["behavior.on.null.values"] == "ignore"
        self._names = self.make_names(parsed, self._format.extension)
        own = f"{settings.get('name', '')}-{settings.get('task.id', '0')}"
        unfinished = f"{parsed['topics.dir'].strip('/')}/+tmp/{folder_name(own)}"
        self._store = self.make_store(parsed, unfinished)
        self._store.clean()
        self._by_partition = (
            type(self._partitioner) is Partitioner and self._rules.rotate_ms <= 0 and self._format.has_schema
        )
        self._watches_clock = self._schedule_ms > 0 or self._partitioner.wall_clock

    def open(self, positions: Mapping[TopicPartition, str]) -> None:
        for which, metadata in positions.items():
            self._partitions[which] = _Partition(Intent.from_text(metadata))

    # --- records --------------------------------------------------------------------------------------------

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.due = time.monotonic()  # where this fails, it is to be done again
        for partition in self._partitions.values():
            self._write(partition)
        at = 0
        while at < len(records):
            record = records[at]
            which = TopicPartition(record.original_topic or record.topic, record.original_partition or 0)
            partition = self._partitions[which]
            self._add(partition, record)
            at += 1
            if self._by_partition:
                at = self._add_alike(partition, records, at)
        watching = self._watches_clock and self._look_at_clock()
        self._drain()
        self.due = time.monotonic() + CLOCK_SECONDS if watching else None
        for partition in self._partitions.values():
            if partition.written is not None or (partition.closed and partition.intent is None):
                self._context.request_commit()
            elif partition.closed and partition.intent_committed:
                self.due = time.monotonic()

    def preview(self, records: Sequence[SinkRecord], settings: Settings) -> list[str]:
        """The files that these records would begin, or be part of. Nothing is opened."""
        parsed = self.parsed(settings)
        partitioner, form = self.make_partitioner(parsed), self.make_format(parsed)
        names = self.make_names(parsed, form.extension)
        files: dict[tuple[str, str], list[int]] = {}
        said: list[str] = []
        for record in records:
            offset = record.offset if record.original_offset is None else record.original_offset
            if record.value is None or (form.has_schema and not isinstance(record.value, Struct)):
                why = "has no value" if record.value is None else "has no schema with fields"
                said.append(f"refuse {record.topic}-{record.partition}@{offset}: it {why}")
                continue
            try:
                folder = names.folder(record.topic, partitioner.path(record, now_ms))
            except DataError as error:
                said.append(f"refuse {record.topic}-{record.partition}@{offset}: {error}")
                continue
            files.setdefault((folder, names.stem(record)), []).append(offset)
        for (folder, stem), offsets in files.items():
            name = names.name(folder, stem, offsets[0], offsets[-1])
            said.append(f"write {len(offsets)} of {parsed['flush.size']} records to {name}")
        return said

    def _add(self, partition: _Partition, record: SinkRecord) -> None:
        offset = record.offset if record.original_offset is None else record.original_offset
        if offset < partition.next:
            return  # it came before, in a put that could not be finished
        intent = partition.intent
        current = partition.open
        if intent is not None and current is not None and current.begin < intent.until <= offset:
            self._cut(partition, intent.until)
        partition.next = offset + 1
        if record.value is None:
            if not self._ignore_nulls:
                self._context.report(record, DataError("a record without a value cannot be written"))
            return
        try:
            self._take(partition, record, offset)
        except DataError as error:
            self._context.report(record, error)

    def _add_alike(self, partition: _Partition, records: Sequence[SinkRecord], at: int) -> int:
        """The fast path for records that go where the one before them went: into the same file, which only
        their number ends. Where it stops, `_add` decides about the next one."""
        current, before = partition.open, records[at - 1]
        if current is None or partition.intent is not None:
            return at
        file = current.files.get(self._names.folder(before.topic, f"partition={before.partition}"))
        if file is None or file.last + 1 != partition.next:
            return at
        topic, schema, number = before.topic, current.schema, before.partition
        source = (before.original_topic, before.original_partition)
        end = min(len(records), at + current.cutter.room - 1)
        first = at
        while at < end:
            record = records[at]
            if (
                record.value_schema is not schema
                or record.value is None
                or record.topic != topic
                or record.partition != number
                or (record.original_topic, record.original_partition) != source
            ):
                break
            at += 1
        if at > first:
            file.writer.add_many(records[first:at])
            last = records[at - 1]
            file.last = last.offset if last.original_offset is None else last.original_offset
            partition.next = file.last + 1
            current.cutter.count += at - first
        return at

    def _take(self, partition: _Partition, record: SinkRecord, offset: int) -> None:
        if self._format.has_schema and not isinstance(record.value, Struct):
            raise DataError("this format needs values with a schema and fields")
        if partition.open is None and not partition.closed and not self._replays(partition, offset):
            partition.clock = now_ms()
        intent, rules = partition.intent, self._rules
        if intent is not None and offset < intent.until:
            rules = intent.rules
        path = self._partitioner.path(record, lambda: partition.clock)
        timestamp = None
        if rules.rotate_ms > 0:
            timestamp = self._partitioner.timestamp(record, lambda: partition.clock)
        current = partition.open
        if current is not None and (
            current.cutter.before(timestamp, path)
            or (self._format.has_schema and self._new_schema(current.schema, record.value_schema))
        ):
            self._cut(partition, offset)
            current = None
        if current is None:
            current = _Range(offset, offset, record.value_schema, Cutter(rules))
        value, schema = record.value, record.value_schema
        if self._format.has_schema and schema is not current.schema and schema and current.schema:
            value = project(schema, value, current.schema)
        self._into_file(current, record, path, offset, value)
        partition.open = current
        if current.cutter.after(timestamp, path):
            self._cut(partition, offset + 1)

    def _new_schema(self, current: Schema | None, coming: Schema | None) -> bool:
        return current is not coming and schema_cuts(self._compatibility, current, coming)

    @staticmethod
    def _replays(partition: _Partition, offset: int) -> bool:
        return partition.intent is not None and offset < partition.intent.until

    def _into_file(self, current: _Range, record: SinkRecord, path: str, offset: int, value: Any) -> None:
        folder = self._names.folder(record.topic, path)
        file = current.files.get(folder)
        if file is None:
            assert self._store is not None
            stem = self._names.stem(record)
            output = self._store.output(self._names.name(folder, stem, offset, offset))
            file = _File(self._format.make(output, current.schema), folder, stem, offset, offset)
            file.writer.reject = self._context.report
        file.writer.add(record, value)
        file.last, file.records = offset, file.records + 1
        current.files[folder] = file

    def _cut(self, partition: _Partition, end: int) -> None:
        current = partition.open
        if current is not None:
            current.end = end
            partition.closed.append(current)
            partition.open = None

    # --- the clock ------------------------------------------------------------------------------------------

    def _look_at_clock(self) -> bool:
        """Whether it is to be looked at again."""
        now = now_ms()
        waiting = False
        for partition in self._partitions.values():
            current = partition.open
            if current is None or partition.intent is not None:
                # What is announced comes first: an intent ends with a cut by the clock and contains none.
                partition.rotate_at = None
                waiting |= current is not None
                continue
            if partition.rotate_at is None:
                partition.rotate_at = self._next_rotation(now)
            if (partition.rotate_at is not None and now >= partition.rotate_at) or self._folder_ended(
                partition, now
            ):
                self._cut(partition, partition.next)
                partition.rotate_at = None
            else:
                waiting = True
        return waiting

    def _next_rotation(self, now: int) -> int | None:
        if self._schedule_ms <= 0:
            return None
        local = datetime.fromtimestamp(now / 1000, UTC).astimezone(self._zone)
        since_midnight = to_millis(local.replace(tzinfo=UTC)) % DAY_MS
        return now - since_midnight % self._schedule_ms + self._schedule_ms

    def _folder_ended(self, partition: _Partition, now: int) -> bool:
        """Of a partitioner by wall clock: whether the folder of now is another, or the interval is over."""
        if not self._partitioner.wall_clock:
            return False
        if 0 < self._rules.rotate_ms <= now - partition.clock:
            return True
        return self._partitioner.path_at(now) != self._partitioner.path_at(partition.clock)

    # --- files and offsets ----------------------------------------------------------------------------------

    def _drain(self) -> None:
        for partition in self._partitions.values():
            for current in (*partition.closed, *([partition.open] if partition.open else ())):
                for file in current.files.values():
                    file.writer.output.drain()

    def _write(self, partition: _Partition) -> None:
        """Give the files of a range their names, once Kafka knows that this will be done."""
        intent = partition.intent
        if intent is None or not partition.intent_committed:
            return
        while partition.closed and partition.closed[0].end <= intent.until:
            for file in partition.closed[0].files.values():
                file.writer.finish()
                file.writer.output.commit(self._names.name(file.folder, file.stem, file.first, file.last))
            partition.closed.popleft()
        self._settle(partition, partition.next)

    @staticmethod
    def _settle(partition: _Partition, reached: int) -> None:
        """Whether all that was announced is written, of what was read up to here."""
        intent = partition.intent
        if intent is None or not partition.intent_committed or reached < intent.until:
            return
        waiting = [*partition.closed, *([partition.open] if partition.open is not None else ())]
        if all(one.begin >= intent.until for one in waiting):
            partition.written, partition.intent, partition.intent_committed = intent.until, None, False

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Position]:
        found: dict[TopicPartition, Position] = {}
        for which, offset in offsets.items():
            partition = self._partitions[which]
            intent, current = partition.intent, partition.open
            # Where the last records of what was announced are left out, no record says that it is complete.
            if intent is not None and current is not None and current.begin < intent.until <= offset:
                self._cut(partition, intent.until)
                self.due = time.monotonic()
            self._settle(partition, offset)
            position = self._position(partition, offset) if partition.intent is None else None
            if position is not None:
                found[which] = position
        return found

    def _position(self, partition: _Partition, offset: int) -> Position | None:
        begin, partition.written = partition.written, None
        if partition.closed:
            until = partition.closed[-1].end
            partition.intent = Intent(until, partition.closed[0].cutter.rules, partition.clock)
            partition.intent_committed = False
            return Position(partition.closed[0].begin if begin is None else begin, partition.intent.to_text())
        if partition.open is None:
            return Position(offset)
        return None if begin is None else Position(begin)

    def committed(self, positions: Mapping[TopicPartition, Position]) -> None:
        for which, position in positions.items():
            partition = self._partitions[which]
            if partition.intent is not None and position.metadata:
                partition.intent_committed = True
                self.due = time.monotonic()

    def stop(self) -> None:
        if self._store is None:
            return
        for partition in self._partitions.values():
            for current in (*partition.closed, *([partition.open] if partition.open else ())):
                for file in current.files.values():
                    file.writer.output.abort()
        self._store.close()


class Names:
    """topics.dir / topic / folder / topic+partition+offset.ext; HDFS and folders have the last offset too."""

    def __init__(self, settings: Mapping[str, Any], extension: str, *, with_end: bool) -> None:
        self._root: str = settings["topics.dir"].strip("/")
        self._folders: str = settings["directory.delim"]
        self._delim: str = settings["file.delim"]
        self._digits: int = settings["filename.offset.zero.pad.width"]
        self._extension, self._with_end = extension, with_end

    def folder(self, topic: str, path: str) -> str:
        return self._folders.join(part for part in (self._root, folder_name(topic), path) if part)

    def stem(self, record: SinkRecord) -> str:
        """By the topic it comes from: two that a transform gives one name have offsets of their own."""
        topic = record.topic if record.original_topic is None else record.original_topic
        number = record.partition if record.original_partition is None else record.original_partition
        return f"{topic}{self._delim}{number}"

    def name(self, folder: str, stem: str, first: int, last: int) -> str:
        offsets = f"{first:0{self._digits}d}"
        if self._with_end:
            offsets += f"{self._delim}{last:0{self._digits}d}"
        return f"{folder}{self._folders}{stem}{self._delim}{offsets}{self._extension}"


# --- the connectors -----------------------------------------------------------------------------------------


class LocalTask(StorageTask):
    config = config.LOCAL

    def make_store(self, settings: Mapping[str, Any], unfinished: str) -> Store:
        url: str = settings["store.url"]
        if "://" in url and not url.startswith("file://"):
            return remote_store(url, unfinished)
        return LocalStore(url.removeprefix("file://"), unfinished)


class HdfsTask(StorageTask):
    config = config.HDFS

    def make_store(self, settings: Mapping[str, Any], unfinished: str) -> Store:
        return remote_store(settings["store.url"] or settings["hdfs.url"], unfinished)


class S3Task(StorageTask):
    config = config.S3
    end_in_name = False

    def make_store(self, settings: Mapping[str, Any], unfinished: str) -> Store:
        return S3Store(settings)


class StorageSink(SinkConnector):
    task: ClassVar[type[StorageTask]]

    def task_settings(self, max_tasks: int) -> list[Settings]:
        return [self.settings | {"task.id": str(number)} for number in range(max_tasks)]

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, ConfigValue]:
        found = cls.config.validate(config.with_synonyms(settings))
        config.check_together(found)
        return found


class FileSink(StorageSink):
    task = LocalTask
    config = config.LOCAL


class HdfsSink(StorageSink):
    task = HdfsTask
    config = config.HDFS

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, ConfigValue]:
        found = super().validate(settings)
        if not found["store.url"].value and not found["hdfs.url"].value:
            found["hdfs.url"].errors.append(str(ConfigError.of("hdfs.url", "", "it has to be there")))
        return found


class S3Sink(StorageSink):
    task = S3Task
    config = config.S3
