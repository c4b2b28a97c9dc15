"""Preview: some real records after every transform, as bytes, and what the sink would do. Writes nothing.

A source's task is started and asked for its first records; a sink's are the newest of its topics. It runs in
a process of its own, which is killed when it takes too long: connectors are other people's code.
"""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.client import EARLIEST, LATEST, ClientConfig, Cluster, Fetcher, list_offsets, visible_batches
from millstream.client.fetch import next_offset
from millstream.connect.api import SinkTask, SourceContext, SourceTask
from millstream.connect.config.config_providers import resolve
from millstream.connect.config.connector_config import SINK_CONFIG, SOURCE_CONFIG
from millstream.connect.config.java_regex import compile_regex
from millstream.connect.converters.json import JsonConverter
from millstream.connect.data.record import Record, SinkRecord, SourceRecord
from millstream.connect.errors import ConnectError
from millstream.connect.plugins import find_connector
from millstream.connect.runtime.pipeline import Pipeline
from millstream.connect.runtime.tolerance import RecordFailed, Tolerance
from millstream.wire.records import Record as WireRecord
from millstream.wire.records import iter_records
from millstream.wire.topic_partition import TopicPartition

PREVIEW_SECONDS = 10.0
MAX_RECORDS = 100
_BYTES_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class PreviewSpec:
    settings: dict[str, str]
    worker: dict[str, str]
    providers: dict[str, str]
    client: ClientConfig
    plugin_path: tuple[str, ...]
    records: int


def preview_in_child(spec: PreviewSpec) -> dict[str, Any]:
    data = base64.b64encode(pickle.dumps(spec))
    command = [sys.executable, "-m", "millstream.connect.preview"]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=PREVIEW_SECONDS + 10)
    except subprocess.TimeoutExpired:
        raise ConnectError(f"the connector has not answered within {PREVIEW_SECONDS:.0f} s") from None
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConnectError(f"the preview has failed: {words[-1] if words else done.returncode}") from None
    if "error" in found:
        raise ConnectError(str(found["error"]))
    return found


def preview(spec: PreviewSpec) -> dict[str, Any]:
    settings = resolve(spec.settings, spec.providers)
    connector = find_connector(settings["connector.class"], spec.plugin_path)
    made = connector(settings)
    task = connector.task()
    sink = isinstance(task, SinkTask)
    tolerance = Tolerance((SINK_CONFIG if sink else SOURCE_CONFIG).parse(settings), "preview")
    pipeline = Pipeline(settings, spec.worker, tolerance)
    made.start()
    try:
        if isinstance(task, SourceTask):
            dealt = made.task_settings(int(settings.get("tasks.max", "1")))
            shown = [_source_record(pipeline, one) for one in _polled(task, dealt, spec.records)]
            return {"type": "source", "records": shown}
        dealt = made.task_settings(1)
        return _sink(pipeline, task, dealt[0] if dealt else dict(settings), _read(spec, settings))
    finally:
        made.stop()
        pipeline.close()


def _polled(task: SourceTask, dealt: Sequence[dict[str, str]], count: int) -> list[SourceRecord]:
    found: list[SourceRecord] = []
    if not dealt:
        return found
    deadline = time.monotonic() + PREVIEW_SECONDS
    try:
        task.start(dealt[0], SourceContext(lambda _partition: None))
        while len(found) < count and time.monotonic() < deadline:
            polled = task.poll()
            found += polled
            if not polled:
                if found:
                    break
                time.sleep(task.idle_ms / 1000)  # the pace that the task itself asks for
    finally:
        task.stop()
    return found[:count]


