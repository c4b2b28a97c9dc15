"""Transient queries: a topology in the process of the server, over all partitions of its topics, until the
client goes.

It is the task that runs on the host, with stores in memory and repartition topics that never leave the
process; what the last node writes goes to a function instead of a topic. Nothing is committed: a transient
query has no past and no future. A query whose stores and unread rows would take more than its budget ends
with an error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from millstream.client import EARLIEST, LATEST, ClientConfig, Cluster, Fetcher, list_offsets
from millstream.client.fetch import next_offset, visible_batches
from millstream.sql.functions.isolated import FunctionLost
from millstream.streams.operators.aggregates import EMIT_EVERY as AGGREGATION_EVERY
from millstream.streams.operators.base import Headers
from millstream.streams.operators.joins import EMIT_EVERY as JOIN_EVERY
from millstream.streams.task import Errors, StreamTask
from millstream.streams.topology import Topology
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import iter_records
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.sql")

_BYTES = 1 << 20
_CHECK_EVERY = 1_000


class Raw(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


Output = Callable[[Raw], None]


class TopologyRunner:
    """A topology fed record by record. `output` gets what is written to `sink`."""

    def __init__(
        self,
        topology: Topology,
        application: str,
        sink: str,
        output: Output,
        *,
        errors: Errors | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.topology, self._sink, self._output = topology, sink, output
        self._queue: deque[tuple[str, Raw]] = deque()
        self._offsets: dict[str, int] = {}
        self._sizes: dict[tuple[str, bytes], int] = {}
        self._bytes = 0
        groups = topology.sub_topologies()
        settings: dict[str, Any] = {
            "application": application,
            "collect": self._collect,
            "now": lambda: int(time.time() * 1000),
            "config": {AGGREGATION_EVERY: 0, JOIN_EVERY: 0, **(config or {})},
            "errors": errors or Errors(reading="continue", processing="continue"),
        }
        self._global = StreamTask(
            topology, sub_topologies=[one.id for one in groups if one.is_global], **settings
        )
        self._task = StreamTask(
            topology,
            sub_topologies=[one.id for one in groups if not one.is_global],
            global_stores=self._global.stores,
            **settings,
        )
        self._read_back = {
            topology.internal_name(topic, application)
            for node in topology.nodes.values()
            if node.type == "source"
            for topic in node.topics
        }

    def deliver(self, topic: str, partition: int, offset: int, record: Raw) -> None:
        """Through the whole topology, repartition topics included."""
        self._deliver(topic, partition, offset, record)
        while self._queue:
            own, queued = self._queue.popleft()
            at = self._offsets[own] = self._offsets.get(own, -1) + 1
            self._deliver(own, 0, at, queued)

    def _deliver(self, topic: str, partition: int, offset: int, record: Raw) -> None:
        node = self.topology.source_of(self._task._short(topic))
        is_global = node is not None and self.topology.is_global_source(node)
        (self._global if is_global else self._task).deliver(topic, partition, offset, *record)
        if not is_global:
            self._task.punctuate_stream_time()

    def tick(self) -> None:
        self._task.punctuate_wall_clock()
        while self._queue:
            own, queued = self._queue.popleft()
            self._deliver(own, 0, 0, queued)

    def _collect(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        _partition: int | None,
    ) -> None:
        record = Raw(key, value, timestamp, headers)
        if topic == self._sink:
            self._output(record)
        elif topic in self._read_back:
            self._queue.append((topic, record))

    def size(self) -> int:
        """The bytes of keys and values in the stores, counted by what would be their changelogs."""
        for name, store in self._task.stores.items():
            if not store.spec.logged:
                continue
            for key, value, _ in store.drain():
                self._bytes -= self._sizes.pop((name, key), 0)
                if value is not None:
                    size = self._sizes[name, key] = len(key) + len(value)
                    self._bytes += size
        return self._bytes

    def close(self) -> None:
        self._task.close()


class TransientQuery:
    """Feeds a runner from topics, in a thread of its own."""

    def __init__(
        self,
        runner: TopologyRunner,
        client: ClientConfig,
        topics: Iterable[str],
        *,
        begin: str,
        stopped: Callable[[], bool],
        failed: Callable[[str], None],
        ended: Callable[[], None] | None = None,
        bounded: bool = False,
        budget: int = 64 << 20,
    ) -> None:
        """`begin` is earliest or latest. `bounded`: only what is there now, then `ended` is called."""
        self._runner, self._client, self._topics = runner, client, sorted(topics)
        self._begin, self._stopped, self._failed, self._ended = begin, stopped, failed, ended
        self._bounded, self._budget = bounded, budget
        self.positions: dict[TopicPartition, int] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transient-query", daemon=True)

    def start(self, wait: float = 10.0) -> None:
        """Returns when the first offsets are known: what is produced afterwards is seen."""
        self._thread.start()
        self._ready.wait(wait)

    def join(self, timeout: float = 5.0) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            with Cluster(self._client) as cluster:
                self._follow(cluster)
        except (Exception, FunctionLost) as error:
            self._failed(str(error) or type(error).__name__)
            if not isinstance(error, KafkaError | _TooLarge | FunctionLost):
                log.exception("a transient query failed")
        finally:
            self._ready.set()
            self._runner.close()

    def _follow(self, cluster: Cluster) -> None:
        partitions = [
            TopicPartition(topic, number)
            for topic in self._topics
            for number in cluster.topic(topic).partitions
        ]
        at = EARLIEST if self._begin == "earliest" or self._bounded else LATEST
        first = list_offsets(cluster, dict.fromkeys(partitions, at), read_committed=True)
        self.positions = {which: found.offset for which, found in first.items()}
        left = None
        if self._bounded:
            ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST), read_committed=True)
            left = {which: found.offset for which, found in ends.items()}
        self._ready.set()
        fetcher = Fetcher(cluster, read_committed=True, partition_max_bytes=_BYTES)
        delivered = 0
        while not self._stopped():
            wanted = self.positions
            if left is not None:
                wanted = {which: at for which, at in self.positions.items() if at < left[which]}
                if not wanted:
                    break
            batch = self._poll(fetcher, wanted)
            # Several topics are merged by time, as far as they have come.
            for which, offset, record in sorted(batch, key=lambda one: one[2].timestamp):
                if self._stopped():
                    return
                self._runner.deliver(which.topic, which.partition, offset, record)
                delivered += 1
                if delivered % _CHECK_EVERY == 0:
                    self._check_size()
            if batch:
                self._check_size()
            self._runner.tick()
        if self._ended is not None and not self._stopped():
            self._ended()

    def _poll(
        self, fetcher: Fetcher, wanted: Mapping[TopicPartition, int]
    ) -> list[tuple[TopicPartition, int, Raw]]:
        found = []
        for fetched in fetcher.poll(dict(wanted), 200):
            which = TopicPartition(fetched.topic, fetched.partition)
            if fetched.error is not ErrorCode.none:
                raise KafkaError(fetched.error, f"{which} cannot be read")
            position = self.positions[which]
            for _, data in visible_batches(fetched, position, read_committed=True):
                for record in iter_records(data):
                    if record.offset >= position:
                        raw = Raw(record.key, record.value, record.timestamp, tuple(record.headers))
                        found.append((which, record.offset, raw))
            self.positions[which] = next_offset(fetched, position)
        return found

    def _check_size(self) -> None:
        size = self._runner.size()
        if size > self._budget:
            raise _TooLarge(
                f"the query needs more than {self._budget} bytes for its state; make it a persistent query "
                "with "
                "CREATE TABLE ... AS SELECT, or raise ksql.query.push.max.bytes"
            )


class _TooLarge(Exception):
    pass
