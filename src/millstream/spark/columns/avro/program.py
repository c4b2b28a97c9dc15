"""Writer's and reader's schema into instructions and a tree that says what the slots mean.

Avro's rules of resolution are applied here, once, when the program is made: fields are matched by name or
alias, a field that only the writer has is read past, one that only the reader has gets its default, numbers
are promoted, enums and unions are mapped. What cannot be resolved at all is `Unresolvable`; what this way of
decoding does not do (a union of several types as a column, skipping a type that contains itself) is
`TooRich`, and the slow way takes over.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.spark.columns.avro import loop
from millstream.spark.columns.avro.types import (
    AvroSchemas,
    arrow_type,
    found,
    leaf_type,
    nullable_branch,
    type_name,
)


class Unresolvable(ValueError):
    """Data of this writer cannot be read with this reader's schema."""


class TooRich(ValueError):
    """For the slow way."""


@dataclass
class Leaf:
    """A number, or with `text` the beginning and (in the next slot) the length of bytes."""

    slot: int
    schema: Any  # the reader's
    type: pa.DataType
    valid: int = -1  # the slot that says whether it is there; -1: always


@dataclass
class Constant:
    """A field that the writer does not know: the reader's default, as an array of one."""

    value: pa.Array
    level: int


@dataclass
class Struct:
    fields: list[tuple[str, "Node"]]
    level: int
    valid: int = -1


@dataclass
class Repeated:
    """An array, or a map with the keys' leaf in `key`."""

    count: int
    item: "Node"
    level: int  # of its elements
    key: Leaf | None = None
    valid: int = -1


Node = Leaf | Constant | Struct | Repeated

PROMOTIONS = {
    ("int", "long"): loop.INT,
    ("int", "float"): loop.LONG_AS_FLOAT,
    ("int", "double"): loop.LONG_AS_DOUBLE,
    ("long", "float"): loop.LONG_AS_FLOAT,
    ("long", "double"): loop.LONG_AS_DOUBLE,
    ("float", "double"): loop.FLOAT_AS_DOUBLE,
    ("string", "bytes"): loop.BYTES,
    ("bytes", "string"): loop.BYTES,
}
SAME = {
    "int": loop.INT,
    "long": loop.LONG,
    "float": loop.FLOAT,
    "double": loop.DOUBLE,
    "boolean": loop.BOOL,
    "string": loop.BYTES,
    "bytes": loop.BYTES,
}


@dataclass
class Program:
    code: np.ndarray[Any, np.dtype[np.int64]]
    table: np.ndarray[Any, np.dtype[np.int64]]
    level_of: np.ndarray[Any, np.dtype[np.int64]]
    levels: int
    root: Node


def compile_program(writer: AvroSchemas, reader: AvroSchemas) -> Program:
    maker = _Maker(writer.named, reader.named)
    return maker.program(maker.node(writer.root, reader.root, 0, "the record"))


def compile_check(writer: AvroSchemas) -> Program:
    """A program that only reads past everything, and so says which bodies are not what that writer writes."""
    maker = _Maker(writer.named, writer.named)
    maker.skip(writer.root, ())
    return maker.program(Struct([], 0))


