"""The REST Proxy between other people's clients: what they write is read over HTTP, and the other way
round."""

import json
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

from tests.support.running import RunningRegistry

from ..rest.rest_client import RunningRest

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
    }
)
JSON_SCHEMA = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})


@pytest.fixture(scope="module")
def registry(bootstrap: str) -> Iterator[RunningRegistry]:
    mark = uuid.uuid4().hex[:8]
    settings = {"schema.registry.group.id": f"rest-{mark}", "kafkastore.topic": f"_schemas-{mark}"}
    with RunningRegistry(bootstrap, settings) as running:
        running.wait_until_leading()
        yield running


@pytest.fixture(scope="module")
def rest(bootstrap: str, registry: RunningRegistry) -> Iterator[RunningRest]:
    with RunningRest(bootstrap, registry.url) as running:
        yield running


@pytest.mark.parametrize("form", ["avro", "jsonschema"])
def test_schemas_of_confluent_clients(
    bootstrap: str, registry: RunningRegistry, rest: RunningRest, new_topic: Callable[..., str], form: str
) -> None:
    topic = new_topic()
    client = SchemaRegistryClient({"url": registry.url})
    if form == "avro":
        serializer, reader = AvroSerializer(client, AVRO), AvroDeserializer(client)
        plain, over_http, schema = {"id": 7, "note": "x"}, {"id": 7, "note": {"string": "x"}}, AVRO
    else:
        serializer, reader = JSONSerializer(JSON_SCHEMA, client), JSONDeserializer(JSON_SCHEMA)
        plain, over_http, schema = {"id": 7}, {"id": 7}, JSON_SCHEMA
    producer = SerializingProducer({"bootstrap.servers": bootstrap, "value.serializer": serializer})
    producer.produce(topic, value=plain)
    assert producer.flush(30) == 0
    answer = rest.produce(topic, form, [{"value": over_http}], value_schema=schema)
    assert answer.json()["offsets"][0]["offset"] == 1, answer.text

    consumer = rest.consumer(f"g-{topic}", "binary")
    consumer.subscribe(topic)
    first, second = (record["value"] for record in consumer.read(2))
    assert first[:6] == second[:6]  # the same schema id
    consumer.delete()
    consumer = rest.consumer(f"h-{topic}", form)
    consumer.subscribe(topic)
    assert [record["value"] for record in consumer.read(2, max_bytes=1)] == [over_http, over_http]
    consumer.delete()

    theirs = DeserializingConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"theirs-{topic}",
            "auto.offset.reset": "earliest",
            "value.deserializer": reader,
        }
    )
    try:
        theirs.subscribe([topic])
        found = []
        while len(found) < 2:
            message = theirs.poll(30)
            assert message is not None and message.error() is None
            found.append(message.value())
        assert found == [plain, plain]
    finally:
        theirs.close()


def test_groups_are_shared_with_other_clients(
    bootstrap: str, rest: RunningRest, new_topic: Callable[..., str]
) -> None:
    """A group goes on over HTTP where another client stopped, and version 3 shows how far it is."""
    topic = new_topic(partitions=2)
    group = f"shared-{topic}"
    rest.produce(topic, "json", [{"value": n, "partition": n % 2} for n in range(10)])
    from confluent_kafka import Consumer, TopicPartition

    other = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    other.commit(offsets=[TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 5)], asynchronous=False)
    other.close()
    consumer = rest.consumer(group)
    consumer.subscribe(topic)
    assert [record["value"] for record in consumer.read(2)] == [6, 8]
    assert consumer.post("/offsets").status_code == 200
    cluster = rest.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
    summary = rest.http.get(f"/v3/clusters/{cluster}/consumer-groups/{group}/lag-summary").json()
    assert (summary["total_lag"], summary["max_lag"]) == (0, 0)
    consumer.delete()


def test_administration(rest: RunningRest, name: str) -> None:
    cluster = f"/v3/clusters/{rest.http.get('/v3/clusters').json()['data'][0]['cluster_id']}"
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    body = {"topic_name": name, "partitions_count": 3, "configs": configs}
    assert rest.http.post(f"{cluster}/topics", json=body).status_code == 201
    again = rest.http.post(f"{cluster}/topics", json=body)
    assert (again.status_code, again.json()["error_code"]) == (400, 40002)
    config = rest.http.get(f"{cluster}/topics/{name}/configs/cleanup.policy").json()
    assert (config["value"], config["source"]) == ("compact", "DYNAMIC_TOPIC_CONFIG")
    assert [one["source"] for one in config["synonyms"]] == ["DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"]
    answer = rest.http.get(f"{cluster}/acls")
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "No Authorizer is configured" in answer.json()["message"]
    record = {"value": {"type": "STRING", "data": "x"}, "key": {"type": "STRING", "data": "k"}}
    result = rest.http.post(f"{cluster}/topics/{name}/records", json=record).json()
    assert (result["error_code"], result["offset"]) == (200, 0)
    assert rest.http.delete(f"{cluster}/topics/{name}").status_code == 204
    assert rest.http.get(f"{cluster}/topics/{name}").json()["error_code"] == 40403
