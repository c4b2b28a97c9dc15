"""Connect: Kafka Connect's connectors, transforms and converters.

    data         schemas, structs and records: what flows between a connector and a converter
    config       the settings of a plugin, Kafka's `ConfigDef`
    converters   records to bytes and back
    transforms   single message transforms and predicates, Kafka's own

Names, texts and results are those of Apache Kafka 4.3: its classes recorded what they do
(tests/connect/vectors), and ours do the same.

A connector of one's own is a class of `Source` or `Sink` ([connect.md](docs/connect.md)).
"""

from millstream.connect.errors import ConnectError, RetriableError
from millstream.connect.simple import Record, Sink, Source, setting

__all__ = ["ConnectError", "Record", "RetriableError", "Sink", "Source", "setting"]
