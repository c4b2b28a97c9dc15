"""A compacted log and its model, side by side: every step is done to both, every check compares them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from millstream.settings.log_config import LogConfig
from millstream.storage.cleaning import planning
from millstream.storage.log import PartitionLog
from millstream.wire.batch import CONTROL
from millstream.wire.records import Record, encode_batch

from ..batches import NOW
from .helpers import batches, clean, read_committed
from .model import Model, ModelBatch

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - fsync costs nothing there
IDEMPOTENT, TRANSACTIONAL = 10, 20  # producer ids from here on

Pairs = list[tuple[bytes, bytes | None, int]]  # key, value, how much later than the batch


class Crash(BaseException):
    """kill -9 at this point."""


class History:
    def __init__(self, config: LogConfig) -> None:
        self.temporary = tempfile.TemporaryDirectory(dir=FAST)
        self.config = config
        self.now = NOW
        self.model = Model()
        self.open_transactions: dict[int, int] = {}
        self.transactions = 0
        self.sequences: dict[int, int] = {}
        self.written: dict[int, Record] = {}
        self.transaction_of: dict[int, int] = {}  # offset -> transaction
        self.cleanings = self.dropped = self.crashes = 0
        self.log = self._open(clean=True)

    def close(self) -> None:
        self.log.close(clean=False)
        self.temporary.cleanup()

    def _open(self, clean: bool, recovery_point: int = 0, high_watermark: int = 0) -> PartitionLog:
        return PartitionLog.open(
            Path(self.temporary.name, "orders-7"),
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
        )

    # -- steps -----------------------------------------------------------------------------------------------

    def put(self, pairs: Pairs, codec: int, producer: int) -> None:
        self.now += 10
        transaction = None
        rows = [
            Record(0, self.now + later, key, value, (("h", None),) if later % 7 == 0 else ())
            for key, value, later in pairs
        ]
        if producer >= TRANSACTIONAL:
            if producer not in self.open_transactions:
                self.transactions += 1
                self.open_transactions[producer] = self.transactions
            transaction = self.open_transactions[producer]
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(rows)
            data = encode_batch(
                rows,
                codec,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=transaction is not None,
            )
        else:
            data = encode_batch(rows, codec)
        base = self.log.append_leader(memoryview(data), 0, self.now).base_offset
        self.log.set_high_watermark(self.log.end_offset)
        stamped = self.config.message_timestamp_type == "LogAppendTime"
        records = [
            row._replace(offset=base + number, timestamp=self.now if stamped else row.timestamp)
            for number, row in enumerate(rows)
        ]
        self.written.update((record.offset, record) for record in records)
        if transaction is not None:
            self.transaction_of.update((record.offset, transaction) for record in records)
        self.model.batches.append(ModelBatch(base, base + len(rows) - 1, records, producer, transaction))

    def one_by_one(self, many: list[Pairs]) -> None:
        """What a producer without linger writes."""
        for pairs in many:
            self.put(pairs, 0, -1)

    def end(self, which: int, commit: bool) -> None:
        if not self.open_transactions:
            return
        producer = sorted(self.open_transactions)[which % len(self.open_transactions)]
        number = self.open_transactions.pop(producer)
        self.now += 10
        base = self.log.append_marker(producer, 0, commit, 0, 0, self.now).base_offset
        self.log.set_high_watermark(self.log.end_offset)
        if not commit:
            self.model.aborted.add(number)
        record = Record(base, self.now, b"\0\0\0\x01" if commit else b"\0\0\0\0", b"\0\0\0\0\0\0", ())
        self.model.batches.append(ModelBatch(base, base, [record], producer, number, marker=True))

    def roll(self) -> None:
        self.log.roll(self.now)

    def wait(self, by: int) -> None:
        self.now += by

    def clean(self, keys: int) -> None:
        """With a map that has room for so many keys."""
        dirt = planning.survey(self.log, self.log.cleaned_to, self.now)
        if not dirt.is_due(0.0):
            return
        bases = list(self.log.bases)
        summary = clean(self.log, self.now, map_bytes=24 * keys, buffer_bytes=1)
        assert summary.map_bytes <= 24 * keys
        assert dirt.first_dirty < summary.end_offset <= dirt.upper, "every round gets further"
        self.model.clean(
            dirt.first_dirty,
            summary.end_offset,
            dirt.upper,
            self.now,
            self.config.delete_retention_ms,
            next(base for base in bases if base >= summary.end_offset),
        )
        self.cleanings += 1
        self.dropped += summary.records_before - summary.records_after
        self.check()

    def crash_while_cleaning(self, renames: int) -> None:
        """The process ends before the given rename of the replacements; the next start sorts it out."""
        dirt = planning.survey(self.log, self.log.cleaned_to, self.now)
        if not dirt.is_due(0.0):
            return
        before, cleaned_to = self._offsets(), self.log.cleaned_to
        expected = self.model.copy()
        retention = self.config.delete_retention_ms
        expected.clean(dirt.first_dirty, dirt.upper, dirt.upper, self.now, retention, dirt.upper)
        try:
            with mock.patch("os.rename", _ending_after(renames)):
                clean(self.log, self.now)
        except Crash:
            self.crashes += 1
            point = self.log.recovery_point
            self.log.close(clean=False)
            self._reopen(False, point, cleaned_to)
            after = self._offsets()
            assert set(after) <= set(before)
            assert {r.offset for b in expected.batches if not b.marker for r in b.records} <= set(after)
            left = {path.suffix for path in Path(self.log.folder).iterdir()}
            assert not left & {".cleaned", ".swap", ".deleted"}
            self._model_from_log()
        else:
            self.model = expected
        self.check()

    def reopen(self, clean: bool) -> None:
        before, end = self._producers(), self.log.end_offset
        self.log.close(clean=clean)
        self._reopen(clean, self.log.recovery_point, self.log.cleaned_to)
        assert self.log.end_offset == end
        assert self._producers() == before
        self.check()

    def _reopen(self, clean: bool, recovery_point: int, cleaned_to: int) -> None:
        self.log = self._open(clean, recovery_point, self.log.high_watermark)
        self.log.set_high_watermark(self.log.end_offset)
        self.log.cleaned_to = cleaned_to

    def _model_from_log(self) -> None:
        """A crash leaves some segments cleaned and some not: go on from what is there."""
        known = {batch.last: batch for batch in self.model.batches}
        self.model.batches = []
        for seen in batches(self.log):
            old = known[seen.header.last_offset]
            self.model.batches.append(
                ModelBatch(
                    old.base, old.last, seen.records, old.producer, old.transaction, old.marker, seen.horizon
                )
            )

    def _offsets(self) -> list[int]:
        return [r.offset for s in batches(self.log) if not s.header.attributes & CONTROL for r in s.records]

    def _producers(self) -> dict[int, tuple[int, int, int, int]]:
        return {
            p.id: (p.epoch, p.last_sequence, p.last_offset, p.txn_first_offset)
            for p in self.log.producers.by_id.values()
        }

    # -- what must hold --------------------------------------------------------------------------------------

    def check(self) -> None:
        self._same_as_model()
        self._last_value_of_every_key()
        self._every_offset_leads_somewhere()
        self._read_committed()
        self._times()

    def _same_as_model(self) -> None:
        found, expected = batches(self.log, max_bytes=400), self.model.batches
        assert [(s.header.base_offset, s.header.last_offset) for s in found] == [
            (b.base, b.last) for b in expected
        ]
        for seen, batch in zip(found, expected, strict=True):
            assert seen.records == batch.records
            assert seen.horizon == batch.horizon
            if batch.records:
                assert seen.header.max_timestamp == max(record.timestamp for record in batch.records)
            if not batch.marker:
                assert all(record == self.written[record.offset] for record in seen.records)

    def _last_value_of_every_key(self) -> None:
        last: dict[bytes | None, Record] = {}
        for offset, record in sorted(self.written.items()):
            if self.transaction_of.get(offset) not in self.model.aborted:
                last[record.key] = record
        present = set(self._offsets())
        assert all(record.value is None or record.offset in present for record in last.values())

    def _every_offset_leads_somewhere(self) -> None:
        log = self.log
        spans = [(s.header.base_offset, s.header.last_offset) for s in batches(log)]
        for offset in range(log.start_offset, log.end_offset):
            part = log.read(offset, 1, "end")
            wanted = next((base for base, last in spans if last >= offset), None)
            if wanted is None:
                assert part.segment is None
            else:
                assert int.from_bytes(part.read()[:8], "big") == wanted
                assert part.next_offset > offset

    def _read_committed(self) -> None:
        stable = self.log.last_stable_offset
        expected = [record for record in self.model.committed() if record.offset < stable]
        for max_bytes in (200, 1 << 20):
            assert read_committed(self.log, max_bytes) == expected

    def _times(self) -> None:
        records = [record for seen in batches(self.log) for record in seen.records]
        for timestamp in (NOW, self.now - 25, self.now):
            first = next((record for record in records if record.timestamp >= timestamp), None)
            found = self.log.offset_for_timestamp(timestamp)
            assert (found and (found.timestamp, found.offset)) == (first and (first.timestamp, first.offset))


def _ending_after(count: int) -> Callable[[str, str], None]:
    real = os.rename
    done = 0

    def rename(source: str, target: str) -> None:
        nonlocal done
        if done >= count:
            raise Crash
        done += 1
        real(source, target)

    return rename