@dataclass
class _Maker:
    writers: dict[str, Any]
    readers: dict[str, Any]
    code: list[list[int]] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    level_of: list[int] = field(default_factory=list)
    levels: int = 1
    depth: int = 0

    def program(self, root: Node) -> Program:
        self.emit(loop.END)
        return Program(
            np.array(self.code, np.int64),
            np.array(self.table or [0], np.int64),
            np.array(self.level_of or [0], np.int64),
            self.levels,
            root,
        )

    def emit(self, op: int, first: int = -1, second: int = -1, third: int = -1) -> int:
        self.code.append([op, first, second, third])
        return len(self.code) - 1

    def slot(self, level: int) -> int:
        self.level_of.append(level)
        return len(self.level_of) - 1

    # --- reading into slots ---------------------------------------------------------------------------------

    def node(self, writer: Any, reader: Any, level: int, where: str) -> Node:
        writer, reader = found(writer, self.writers), found(reader, self.readers)
        simple = nullable_branch(reader)
        if simple is None:
            raise TooRich("a union of several types")
        may_be_null, reader = simple
        reader = found(reader, self.readers)
        if type_name(reader) == "null":
            raise TooRich("a column of nulls")
        if type_name(writer) != "union":
            if type_name(writer) == "null":
                raise TooRich("a writer of nulls")
            return self.value(writer, reader, level, where)
        return self._union(writer, reader, level, where, may_be_null)

    def _union(self, writer: list[Any], reader: Any, level: int, where: str, may_be_null: bool) -> Node:
        """A union that was written: a jump for each branch. All branches fill the same slots, which the first
        sets up."""
        valid = (
            self.slot(level) if may_be_null and any(type_name(branch) == "null" for branch in writer) else -1
        )
        jumps = len(self.table)
        self.table += [0] * len(writer)
        self.emit(loop.UNION, jumps, len(writer))
        ends: list[int] = []
        made: Node | None = None
        refused: Unresolvable | None = None
        for number, branch in enumerate(writer):
            if type_name(branch) == "null":
                continue
            start, slots, levels, depth = len(self.code), len(self.level_of), self.levels, self.depth
            try:
                if valid >= 0:
                    self.emit(loop.SET, valid, 1)
                node = self.value(found(branch, self.writers), reader, level, where)
            except Unresolvable as error:
                del self.code[start:], self.level_of[slots:]
                self.levels, self.depth = levels, depth
                self.table[jumps + number] = self.emit(loop.FAIL, loop.BAD_BRANCH)
                refused = error
                continue
            if made is None:
                made = node
            elif isinstance(made, Leaf) and isinstance(node, Leaf):
                # One instruction, which fills the slots of the first.
                self.code[-1][1] = made.slot
                del self.level_of[slots:]
            else:
                raise TooRich("several branches that fit")
            self.table[jumps + number] = start
            ends.append(self.emit(loop.JUMP))
        if made is None:
            raise refused or Unresolvable(f"{where} is never anything but null where it is written")
        for number, branch in enumerate(writer):
            if type_name(branch) == "null":
                self.table[jumps + number] = len(self.code)
                if valid >= 0:
                    self.emit(loop.SET, valid, 0)
                    self._empty(made)
                else:
                    self.emit(loop.FAIL, loop.UNWANTED_NULL)
                ends.append(self.emit(loop.JUMP))
        for jump in ends:
            self.code[jump][1] = len(self.code)
        if valid >= 0:
            if isinstance(made, Constant):
                raise TooRich("a constant in a union")
            made.valid = valid
        return made

    def _empty(self, node: Node) -> None:
        """Below a null nothing was read: cells that may hold something old are cleared."""
        if isinstance(node, Repeated):
            self.emit(loop.SET, node.count, 0)
        elif isinstance(node, Struct):
            for _, inner in node.fields:
                self._empty(inner)
        elif isinstance(node, Leaf):
            self.emit(loop.SET, node.slot, 0)
            if _is_bytes(node.schema):
                self.emit(loop.SET, node.slot + 1, 0)

    def value(self, writer: Any, reader: Any, level: int, where: str) -> Node:
        wrote, reads = type_name(writer), type_name(reader)
        if reads == "record" and wrote == "record":
            return self._record(writer, reader, level, where)
        if reads in ("array", "map") and wrote == reads:
            return self._repeated(writer, reader, level, where)
        if reads == "enum" and wrote == "enum":
            return self._enum(writer, reader, level)
        if reads == "fixed" and wrote == "fixed" and writer["size"] == reader["size"]:
            slot = self._bytes_slots(level)
            self.emit(loop.FIXED, slot, int(writer["size"]))
            return Leaf(slot, reader, leaf_type(reader))
        op = SAME.get(wrote) if wrote == reads else PROMOTIONS.get((wrote, reads))
        if op is None:
            raise Unresolvable(f"{where} was written as {wrote} and cannot be read as {reads}")
        slot = self._bytes_slots(level) if op == loop.BYTES else self.slot(level)
        self.emit(op, slot)
        return Leaf(slot, reader, leaf_type(reader))

    def _bytes_slots(self, level: int) -> int:
        slot = self.slot(level)
        self.slot(level)
        return slot

    def _record(self, writer: Any, reader: Any, level: int, where: str) -> Node:
        names: dict[str, Any] = {}
        for wanted in reader["fields"]:
            for name in (wanted["name"], *wanted.get("aliases", ())):
                names.setdefault(name, wanted)
        nodes: dict[str, Node] = {}
        for written in writer["fields"]:
            wanted = names.get(written["name"])
            if wanted is None or wanted["name"] in nodes:
                self.skip(written["type"], ())
            else:
                inner = f"field '{wanted['name']}'"
                nodes[wanted["name"]] = self.node(written["type"], wanted["type"], level, inner)
        fields: list[tuple[str, Node]] = []
        for wanted in reader["fields"]:
            node = nodes.get(wanted["name"])
            if node is None:
                node = Constant(self._default(wanted), level)
            fields.append((wanted["name"], node))
        return Struct(fields, level)

    def _default(self, wanted: Any) -> pa.Array:
        if "default" not in wanted:
            raise Unresolvable(
                f"field '{wanted['name']}' was not written, and the reader's schema has no default for it"
            )
        schemas = AvroSchemas(wanted["type"], self.readers)
        if wanted["default"] is None:
            return pa.nulls(1, arrow_type(schemas))
        from millstream.spark.columns.avro.values import default_array

        return default_array(schemas, wanted["default"])

    def _repeated(self, writer: Any, reader: Any, level: int, where: str) -> Node:
        self._deeper()
        count, inner = self.slot(level), self.levels
        self.levels += 1
        begin = self.emit(loop.LIST, count, inner)
        key: Leaf | None = None
        if type_name(reader) == "map":
            slot = self._bytes_slots(inner)
            self.emit(loop.BYTES, slot)
            key = Leaf(slot, "string", pa.string())
            item = self.node(writer["values"], reader["values"], inner, f"the values of {where}")
        else:
            item = self.node(writer["items"], reader["items"], inner, f"the elements of {where}")
        self._close_list(begin, count, inner)
        return Repeated(count, item, inner, key)

    def _close_list(self, begin: int, count: int, level: int) -> None:
        end = self.emit(loop.NEXT, count, level)
        self.code[begin][3] = self.code[end][3] = end + 1
        self.depth -= 1

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth >= loop.DEEPEST:
            raise TooRich("arrays nested too deeply")

    def _enum(self, writer: Any, reader: Any, level: int) -> Node:
        symbols = {symbol: number for number, symbol in enumerate(reader["symbols"])}
        fallback = symbols.get(reader.get("default"), -1)
        start = len(self.table)
        self.table += [symbols.get(symbol, fallback) for symbol in writer["symbols"]]
        slot = self.slot(level)
        self.emit(loop.ENUM, slot, start, len(writer["symbols"]))
        return Leaf(slot, reader, pa.string())

    # --- reading past ---------------------------------------------------------------------------------------

    def skip(self, schema: Any, inside: tuple[str, ...]) -> None:
        schema = found(schema, self.writers)
        avro_type = type_name(schema)
        if avro_type == "record":
            if schema["name"] in inside:
                raise TooRich("a type that contains itself")
            for one in schema["fields"]:
                self.skip(one["type"], (*inside, schema["name"]))
        elif avro_type == "union":
            jumps = len(self.table)
            self.table += [0] * len(schema)
            self.emit(loop.UNION, jumps, len(schema))
            ends = []
            for number, branch in enumerate(schema):
                self.table[jumps + number] = len(self.code)
                self.skip(branch, inside)
                ends.append(self.emit(loop.JUMP))
            for jump in ends:
                self.code[jump][1] = len(self.code)
        elif avro_type in ("array", "map"):
            self._deeper()
            begin = self.emit(loop.LIST)
            if avro_type == "map":
                self.emit(loop.BYTES)
            self.skip(schema["items" if avro_type == "array" else "values"], inside)
            self._close_list(begin, -1, -1)
        elif avro_type == "enum":
            self.emit(loop.ENUM, -1, 0, len(schema["symbols"]))
        elif avro_type == "fixed":
            self.emit(loop.FIXED, -1, int(schema["size"]))
        elif avro_type != "null":
            self.emit(SAME[avro_type])


def _is_bytes(schema: Any) -> bool:
    return type_name(schema) in ("string", "bytes", "fixed")
