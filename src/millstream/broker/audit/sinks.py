"""Where the audit log goes: a file that may be rotated, or a topic."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.broker.audit.log import Audit, Sink
from millstream.cluster.commands import NewTopic
from millstream.cluster.topic_names import name_problem
from millstream.settings.values import InvalidSetting
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch

if TYPE_CHECKING:
    from millstream.broker.replication.broker_connection import BrokerConnections
    from millstream.broker.server import Broker

SETTING = "millstream.audit.log"
PRODUCE_VERSION = 12  # the last that names topics
TIMEOUT_MS = 10_000


def make_audit(broker: Broker) -> Audit | None:
    """InvalidSetting if the setting, or the file that it names, cannot be used."""
    text = broker.settings.string(SETTING).strip()
    if not text:
        return None
    kind, _, name = text.partition(":")
    sink: Sink
    if kind == "file" and name:
        try:
            sink = FileSink(Path(name))
        except OSError as error:
            raise InvalidSetting(SETTING, text, f"The file cannot be written: {error}") from None
    elif kind == "topic" and name:
        wrong = name_problem(name)
        if wrong is not None:
            raise InvalidSetting(SETTING, text, wrong)
        sink = TopicSink(broker, name)
    else:
        raise InvalidSetting(SETTING, text, "Use file:PATH or topic:NAME")
    return Audit(sink, lambda: broker.node_id)


class FileSink:
    """Lines at the end of a file that only the broker's user may read. Where it was moved away (logrotate),
    the next event makes a new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "audit-log")
        self._file = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def write(self, lines: Sequence[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._append, data)

    def _append(self, data: bytes) -> None:
        if not self._is_in_place():
            new = self._open()
            os.close(self._file)
            self._file = new
        size = os.fstat(self._file).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, size)  # a full disk: no half of a line stays
            raise

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    async def close(self) -> None:
        self._thread.shutdown()
        os.close(self._file)


class TopicSink:
    """Records of partition 0 of a topic, which is made if it is not there. Its leader may be another broker:
    then they travel as those between brokers do, under this broker's own name."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._connections: BrokerConnections | None = None

    async def write(self, lines: Sequence[bytes]) -> None:
        now = int(time.time() * 1000)
        batch = encode_batch([Record(at, now, None, line, ()) for at, line in enumerate(lines)])
        if self._broker.image.topic(self._topic) is None:
            await self._create()
        partition = self._broker.partitions.find(self._topic, 0)
        if partition is None or not partition.leads:
            await self._send(batch)
            return
        if not partition.enough_in_sync:
            raise KafkaError(ErrorCode.not_enough_replicas)
        appended = partition.log.append_trusted(memoryview(batch), partition.leader_epoch, now)
        partition.appended(appended.size, len(lines), now)
        partition.wake_fetches()

    async def _create(self) -> None:
        replicas = 1 if self._broker.alone else -1
        (made,) = await self._broker.forwarding.create_topics([NewTopic(self._topic, 1, replicas)])
        if made.error not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise KafkaError(made.error, made.message or made.error.name)

    async def _send(self, batch: bytearray) -> None:
        image = self._broker.image
        topic = image.topic(self._topic)
        partition = None if topic is None else image.partition(topic.topic_id, 0)
        if partition is None or partition.leader < 0:
            raise KafkaError(ErrorCode.leader_not_available, f"nobody leads {self._topic}")
        if self._connections is None:
            self._connections = self._broker.new_connections("audit")
        answer = await self._connections.request(
            partition.leader,
            "produce",
            up_to=PRODUCE_VERSION,
            transactional_id=None,
            acks=-1,
            timeout=TIMEOUT_MS,
            topic_data=[{"name": self._topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}],
        )
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if error is not ErrorCode.none:
            raise KafkaError(error, f"{self._topic}: {error.name.upper()}")

    async def close(self) -> None:
        """The connections are the broker's, which closes them."""
