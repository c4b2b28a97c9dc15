"""`format("millstream")`: topics as Spark tables and streams.

Spark imports this in many short-lived processes (one plans, another makes the reader, others read), so
nothing heavy is imported before it is needed. What is wrong with the options is said in `schema` and by the
makers of readers and writers: that is before a query starts.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from millstream.spark.errors import said_plainly

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class MillstreamDataSource(DataSource):
    """Reads with the columns, and reads and writes with the options, of Spark's Kafka connector."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return "millstream"

    @said_plainly
    def schema(self) -> "str | StructType":
        from millstream.spark.source import describe

        return describe(self.options)

    @said_plainly
    def reader(self, schema: "StructType") -> "DataSourceReader":
        from millstream.spark.source import make_reader

        return make_reader(self.options, schema)

    @said_plainly
    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from millstream.spark.source import make_stream_reader

        return make_stream_reader(self.options, schema)

    @said_plainly
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from millstream.spark.sink import make_writer

        made: Any = make_writer(self.options, schema, overwrite)
        return made  # type: ignore[no-any-return]

    @said_plainly
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from millstream.spark.sink import make_stream_writer

        made: Any = make_stream_writer(self.options, schema, overwrite)
        return made  # type: ignore[no-any-return]
