"""--key-format and --value-format of the console tools, with a real registry."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli.schema_formats import FORMATS
from millstream.client import ClientConfig, Cluster, Fetcher, Producer
from millstream.serdes import RegisteredSchema, SchemaRegistry
from millstream.serdes.bodies import AvroBody
from millstream.serdes.frame import with_id
from millstream.testing import Broker
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition
from tests.support.logical_types import LOGICAL, PAYMENT
from tests.support.running import RunningRegistry

from .conftest import Run

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
    }
)
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'
PROTO_BYTES = 'syntax = "proto3"; message Blob { bytes data = 1; int64 id = 2; }'
JSON_SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with Broker(settings) as broker, RunningRegistry(broker.bootstrap_servers) as registry:
        registry.wait_until_leading()
        yield broker.bootstrap_servers, registry.url


def read(run: Run, addresses: tuple[str, str], topic: str, count: int, *more: str) -> list[str]:
    done = run(
        *("console-consumer", "--bootstrap-server", addresses[0], "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
        *("--formatter-property", f"schema.registry.url={addresses[1]}", *more),
    )
    assert done.code == 0, done.err
    return done.out.splitlines()


def write(run: Run, addresses: tuple[str, str], topic: str, text: str, *more: str) -> tuple[int, str]:
    done = run(
        *("console-producer", "--bootstrap-server", addresses[0], "--topic", topic),
        *("--reader-property", f"schema.registry.url={addresses[1]}", *more),
        stdin=text,
    )
    return done.code, done.err


@pytest.mark.parametrize(
    ("form", "schema", "lines"),
    [
        (
            "avro",
            AVRO,
            ['{"id": 1, "note": {"string": "x"}}', '{"id": 2, "note": "plain"}', '{"id": 3, "note": null}'],
        ),
        ("protobuf", PROTO, ['{"id": "1", "note": "x"}', '{"id": 2, "note": "plain"}', '{"id": 3}']),
        ("jsonschema", JSON_SCHEMA, ['{"id": 1, "note": "x"}', '{"id": 2, "note": "plain"}', '{"id": 3}']),
    ],
)
def test_there_and_back(
    run: Run, addresses: tuple[str, str], form: str, schema: str, lines: list[str], tmp_path: Path
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    file = tmp_path / "schema"
    file.write_text(schema)
    code, errors = write(
        run,
        addresses,
        topic,
        "".join(f"{line}\n" for line in lines),
        *("--value-format", form, "--reader-property", f"value.schema.file={file}"),
    )
    assert code == 0, errors
    found = [json.loads(line) for line in read(run, addresses, topic, 3, "--value-format", form)]
    assert [int(one["id"]) for one in found] == [1, 2, 3]
    # Avro's JSON encoding says which branch of a union it is, as Confluent's console consumer does.
    notes = [{"string": "x"}, {"string": "plain"}] if form == "avro" else ["x", "plain"]
    assert [one["note"] for one in found[:2]] == notes
    (line,) = read(run, addresses, topic, 1, "--value-format", form, "--where", 'value.note == "plain"')
    assert int(json.loads(line)["id"]) == 2


def stored_values(bootstrap: str, topic: str) -> list[bytes | None]:
    with Cluster(ClientConfig.of(bootstrap)) as cluster:
        answers = Fetcher(cluster).poll({TopicPartition(topic, 0): 0}, max_wait_ms=5000)
        return [record.value for answer in answers for record in iter_records(answer.records)]


@pytest.mark.parametrize(
    ("form", "schema", "bodies"),
    [
        ("avro", LOGICAL, [AvroBody(RegisteredSchema(1, "AVRO", LOGICAL), None).encode(PAYMENT)]),
        ("jsonschema", '{"type": "object"}', [b'{"price":1.10,"big":1e400,"name":"\\u00e9"}']),
        ("protobuf", PROTO_BYTES, [b"\0\x0a\x03\xff\x00a\x10\x80\x80\x80\x80\x80\x80\x80\x80\x40"]),
    ],
)
def test_what_the_consumer_prints_the_producer_reads(
    run: Run, addresses: tuple[str, str], form: str, schema: str, bodies: list[bytes]
) -> None:
    """`console-consumer | console-producer`: the same bytes, whatever the logical types."""
    topic, copy = (f"t-{uuid.uuid4().hex[:8]}" for _ in range(2))
    registry = SchemaRegistry(addresses[1])
    schema_id = registry.register(f"{topic}-value", schema, FORMATS[form])
    values: list[bytes | None] = [with_id(schema_id, body) for body in bodies]
    with Cluster(ClientConfig.of(addresses[0])) as cluster:
        Producer(cluster).send(topic, 0, [Record(0, 0, None, value) for value in values])
    lines = read(run, addresses, topic, len(values), "--value-format", form)
    code, errors = write(
        run,
        addresses,
        copy,
        "".join(f"{line}\n" for line in lines),
        *("--value-format", form, "--reader-property", f"value.schema.id={schema_id}"),
    )
    assert code == 0, errors
    assert stored_values(addresses[0], copy) == values


def test_keys_too(run: Run, addresses: tuple[str, str]) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    code, errors = write(
        run,
        addresses,
        topic,
        '"k"\t{"id": 1, "note": null}\n',
        *("--key-format", "avro", "--value-format", "avro", "--reader-property", "parse.key=true"),
        *("--reader-property", 'key.schema="string"', "--reader-property", f"value.schema={AVRO}"),
    )
    assert code == 0, errors
    more = ("--key-format", "avro", "--value-format", "avro", "--formatter-property", "print.key=true")
    assert read(run, addresses, topic, 1, *more) == ['"k"\t{"id": 1, "note": null}']
    (line,) = read(run, addresses, topic, 1, "--value-format", "avro", "--output", "json")
    assert json.loads(json.loads(line)["value"]) == {"id": 1, "note": None}


def test_what_goes_wrong(run: Run, addresses: tuple[str, str]) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    schema = ("--value-format", "avro", "--reader-property", f"value.schema={AVRO}")
    code, errors = write(run, addresses, topic, "not json\n", *schema)
    assert code != 0 and "line 1: the value is not JSON" in errors
    code, errors = write(run, addresses, topic, '{"id": "x"}\n', *schema)
    assert code != 0 and "does not fit its schema" in errors
    code, errors = write(run, addresses, topic, "", "--value-format", "avro")
    assert code != 0 and "needs a schema" in errors
    code, errors = write(
        run, addresses, topic, "", "--value-format", "avro", "--reader-property", "value.schema=nonsense"
    )
    assert code != 0 and "value.schema" in errors
    code, errors = write(run, addresses, topic, "", "--value-format", "xml")
    assert code != 0 and "--value-format xml" in errors
    assert write(run, addresses, topic, "plain\n")[0] == 0
    done = run(
        *("console-consumer", "--bootstrap-server", addresses[0], "--topic", topic, "--from-beginning"),
        *("--max-messages", "1", "--value-format", "avro"),
        *("--formatter-property", f"schema.registry.url={addresses[1]}"),
    )
    assert done.code != 0 and "cannot print the record" in done.err
