"""The transforms and converters of one connector, in the order in which a record passes them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.connect.config.config_def import ConfigError, with_prefix
from millstream.connect.converters.base import Converted, Converter
from millstream.connect.converters.plugins import make_converter
from millstream.connect.data.fetched_records import TimedRecord
from millstream.connect.data.record import Header, SchemaAndValue, SinkRecord, SourceRecord
from millstream.connect.data.schema import Schema
from millstream.connect.runtime.source_blocks import ProducerRecord, SourceBlocks
from millstream.connect.runtime.tolerance import Stage, Tolerance
from millstream.connect.transforms.base import AnyRecord, Predicate, Transform
from millstream.connect.transforms.fused import FUSABLE, FusedSteps
from millstream.connect.transforms.plugins import make_predicate, make_transform
from millstream.wire.records import Record as WireRecord
from millstream.wire.topic_partition import TopicPartition

DEFAULT_HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


_new_sink_record = SinkRecord.__new__


class _Step(NamedTuple):
    class_name: str
    transform: Transform
    predicate: Predicate | None
    negate: bool


class Converters(NamedTuple):
    key: Converter
    value: Converter
    header: Converter


def names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def make_converters(settings: Mapping[str, str], worker: Mapping[str, str]) -> Converters:
    """The connector's own, else the worker's, each with the settings beside its name."""

    def one(what: str, default: str | None) -> Converter:
        name = f"{what}.converter"
        source = settings if name in settings else worker
        class_name = source.get(name, default)
        if class_name is None:
            raise ConfigError(f'Missing required configuration "{name}" which has no default value.')
        own = with_prefix(source, f"{name}.")
        return make_converter(class_name, own, is_key=what == "key", registry=worker_registry(worker))

    return Converters(one("key", None), one("value", None), one("header", DEFAULT_HEADER_CONVERTER))


def worker_registry(worker: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in worker.items() if name.startswith("schema.registry.")}


def make_transforms(settings: Mapping[str, str]) -> list[_Step]:
    predicates = {}
    for alias in names(settings.get("predicates")):
        own = with_prefix(settings, f"predicates.{alias}.")
        predicates[alias] = make_predicate(own.pop("type", ""), own)
    steps = []
    for alias in names(settings.get("transforms")):
        own = with_prefix(settings, f"transforms.{alias}.")
        class_name = own.pop("type", "")
        predicate = own.pop("predicate", None)
        negate = own.pop("negate", "false").strip().lower() == "true"
        if predicate and predicate not in predicates:
            raise ConfigError.of(
                f"transforms.{alias}.predicate", predicate, f"Predicate '{predicate}' is not defined"
            )
        transform = make_transform(class_name, own)
        steps.append(_Step(class_name, transform, predicates[predicate] if predicate else None, negate))
    return steps


class Pipeline:
    def __init__(self, settings: Mapping[str, str], worker: Mapping[str, str], tolerance: Tolerance) -> None:
        self._steps = make_transforms(settings)
        self._converters = make_converters(settings, worker)
        self._tolerance = tolerance
        # Transforms of our own have no side effects; those of others run once for each record.
        self._repeatable = all(
            type(step.transform).__module__.startswith("millstream.connect.transforms.")
            for step in self._steps
        )
        self._fast = _fused(self._steps)
        self._blocks = SourceBlocks(
            [step.transform for step in self._steps], self._converters.key, self._converters.value
        )
        # One loop for all of them, or none.
        self._in_blocks = self._repeatable and all(step.predicate is None for step in self._steps)

    def transform(self, record: AnyRecord) -> AnyRecord | None:
        """None where a transform drops it."""
        if not self._steps:
            return record
        current: AnyRecord | None = record
        if self._repeatable:
            try:
                for apply in self._fast:
                    current = apply(current)
                    if current is None:
                        return None
                return current
            except Exception:
                # Once more, step by step: what becomes of the error is for `errors.*` to say.
                current = record
        for _, current in self.traced(record):  # noqa: B007 - the last one counts
            pass
        return current

    def traced(self, record: AnyRecord) -> Iterator[tuple[str, AnyRecord | None]]:
        """The record after each transform, by the class of that, until one drops it."""
        current: AnyRecord | None = record
        for step in self._steps:
            assert current is not None
            one = current
            current = self._tolerance.execute(
                Stage.TRANSFORMATION,
                step.class_name,
                lambda step=step, one=one: _apply(step, one),  # type: ignore[misc]
            )
            yield step.class_name, current
            if current is None:
                return

    def block_to_bytes(self, records: Sequence[SourceRecord], now: int) -> list[ProducerRecord]:
        """Many at once, with the same result as `transform` and `to_bytes`; None for those that they have to
        look at."""
        found = self._blocks.write(records, now) if self._in_blocks else None
        return [None] * len(records) if found is None else found

    def to_bytes(self, record: SourceRecord, now: int = -1) -> WireRecord:
        """`now` is the timestamp of a record that has none."""
        timestamp = now if record.timestamp is None or record.timestamp < 0 else record.timestamp
        if not record.headers:
            topic, converters = record.topic, self._converters
            try:
                return WireRecord(
                    0,
                    timestamp,
                    converters.key.from_connect(topic, record.key_schema, record.key),
                    converters.value.from_connect(topic, record.value_schema, record.value),
                    (),
                )
            except Exception:  # noqa: S110 - below it is found again, and treated as `errors.*` say
                pass
        key = self._convert(
            Stage.KEY_CONVERTER,
            self._converters.key,
            lambda converter: converter.from_connect(record.topic, record.key_schema, record.key),
        )
        value = self._convert(
            Stage.VALUE_CONVERTER,
            self._converters.value,
            lambda converter: converter.from_connect(record.topic, record.value_schema, record.value),
        )
        headers = tuple(
            (
                header.name,
                self._convert(
                    Stage.HEADER_CONVERTER,
                    self._converters.header,
                    lambda converter, header=header: converter.from_connect_header(
                        record.topic, header.name, header.schema, header.value
                    ),
                ),
            )
            for header in record.headers
        )
        return WireRecord(0, timestamp, key, value, headers)

    @property
    def transforms(self) -> bool:
        """Whether there are any."""
        return bool(self._steps)

    def from_block(
        self, topic_partition: TopicPartition, records: Sequence[TimedRecord]
    ) -> list[SinkRecord | None]:
        """Many at once, with the same result as `from_bytes`; None for those that it has to look at."""
        topic, converters = topic_partition.topic, self._converters
        keys = converters.key.to_connect_many(topic, [record.key for record, _ in records])
        values = converters.value.to_connect_many(topic, [record.value for record, _ in records])
        return _sink_records(topic_partition, records, keys, values)

    def from_bytes(
        self, topic_partition: TopicPartition, record: WireRecord, timestamp_type: str
    ) -> SinkRecord:
        topic = topic_partition.topic
        if not record.headers:
            try:
                return _sink_record(
                    topic_partition,
                    record,
                    timestamp_type,
                    self._converters.key.to_connect(topic, record.key),
                    self._converters.value.to_connect(topic, record.value),
                    (),
                )
            except Exception:  # noqa: S110 - as above
                pass
        key: SchemaAndValue = self._convert(
            Stage.KEY_CONVERTER,
            self._converters.key,
            lambda converter: converter.to_connect(topic, record.key),
        )
        value: SchemaAndValue = self._convert(
            Stage.VALUE_CONVERTER,
            self._converters.value,
            lambda converter: converter.to_connect(topic, record.value),
        )
        headers = []
        for name, data in record.headers:
            found: SchemaAndValue = self._convert(
                Stage.HEADER_CONVERTER,
                self._converters.header,
                lambda converter, name=name, data=data: converter.to_connect_header(topic, name, data),
            )
            headers.append(Header(name, found.schema, found.value))
        return _sink_record(topic_partition, record, timestamp_type, key, value, tuple(headers))

    def _convert(self, stage: Stage, converter: Converter, operation: Any) -> Any:
        return self._tolerance.execute(stage, _java_name(converter), lambda: operation(converter))

    def close(self) -> None:
        for step in self._steps:
            step.transform.close()
        for converter in self._converters:
            converter.close()


def _sink_record(
    topic_partition: TopicPartition,
    record: WireRecord,
    timestamp_type: str,
    key: tuple[Schema | None, Any],
    value: tuple[Schema | None, Any],
    headers: tuple[Header, ...],
) -> SinkRecord:
    bare = record._replace(headers=()) if record.headers else record
    (made,) = _sink_records(topic_partition, [(bare, timestamp_type)], [key], [value])
    assert made is not None
    made.headers, made.wire = headers, record
    return made


def _sink_records(
    topic_partition: TopicPartition,
    records: Sequence[TimedRecord],
    keys: Sequence[Converted],
    values: Sequence[Converted],
) -> list[SinkRecord | None]:
    """Records without headers; None for those that have some, and for what was not converted."""
    topic, partition = topic_partition
    new, found = _new_sink_record, list[SinkRecord | None]()
    for (record, timestamp_type), key, value in zip(records, keys, values, strict=True):
        offset, timestamp, _, _, headers = record
        if key is None or value is None or headers:
            found.append(None)
            continue
        made = new(SinkRecord)
        # One by one: that takes half the time of the constructor, which has to sort its fourteen arguments.
        made.topic = made.original_topic = topic
        made.partition = made.original_partition = partition
        made.key_schema, made.key = key
        made.value_schema, made.value = value
        made.timestamp = timestamp if timestamp >= 0 else None
        made.headers = ()
        made.offset = made.original_offset = offset
        made.timestamp_type = timestamp_type
        made.wire = record
        found.append(made)
    return found


def _fused(steps: list[_Step]) -> list[Callable[[Any], Any]]:
    """The same steps; those in a row that can be one function are one."""
    found: list[Callable[[Any], Any]] = []
    for fusable, group in itertools.groupby(
        steps, lambda step: step.predicate is None and type(step.transform) in FUSABLE
    ):
        if fusable:
            found.append(FusedSteps([step.transform for step in group]).apply)
        else:
            found += [functools.partial(_apply, step) for step in group]
    return found


def _apply(step: _Step, record: Any) -> Any:
    if step.predicate is not None and step.predicate.test(record) == step.negate:
        return record
    return step.transform.apply(record)


def _java_name(converter: Converter) -> str:
    from millstream.connect.converters.plugins import CONVERTERS

    for full, found in CONVERTERS.items():
        if type(converter) is found:
            return full
    return f"{type(converter).__module__}.{type(converter).__qualname__}"
