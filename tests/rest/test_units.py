"""Parts that need no broker: Avro's JSON, streams of JSON, settings."""

import io
import json
import math
import random
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Producer

from millstream.http.service_config import ServiceConfig
from millstream.rest.consumer_instances import matching
from millstream.rest.json_stream import BadStream, JsonStream
from millstream.rest.librdkafka_config import known, translated
from millstream.rest.main import main
from millstream.rest.rest_config import KEYS, RestConfig
from millstream.serdes.avro_json import AvroJson, Mismatch
from millstream.settings.values import InvalidSetting

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"

RICH: dict[str, Any] = {
    "type": "record",
    "name": "Rich",
    "namespace": "a.b",
    "fields": [
        {"name": "n", "type": "null"},
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "s", "type": "string"},
        {"name": "y", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "e", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "x", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "a", "type": {"type": "array", "items": ["null", "Color", "string"]}},
        {"name": "m", "type": {"type": "map", "values": "a.b.Two"}},
        {"name": "next", "type": ["null", "Rich"]},
    ],
}
VALUE = {
    "n": None,
    "b": True,
    "i": -7,
    "l": 1 << 40,
    "f": 1.5,
    "d": -2.25,
    "s": "ü",
    "y": "\u0001\u00ff",
    "e": "BLUE",
    "x": "\u0000\u00fe",
    "a": [None, {"a.b.Color": "RED"}, {"string": "s"}],
    "m": {"k": "ab"},
    "next": None,
}


def test_avro_both_ways() -> None:
    codec = AvroJson(json.dumps(RICH))
    value = {**VALUE, "next": {"a.b.Rich": VALUE}}
    data = codec.encode(value)
    assert codec.decode(data) == value
    read: Any = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(RICH), None)
    assert read["next"]["s"] == "ü" and read["a"] == [None, "RED", "s"] and read["x"] == b"\0\xfe"


def test_avro_branches_that_python_cannot_tell() -> None:
    codec = AvroJson('["int", "long", "float", "double"]')
    for value in ({"int": 1}, {"long": 1}, {"float": 1.0}, {"double": 1.0}):
        assert codec.decode(codec.encode(value)) == value
    special = codec.decode(codec.encode({"double": "NaN"}))
    assert special == {"double": "NaN"} and math.isnan(float(special["double"]))


def test_avro_references() -> None:
    codec = AvroJson('["null", "a.Id"]', {"a.Id": '{"type": "fixed", "name": "a.Id", "size": 1}'})
    assert codec.decode(codec.encode({"a.Id": "x"})) == {"a.Id": "x"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('"int"', "1"),
        ('"int"', True),
        ('"int"', 1 << 31),
        ('"long"', 1.5),
        ('"float"', 1e300),
        ('"boolean"', 1),
        ('"string"', 1),
        ('"string"', "\ud800"),
        ('"bytes"', "\u0100"),
        ('"null"', 0),
        ('["null", "string"]', "x"),
        ('["null", "string"]', {"int": 1}),
        ('{"type": "array", "items": "int"}', {}),
        ('{"type": "map", "values": "int"}', []),
        ('{"type": "enum", "name": "E", "symbols": ["A"]}', "B"),
        ('{"type": "enum", "name": "E", "symbols": ["A"]}', []),
        ('{"type": "fixed", "name": "F", "size": 2}', "a"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}', {}),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}', {"a": 1, "b": 2}),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}', 5),
    ],
)
def test_avro_values_that_do_not_fit(schema: str, value: Any) -> None:
    with pytest.raises(Mismatch):
        AvroJson(schema).encode(value)


def test_avro_bytes_that_do_not_fit() -> None:
    codec = AvroJson(json.dumps(RICH))
    whole = codec.encode(VALUE)
    generator = random.Random(1)
    for size in range(len(whole)):
        with pytest.raises(Mismatch):
            codec.decode(whole[:size])
    for _ in range(2000):  # whatever comes, it is a Mismatch or a value
        damaged = bytearray(whole)
        damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            codec.decode(bytes(damaged))
        except Mismatch:
            pass
    with pytest.raises(Mismatch):
        AvroJson('{"type": "array", "items": "null"}').decode(b"\xfe\xff\xff\xff\x7f\0")


def test_json_streams_cut_anywhere() -> None:
    values = [{"a": 'x"}{\\"'}, [1, 2], "ü{", {"b": {"c": [True, None, -1.5e3]}}, {}, 12, {"d": 1}]
    text = "".join(
        json.dumps(one, ensure_ascii=False) + end for one, end in zip(values, "\n \r\t\n\n ", strict=True)
    )
    data = text.encode()
    for size in (1, 2, 3, 7, 50, len(data)):
        stream = JsonStream(1000)
        found = []
        for start in range(0, len(data), size):
            found += stream.feed(data[start : start + size])
        assert found + stream.feed(b"", last=True) == values, size


