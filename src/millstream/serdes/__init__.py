"""Bytes to Python objects and back, by the schemas of a registry.

    from millstream.serdes import SchemaRegistry, Decoder, Encoder

    registry = SchemaRegistry("http://localhost:8081")
    decoder = Decoder(registry)
    decoder.decode(message.value())                    # a dict, a str, ... whatever the schema describes

    encoder = Encoder(registry, schema_text, "AVRO")   # registers the schema under topic-value at the first
    use producer.produce("orders", encoder.encode("orders", {"id": 1}))

What is on the wire is Confluent's format: a zero byte, the schema's id in four bytes, the body; for Protobuf
the path to the message type between id and body. Schemas are fetched once and kept. Pipelines, console and
command line all use this.
"""

from millstream.serdes.client import RegisteredSchema, RegistryRefused, RegistryUnreachable, SchemaRegistry
from millstream.serdes.codec import Decoded, Decoder, Encoder, SerdeError
from millstream.serdes.names import STRATEGIES, record_name, topic_name, topic_record_name
from millstream.serdes.plain import to_json
from millstream.serdes.typed import Record

__all__ = [
    "STRATEGIES",
    "Decoded",
    "Decoder",
    "Encoder",
    "Record",
    "RegisteredSchema",
    "RegistryRefused",
    "RegistryUnreachable",
    "SchemaRegistry",
    "SerdeError",
    "record_name",
    "to_json",
    "topic_name",
    "topic_record_name",
]
