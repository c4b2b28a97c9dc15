"""Connectors by name: Kafka's class names and short aliases, or a class of one's own, `module.Class`."""

from __future__ import annotations

import importlib
import inspect
import sys

from millstream.connect.api import Connector, SinkConnector, SourceConnector
from millstream.connect.config.config_def import ConfigError
from millstream.connect.connectors.file import FileStreamSink, FileStreamSource

CONNECTORS: dict[str, type[Connector]] = {
    "org.apache.kafka.connect.file.FileStreamSinkConnector": FileStreamSink,
    "org.apache.kafka.connect.file.FileStreamSourceConnector": FileStreamSource,
}


def find_connector(name: str, plugin_path: tuple[str, ...] = ()) -> type[Connector]:
    """By the whole name, its last part, or that without `Connector`."""
    for full, found in CONNECTORS.items():
        short = full.rpartition(".")[2]
        if name in (full, short, short.removesuffix("Connector")):
            return found
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
    known = ", ".join(f"{full} ({type_of(one)}, {one.version})" for full, one in CONNECTORS.items())
    raise ConfigError(
        f"Failed to find any class that implements Connector and which name matches {name}, available "
        f"connectors are: {known}"
    )


def class_name_of(connector: type[Connector]) -> str:
    """The name that REST answers show."""
    for full, known in CONNECTORS.items():
        if known is connector:
            return full
    return f"{connector.__module__}.{connector.__qualname__}"


def type_of(connector: type[Connector]) -> str:
    if issubclass(connector, SourceConnector):
        return "source"
    return "sink" if issubclass(connector, SinkConnector) else "unknown"
