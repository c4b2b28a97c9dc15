"""Connectors under test, without broker and Spark.

    from millstream.testing.connect import SinkRun, SourceRun

    source = SourceRun(Prices, {"url": "http://localhost:8000", "topic": "prices"})
    assert [record.value for record in source.all()] == [...]
    source = source.restarted()                     # goes on from what was committed

    sink = SinkRun(ToList, {"limit": "10"})
    sink.write({"id": 1}, key="a")                  # put, flush and commit, as a worker does
    assert sink.lag == 0

A run makes the same calls in the same order as a worker's task: settings are checked, tasks are dealt, a sink
is opened with the positions that were committed last, and sees records again that were not. `restarted`
forgets the task as a crash does: nothing is flushed, and nothing is stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.connect.api import (
    Connector,
    Position,
    SinkConnector,
    SinkContext,
    SinkTask,
    SourceConnector,
    SourceContext,
    SourceTask,
)
from millstream.connect.config.config_def import ConfigError
from millstream.connect.data.record import Header, SinkRecord, SourceRecord
from millstream.connect.data.schema import Schema
from millstream.connect.errors import ConnectError, RetriableError
from millstream.connect.plugins import find_connector
from millstream.wire.topic_partition import TopicPartition

PUT_RECORDS = 500


def _started(connector: type[Connector] | str, settings: Mapping[str, str], task: int) -> tuple[Any, Any]:
    """The task, and its settings. ConfigError with all that is wrong with the settings."""
    made = find_connector(connector) if isinstance(connector, str) else connector
    given = {"name": "test", "connector.class": f"{made.__module__}.{made.__qualname__}"} | dict(settings)
    errors = [error for value in made.validate(given).values() for error in value.errors]
    if errors:
        raise ConfigError("\n".join(errors))
    one = made(given)
    one.start()
    return made.task(), one.task_settings(task + 1)[task]


class SourceRun:
    """One task of a source. `offsets` are those that are committed, by partition of the source, as JSON."""

    def __init__(
        self,
        connector: type[SourceConnector] | str,
        settings: Mapping[str, str],
        *,
        task: int = 0,
        offsets: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._arguments = (connector, settings, task)
        self.offsets: dict[str, Mapping[str, Any]] = dict(offsets or {})
        self.task: SourceTask
        self.task, own = _started(connector, settings, task)
        self.task.start(own, SourceContext(lambda partition: _copy(self.offsets.get(_text(partition)))))

    def poll(self, *, commit: bool = True) -> list[SourceRecord]:
        """What the source has now. With `commit` its offsets are kept, and the task hears of it."""
        records = list(self.task.poll())
        if commit and records:
            for record in records:
                if record.source_partition is not None:
                    self.offsets[_text(record.source_partition)] = dict(record.source_offset or {})
            self.task.committed()
        return records

    def read(self, count: int, *, seconds: float = 30.0) -> list[SourceRecord]:
        """At least so many records, polled as a worker polls."""
        found: list[SourceRecord] = []
        deadline = time.monotonic() + seconds
        while len(found) < count:
            records = self.poll()
            found += records
            if not records:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{len(found)} of {count} records came in {seconds} s: {found}")
                time.sleep(min(self.task.idle_ms, 50) / 1000)
        return found

    def all(self) -> list[SourceRecord]:
        """Everything until a poll brings nothing."""
        found: list[SourceRecord] = []
        while records := self.poll():
            found += records
        return found

    def restarted(self) -> SourceRun:
        connector, settings, task = self._arguments
        return SourceRun(connector, settings, task=task, offsets=self.offsets)

    def stop(self) -> None:
        self.task.stop()


class SinkRun:
    """One task of a sink, and the topics it reads. `rejected` is what it sent to the dead letters."""

    def __init__(
        self,
        connector: type[SinkConnector] | str,
        settings: Mapping[str, str],
        *,
        task: int = 0,
        tolerate: bool = False,
        before: SinkRun | None = None,
    ) -> None:
        self._arguments = (connector, settings, task, tolerate)
        self.log: dict[TopicPartition, list[SinkRecord]] = {} if before is None else before.log
        self.committed: dict[TopicPartition, Position] = {} if before is None else dict(before.committed)
        self.rejected: list[tuple[SinkRecord, Exception]] = []
        self.task: SinkTask
        self.task, own = _started(connector, settings, task)
        self._tolerate = tolerate
        self._positions: dict[TopicPartition, int] = {}
        self._changed: set[TopicPartition] = set()
        self._must_commit = False
        self.task.start(own, SinkContext(self._report, self._request_commit))

    def send(
        self,
        value: Any,
        *,
        topic: str = "test",
        partition: int = 0,
        key: Any = None,
        value_schema: Schema | None = None,
        key_schema: Schema | None = None,
        timestamp: int | None = 0,
        headers: Sequence[Header] = (),
    ) -> SinkRecord:
        """Append a record to a topic; `run` or `step` brings it to the task."""
        held = self.log.setdefault(TopicPartition(topic, partition), [])
        record = SinkRecord(
            topic=topic,
            partition=partition,
            key_schema=key_schema,
            key=key,
            value_schema=value_schema,
            value=value,
            timestamp=timestamp,
            headers=tuple(headers),
            offset=len(held),
            original_topic=topic,
            original_partition=partition,
            original_offset=len(held),
        )
        held.append(record)
        return record

    def step(self) -> bool:
        """One call of a worker: open, commit or put. False where there is nothing to do now. An error is the
        task's own; after a RetriableError the same records come again."""
        new = [which for which in self.log if which not in self._positions]
        if new:
            kept = {which: self.committed.get(which, Position(0)) for which in new}
            self._positions |= {which: position.offset for which, position in kept.items()}
            self.task.open({which: position.metadata for which, position in kept.items()})
            return True
        if self._must_commit:
            self.commit()
            return True
        for which, held in self.log.items():
            begin = self._positions[which]
            records = held[begin : begin + PUT_RECORDS]
            if records:
                self.task.put(records)
                self._positions[which] = begin + len(records)
                self._changed.add(which)
                return True
        if self.task.due is not None and self.task.due <= time.monotonic():
            self.task.put([])
            return True
        if self._changed:
            self.commit()
            return True
        return False

    def commit(self) -> None:
        which = self._positions if self._must_commit else self._changed
        ready = dict(self.task.pre_commit({one: self._positions[one] for one in which}))
        for position in ready.values():
            if len(position.metadata) > 4096:
                raise AssertionError("Kafka keeps 4,096 characters beside an offset")
        self.committed |= ready
        self._must_commit = False
        self._changed.clear()
        self.task.committed(ready)

    def write(self, *values: Any, **more: Any) -> SinkRun:
        """Send values (see `send`) and run; returns itself."""
        for value in values:
            self.send(value, **more)
        self.run()
        return self

    def run(self) -> None:
        """Until there is nothing left to do at once."""
        while self.step():
            pass

    @property
    def lag(self) -> int:
        """Records behind the committed offsets."""
        return sum(
            len(held) - self.committed.get(which, Position(0)).offset for which, held in self.log.items()
        )

    def restarted(self, **changes: str) -> SinkRun:
        """Another task after this one crashed, with other settings if there are `changes`."""
        connector, settings, task, tolerate = self._arguments
        return SinkRun(connector, {**settings, **changes}, task=task, tolerate=tolerate, before=self)

    def stop(self) -> None:
        self.task.stop()

    def _report(self, record: SinkRecord, error: Exception) -> None:
        if not self._tolerate:
            raise ConnectError("Tolerance exceeded in error handler") from error
        self.rejected.append((record, error))

    def _request_commit(self) -> None:
        self._must_commit = True


def _text(partition: Mapping[str, Any]) -> str:
    return json.dumps(partition, sort_keys=True)


def _copy(offset: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if offset is None else dict(offset)


__all__ = ["RetriableError", "SinkRun", "SourceRun"]
