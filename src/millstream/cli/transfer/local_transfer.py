"""Topics to files and back in this process, one partition after the other: for what is too little to start
Spark for.

The files are those that the Spark jobs write and read. An export writes to `_temporary` and moves the files
when all of them are whole, as Spark does.
"""

import contextlib
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.errors import CommandFailed
from millstream.cli.message_formatter import ConsumerRecord, consumer_record
from millstream.cli.progress import Progress
from millstream.cli.transfer import record_files
from millstream.cli.transfer.record_files import RecordWriter, Row
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client import Cluster, Fetcher

# About where Spark, which takes some seconds to start and then uses all cores, is no later.
MAX_RECORDS = 500_000
# Of files that are read into memory, compressed or not.
MAX_BYTES = 256 << 20
READ_TIMEOUT = 120.0  # seconds without a record that must be there
BATCH_BYTES = 1_000_000  # just below the default of max.message.bytes

Ranges = dict[TopicPartition, range]


def offset_ranges(
    cluster: "Cluster", topic: str, from_time: int | None, to_time: int | None, read_committed: bool
) -> Ranges:
    """The offsets of each partition between two times, in milliseconds; without a time, from its first or to
    its last."""
    from millstream.client import EARLIEST, LATEST, list_offsets

    problem = cluster.refresh([topic]).get(topic)
    if problem is not None:
        raise problem
    topic_partitions = [TopicPartition(topic, number) for number in sorted(cluster.topics[topic].partitions)]

    def offsets(moment: int) -> dict[TopicPartition, int]:
        found = list_offsets(cluster, dict.fromkeys(topic_partitions, moment), read_committed=read_committed)
        return {topic_partition: answer.offset for topic_partition, answer in found.items()}

    ends = offsets(LATEST)
    firsts = offsets(EARLIEST if from_time is None else from_time)
    lasts = ends if to_time is None else offsets(to_time)
    ranges: Ranges = {}
    for topic_partition, end in ends.items():
        # -1: no record is that young.
        first, last = (
            end if found[topic_partition] < 0 else found[topic_partition] for found in (firsts, lasts)
        )
        ranges[topic_partition] = range(first, last)
    return ranges


# --- export -------------------------------------------------------------------------------------------------


def export_records(
    cluster: "Cluster", ranges: Ranges, folder: Path, form: str, read_committed: bool, bar: Progress
) -> int:
    """A file for each partition that has records."""
    from millstream.client import Fetcher

    fetcher = Fetcher(cluster, read_committed=read_committed)
    temporary = folder / "_temporary"
    temporary.mkdir(parents=True)
    count = 0
    try:
        for number, (topic_partition, offsets) in enumerate(ranges.items()):
            writer: RecordWriter | None = None
            for record in read_range(fetcher, topic_partition, offsets):
                writer = writer or record_files.new_writer(temporary, number, form)
                writer.write(record)
                count += 1
                bar.advance(1)
            if writer is not None:
                writer.close()
        if not count:
            # One file without records, so that readers find the columns.
            record_files.new_writer(temporary, 0, form).close()
    except BaseException:
        shutil.rmtree(temporary)
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    for file in temporary.iterdir():
        file.rename(folder / file.name)
    temporary.rmdir()
    (folder / "_SUCCESS").touch()
    return count


def read_range(
    fetcher: "Fetcher", topic_partition: TopicPartition, offsets: range
) -> Iterator[ConsumerRecord]:
    from millstream.client.fetch import next_offset, visible_batches
    from millstream.wire.errors import ErrorCode
    from millstream.wire.records import iter_records

    position = offsets.start
    deadline = time.monotonic() + READ_TIMEOUT
    while position < offsets.stop:
        for fetched in fetcher.poll({topic_partition: position}):
            if fetched.error is ErrorCode.offset_out_of_range:
                raise CommandFailed(f"offset {position} of {topic_partition} was deleted during the export")
            if fetched.error is not ErrorCode.none:
                raise CommandFailed(f"{topic_partition}: the broker answers {fetched.error.name.upper()}")
            for header, batch in visible_batches(fetched, position, fetcher.read_committed):
                for record in iter_records(batch):
                    if position <= record.offset < offsets.stop:
                        yield consumer_record(topic_partition, header, record)
            before, position = position, next_offset(fetched, position)
            if position > before:
                deadline = time.monotonic() + READ_TIMEOUT
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"no records of {topic_partition} came for {READ_TIMEOUT:g} s at offset {position}, "
                f"of {offsets.stop}"
            )


# --- import -------------------------------------------------------------------------------------------------


def import_records(
    cluster: "Cluster",
    settings: Mapping[str, str],
    topic: str,
    rows: Iterable[Row],
    keep_partitions: bool,
    bar: Progress,
) -> int:
    """Send the rows in their order, each to its partition or to that of its key."""
    from millstream.cli.console_producer import ProducerSession, producer_settings
    from millstream.cli.record_reader import ParsedRecord
    from millstream.client import Producer

    partitions = cluster.topic(topic, create=True).partitions
    session = ProducerSession(cluster, Producer(cluster, **producer_settings(settings)), topic, BATCH_BYTES)
    count = 0
    for row in rows:
        partition = row.partition if keep_partitions else None
        if partition is not None and partition not in partitions:
            raise CommandFailed(
                f"a record is of partition {partition}, and topic {topic} has {len(partitions)}, from 0"
            )
        session.add(ParsedRecord(row.key, row.value, row.headers), partition)
        count += 1
        bar.advance(1)
    session.flush()
    if session.failures:
        raise CommandFailed(f"not all records could be sent to topic {topic}")
    return count
