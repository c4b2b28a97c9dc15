"""Bad records to a topic of their own, so that the rest goes on.

The rows of a DataFrame whose decoded column says what is wrong with them are written to a topic by the task that finds them, and
dropped. They carry their original bytes and key, and headers with the names that Kafka Connect uses for dead letters, so
one tool reads and redrives both. A replayed batch writes its bad records again: at least once.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.client import ClientConfig, Cluster, Producer
from millstream.pipeline.columns.registry import arrow_udf_of
from millstream.pipeline.options import Options
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN = ("topic", "partition", "offset", "timestamp", "key")
PREFIX = "__connect.errors."


@dataclass(frozen=True)
class Letters:
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

    Where the DataFrame still has the source's columns topic, partition, offset, timestamp and key, the dead letter says where
    it comes from.
    """
    from pyspark.sql import functions as f

    letters = Letters(Options(options, (), "writ").client("millstream-dead-letters"), topic, column)
    problem = f.col(column).getField(corrupt)
    bad = problem.isNotNull()
    origin = [name for name in ORIGIN if name in df.columns]

    def kept(problems, rows):  # type: ignore[no-untyped-def]
        from millstream.pipeline.errors import plainly

        with plainly():
            return send_bad(letters, problems, rows)

    made = arrow_udf_of(kept, "boolean")
    described = (
        f.struct(*[f.col(name) for name in origin]) if origin else f.struct(f.lit(None).alias("topic"))
    )
    # Only of bad rows does anything travel to the Python worker.
    return df.where(made.asNondeterministic()(problem, f.when(bad, described)))


def send_bad(letters: Letters, problems: pa.Array, origins: pa.Array) -> pa.Array:
    """In a task: write the bad rows, and say which rows are good."""
    good = pc.is_null(problems)
    if problems.null_count < len(problems):
        bad = pc.invert(good)
        rows = zip(problems.filter(bad).to_pylist(), origins.filter(bad).to_pylist(), strict=True)
        _send(letters, [_letter(letters, problem, origin or {}) for problem, origin in rows])
    return good


def _letter(letters: Letters, problem: dict[str, Any], origin: dict[str, Any]) -> Record:
    headers: list[tuple[str, bytes | None]] = [
        (f"{PREFIX}{name}", str(origin[name]).encode())
        for name in ("topic", "partition", "offset")
        if origin.get(name) is not None
    ]
    headers.append((f"{PREFIX}stage", letters.stage.encode()))
    headers.append((f"{PREFIX}exception.message", (problem.get("error") or "").encode()))
    moment = origin.get("timestamp")
    stamp = round(moment.timestamp() * 1000) if moment is not None else round(time.time() * 1000)
    return Record(0, stamp, origin.get("key"), problem.get("data"), headers)


_producers: dict[ClientConfig, tuple[Cluster, Producer]] = {}


def _send(letters: Letters, records: list[Record]) -> None:
    if letters.config not in _producers:
        cluster = Cluster(letters.config)
        _producers[letters.config] = (cluster, Producer(cluster))
    cluster, producer = _producers[letters.config]
    partitions = sorted(cluster.topic(letters.topic, create=True).partitions)
    shares: dict[int, list[Record]] = {}
    for number, record in enumerate(records):
        count = len(partitions)
        chosen = number % count if record.key is None else partition_for(record.key, count)
        shares.setdefault(partitions[chosen], []).append(record)
    for partition, share in shares.items():
        producer.send(letters.topic, partition, share)
