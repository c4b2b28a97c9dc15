"""Dead letters: batches that their topic takes, and records that are too large alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest

from millstream.client import ClientConfig, Cluster, Fetcher, Producer
from millstream.spark.columns import dead_letter_topic
from millstream.spark.columns.dead_letter_topic import (
    DeadLetterTopic,
    cut_to,
    in_batches,
    max_record_bytes,
    send_bad,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch, iter_batches, iter_records

PROBLEM = pa.struct([("error", pa.string()), ("data", pa.binary())])
HEADERS = [("__connect.errors.topic", b"orders"), ("__connect.errors.stage", b"v")]


def dead_letter(value: bytes | None, key: bytes | None = None) -> Record:
    return Record(0, 1_700_000_000_000, key, value, HEADERS)


def test_batches_are_as_large_as_they_may_be_and_in_order() -> None:
    records = [dead_letter(b"%05d" % n + b"x" * (n * 37 % 900), b"k" * (n % 50)) for n in range(500)]
    batches = list(in_batches(records, 20_000))
    assert [record for batch in batches for record in batch] == records
    sizes = [len(encode_batch(batch)) for batch in batches]
    assert max(sizes) <= 20_000 and min(sizes[:-1]) > 17_000
    assert len(list(in_batches([dead_letter(b"x" * 500)] * 3, 100))) == 3  # one at least


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"k", b"v" * 5000), (None, b"v" * 5000), (b"k" * 5000, b"v" * 10), (b"k" * 3000, None)],
)
def test_what_is_too_large_alone_is_cut_and_says_so(key: bytes | None, value: bytes | None) -> None:
    whole = dead_letter(value, key)
    assert cut_to(whole, max_record_bytes(whole)) is whole
    cut = cut_to(whole, 1000)
    assert len(encode_batch([cut])) <= max_record_bytes(cut) <= 1000
    headers = dict(cut.headers)
    assert headers["__connect.errors.topic"] == b"orders"
    for name, before, after in (("value", value, cut.value), ("key", key, cut.key)):
        if before == after:
            assert f"__millstream.errors.{name}.size" not in headers
        else:
            assert before is not None and after is not None and before.startswith(after)
            assert headers[f"__millstream.errors.{name}.size"] == str(len(before)).encode()
    again = cut_to(cut, 700)
    assert len(encode_batch([again])) <= 700
    assert len(again.headers) == len(dict(again.headers))


@dataclass
class Strict:
    """A producer whose broker takes batches up to a size that nobody knows."""

    limit: int
    taken: list[Record] = field(default_factory=list)
    tries: int = 0

    def send(self, topic: str, partition: int, records: list[Record]) -> None:
        self.tries += 1
        if len(encode_batch(records)) > self.limit:
            raise KafkaError(ErrorCode.message_too_large, "too large")
        self.taken += records


def test_a_limit_that_is_not_known_is_found() -> None:
    strict = Strict(3000)
    records = [dead_letter(b"%d" % n + b"x" * (5000 if n == 3 else 500)) for n in range(8)]
    dead_letter_topic._deliver(cast(Producer, strict), "dead", 0, records)
    assert [record.value[:1] for record in strict.taken if record.value] == [b"%d" % n for n in range(8)]
    assert dict(strict.taken[3].headers)["__millstream.errors.value.size"] == b"5001"
    assert [record for n, record in enumerate(strict.taken) if n != 3] == [
        r for n, r in enumerate(records) if n != 3
    ]


def test_a_topic_that_takes_nothing_is_said_so() -> None:
    with pytest.raises(KafkaError, match="too large"):
        dead_letter_topic._deliver(cast(Producer, Strict(10)), "dead", 0, [dead_letter(b"x" * 100, b"k")])


class OneTopic:
    """A shared cluster with one topic and a producer that counts."""

    def __init__(self, partitions: int, limit: int, producer: Strict) -> None:
        self.cluster = self
        self.partitions = dict.fromkeys(range(partitions))
        self.limit = limit
        self.producers: dict[Any, Any] = {dead_letter_topic._PRODUCER_KEY: producer}

    def topic(self, name: str, create: bool) -> "OneTopic":
        return self

    def max_batch_bytes(self, topic: str) -> int:
        return self.limit


@pytest.mark.parametrize("known", [True, False])
def test_bad_rows_go_out_in_batches_that_the_topic_takes(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    strict = Strict(1_048_588)
    shared = OneTopic(2, strict.limit if known else 1 << 31, strict)
    monkeypatch.setattr(dead_letter_topic, "cluster_for_writing", lambda config: shared)
    values = [b"%05d" % n + b"x" * 1100 for n in range(2000)]
    good = send("nobody:9092", "dead", [*values, b"y" * 1_048_576])
    assert good.to_pylist() == [True] + [False] * 2001
    assert sorted(record.value or b"" for record in strict.taken)[:-1] == values
    assert strict.tries == (5 if known else 6)  # two batches in each partition, and the large one
    largest = max(strict.taken, key=lambda record: len(record.value or b""))
    assert dict(largest.headers)["__millstream.errors.value.size"] == b"1048576"
    assert shared.producers[dead_letter_topic._PRODUCER_KEY] is strict


# --- with a broker ------------------------------------------------------------------------------------------


def read(cluster: Cluster, topic: str, partitions: int, count: int) -> list[Record]:
    found: list[Record] = []
    at = {(topic, partition): 0 for partition in range(partitions)}
    for _ in range(50):
        for answer in Fetcher(cluster).poll(at, max_wait_ms=500):
            for header, batch in iter_batches(answer.records):
                found += list(iter_records(batch))
                at[answer.topic, answer.partition] = header.base_offset + header.last_offset_delta + 1
        if len(found) >= count:
            break
    return found


def send(broker: str, topic: str, values: list[bytes], origins: list[Any] | None = None) -> pa.Array:
    problems = pa.array([None, *({"error": "broken", "data": value} for value in values)], PROBLEM)
    origin_rows = pa.array([None, *(origins or [{"topic": "orders"}] * len(values))])
    return send_bad(DeadLetterTopic(ClientConfig.of(broker), topic, "v"), problems, origin_rows)


@pytest.mark.parametrize("configs", [{}, {"max.message.bytes": "20000"}])
def test_many_dead_letters_are_more_than_one_batch(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], configs: dict[str, str]
) -> None:
    topic = new_topic(2, configs)
    values = [b"%06d" % n + b"x" * 1100 for n in range(2000)]
    good = send(broker, topic, values)
    assert good.to_pylist() == [True] + [False] * 2000
    assert sorted(record.value or b"" for record in read(cluster, topic, 2, 2000)) == values


def test_a_dead_letter_larger_than_its_topic_takes_is_cut(
    broker: str, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    values = [b"small", b"x" * (1024 * 1024), b"last"]
    send(broker, topic, values, [{"key": "text", "timestamp": 5}] * 3)
    small, large, last = read(cluster, topic, 1, 3)
    assert (small.value, small.key, last.value) == (b"small", b"text", b"last")
    assert large.value is not None and 1_000_000 < len(large.value) < 1024 * 1024
    headers = dict(large.headers)
    assert headers["__millstream.errors.value.size"] == b"1048576"
    assert headers["__connect.errors.exception.message"] == b"broken"


def test_the_function_is_found_however_often_it_is_imported() -> None:
    """Not hidden by a module of the same name."""
    for _ in range(2):
        from millstream.spark.columns import dead_letters

        assert callable(dead_letters)
