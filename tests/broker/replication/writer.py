"""A client of these tests: confluent-kafka, idempotent, one partition."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Producer


class Writer:
    """Writes numbers with acks=all until it is stopped, and keeps what was acknowledged, in order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[Any] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "request.timeout.ms": 10_000,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) < 500:
                self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.001)
        self._producer.flush(300)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.errors.append(error)

    def stop(self) -> list[bytes]:
        """Everything that was acknowledged."""
        self._stop.set()
        self._thread.join(310)
        assert not self.errors, self.errors[:3]
        return self.acknowledged
