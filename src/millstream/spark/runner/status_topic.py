"""The topic `__millstream_pipelines`: created if it is missing, written, read to its end, polled."""

import time

from millstream.client import (
    EARLIEST,
    LATEST,
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    Producer,
    list_offsets,
)
from millstream.client.fetch import next_offset, visible_batches
from millstream.spark.runner.progress_groups import GroupOffsets
from millstream.spark.runner.status_records import (
    TOPIC,
    Command,
    Status,
    command_key,
    read,
    status_key,
    write_command,
    write_status,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition

PARTITION = TopicPartition(TOPIC, 0)
CONFIGS = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}


def create_status_topic(config: ClientConfig) -> int:
    """Creates the topic if it is missing, and returns its end. With a client of its own, because this may
    take longer than what comes after."""
    cluster = Cluster(config)
    try:
        Admin(cluster).create_if_missing(NewTopic(TOPIC, 1, -1, CONFIGS))
        cluster.wait_for_topics([TOPIC])
        return list_offsets(cluster, {PARTITION: LATEST})[PARTITION].offset
    finally:
        cluster.close()


class StatusTopic:
    """For one thread. `poll` begins at `position`."""

    def __init__(self, config: ClientConfig, position: int = 0) -> None:
        self._cluster = Cluster(config)
        self._producer = Producer(self._cluster, create_topics=False)
        self._position = position
        self.groups = GroupOffsets(self._cluster)

    def close(self) -> None:
        self._cluster.close()

    def __enter__(self) -> "StatusTopic":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing --------------------------------------------------------------------------------------------

    def publish(self, status: Status) -> None:
        self._write(status_key(status.pipeline), write_status(status))

    def send(self, command: Command) -> None:
        self._write(command_key(command.pipeline), write_command(command))

    def forget(self, pipeline: str) -> None:
        """Remove what the topic says about a pipeline: tombstones."""
        self._write(status_key(pipeline), None)
        self._write(command_key(pipeline), None)

    def _write(self, key: bytes, value: bytes | None) -> None:
        self._producer.send(*PARTITION, [Record(0, round(time.time() * 1000), key, value, ())])

    # --- reading --------------------------------------------------------------------------------------------

    def read_all(self) -> dict[str, Status]:
        """The newest status of every pipeline. Afterwards `poll` continues from there."""
        problem = self._cluster.refresh([TOPIC]).get(TOPIC)
        if problem is not None:
            if problem.code is ErrorCode.unknown_topic_or_partition:
                return {}  # no pipeline ever ran here
            raise problem
        end = list_offsets(self._cluster, {PARTITION: LATEST})[PARTITION].offset
        self._position = list_offsets(self._cluster, {PARTITION: EARLIEST})[PARTITION].offset
        found: dict[str, Status] = {}
        while self._position < end:
            for key, value in self._next(1000):
                about = read(key, value)
                if isinstance(about, Status):
                    found[about.pipeline] = about
                elif value is None:
                    found = {name: one for name, one in found.items() if status_key(name) != key}
        return found

    def poll(self, max_wait_ms: int) -> list[Status | Command]:
        """What was written since, waiting for it as long as that."""
        try:
            found = [read(key, value) for key, value in self._next(max_wait_ms)]
        except KafkaError as error:
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
            time.sleep(max_wait_ms / 1000)  # no pipeline ever ran here; one may start
            return []
        return [one for one in found if one is not None]

    def _next(self, max_wait_ms: int) -> list[tuple[bytes | None, bytes | None]]:
        found: list[tuple[bytes | None, bytes | None]] = []
        for answer in Fetcher(self._cluster).poll({PARTITION: self._position}, max_wait_ms):
            if answer.error is not ErrorCode.none:
                raise KafkaError(answer.error, f"topic {TOPIC} cannot be read: {answer.error.name}")
            for _, batch in visible_batches(answer, self._position):
                records = (record for record in iter_records(batch) if record.offset >= self._position)
                found += [(record.key, record.value) for record in records]
            self._position = next_offset(answer, self._position)
        return found

    # --- lag ------------------------------------------------------------------------------------------------

    def ends_of(self, offsets: dict[str, dict[str, int]]) -> dict[TopicPartition, int]:
        """Where those partitions end now."""
        wanted = {
            TopicPartition(topic, int(partition)): LATEST
            for topic, parts in offsets.items()
            for partition in parts
        }
        for topic in offsets:
            self._cluster.topic(topic)
        return {
            topic_partition: found.offset
            for topic_partition, found in list_offsets(self._cluster, wanted).items()
        }
