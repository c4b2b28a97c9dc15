"""The topologies of the vectors, by name: what tests/interop/streams-java builds in Java, built here in
Python."""

from tests.streams import (
    topologies_corners,
    topologies_joins,
    topologies_optimized,
    topologies_plans,
    topologies_scans,
    topologies_streams,
    topologies_tables,
    topologies_versions,
    topologies_windows,
)
from tests.streams.kit import BUILDS

__all__ = [
    "BUILDS",
    "topologies_corners",
    "topologies_joins",
    "topologies_optimized",
    "topologies_plans",
    "topologies_scans",
    "topologies_streams",
    "topologies_tables",
    "topologies_versions",
    "topologies_windows",
]
