"""The processing log: a record for every value that could not be computed, and every record that could not be
read.

`<service.id>ksql_processing_log` gets JSON of ksqlDB's form. It is written beside the query by a thread of
each process, from a queue that drops what does not fit: a query is never slower, and never fails, because of
its log.
"""

from __future__ import annotations

import functools
import json
import logging
import queue
import threading
import time
from typing import Any

from millstream.client import ClientConfig, Cluster, Producer
from millstream.sql.row_functions import Log, no_log
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record

log = logging.getLogger("millstream.sql")

_WAITING = 1_000
_BATCH = 200


def processing_log(client: ClientConfig | None, topic: str | None) -> Log:
    """The log of this process for a topic; without one, nothing is kept."""
    if client is None or topic is None:
        return no_log
    return _writer(client.bootstrap if hasattr(client, "bootstrap") else str(client), client, topic)


def _message(what: str, text: str, error: Exception, row: Any) -> dict[str, Any]:
    if what == "deserialization":
        return {
            "type": 0,
            "deserializationError": {
                "target": "value",
                "errorMessage": str(error),
                "recordB64": None,
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

    def __call__(self, what: str, text: str, error: Exception, row: Any) -> None:
        entry = {
            "level": "ERROR",
            "logger": f"processing.{what}",
            "time": int(time.time() * 1000),
            "message": _message(what, text, error, row),
        }
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
