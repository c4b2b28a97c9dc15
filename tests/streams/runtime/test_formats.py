"""Serdes by a registry, and records that cannot be read or processed, in running applications."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.client import EARLIEST, Cluster, Fetcher, list_offsets, visible_batches
from millstream.serdes import Decoder, Encoder, SchemaRegistry
from millstream.streams import Errors, Materialized, Streams, StreamsBuilder, serdes
from millstream.wire.records import Record, iter_records
from tests.streams.runtime.kit import Driver, produce, read

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Trip",
        "fields": [{"name": "bike", "type": "string"}, {"name": "km", "type": "long"}],
    }
)
JSON = json.dumps(
    {
        "title": "Trip",
        "type": "object",
        "properties": {"bike": {"type": "string"}, "km": {"type": "integer"}},
    }
)
PROTOBUF = 'syntax = "proto3"; message Trip { string bike = 1; int64 km = 2; }'


@pytest.mark.parametrize(
    ("make", "kind", "schema"),
    [
        (serdes.avro, "AVRO", AVRO),
        (serdes.json_schema, "JSON", JSON),
        (serdes.protobuf, "PROTOBUF", PROTOBUF),
    ],
    ids=["avro", "json_schema", "protobuf"],
)
def test_values_by_a_registry(
    broker: str,
    cluster: Cluster,
    registry: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
    make: Callable[..., serdes.Serde],
    kind: str,
    schema: str,
) -> None:
    """In topics, in a store and its changelog, and through a repartition topic; the reader of the input knows
    no schema."""
    trips, totals = new_topic(), new_topic()
    client = SchemaRegistry(registry)
    known, unknown = make(client, schema), make(client)
    builder = StreamsBuilder()
    (
        builder.stream(trips, value=unknown)
        .map_values(lambda trip: {"bike": trip["bike"], "km": int(trip["km"])})
        .group_by(lambda _, trip: trip["bike"], value=known)
        .reduce(
            lambda total, trip: {"bike": trip["bike"], "km": int(total["km"]) + int(trip["km"])},
            materialized=Materialized("totals", value=known),
        )
        .to_stream()
        .to(totals, value=known)
    )
    name = f"{trips}-app"
    application = Streams(builder.build(), name, bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    encoder = Encoder(client, schema, kind)
    values = [encoder.encode(trips, {"bike": bike, "km": km}) for bike, km in (("a", 3), ("b", 4), ("a", 5))]
    produce(cluster, trips, 0, *((b"k", value) for value in values))
    driver.run()
    driver.run_elsewhere()
    produce(cluster, trips, 0, (b"k", encoder.encode(trips, {"bike": "a", "km": 1})))
    driver.run_elsewhere()  # the serdes have gone there by value
    decoder = Decoder(client)
    found = [(key, int(decoder.decode(value)["km"])) for key, value in read(cluster, totals)]
    assert found == [(b"a", 3), (b"b", 4), (b"a", 8), (b"a", 9)]
    assert client.version(f"{totals}-value")["id"] > 0
    assert client.version(f"{name}-totals-changelog-value")["id"] > 0


def _headers(cluster: Cluster, topic: str) -> list[Record]:
    begin = list_offsets(cluster, {(topic, 0): EARLIEST})[topic, 0].offset
    (answer,) = Fetcher(cluster, read_committed=True).poll({(topic, 0): begin}, 1000)
    return [
        record
        for _, batch in visible_batches(answer, begin, read_committed=True)
        for record in iter_records(batch)
    ]


def _numbers(numbers: str, out: str) -> Any:
    builder = StreamsBuilder()
    stream = builder.stream(numbers, value=serdes.JSON)
    stream.map_values(lambda number: 100 // number).to(out, value=serdes.JSON)
    return builder.build()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_records_that_fail_go_to_the_dead_letters_and_the_rest_goes_on(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, delivery: str
) -> None:
    numbers, out, dead = new_topic(), new_topic(), new_topic()
    produce(cluster, numbers, 0, (b"a", b"5"), (b"b", b"no JSON"), (b"c", b"0"), (b"d", b"10"))
    application = Streams(
        _numbers(numbers, out),
        f"{numbers}-app",
        bootstrap_servers=broker,
        state=tmp_path,
        delivery=delivery,
        errors=Errors("continue", "continue", dead),
    )
    Driver(application).run()
    assert read(cluster, out) == [(b"a", b"20"), (b"d", b"10")]
    dead_letters = _headers(cluster, dead)
    assert [(record.key, record.value) for record in dead_letters] == [(b"b", b"no JSON"), (b"c", b"0")]
    headers = [dict(record.headers) for record in dead_letters]
    for offset, (one, reason) in enumerate(
        zip(headers, ("orjson.JSONDecodeError", "builtins.ZeroDivisionError"), strict=True), 1
    ):
        assert one["__streams.errors.topic"] == numbers.encode()
        assert one["__streams.errors.partition"] == b"0"
        assert one["__streams.errors.offset"] == str(offset).encode()
        assert one["__streams.errors.exception"] == reason.encode()
        assert reason.rpartition(".")[2].encode() in (one["__streams.errors.stacktrace"] or b"")


@pytest.mark.parametrize(("value", "stage"), [(b"no JSON", "reading"), (b"0", "processing")])
def test_failing_stops_and_names_the_record_and_continuing_logs_it(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    value: bytes,
    stage: str,
) -> None:
    numbers, out = new_topic(), new_topic()
    produce(cluster, numbers, 0, (b"a", b"5"), (b"b", value), (b"c", b"4"))
    settings: dict[str, Any] = {"bootstrap_servers": broker, "state": tmp_path}
    strict = Streams(_numbers(numbers, out), f"{numbers}-app", **settings)
    with pytest.raises(Exception, match=f"{stage} a record of {numbers}-0 at offset 1"):
        Driver(strict).run()
    assert read(cluster, out) == []
    lenient = Streams(
        _numbers(numbers, out), f"{numbers}-app", errors=Errors("continue", "continue"), **settings
    )
    Driver(lenient).run()
    assert read(cluster, out) == [(b"a", b"20"), (b"c", b"25")]
    assert f"skipped a record of {numbers}-0 at offset 1: {stage} failed" in caplog.text
