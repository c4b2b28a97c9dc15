"""confluent-kafka's SchemaRegistryClient and its serializers, unchanged, against this registry; fastavro
reads what they write."""

import io
import json
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from millstream.serdes import Decoder, SchemaRegistry
from millstream.testing import Broker
from tests.support.running import RunningRegistry

USER_1 = json.dumps(
    {"type": "record", "name": "User", "namespace": "app", "fields": [{"name": "name", "type": "string"}]}
)
USER_2 = json.dumps(
    {
        "type": "record",
        "name": "User",
        "namespace": "app",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": ["null", "int"], "default": None},
        ],
    }
)
CLOSED = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "User",
    "type": "object",
    "additionalProperties": False,
}
JSON_1 = json.dumps({**CLOSED, "properties": {"name": {"type": "string"}}})
JSON_2 = json.dumps({**CLOSED, "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}})


@pytest.fixture
def client(registry: RunningRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def message_class(file_name: str, *fields: tuple[str, int, int]) -> Any:
    """A compiled message `app.User`, as protoc would make it."""
    file = descriptor_pb2.FileDescriptorProto(name=file_name, package="app", syntax="proto3")
    user = file.message_type.add(name="User")
    for name, number, kind in fields:
        user.field.add(name=name, number=number, type=kind, label=1)  # type: ignore[arg-type]
    nested = user.nested_type.add(name="TagsEntry")
    nested.options.map_entry = True
    nested.field.add(name="key", number=1, type=9, label=1)  # type: ignore[arg-type]
    nested.field.add(name="value", number=2, type=5, label=1)  # type: ignore[arg-type]
    user.field.add(name="tags", number=9, type=11, label=3, type_name=".app.User.TagsEntry")  # type: ignore[arg-type]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("app.User"))


def test_client_calls(client: SchemaRegistryClient, subject: str) -> None:
    first = client.register_schema(subject, Schema(USER_1, "AVRO"))
    assert client.register_schema(subject, Schema(USER_1, "AVRO")) == first
    assert client.get_schema(first).schema_str is not None
    found = client.lookup_schema(subject, Schema(USER_1, "AVRO"))
    assert (found.schema_id, found.version, found.subject) == (first, 1, subject)
    assert client.get_latest_version(subject).version == 1
    assert client.get_version(subject, 1).schema_id == first
    assert client.get_versions(subject) == [1]
    assert subject in client.get_subjects()
    assert client.test_compatibility(subject, Schema(USER_2, "AVRO"))
    broken = Schema(USER_1.replace('"string"', '"int"'), "AVRO")
    assert not client.test_compatibility(subject, broken)
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, broken)
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    assert client.register_schema(subject, broken) != first
    assert client.delete_version(subject, 1) == 1
    assert client.delete_subject(subject) == [2]
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_versions(subject)
    assert refused.value.error_code == 40401


def test_avro_with_evolution(client: SchemaRegistryClient, registry: RunningRegistry, subject: str) -> None:
    context = value_of(subject)
    old = AvroSerializer(client, USER_1)({"name": "ada"}, context)
    new = AvroSerializer(client, USER_2)({"name": "bob", "age": 7}, context)
    as_written, as_new = AvroDeserializer(client), AvroDeserializer(client, USER_2)
    assert as_written(old, context) == {"name": "ada"}
    assert as_new(old, context) == {"name": "ada", "age": None}
    assert AvroDeserializer(client, USER_1)(new, context) == {"name": "bob"}
    assert new is not None
    body = fastavro.schemaless_reader(io.BytesIO(new[5:]), json.loads(USER_2), None)
    assert body == {"name": "bob", "age": 7}
    assert Decoder(SchemaRegistry(registry.url)).decode(new) == {"name": "bob", "age": 7}


def test_avro_with_references_and_other_strategies(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(f"{subject}-user", Schema(USER_1, "AVRO"))
    text = json.dumps({"type": "record", "name": "Team", "fields": [{"name": "lead", "type": "app.User"}]})
    schema = Schema(text, "AVRO", [SchemaReference("app.User", f"{subject}-user", 1)])
    for strategy in (record_subject_name_strategy, topic_record_subject_name_strategy):
        serializer = AvroSerializer(client, schema, conf={"subject.name.strategy": strategy})
        data = serializer({"lead": {"name": "x"}}, value_of(subject))
        assert AvroDeserializer(client)(data, value_of(subject)) == {"lead": {"name": "x"}}
    assert {"Team", f"{subject}-Team"} <= set(client.get_subjects())


def test_use_latest_and_no_registering(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(f"{subject}-value", Schema(USER_2, "AVRO"))
    lookup = AvroSerializer(client, USER_2, conf={"auto.register.schemas": False})
    assert lookup({"name": "x", "age": None}, value_of(subject))
    latest = AvroSerializer(client, USER_1, conf={"auto.register.schemas": False, "use.latest.version": True})
    assert AvroDeserializer(client)(latest({"name": "x"}, value_of(subject)), value_of(subject)) == {
        "name": "x",
        "age": None,
    }
    unknown = AvroSerializer(client, USER_1.replace("User", "Nobody"), conf={"auto.register.schemas": False})
    with pytest.raises(SchemaRegistryError) as refused:
        unknown({"name": "x"}, value_of(subject))
    assert refused.value.error_code == 40403


def test_json_with_evolution(client: SchemaRegistryClient, registry: RunningRegistry, subject: str) -> None:
    context = value_of(subject)
    old = JSONSerializer(JSON_1, client)({"name": "ada"}, context)
    new = JSONSerializer(JSON_2, client)({"name": "bob", "age": 7}, context)
    assert JSONDeserializer(JSON_2)(old, context) == {"name": "ada"}
    assert JSONDeserializer(None, schema_registry_client=client)(new, context) == {"name": "bob", "age": 7}
    assert Decoder(SchemaRegistry(registry.url)).decode(new) == {"name": "bob", "age": 7}
    with pytest.raises(SchemaRegistryError):
        JSONSerializer(JSON_2.replace("integer", "string"), client)({"name": "x", "age": "y"}, context)


def test_protobuf_with_evolution(
    client: SchemaRegistryClient, registry: RunningRegistry, subject: str
) -> None:
    context = value_of(subject)
    old_class = message_class("old.proto", ("name", 1, 9))
    new_class = message_class("new.proto", ("name", 1, 9), ("age", 2, 5))
    plain = {"use.deprecated.format": False}
    old = ProtobufSerializer(old_class, client, plain)(old_class(name="ada", tags={"a": 1}), context)
    new = ProtobufSerializer(new_class, client, plain)(new_class(name="bob", age=7), context)
    found = ProtobufDeserializer(new_class, plain, client)(old, context)
    assert (found.name, found.age, dict(found.tags)) == ("ada", 0, {"a": 1})
    assert ProtobufDeserializer(old_class, plain, client)(new, context).name == "bob"
    assert Decoder(SchemaRegistry(registry.url)).decode(new) == {"name": "bob", "age": 7, "tags": {}}
    changed = message_class("changed.proto", ("name", 1, 5))
    with pytest.raises(SchemaRegistryError) as refused:
        ProtobufSerializer(changed, client, plain)(changed(name=1), context)
    assert refused.value.http_status_code == 409
    # What was registered as a descriptor is text for everyone else.
    text = client.get_latest_version(f"{subject}-value").schema.schema_str
    assert text is not None and text.startswith('syntax = "proto3";')


def test_through_a_topic(broker: Broker, client: SchemaRegistryClient, subject: str) -> None:
    serializer, deserializer = AvroSerializer(client, USER_2), AvroDeserializer(client)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        producer.produce(subject, serializer({"name": f"n{number}", "age": number}, value_of(subject)))
    assert producer.flush(20) == 0
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": subject,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([subject])
        ages: set[int] = set()
        for _ in range(200):
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                ages.add(deserializer(message.value(), value_of(subject))["age"])
            if len(ages) == 20:
                break
        assert ages == set(range(20))
    finally:
        consumer.close()
