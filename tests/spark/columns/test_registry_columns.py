"""from_registry, to_registry, text columns and dead letters in Spark, with a real registry and a real
broker."""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client import Cluster, Fetcher, Producer
from millstream.serdes import Encoder, SchemaRegistry
from millstream.spark.columns import dead_letters, from_delimited, from_json, from_registry, to_registry
from millstream.spark.errors import OptionError, PipelineError
from millstream.wire.records import Record, iter_batches, iter_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Starting Spark, broker and registry is not a test's own time. A test that is cut off in the middle of an
# answer from the JVM takes all later ones with it, so on a busy machine it is given longer.
pytestmark = pytest.mark.timeout(300, func_only=True)

OLD = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
NEW = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]},
        ],
    }
)
JSON_SCHEMA = json.dumps(
    {"title": "T", "type": "object", "properties": {"id": {"type": "integer"}, "x": {"type": "number"}}}
)
PROTO = 'syntax = "proto3"; message Event { string id = 1; int64 n = 2; repeated string tags = 3; }'


@pytest.fixture(scope="module")
def client(registry: str) -> Iterator[SchemaRegistry]:
    yield SchemaRegistry(registry)


def rows_of(spark: "SparkSession", values: list[bytes | None]) -> Any:
    return spark.createDataFrame([(value,) for value in values], "value binary")


def test_avro_of_two_versions_and_bad_records(
    spark: "SparkSession", registry: str, client: SchemaRegistry, name: str
) -> None:
    old = Encoder(client, OLD).encode(name, {"id": 1})
    new = Encoder(client, NEW).encode(name, {"id": 2, "note": "n", "tags": []})
    stranger = Encoder(client, json.dumps("string")).encode(f"{name}-other", "text")
    values = [old, new, b"\x00\x7f\x00\x00\x00x", b"no frame", None, stranger, old[:5]]
    df = rows_of(spark, values).select(from_registry("value", registry, topic=name).alias("v"))
    assert df.select("v.*").columns == ["id", "note", "tags", "_corrupt"]
    found = [row.v and row.v.asDict(recursive=True) for row in df.collect()]
    assert found[0] == {"id": 1, "note": None, "tags": ["new"], "_corrupt": None}
    assert found[1] == {"id": 2, "note": "n", "tags": [], "_corrupt": None}
    assert found[4] is None
    for row, reason in {
        2: "Schema 2130706432 not found",
        3: "no schema id",
        5: "cannot be read as record",
        6: "too early",
    }.items():
        assert found[row]["id"] is None
        assert reason in found[row]["_corrupt"]["error"]
        assert bytes(found[row]["_corrupt"]["data"]) == values[row]
    good = df.where("v._corrupt is null and v is not null")
    assert good.count() == 2
    # Decoded once, not per use.
    assert good._jdf.queryExecution().executedPlan().toString().count("ArrowEvalPython") == 1


def test_a_reader_schema_of_ones_own(
    spark: "SparkSession", registry: str, client: SchemaRegistry, name: str
) -> None:
    value = Encoder(client, NEW).encode(name, {"id": 2, "note": "n", "tags": ["a"]})
    mine = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "double"}]})
    df = rows_of(spark, [value]).select(
        from_registry("value", registry, reader=mine, corrupt=None).alias("v")
    )
    assert df.select("v.*").collect() == [(2.0,)]


def test_json_schema_and_protobuf(
    spark: "SparkSession", registry: str, client: SchemaRegistry, name: str
) -> None:
    as_json = Encoder(client, JSON_SCHEMA, "JSON").encode(f"{name}-j", {"id": 1, "x": 0.5})
    as_proto = Encoder(client, PROTO, "PROTOBUF").encode(f"{name}-p", {"id": "a", "n": 2, "tags": ["t"]})
    from_j = rows_of(spark, [as_json, as_json[:-1]]).select(
        from_registry("value", registry, topic=f"{name}-j").alias("v")
    )
    assert [row.v.asDict(True)["x"] for row in from_j.collect()] == [0.5, None]
    from_p = rows_of(spark, [as_proto]).select(from_registry("value", registry, topic=f"{name}-p").alias("v"))
    assert from_p.select("v.id", "v.n", "v.tags").collect() == [("a", 2, ["t"])]


@pytest.mark.parametrize(("kind", "schema"), [("AVRO", NEW), ("JSON", JSON_SCHEMA), ("PROTOBUF", PROTO)])
def test_there_and_back(spark: "SparkSession", registry: str, name: str, kind: str, schema: str) -> None:
    rows = {
        "AVRO": "named_struct('id', 1, 'note', cast(null as string), 'tags', array('a', 'b'))",
        "JSON": "named_struct('id', 1, 'x', 2.5D)",
        "PROTOBUF": "named_struct('id', 'a', 'n', 3, 'tags', array('a'))",
    }
    df = spark.sql(f"select {rows[kind]} as v")
    encoded = df.select(
        to_registry("v", registry, topic=name, schema=schema, schema_type=kind).alias("value"), "v"
    )
    back = encoded.select(
        from_registry("value", registry, topic=name, corrupt=None).alias("back"), "v"
    ).collect()[0]
    assert back.back.asDict(True) == back.v.asDict(True)


