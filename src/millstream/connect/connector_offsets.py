"""The offsets of a connector: where its source was read to, or what its group has committed (KIP-875)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.client import Cluster, Producer
from millstream.client.groups import Groups
from millstream.connect.api import Connector
from millstream.connect.config.config_def import printed
from millstream.connect.errors import ConnectError
from millstream.connect.runtime import offset_file
from millstream.connect.runtime.offset_records import OffsetState, offset_key, offset_value, read_offsets
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

Entry = dict[str, Any]
_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"


class BadOffsets(ConnectError):
    """What was asked for makes no sense."""


class SourceOffsets:
    """In the worker's topic, or in a standalone worker's file."""

    def __init__(self, cluster: Cluster, connector: str, topic: str | None, file: str | None) -> None:
        self._cluster, self._connector, self._topic, self._file = cluster, connector, topic, file

    def read(self) -> list[Entry]:
        return [
            {"partition": partition, "offset": offset}
            for partition, offset in self._state().of(self._connector)
        ]

    def _state(self) -> OffsetState:
        if self._file is not None:
            return offset_file.read_file(Path(self._file))
        return OffsetState() if self._topic is None else read_offsets(self._cluster, self._topic)

    def alter(self, entries: Sequence[Entry]) -> None:
        """An offset that is null goes."""
        written: dict[bytes, bytes | None] = {}
        for entry in entries:
            partition = entry.get("partition")
            if not isinstance(partition, dict):
                raise BadOffsets("The partition for a source connector offset cannot be null or missing")
            written[offset_key(self._connector, partition)] = offset_value(entry.get("offset"))
        self._write(written)

    def reset(self) -> None:
        state = self._state()
        self._write(
            {offset_key(self._connector, partition): None for partition, _ in state.of(self._connector)}
        )

    def _write(self, offsets: Mapping[bytes, bytes | None]) -> None:
        if self._file is not None:
            offset_file.append(Path(self._file), offsets)
            return
        if self._topic is None or not offsets:
            return
        count = len(self._cluster.topic(self._topic).partitions)
        batches: dict[TopicPartition, list[Record]] = {}
        for key, value in offsets.items():
            which = TopicPartition(self._topic, partition_for(key, count))
            batches.setdefault(which, []).append(Record(0, -1, key, value))
        Producer(self._cluster).send_batches({which: encode_batch(held) for which, held in batches.items()})


class SinkOffsets:
    """Those of the connector's group."""

    def __init__(self, cluster: Cluster, name: str, group: str) -> None:
        self._groups, self._name, self._group = Groups(cluster), name, group

    def read(self) -> list[Entry]:
        return [
            {
                "partition": {_TOPIC: which.topic, _PARTITION: which.partition},
                "offset": {_OFFSET: found.offset},
            }
            for which, found in sorted(self._committed().items())
        ]

    def _committed(self) -> dict[TopicPartition, Any]:
        found = self._groups.committed(self._group)
        return {which: one for which, one in found.items() if not isinstance(one, KafkaError)}

    def alter(self, entries: Sequence[Entry]) -> None:
        wanted = [_sink_entry(entry) for entry in entries]
        kept = {which: offset for which, offset in wanted if offset is not None}
        if any(offset < 0 for offset in kept.values()):
            raise ConnectError(f"Failed to modify offsets for sink connector {self._name}")
        gone = [which for which, offset in wanted if offset is None]
        if kept:
            self._raise(self._groups.commit(self._group, kept), "alter")
        if gone:
            self._raise(self._groups.delete_offsets(self._group, gone), "delete")

    def reset(self) -> None:
        outcome = self._groups.delete([self._group])[self._group]
        if outcome is not None and outcome.code is not ErrorCode.group_id_not_found:
            raise outcome

    def _raise(self, outcomes: Mapping[TopicPartition, KafkaError | None], act: str) -> None:
        for which, error in outcomes.items():
            if error is not None:
                raise ConnectError(
                    f"Failed to {act} consumer group offsets for connector {self._name}: "
                    f"{which.topic}-{which.partition}: {error}"
                )


def _sink_entry(entry: Entry) -> tuple[TopicPartition, int | None]:
    partition, offset = entry.get("partition"), entry.get("offset")
    if not isinstance(partition, dict):
        raise BadOffsets("The partition for a sink connector offset cannot be null or missing")
    if _TOPIC not in partition or _PARTITION not in partition:
        raise BadOffsets(
            f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
        )
    if partition[_TOPIC] is None:
        raise BadOffsets("Kafka topic names must be valid strings and may not be null")
    if partition[_PARTITION] is None:
        raise BadOffsets("Kafka partitions must be valid numbers and may not be null")
    which = TopicPartition(str(partition[_TOPIC]), _number(partition[_PARTITION], "partition", "Partition"))
    if offset is None:
        return which, None
    if not isinstance(offset, dict) or _OFFSET not in offset:
        raise BadOffsets(
            f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'"
        )
    return which, _number(offset[_OFFSET], "offset", "Offset")


def _number(value: Any, what: str, capital: str) -> int:
    text = str(value)
    if not text.lstrip("-").isdigit():
        raise BadOffsets(
            f"Failed to parse the following Kafka {what} value in the provided offsets: '{printed(value)}'. "
            f"{capital} values for sink connectors need to be integers."
        )
    return int(text)


def change_offsets(
    held: SourceOffsets | SinkOffsets, connector: Connector, entries: Sequence[Entry] | None
) -> str:
    """None for all of them, back to the beginning. Returns what to tell: the connector may keep others."""
    whole = connector.alter_offsets(held.read() if entries is None else entries)
    if entries is None:
        held.reset()
    else:
        held.alter(entries)
    done = "reset" if entries is None else "altered"
    if whole:
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. "
        f"However, if this connector manages offsets externally, they will need to be manually {done} in "
        "the system that the connector uses."
    )
