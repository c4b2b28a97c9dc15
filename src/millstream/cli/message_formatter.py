"""Records into lines of text, by the rules (and property names) of Kafka's console consumer.

    print.timestamp, .partition, .offset, .epoch, .headers, .key    off unless asked for
    print.value                                                     on unless switched off
    key.separator (a tab) between fields, line.separator, headers.separator, null.literal
    key.deserializer, value.deserializer, header.deserializer       how bytes become text

Without a deserializer the bytes are printed as they are.
"""

import base64
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.cli.errors import UsageError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.wire.batch import BatchHeader
    from millstream.wire.records import Record

Deserialize = Callable[[bytes], bytes]

PRINTS = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
KNOWN = (
    *(f"print.{name}" for name in PRINTS),
    "key.separator",
    "line.separator",
    "headers.separator",
    "null.literal",
    "key.deserializer",
    "value.deserializer",
    "header.deserializer",
    "headers.deserializer",
)


class ConsumerRecord(NamedTuple):
    """A record with what its batch and its partition know about it."""

    topic: str
    partition: int
    offset: int
    epoch: int
    timestamp: int
    timestamp_type: str  # CreateTime or LogAppendTime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def consumer_record(
    topic_partition: TopicPartition, header: "BatchHeader", record: "Record"
) -> ConsumerRecord:
    from millstream.wire.batch import LOG_APPEND_TIME

    return ConsumerRecord(
        *topic_partition,
        record.offset,
        header.leader_epoch,
        record.timestamp,
        "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime",
        record.key,
        record.value,
        tuple(record.headers),
    )


def _number(form: str) -> Deserialize:
    packer = struct.Struct(form)

    def read(data: bytes) -> bytes:
        if len(data) != packer.size:
            raise ValueError(f"{packer.size} bytes expected, {len(data)} found")
        return str(packer.unpack(data)[0]).encode()

    return read


def _boolean(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise ValueError("a byte 0 or 1 expected")
    return b"true" if data == b"\1" else b"false"


DESERIALIZERS: dict[str, Deserialize] = {
    "StringDeserializer": lambda data: data.decode("utf-8", "replace").encode(),
    "ByteArrayDeserializer": lambda data: data,
    "BytesDeserializer": lambda data: data,
    "ByteBufferDeserializer": lambda data: data,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())).encode(),
    "VoidDeserializer": lambda data: b"null",
}


class DefaultMessageFormatter:
    """What DefaultMessageFormatter does. A value that its deserializer cannot read is a ValueError."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        for name in properties:
            prefixed = name.startswith(("key.deserializer.", "value.deserializer.", "headers.deserializer."))
            if name not in KNOWN and not prefixed:
                raise UsageError(
                    f"--formatter-property {name}: there is no such property; there are {', '.join(KNOWN)}"
                )

        def on(name: str, default: str = "false") -> bool:
            return properties.get(f"print.{name}", default).strip().lower() == "true"

        self._timestamp = on("timestamp")
        self._partition = on("partition")
        self._offset = on("offset")
        self._delivery = on("delivery")
        self._epoch = on("epoch")
        self._headers = on("headers")
        self._key = on("key")
        self._value = on("value", "true")
        self._separator = properties.get("key.separator", "\t").encode()
        self._line_separator = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._read_key = deserializer(properties.get("key.deserializer", ""))
        self._read_value = deserializer(properties.get("value.deserializer", ""))
        header = properties.get("header.deserializer") or properties.get("headers.deserializer") or ""
        self._read_header = deserializer(header)

    def line(self, record: ConsumerRecord) -> bytes:
        fields = []
        if self._timestamp:
            fields.append(f"{record.timestamp_type}:{record.timestamp}".encode())
        if self._partition:
            fields.append(b"Partition:%d" % record.partition)
        if self._offset:
            fields.append(b"Offset:%d" % record.offset)
        if self._delivery:
            fields.append(b"Delivery:NOT_PRESENT")
        if self._epoch:
            fields.append(b"Epoch:%d" % record.epoch if record.epoch >= 0 else b"Epoch:NOT_PRESENT")
        if self._headers:
            fields.append(self._header_field(record))
        if self._key:
            fields.append(self._null if record.key is None else self._read_key(record.key))
        if self._value:
            fields.append(self._null if record.value is None else self._read_value(record.value))
        return self._separator.join(fields) + self._line_separator if fields else b""

    def _header_field(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            name.encode("utf-8", "surrogateescape")
            + b":"
            + (self._null if value is None else self._read_header(value))
            for name, value in record.headers
        )


def deserializer(class_name: str) -> Deserialize:
    """By Kafka's class name, with or without its package."""
    if not class_name:
        return lambda data: data
    found = DESERIALIZERS.get(class_name.rpartition(".")[2])
    if found is None:
        raise UsageError(f"unknown deserializer {class_name}; there are {', '.join(DESERIALIZERS)}")
    return found


def record_facts(record: ConsumerRecord) -> dict[str, Any]:
    """The record for programs: text where the bytes are UTF-8, base64 where not."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": text_or_base64(record.key),
        "value": text_or_base64(record.value),
        "headers": [
            {
                "name": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                "value": text_or_base64(value),
            }
            for name, value in record.headers
        ],
    }


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
