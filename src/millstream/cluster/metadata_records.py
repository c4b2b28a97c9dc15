"""The records of the metadata log, and their bytes.

Metadata is one ordered log. Each entry of the log is a list of records; each record is the *full* new value
of one thing (a broker, a topic, a partition, the settings of one resource), so that the last record about a
thing is all there is to know about it. A snapshot is therefore nothing but the same records again, one per
thing.

An entry is JSON, `{"v": 1, "c": controller epoch, "r": [[type, field, ...], ...]}`, deflated when it is long.
JSON because people must be able to read it in an emergency, arrays because a broker may hold a hundred
thousand partitions. A record type, or a field, that this version does not know stops the broker: to skip it
would fork the image.

Records are named tuples, which are made (and defined, at each start) several times faster than frozen
dataclasses. Mind that tuples of different types can be equal: ask for the type first.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from millstream.cluster import security_records
from millstream.cluster.security_records import SecurityRecord

NO_LEADER = -1
ENTRY_FORMAT = 1
DEFLATE_ABOVE = 4096  # bytes
MAX_ENTRY_BYTES = 512 * 1024  # a znode holds twice that
MAX_ENTRY_RECORDS = 2000  # for entries made of several commands, and for chunks of a snapshot
_INFLATED_LIMIT = 256 * 1024 * 1024  # far above any entry that we write

SCOPE_TOPIC = "topic"
SCOPE_BROKER = "broker"
SCOPE_GROUP = "group"
SCOPE_CLIENT_METRICS = "client-metrics"


class UnknownMetadata(Exception):
    """The log holds something that this version cannot read; a newer version wrote it, or the bytes are
    damaged."""


class Endpoint(NamedTuple):
    """Where clients reach a broker on one of its listeners (the advertised address)."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class Controller(NamedTuple):
    """This broker is the controller from here on; entries of older controllers cannot follow."""

    broker_id: int
    epoch: int


class BrokerUp(NamedTuple):
    """A broker is registered and alive. `epoch` grows with each of its lives."""

    broker_id: int
    epoch: int
    incarnation: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    draining: bool = False
    features: Mapping[str, tuple[int, int]] = {}  # levels it supports, (lowest, highest)

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class BrokerDown(NamedTuple):
    """That life of the broker is over. The broker stays known: replicas may still be assigned to it."""

    broker_id: int
    epoch: int


class BrokerGone(NamedTuple):
    """The broker, which is down, is forgotten: nothing is assigned to it, and it is not expected back."""

    broker_id: int


class Topic(NamedTuple):
    topic_id: UUID
    name: str


class TopicGone(NamedTuple):
    """The topic, its partitions and its settings are gone."""

    topic_id: UUID


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: where its replicas are, who leads, who is in sync.

    `elr` (eligible leader replicas) are those that left the ISR while it was too small, and still hold every
    committed record. `adding` and `removing` are parts of `replicas` while a reassignment is under way.
    `recovering` is set by an unclean election, until the new leader has put the log in order.
    """

    topic_id: UUID
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


class Config(NamedTuple):
    """All dynamic settings of one resource; empty when the last one is removed.

    The key is a topic's id in hex, a broker's id in decimal, or '' for the default of all brokers.
    """

    scope: str
    key: str
    values: dict[str, str]


class ProducerIds(NamedTuple):
    """Producer ids below `next_id` have been handed out to brokers, in blocks."""

    next_id: int


class Feature(NamedTuple):
    """The finalized level of a feature; level 0 removes it."""

    name: str
    level: int


Record = (
    Controller
    | BrokerUp
    | BrokerDown
    | BrokerGone
    | Topic
    | TopicGone
    | Partition
    | Config
    | ProducerIds
    | Feature
    | SecurityRecord
)


# --- to JSON values -----------------------------------------------------------------------------------------


def _plain_broker_up(record: BrokerUp) -> list[Any]:
    endpoints = [
        [endpoint.listener, endpoint.host, endpoint.port, endpoint.security_protocol]
        for endpoint in record.endpoints
    ]
    return [
        "broker",
        record.broker_id,
        record.epoch,
        record.incarnation,
        endpoints,
        record.rack,
        record.draining,
        record.features,
    ]


def _plain_partition(record: Partition) -> list[Any]:
    return [
        "partition",
        record.topic_id.hex,
        record.index,
        record.replicas,
        record.isr,
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.elr,
        record.adding,
        record.removing,
        record.recovering,
    ]


_PLAIN: dict[type, Callable[[Any], list[Any]]] = {
    Controller: lambda record: ["controller", record.broker_id, record.epoch],
    BrokerUp: _plain_broker_up,
    BrokerDown: lambda record: ["broker-down", record.broker_id, record.epoch],
    BrokerGone: lambda record: ["broker-gone", record.broker_id],
    Topic: lambda record: ["topic", record.topic_id.hex, record.name],
    TopicGone: lambda record: ["topic-gone", record.topic_id.hex],
    Partition: _plain_partition,
    Config: lambda record: ["config", record.scope, record.key, record.values],
    ProducerIds: lambda record: ["producer-ids", record.next_id],
    Feature: lambda record: ["feature", record.name, record.level],
    **dict.fromkeys(security_records.KINDS, security_records.plain),
}


def encode(records: Iterable[Record], controller_epoch: int = 0) -> bytes:
    """The bytes of one entry, or of one chunk of a snapshot."""
    plain = [_PLAIN[type(record)](record) for record in records]
    text = json.dumps(
        {"v": ENTRY_FORMAT, "c": controller_epoch, "r": plain}, separators=(",", ":"), ensure_ascii=False
    ).encode()
    return zlib.compress(text, 1) if len(text) > DEFLATE_ABOVE else text


def encode_chunks(records: Sequence[Record]) -> Iterable[bytes]:
    """A snapshot's chunks, made one at a time so that the caller can let others run in between."""
    for start in range(0, len(records), MAX_ENTRY_RECORDS):
        yield encode(records[start : start + MAX_ENTRY_RECORDS])


