"""What pipelines say about themselves: the newest status of each, followed in their compacted topic.

The topic is read from its beginning once, and from there on whenever somebody looks.
"""

import threading
import time

from millstream.client import EARLIEST, LATEST, Cluster, Fetcher, Producer, visible_batches
from millstream.client.fetch import next_offset
from millstream.console import cluster_queries
from millstream.console.message_pages import get_topic
from millstream.spark.runner.status_records import (
    Command,
    Status,
    command_key,
    read,
    status_key,
    write_command,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition


class PipelineReports:
    """For any number of threads, one at a time."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._lock = threading.Lock()
        self._id: object = None
        self._position = 0
        self._found: dict[bytes, Status] = {}

    def newest(self, cluster: Cluster) -> list[Status]:
        """By name. KafkaError if there is no such topic."""
        with self._lock:
            self._catch_up(cluster)
            return sorted(self._found.values(), key=lambda status: status.pipeline)

    def stop(self, cluster: Cluster, pipeline: str, run: str) -> None:
        """Ask a run of a pipeline to end."""
        now = round(time.time() * 1000)
        value = write_command(Command(pipeline, "stop", run, now))
        Producer(cluster, create_topics=False).send(
            self.topic, 0, [Record(0, now, command_key(pipeline), value)]
        )

    def _catch_up(self, cluster: Cluster) -> None:
        topic = get_topic(cluster, self.topic)
        topic_partition = TopicPartition(self.topic, 0)
        end = cluster_queries.list_offsets(cluster, LATEST, [self.topic]).get(topic_partition, 0)
        if topic.id != self._id or end < self._position:  # made anew
            self._id, self._found = topic.id, {}
            self._position = cluster_queries.list_offsets(cluster, EARLIEST, [self.topic]).get(
                topic_partition, 0
            )
        fetcher = Fetcher(cluster, partition_max_bytes=8 << 20)
        deadline = time.monotonic() + 5
        while self._position < end and time.monotonic() < deadline:
            for answer in fetcher.poll({topic_partition: self._position}, max_wait_ms=300):
                if answer.error is ErrorCode.offset_out_of_range:
                    self._position = max(answer.log_start_offset, self._position + 1)
                    continue
                for _, batch in visible_batches(answer, self._position):
                    try:
                        for record in iter_records(batch):
                            self._apply(record.key, record.value)
                    except KafkaError:
                        continue
                self._position = next_offset(answer, self._position)

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        if key is not None and value is None:
            self._found.pop(key, None)
        about = read(key, value)
        if isinstance(about, Status):
            self._found[status_key(about.pipeline)] = about
