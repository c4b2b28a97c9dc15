"""Records of callers who act by a delegation token: librdkafka cannot log in by one, our own client can.

`TokenProducer` has what `Producing` uses of confluent-kafka's Producer, and behaves like it: `produce` does
not wait, a thread sends, delivery reports come from that thread. Records that wait for one partition go out
as one batch.
"""

import random
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from millstream.client import ClientConfig, Cluster, Producer
from millstream.wire.compression import CODEC_IDS
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import murmur2
from millstream.wire.records import Header, Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

BATCH_BYTES = 1 << 20
RECORD_OVERHEAD = 70  # bytes of a record beside key, value and headers, and of a batch with one record

Report = Callable[[Any, Any], None]


class _Waiting(NamedTuple):
    topic: str
    partition: int  # -1: not chosen
    record: Record
    size: int
    report: Report


class _Delivered(NamedTuple):
    """What a delivery report tells."""

    at_partition: int
    at_offset: int
    at_time: int

    def partition(self) -> int:
        return self.at_partition

    def offset(self) -> int:
        return self.at_offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at_time


class TokenProducer:
    """`settings` are librdkafka's: acks, compression.type, delivery.timeout.ms, message.max.bytes and the
    limits of the queue count; `error_cb` gets a login that is refused."""

    def __init__(self, config: ClientConfig, settings: Mapping[str, Any]) -> None:
        self._config = config
        self._error = settings.get("error_cb") or (lambda _error: None)
        self._timeout = float(settings.get("delivery.timeout.ms", 30_000)) / 1000
        self._largest = int(settings.get("message.max.bytes", 1_048_576))
        self._max_records = int(settings.get("queue.buffering.max.messages", 200_000))
        self._max_bytes = int(settings.get("queue.buffering.max.kbytes", 131_072)) << 10
        self._acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(settings.get("acks", "all")), -1)
        self._codec = CODEC_IDS.get(str(settings.get("compression.type", "none")), 0)
        self._queue: deque[_Waiting] = deque()
        self._count = self._bytes = 0  # in the queue, or on their way
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._work, name="token producer", daemon=True).start()

    # What Producing calls

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        report: Report,
        _callback: None,
        timestamp: int,
        headers: Any,
    ) -> None:
        pairs: list[Header] = [
            (name, text.encode() if isinstance(text, str) else text) for name, text in headers or ()
        ]
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) * 3 + len(text or b"") for name, text in pairs)
        if size > self._largest:
            raise KafkaException(ClientError(ClientError.MSG_SIZE_TOO_LARGE))
        record = Record(0, timestamp or time.time_ns() // 1_000_000, key, value, pairs)
        with self._changed:
            if self._count >= self._max_records or (self._count and self._bytes + size > self._max_bytes):
                raise BufferError
            self._queue.append(_Waiting(topic, partition, record, size, report))
            self._count += 1
            self._bytes += size
            self._changed.notify_all()

    def poll(self, timeout: float) -> int:
        """Reports come by themselves."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, timeout)
        return 0

    def __len__(self) -> int:
        return self._count

    def flush(self, timeout: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: not self._count, timeout)
        return self._count

    def purge(self) -> None:
        """Nothing more is sent, and the thread ends."""
        with self._changed:
            left = list(self._queue)
            self._queue.clear()
            self._closed = True
            self._changed.notify_all()
        self._fail(left, ClientError(ClientError._PURGE_QUEUE))

    # In the thread

    def _work(self) -> None:
        with Cluster(self._config) as cluster:
            producer = Producer(cluster, acks=self._acks, idempotent=self._acks == -1, codec=self._codec)
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._queue or self._closed)
                    if self._closed:
                        return
                    waiting = list(self._queue)
                    self._queue.clear()
                for (topic, partition), ready in self._by_partition(cluster, waiting).items():
                    while ready:
                        batch = _up_to(ready, BATCH_BYTES)
                        self._send(producer, TopicPartition(topic, partition), batch)

    def _by_partition(
        self, cluster: Cluster, waiting: list[_Waiting]
    ) -> dict[tuple[str, int], deque[_Waiting]]:
        found: dict[tuple[str, int], deque[_Waiting]] = defaultdict(deque)
        unkeyed: dict[str, int] = {}
        failed: dict[str, KafkaError] = {}
        for one in waiting:
            partition = one.partition
            if partition < 0 and one.topic not in failed:
                try:
                    count = len(cluster.topic(one.topic, create=True).partitions)
                except KafkaError as error:
                    failed[one.topic] = error
                else:
                    if one.record.key is not None:
                        partition = (murmur2(one.record.key) & 0x7FFFFFFF) % count
                    else:
                        partition = unkeyed.setdefault(one.topic, random.randrange(count))
            if one.topic in failed:
                self._refused([one], failed[one.topic])
            else:
                found[one.topic, partition].append(one)
        return found

    def _send(self, producer: Producer, where: TopicPartition, batch: list[_Waiting]) -> None:
        try:
            encoded = encode_batch([one.record for one in batch], self._codec)
        except (ValueError, OverflowError, struct.error) as error:
            self._fail(batch, ClientError(ClientError.INVALID_RECORD, str(error)))
            return
        try:
            sent = producer.send_batches({where: encoded}, self._timeout)[where]
        except KafkaError as error:
            self._refused(batch, error)
            return
        for index, one in enumerate(batch):
            offset = sent.offset + index if sent.offset >= 0 else -1
            moment = sent.append_time if sent.append_time >= 0 else one.record.timestamp
            one.report(None, _Delivered(where.partition, offset, moment))
        self._done(batch)

    def _refused(self, batch: list[_Waiting], error: KafkaError) -> None:
        if error.code is ErrorCode.sasl_authentication_failed:
            reported = ClientError(ClientError._AUTHENTICATION, error.message)
            self._error(reported)
        elif error.code in (ErrorCode.network_exception, ErrorCode.request_timed_out):
            reported = ClientError(ClientError._MSG_TIMED_OUT, error.message)
        else:
            reported = ClientError(int(error.code), error.message)
        self._fail(batch, reported)

    def _fail(self, batch: list[_Waiting], error: ClientError) -> None:
        for one in batch:
            one.report(error, None)
        self._done(batch)

    def _done(self, batch: list[_Waiting]) -> None:
        with self._changed:
            self._count -= len(batch)
            self._bytes -= sum(one.size for one in batch)
            self._changed.notify_all()


def _up_to(ready: deque[_Waiting], limit: int) -> list[_Waiting]:
    """The first of them, as many as fit into a batch."""
    taken = [ready.popleft()]
    size = taken[0].size
    while ready and size + ready[0].size <= limit:
        taken.append(ready.popleft())
        size += taken[-1].size
    return taken
