"""The four codecs of a record batch, in the exact framings that Kafka's clients write and read.

    1 gzip    one gzip stream
    2 snappy  Java's stream framing: a 16-byte head, then blocks of up to 32 KB, each after a 4-byte length.
              Some clients send one bare snappy block instead, so reading takes both.
    3 lz4     the LZ4 frame format, with independent blocks: Java's reader refuses linked ones
    4 zstd    one zstd frame

A few compressed bytes can claim gigabytes. So `decompress` never produces more than `limit` bytes: output
buffers start near the size a normal batch would need and grow, and whatever passes the limit is an error
before it is memory.

gzip is read by ISA-L where that is installed (`pip install 'millstream[gzip]'`), in half of zlib's time. It
is written by zlib, whose levels are Kafka's.
"""

import mmap
import struct
import zlib
from typing import Any, Final

import cramjam

from millstream.wire.errors import ErrorCode, KafkaError

inflate: Any = zlib
try:
    from isal import isal_zlib
except ImportError:
    pass
else:
    inflate = isal_zlib

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
    "DecompressedTooLarge",
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

_CHUNK: Final = 1 << 20  # bytes that may be made while no other thread runs
_NO_ROOM: Final = "failed to write whole buffer"  # how cramjam says that the output buffer is full


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as codec number `codec` writes it. `level` means what Kafka's `compression.<codec>.level`
    means."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
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


def _room(size: int) -> bytearray | mmap.mmap:
    """A buffer to decompress into. A large one is mapped, because a bytearray is filled with zeros first, and
    no other thread runs meanwhile."""
    return bytearray(size) if size <= _CHUNK else mmap.mmap(-1, size)


def _decompress_snappy(data: Buffer, limit: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        total = _snappy_size(view, limit, limit)
        blocks = [(view, total)]
    else:
        blocks, total = _snappy_blocks(view, limit)
    if not total:
        return b""
    out = memoryview(_room(total))
    at = 0
    try:
        for block, size in blocks:
            at += cramjam.snappy.decompress_raw_into(block, out[at : at + size])
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", str(error)) from None
    return out[:at]


def _snappy_blocks(view: memoryview, limit: int) -> tuple[list[tuple[memoryview, int]], int]:
    """The blocks of Java's framing, each with the size of its content, and the sum of these."""
    if len(view) < len(_XERIAL_HEAD):
        raise _corrupt("snappy", "stream header is cut off")
    blocks: list[tuple[memoryview, int]] = []
    total = 0
    at, end = len(_XERIAL_HEAD), len(view)
    while at < end:
        if end - at < 4:
            raise _corrupt("snappy", "block length is cut off")
        size = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if size > end - at:
            raise _corrupt("snappy", f"a block claims {size} bytes, {end - at} are left")
        block = view[at : at + size]
        content = _snappy_size(block, limit - total, limit)
        if content:
            blocks.append((block, content))
            total += content
        at += size
    return blocks, total


def _snappy_size(block: memoryview, room: int, limit: int) -> int:
    """What a block claims to hold, which is what it holds unless it is damaged."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if not size:  # nothing is decompressed later, which would find what is wrong
            cramjam.snappy.decompress_raw(block)
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", str(error)) from None
    if size > room:
        raise _too_large(limit)
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise _corrupt("snappy", f"{len(block)} bytes cannot hold the {size} that they claim")
    return size


def _decompress_gzip(data: Buffer, limit: int) -> Buffer:
    pieces: list[bytes] = []
    total = 0
    rest: Buffer = data
    try:
        while rest:  # a gzip stream may have several members, one after the other
            if bytes(rest[3:4]) > b"\x1f":  # ISA-L does not look at these flags
                raise _corrupt("gzip", "reserved flags are set")
            unpacker = inflate.decompressobj(31)
            while not unpacker.eof:
                piece = unpacker.decompress(rest, min(limit - total + 1, _CHUNK))
                rest = unpacker.unconsumed_tail
                if not piece and not rest and not unpacker.eof:
                    raise _corrupt("gzip", "stream is cut off")
                pieces.append(piece)
                total += len(piece)
                if total > limit:
                    raise _too_large(limit)
            rest = unpacker.unused_data
    except inflate.error as error:
        raise _corrupt("gzip", str(error)) from None
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        raise _corrupt("gzip", "stream is cut off")
    return _joined(pieces, total)


def _joined(pieces: list[bytes], size: int) -> memoryview:
    if not size:
        return memoryview(b"")
    out = memoryview(_room(size))
    at = 0
    for piece in pieces:
        out[at : at + len(piece)] = piece
        at += len(piece)
    return out


def _decompress_growing(module: object, name: str, data: Buffer, limit: int) -> Buffer:
    """For codecs whose frames need not say how large the content is: try buffers, each four times as
    large."""
    size = min(limit, max(16 * 1024, 8 * len(data)))
    while True:
        out = _room(size)
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


class DecompressedTooLarge(KafkaError):
    """The limit was reached."""


def _too_large(limit: int) -> KafkaError:
    return DecompressedTooLarge(
        ErrorCode.invalid_record, f"the records of the batch are larger than {limit} bytes once decompressed"
    )


def _unknown(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.unsupported_compression_type, f"unknown compression codec {codec}")
