"""The compiled loop: instructions over bodies.

An instruction is four numbers: what to do, and up to three operands. A *slot* is a row of 64-bit cells in one
flat store: numbers go there as they are (floats by their bits), text and bytes as where they begin and how
long they are. A slot belongs to a *level*: level 0 has a cell per record, every array or map opens a level
with a cell per element; `cursor` says how far each level is filled. Slot -1 means: read it and forget it.

Everything that is read was written by strangers, so every read is checked against the end of its body, counts
against what can still come, and a bad body costs only its own row: the levels are wound back to where the row
began.
"""

# ruff: noqa: SIM109 - numba compiles comparisons to jumps, and a search in a tuple to a loop
import numpy as np

from millstream.wire.arrow.varint_loops import compiled, nb

END, LONG, INT, FLOAT, DOUBLE, BOOL, BYTES, FIXED, ENUM, UNION, JUMP, SET, FAIL, LIST, NEXT = range(15)
LONG_AS_DOUBLE, LONG_AS_FLOAT, FLOAT_AS_DOUBLE = range(15, 18)

(
    GOOD,
    CUT_OFF,
    LEFT_OVER,
    BAD_NUMBER,
    BAD_BRANCH,
    BAD_SYMBOL,
    BAD_COUNT,
    UNWANTED_NULL,
    BAD_TEXT,
    BAD_DECIMAL,
) = range(10)
REASONS = (
    "",
    "the body ends too early",
    "bytes are left over behind the record",
    "a number is longer than its type allows",
    "a union has no such branch, or the reader does not take it",
    "an enum has no such symbol",
    "an array or map claims more elements than can be there",
    "a null where the reader takes none",
    "a string is not UTF-8",
    "a decimal is longer than its type allows",
)
FULL = 100  # not an error: a level needs more room, run again

DEEPEST = 32
_FEW = 1024  # elements that take no bytes (nulls, empty records) are believed up to this many

_i8, _i4, _u1 = nb.int64[::1], nb.int64, nb.uint8[::1]
_data = nb.types.Array(nb.uint8, 1, "C", readonly=True)


