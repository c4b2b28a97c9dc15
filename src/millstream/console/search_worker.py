"""One search over a topic, in a process of its own: `python -m millstream.console.search_worker`.

The task comes as one line of JSON on standard input, hits and progress go out as lines of JSON. The console
stays quick while a search keeps a core busy, and ending the process ends the search, wherever it is.

Text is looked for in the bytes of a whole batch (see batch_search): only records that hold it are opened.
Where the topic has masking rules, a record is masked before anything is looked for, so that a search cannot
tell what the page does not show.
"""

import base64
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from millstream.client import ClientConfig, Cluster, Fetched, Fetcher, visible_batches
from millstream.client.fetch import next_offset
from millstream.console import cluster_queries, message_pages
from millstream.console.batch_search import Damaged, matching
from millstream.console.masking import Masks
from millstream.console.record_display import RecordRenderer
from millstream.serdes import RegistryRefused, RegistryUnreachable, SchemaRegistry, SerdeError
from millstream.serdes.codec import Decoder
from millstream.wire.batch import CODEC_MASK, HEADER_SIZE, BatchHeader
from millstream.wire.compression import DEFAULT_LIMIT, NONE, decompress
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition

REPORT_EVERY = 0.25
MAX_HIT_BYTES = 256 * 1024  # bytes of a key or value that are handed over
PARTS = ("key", "value", "header")

Predicate = Callable[["Candidate"], bool]


class Candidate(NamedTuple):
    """A record as expressions see it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any


class TextMatcher:
    """Whether a text is somewhere in the chosen parts of a record."""

    def __init__(self, text: str, parts: list[str], any_case: bool) -> None:
        self._any_case = any_case
        self._text = text.lower() if any_case else text
        self.needle = text.encode().lower() if any_case else text.encode()
        self._key, self._value, self._header = (part in parts for part in PARTS)

    def occurs_in(self, data: bytes) -> bool:
        return self.needle in (data.lower() if self._any_case else data)

    def matching_indexes(self, data: bytes, count: int) -> list[int]:
        """Which records of a batch pass, by their index."""
        parts = {"key": self._key, "value": self._value, "header": self._header}
        return matching(data, count, self.needle, **parts, any_case=self._any_case)

    def __call__(self, record: "Record | Candidate") -> bool:
        if self._any_case:
            return self._lowered(record)
        needle = self.needle
        if self._value and record.value is not None and needle in record.value:
            return True
        if self._key and record.key is not None and needle in record.key:
            return True
        if self._header:
            for name, value in record.headers:
                if (value is not None and needle in value) or self._text in name:
                    return True
        return False

    def _lowered(self, record: "Record | Candidate") -> bool:
        if self._value and record.value is not None and self.occurs_in(record.value):
            return True
        if self._key and record.key is not None and self.occurs_in(record.key):
            return True
        return self._header and any(
            self._text in name.lower() or (value is not None and self.occurs_in(value))
            for name, value in record.headers
        )


class Searcher:
    """The scan itself: `answers` are what a fetcher returns."""

    def __init__(
        self,
        topic: str,
        text: TextMatcher | None,
        predicate: Predicate | None,
        mask: Callable[[Record], Record] | None,
    ) -> None:
        self._topic = topic
        self._text = text
        self._predicate = predicate
        self._mask = mask
        self.scanned = 0
        self.bytes = 0
        self.unreadable = 0

    def hits(self, answer: Fetched, position: int) -> Iterator[Record]:
        """The records of one partition's answer that were looked for, from a position on."""
        self.bytes += len(answer.records)
        for header, batch in visible_batches(answer, position):
            self.scanned += header.record_count
            try:
                if self._text is None or self._mask is not None:
                    records = iter_records(batch, check_crc=False)
                    yield from self._matching_records(answer.partition, records, position, self._text)
                elif matching_indexes := self._text_matches(header, batch):
                    yield from self._matching_records(
                        answer.partition, _records_at(batch, matching_indexes), position, None
                    )
            except (KafkaError, Damaged):
                self.unreadable += 1

    def _text_matches(self, header: BatchHeader, batch: memoryview) -> list[int]:
        assert self._text is not None
        codec = header.attributes & CODEC_MASK
        packed = batch[HEADER_SIZE:]
        data = packed if codec == NONE else decompress(codec, packed, DEFAULT_LIMIT)
        return self._text.matching_indexes(bytes(data), header.record_count)

    def _matching_records(
        self, partition: int, records: Iterable[Record], position: int, text: TextMatcher | None
    ) -> Iterator[Record]:
        predicate, mask, topic = self._predicate, self._mask, self._topic
        for record in records:
            if record.offset < position:
                continue
            if text is None and predicate is None:
                yield record
                continue
            seen = record if mask is None else mask(record)
            candidate = Candidate(
                topic, partition, record.offset, record.timestamp, seen.key, seen.value, seen.headers
            )
            if (text is None or text(candidate)) and (predicate is None or predicate(candidate)):
                yield record


def _records_at(batch: memoryview, matching_indexes: list[int]) -> Iterator[Record]:
    """The records with these numbers, which ascend."""
    wanted = iter(matching_indexes)
    following = next(wanted)
    for number, record in enumerate(iter_records(batch, check_crc=False)):
        if number == following:
            yield record
            following = next(wanted, -1)
            if following < 0:
                return