# --- and back -----------------------------------------------------------------------------------------------


class Decoder:
    """Builds records from bytes. Ids and replica lists repeat a lot, so equal ones share one object.

    Whoever reads a whole log uses one decoder for all of it: making a UUID costs more than all the rest of a
    record.
    """

    __slots__ = ("_ids", "_lists", "_table")

    def __init__(self) -> None:
        self._ids: dict[str, UUID] = {}
        self._lists: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._table: dict[str, Callable[..., Record]] = {
            "controller": Controller,
            "broker": self._broker_up,
            "broker-down": BrokerDown,
            "broker-gone": BrokerGone,
            "topic": self._topic,
            "topic-gone": self._topic_gone,
            "partition": self._partition,
            "config": Config,
            "producer-ids": ProducerIds,
            "feature": Feature,
            **security_records.DECODERS,
        }

    def decode(self, payload: bytes) -> tuple[int, list[Record]]:
        """The controller epoch and the records of an entry; raises `UnknownMetadata` for anything it does not
        know."""
        try:
            text = payload if payload[:1] == b"{" else _inflate(payload)
            entry = json.loads(text)
            if entry["v"] != ENTRY_FORMAT:
                raise UnknownMetadata(
                    f"metadata entry of format {entry['v']!r}; this version reads format {ENTRY_FORMAT}"
                )
            table = self._table
            return entry["c"], [table[record_type](*fields) for record_type, *fields in entry["r"]]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error) as problem:
            raise UnknownMetadata(
                f"metadata entry that this version cannot read: {type(problem).__name__}: {problem}"
            ) from problem

    def _topic_id(self, text: str) -> UUID:
        found = self._ids.get(text)
        if found is None:
            found = self._ids[text] = UUID(hex=text)
        return found

    def _broker_up(
        self,
        broker_id: int,
        epoch: int,
        incarnation: str,
        endpoints: list[list[Any]],
        rack: str | None,
        draining: bool,
        features: dict[str, list[int]],
    ) -> BrokerUp:
        return BrokerUp(
            broker_id,
            epoch,
            incarnation,
            tuple(Endpoint(*endpoint) for endpoint in endpoints),
            rack,
            draining,
            {name: (low, high) for name, (low, high) in features.items()},
        )

    def _topic(self, topic_id: str, name: str) -> Topic:
        return Topic(self._topic_id(topic_id), name)

    def _topic_gone(self, topic_id: str) -> TopicGone:
        return TopicGone(self._topic_id(topic_id))

    def _partition(
        self,
        topic_id: str,
        index: int,
        replicas: list[int],
        isr: list[int],
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        elr: list[int],
        adding: list[int],
        removing: list[int],
        recovering: bool,
    ) -> Partition:
        where = tuple(replicas)
        where = self._lists.setdefault(where, where)
        return Partition(
            self._ids.get(topic_id) or self._topic_id(topic_id),
            index,
            where,
            where if isr == replicas else tuple(isr),
            leader,
            leader_epoch,
            partition_epoch,
            tuple(elr),
            tuple(adding),
            tuple(removing),
            recovering,
        )


def _inflate(payload: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(payload, _INFLATED_LIMIT)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("the deflated bytes do not end where they should")
    return text


def decode(payload: bytes) -> tuple[int, list[Record]]:
    """One entry by itself; see `Decoder.decode`."""
    return Decoder().decode(payload)
