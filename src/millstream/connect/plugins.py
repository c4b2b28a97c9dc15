"""Connectors by name: Kafka's class names and short aliases, or a class of one's own, `module.Class`.

The table names where each class is and imports it when it is asked for: a database's driver or a client of
some store is needed by those who use it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from functools import cache

from millstream.connect.api import Connector, SinkConnector, SourceConnector
from millstream.connect.config.config_def import ConfigError

_PACKAGE = "millstream.connect.connectors"

CONNECTORS: dict[str, str] = {
    "io.debezium.connector.postgresql.PostgresConnector": "postgres_cdc.source:PostgresCdcSource",
    "PostgresCdcSource": "postgres_cdc.source:PostgresCdcSource",
    "io.confluent.connect.jdbc.JdbcSinkConnector": "jdbc.sink:JdbcSink",
    "io.aiven.connect.jdbc.JdbcSinkConnector": "jdbc.sink:JdbcSink",
    "io.confluent.connect.jdbc.JdbcSourceConnector": "jdbc.source:JdbcSource",
    "io.aiven.connect.jdbc.JdbcSourceConnector": "jdbc.source:JdbcSource",
    "io.confluent.kafka.connect.datagen.DatagenConnector": "datagen.source:DatagenSource",
    "org.apache.kafka.connect.file.FileStreamSinkConnector": "file:FileStreamSink",
    "org.apache.kafka.connect.file.FileStreamSourceConnector": "file:FileStreamSource",
    "org.apache.kafka.connect.mirror.MirrorCheckpointConnector": "mirror.checkpoint:MirrorCheckpoint",
    "org.apache.kafka.connect.mirror.MirrorSourceConnector": "mirror.source:MirrorSource",
    "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector": "mirror.heartbeat:MirrorHeartbeat",
    "io.confluent.connect.s3.S3SinkConnector": "storage.sink:S3Sink",
    "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": "storage.aiven:AivenS3Sink",
    "io.confluent.connect.hdfs.HdfsSinkConnector": "storage.sink:HdfsSink",
    "io.confluent.connect.hdfs3.Hdfs3SinkConnector": "storage.sink:HdfsSink",
    "millstream.connect.FileSink": "storage.sink:FileSink",
    "io.aiven.kafka.connect.http.HttpSinkConnector": "http.sink:AivenHttpSink",
    "io.confluent.connect.http.HttpSinkConnector": "http.sink:ConfluentHttpSink",
    "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector": "search.sink:SearchSink",
    "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector": "search.sink:SearchSink",
    "io.confluent.connect.mqtt.MqttSourceConnector": "mqtt:MqttSource",
    "io.confluent.connect.syslog.SyslogSourceConnector": "syslog:SyslogSource",
}
"""Class names, and `module:class` below the package of connectors. Several names may select one class: its
first is the one that answers show."""


@cache
def load(full: str) -> type[Connector]:
    """A class of the table."""
    module, _, class_name = CONNECTORS[full].partition(":")
    found: type[Connector] = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), class_name)
    return found


def find_connector(name: str, plugin_path: tuple[str, ...] = ()) -> type[Connector]:
    """By the whole name, its last part, or that without `Connector`."""
    for full in CONNECTORS:
        short = full.rpartition(".")[2]
        if name in (full, short, short.removesuffix("Connector")):
            return load(full)
    module, dot, class_name = name.rpartition(".")
    if dot:
        for folder in plugin_path:
            if folder not in sys.path:
                sys.path.append(folder)
        try:
            found_class = getattr(importlib.import_module(module), class_name, None)
        except Exception as error:
            if not (isinstance(error, ModuleNotFoundError) and error.name and module.startswith(error.name)):
                raise ConfigError(f"Connector {name} cannot be imported: {error}") from error
            found_class = None
        if inspect.isclass(found_class) and issubclass(found_class, Connector):
            return found_class
    known = ", ".join(f"{full} ({type_of(load(full))}, {load(full).version})" for full in CONNECTORS)
    raise ConfigError(
        f"Failed to find any class that implements Connector and which name matches {name}, available "
        f"connectors are: {known}"
    )


def same_connector(one: str, other: str, plugin_path: tuple[str, ...] = ()) -> bool:
    """Whether two names are of one class. A name of no class is like itself alone."""
    try:
        return one == other or find_connector(one, plugin_path) is find_connector(other, plugin_path)
    except ConfigError:
        return False


def class_name_of(connector: type[Connector]) -> str:
    """The name that REST answers show."""
    for full, path in CONNECTORS.items():
        if path == f"{connector.__module__.removeprefix(_PACKAGE + '.')}:{connector.__qualname__}":
            return full
    return f"{connector.__module__}.{connector.__qualname__}"


def task_class_of(connector: type[Connector]) -> str:
    """The name of its task's class: Kafka's where the connector has Kafka's name."""
    full = class_name_of(connector)
    if full in CONNECTORS:
        return f"{full.removesuffix('Connector')}Task"
    return f"{connector.task.__module__}.{connector.task.__qualname__}"


def type_of(connector: type[Connector]) -> str:
    if issubclass(connector, SourceConnector):
        return "source"
    return "sink" if issubclass(connector, SinkConnector) else "unknown"
