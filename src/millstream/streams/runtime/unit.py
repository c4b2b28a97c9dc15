"""A Streams task as a unit of the host: a sub-topology on one partition number.

The truth is in the cluster: the application's group has committed how far each input was processed, in the
same transaction as the outputs and changelogs of it (with at_least_once: right after them); a marker that
does not expire is beside it (`host.progress`). The transaction is that of the lane, for all tasks of the
application in it; opening the unit fences whoever ran it before (`host.ownership`), and reads that commit.

Its stores lie in a folder, together with the position that they reflect: how far inputs and changelogs were
processed. The folder is committed now and then, not with every transaction, so it may be behind after a
crash, never ahead. What is missing comes from the changelog, from where the folder is; only a folder that is
no beginning of the truth (another changelog topic, a gap, too old) is built anew.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import lmdb

from millstream.client import Producer
from millstream.client.fetch import Fetched
from millstream.client.groups import Groups
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.client.transaction_commits import TransactionCommit
from millstream.host.progress import Markers, metadata_of, where_to_begin
from millstream.host.unit import LaneContext, UnitStatus
from millstream.streams.errors import StreamsError
from millstream.streams.runtime.global_tables import GlobalTables
from millstream.streams.runtime.inputs import Inputs
from millstream.streams.runtime.record_collector import RecordCollector
from millstream.streams.runtime.restore import FolderPosition, Restore, changelogs_of
from millstream.streams.runtime.task_config import MAX_STATE_BYTES, StreamsConfig, TaskMetadata
from millstream.streams.runtime.task_inputs import input_topics
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.task import StreamTask
from millstream.streams.windows import milliseconds
from millstream.wire.batch import read_header
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client.producer import Batch, Sent
    from millstream.streams.topology import Reset, Topology

log = logging.getLogger("millstream.streams")

FOLDER_COMMIT_SECONDS = 1.0
MAX_OUTPUT_BYTES = 16 << 20
MARKER_SECONDS = 30.0
"""With at_least_once: how often the marker follows the group's offsets."""
LOOK_SECONDS = 5.0
"""How often a task whose source has a pattern looks for topics that are new."""
COMMIT_AGAIN_SECONDS = 3600.0
"""Brokers forget the offsets of a group without members: what has not moved is committed again."""


class StoreDiskFull(Exception):
    """Somebody may make room: the task is tried again."""


