"""The options of a writer: its settings and the columns of its rows, checked on the driver before it
writes.

Option names are those of Spark's Kafka sink. Ours are `delivery` (at_least_once, the default, or
exactly_once) and `markerTopic`, where exactly once records what is written (see `markers`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.client.config import ClientConfig
from millstream.spark.errors import OptionError, PipelineError
from millstream.spark.options import Options
from millstream.wire.compression import CODEC_IDS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

KNOWN = ("topic", "includeHeaders", "delivery", "markerTopic")
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"
MARKER_TOPIC = "__millstream_sink"

BATCH_BYTES = 1_000_000  # just below the default of max.message.bytes
REQUEST_BYTES = 1024 * 1024  # Kafka's own default of max.request.size
DELIVERY_MS = 120_000  # and of delivery.timeout.ms
TRANSACTION_MS = 300_000

_REFUSED = {
    "key.serializer": "keys are written as the bytes of column 'key'",
    "value.serializer": "values are written as the bytes of column 'value'",
    "transactional.id": "use option 'delivery' with exactly_once, which chooses transactional ids itself",
    "partitioner.class": "use column 'partition' for a partition of your own choice",
    "interceptor.classes": "there is no JVM in this sink",
    "transaction.two.phase.commit.enable": "use option 'delivery' with exactly_once",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Plain values, to be pickled into every task."""

    client: ClientConfig
    topic: str | None
    columns: tuple[str, ...]  # of key, value, headers, topic, partition: those that are written
    exactly_once: bool
    marker_topic: str
    checkpoint: str | None
    acks: int
    idempotent: bool
    codec: int
    level: int | None
    batch_bytes: int
    max_record_bytes: int
    request_timeout_ms: int
    transaction_timeout_ms: int
    brokers_reachable: bool = True  # when the writer was made


def parse_write_options(given: Mapping[str, str], schema: "StructType") -> WriteOptions:
    """Everything about this writer, or the one line about what is wrong."""
    options = Options(given, KNOWN, "writ")
    options.refuse(_REFUSED)
    topic = options.text("topic") or None
    exactly_once = options.choice("delivery", (AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE) == EXACTLY_ONCE
    columns = _columns(schema, topic, options.boolean("includeHeaders", True))
    acks, idempotent = _acks(options, exactly_once)
    codec, level = _codec(options)
    max_record_bytes = options.number("kafka.max.request.size", REQUEST_BYTES) or REQUEST_BYTES
    client = options.client("millstream-sink")
    if "kafka.default.api.timeout.ms" not in options:
        delivery_ms = options.number("kafka.delivery.timeout.ms", DELIVERY_MS) or DELIVERY_MS
        client = replace(client, total_timeout=delivery_ms / 1000)
    return WriteOptions(
        client=client,
        topic=topic,
        columns=columns,
        exactly_once=exactly_once,
        marker_topic=options.text("markerTopic") or MARKER_TOPIC,
        checkpoint=options.text("checkpointLocation") or None,
        acks=acks,
        idempotent=idempotent,
        codec=codec,
        level=level,
        batch_bytes=min(options.number("kafka.batch.size", BATCH_BYTES, least=0) or 1, max_record_bytes),
        max_record_bytes=max_record_bytes,
        request_timeout_ms=options.number("kafka.request.timeout.ms", 30_000) or 30_000,
        transaction_timeout_ms=options.number("kafka.transaction.timeout.ms", TRANSACTION_MS)
        or TRANSACTION_MS,
    )


def _acks(options: Options, exactly_once: bool) -> tuple[int, bool]:
    text = options.text("kafka.acks", "all").lower()
    if text not in ("all", "-1", "1", "0"):
        raise OptionError(f"option 'kafka.acks' must be all, 1 or 0, not '{text}'")
    acks = -1 if text == "all" else int(text)
    idempotent = options.boolean("kafka.enable.idempotence", acks == -1)
    if exactly_once and (acks != -1 or not idempotent):
        name = "kafka.acks" if acks != -1 else "kafka.enable.idempotence"
        raise OptionError(f"option '{name}': delivery=exactly_once needs kafka.acks=all and idempotence")
    if idempotent and acks != -1:
        raise OptionError(f"option 'kafka.enable.idempotence' needs kafka.acks=all, not {text}")
    return acks, idempotent


def _codec(options: Options) -> tuple[int, int | None]:
    name = options.text("kafka.compression.type", "none").lower()
    if name not in CODEC_IDS:
        raise OptionError(
            f"option 'kafka.compression.type' must be {', '.join(sorted(CODEC_IDS))}, not '{name}'"
        )
    level = options.number(f"kafka.compression.{name}.level", least=-(1 << 17)) if name != "none" else None
    return CODEC_IDS[name], level


# --- columns ------------------------------------------------------------------------------------------------


def _columns(schema: "StructType", topic: str | None, with_headers: bool) -> tuple[str, ...]:
    """The columns to write. Others are left alone, as Spark's Kafka sink does."""
    from pyspark.sql.types import ArrayType, BinaryType, IntegerType, NullType, StringType, StructType

    def text_or_bytes(data_type: "DataType") -> bool:
        return isinstance(data_type, StringType | BinaryType | NullType)

    def headers(data_type: "DataType") -> bool:
        return (
            isinstance(data_type, ArrayType)
            and isinstance(data_type.elementType, StructType)
            and [field.name for field in data_type.elementType.fields] == ["key", "value"]
            and isinstance(data_type.elementType.fields[0].dataType, StringType)
            and isinstance(data_type.elementType.fields[1].dataType, BinaryType | StringType)
        )

    rules = {
        "key": (text_or_bytes, "string or binary"),
        "value": (text_or_bytes, "string or binary"),
        "headers": (headers, "array<struct<key: string, value: binary>>"),
        "topic": (lambda data_type: isinstance(data_type, StringType), "string"),
        "partition": (lambda data_type: isinstance(data_type, IntegerType), "int"),
    }
    unused = {"headers"} if not with_headers else set()
    if topic is not None:
        unused.add("topic")
    found = []
    for field in schema.fields:
        if field.name not in rules or field.name in unused:
            continue
        fits, wanted = rules[field.name]
        if not fits(field.dataType):
            raise PipelineError(
                f"column '{field.name}' must be {wanted} to be written, not {field.dataType.simpleString()}"
            )
        if field.name in found:
            raise PipelineError(f"there are two columns '{field.name}'")
        found.append(field.name)
    if "value" not in found:
        names = ", ".join(field.name for field in schema.fields)
        raise PipelineError(f"column 'value' is missing; the columns are: {names}")
    if topic is None and "topic" not in found:
        raise OptionError("no topic to write to: set option 'topic', or add a column 'topic'")
    return tuple(found)
