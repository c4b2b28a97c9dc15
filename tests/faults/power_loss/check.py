"""Start a broker on what a power failure left, and look whether everything that was promised is there.

Promised is what clients were told before the power went: records at their offsets, commits and aborts of
transactions, committed offsets of groups, topics that were created or deleted, settings. What nobody was told
may be there or not.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

from millstream.broker.server import Broker, CannotStart
from millstream.client import ClientConfig, Cluster
from millstream.client.groups import Committed, Groups
from millstream.settings.resolve import BrokerSettings
from millstream.storage.log import PartitionLog
from millstream.wire.errors import KafkaError
from millstream.wire.records import iter_batches, iter_records
from millstream.wire.topic_partition import TopicPartition

from .workload import COMPACTED, SETTINGS

PATIENCE = 60.0


class Promised:
    """What clients were told so far."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
        self.newest: dict[tuple[TopicPartition, str], tuple[int, str]] = {}
        self.decided: dict[TopicPartition, dict[int, bool]] = defaultdict(dict)  # offset -> committed?
        self.offsets: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self.topics: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.configs: dict[tuple[str, str], str] = {}
        self.deleting: set[str] = set()  # asked for, not yet answered: either outcome is right

    def hear(self, ack: dict[str, Any]) -> None:
        what, topic = ack["what"], ack["topic"]
        if what == "record":
            at = TopicPartition(topic, ack["partition"])
            if topic == COMPACTED:
                self.newest[at, ack["key"]] = (ack["offset"], ack["value"])
            else:
                self.records[at][ack["offset"]] = ack["value"]
        elif what in ("committed", "aborted"):
            for partition, offset, value in ack["records"]:
                self.records[TopicPartition(topic, partition)][offset] = value
                self.decided[TopicPartition(topic, partition)][offset] = what == "committed"
        elif what == "offset":
            self.offsets[ack["group"]][TopicPartition(topic, ack["partition"])] = ack["offset"]
        elif what == "created":
            self.topics[topic] = ack["partitions"]
        elif what == "deleting":
            self.deleting.add(topic)
        elif what == "deleted":
            self.topics.pop(topic)
            self.deleted.add(topic)
        elif what == "config":
            self.configs[topic, ack["name"]] = ack["value"]


def violations(folder: Path, promised: Promised) -> list[str]:
    """What is missing or wrong in the data folder."""
    return asyncio.run(_check(folder, promised))


async def _check(folder: Path, promised: Promised) -> list[str]:
    settings = {name: str(value) for name, value in SETTINGS.items()}
    broker = Broker(
        BrokerSettings({**settings, "log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"})
    )
    try:
        await broker.start()
    except CannotStart as error:
        return [f"the broker does not start: {error}"]
    try:
        found = _check_topics(broker, promised)
        found += _check_records(broker, promised)
        if found:
            return found
        found += await _check_transactions(broker, promised)
        port = broker.acceptors[0].port
        found += await asyncio.to_thread(_check_offsets, port, promised)
        return found
    except KafkaError as error:
        return [f"a log cannot be read: {error}"]
    finally:
        await broker.stop()


def _check_topics(broker: Broker, promised: Promised) -> list[str]:
    found = []
    for name, partitions in promised.topics.items():
        topic = broker.image.topic(name)
        if topic is None:
            if name not in promised.deleting:
                found.append(f"topic {name} is gone")
            continue
        for number in range(partitions):
            log = broker.log_dirs.logs.get(TopicPartition(name, number))
            if log is None:
                found.append(f"{name}-{number} has no log")
            elif log.topic_id != topic.topic_id:
                found.append(f"{name}-{number} has topic id {log.topic_id}, not {topic.topic_id}")
    found += [f"topic {name} is back" for name in promised.deleted if broker.image.topic(name) is not None]
    for (name, key), value in promised.configs.items():
        topic = broker.image.topic(name)
        if topic is None:
            continue
        stored = broker.image.topic_config(topic.topic_id).get(key)
        if stored is None or int(stored) < int(value):
            found.append(f"{key} of {name} is {stored}, not {value}")
    return found


def _contents(log: PartitionLog) -> dict[int, tuple[str, str]]:
    """Key and value of every data record in the log."""
    records: dict[int, tuple[str, str]] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        piece = log.read(offset, 1 << 20, upto="end")
        if not piece.size:
            break
        for header, batch in iter_batches(piece.read()):
            if not header.is_control:
                for record in iter_records(bytes(batch)):
                    records[record.offset] = ((record.key or b"").decode(), (record.value or b"").decode())
        offset = piece.next_offset
    return records


def _check_records(broker: Broker, promised: Promised) -> list[str]:
    found = []
    for at, expected in promised.records.items():
        log = broker.log_dirs.logs.get(at)
        contents = _contents(log) if log is not None else {}
        for offset, value in expected.items():
            if contents.get(offset, ("", None))[1] != value:
                found.append(f"{at} offset {offset}: {contents.get(offset)}, not {value!r}")
    newest: dict[tuple[TopicPartition, str], int] = {}
    for at in {at for at, _ in promised.newest}:
        log = broker.log_dirs.logs.get(at)
        for offset, (key, _) in (_contents(log) if log is not None else {}).items():
            newest[at, key] = max(offset, newest.get((at, key), -1))
    for (at, key), (offset, _) in promised.newest.items():
        if newest.get((at, key), -1) < offset:
            found.append(f"{at} key {key}: the newest is at {newest.get((at, key))}, not at {offset}")
    return found


async def _check_transactions(broker: Broker, promised: Promised) -> list[str]:
    """A transaction whose end was promised ends, the way that was promised."""
    found = []
    deadline = asyncio.get_running_loop().time() + PATIENCE
    for at, offsets in promised.decided.items():
        log = broker.log_dirs.logs.get(at)
        if log is None or not offsets:
            continue
        # The coordinator writes the markers when it has loaded; nothing tells when.
        while log.last_stable_offset <= max(offsets) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if log.last_stable_offset <= max(offsets):
            found.append(f"{at}: a transaction that was ended is open again at {log.last_stable_offset}")
            continue
        aborted = [
            (each.first_offset, each.last_offset) for each in log.aborted_transactions(0, log.end_offset)
        ]
        for offset, committed in offsets.items():
            if committed is any(first <= offset <= last for first, last in aborted):
                found.append(f"{at} offset {offset}: not as its transaction ended (committed: {committed})")
    return found


def _check_offsets(port: int, promised: Promised) -> list[str]:
    found = []
    if not promised.offsets:
        return found
    with Cluster(ClientConfig.of(f"127.0.0.1:{port}")) as cluster:
        for group, offsets in promised.offsets.items():
            known = Groups(cluster).committed(group, list(offsets))
            for at, offset in offsets.items():
                stored = known.get(at)
                if not isinstance(stored, Committed) or stored.offset < offset:
                    found.append(f"group {group} at {at}: {stored}, not {offset}")
    return found
