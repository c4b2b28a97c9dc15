"""Kafka Streams' DSL in Python.

    from millstream.streams import Streams, StreamsBuilder, TimeWindows, minutes

    builder = StreamsBuilder()
    (
        builder.stream("pageviews")
        .group_by_key()
        .windowed_by(TimeWindows.of_size(minutes(5)))
        .count()
        .to_stream(lambda windowed, count: windowed.key)
        .to("views-per-5-minutes")
    )
    topology = builder.build()
    print(topology.describe())

    Streams(topology, "page-views", bootstrap_servers="localhost:9092").start().awaitTermination()

`Streams` runs a topology on Spark, against a cluster; `millstream.testing.topology.TopologyTestDriver` runs
it in a test, without broker and without Spark.

    dsl         streams and tables as objects            graph        the plan they draw
    optimizer   what topology.optimization does to it    topology     nodes and stores by name
    operators   what nodes do, as functions              stores       what they remember
    expressions instead of functions                     columns      operators on whole blocks of records
    task        a topology made ready to run             punctuation  its timers
    runtime     running it on Spark                      views        copies of tables, to ask questions of
    describe    as Kafka Streams prints it               serdes, windows, functions, explicit_names, errors
"""

from millstream.streams import serdes
from millstream.streams.dsl.builder import (
    StreamsBuilder,
    key_value_store,
    session_store,
    versioned_store,
    window_store,
)
from millstream.streams.dsl.cogrouped import CogroupedKStream
from millstream.streams.dsl.grouped import KGroupedStream, KGroupedTable
from millstream.streams.dsl.options import Buffer, Materialized, Suppressed
from millstream.streams.dsl.stream import BranchedKStream, KStream
from millstream.streams.dsl.table import GlobalKTable, KTable
from millstream.streams.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from millstream.streams.errors import (
    BufferFull,
    InvalidTimestamp,
    ProcessingFailed,
    SerdeMissing,
    StreamsError,
    TopologyError,
)
from millstream.streams.expressions import Expression, col, fields, lit
from millstream.streams.operators.facades import VersionedRecord
from millstream.streams.operators.processors import STREAM_TIME, WALL_CLOCK, Context, Processor, Record
from millstream.streams.operators.transforms import ValueTransformer
from millstream.streams.runtime.application import Streams
from millstream.streams.serdes import Serde
from millstream.streams.task import Errors
from millstream.streams.topology import Topology
from millstream.streams.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windowed,
    hours,
    minutes,
    seconds,
)

__all__ = [
    "STREAM_TIME",
    "WALL_CLOCK",
    "BranchedKStream",
    "Buffer",
    "BufferFull",
    "CogroupedKStream",
    "Context",
    "EmitStrategy",
    "Errors",
    "Expression",
    "GlobalKTable",
    "InvalidTimestamp",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "Materialized",
    "ProcessingFailed",
    "Processor",
    "Record",
    "Serde",
    "SerdeMissing",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "Streams",
    "StreamsBuilder",
    "StreamsError",
    "Suppressed",
    "TimeWindowedKStream",
    "TimeWindows",
    "Topology",
    "TopologyError",
    "UnlimitedWindows",
    "ValueTransformer",
    "VersionedRecord",
    "Window",
    "Windowed",
    "col",
    "fields",
    "hours",
    "key_value_store",
    "lit",
    "minutes",
    "seconds",
    "serdes",
    "session_store",
    "versioned_store",
    "window_store",
]