def _source_record(pipeline: Pipeline, record: SourceRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {"record": _shown(record)}
    try:
        last = _steps(pipeline, record, shown)
        if isinstance(last, SourceRecord):
            wire = pipeline.to_bytes(last)
            shown["topic"] = last.topic
            shown["bytes"] = {"key": _bytes(wire.key), "value": _bytes(wire.value)}
    except (ConnectError, RecordFailed) as error:
        shown["error"] = _reason(error)
    return shown


def _steps(pipeline: Pipeline, record: Any, shown: dict[str, Any]) -> Any:
    """After each transform; None where one drops the record."""
    shown["transforms"] = []
    for alias, current in pipeline.traced(record):
        shown["transforms"].append(
            {"transform": alias, "record": None if current is None else _shown(current)}
        )
        record = current
    return record


def _sink(
    pipeline: Pipeline,
    task: SinkTask,
    settings: dict[str, str],
    fetched: list[tuple[TopicPartition, WireRecord]],
) -> dict[str, Any]:
    shown, kept = [], []
    for which, wire in fetched:
        one: dict[str, Any] = {
            "from": {"topic": which.topic, "partition": which.partition, "offset": wire.offset},
            "bytes": {"key": _bytes(wire.key), "value": _bytes(wire.value)},
        }
        shown.append(one)
        try:
            record = pipeline.from_bytes(which, wire, "CreateTime")
            one["record"] = _shown(record)
            last = _steps(pipeline, record, one)
        except (ConnectError, RecordFailed) as error:
            one["error"] = _reason(error)
            continue
        if isinstance(last, SinkRecord):
            kept.append(last)
    return {"type": "sink", "records": shown, "sink": _done(task, kept, settings)}


def _done(task: SinkTask, records: Sequence[SinkRecord], settings: dict[str, str]) -> list[str]:
    try:
        return [
            line if len(line) <= _BYTES_SHOWN else f"{line[:_BYTES_SHOWN]}..."
            for line in task.preview(records, settings)
        ]
    except ConnectError as error:
        return [f"the task would fail: {_reason(error)}"]


def _read(spec: PreviewSpec, settings: Mapping[str, str]) -> list[tuple[TopicPartition, WireRecord]]:
    """The newest records of the sink's topics."""
    parsed = SINK_CONFIG.parse(settings)
    cluster = Cluster(spec.client)
    found: list[tuple[TopicPartition, WireRecord]] = []
    try:
        cluster.refresh()
        topics = list(parsed["topics"])
        if not topics:
            pattern = compile_regex(parsed["topics.regex"])
            topics = [name for name in cluster.topics if pattern.fullmatch(name)]
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            if topic not in cluster.refresh({topic})
            for number in cluster.topic(topic).partitions
        ]
        ends = {
            which: at.offset for which, at in list_offsets(cluster, dict.fromkeys(partitions, LATEST)).items()
        }
        firsts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
        positions = {
            which: max(firsts[which].offset, end - spec.records - 2)
            for which, end in ends.items()
            if end > firsts[which].offset
        }
        fetcher = Fetcher(cluster, read_committed=True)
        deadline = time.monotonic() + PREVIEW_SECONDS
        while positions and time.monotonic() < deadline:
            for fetched in fetcher.poll(positions, 500):
                which = TopicPartition(fetched.topic, fetched.partition)
                at = positions[which]
                for _, batch in visible_batches(fetched, at, read_committed=True):
                    found += [(which, record) for record in iter_records(batch) if record.offset >= at]
                positions[which] = next_offset(fetched, at)
                if positions[which] >= ends[which]:
                    del positions[which]
    finally:
        cluster.close()
    found.sort(key=lambda pair: pair[1].timestamp)
    return found[-spec.records :]


_plain = JsonConverter({"schemas.enable": "false", "decimal.format": "NUMERIC"})


def _shown(record: Record) -> dict[str, Any]:
    def text(schema: Any, value: Any) -> Any:
        data = _plain.from_connect("", schema, value)
        return None if data is None else json.loads(data)

    shown: dict[str, Any] = {"topic": record.topic, "key": text(record.key_schema, record.key)}
    shown["value"] = text(record.value_schema, record.value)
    if record.headers:
        shown["headers"] = {one.name: text(one.schema, one.value) for one in record.headers}
    if record.timestamp is not None:
        shown["timestamp"] = record.timestamp
    if record.value_schema is not None:
        shown["schema"] = record.value_schema.name or str(record.value_schema.type)
    return shown


def _bytes(data: bytes | None) -> str | None:
    return None if data is None else data[:_BYTES_SHOWN].decode("utf-8", "backslashreplace")


def _reason(error: Exception) -> str:
    cause = error.failure.error if isinstance(error, RecordFailed) else error.__cause__ or error
    return str(cause)


def main() -> None:
    spec: PreviewSpec = pickle.loads(base64.b64decode(sys.stdin.buffer.read()))  # noqa: S301 - from our parent
    try:
        result = preview(spec)
    except Exception as error:
        result = {"error": f"{error}"}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
