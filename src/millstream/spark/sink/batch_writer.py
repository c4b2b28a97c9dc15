"""Rows of a task out to the brokers: Arrow batches in, record batches out, acknowledged when `write` returns.

Small Arrow batches are joined first, so that record batches are large however Spark cuts its own. While the
brokers work on one round of batches (at most one per partition), the next is encoded.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from millstream.client.cluster_cache import SharedCluster
from millstream.client.producer import Batch, Producer, Sending
from millstream.spark.errors import PipelineError
from millstream.spark.sink.write_options import WriteOptions
from millstream.wire.arrow.encode import BadRow, Encoded, Encoder, Rows, TooLarge
from millstream.wire.batch import CRC_START, crc_of
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

# Arrow batches are joined up to this size, or up to some record batches of the configured size.
JOINED_BYTES = 4 << 20
JOINED_BATCHES = 8
# Bytes of one round of requests.
ROUND_BYTES = 8 << 20


class BatchWriter:
    """Writes rows through a producer."""

    def __init__(self, options: WriteOptions, shared: SharedCluster, producer: Producer, turn: int) -> None:
        self._settings = options
        self._worker = shared
        self._producer = producer
        self._turn = turn
        self._encoder: Encoder | None = None
        self._round: dict[TopicPartition, Batch] = {}
        self._round_bytes = 0
        self._sending: Sending | None = None
        self.rows = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Everything, and wait until it is acknowledged. Returns how many rows there were."""
        try:
            enough = min(JOINED_BYTES, JOINED_BATCHES * self._settings.batch_bytes)
            for joined in _joined(batches, self._settings.columns, enough):
                self._write(joined)
            self._send_round()
            self._finish()
        except TooLarge as large:
            raise PipelineError(
                f"a record of {large.size} bytes for topic '{large.topic}' is larger than option "
                f"'kafka.max.request.size' allows ({large.limit})"
            ) from None
        except BadRow as bad:
            raise PipelineError(str(bad)) from None
        except KafkaError as error:
            if error.code is ErrorCode.message_too_large:
                raise PipelineError(
                    f"{error.message}; lower option 'kafka.batch.size' or raise the topic's limit"
                ) from None
            raise
        return self.rows

    def _write(self, rows: Rows) -> None:
        options = self._settings
        encoder = self._encoder or self._make_encoder(rows)
        for encoded in encoder.encode(rows, options.topic):
            self._add(encoded)
        self.rows += len(rows)

    def _make_encoder(self, rows: Rows) -> Encoder:
        options = self._settings
        if options.topic is not None:
            names = {options.topic}
        else:
            names = set() if rows.topic is None else set(rows.topic.unique().to_pylist()) - {None}
        self._finish()
        for name in names:
            self._worker.partition_count(name)
        limit = min((self._worker.max_batch_bytes(name) for name in names), default=options.batch_bytes)
        self._encoder = Encoder(
            self._partitions_of,
            batch_bytes=min(options.batch_bytes, limit),
            largest_record=options.max_record_bytes,
            codec=options.codec,
            level=options.level,
            transactional=self._producer.transactional_id is not None,
            first_turn=self._turn,
        )
        return self._encoder

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._worker.cluster.topics:
            self._finish()  # the connections must be free for other requests
        return self._worker.partition_count(topic)

    def _add(self, encoded: Encoded) -> None:
        if encoded.topic_partition in self._round or self._round_bytes > ROUND_BYTES:
            self._send_round()
        if not self._settings.idempotent:  # else the producer stamps the batch and sums it then
            encoded.batch[CRC_START - 4 : CRC_START] = crc_of(encoded.batch).to_bytes(4, "big")
        self._round[encoded.topic_partition] = encoded.batch
        self._round_bytes += len(encoded.batch)

    def _send_round(self) -> None:
        self._finish()
        if self._round:
            self._sending = self._producer.start(self._round)
            self._round, self._round_bytes = {}, 0

    def _finish(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            self._producer.finish(sending)


def _joined(batches: Iterable[pa.RecordBatch], columns: tuple[str, ...], enough: int) -> Iterator[Rows]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch.select(columns))
        size += waiting[-1].nbytes
        if size >= enough:
            yield _rows(waiting)
            waiting, size = [], 0
    if waiting:
        yield _rows(waiting)


def _rows(batches: list[pa.RecordBatch]) -> Rows:
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    found: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Rows(**found)


def count_rows(batches: Iterable[pa.RecordBatch]) -> int:
    """Read to the end, as Spark expects, and count."""
    return sum(batch.num_rows for batch in batches)
