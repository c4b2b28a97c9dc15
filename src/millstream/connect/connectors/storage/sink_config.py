"""The settings of the sinks that write files: Confluent's names, and what a store adds of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigValue,
    NonEmptyString,
    Range,
    ValidString,
)
from millstream.connect.connectors.storage.formats import make_format
from millstream.connect.connectors.storage.partitioners import make_partitioner
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

PARQUET_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
AVRO_CODECS = ("null", "deflate", "snappy", "bzip2", "zstandard", "xz")


def _storage_class(name: str, value: Any) -> None:
    """Confluent's configurations name one; the connector's class has decided already."""
    if value and not value.rpartition(".")[2].endswith("Storage"):
        raise ConfigError.of(name, value, "not the name of a storage class")


def _whole(name: str, value: Any) -> None:
    if value is not None and value != -1 and value <= 0:
        raise ConfigError.of(name, value, "a positive number, or -1 for never")


FILES = [
    ConfigKey(
        "format.class",
        Type.STRING,
        "JsonFormat",
        HIGH,
        "What stands in the files: ParquetFormat, AvroFormat, JsonFormat (a line each), ByteArrayFormat or "
        "StringFormat; Confluent's class names count by their last part.",
    ),
    ConfigKey("flush.size", Type.INT, REQUIRED, HIGH, "How many records make a file.", Range(1)),
    ConfigKey(
        "rotate.interval.ms",
        Type.LONG,
        -1,
        HIGH,
        "A file ends before the record whose time (see timestamp.extractor) is so much later than that of "
        "its first one; -1 for never.",
        CheckedBy(_whole, "-1 or positive"),
    ),
    ConfigKey(
        "rotate.schedule.interval.ms",
        Type.LONG,
        -1,
        MEDIUM,
        "Files end at these intervals of the clock, counted from midnight in `timezone`; -1 for never. Every "
        "record is still there once.",
        CheckedBy(_whole, "-1 or positive"),
    ),
    ConfigKey(
        "partitioner.class",
        Type.STRING,
        "DefaultPartitioner",
        HIGH,
        "Folders by Kafka's partition (DefaultPartitioner), by fields (FieldPartitioner) or by time "
        "(TimeBasedPartitioner, HourlyPartitioner, DailyPartitioner).",
    ),
    ConfigKey(
        "partition.field.name", Type.LIST, (), MEDIUM, "Fields that FieldPartitioner makes folders of."
    ),
    ConfigKey(
        "partition.duration.ms",
        Type.LONG,
        -1,
        MEDIUM,
        "How much time is in a folder of TimeBasedPartitioner.",
    ),
    ConfigKey(
        "path.format",
        Type.STRING,
        "",
        MEDIUM,
        "The folder of TimeBasedPartitioner, in Joda's letters: 'year'=YYYY/'month'=MM/'day'=dd.",
    ),
    ConfigKey("locale", Type.STRING, "en-US", MEDIUM, "Of names of months and days; English only."),
    ConfigKey("timezone", Type.STRING, "UTC", MEDIUM, "The time zone of folders and schedules."),
    ConfigKey(
        "timestamp.extractor",
        Type.STRING,
        "Wallclock",
        MEDIUM,
        "Which time counts: Wallclock (when it is processed), Record (its own) or RecordField.",
    ),
    ConfigKey("timestamp.field", Type.STRING, "timestamp", MEDIUM, "The field of RecordField."),
    ConfigKey("topics.dir", Type.STRING, "topics", HIGH, "The folder above all topics' folders."),
    ConfigKey(
        "directory.delim", Type.STRING, "/", MEDIUM, "What separates folders in names.", NonEmptyString()
    ),
    ConfigKey("file.delim", Type.STRING, "+", MEDIUM, "What separates the parts of a file's name."),
    ConfigKey(
        "filename.offset.zero.pad.width",
        Type.INT,
        10,
        LOW,
        "How many digits offsets in names have.",
        Range(0),
    ),
    ConfigKey(
        "schema.compatibility",
        Type.STRING,
        "NONE",
        HIGH,
        "NONE: another schema begins a new file. BACKWARD, FULL: a newer version does, older records are "
        "projected onto it. FORWARD: the other way round. Of Avro and Parquet files.",
        ValidString(("NONE", "BACKWARD", "FORWARD", "FULL")),
    ),
    ConfigKey(
        "behavior.on.null.values",
        Type.STRING,
        "fail",
        LOW,
        "What becomes of a record without a value: `fail` (a dead letter where errors are tolerated), or "
        "`ignore`.",
        ValidString(("fail", "ignore")),
    ),
    ConfigKey(
        "parquet.codec", Type.STRING, "snappy", LOW, "Compression of Parquet.", ValidString(PARQUET_CODECS)
    ),
    ConfigKey("avro.codec", Type.STRING, "null", LOW, "Compression of Avro.", ValidString(AVRO_CODECS)),
    ConfigKey(
        "compression.type",
        Type.STRING,
        "none",
        LOW,
        "Of JSON and bytes: none, or gzip. `s3.compression.type` means the same.",
        ValidString(("none", "gzip")),
    ),
    ConfigKey("compression.level", Type.INT, 6, LOW, "Of gzip.", Range(0, 9)),
    ConfigKey("format.bytearray.extension", Type.STRING, ".bin", LOW, "The end of ByteArrayFormat's names."),
    ConfigKey(
        "format.bytearray.separator", Type.STRING, None, LOW, "What follows each record; an end of line."
    ),
    ConfigKey(
        "storage.class",
        Type.STRING,
        "",
        LOW,
        "Ignored: the connector's class says where files go.",
        CheckedBy(_storage_class, "a storage class"),
    ),
]

LOCAL = ConfigDef(
    [
        ConfigKey(
            "store.url",
            Type.STRING,
            REQUIRED,
            HIGH,
            "The folder: a path, or file:///path. hdfs:// goes by hdfs-native, others by pyarrow.",
            NonEmptyString(),
        ),
        *FILES,
    ]
)

HDFS = ConfigDef(
    [
        ConfigKey(
            "store.url", Type.STRING, "", HIGH, "Where files go: hdfs://host:port/path; or set hdfs.url."
        ),
        ConfigKey("hdfs.url", Type.STRING, "", HIGH, "The same."),
        *FILES,
    ]
)

S3 = ConfigDef(
    [
        ConfigKey("s3.bucket.name", Type.STRING, REQUIRED, HIGH, "The bucket.", NonEmptyString()),
        ConfigKey("s3.region", Type.STRING, "us-west-2", MEDIUM, "Its region."),
        ConfigKey(
            "s3.part.size",
            Type.INT,
            26214400,
            HIGH,
            "Larger files are uploaded in parts of so many bytes.",
            Range(5 << 20),
        ),
        ConfigKey(
            "s3.part.retries", Type.INT, 3, MEDIUM, "How often a request is tried again at once.", Range(0)
        ),
        ConfigKey(
            "store.url", Type.STRING, "", LOW, "Where S3 is, if it is not Amazon's: http://localhost:9000."
        ),
        ConfigKey(
            "s3.path.style.access.enabled", Type.BOOLEAN, True, LOW, "Buckets in the path, not in the host."
        ),
        ConfigKey(
            "aws.access.key.id", Type.STRING, "", HIGH, "Empty: as boto3 finds it (environment, files, role)."
        ),
        ConfigKey("aws.secret.access.key", Type.PASSWORD, None, HIGH, "The secret that belongs to it."),
        ConfigKey("s3.ssea.name", Type.STRING, "", LOW, "Encryption by the server: AES256 or aws:kms."),
        ConfigKey("s3.sse.kms.key.id", Type.STRING, "", LOW, "The key for aws:kms."),
        ConfigKey("s3.acl.canned", Type.STRING, "", LOW, "Who may read: private, public-read and so on."),
        *FILES,
    ]
)

SYNONYMS = {"s3.compression.type": "compression.type", "s3.compression.level": "compression.level"}


def with_synonyms(settings: Mapping[str, str], synonyms: Mapping[str, str] = SYNONYMS) -> dict[str, str]:
    """Other names of our settings; our own name wins."""
    return {ours: settings[theirs] for theirs, ours in synonyms.items() if theirs in settings} | dict(
        settings
    )


def check_together(found: dict[str, ConfigValue]) -> None:
    """What is wrong beyond single settings: a partitioner without its fields, a pattern that is none."""
    if any(value.errors for value in found.values()):
        return
    parsed = {name: value.value for name, value in found.items()}
    for make in (make_partitioner, make_format):
        try:
            make(parsed)
        except ConfigError as error:
            named = next((name for name in found if f"configuration {name}:" in str(error)), "format.class")
            found[named].errors.append(str(error))
