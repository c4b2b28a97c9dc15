"""Avro's object container files, with the schema that the Avro converter would register.

The sync marker is made of the schema, not drawn at random: the same records make the same file.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import cramjam

from millstream.connect.connectors.storage.formats import Writer
from millstream.connect.connectors.storage.stores import Output
from millstream.connect.converters.avro_schemas import AvroOptions, ToAvro
from millstream.connect.converters.avro_values import Encoders, WireSchema
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.schema import Schema
from millstream.connect.errors import DataError
from millstream.schemas.avro_model import write
from millstream.wire.varint import varint

BLOCK_BYTES = 64_000
MAGIC = b"Obj\x01"


def _deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def _snappy(data: bytes) -> bytes:
    """With the checksum of what was compressed behind it, as Avro has it."""
    return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big")


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": bz2.compress,
    "zstandard": lambda data: bytes(cramjam.zstd.compress(data)),
    "xz": lzma.compress,
}


def _bytes(data: bytes) -> bytes:
    return varint(len(data)) + data


class AvroWriter(Writer):
    def __init__(self, output: Output, schema: Schema | None, codec: str) -> None:
        super().__init__(output)
        if schema is None:
            raise DataError("Avro files need records with a schema")
        options = AvroOptions()
        root = ToAvro(options).type_of(schema)
        wire = WireSchema(root)
        encode = Encoders(wire, options, with_default=True).or_null(schema, root)
        self._encode: Callable[[Any], bytes] = lambda value: wire.write(encode(value))
        self._compress = CODECS[codec]
        text = write(root).encode()
        self._sync = hashlib.md5(text, usedforsecurity=False).digest()
        self._block: list[bytes] = []
        self._block_bytes = 0
        names = {b"avro.schema": text, b"avro.codec": codec.encode()}
        meta = b"".join(_bytes(name) + _bytes(value) for name, value in names.items())
        output.write(MAGIC + varint(len(names)) + meta + varint(0) + self._sync)

    def add(self, record: SinkRecord, value: Any) -> None:
        try:
            encoded = self._encode(value)
        except DataError:
            raise
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise DataError(f"the value does not fit its schema: {error}") from error
        self._block.append(encoded)
        self._block_bytes += len(encoded)
        if self._block_bytes >= BLOCK_BYTES:
            self._end_block()

    def _end_block(self) -> None:
        data = self._compress(b"".join(self._block))
        self.output.write(varint(len(self._block)) + _bytes(data) + self._sync)
        self._block, self._block_bytes = [], 0

    def finish(self) -> None:
        if self._block:
            self._end_block()
