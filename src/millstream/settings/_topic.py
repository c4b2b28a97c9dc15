"""The settings of a topic.

All of Kafka 4.2 except those of tiered storage (`remote.storage.enable`, `remote.log.*`,
`local.retention.*`), which Millstream does not have: a topic created with one of them is refused, as an
unknown name is.
"""

from millstream.settings.config_key import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    STRING,
    ConfigKey,
    Synonym,
)
from millstream.settings.values import Items, OneOf, Range, ThrottledReplicas

COMPRESSION = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
GZIP_LEVEL = Range(1, 9, also=-1)
LZ4_LEVEL = Range(1, 17)
ZSTD_LEVEL = Range(-131072, 22)
TIMESTAMP_TYPE = OneOf(("CreateTime", "LogAppendTime"))
# Doubles are dropped, not refused: Kafka does so for topics, though not for the broker's own setting.
CLEANUP_POLICY = Items(("compact", "delete"), may_repeat=True)

_MINUTE = 60_000
_HOUR = 3_600_000


def _from(*names: str) -> tuple[Synonym, ...]:
    return tuple(Synonym(name) for name in names)


TOPIC_SETTINGS = (
    ConfigKey(
        "cleanup.policy",
        LIST,
        "delete",
        "What happens to old segments. delete drops whole segments by age and size; compact keeps the last "
        "record of every key; both together compact and also drop what is too old; an empty list keeps "
        "everything.",
        CLEANUP_POLICY,
        synonyms=_from("log.cleanup.policy"),
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        "-1",
        "How hard gzip works when the broker compresses: 1 is fast, 9 is small, -1 leaves it to the "
        "library. Only for compression.type=gzip.",
        GZIP_LEVEL,
        synonyms=_from("compression.gzip.level"),
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        "9",
        "How hard lz4 works when the broker compresses; higher is smaller and slower. Only for "
        "compression.type=lz4.",
        LZ4_LEVEL,
        synonyms=_from("compression.lz4.level"),
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "How batches are stored. producer keeps them exactly as they came, which costs the broker nothing; "
        "any other choice makes it unpack and pack again every batch that differs.",
        COMPRESSION,
        synonyms=_from("compression.type"),
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        "3",
        "How hard zstd works when the broker compresses; higher is smaller and slower, negative is fastest. "
        "Only for compression.type=zstd.",
        ZSTD_LEVEL,
        synonyms=_from("compression.zstd.level"),
    ),
    ConfigKey(
        "delete.retention.ms",
        LONG,
        "86400000",
        "How long compaction keeps a tombstone (a record without value), so that a consumer that started "
        "earlier still learns of the deletion.",
        Range(0),
        synonyms=_from("log.cleaner.delete.retention.ms"),
    ),
    ConfigKey(
        "file.delete.delay.ms",
        LONG,
        "60000",
        "How long the files of a dropped segment stay on disk under the suffix .deleted before they are "
        "removed.",
        Range(0),
        synonyms=_from("log.segment.delete.delay.ms"),
    ),
    ConfigKey(
        "flush.messages",
        LONG,
        MAX_LONG,
        "Force the log to disk after this many records; 1 does so for each produce request. By default only "
        "the operating system decides, and replication protects the data.",
        Range(1),
        synonyms=_from("log.flush.interval.messages"),
    ),
    ConfigKey(
        "flush.ms",
        LONG,
        MAX_LONG,
        "Force the log to disk when its oldest unforced record is this old. By default only the operating "
        "system decides.",
        Range(0),
        synonyms=_from("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        LIST,
        "",
        "Replicas whose catching up is slowed to follower.replication.throttled.rate, on the side that "
        "receives; pairs of partition and broker, or * for all of the topic.",
        ThrottledReplicas(),
    ),
    ConfigKey(
        "index.interval.bytes",
        INT,
        "4096",
        "One entry in the offset index for about this many bytes of log. Smaller means a bigger index and a "
        "shorter walk after a seek.",
        Range(0),
        synonyms=_from("log.index.interval.bytes"),
    ),
    ConfigKey(
        "internal.segment.bytes",
        INT,
        None,
        "For tests: replaces segment.bytes and may be smaller than that allows.",
        Range(1),
        hidden=True,
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        LIST,
        "",
        "Replicas whose catching up is slowed to leader.replication.throttled.rate, on the side that sends; "
        "pairs of partition and broker, or * for all of the topic.",
        ThrottledReplicas(),
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        LONG,
        MAX_LONG,
        "A record of a compacted topic that has waited this long makes its log due for compaction, however "
        "clean the log is otherwise.",
        Range(1),
        synonyms=_from("log.cleaner.max.compaction.lag.ms"),
    ),
    ConfigKey(
        "max.message.bytes",
        INT,
        "1048588",
        "The largest record batch (as stored, compressed) that may be appended. A larger one is refused with "
        "MESSAGE_TOO_LARGE.",
        Range(0),
        synonyms=_from("message.max.bytes"),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        LONG,
        "3600000",
        "How far a record's timestamp may lie ahead of the broker's clock. Further ahead is refused with "
        "INVALID_TIMESTAMP. Not checked with LogAppendTime.",
        Range(0),
        synonyms=_from("log.message.timestamp.after.max.ms"),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        LONG,
        MAX_LONG,
        "How far a record's timestamp may lie behind the broker's clock. Older is refused with "
        "INVALID_TIMESTAMP. Not checked with LogAppendTime.",
        Range(0),
        synonyms=_from("log.message.timestamp.before.max.ms"),
    ),
    ConfigKey(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps a record: the producer's (CreateTime) or the broker's on arrival "
        "(LogAppendTime).",
        TIMESTAMP_TYPE,
        synonyms=_from("log.message.timestamp.type"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        "0.5",
        "Compact a log when at least this share of it has not been compacted yet. Lower wastes less disk "
        "and works more often.",
        Range(0, 1),
        synonyms=_from("log.cleaner.min.cleanable.ratio"),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        LONG,
        "0",
        "A record stays out of compaction for this long after it was written.",
        Range(0),
        synonyms=_from("log.cleaner.min.compaction.lag.ms"),
    ),
    ConfigKey(
        "min.insync.replicas",
        INT,
        "1",
        "With acks=all, how many replicas must be in sync for a write to be accepted; with fewer it fails "
        "with NOT_ENOUGH_REPLICAS. Never more than the topic has replicas.",
        Range(1),
        synonyms=_from("min.insync.replicas"),
    ),
    ConfigKey(
        "preallocate",
        BOOLEAN,
        "false",
        "Reserve the disk space of a new segment at once instead of letting the file grow.",
        synonyms=_from("log.preallocate"),
    ),
    ConfigKey(
        "retention.bytes",
        LONG,
        "-1",
        "How much of each partition is kept: oldest segments are dropped while the rest is still this big. "
        "-1 sets no limit. Applies where cleanup.policy has delete.",
        synonyms=_from("log.retention.bytes"),
    ),
    ConfigKey(
        "retention.ms",
        LONG,
        "604800000",
        "How long a record is kept: a segment is dropped when its newest record is older. -1 sets no limit. "
        "Applies where cleanup.policy has delete.",
        Range(-1),
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE),
            Synonym("log.retention.hours", _HOUR),
        ),
    ),
    ConfigKey(
        "segment.bytes",
        INT,
        "1073741824",
        "The size at which a new segment file begins. Retention and compaction work on whole, closed "
        "segments.",
        Range(1048576),
        synonyms=_from("log.segment.bytes"),
    ),
    ConfigKey(
        "segment.index.bytes",
        INT,
        "10485760",
        "The size that the offset index of a segment may reach; a full index also begins a new segment. "
        "Index files are not reserved in advance.",
        Range(4),
        synonyms=_from("log.index.size.max.bytes"),
    ),
    ConfigKey(
        "segment.jitter.ms",
        LONG,
        "0",
        "A random time up to this is taken off segment.ms, so that many partitions do not roll at the same "
        "moment.",
        Range(0),
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR)),
    ),
    ConfigKey(
        "segment.ms",
        LONG,
        "604800000",
        "The age at which a new segment begins even if the current one is small, so that retention can drop "
        "it.",
        Range(1),
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR)),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that is not in sync may become leader when no other is left. True prefers to be "
        "available and can lose acknowledged records.",
        synonyms=_from("unclean.leader.election.enable"),
    ),
)
