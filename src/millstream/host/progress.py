"""Progress that does not expire: where an application is, beside its group's offsets.

Brokers forget the offsets of a group that has had no members for a while (`offsets.retention.minutes`, seven
days), and the groups of applications have none. So every transaction of a unit also writes a *marker* into
`__millstream_progress`, a compacted topic: application, partition, offset, and the topic's id. If the group's
offset is gone, the marker says where to go on, exactly, because both were written or neither.

The topic's id is also committed beside every offset. A topic that was deleted and created again has another
one, and a log that ends before the position is not the log that was read: both stop the unit. Beginning anew,
or going on in the middle of something else, is for people to decide.

    key    ["application","topic",partition]
    value  {"offset":…,"topic_id":"…","time":ms,"owner":"…"}

Beside an offset:    <topic id>@<owner> <text of the unit>

The owner is the lane that commits for the unit (`ownership`); there is none if it has let the unit go. All
markers of an application are in one partition, so that little has to be read to find them.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from millstream.client import Admin, Cluster, Fetcher, NewTopic, Producer
from millstream.client.fetch import next_offset, visible_batches
from millstream.client.groups import Committed, Groups
from millstream.client.messages import NO_ID
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.client.transaction_commits import TransactionCommit
from millstream.host.errors import FinalError
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch, iter_records
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.host")

TOPIC = "__millstream_progress"
PARTITIONS = 16
CONFIGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",  # a broker refuses times that are far ahead of its own
    "segment.bytes": str(10 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


class Start(NamedTuple):
    """Where a unit goes on in a partition, and what it has left there for itself."""

    offset: int
    metadata: str = ""


class Marker(NamedTuple):
    offset: int
    topic_id: str
    owner: str = ""


def create_topic(cluster: Cluster) -> None:
    """If it is missing."""
    if not cluster.refresh([TOPIC]):
        return
    Admin(cluster).create_if_missing(NewTopic(TOPIC, PARTITIONS, -1, CONFIGS))
    cluster.wait_for_topics([TOPIC])


class Markers:
    """Writes the markers of whoever shares a cluster's connections."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._usable: bool | None = None

    def join(self, commit: TransactionCommit) -> None:
        """Make the marker part of a transaction."""
        if not commit.offsets or not self._ready():
            return
        which, batch = self._batch(commit.group, commit.offsets, commit.owner, transactional=True)
        first = {**(commit.rounds[0] if commit.rounds else {}), which: batch}
        commit.rounds = [first, *commit.rounds[1:]]

    def write(self, producer: Producer, application: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Without a transaction, after the commit: it may be behind, never ahead."""
        if offsets and self._ready():
            which, batch = self._batch(application, offsets, "", transactional=False)
            producer.send_batches({which: batch})

    def forget(self, application: str) -> None:
        """The application begins anew."""
        if self._cluster.refresh([TOPIC]):
            return  # there is no such topic
        known = list(read_markers(self._cluster, application))
        if known:
            now = _now()
            keys = [Record(0, now, _key(application, which), None, ()) for which in known]
            Producer(self._cluster, create_topics=False).send(*_home(self._cluster, application), keys)

    def _ready(self) -> bool:
        if self._usable is None:
            try:
                create_topic(self._cluster)
                self._usable = True
            except KafkaError as error:
                if error.code.retriable:
                    raise
                log.warning("progress is kept in the group's offsets alone: %s: %s", TOPIC, error)
                self._usable = False
        return self._usable

    def _batch(
        self, application: str, offsets: Mapping[TopicPartition, int], owner: str, *, transactional: bool
    ) -> tuple[TopicPartition, bytearray]:
        now = _now()
        records = []
        for which, offset in offsets.items():
            topic_id = str(self._cluster.topic(which.topic).id)
            value = {"offset": offset, "topic_id": topic_id, "time": now}
            if owner:
                value["owner"] = owner
            text = json.dumps(value, separators=(",", ":")).encode()
            records.append(Record(0, now, _key(application, which), text, ()))
        return _home(self._cluster, application), encode_batch(records, transactional=transactional)


def metadata_of(
    cluster: Cluster,
    offsets: Iterable[TopicPartition],
    metadata: Mapping[TopicPartition, str],
    owner: str = "",
) -> dict[TopicPartition, str]:
    """What to commit beside each offset: the id of its topic, its owner, and what the unit wants to find
    again."""
    mark = f"@{owner}" if owner else ""
    return {
        which: f"{cluster.topic(which.topic).id.hex}{mark} {metadata.get(which, '')}" for which in offsets
    }


def without_owner(metadata: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    cleared = {}
    for which, text in metadata.items():
        topic_id, _, rest = _split(text)
        cleared[which] = f"{topic_id} {rest}" if topic_id else text
    return cleared


def where_to_begin(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition],
    fence: Callable[[set[str]], None] | None = None,
) -> dict[TopicPartition, Start]:
    """Where the group is; where its offset has vanished, the marker. Nothing for what was never read. `fence`
    is told who owns the partitions, and what is read after it is final."""
    wanted = list(partitions)
    committed = _committed(cluster, group, wanted)
    markers = _markers(cluster, group, set(wanted) - committed.keys())
    if fence is not None:
        # The first reading does not wait for pending offsets: those of a lane that hangs end only when it is
        # fenced. A coordinator of an older Kafka applies a transaction after its end was reported, so what
        # is stable may name another owner than what was read first.
        owners, fenced, stable = _owners(committed, markers), set[str](), False
        while owners or not stable:
            fence(owners)
            committed, stable = _committed(cluster, group, wanted, stable=True), True
            if owners:
                markers = _markers(cluster, group, set(wanted) - committed.keys())
            fenced |= owners
            owners = _owners(committed, markers) - fenced
    found: dict[TopicPartition, Start] = {}
    ids: dict[TopicPartition, str] = {}
    for which, one in committed.items():
        ids[which], _, metadata = _split(one.metadata)
        found[which] = Start(one.offset, metadata)
    for which, marker in markers.items():
        if which not in found:
            log.warning("the offset of %s in %s is gone; it goes on at %s", group, which, marker.offset)
            found[which], ids[which] = Start(marker.offset), marker.topic_id.replace("-", "")
    _check(cluster, found, ids)
    return found


def _owners(
    committed: Mapping[TopicPartition, Committed], markers: Mapping[TopicPartition, Marker]
) -> set[str]:
    owners = {_split(one.metadata)[1] for one in committed.values()}
    return (owners | {marker.owner for marker in markers.values()}) - {""}


def owners_of(cluster: Cluster, group: str, *, stable: bool = False) -> set[str]:
    """All lanes that may commit for units of this application."""
    owners = {
        _split(one.metadata)[1]
        for one in Groups(cluster).committed(group, stable=stable).values()
        if not isinstance(one, KafkaError)
    }
    if not cluster.refresh([TOPIC]):
        owners |= {marker.owner for marker in read_markers(cluster, group).values()}
    return owners - {""}


def _committed(
    cluster: Cluster, group: str, wanted: list[TopicPartition], *, stable: bool = False
) -> dict[TopicPartition, Committed]:
    found: dict[TopicPartition, Committed] = {}
    for which, committed in Groups(cluster).committed(group, wanted, stable=stable).items():
        if isinstance(committed, KafkaError):
            raise committed
        found[which] = committed
    return found


def _markers(cluster: Cluster, group: str, wanted: set[TopicPartition]) -> dict[TopicPartition, Marker]:
    if not wanted or cluster.refresh([TOPIC]):
        return {}
    return {which: marker for which, marker in read_markers(cluster, group).items() if which in wanted}


def read_markers(cluster: Cluster, application: str) -> dict[TopicPartition, Marker]:
    """The newest committed marker of each partition."""
    found: dict[TopicPartition, Marker] = {}
    for key, value in _records(cluster, _home(cluster, application)):
        try:
            of, topic, partition = json.loads(key or b"")
            which = TopicPartition(topic, partition)
            if of != application:
                continue
            if value is None:
                found.pop(which, None)
            else:
                text = json.loads(value)
                found[which] = Marker(int(text["offset"]), str(text["topic_id"]), str(text.get("owner", "")))
        except (ValueError, TypeError, KeyError):
            log.warning("a record of %s is not understood: %r", TOPIC, key)
    return found


def _check(
    cluster: Cluster, found: Mapping[TopicPartition, Start], ids: Mapping[TopicPartition, str]
) -> None:
    for which, start in found.items():
        now = cluster.topic(which.topic).id
        if ids[which] and now != NO_ID and ids[which] != now.hex:
            raise FinalError(
                f"topic {which.topic} was deleted and created again since it was read up to offset "
                f"{start.offset} of partition {which.partition}: reset the application to begin anew"
            )
    ends = list_offsets(cluster, dict.fromkeys(found, LATEST)) if found else {}
    for which, end in ends.items():
        if found[which].offset > end.offset:
            raise FinalError(
                f"{which.topic}-{which.partition} ends at {end.offset}, before offset {found[which].offset}, "
                "which was processed already: has the cluster lost data? Reset the application to begin anew"
            )


def _records(cluster: Cluster, which: TopicPartition) -> Iterator[tuple[bytes | None, bytes | None]]:
    at = list_offsets(cluster, {which: EARLIEST})[which].offset
    end = list_offsets(cluster, {which: LATEST}, read_committed=True)[which].offset
    fetcher = Fetcher(cluster, read_committed=True)
    while at < end:
        for answer in fetcher.poll({which: at}):
            if answer.error is not ErrorCode.none:
                raise KafkaError(answer.error, f"{TOPIC} cannot be read: {answer.error.name}")
            for _, batch in visible_batches(answer, at, read_committed=True):
                for record in iter_records(batch):
                    if record.offset >= at:
                        yield record.key, record.value
            at = next_offset(answer, at)


def _home(cluster: Cluster, application: str) -> TopicPartition:
    count = len(cluster.topic(TOPIC).partitions)
    return TopicPartition(TOPIC, zlib.crc32(application.encode()) % count)


def _key(application: str, which: TopicPartition) -> bytes:
    return json.dumps([application, *which], separators=(",", ":")).encode()


def _split(metadata: str) -> tuple[str, str, str]:
    """The id of the topic, its owner, and the rest; no id, if somebody else has committed that."""
    head, space, rest = metadata.partition(" ")
    topic_id, _, owner = head.partition("@")
    return (topic_id, owner, rest) if space and len(topic_id) == 32 else ("", "", metadata)


def _now() -> int:
    return round(time.time() * 1000)
