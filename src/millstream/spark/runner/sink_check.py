"""A look at a writer before it is started: Spark asks a sink for its opinion only with the first batch, which may come
days later. A wrong option, column, topic or address of format("millstream") is said when the pipeline starts instead."""

from typing import Any

from millstream.spark.datasource import MillstreamDataSource
from millstream.spark.errors import plainly


def check_sink(writer: Any) -> None:
    """PipelineError for a sink that cannot work. Sinks of others are not looked at."""
    format_name, options = _told(writer)
    if format_name == MillstreamDataSource.name():
        from millstream.spark.sink import check

        with plainly():
            check(options, writer._df.schema)


def _told(writer: Any) -> tuple[str, dict[str, str]]:
    """The format and the options that a writer was given. Spark has no question for that, but keeps them in fields; where it
    does not, there is nothing to check."""
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
