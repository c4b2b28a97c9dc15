"""The typed settings of one topic, in the shape that the log wants them.

The names of Kafka's topic settings with dots turned into underscores, already parsed and checked. The
defaults here are those of Apache Kafka 4.2; `settings.resolve` builds instances from the broker's settings
and a topic's overrides. Frozen, so that one instance can be shared by every partition of every topic that
overrides nothing; a changed setting is a new instance.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_LONG = (1 << 63) - 1
DAY_MS = 24 * 60 * 60 * 1000
WEEK_MS = 7 * DAY_MS

DELETE = frozenset({"delete"})
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    # When a segment rolls, and how dense its indexes are.
    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    preallocate: bool = False

    # What is kept. -1 means without limit.
    cleanup_policy: frozenset[str] = DELETE
    retention_ms: int = WEEK_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000

    # Compaction.
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG

    # What may be appended. The compression type is "producer" (keep what came), "uncompressed" or a codec's
    # name.
    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 3_600_000

    # When appended bytes are forced to disk. MAX_LONG leaves it to the operating system.
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG

    # Replication.
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How old an active segment may get: it must be closed in time for `max.compaction.lag.ms`."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms
