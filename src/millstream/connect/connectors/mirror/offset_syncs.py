"""What the mirror noted about offsets: which of the source is which of the target.

Transactions, compaction and records that came twice give the target other offsets than the source has. The
mirror writes down the pairs of some records; for a group's offset the nearest pair at or before it counts.
That may be early, never late: a group that moves reads some records again, and misses none.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from millstream.client import EARLIEST, LATEST, Cluster, Fetcher, list_offsets
from millstream.client.fetch import next_offset
from millstream.connect.connectors.mirror.mirror_records import OffsetSync
from millstream.connect.data.fetched_records import committed_records
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition

MAX_PAIRS = 128
"""Of one partition. Groups are mostly near the end, so the older half is thinned out."""
TOO_OLD = -1
WAIT_MS = 100


class FollowedTopic:
    """One of MirrorMaker's own topics, read again and again as far as it goes."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._partition = TopicPartition(topic, 0)
        self._fetcher = Fetcher(cluster, read_committed=True)
        self._position = EARLIEST

    def new_records(self) -> Iterator[Record]:
        """Up to the end that the topic has now; none while there is no such topic. KafkaError if it cannot be
        read."""
        which = self._partition
        if self._cluster.refresh([which.topic]):
            return
        if self._position < 0:
            self._position = list_offsets(self._cluster, {which: EARLIEST})[which].offset
        end = list_offsets(self._cluster, {which: LATEST}, read_committed=True)[which].offset
        while self._position < end:
            for fetched in self._fetcher.poll({which: self._position}, WAIT_MS):
                if fetched.error is ErrorCode.offset_out_of_range:
                    self._position = EARLIEST  # the topic was made anew
                    return
                if fetched.error is not ErrorCode.none:
                    raise KafkaError(fetched.error, f"{which.topic} cannot be read: {fetched.error.name}")
                begin, self._position = self._position, next_offset(fetched, self._position)
                yield from (record for record, _ in committed_records(fetched, begin))


class OffsetSyncs:
    """Pairs of offsets, by partition of the source, in order."""

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, list[tuple[int, int]]] = {}

    def add(self, sync: OffsetSync) -> None:
        pairs = self._pairs.setdefault(sync.topic_partition, [])
        # Somebody began anew, on one side or the other: what was known is of no use.
        if pairs and (sync.upstream < pairs[-1][0] or sync.downstream < pairs[-1][1]):
            pairs.clear()
        if pairs and pairs[-1][0] == sync.upstream:
            pairs.pop()
        pairs.append((sync.upstream, sync.downstream))
        if len(pairs) > MAX_PAIRS:
            half = MAX_PAIRS // 2
            pairs[:half] = pairs[:half:2]

    def downstream(self, which: TopicPartition, upstream: int) -> int | None:
        """The offset in the target from which on a group misses nothing; TOO_OLD before the first pair, None
        where nothing was mirrored."""
        pairs = self._pairs.get(which)
        if not pairs:
            return None
        index = bisect.bisect_right(pairs, upstream, key=lambda pair: pair[0]) - 1
        if index < 0:
            return TOO_OLD
        record, found = pairs[index]
        # Past the record of the pair is as far as one knows.
        return found if record == upstream else found + 1
