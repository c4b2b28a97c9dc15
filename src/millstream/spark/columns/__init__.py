"""Bytes into columns and back.

    from millstream.spark.columns import from_registry, to_registry, dead_letters

    events = source.withColumn("event", from_registry("value", "http://localhost:8081", topic="orders"))
    good = dead_letters(events, "event", "orders.dead", **{"kafka.bootstrap.servers": "localhost:9092"})

Avro, JSON Schema and Protobuf of a Schema Registry in Confluent's wire format, plain JSON and delimited text.
A record that cannot be decoded never stops a query: it has its reason and its bytes in the field `_corrupt`,
or goes to a dead letter topic.

    registry            from_registry, to_registry
    text                from_json, from_delimited
    dead_letter_topic   dead_letters: bad rows to a topic
    framing, decoding, encoding, avro, json_shape, json_schema, protobuf
                        what runs in the tasks, on Arrow arrays, without Spark
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.spark.columns.dead_letter_topic import dead_letters
    from millstream.spark.columns.registry import from_registry, to_registry
    from millstream.spark.columns.text import from_delimited, from_json

__all__ = ["dead_letters", "from_delimited", "from_json", "from_registry", "to_registry"]

_HOME = {
    "dead_letters": "dead_letter_topic",
    "from_delimited": "text",
    "from_json": "text",
    "from_registry": "registry",
    "to_registry": "registry",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: a task that only encodes does not load what decodes."""
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(name)
