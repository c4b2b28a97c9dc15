"""--key-format and --value-format of the console tools, with a real registry."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing import Broker
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
JSON_SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[str, str]]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with Broker(settings) as broker, RunningRegistry(broker.bootstrap_servers) as registry:
        registry.wait_until_leading()
        yield broker.bootstrap_servers, registry.url


def read(run: Run, places: tuple[str, str], topic: str, count: int, *more: str) -> list[str]:
    done = run(
        *("console-consumer", "--bootstrap-server", places[0], "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
        *("--formatter-property", f"schema.registry.url={places[1]}", *more),
    )
    assert done.code == 0, done.err
    return done.out.splitlines()


def write(run: Run, places: tuple[str, str], topic: str, text: str, *more: str) -> tuple[int, str]:
    done = run(
        *("console-producer", "--bootstrap-server", places[0], "--topic", topic),
        *("--reader-property", f"schema.registry.url={places[1]}", *more),
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
    run: Run, places: tuple[str, str], form: str, schema: str, lines: list[str], tmp_path: Path
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    file = tmp_path / "schema"
    file.write_text(schema)
    code, errors = write(
        run,
        places,
        topic,
        "".join(f"{line}\n" for line in lines),
        *("--value-format", form, "--reader-property", f"value.schema.file={file}"),
    )
    assert code == 0, errors
    found = [json.loads(line) for line in read(run, places, topic, 3, "--value-format", form)]
    assert [one["id"] for one in found] == [1, 2, 3]
    assert found[0]["note"] == "x" and found[1]["note"] == "plain"
    (line,) = read(run, places, topic, 1, "--value-format", form, "--where", 'value.note == "plain"')
    assert json.loads(line)["id"] == 2


def test_keys_too(run: Run, places: tuple[str, str]) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    code, errors = write(
        run,
        places,
        topic,
        '"k"\t{"id": 1, "note": null}\n',
        *("--key-format", "avro", "--value-format", "avro", "--reader-property", "parse.key=true"),
        *("--reader-property", 'key.schema="string"', "--reader-property", f"value.schema={AVRO}"),
    )
    assert code == 0, errors
    more = ("--key-format", "avro", "--value-format", "avro", "--formatter-property", "print.key=true")
    assert read(run, places, topic, 1, *more) == ['"k"\t{"id": 1, "note": null}']
    (line,) = read(run, places, topic, 1, "--value-format", "avro", "--output", "json")
    assert json.loads(json.loads(line)["value"]) == {"id": 1, "note": None}


def test_what_goes_wrong(run: Run, places: tuple[str, str]) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    schema = ("--value-format", "avro", "--reader-property", f"value.schema={AVRO}")
    code, errors = write(run, places, topic, "not json\n", *schema)
    assert code != 0 and "line 1: the value is not JSON" in errors
    code, errors = write(run, places, topic, '{"id": "x"}\n', *schema)
    assert code != 0 and "does not fit its schema" in errors
    code, errors = write(run, places, topic, "", "--value-format", "avro")
    assert code != 0 and "needs a schema" in errors
    code, errors = write(
        run, places, topic, "", "--value-format", "avro", "--reader-property", "value.schema=nonsense"
    )
    assert code != 0 and "value.schema" in errors
    code, errors = write(run, places, topic, "", "--value-format", "xml")
    assert code != 0 and "--value-format xml" in errors
    assert write(run, places, topic, "plain\n")[0] == 0
    done = run(
        *("console-consumer", "--bootstrap-server", places[0], "--topic", topic, "--from-beginning"),
        *("--max-messages", "1", "--value-format", "avro"),
        *("--formatter-property", f"schema.registry.url={places[1]}"),
    )
    assert done.code != 0 and "cannot print the record" in done.err
