"""Writing: `df.write` and `df.writeStream` with `format("millstream")`.

    settings        options and columns, checked
    outlet          rows out to the brokers
    at_least_once   the default
    exactly_once    streams: a transaction per task, with a marker
    markers         the book of what is written
    all_or_nothing  exactly once for batch writes
    workers         connections that outlive a task
    task            who a task is

How exactly once works, and why so: docs/decisions/2026-11-15-exactly-once-sink.md.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.client import Unreachable
from millstream.spark.errors import OptionError
from millstream.spark.sink.workers import worker_for
from millstream.spark.sink.write_options import WriteSettings, settings_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType


def make_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
    """The writer of a batch."""
    from millstream.spark.sink.all_or_nothing import AllOrNothingWriter
    from millstream.spark.sink.at_least_once import BatchWriter

    if overwrite:
        raise OptionError('a topic cannot be overwritten: use mode("append")')
    settings = settings_of(options, schema)
    _check_topic(settings)
    if settings.exactly_once:
        return AllOrNothingWriter(settings, f"millstream-write-{uuid.uuid4().hex}")
    return BatchWriter(settings)


def make_stream_writer(
    options: Mapping[str, str], schema: "StructType", overwrite: bool
) -> "DataSourceStreamArrowWriter":
    """The writer of a stream. Spark asks for a new one for every batch, and in a new process for another one to commit it.
    Brokers that are away then are not an error yet: the tasks know whether this is the query's first batch, and the
    commit waits."""
    from millstream.spark.sink.at_least_once import StreamWriter
    from millstream.spark.sink.exactly_once import ExactlyOnceWriter

    settings = settings_of(options, schema)
    try:
        _check_topic(settings)
    except Unreachable:
        settings = replace(settings, answered=False)
    return ExactlyOnceWriter(settings) if settings.exactly_once else StreamWriter(settings)


def check(options: Mapping[str, str], schema: "StructType") -> None:
    """Whatever is wrong with a writer, before Spark makes one."""
    _check_topic(settings_of(options, schema))


def _check_topic(settings: WriteSettings) -> None:
    """A topic that is not there and a broker that does not answer are said before tasks start."""
    worker = worker_for(settings.client)
    if settings.topic is not None:
        worker.partitions_of(settings.topic)
    elif not worker.cluster.nodes:
        worker.cluster.refresh([])
