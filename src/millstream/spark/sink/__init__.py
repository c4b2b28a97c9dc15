"""Writing: `df.write` and `df.writeStream` with `format("millstream")`.

    write_options   options and columns, checked
    batch_writer    rows out to the brokers
    at_least_once   the default
    exactly_once    streams: a transaction per task, with a marker
    markers         the topic that records which batches are written
    all_or_nothing  exactly once for batch writes
    task            which query, batch and task this process works for
    upsert          update mode, through foreachBatch

How exactly once works, and why so: docs/decisions/2026-11-15-exactly-once-sink.md.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.client import Unreachable
from millstream.spark.clusters import shared_cluster
from millstream.spark.errors import OptionError
from millstream.spark.sink.write_options import WriteOptions, parse_write_options
from millstream.spark.tables import refuse_insert

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType


def make_writer(given: Mapping[str, str], schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
    """The writer of a batch."""
    from millstream.spark.sink.all_or_nothing import AllOrNothingWriter
    from millstream.spark.sink.at_least_once import AtLeastOnceBatchWriter

    if overwrite:
        raise OptionError('a topic cannot be overwritten: use mode("append")')
    refuse_insert(schema)
    options = parse_write_options(given, schema)
    _check_topic(options)
    if options.exactly_once:
        return AllOrNothingWriter(options, f"millstream-write-{uuid.uuid4().hex}")
    return AtLeastOnceBatchWriter(options)


def make_stream_writer(
    given: Mapping[str, str], schema: "StructType", overwrite: bool
) -> "DataSourceStreamArrowWriter":
    """The writer of a stream. Spark asks for a new one for every batch, and in a new process for another one
    to commit it. Brokers that are away then are not an error yet: the tasks know whether this is the query's
    first batch, and the commit waits."""
    from millstream.spark.sink.at_least_once import AtLeastOnceStreamWriter
    from millstream.spark.sink.exactly_once import ExactlyOnceWriter

    options = parse_write_options(given, schema)
    try:
        _check_topic(options)
    except Unreachable:
        options = replace(options, brokers_reachable=False)
    return ExactlyOnceWriter(options) if options.exactly_once else AtLeastOnceStreamWriter(options)


def check(given: Mapping[str, str], schema: "StructType") -> None:
    """Whatever is wrong with a writer, before Spark makes one."""
    _check_topic(parse_write_options(given, schema))


def _check_topic(options: WriteOptions) -> None:
    """Reports a missing topic or an unreachable broker before tasks start."""
    shared = shared_cluster(options.client).refresh_old_metadata()
    if options.topic is not None:
        shared.partition_count(options.topic)
    elif not shared.cluster.nodes:
        shared.cluster.refresh([])
