"""Input for the pipeline, written all the time, and what there is of it in the end."""

import threading
import time
from collections.abc import Callable

from millstream.client import ClientConfig, Cluster, Producer
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record

PAUSE = 0.1
BACKLOG = 4000


class Feed:
    """Writes `rate` records a second into a topic, whatever happens to the broker, until it is stopped; but
    no more than BACKLOG ahead of what was `taken`, so that there is an end to catching up."""

    def __init__(
        self, servers: str, topic: str, partitions: int, rate: int, taken: Callable[[], int]
    ) -> None:
        self._servers, self._topic, self._partitions, self._rate = servers, topic, partitions, rate
        self._taken = taken
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.records = 0

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set():
            try:
                with Cluster(ClientConfig.of(self._servers)) as cluster:
                    producer = Producer(cluster)
                    while not self._stop.is_set():
                        if self.records - self._taken() > BACKLOG:
                            time.sleep(PAUSE)
                            continue
                        partition = turn % self._partitions
                        turn += 1
                        count = max(1, int(self._rate * PAUSE))
                        now = round(time.time() * 1000)
                        batch = [
                            Record(0, now, b"%d" % ((self.records + n) % 97), b"input") for n in range(count)
                        ]
                        producer.send(self._topic, partition, batch)
                        self.records += count
                        # The pace of the load.
                        time.sleep(PAUSE)
            except KafkaError:
                # The broker was killed.
                time.sleep(0.2)
