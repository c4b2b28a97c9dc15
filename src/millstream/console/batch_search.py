"""Which records of a batch hold a text, found without opening them.

A batch is searched as one piece of bytes. Only where the text occurs is it looked at which record that is,
and in which part of it; a record's parts are found by their lengths alone. A record that holds the text where
it was not asked for costs a few microseconds this way, which is why sizes of one byte are read without a call
(benchmarks/console_search.py).
"""

from millstream.wire.varint import Malformed, read_uvarint, read_varint


class Damaged(Exception):
    """The lengths in a batch do not fit its bytes."""


def matching(
    data: bytes, count: int, needle: bytes, *, key: bool, value: bool, header: bool, any_case: bool = False
) -> list[int]:
    """Numbers of the records with `needle` in one of the chosen parts. `data` is what follows the batch's
    header, unpacked; with `any_case` the needle has to be in small letters (ASCII)."""
    text = data.lower() if any_case else data
    find = text.find
    at = find(needle)
    if at < 0:
        return []
    found = []
    position = 0
    try:
        for number in range(count):
            length = data[position]
            position += 1
            if length & 0x80:
                length, position = read_uvarint(data, position - 1)
            if length & 1:
                raise Damaged
            end = position + (length >> 1)
            if at < end:
                if end > len(data):
                    raise Damaged
                if _holds(data, text, position, end, at, needle, key, value, header):
                    found.append(number)
                at = find(needle, end)
                if at < 0:
                    break
            position = end
    except (IndexError, Malformed):
        raise Damaged from None
    return found


def _holds(
    data: bytes,
    text: bytes,
    position: int,
    end: int,
    at: int,
    needle: bytes,
    key: bool,
    value: bool,
    header: bool,
) -> bool:
    """Whether the record in data[position:end] has the needle, which occurs first at `at`, in a chosen
    part."""
    position += 1  # attributes
    for _ in range(2):  # timestamp and offset
        while data[position] & 0x80:
            position += 1
        position += 1
    for wanted in (key, value):
        length, position = read_varint(data, position)
        if length > 0:
            if wanted and at < position + length and text.find(needle, position, position + length) >= 0:
                return True
            position += length
    if not header or text.find(needle, position, end) < 0:
        return False
    count, position = read_varint(data, position)
    for _ in range(2 * count):  # a name and a value each
        length, position = read_varint(data, position)
        if length > 0:
            if text.find(needle, position, min(position + length, end)) >= 0:
                return True
            position += length
    return False
