"""The processing log: a record for every value that could not be computed, and every record that could not be
read.

`<service.id>ksql_processing_log` gets JSON of ksqlDB's form. It is written beside the query by a thread of
each process, from a queue that drops what does not fit: a query is never slower, and never fails, because of
its log.
"""

from __future__ import annotations

import base64
import functools
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from millstream.client import ClientConfig, Cluster, Producer
from millstream.sql.errors import EvaluationError
from millstream.sql.row_functions import Log, no_log
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record

log = logging.getLogger("millstream.sql")

ROWS = "ksql.logging.processing.rows.include"
_FATAL = {
    "deserialization": "ksql.fail.on.deserialization.error",
    "timestamp": "ksql.timestamp.throw.on.invalid",
}
_STEPS = {
    "deserialization": "KsqlTopic.Source.deserializer",
    "timestamp": "KsqlTopic.Source",
    "filter": "WhereFilter",
}
_WAITING = 1_000
_BATCH = 200


def processing_log(
    client: ClientConfig | None, topic: str | None, settings: Mapping[str, Any], query_id: str = ""
) -> Log:
    """The log of one query, written by this process to a topic; without one, nothing is kept."""
    if client is None or topic is None:
        return no_log
    writer = _writer(client.bootstrap if hasattr(client, "bootstrap") else str(client), client, topic)
    return QueryLog(writer.put, query_id, rows=str(settings.get(ROWS, "")).lower() == "true")


def failing(log: Log, settings: Mapping[str, Any]) -> Log:
    """The same log, which ends the query where the settings want no record to be left out."""
    fatal = {what for what, name in _FATAL.items() if str(settings.get(name, "")).lower() == "true"}
    if not fatal:
        return log

    def log_and_fail(what: str, text: str, error: Exception, row: Any) -> None:
        log(what, text, error, row)
        if what in fatal:
            raise EvaluationError(f"{_FATAL[what]} is true, and a record of {text} has this error: {error}")

    return log_and_fail


class QueryLog:
    """What one query reports. Rows are left out unless a setting wants them: a log has other readers than the
    data."""

    def __init__(
        self, put: Callable[[dict[str, Any]], None], query_id: str = "", *, rows: bool = False
    ) -> None:
        self._put, self.query_id, self._rows = put, query_id, rows

    def __call__(self, what: str, text: str, error: Exception, row: Any) -> None:
        self._put(
            {
                "level": "ERROR",
                "logger": f"processing.{self.query_id}.{_STEPS.get(what, 'Project')}",
                "time": int(time.time() * 1000),
                "message": _message(what, text, error, row if self._rows else None),
            }
        )


def _message(what: str, text: str, error: Exception, row: Any) -> dict[str, Any]:
    if what == "deserialization":
        return {
            "type": 0,
            "deserializationError": {
                "target": "value",
                "errorMessage": str(error),
                "recordB64": base64.b64encode(row).decode() if isinstance(row, bytes) else None,
                "cause": [],
                "topic": text,
            },
        }
    return {
        "type": 1,
        "recordProcessingError": {
            "errorMessage": f"Error computing {what}: {text}: {error}",
            "record": _shown(row),
            "cause": [str(error)],
        },
    }


def _shown(row: Any) -> str | None:
    if row is None:
        return None
    try:
        return json.dumps(row, default=str)[:1000]
    except (TypeError, ValueError):
        return None


class ProcessingLog:
    def __init__(self, client: ClientConfig, topic: str) -> None:
        self._client, self._topic = client, topic
        self._queue: queue.Queue[bytes] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def put(self, entry: dict[str, Any]) -> None:
        try:
            self._queue.put_nowait(json.dumps(entry).encode())
        except queue.Full:
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="processing-log", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        with Cluster(self._client) as cluster:
            producer = Producer(cluster, idempotent=False, create_topics=True)
            while True:
                batch = [self._queue.get()]
                while len(batch) < _BATCH and not self._queue.empty():
                    batch.append(self._queue.get())
                now = int(time.time() * 1000)
                try:
                    producer.send(self._topic, 0, [Record(0, now, None, data, ()) for data in batch])
                except (KafkaError, OSError) as error:
                    log.warning("the processing log cannot be written: %s", error)
                    time.sleep(1)


@functools.lru_cache(maxsize=16)
def _writer(_key: str, client: ClientConfig, topic: str) -> ProcessingLog:
    return ProcessingLog(client, topic)


def stream_over_it(name: str, topic: str, partitions: int | None, replicas: int) -> str:
    """The statement that makes a stream of the log. `partitions` is None if the topic is there."""
    errors = {
        "deserializationError": "`target` STRING, `errorMessage` STRING, `recordB64` STRING, "
        "`cause` ARRAY<STRING>, `topic` STRING",
        "recordProcessingError": "`errorMessage` STRING, `record` STRING, `cause` ARRAY<STRING>",
        "productionError": "`errorMessage` STRING",
        "serializationError": "`target` STRING, `errorMessage` STRING, `record` STRING, "
        "`cause` ARRAY<STRING>, `topic` STRING",
        "kafkaStreamsThreadError": "`errorMessage` STRING, `threadName` STRING, `cause` ARRAY<STRING>",
    }
    fields = ", ".join(f"`{error}` STRUCT<{parts}>" for error, parts in errors.items())
    made = "" if partitions is None else f", partitions={partitions}, replicas={replicas}"
    return (
        f"CREATE STREAM IF NOT EXISTS `{name}` (`LOGGER` STRING, `LEVEL` STRING, `TIME` BIGINT, "
        f"`MESSAGE` STRUCT<`type` INT, {fields}>) WITH (kafka_topic='{topic}', value_format='JSON'{made});"
    )
