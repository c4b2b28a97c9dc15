"""Appending to a partition's log: what a client produced, what a leader sent, what the broker itself has to
say.

`append_leader` tries the fast path (append_fast_path.py) and takes the full one for whatever that does not:
several batches, recompression, compacted topics, new producers, retries, and everything that is wrong. The
full path judges all batches first (validate.py, producers.py), then writes all of them at once, so nothing is
written when it raises. A caller that must not be kept long has the batches prepared elsewhere and calls
`append_prepared`.
"""

from __future__ import annotations

import time
from struct import Struct
from typing import NamedTuple

from millstream.storage import validate
from millstream.storage.append_fast_path import FastAppendLog, stamp
from millstream.storage.files import storage_error
from millstream.storage.index import MAX_RELATIVE
from millstream.wire.batch import HEADER, HEADER_SIZE, TRANSACTIONAL, BatchHeader, read_header
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import encode_marker

_unpack_header = HEADER.unpack_from
_TIMES = Struct(">qq")  # of a batch header: base and max timestamp


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time: int  # -1 unless the topic uses log append time
    size: int
    duplicate: bool


class AppendableLog(FastAppendLog):
    __slots__ = ()

    def append_leader(self, batches: memoryview, epoch: int, now_ms: int) -> Appended:
        """Assign offsets to what a client produced, stamp the leader's epoch, write. The buffer is changed in
        place.

        Nothing is written when this raises KafkaError.
        """
        if len(batches) >= HEADER_SIZE and not batches.readonly:
            first = self.append_fast(batches, _unpack_header(batches), epoch, now_ms)
            if first >= 0:
                append_time = now_ms if self.stamps_time else -1
                return Appended(first, self.end_offset - 1, append_time, len(batches), False)
        return self._append_full(batches, epoch, now_ms)

    def records_to_open(self, batch: memoryview) -> int:
        """How many records of a produced batch have to be looked at before it is stored; mostly none."""
        if not self.opens:
            base_timestamp, max_timestamp = _TIMES.unpack_from(batch, 27)
            if self.stamps_time or max_timestamp >= base_timestamp:
                return 0
        return int.from_bytes(batch[57:61], "big", signed=True)

    def _append_full(self, batches: memoryview, epoch: int, now_ms: int) -> Appended:
        """The same, for whatever is not one plain batch of a known producer: judge all batches, then write
        all."""
        config = self._config
        return self.append_prepared(
            [validate.prepare(part, config, now_ms) for part in validate.split(batches)], epoch, now_ms
        )

    def append_prepared(self, parts: list[memoryview], epoch: int, now_ms: int) -> Appended:
        """Write the batches of one record set that `validate.prepare` has accepted under this log's
        settings."""
        if self.closed:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self.name} is closed")
        # Here too, as a retry of a write that was never made durable must not be acknowledged as a duplicate.
        self.refuse_if_offline()
        headers = [read_header(part) for part in parts]
        sent = self.producers.check_all(headers)
        if sent is not None:
            when = sent.timestamp if self.stamps_time else -1
            return Appended(sent.first_offset, sent.last_offset, when, sum(map(len, parts)), True)
        if self.stamps_time:
            for number, part in enumerate(parts):
                if part.readonly:
                    parts[number] = part = memoryview(bytearray(part))
                validate.stamp_time(part, headers[number].attributes, now_ms)
            headers = [read_header(part) for part in parts]
        total = sum(len(part) for part in parts)
        newest = max(header.max_timestamp for header in headers)
        first = self.end_offset
        last = first + sum(header.last_offset_delta + 1 for header in headers) - 1
        self._make_room(total, last, newest, now_ms)
        offset = first
        for number, (part, header) in enumerate(zip(parts, headers, strict=True)):
            if part.readonly:
                parts[number] = part = memoryview(bytearray(part))
            stamp(part, 0, offset, header.length, epoch)
            headers[number] = header._replace(base_offset=offset, leader_epoch=epoch)
            offset += header.last_offset_delta + 1
        self._write(parts)
        self._remember_all(headers, now_ms)
        return Appended(first, last, now_ms if self.stamps_time else -1, total, False)

    def append_trusted(self, batch: memoryview, epoch: int, now_ms: int) -> Appended:
        """Write one batch that the broker itself made. If it is part of a producer's transaction it has an
        epoch, which is checked, but no sequence."""
        header = read_header(batch)
        if len(batch) > self._max_bytes:
            raise validate.too_large(len(batch), self._config)
        self.producers.check_epoch(header.producer_id, header.producer_epoch)
        first, last = self.end_offset, self.end_offset + header.last_offset_delta
        self._make_room(len(batch), last, header.max_timestamp, now_ms)
        stamp(batch, 0, first, header.length, epoch)
        self._write([batch])
        self._remember_all([header._replace(base_offset=first, leader_epoch=epoch)], now_ms)
        return Appended(first, last, -1, len(batch), False)

    def append_follower(self, batches: memoryview) -> int:
        """Store batches as the leader sent them; they must not begin before the end. Returns the new end
        offset.

        A batch that is cut off at the end is ignored, as a fetch answer may end with one. Batches that fit
        into one segment are written together, by one call and without a copy.
        """
        now_ms = time.time_ns() // 1_000_000
        if not self.append_follower_fast(batches, now_ms):
            self._append_follower_full(batches, now_ms)
        return self.end_offset

    def _append_follower_full(self, batches: memoryview, now_ms: int) -> None:
        """The same, whatever the batches are."""
        parts, headers = validate.split_replicated(batches, self.end_offset, self.name)
        if not headers:
            return
        if self.closed:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self.name} is closed")
        limit = self._config.segment_bytes
        first = start = 0
        while first < len(headers):
            size, stop, newest = headers[first].size, first + 1, headers[first].max_timestamp
            base = headers[first].base_offset
            while (
                stop < len(headers)
                and size + headers[stop].size <= limit
                and headers[stop].last_offset - base <= MAX_RELATIVE
            ):
                size += headers[stop].size
                newest = max(newest, headers[stop].max_timestamp)
                stop += 1
            if headers[stop - 1].last_offset - self.active.base_offset > MAX_RELATIVE:
                self._begin_segment_at(base, now_ms)
            # A batch from before segment.bytes was lowered has to fit all the same.
            self._make_room(min(size, limit), headers[stop - 1].last_offset, newest, now_ms)
            self._read_aborted()
            self._write([batches[start : start + size]])
            self._remember_all(headers[first:stop], now_ms, parts[first:stop])
            first, start = stop, start + size

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        epoch: int,
        now_ms: int,
    ) -> Appended:
        """End a producer's transaction in this partition (the transaction coordinator says so)."""
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = memoryview(
            encode_marker(
                commit,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timestamp=now_ms,
                coordinator_epoch=coordinator_epoch,
                leader_epoch=0,
            )
        )
        header = read_header(marker)._replace(base_offset=self.end_offset, leader_epoch=epoch)
        self._make_room(len(marker), self.end_offset, now_ms, now_ms)
        stamp(marker, 0, self.end_offset, header.length, epoch)
        self._read_aborted()
        self._write([marker])
        self._remember_all([header], now_ms, [marker])
        when = now_ms if self.stamps_time else -1
        return Appended(header.base_offset, header.base_offset, when, len(marker), False)

    def _read_aborted(self) -> None:
        """Before markers are written: an index that cannot be read must refuse them now, not lose the entry
        of an abort afterwards."""
        try:
            self.active.txn_index.entries()
        except OSError as error:
            raise storage_error(f"append to {self.name}", error) from error

    def _remember_all(
        self, headers: list[BatchHeader], now_ms: int, parts: list[memoryview] | None = None
    ) -> None:
        """Batches were written at the end of the active segment: each goes the way that the fast path's goes,
        and what that leaves out: new producers, and transactions that begin or (with the batches in `parts`)
        end."""
        active, producers = self.active, self.producers
        for number, header in enumerate(headers):
            is_data = header.producer_id >= 0 and not header.is_control
            producer = producers.writer_of(header) if is_data else None
            self._end_append(
                header.size,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.leader_epoch,
                producer,
                header.base_sequence,
                now_ms,
            )
            if header.producer_id < 0:
                continue
            if producer is not None:
                producers.begin_transaction(producer, header, header.base_offset)
            elif parts is not None:
                aborted = producers.replay(header, parts[number])
                if aborted is not None:
                    # The first one makes the file. Without its name, what was aborted would look committed.
                    self.name_changes += not active.txn_index.entries()
                    active.txn_index.append(aborted)
            if header.attributes & TRANSACTIONAL:
                self._first_unstable = producers.first_unstable()
