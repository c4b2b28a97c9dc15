"""Reading topics into Spark.

    settings      the options, parsed and checked
    offsets       what to ask the cluster: partitions, first and last offsets, offsets at a time
    plan          offsets into tasks (pure functions)
    batch         the reader of spark.read
    stream        the reader of spark.readStream
    task          inside a task: fetch and decode
    schema        the columns, and which of them a user's schema asks for
    rows          decoded chunks as record batches with Spark's columns
    connections   one per cluster and worker

Options and columns are those of Spark's Kafka source.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.spark.errors import PipelineError
from millstream.spark.source.connections import cluster
from millstream.spark.source.offsets import Source
from millstream.spark.source.read_options import parse

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


def describe(options: Mapping[str, str]) -> str:
    """The columns, for `load()`. Whatever is wrong with the options or the topics is said here, before a query starts."""
    from millstream.spark.source.schema import ddl

    settings = parse(options, streaming=None)
    Source(settings, cluster(settings.client)).places()
    return ddl(settings.headers)


def make_reader(options: Mapping[str, str], schema: "StructType") -> "DataSourceReader":
    from millstream.spark.source.batch import BatchReader
    from millstream.spark.source.schema import check

    settings = parse(options, streaming=False)
    return BatchReader(settings, check(schema, settings.headers))


def make_stream_reader(options: Mapping[str, str], schema: "StructType") -> "DataSourceStreamReader":
    from millstream.spark.source.schema import check
    from millstream.spark.source.stream import Broken, StreamReader

    try:
        settings = parse(options, streaming=True)
        return StreamReader(settings, check(schema, settings.headers))
    except PipelineError as error:
        return Broken(error)
