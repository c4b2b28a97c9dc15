"""A compacted log as a list of Python objects: the rules of cleaning, written down again without bytes or
files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from millstream.wire.records import Record


@dataclass
class ModelBatch:
    base: int
    last: int
    records: list[Record]
    producer: int = -1
    transaction: int | None = None  # number of the transaction it belongs to or ends
    marker: bool = False
    horizon: int | None = None


@dataclass
class Model:
    batches: list[ModelBatch] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)  # numbers of transactions

    def copy(self) -> Model:
        return Model([replace(batch) for batch in self.batches], self.aborted)

    def clean(
        self, first_dirty: int, end: int, upper: int, now: int, retention: int, rewritten_to: int
    ) -> None:
        """The keys written in [first_dirty, end) are known; `rewritten_to` is the end of the segment of the
        last one, `upper` that of all that could be cleaned."""
        newest: dict[bytes, int] = {}
        for batch in self.batches:
            if not batch.marker and batch.transaction not in self.aborted:
                for record in batch.records:
                    if record.key is not None and first_dirty <= record.offset < end:
                        newest[record.key] = record.offset
        with_data = {b.transaction for b in self.batches if not b.marker and b.transaction is not None}
        kept: list[ModelBatch] = []
        for batch in self.batches:
            if batch.base >= rewritten_to or self._remains(
                batch, newest, with_data, end, upper, now, retention
            ):
                kept.append(batch)
        self.batches = kept

    def _remains(
        self,
        batch: ModelBatch,
        newest: dict[bytes, int],
        with_data: set[int | None],
        end: int,
        upper: int,
        now: int,
        retention: int,
    ) -> bool:
        over = batch.horizon is not None and batch.horizon <= now
        if batch.marker:
            if batch.transaction not in with_data:
                if over:
                    batch.records = []
                elif batch.records and batch.horizon is None:
                    batch.horizon = now + retention
        elif batch.transaction in self.aborted:
            batch.records = []
        else:
            batch.records = [
                record
                for record in batch.records
                if record.offset >= end
                or (
                    record.key is not None
                    and record.offset >= newest.get(record.key, -1)
                    and (record.value is not None or not over)
                )
            ]
            if (
                batch.horizon is None
                and batch.last < end
                and any(record.value is None for record in batch.records)
            ):
                batch.horizon = now + retention
        if not batch.records:
            batch.horizon = None
        return bool(batch.records) or batch.last + 1 == upper or self._is_last_of(batch)

    def _is_last_of(self, batch: ModelBatch) -> bool:
        """The last data that its producer wrote, anywhere in the log."""
        last = max(
            (b.last for b in self.batches if b.producer == batch.producer and not b.marker), default=-1
        )
        return batch.producer >= 0 and not batch.marker and batch.last == last

    def committed(self) -> list[Record]:
        """What a read_committed reader may see, while every transaction is decided."""
        return [
            record
            for batch in self.batches
            if not batch.marker and batch.transaction not in self.aborted
            for record in batch.records
        ]
