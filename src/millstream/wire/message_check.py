"""A walk over a request's bytes by its schema, before kio reads them: sizes, counts and nulls must be
possible.

kio trusts the count in front of an array and makes room for that many elements before it reads the first. A
frame of thirty bytes that claims four billion ends the process. It also lets null through where the protocol
does not. So every frame is walked once: each length lies inside the frame, each count is no greater than the
bytes that are left, null stands only where the schema allows it, and a request has no more elements in all
than the caller allows. Nothing is built; a schema is turned into a list of steps once, and neighbours of
fixed size are one step (2 to 3 us a request).

On the way, tagged fields that the schema does not know are cut out: a newer client may send them, the
protocol says to ignore them, and kio would refuse the request. So it would where a period has more than 64
bits of microseconds (clients say Long.MAX_VALUE for the longest): such a one becomes 292,000 years.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, Protocol

from millstream.wire.primitives import INT16, INT32, INT64
from millstream.wire.varint import Malformed, read_uvarint, uvarint

MAX_ELEMENTS = 1_000_000  # of all arrays of a request, unless the caller allows another number


class TooManyElements(Malformed):
    pass


class Walk:
    """What one walk carries along: the elements it may still meet, and what to cut out afterwards."""

    __slots__ = ("cuts", "inside_tag", "left")

    def __init__(self, max_elements: int) -> None:
        self.left = max_elements
        self.cuts: list[tuple[int, int, bytes]] = []  # (from, to, what stands there instead)
        self.inside_tag = False


class Check(Protocol):
    def __call__(self, body: bytes, max_elements: int = MAX_ELEMENTS) -> bytes: ...


LONGEST_MS = (2**63 - 1) // 1000  # of a period, either way

Step = Callable[[bytes, int, Walk], int]  # (body, position, walk) -> position after the field

_FIXED = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}


def message_checker(schema: Any) -> Check:
    """check(body, max_elements): the body that kio may read (nearly always the same one), or Malformed."""
    step = _entity(schema)

    def check(body: bytes, max_elements: int = MAX_ELEMENTS) -> bytes:
        walk = Walk(max_elements)
        try:
            step(body, 0, walk)
        except IndexError:
            raise Malformed("the request ends too early") from None
        except TooManyElements:
            raise Malformed(f"more than {max_elements} elements in one request") from None
        for start, end, instead in reversed(walk.cuts):
            body = body[:start] + instead + body[end:]
        return body

    return check


def _entity(schema: Any) -> Step:
    flexible = bool(schema.__flexible__)
    steps: list[Step] = []
    tagged: dict[int, Step] = {}
    fixed = 0
    for field in dataclasses.fields(schema):
        tag = field.metadata.get("tag")
        size, step = _field(field.type, field.metadata.get("kafka_type", ""), flexible)
        if tag is not None:
            tagged[tag] = step
        elif size:
            fixed += size
        else:
            if fixed:
                steps.append(_skip(fixed))
                fixed = 0
            steps.append(step)
    if fixed:
        steps.append(_skip(fixed))
    if flexible:
        steps.append(_tags(tagged))
    if len(steps) == 1:
        return steps[0]

    def entity(body: bytes, at: int, walk: Walk) -> int:
        for step in steps:
            at = step(body, at, walk)
        return at

    return entity


def _field(annotation: Any, wire: str, flexible: bool) -> tuple[int, Step]:
    """(its size if that is fixed, else 0; how to walk over it)."""
    nullable = False
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        nullable = True
        (annotation,) = (option for option in typing.get_args(annotation) if option is not type(None))
    if typing.get_origin(annotation) is tuple:
        _, element = _field(typing.get_args(annotation)[0], wire, flexible)
        return 0, _array(element, nullable, flexible)
    if dataclasses.is_dataclass(annotation):
        entity = _entity(annotation)
        return 0, _maybe(entity) if nullable else entity
    if wire in _FIXED:
        return _FIXED[wire], _skip(_FIXED[wire])
    if wire == "timedelta_i64":
        return 0, _period
    if wire == "string":
        return 0, _sized(2, nullable, flexible)
    if wire in ("bytes", "records"):
        return 0, _sized(4, nullable, flexible)
    raise TypeError(f"unknown type {wire!r} ({annotation!r})")


def _skip(size: int) -> Step:
    def skip(body: bytes, at: int, walk: Walk) -> int:
        if at + size > len(body):
            raise Malformed("the request ends too early")
        return at + size

    return skip


def _period(body: bytes, at: int, walk: Walk) -> int:
    end = at + 8
    if end > len(body):
        raise Malformed("the request ends too early")
    ms = INT64.unpack_from(body, at)[0]
    if not -LONGEST_MS <= ms <= LONGEST_MS:
        walk.cuts.append((at, end, INT64.pack(LONGEST_MS if ms > 0 else -LONGEST_MS)))
    return end


def _sized(width: int, nullable: bool, flexible: bool) -> Step:
    number = INT16 if width == 2 else INT32

    def step(body: bytes, at: int, walk: Walk) -> int:
        if flexible:
            size, at = read_uvarint(body, at)
            size -= 1
        else:
            if at + width > len(body):
                raise Malformed("the request ends too early")
            size = number.unpack_from(body, at)[0]
            at += width
        if size < 0:
            if size == -1 and nullable:
                return at
            raise Malformed("null where null may not be" if size == -1 else f"a length of {size}")
        if at + size > len(body):
            raise Malformed(f"{size} bytes announced, {len(body) - at} left in the frame")
        return at + size

    return step


def _array(element: Step, nullable: bool, flexible: bool) -> Step:
    def step(body: bytes, at: int, walk: Walk) -> int:
        if flexible:
            count, at = read_uvarint(body, at)
            count -= 1
        else:
            if at + 4 > len(body):
                raise Malformed("the request ends too early")
            count = INT32.unpack_from(body, at)[0]
            at += 4
        if count < 0:
            if count == -1 and nullable:
                return at
            raise Malformed("null where null may not be" if count == -1 else f"an array of {count}")
        if count > len(body) - at:
            raise Malformed(f"{count} elements announced, {len(body) - at} bytes left in the frame")
        walk.left -= count
        if walk.left < 0:
            raise TooManyElements
        for _ in range(count):
            at = element(body, at, walk)
        return at

    return step


def _maybe(entity: Step) -> Step:
    """A structure that may be null says so in a byte before it."""

    def step(body: bytes, at: int, walk: Walk) -> int:
        return at + 1 if body[at] >= 0x80 else entity(body, at + 1, walk)

    return step


def _tags(known: dict[int, Step]) -> Step:
    def step(body: bytes, at: int, walk: Walk) -> int:
        if body[at] == 0:  # nearly always
            return at + 1
        start = at
        count, at = read_uvarint(body, at)
        kept: list[bytes] = []
        for _ in range(count):
            begin = at
            tag, at = read_uvarint(body, at)
            size, at = read_uvarint(body, at)
            end = at + size
            if end > len(body):
                raise Malformed("tagged field reaches past the frame")
            if (field := known.get(tag)) is not None:
                outer, walk.inside_tag = walk.inside_tag, True
                if field(body, at, walk) != end:
                    raise Malformed("tagged field is not as long as it says")
                walk.inside_tag = outer
                kept.append(body[begin:end])
            at = end
        if len(kept) != count and not walk.inside_tag:
            walk.cuts.append((start, at, uvarint(len(kept)) + b"".join(kept)))
        return at

    return step