@compiled(
    nb.types.UniTuple(nb.int64, 2)(_data, _i8, _i8, nb.int64[:, ::1], _i8, _i8, _i8, _i8, _i8, _i8, _u1)
)
def run(data, starts, ends, program, table, base, level_of, room, cursor, store, outcome):  # type: ignore[no-untyped-def]
    """Returns (0, 0), or (FULL, level)."""
    rows = len(starts)
    levels = len(room)
    back = np.zeros(levels, np.int64)
    left = np.zeros(DEEPEST, np.int64)  # per open array: elements left in this block, so far, where it began
    many = np.zeros(DEEPEST, np.int64)
    begin = np.zeros(DEEPEST, np.int64)
    float_cell = np.zeros(1, np.float64)
    float_bits = float_cell.view(np.int64)
    single_cell = np.zeros(1, np.float32)
    single_bits = single_cell.view(np.int32)
    for row in range(rows):
        cursor[0] = row
        for level in range(1, levels):
            back[level] = cursor[level]
        at, end, pc, depth, bad = starts[row], ends[row], 0, 0, GOOD
        while True:
            op, slot = program[pc, 0], program[pc, 1]
            number = np.int64(0)
            if (
                op == LONG
                or op == INT
                or op == BYTES
                or op == ENUM
                or op == UNION
                or op == LIST
                or op == LONG_AS_DOUBLE
                or op == LONG_AS_FLOAT
            ):
                # A zigzag number of up to ten bytes, read in line (benchmarks/pipeline_columns.py).
                shift, raw, byte = np.uint64(0), np.uint64(0), np.uint64(0x80)
                while byte >= 0x80:
                    if at >= end:
                        bad = CUT_OFF
                        break
                    if shift > 63:
                        bad = BAD_NUMBER
                        break
                    byte = np.uint64(data[at])
                    raw |= (byte & np.uint64(0x7F)) << shift
                    shift += np.uint64(7)
                    at += 1
                if shift > 64 and byte > 1:
                    bad = BAD_NUMBER
                if bad != GOOD:
                    break
                number = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
            if op == LONG or op == INT:
                if op == INT and (number > 2147483647 or number < -2147483648):
                    bad = BAD_NUMBER
                    break
                if slot >= 0:
                    store[base[slot] + cursor[level_of[slot]]] = number
            elif op == BYTES or op == FIXED:
                if op == FIXED:
                    number = program[pc, 2]
                if number < 0 or number > end - at:
                    bad = CUT_OFF
                    break
                if slot >= 0:
                    cell = cursor[level_of[slot]]
                    store[base[slot] + cell] = at
                    store[base[slot + 1] + cell] = number
                at += number
            elif op == UNION:
                if number < 0 or number >= program[pc, 2]:
                    bad = BAD_BRANCH
                    break
                pc = table[program[pc, 1] + number]
                continue
            elif op == SET:
                store[base[slot] + cursor[level_of[slot]]] = program[pc, 2]
            elif op == JUMP:
                pc = slot
                continue
            elif op == DOUBLE:
                if end - at < 8:
                    bad = CUT_OFF
                    break
                if slot >= 0:
                    bits = np.uint64(0)
                    for index in range(8):
                        bits |= np.uint64(data[at + index]) << np.uint64(8 * index)
                    store[base[slot] + cursor[level_of[slot]]] = np.int64(bits)
                at += 8
            elif op == FLOAT or op == FLOAT_AS_DOUBLE:
                if end - at < 4:
                    bad = CUT_OFF
                    break
                if slot >= 0:
                    small = np.uint32(0)
                    for index in range(4):
                        small |= np.uint32(data[at + index]) << np.uint32(8 * index)
                    if op == FLOAT:
                        store[base[slot] + cursor[level_of[slot]]] = np.int64(small)
                    else:
                        single_bits[0] = np.int32(small)
                        float_cell[0] = single_cell[0]
                        store[base[slot] + cursor[level_of[slot]]] = float_bits[0]
                at += 4
            elif op == BOOL:
                if at >= end:
                    bad = CUT_OFF
                    break
                if slot >= 0:
                    store[base[slot] + cursor[level_of[slot]]] = 1 if data[at] != 0 else 0
                at += 1
            elif op == ENUM:
                if number < 0 or number >= program[pc, 3]:
                    bad = BAD_SYMBOL
                    break
                if slot >= 0:
                    symbol = table[program[pc, 2] + number]
                    if symbol < 0:
                        bad = BAD_SYMBOL
                        break
                    store[base[slot] + cursor[level_of[slot]]] = symbol
            elif op == LIST or op == NEXT:
                if op == LIST:
                    many[depth] = 0
                    left[depth] = number
                    begin[depth] = pc + 1
                    depth += 1
                else:  # the end of an element
                    level = program[pc, 2]
                    if level >= 0:
                        cursor[level] += 1
                    many[depth - 1] += 1
                    left[depth - 1] -= 1
                    if left[depth - 1] > 0:
                        if level >= 0 and cursor[level] >= room[level]:
                            return FULL, level
                        pc = begin[depth - 1]
                        continue
                    # The same number, in line once more for the same reason.
                    shift, raw, byte = np.uint64(0), np.uint64(0), np.uint64(0x80)
                    while byte >= 0x80:
                        if at >= end:
                            bad = CUT_OFF
                            break
                        if shift > 63:
                            bad = BAD_NUMBER
                            break
                        byte = np.uint64(data[at])
                        raw |= (byte & np.uint64(0x7F)) << shift
                        shift += np.uint64(7)
                        at += 1
                    if shift > 64 and byte > 1:
                        bad = BAD_NUMBER
                    if bad != GOOD:
                        break
                    left[depth - 1] = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
                count = left[depth - 1]
                level = program[pc, 2]
                if count == 0:  # no further block
                    depth -= 1
                    if slot >= 0:
                        store[base[slot] + cursor[level_of[slot]]] = many[depth]
                    pc = program[pc, 3]
                    continue
                if count < 0:  # with its size in bytes, for those who skip
                    count = -count
                    left[depth - 1] = count
                    byte = np.uint64(0x80)
                    while byte >= 0x80:
                        if at >= end:
                            bad = CUT_OFF
                            break
                        byte = np.uint64(data[at])
                        at += 1
                    if bad != GOOD:
                        break
                if count < 0 or (count > end - at and count > _FEW):
                    bad = BAD_COUNT
                    break
                if level >= 0 and cursor[level] >= room[level]:
                    return FULL, level
                pc = begin[depth - 1]
                continue
            elif op == LONG_AS_DOUBLE:
                float_cell[0] = np.float64(number)
                store[base[slot] + cursor[level_of[slot]]] = float_bits[0]
            elif op == LONG_AS_FLOAT:
                single_cell[0] = np.float32(number)
                store[base[slot] + cursor[level_of[slot]]] = np.int64(single_bits[0])
            elif op == END:
                if at != end:
                    bad = LEFT_OVER
                break
            else:  # FAIL
                bad = slot
                break
            pc += 1
        if bad != GOOD:
            outcome[row] = bad
            for level in range(1, levels):
                cursor[level] = back[level]
            for one in range(len(base)):
                if level_of[one] == 0:
                    store[base[one] + row] = 0
    return 0, 0


@compiled(nb.void(_data, _i8, _i8, nb.int32[::1], _u1))
def gather(data, starts, lengths, offsets, out):  # type: ignore[no-untyped-def]
    """Copy pieces of `data` one behind the other; `offsets` says where each goes."""
    for row in range(len(starts)):
        at, to = starts[row], offsets[row]
        for byte in range(lengths[row]):
            out[to + byte] = data[at + byte]


@compiled(nb.int64(_data, _i8, _i8, _u1))
def widen(data, starts, lengths, out):  # type: ignore[no-untyped-def]
    """Big-endian numbers of any length into little-endian ones of 16 bytes. Returns the first that does not
    fit, or -1."""
    for row in range(len(starts)):
        at, size = starts[row], lengths[row]
        sign = np.uint8(0xFF) if size > 0 and data[at] >= 0x80 else np.uint8(0)
        skip = max(0, size - 16)
        for byte in range(skip):
            if data[at + byte] != sign:
                return row
        if skip and (data[at + skip] >= 0x80) != (sign == 0xFF):
            return row
        for byte in range(16):
            out[row * 16 + byte] = data[at + size - 1 - byte] if byte < size else sign
    return -1