def test_what_does_not_fit_its_schema(spark: "SparkSession", registry: str, name: str) -> None:
    df = spark.sql("select named_struct('id', id) as v from values (1), (cast(null as int)) as t(id)")
    column = to_registry("v", registry, topic=name, schema=OLD, corrupt="_corrupt")
    good, bad = df.select(column.alias("e")).select("e.*").collect()
    assert good.data is not None and good["_corrupt"] is None
    assert bad.data is None and "does not fit" in bad["_corrupt"].error
    with pytest.raises(Exception, match="millstream: the value does not fit its schema") as raised:
        df.select(to_registry("v", registry, topic=name)).collect()
    assert "Traceback" not in str(raised.value)


def test_mistakes_are_one_line_before_the_query(registry: str, client: SchemaRegistry, name: str) -> None:
    with pytest.raises(PipelineError, match=r"refuses subject 'nobody-value'.*not found"):
        from_registry("value", registry, topic="nobody")
    with pytest.raises(PipelineError, match=r"the registry at http://127.0.0.1:1 does not answer"):
        from_registry("value", "http://127.0.0.1:1", topic=name)
    with pytest.raises(OptionError, match="not the address of a registry"):
        from_registry("value", "localhost", topic=name)
    with pytest.raises(OptionError, match="needs topic"):
        from_registry("value", registry)
    tree = json.dumps({"type": "record", "name": "T", "fields": [{"name": "t", "type": ["null", "T"]}]})
    client.register(f"{name}-value", tree)
    with pytest.raises(PipelineError, match=f"subject '{name}-value' cannot be a column: .*contains itself"):
        from_registry("value", registry, topic=name)


@pytest.mark.parametrize(
    ("kind", "schema", "reason"),
    [
        ("AVRO", "{not json", "Expecting property name"),
        ("AVRO", '{"type": "record"}', "No name"),
        ("AVRO", "5", "not a schema"),
        ("JSON", "5", "expected an object"),
        ("JSON", "[]", "expected an object"),
        ("JSON", '{"type": 7}', "type must be"),
        ("JSON", '{"type": "objekt"}', "unknown type"),
        ("JSON", '{"properties": 5}', "properties: expected an object"),
        ("JSON", '{"$ref": 5}', "expected a string"),
        ("PROTOBUF", "message X {", "Syntax error in line 1"),
    ],
)
def test_a_reader_schema_that_is_none_is_one_line(kind: str, schema: str, reason: str) -> None:
    with pytest.raises(
        OptionError, match=rf"reader=\.\.\. is not a schema of type {kind}: .*{reason}"
    ) as raised:
        from_registry("value", "http://127.0.0.1:1", reader=schema, schema_type=kind)
    assert "\n" not in str(raised.value)


def test_json_and_delimited_text(spark: "SparkSession") -> None:
    df = rows_of(spark, [b'{"a": 1}', b"nonsense", None])
    found = [
        row.v and row.v.asDict(True) for row in df.select(from_json("value", "a int").alias("v")).collect()
    ]
    assert found[0] == {"a": 1, "_corrupt": None}
    assert bytes(found[1]["_corrupt"]["data"]) == b"nonsense" and found[2] is None
    blank = rows_of(spark, [b"", b"  ", b"null"]).select(from_json("value", "a int").alias("v")).collect()
    assert [row.v.a for row in blank] == [None] * 3
    assert [bytes(row.v["_corrupt"].data) for row in blank] == [b"", b"  ", b"null"]
    lines = rows_of(spark, [b'1;"x;y"', b"one;z"])
    made = (
        lines.select(from_delimited("value", "a int, b string", separator=";").alias("v"))
        .select("v.*")
        .collect()
    )
    assert (made[0].a, made[0].b, made[0]["_corrupt"]) == (1, "x;y", None)
    assert bytes(made[1]["_corrupt"].data) == b"one;z"


def test_bad_records_go_to_a_dead_letter_topic(
    spark: "SparkSession",
    broker: str,
    cluster: Cluster,
    registry: str,
    client: SchemaRegistry,
    new_topic: Callable[..., str],
    checkpoint: str,
) -> None:
    topic, dead = new_topic(2), new_topic(1)
    good = Encoder(client, OLD).encode(topic, {"id": 1})
    producer = Producer(cluster)
    producer.send(topic, 0, [Record(0, 1000, b"k", good), Record(0, 2000, b"bad", b"rubbish")])
    producer.send(topic, 1, [Record(0, 3000, None, b"more rubbish")])
    source = spark.readStream.format("millstream").options(
        **{"kafka.bootstrap.servers": broker, "subscribe": topic, "startingOffsets": "earliest"}
    )
    decoded = source.load().withColumn("v", from_registry("value", registry, topic=topic))
    kept = dead_letters(decoded, "v", dead, **{"kafka.bootstrap.servers": broker})
    seen: list[Any] = []
    query = (
        kept.select("v.id")
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        .start()
    )
    query.awaitTermination()
    assert seen == [(1,)]
    found = {}
    for answer in Fetcher(cluster).poll({(dead, 0): 0}, max_wait_ms=2000):
        for _, batch in iter_batches(answer.records):
            found |= {record.value: record for record in iter_records(batch)}
    assert set(found) == {b"rubbish", b"more rubbish"}
    letter = found[b"rubbish"]
    headers = dict(letter.headers)
    assert (letter.key, letter.timestamp) == (b"bad", 2000)
    assert headers["__connect.errors.topic"] == topic.encode()
    assert (headers["__connect.errors.partition"], headers["__connect.errors.offset"]) == (b"0", b"1")
    assert b"no schema id" in (headers["__connect.errors.exception.message"] or b"")