class StreamsUnit:
    """See `millstream.host.unit.Unit`."""

    def __init__(
        self,
        settings: StreamsConfig,
        topology: Topology,
        sub_topology: int,
        partition: int,
        lane: LaneContext,
    ) -> None:
        self.settings, self._partition = settings, partition
        self.status = UnitStatus()
        self.fetch_bytes = settings.max_bytes_per_task
        self._cluster = lane.cluster(settings.client)
        self._groups, self._markers = Groups(self._cluster), Markers(self._cluster)
        self._topology, self._sub_topology = topology, sub_topology
        self._has_patterns = topology.has_patterns
        self._topics = input_topics(topology, settings.application, self._cluster)[sub_topology]
        self._look_due = time.monotonic() + LOOK_SECONDS
        self._refresh(topology, sub_topology)
        name = f"{sub_topology}_{partition}"
        path = settings.folder_of(name, lane.machine)
        self._folder, self._data = StoreFolder(path, size=settings.max_state_bytes), path / "data.mdb"
        self._name = name
        # Where each changelog ends with what the stores hold; -1 if nobody knows.
        self._ends: dict[TopicPartition, int] = {}
        try:
            self._collector = RecordCollector()
            self._global = self._global_tables(topology, lane)
            self._task = StreamTask(
                topology,
                settings.application,
                self._collector.send,
                partition=partition,
                sub_topologies=[sub_topology],
                open_store=self._folder.open,
                now=lambda: int(time.time() * 1000),
                config=settings.config,
                errors=settings.errors,
                global_stores=self._global.stores if self._global is not None else None,
                partitions_of=lambda topic: len(self._cluster.topic(topic).partitions),
                collect_columns=self._collector.send_columns,
                state_dir=path / "files",
            )
            self.status.metrics = self._task.metrics
            self._folder.commit()  # the databases of new stores
            self._claim = (
                lane.claim(settings.client, settings.application, name, settings.transaction_timeout_ms)
                if settings.exactly_once
                else None
            )
            self._producer = Producer(self._cluster, create_topics=False)
            self._inputs, self._metadata = self._begin(topology)
            self._task.restore_times(TaskMetadata.decode(self._metadata).times)
            self._changelogs = changelogs_of(self._task, partition)
            self._restore = self._start_restore()
        except BaseException:
            self._folder.close()
            raise
        self._turn = 0
        self._uncommitted = False
        self._committed_at = time.monotonic()
        self._folder_due = self._marker_due = 0.0

    def _refresh(self, topology: Topology, sub_topology: int) -> None:
        """Internal topics may be new ones since another unit of this process asked."""
        names = set(self._topics) | {
            topology.internal_name(topic, self.settings.application)
            for one in topology.sub_topologies()
            if one.id == sub_topology
            for sink in one.sinks
            for topic in topology.nodes[sink].topics
        }
        problems = self._cluster.refresh(names)
        for topic in self._topics:
            if topic in problems:
                raise problems[topic]

    def _global_tables(self, topology: Topology, lane: LaneContext) -> GlobalTables | None:
        if not topology.global_stores:
            return None
        tables: GlobalTables = lane.shared(
            (self.settings.application, "global tables", self.settings.run),
            lambda: GlobalTables(self.settings, topology),
        )
        return tables

    def _begin(self, topology: Topology) -> tuple[Inputs, str]:
        """Where the group is; where it has not been, the beginning of a topic, or its end or a time ago if
        that is what the topology says. These are committed, because they are others when somebody asks
        again, and all of them if this unit is to own them."""
        begin, metadata = self._starts(topology, self._topics)
        return Inputs(begin, self.settings.max_bytes_per_task), metadata

    def _starts(self, topology: Topology, topics: list[str]) -> tuple[dict[TopicPartition, int], str]:
        here = [
            TopicPartition(topic, self._partition)
            for topic in topics
            if self._partition in self._cluster.topic(topic).partitions
        ]
        claim, application = self._claim, self.settings.application
        fence = None if claim is None else claim.fence
        found = where_to_begin(self._cluster, application, here, fence)
        begin = {which: start.offset for which, start in found.items()}
        resets = {
            topic: node.reset
            for node in topology.nodes.values()
            if node.type == "source"
            for topic in topology.topics_of(node.name, topics)
        }
        wanted = {which: _first_wanted(resets.get(which.topic)) for which in here if which not in begin}
        begin |= self._offsets_at(wanted)
        # It was written beside the least of the partitions that there were then.
        text = next((start.metadata for start in found.values() if start.metadata), "")
        if claim is not None and begin:
            metadata = metadata_of(self._cluster, begin, {min(begin): text}, claim.owner)
            claim.take(begin, metadata)
        elif ends := {which: begin[which] for which, timestamp in wanted.items() if timestamp != EARLIEST}:
            metadata = metadata_of(self._cluster, ends, {})
            for error in self._groups.commit(application, ends, metadata).values():
                if error is not None:
                    raise error
        return begin, text

    def _offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first record that is not older; the end, if there is none."""
        if not timestamps:
            return {}
        found = {which: at.offset for which, at in list_offsets(self._cluster, timestamps).items()}
        younger = [which for which, offset in found.items() if offset < 0]
        if younger:
            latest = list_offsets(self._cluster, dict.fromkeys(younger, LATEST))
            found |= {which: at.offset for which, at in latest.items()}
        return found

    def _notice_topics(self) -> None:
        """Topics that match the pattern of a source, and did not exist before; or do not any more."""
        self._look_due = time.monotonic() + LOOK_SECONDS
        names = input_topics(self._topology, self.settings.application, self._cluster)[self._sub_topology]
        if names == self._topics:
            return
        new = [topic for topic in names if topic not in self._topics]
        for problem in self._cluster.refresh(new).values():
            raise problem
        for topic in set(self._topics) - set(names):
            self._inputs.drop(topic)
        self._inputs.add(self._starts(self._topology, new)[0])
        self._topics = names

    def _start_restore(self) -> Restore | None:
        """None if the folder has all that was committed. What it is made of is read by turns, as input is."""
        if not self._changelogs:
            return None
        kept = FolderPosition.decode(self._folder.position)
        if kept.is_at(self._inputs.done, self._metadata) and kept.knows(self._changelogs, self._cluster):
            self._ends = kept.changelogs_in(self._changelogs)
            return None
        restore = Restore(self._cluster, self._folder, self._changelogs, kept, self._inputs.done)
        if restore.done:
            self._ends = restore.positions_reached
            return None
        return restore

    @property
    def restored(self) -> bool:
        """Whether its stores hold all that was committed."""
        return self._restore is None

    # --- reading and working --------------------------------------------------------------------------------

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._inputs.positions if self._restore is None else self._restore.positions

    def receive(self, fetched: Fetched) -> None:
        if self._restore is not None:
            self._restore.receive(fetched)
        elif fetched.error is ErrorCode.inconsistent_topic_id:
            raise StreamsError(
                f"topic {fetched.topic} was deleted and created again while it was read: reset() begins anew"
            )
        elif fetched.error is ErrorCode.offset_out_of_range:
            self._pass_over_deleted(TopicPartition(fetched.topic, fetched.partition))
        elif fetched.error is not ErrorCode.none:
            raise KafkaError(fetched.error, f"{fetched.topic}-{fetched.partition} cannot be read")
        else:
            self._inputs.receive(fetched)
        self.status.lag = self._inputs.lag

    def _pass_over_deleted(self, topic_partition: TopicPartition) -> None:
        """To the first record that is left, as consumers do that begin at the earliest one."""
        position = self._inputs.positions.get(topic_partition, 0)
        first = list_offsets(self._cluster, {topic_partition: EARLIEST})[topic_partition].offset
        if first <= position:
            raise StreamsError(
                f"{topic_partition} ends before offset {position}, which was processed already: was the "
                "topic deleted and created again? reset() begins anew"
            )
        log.warning(
            "records %d to %d of %s were deleted before they were read", position, first - 1, topic_partition
        )
        self._inputs.skip_to(topic_partition, first)

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        """What a store says when there is none left for it."""
        try:
            yield
        except lmdb.MapFullError:
            raise StreamsError(
                f"the stores of task {self._name} have reached their limit of "
                f"{self.settings.max_state_bytes:,} bytes in {self._data.parent} ({MAX_STATE_BYTES})"
            ) from None
        except (lmdb.DiskError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOSPC:
                raise
            raise StoreDiskFull(
                f"no space left for the stores of {self._name} in {self._data.parent}"
            ) from None

    def poll(self) -> bool:
        with self._room():
            return self._poll()

    def _poll(self) -> bool:
        if self._restore is not None:
            return self._poll_restore(self._restore)
        if self._has_patterns and time.monotonic() >= self._look_due:
            self._notice_topics()
        before = self._inputs.done
        block = self._inputs.next_block()
        if block is not None:
            topic, records = block
            if self._global is None:
                self._task.deliver_batch(topic, self._partition, records)
            else:
                with self._global.lock:
                    self._global.catch_up()
                    self._task.deliver_batch(topic, self._partition, records)
            self._inputs.took(topic, records)
            self.status.read += len(records)
        with self._global.lock if self._global is not None else contextlib.nullcontext():
            fired = self._task.punctuate_wall_clock()
        stale = time.monotonic() > self._committed_at + COMMIT_AGAIN_SECONDS
        if fired or stale or self._inputs.done != before:
            self._uncommitted = True
        self.status.lag = self._inputs.lag
        return block is not None and self._inputs.waiting

    def _poll_restore(self, restore: Restore) -> bool:
        more = restore.work()
        self.status.restored = restore.records
        if restore.done:
            restore.say_so(self._partition)
            self._ends, self._restore = restore.positions_reached, None
            return True
        return more

    @property
    def due(self) -> float | None:
        again = self._committed_at + COMMIT_AGAIN_SECONDS
        if self._has_patterns:
            again = min(again, self._look_due)
        timer = self._task.next_timer if self._restore is None else None
        return again if timer is None else min(again, time.monotonic() + timer / 1000 - time.time())

    # --- committing -----------------------------------------------------------------------------------------

    @property
    def uncommitted(self) -> bool:
        return self._uncommitted

    @property
    def full(self) -> bool:
        return self._collector.size > MAX_OUTPUT_BYTES or self._task.commit_requested

    def prepare_commit(self) -> TransactionCommit | None:
        with self._room():
            return self._prepare_commit()

    def _prepare_commit(self) -> TransactionCommit | None:
        application = self.settings.application
        for changelog, store in self._changelogs.items():
            if store.spec.logged:
                self._collector.send_changes(changelog.topic, store.drain(), self._partition)
        self.status.written += len(self._collector)
        self._turn += 1
        few = {} if self._claim is None else self._collector.take_few(self._width, self._turn)
        rounds = self._rounds()
        self._metadata = TaskMetadata(self._task.next_timer, self._task.times).encode()
        offsets = self._inputs.done
        owner = "" if self._claim is None else self._claim.owner
        metadata = metadata_of(self._cluster, offsets, {min(offsets): self._metadata}, owner)
        if self._claim is not None:
            return self._claim.commit(rounds, offsets, metadata, few)
        for batches in rounds:
            sent = self._producer.send_batches(batches)
            for which, batch in batches.items():
                self._advance_changelog_end(which, sent[which], read_header(batch).record_count)
        for error in self._groups.commit(application, offsets, metadata).values():
            if error is not None:
                raise error
        now = time.monotonic()
        if now >= self._marker_due:
            self._marker_due = now + MARKER_SECONDS
            self._markers.write(self._producer, application, offsets)
        return None

    def _rounds(self) -> list[dict[TopicPartition, Batch]]:
        """One batch per partition at a time."""
        queues: dict[TopicPartition, deque[Batch]] = {}
        for topic_partition, batch in self._collector.batches(
            self._width, self._turn, self.settings.exactly_once
        ):
            queues.setdefault(topic_partition, deque()).append(batch)
        rounds = []
        while queues:
            rounds.append({which: queue.popleft() for which, queue in queues.items()})
            queues = {which: queue for which, queue in queues.items() if queue}
        self._collector.clear()
        return rounds

    def _width(self, topic: str) -> int:
        return len(self._cluster.topic(topic).partitions)

    def committed(self, commit: TransactionCommit | None) -> None:
        self._uncommitted = self._task.commit_requested = False
        self._committed_at = time.monotonic()
        self.status.commits += 1
        if commit is not None and self._claim is not None:
            self._claim.committed(commit)
            # Nobody else writes there, so what was sent last is this unit's, and has all of its last round.
            last = {
                which: read_header(batch).record_count
                for batches in commit.rounds
                for which, batch in batches.items()
            }
            last |= {which: len(records) for which, records in commit.few.items()}
            for which, count in last.items():
                if which in commit.sent:
                    self._advance_changelog_end(which, commit.sent[which], count)
        now = time.monotonic()
        if self._changelogs and now >= self._folder_due:
            self._folder_due = now + FOLDER_COMMIT_SECONDS
            with self._room():
                self._commit_folder()

    def _advance_changelog_end(self, which: TopicPartition, sent: Sent, count: int) -> None:
        """Where a changelog ends with what this unit has written."""
        if which in self._changelogs:
            # A broker that knew the batch already may not tell where it lies: nobody knows then.
            self._ends[which] = sent.offset + count if sent.offset >= 0 else -1

    def _commit_folder(self) -> None:
        done = self._inputs.done
        self._ends |= {which: done[which] for which in self._changelogs if which in done}
        position = FolderPosition.of(done, self._metadata, self._ends, self._cluster)
        self._folder.commit(position.encode())
        self.status.state_bytes = self._data.stat().st_size

    def close(self) -> None:
        """After the last commit, so the folder may have all of it."""
        try:
            if not self.settings.exactly_once and self.status.commits and not self._uncommitted:
                self._markers.write(self._producer, self.settings.application, self._inputs.done)
            if self._restore is not None:
                self._restore.commit()
            elif self._changelogs and not self._uncommitted:
                self._commit_folder()
            self._task.close()
        finally:
            self._folder.close()

    def abandon(self) -> None:
        with contextlib.suppress(Exception):
            self._task.close()
        self._folder.close()


def _first_wanted(reset: Reset | None) -> int:
    """As ListOffsets wants it."""
    if isinstance(reset, datetime.timedelta):
        return max(0, int(time.time() * 1000) - milliseconds(reset))
    return LATEST if reset == "latest" else EARLIEST
