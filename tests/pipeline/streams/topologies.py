"""The topologies of the vectors, by name: what tests/interop/streams-java builds in Java, built here in Python."""

from tests.pipeline.streams import (
    topologies_corners,
    topologies_joins,
    topologies_streams,
    topologies_tables,
    topologies_windows,
)
from tests.pipeline.streams.kit import BUILDS

__all__ = [
    "BUILDS",
    "topologies_corners",
    "topologies_joins",
    "topologies_streams",
    "topologies_tables",
    "topologies_windows",
]
