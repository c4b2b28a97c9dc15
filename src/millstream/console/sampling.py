"""A thread that looks at the cluster every few seconds: metadata, end offsets, sizes, groups and their lag.

Pages are drawn from its last look, so they are quick however large the cluster is, and they still show
something when the cluster is away. The thread takes a quarter of its time for work at most: a cluster that
takes long to look at is looked at less often. Groups are many: those that somebody watches are asked about in
every round, the others in turn.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.client import EARLIEST, LATEST, Admin, ClientConfig, Cluster
from millstream.client.cluster import Node, Topic
from millstream.client.groups import GroupListing, Groups
from millstream.console import cluster_queries
from millstream.console.time_series import Series, SeriesTable
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

REST_FACTOR = 3  # pause at least this many times as long as a sample took
SLOW_SAMPLE_EVERY = 5  # sizes, first offsets and the list of groups are sampled every this many rounds
GROUPS_A_ROUND = 500
WATCHED_FOR = 600.0
MAX_SERIES = 3000


@dataclass(frozen=True, slots=True)
class LogDirUsage:
    """What one broker's folders hold; -1 where the broker does not say."""

    used: int
    total: int
    usable: int
    folders: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    taken: float = 0.0
    cluster_id: str | None = None
    controller: int = -1
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    disks: Mapping[int, LogDirUsage] = field(default_factory=dict)
    groups: tuple[GroupListing, ...] = ()

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def offline(self) -> int:
        return sum(
            partition.leader not in self.nodes
            for topic in self.topics.values()
            for partition in topic.partitions.values()
        )

    @property
    def under_replicated(self) -> int:
        return sum(
            len(partition.isr) < len(partition.replicas)
            for topic in self.topics.values()
            for partition in topic.partitions.values()
        )

    def size(self, topic: str) -> int | None:
        known = self.topics.get(topic)
        if known is None or not self.sizes:
            return None
        return sum(self.sizes.get(TopicPartition(topic, index), 0) for index in known.partitions)

    def records(self, topic: str) -> int:
        """Offsets between first and end: as many records, unless the topic is compacted or has
        transactions."""
        known = self.topics.get(topic)
        if known is None:
            return 0
        partitions = [TopicPartition(topic, index) for index in known.partitions]
        return sum(
            max(0, self.ends.get(partition, 0) - self.starts.get(partition, 0)) for partition in partitions
        )


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """What one group has committed and how far behind it is, at some moment."""

    taken: float
    committed: Mapping[TopicPartition, int]
    lags: Mapping[TopicPartition, int]

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


