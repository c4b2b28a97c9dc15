"""Spark's progress reports, boiled down to what people ask for: how fast, how far behind, how long, how
large."""

from typing import Any

from millstream.spark.runner.status_records import RUNNING, QueryStatus
from millstream.spark.source.metrics import Offsets, offsets_in
from millstream.wire.topic_partition import TopicPartition


def take_in(status: QueryStatus, progress: dict[str, Any], now_ms: int) -> None:
    """One report (Spark's JSON) into a query's status."""
    rows = int(progress.get("numInputRows") or 0)
    status.state = RUNNING
    status.batch = int(progress.get("batchId", status.batch))
    status.rows += rows
    status.input_rate = _rate(progress.get("inputRowsPerSecond"))
    status.process_rate = _rate(progress.get("processedRowsPerSecond"))
    status.updated = now_ms
    if rows or not status.batch_ms:
        status.batch_ms = int(progress.get("batchDuration") or 0)
    operators = progress.get("stateOperators") or []
    status.state_rows = sum(int(one.get("numRowsTotal") or 0) for one in operators)
    status.state_bytes = sum(int(one.get("memoryUsedBytes") or 0) for one in operators)
    status.late_rows += sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators)
    status.watermark = (progress.get("eventTime") or {}).get("watermark", status.watermark)
    read: Offsets = {}
    behind: int | None = None
    for source in progress.get("sources") or []:
        done, newest = offsets_in(source.get("endOffset")), offsets_in(source.get("latestOffset"))
        for topic, parts in done.items():
            known = read.setdefault(topic, {})
            for partition, offset in parts.items():
                # Of two sources with the same topic, the one that is behind.
                known[partition] = min(offset, known.get(partition, offset))
        if done and newest:
            behind = (behind or 0) + lag_of(
                done,
                {
                    TopicPartition(topic, int(partition)): offset
                    for topic, offsets in newest.items()
                    for partition, offset in offsets.items()
                },
            )
    if read:
        status.offsets = read
    if behind is None:
        behind = progress.get("lag")  # units of a host know it themselves
    if behind is not None:
        status.lag = behind


def lag_of(read: Offsets, ends: dict[TopicPartition, int]) -> int:
    """Records between where a query is and where the partitions end. Partitions that it does not know count
    as a whole."""
    done = {
        (topic, int(partition)): offset
        for topic, parts in read.items()
        for partition, offset in parts.items()
    }
    return sum(max(0, end - done.get(topic_partition, 0)) for topic_partition, end in ends.items())


def _rate(value: Any) -> float:
    """Spark reports NaN and Infinity for a first batch, which are not JSON."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return round(number, 1) if number == number and abs(number) != float("inf") else 0.0
