"""Bad records to a topic of their own, so that the rest goes on.

The rows of a DataFrame whose decoded column says what is wrong with them are written to a topic by the task
that finds them, and dropped. They carry their original bytes and key, and headers with the names that Kafka
Connect uses for dead letters, so one tool reads and redrives both. A replayed batch writes its bad records
again: at least once.

A dead letter is larger than its record was, by its headers, and its topic may have a lower max.message.bytes
than the one the record came from. Dead letters go out in batches that the topic takes; one that is too large
alone loses the end of its value (and if need be of its key), and headers say how long it was. Better a part
of a bad record than a stuck query.
"""

import datetime
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.client import ClientConfig, Producer
from millstream.spark.clusters import cluster_for_writing
from millstream.spark.columns.registry import arrow_udf_of
from millstream.spark.options import Options
from millstream.spark.sink.write_options import BATCH_BYTES
from millstream.wire.batch import HEADER_SIZE
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN = ("topic", "partition", "offset", "timestamp", "key")
PREFIX = "__connect.errors."
# Followed by value.size or key.size: how many bytes there were before the end was cut off.
CUT_PREFIX = "__millstream.errors."
MAX_REASON_LENGTH = 2000
# Bytes around a record's or a header's content, at most.
_RECORD_FRAME, _HEADER_FRAME = 36, 10
# acks, idempotence and timeout of our producer among those of the shared cluster.
_PRODUCER_KEY = (-1, True, 30_000)


@dataclass(frozen=True)
class DeadLetterTopic:
    """Where dead letters go."""

    config: ClientConfig
    topic: str
    stage: str


def dead_letters(
    df: "DataFrame", column: str, topic: str, *, corrupt: str = "_corrupt", **options: str
) -> "DataFrame":
    """The rows that could be decoded. The others go to `topic`.

    column    the decoded column (of from_registry, from_json or from_delimited)
    options   of the Kafka client, as for format("millstream"): **{"kafka.bootstrap.servers": "host:port"}

    Where the DataFrame still has the source's columns topic, partition, offset, timestamp and key, the dead
    dead letter says where it comes from.
    """
    from pyspark.sql import functions as functions

    target = DeadLetterTopic(Options(options, (), "writ").client("millstream-dead-letters"), topic, column)
    problem = functions.col(column).getField(corrupt)
    bad = problem.isNotNull()
    origin = [name for name in ORIGIN if name in df.columns]

    def kept(problems, rows):  # type: ignore[no-untyped-def]
        from millstream.spark.errors import plainly

        with plainly():
            return send_bad(target, problems, rows)

    made = arrow_udf_of(kept, "boolean")
    described = (
        functions.struct(*[functions.col(name) for name in origin])
        if origin
        else functions.struct(functions.lit(None).alias("topic"))
    )
    # Only of bad rows does anything travel to the Python worker.
    return df.where(made.asNondeterministic()(problem, functions.when(bad, described)))


def send_bad(target: DeadLetterTopic, problems: pa.Array, origins: pa.Array) -> pa.Array:
    """In a task: write the bad rows, and say which rows are good."""
    good = pc.is_null(problems)
    if problems.null_count < len(problems):
        bad = pc.invert(good)
        rows = zip(problems.filter(bad).to_pylist(), origins.filter(bad).to_pylist(), strict=True)
        _send(target, [_dead_letter(target, problem, origin or {}) for problem, origin in rows])
    return good


def _dead_letter(target: DeadLetterTopic, problem: dict[str, Any], origin: dict[str, Any]) -> Record:
    headers: list[tuple[str, bytes | None]] = [
        (f"{PREFIX}{name}", str(origin[name]).encode())
        for name in ("topic", "partition", "offset")
        if origin.get(name) is not None
    ]
    headers.append((f"{PREFIX}stage", target.stage.encode()))
    headers.append((f"{PREFIX}exception.message", (problem.get("error") or "")[:MAX_REASON_LENGTH].encode()))
    # The user may have columns of these names that are something else.
    moment, key = origin.get("timestamp"), origin.get("key")
    seconds = moment.timestamp() if isinstance(moment, datetime.datetime) else time.time()
    if key is not None and not isinstance(key, bytes):
        key = str(key).encode()
    return Record(0, round(seconds * 1000), key, problem.get("data"), headers)


def _send(target: DeadLetterTopic, records: list[Record]) -> None:
    shared = cluster_for_writing(target.config)
    producer = shared.producers.pop(_PRODUCER_KEY, None) or Producer(shared.cluster)
    partitions = sorted(shared.cluster.topic(target.topic, create=True).partitions)
    limit = shared.max_batch_bytes(target.topic)
    shares: dict[int, list[Record]] = {}
    for number, record in enumerate(records):
        count = len(partitions)
        chosen = number % count if record.key is None else partition_for(record.key, count)
        shares.setdefault(partitions[chosen], []).append(cut_to(record, limit))
    for partition, share in shares.items():
        for batch in in_batches(share, min(limit, BATCH_BYTES)):
            _deliver(producer, target.topic, partition, batch)
    shared.producers[_PRODUCER_KEY] = producer  # for the next batch; one that has failed is not used again


def _deliver(producer: Producer, topic: str, partition: int, records: list[Record]) -> None:
    """Where the broker did not tell its limit (or has lowered it since), it is found by trying."""
    try:
        producer.send(topic, partition, records)
    except KafkaError as error:
        if error.code is not ErrorCode.message_too_large:
            raise
        middle = len(records) // 2
        parts = [records[:middle], records[middle:]]
        if not middle:
            shorter = cut_to(records[0], max_record_bytes(records[0]) // 2)
            if max_record_bytes(shorter) >= max_record_bytes(records[0]):
                raise  # nothing is left to cut off
            parts = [[shorter]]
        for part in parts:
            _deliver(producer, topic, partition, part)


# --- sizes --------------------------------------------------------------------------------------------------


def max_record_bytes(record: Record) -> int:
    """What a record takes as a batch of its own, at most."""
    return HEADER_SIZE + _in_batch(record)


def _in_batch(record: Record) -> int:
    content = len(record.key or b"") + len(record.value or b"")
    headers = sum(_HEADER_FRAME + len(name) + len(text or b"") for name, text in record.headers)
    return _RECORD_FRAME + content + headers


def in_batches(records: list[Record], limit: int) -> Iterator[list[Record]]:
    """The records in order, as many in a batch as `limit` bytes hold (but at least one)."""
    batch: list[Record] = []
    size = HEADER_SIZE
    for record in records:
        more = _in_batch(record)
        if batch and size + more > limit:
            yield batch
            batch, size = [], HEADER_SIZE
        batch.append(record)
        size += more
    if batch:
        yield batch


def cut_to(record: Record, limit: int) -> Record:
    """The record, if it fits. Otherwise with as much of its value as there is room for, and if even the key
    is too long, with a part of that."""
    if max_record_bytes(record) <= limit:
        return record
    for name in ("value", "key"):
        content = getattr(record, name)
        header = f"{CUT_PREFIX}{name}.size"
        if not content:
            continue
        headers = list(record.headers)
        if not any(known == header for known, _ in headers):  # what was cut before keeps its first size
            headers.append((header, str(len(content)).encode()))
        record = record._replace(headers=headers)
        room = len(content) - (max_record_bytes(record) - limit)
        record = record._replace(**{name: content[: max(room, 0)]})
        if room >= 0:
            break
    return record