class Sampler:
    def __init__(self, config: ClientConfig, interval: float) -> None:
        self.snapshot = Snapshot()
        self.error: str | None = None
        self.error_since = 0.0
        self.rounds = 0
        self.duration = 0.0
        self.rate, self.bytes, self.lag = Series(), Series(), Series()
        self.topic_rates = SeriesTable(MAX_SERIES)
        self.group_lags = SeriesTable(MAX_SERIES)
        self.positions: dict[str, GroupPosition] = {}
        self._config = config
        self._interval = interval
        self._watched: dict[str, float] = {}
        self._next_group = 0
        self._relist = False
        self._stop = threading.Event()
        self._wake_early = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-sampler", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake_early.set()

    def watch_group(self, group: str) -> None:
        self._watched[group] = time.monotonic()

    def sample_now(self) -> None:
        """Something was changed: do not wait for the next round."""
        self._wake_early.set()

    def relist_groups(self) -> None:
        """In the next round, also what is looked at less often."""
        self._relist = True

    async def next_round(self, within: float) -> bool:
        """Wait for the end of a round; False if none came in time."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait_for(future, within)
            return True
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(future)

    async def resample(self) -> None:
        """Look again at once, and wait (not for ever) for what comes of it: after a change made by this
        console."""
        self.sample_now()
        began = time.time()
        for _ in range(3):
            if not await self.next_round(2.0) or self.snapshot.taken > began:
                return

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        cluster = Cluster(self._config)
        while not self._stop.is_set():
            began = time.monotonic()
            self._wake_early.clear()
            try:
                self._sample(cluster)
                self.error = None
            except KafkaError as error:
                if self.error is None:
                    self.error_since = time.time()
                    log.warning("the cluster cannot be looked at: %s", error.message)
                self.error = error.message
                cluster.close()
                cluster = Cluster(self._config)
            except Exception:  # a thread that ends unseen would leave old numbers on every page
                log.exception("the cluster could not be looked at")
                self.error = "an unexpected error in the console; see its log"
            self.rounds += 1
            self.duration = time.monotonic() - began
            if self._loop is not None:
                try:
                    self._loop.call_soon_threadsafe(self._wake)
                except RuntimeError:
                    break  # the loop is closed
            rest = (
                self._interval
                if self.error
                else max(self._interval - self.duration, REST_FACTOR * self.duration)
            )
            self._wake_early.wait(rest)
        cluster.close()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def _sample(self, cluster: Cluster) -> None:
        before = self.snapshot
        cluster.refresh()
        slow = self.rounds % SLOW_SAMPLE_EVERY == 0 or before.taken == 0 or self._relist
        self._relist = False
        ends = cluster_queries.list_offsets(cluster, LATEST)
        now = time.time()
        starts = cluster_queries.list_offsets(cluster, EARLIEST) if slow else before.starts
        disks, sizes = self._log_dirs(cluster) if slow else (before.disks, before.sizes)
        groups = self._groups(cluster) if slow else before.groups
        self.snapshot = Snapshot(
            now,
            cluster.cluster_id,
            cluster.controller_id,
            dict(cluster.nodes),
            dict(cluster.topics),
            tuple(sorted(cluster.topics)),
            ends,
            starts,
            sizes,
            disks,
            groups,
        )
        self._update_series(before, self.snapshot, slow)
        self._sample_groups(cluster, ends, now)

    def _update_series(self, before: Snapshot, after: Snapshot, slow: bool) -> None:
        if slow and after.disks:
            self.bytes.add(after.taken, sum(disk.used for disk in after.disks.values()))
        if before.taken == 0:
            return
        seconds = max(after.taken - before.taken, 0.001)
        new: dict[str, int] = {}
        for topic_partition, end in after.ends.items():
            step = end - before.ends.get(topic_partition, end)
            if step > 0:
                new[topic_partition[0]] = new.get(topic_partition[0], 0) + step
        self.rate.add(after.taken, sum(new.values()) / seconds)
        for name in {*new, *self.topic_rates.names()}:
            if name in after.topics:
                self.topic_rates.add(name, after.taken, new.get(name, 0) / seconds)
            else:
                self.topic_rates.remove(name)

    def _log_dirs(self, cluster: Cluster) -> tuple[dict[int, LogDirUsage], dict[TopicPartition, int]]:
        disks: dict[int, LogDirUsage] = {}
        sizes: dict[TopicPartition, int] = {}
        admin = Admin(cluster)
        for node_id in cluster.nodes:
            try:
                folders = [
                    log_dir
                    for log_dir in admin.describe_log_dirs([node_id])
                    if log_dir.error is ErrorCode.none
                ]
            except KafkaError:
                continue
            used = 0
            for folder in folders:
                for topic_partition, (size, _, moving) in folder.sizes.items():
                    used += size
                    if not moving:
                        sizes[topic_partition] = max(size, sizes.get(topic_partition, 0))
            total = (
                sum(log_dir.total_bytes for log_dir in folders)
                if all(log_dir.total_bytes >= 0 for log_dir in folders)
                else -1
            )
            usable = (
                sum(log_dir.usable_bytes for log_dir in folders)
                if all(log_dir.usable_bytes >= 0 for log_dir in folders)
                else -1
            )
            disks[node_id] = LogDirUsage(used, total, usable, len(folders))
        return disks, sizes

    def _groups(self, cluster: Cluster) -> tuple[GroupListing, ...]:
        try:
            return tuple(Groups(cluster).listed())
        except KafkaError as error:
            log.debug("groups cannot be listed: %s", error.message)
            return self.snapshot.groups

    def _sample_groups(self, cluster: Cluster, ends: Mapping[TopicPartition, int], now: float) -> None:
        names = [group.group_id for group in self.snapshot.groups]
        known = set(names)
        for gone in self.positions.keys() - known:
            del self.positions[gone]
            self.group_lags.remove(gone)
        oldest = time.monotonic() - WATCHED_FOR
        self._watched = {
            group: watched_at for group, watched_at in self._watched.items() if watched_at > oldest
        }
        wanted = {name for name in self._watched if name in known}
        if names:
            start = self._next_group % len(names)
            wanted.update((names[start:] + names[:start])[:GROUPS_A_ROUND])
            self._next_group = (start + GROUPS_A_ROUND) % len(names) if len(names) > GROUPS_A_ROUND else 0
        if wanted:
            try:
                answers = cluster_queries.committed_offsets(cluster, sorted(wanted))
            except KafkaError as error:
                log.debug("offsets of groups cannot be read: %s", error.message)
                answers = {}
            for name, positions in answers.items():
                found = GroupPosition(now, positions, cluster_queries.lags(positions, ends))
                self.positions[name] = found
                self.group_lags.add(name, now, found.lag)
        self.lag.add(now, sum(position.lag for position in self.positions.values()))
