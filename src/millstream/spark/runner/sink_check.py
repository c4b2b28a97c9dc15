"""A check of a writer before it is started. Spark makes a sink only with the first batch, which may come days
later; a wrong option, column, topic or address of format("millstream") is reported when the pipeline starts
instead."""

from typing import Any

from millstream.spark.datasource import MillstreamDataSource
from millstream.spark.errors import plainly


def check_sink(writer: Any) -> None:
    """PipelineError for a sink that cannot work. Sinks of other formats are not checked."""
    format_name, options = _format_and_options(writer)
    if format_name == MillstreamDataSource.name():
        from millstream.spark.sink import check

        with plainly():
            check(options, writer._df.schema)


def _format_and_options(writer: Any) -> tuple[str, dict[str, str]]:
    """The format and the options that a writer was given. Spark has no API for that, but keeps them in
    fields; where it does not, there is nothing to check."""
    try:
        java = writer._jwrite
        found = []
        for name in ("source", "extraOptions"):
            field = java.getClass().getDeclaredField(name)
            field.setAccessible(True)
            found.append(field.get(java))
        converters = writer._spark._jvm.scala.jdk.javaapi.CollectionConverters
        return str(found[0]), dict(converters.asJava(found[1].originalMap()))
    except Exception:
        return "", {}
