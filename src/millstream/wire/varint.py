"""Varints: whole numbers of seven bits a byte, low bits first, the top bit set on every byte but the last.

Kafka has two families. Lengths and counts of flexible requests are unsigned (`uvarint`). The numbers inside a
record are zigzag encoded: 0, -1, 1, -2 become 0, 1, 2, 3, so that small negative numbers stay short (`varint`
with 32 bits, `varlong` with 64; Avro's int and long are the same bytes). Protobuf's are `uvarlong`.

Readers return the value and the position after it. They refuse what no writer can have meant: `Malformed` for
more bits than the type has, `IndexError` where the data ends inside the number. Every caller treats both as
bad input.

Loops that cannot afford a call per number read the first byte or two themselves and come here for longer
ones. Each names its benchmark, and tests/wire/test_varint.py holds all of them, compiled ones included, to
the same answers.
"""

Buffer = bytes | bytearray | memoryview


class Malformed(ValueError):
    """The bytes are not what the protocol says they must be."""


def uvarint(value: int) -> bytes:
    """An unsigned number as a varint. Up to three bytes are written out: each fetch response has one
    (benchmarks/broker_fetch.py)."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    append_uvarint(out, value)
    return bytes(out)


def append_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def varint(number: int) -> bytes:
    """A signed number as a zigzag varint (or varlong: the bytes are the same)."""
    return uvarint(number << 1 if number >= 0 else ~(number << 1))


def append_varint(out: bytearray, number: int) -> None:
    value = number << 1 if number >= 0 else ~(number << 1)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def varint_size(number: int) -> int:
    """How many bytes `varint` takes."""
    value = number << 1 if number >= 0 else ~(number << 1)
    return max(1, (value.bit_length() + 6) // 7)


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """The unsigned number of up to 32 bits at `at`, and the position after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise Malformed("a varint of more than 32 bits")
            return value, at + 1
        shift += 7
        if shift > 28:
            raise Malformed("a varint of more than five bytes")


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """The zigzag number of up to 32 bits at `at`, and the position after it."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    second = data[at + 1]
    if second < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), at + 2
    raw, at = read_uvarint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def read_varlong(data: Buffer, at: int) -> tuple[int, int]:
    """The zigzag number of up to 64 bits at `at`, and the position after it."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFFFFFFFFFF:
                raise Malformed("a varlong of more than 64 bits")
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
        if shift > 63:
            raise Malformed("a varlong of more than ten bytes")


def read_uvarlong(data: Buffer, at: int) -> tuple[int, int]:
    """The unsigned number of up to 64 bits at `at`, and the position after it: Protobuf's varint."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFFFFFFFFFF:
                raise Malformed("a varlong of more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:
            raise Malformed("a varlong of more than ten bytes")
