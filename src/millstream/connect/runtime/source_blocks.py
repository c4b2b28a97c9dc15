"""Many records of a source at once: transforms and converters as one generated loop.

What the transforms do to a record (`transforms/fused`) and how the converters write what becomes of it
(`Converter.writing`) is one function for the records of one schema. It makes neither the transformed record
nor its struct, and what is the same in all records is written once. What the function was not made for it
leaves to the pipeline, one record at a time: None stands in its place. `tests/connect/test_source_blocks.py`
holds both to the same answers, `benchmarks/connect_worker.py --only transforms` says what it is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from millstream.connect.converters.base import Converter, Variables
from millstream.connect.data.record import SourceRecord
from millstream.connect.data.schema import Schema, Type
from millstream.connect.errors import ConnectError
from millstream.connect.transforms.base import Target, Transform
from millstream.connect.transforms.fused import FusedSource, NotFusable
from millstream.wire.records import Record as WireRecord

ProducerRecord: TypeAlias = tuple[str, int | None, WireRecord] | None
"""Topic, partition (if the record names one) and the record; None for one that the pipeline has to do."""
Loop: TypeAlias = Callable[[Sequence[SourceRecord], int], list[ProducerRecord]]

_KEPT = 16
_LEAVE = "add(None); continue"


class SourceBlocks:
    """`write` returns None where no loop can be made for these records."""

    def __init__(self, transforms: Sequence[Transform], key: Converter, value: Converter) -> None:
        self._transforms = transforms
        self._converters: dict[Target, Converter] = {"key": key, "value": value}
        self._loops: dict[tuple[Schema | None, Schema | None], Loop | None] = {}

    def write(self, records: Sequence[SourceRecord], now: int) -> list[ProducerRecord] | None:
        """`now` is the timestamp of records that have none."""
        first = records[0]
        schemas = first.key_schema, first.value_schema
        if schemas not in self._loops:
            if len(self._loops) >= _KEPT:
                self._loops.clear()
            self._loops[schemas] = self._make(*schemas)
        loop = self._loops[schemas]
        return None if loop is None else loop(records, now)

    def _make(self, key: Schema | None, value: Schema | None) -> Loop | None:
        source = FusedSource(SourceRecord, key, value)
        try:
            source.take(self._transforms)
            expressions = {target: self._expression(source, target) for target in self._converters}
        except (NotFusable, ConnectError, ValueError):
            return None
        body = [
            f"if type(record) is not made or record.headers: {_LEAVE}",
            *_same("record.key_schema", source.object(key)),
            *_same("record.value_schema", source.object(value)),
            *(line.replace("return SLOW", _LEAVE) for line in source.lines),
            "stamp = record.timestamp",
            "if stamp is None or stamp < 0: stamp = now",
            f"add(({source.topic}, record.partition, new(WireRecord, "
            f"(0, stamp, {expressions['key']}, {expressions['value']}, ()))))",
        ]
        text = (
            "def write(records, now):\n"
            "    found = []\n"
            "    add = found.append\n"
            "    for record in records:\n"
            "        try:\n"
            + "".join(f"            {line}\n" for line in body)
            + "        except Exception:\n"
            "            add(None)\n"
            "    return found\n"
        )
        space = {**source.objects, "new": tuple.__new__, "WireRecord": WireRecord}
        exec(compile(text, "<records of a source>", "exec"), space)  # noqa: S102
        made: Loop = space["write"]
        return made

    def _expression(self, source: FusedSource, target: Target) -> str:
        shape = source.shapes[target]
        if shape.fields is None and shape.schema is not None and shape.schema.type is Type.STRUCT:
            source.fields(target, check=False)  # the converter looks at what it writes
            shape = source.shapes[target]
        variables = Variables(shape.whole, shape.fields, source.constants)
        found = self._converters[target].writing(shape.schema, variables)
        if found is None:
            raise NotFusable
        if found.conditions:
            together = " and ".join(f"({condition})" for condition in found.conditions)
            source.lines.append(f"if not ({together}): return SLOW")
        source.objects.update(found.objects)
        return found.expression


def _same(name: str, known: str) -> list[str]:
    unlike = f"{name} is not {known}" + ("" if known == "None" else f" and {name} != {known}")
    return [f"if {unlike}: {_LEAVE}"]
