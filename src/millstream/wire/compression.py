"""The four codecs of a record batch, in the exact framings that Kafka's clients write and read.

    1 gzip    one gzip stream
    2 snappy  Java's stream framing: a 16-byte head, then blocks of up to 32 KB, each after a 4-byte length.
              Some clients send one bare snappy block instead, so reading takes both.
    3 lz4     the LZ4 frame format, with independent blocks: Java's reader refuses linked ones
    4 zstd    one zstd frame

A few compressed bytes can claim gigabytes. So `decompress` never produces more than `limit` bytes: output
buffers start near the size a normal batch would need and grow, and whatever passes the limit is an error
before it is memory.
"""

import struct
import zlib
from typing import Final

import cramjam

from millstream.wire.errors import ErrorCode, KafkaError

__all__ = [
    "CODEC_IDS",
    "CODEC_NAMES",
    "DEFAULT_LIMIT",
    "GZIP",
    "LZ4",
    "NONE",
    "SNAPPY",
    "ZSTD",
    "Buffer",
    "compress",
    "decompress",
]

Buffer = bytes | bytearray | memoryview

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_IDS: Final = {name: number for number, name in enumerate(CODEC_NAMES)}

DEFAULT_LIMIT: Final = 100 * 1024 * 1024  # as large as the largest request that a broker takes by default

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK: Final = 32 * 1024
_SNAPPY_MAX_RATIO: Final = 64  # a copy element of 2-3 bytes yields at most 64 bytes: more than x64 is a lie

# Kafka's number for "the fast compressor"; other levels are the slow, dense one.
_LZ4_DEFAULT_LEVEL: Final = 9
_LZ4_MAX_LEVEL: Final = 12
_ZSTD_DEFAULT_LEVEL: Final = 3

_NO_ROOM: Final = "failed to write whole buffer"  # how cramjam says that the output buffer is full


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as codec number `codec` writes it. `level` means what Kafka's `compression.<codec>.level`
    means."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        fast = level is None or level == _LZ4_DEFAULT_LEVEL
        lz4 = cramjam.lz4.Compressor(
            level=1 if fast else min(level or 1, _LZ4_MAX_LEVEL), content_checksum=False, block_linked=False
        )
        lz4.compress(bytes(data))
        return bytes(lz4.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))
    raise _unknown(codec)


def decompress(codec: int, data: Buffer, limit: int = DEFAULT_LIMIT) -> Buffer:
    """What was compressed. KafkaError: corrupt_message if the bytes are no such stream, invalid_record if the
    result would exceed `limit` bytes, unsupported_compression_type for a codec nobody knows."""
    if codec == NONE:
        if len(data) > limit:
            raise _too_large(limit)
        return data
    if codec == GZIP:
        return _decompress_gzip(data, limit)
    if codec == SNAPPY:
        return _decompress_snappy(data, limit)
    if codec == LZ4:
        return _decompress_growing(cramjam.lz4, "lz4", data, limit)
    if codec == ZSTD:
        return _decompress_growing(cramjam.zstd, "zstd", data, limit)
    raise _unknown(codec)


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEAD]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit, limit)
    if len(view) < len(_XERIAL_HEAD):
        raise _corrupt("snappy", "stream header is cut off")
    out = bytearray()
    at, end = len(_XERIAL_HEAD), len(view)
    while at < end:
        if end - at < 4:
            raise _corrupt("snappy", "block length is cut off")
        size = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if size > end - at:
            raise _corrupt("snappy", f"a block claims {size} bytes, {end - at} are left")
        out += _decompress_snappy_block(view[at : at + size], limit - len(out), limit)
        at += size
    return out


def _decompress_snappy_block(block: memoryview, room: int, limit: int) -> Buffer:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > room:
            raise _too_large(limit)
        if size > _SNAPPY_MAX_RATIO * len(block):
            raise _corrupt("snappy", f"{len(block)} bytes cannot hold the {size} that they claim")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", str(error)) from None


def _decompress_gzip(data: Buffer, limit: int) -> Buffer:
    out = bytearray()
    rest: Buffer = data
    try:
        while True:  # a gzip stream may have several members, one after the other
            unpacker = zlib.decompressobj(31)
            out += unpacker.decompress(rest, limit - len(out) + 1)
            if len(out) > limit:
                raise _too_large(limit)
            if not unpacker.eof:
                raise _corrupt("gzip", "stream is cut off")
            rest = unpacker.unused_data
            if not rest:
                return out
    except zlib.error as error:
        raise _corrupt("gzip", str(error)) from None


def _decompress_growing(module: object, name: str, data: Buffer, limit: int) -> Buffer:
    """For codecs whose frames need not say how large the content is: try buffers, each four times as
    large."""
    size = min(limit, max(16 * 1024, 8 * len(data)))
    while True:
        out = bytearray(size)
        try:
            written: int = module.decompress_into(data, out)  # type: ignore[attr-defined]
            return memoryview(out)[:written]
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise _corrupt(name, str(error)) from None
            if size >= limit:
                raise _too_large(limit) from None
            size = min(limit, size * 4)


def _corrupt(name: str, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"not a valid {name} stream: {reason}")


def _too_large(limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_record, f"the records of the batch are larger than {limit} bytes once decompressed"
    )


def _unknown(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.unsupported_compression_type, f"unknown compression codec {codec}")