def masking_for(renderer: RecordRenderer, topic: str) -> Callable[[Record], Record] | None:
    """What turns a record into one that holds only what is shown; None if the topic has no rules."""
    masks = renderer.masks(topic)
    if not masks:
        return None

    def mask(record: Record) -> Record:
        headers = tuple(record.headers)
        key, value = record.key, record.value
        if masks.key and key is not None:
            key = _masked_bytes(renderer, key, headers, masks, masks.key, True)
        if masks.value and value is not None:
            value = _masked_bytes(renderer, value, headers, masks, masks.value, False)
        shown = []
        for name, content in headers:
            replacement = masks.header(name, content)
            shown.append((name, content if replacement is None else replacement.encode()))
        return Record(record.offset, record.timestamp, key, value, tuple(shown))

    return mask


def _masked_bytes(
    renderer: RecordRenderer, data: bytes, headers: Any, masks: Any, rules: Any, is_key: bool
) -> bytes:
    _, _, text, _ = renderer.decode(data, headers, is_key)
    shown = masks.structured(rules, text) if text is not None else None
    return (shown if shown is not None else masks.opaque(rules, data) or "").encode()


def decoding(registry: SchemaRegistry | None, is_key: bool) -> Callable[[bytes], Any]:
    """For expressions: what is inside of bytes, by their schema if they have one. ValueError: nothing."""
    from millstream.filters.view import read_json

    decoder = Decoder(registry) if registry is not None else None

    def read(data: bytes) -> Any:
        if decoder is not None and data[:1] == b"\0" and len(data) >= 5:
            try:
                return decoder.decode(data, key=is_key)
            except (SerdeError, RegistryRefused) as error:
                raise ValueError(str(error)) from None
        return read_json(data)

    return read


def run(task: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    registry = SchemaRegistry(task["registry"], timeout=5.0) if task.get("registry") else None
    renderer = RecordRenderer(
        registry, Masks(task.get("masks", ""), bytes.fromhex(task.get("secret", ""))), MAX_HIT_BYTES
    )
    text = TextMatcher(task["text"], task["parts"], task["any_case"]) if task.get("text") else None
    predicate: Predicate | None = None
    if task.get("expression"):
        from millstream.filters import compile_filter

        predicate = compile_filter(
            task["expression"], read_value=decoding(registry, False), read_key=decoding(registry, True)
        )
    searcher = Searcher(task["topic"], text, predicate, masking_for(renderer, task["topic"]))
    config = ClientConfig.of(task["bootstrap"], task.get("client"), "millstream-console-search")
    with Cluster(config) as cluster:
        _scan(cluster, task, searcher, emit)


def _scan(
    cluster: Cluster, task: dict[str, Any], searcher: Searcher, emit: Callable[[dict[str, Any]], None]
) -> None:
    topic, partition = task["topic"], task.get("partition")
    limits = message_pages.log_bounds(cluster, topic, partition)
    positions = dict(limits.starts)
    if task.get("positions"):
        positions.update(
            {
                int(index): max(offset, positions.get(int(index), 0))
                for index, offset in task["positions"].items()
            }
        )
    elif task.get("since") is not None:
        positions = message_pages.offsets_at_time(cluster, topic, partition, task["since"])
    stops = limits.ends
    if task.get("until") is not None:
        later = cluster_queries.list_offsets(cluster, task["until"], [topic])
        stops = {
            index: min(end, later[TopicPartition(topic, index)])
            if later.get(TopicPartition(topic, index), -1) >= 0
            else end
            for index, end in stops.items()
        }
    first = {index: min(positions[index], stop) for index, stop in stops.items()}
    total = sum(stop - first[index] for index, stop in stops.items())
    fetcher = Fetcher(cluster, max_bytes=32 << 20, partition_max_bytes=4 << 20)
    remaining = {index for index, stop in stops.items() if first[index] < stop}
    hits, began, reported = 0, time.monotonic(), 0.0

    def report(done: bool, full: bool = False) -> None:
        passed = sum(min(positions[index], stop) - first[index] for index, stop in stops.items())
        emit(
            {
                "kind": "done" if done else "progress",
                "scanned": searcher.scanned,
                "bytes": searcher.bytes,
                "passed": passed,
                "total": total,
                "hits": hits,
                "seconds": round(time.monotonic() - began, 3),
                "unreadable": searcher.unreadable,
                "full": full,
                "positions": positions if full else None,
            }
        )

    while remaining:
        for answer in fetcher.poll(
            {TopicPartition(topic, index): positions[index] for index in remaining}, max_wait_ms=300
        ):
            index = answer.partition
            if answer.error is ErrorCode.offset_out_of_range:  # retention was faster
                positions[index] = max(answer.log_start_offset, positions[index] + 1)
            elif answer.error is not ErrorCode.none:
                raise KafkaError(answer.error, f"partition {index}: {answer.error.name.replace('_', ' ')}")
            else:
                for record in searcher.hits(answer, positions[index]):
                    if record.offset >= stops[index]:
                        break
                    hits += 1
                    emit(_hit(index, record))
                    if hits >= task["max_hits"]:
                        positions[index] = record.offset + 1
                        report(True, full=True)
                        return
                positions[index] = max(positions[index], next_offset(answer, positions[index]))
            if positions[index] >= stops[index]:
                remaining.discard(index)
            if time.monotonic() - reported > REPORT_EVERY:
                reported = time.monotonic()
                report(False)
    report(True)


def _hit(partition: int, record: Record) -> dict[str, Any]:
    return {
        "kind": "hit",
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _packed(record.key),
        "value": _packed(record.value),
        "headers": [[name, _packed(value)] for name, value in record.headers],
    }


def _packed(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data[:MAX_HIT_BYTES]).decode("ascii")


def main() -> int:
    task = json.loads(sys.stdin.readline())

    def emit(event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    try:
        run(task, emit)
    except (KafkaError, RegistryUnreachable, ValueError) as error:
        emit({"kind": "failed", "message": getattr(error, "message", None) or str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