@pytest.mark.parametrize("data", [b"{", b"nope", b'{"a": 1}}', b"\xff", b'{"a": ' + b"[" * 100_000])
def test_json_streams_with_damage(data: bytes) -> None:
    stream = JsonStream(1 << 20)
    with pytest.raises(BadStream):
        stream.feed(data)
        stream.feed(b"", last=True)


def test_json_streams_have_a_limit_and_do_not_wait_for_ever() -> None:
    with pytest.raises(BadStream):
        JsonStream(100).feed(b'{"a": "' + b"x" * 200)
    with pytest.raises(BadStream) as caught:
        JsonStream(1000).feed(b'{"a": 1}{nonsense} and a lot that follows it')
    assert caught.value.found == [{"a": 1}]


def test_patterns_match_whole_names() -> None:
    import re2

    names = ["__consumer_offsets", "orders", "orders-2", "my-orders"]
    assert matching(re2.compile("orders.*"), names) == ["orders", "orders-2"]
    assert matching(re2.compile(".*"), names) == names[1:]


# Settings


def test_all_settings_are_described() -> None:
    page = PAGE.read_text()
    missing = [
        name for name, one in KEYS.items() if f"| `{name}` |" not in page or one.documentation not in page
    ]
    assert missing == []


def test_settings() -> None:
    given = {
        "bootstrap.servers": "a:1,b:2",
        "client.request.timeout.ms": "1000",
        "producer.linger.ms": "7",
        "consumer.isolation.level": "read_committed",
        "consumer.instance.timeout.ms": "5000",
        "nonsense": "1",
    }
    settings = RestConfig(given)
    assert isinstance(settings, ServiceConfig) and settings.unknown == ["nonsense"]
    assert settings.client().bootstrap == (("a", 1), ("b", 2)) and settings.client().request_timeout == 1.0
    assert settings.for_clients("producer.") == {"request.timeout.ms": "1000", "linger.ms": "7"}
    assert settings.for_clients("consumer.") == {
        "request.timeout.ms": "1000",
        "isolation.level": "read_committed",
    }


@pytest.mark.parametrize(
    "given",
    [{"listeners": "ftp://x:1"}, {"consumer.threads": "many"}, {"api.v3.enable": "perhaps"}],
)
def test_settings_that_make_no_sense(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting):
        RestConfig(given)


def test_java_settings_for_librdkafka(caplog: pytest.LogCaptureFixture) -> None:
    found = translated(
        {
            "max.request.size": "2000000",
            "buffer.memory": "1048576",
            "key.serializer": "x",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        }
    )
    assert found == {
        "security.protocol": "PLAINTEXT",
        "message.max.bytes": "2000000",
        "queue.buffering.max.kbytes": 1024,
        "partition.assignment.strategy": "roundrobin",
    }
    kept = known(Producer, {"linger.ms": "5", "metric.reporters": "x"})
    assert kept == {"linger.ms": "5"} and "metric.reporters" in caplog.text
    with pytest.raises(ValueError, match=r"isolation\.level"):
        known(Consumer, {"isolation.level": "none at all"})


def test_security_of_java_for_librdkafka(tmp_path: Path) -> None:
    pem = tmp_path / "all.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\n")
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": 'x.ScramLoginModule required username="u" password="p\\"w";',
        "ssl.truststore.location": str(pem),
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert translated(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": 'p"w',
        "ssl.ca.location": str(pem),
        "ssl.certificate.location": str(pem),
        "ssl.key.location": str(pem),
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
    }
    texts = {
        "ssl.truststore.certificates": "a",
        "ssl.keystore.certificate.chain": "b",
        "ssl.keystore.key": "c",
    }
    assert translated({"security.protocol": "SSL", **texts}) == {
        "security.protocol": "SSL",
        "ssl.ca.pem": "a",
        "ssl.certificate.pem": "b",
        "ssl.key.pem": "c",
        "ssl.endpoint.identification.algorithm": "https",
    }
    with pytest.raises(ValueError, match=r"ssl\.keystore\.type=JKS"):
        translated({"security.protocol": "SSL", "ssl.keystore.type": "JKS"})


def test_the_program_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "listeners=nowhere"]) == 1
    assert main(["--set", "listeners=http://127.0.0.1:0", "--set", "client.security.protocol=SASL_SSL"]) == 1
    assert main(["--set", "schema.registry.url=nowhere", "--set", "listeners=http://127.0.0.1:0"]) == 1
    assert main(["--config", "/does/not/exist"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("millstream rest: ") for line in lines) and len(lines) == 4


def test_the_program_prints_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--print-config"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert "# The Kafka cluster.\nbootstrap.servers=localhost:9092\n" in printed
    assert sum(line.partition("=")[0] in KEYS for line in printed.splitlines()) == len(KEYS)
