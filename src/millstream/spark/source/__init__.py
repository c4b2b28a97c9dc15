"""Reading topics into Spark.

    read_options  the options, parsed and checked
    offsets       looked up in the cluster: partitions, first and last offsets, offsets at a time
    plan          offsets into tasks (pure functions)
    batch         the reader of spark.read
    stream        the reader of spark.readStream
    task          inside a task: fetch and decode
    schema        the columns, and which of them a user's schema asks for
    rows          decoded chunks as record batches with Spark's columns

Options and columns are those of Spark's Kafka source.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.spark.clusters import shared_cluster
from millstream.spark.errors import PipelineError
from millstream.spark.source.offsets import Source
from millstream.spark.source.read_options import parse_read_options
from millstream.spark.tables import options_of_new_table, schema_of_new_table, with_table_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


def describe(given: Mapping[str, str]) -> "str | StructType":
    """The columns, for `load()` and CREATE TABLE. Whatever is wrong with the options or the topics is
    reported here, before a query starts."""
    from millstream.spark.source.schema import columns, ddl

    of_table = options_of_new_table(given)
    options = parse_read_options(given if of_table is None else of_table, streaming=None)
    Source(options, shared_cluster(options.client).cluster).topic_partitions()
    if of_table is None:
        return ddl(options.headers)
    return schema_of_new_table(columns(options.headers), of_table)


def make_reader(given: Mapping[str, str], schema: "StructType") -> "DataSourceReader":
    from millstream.spark.source.batch import BatchReader
    from millstream.spark.source.schema import check

    options = parse_read_options(with_table_options(given, schema), streaming=False)
    return BatchReader(options, check(schema, options.headers))


def make_stream_reader(given: Mapping[str, str], schema: "StructType") -> "DataSourceStreamReader":
    from millstream.spark.source.schema import check
    from millstream.spark.source.stream import Broken, StreamReader

    try:
        options = parse_read_options(with_table_options(given, schema), streaming=True)
        return StreamReader(options, check(schema, options.headers))
    except PipelineError as error:
        return Broken(error)
