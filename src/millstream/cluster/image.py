"""The image: what the metadata log says, in memory, for everybody who answers requests.

One task (the applier of `driver.py`) changes the image, by `apply`; everyone else only reads. Brokers whose
images have the same version have equal images. `apply` also returns a `Delta`, which names what changed, so
that the broker can make logs, change roles, refresh settings and delete without looking at everything else.

A topic's partitions are a list that is replaced, never changed, when one of them changes: a reader that keeps
the list across an `await` has a consistent view, and a copy of the image is a handful of flat dict copies.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from millstream.cluster import security_records
from millstream.cluster.metadata_records import (
    NO_LEADER,
    SCOPE_BROKER,
    SCOPE_TOPIC,
    BrokerDown,
    BrokerGone,
    BrokerUp,
    Config,
    Controller,
    Feature,
    Partition,
    ProducerIds,
    Record,
    Topic,
    TopicGone,
    UnknownMetadata,
)
from millstream.cluster.security_records import Account, Acl, ApiKey, Quota, QuotaEntity, Scram, Token
from millstream.wire.acls import AclBinding

PartitionKey = tuple[UUID, int]
_NOTHING: Mapping[str, str] = {}


class PartitionChange(NamedTuple):
    """`old` is None for a new partition, `new` is None for a deleted one."""

    old: Partition | None
    new: Partition | None


@dataclass(slots=True)
class RoleChanges:
    """What one broker has to do about its replicas. A partition is in at most one of the lists."""

    # `become_leader(leader_epoch)`; also when only the epoch grew.
    lead: list[Partition] = field(default_factory=list)
    follow: list[Partition] = field(default_factory=list)  # become_follower(leader, leader_epoch)
    resign: list[Partition] = field(default_factory=list)  # nobody leads now: stop serving, keep the log
    # The old record of a replica that is no longer ours.
    delete: list[Partition] = field(default_factory=list)
    # Same leader and epoch, but ISR or replicas changed.
    update: list[Partition] = field(default_factory=list)


@dataclass(slots=True)
class Delta:
    """What one entry (or one snapshot, or one restart) changed; things that came and went again are not in
    it."""

    version: int
    topics_created: dict[UUID, Topic] = field(default_factory=dict)
    topics_deleted: dict[UUID, Topic] = field(default_factory=dict)
    partitions: dict[PartitionKey, PartitionChange] = field(default_factory=dict)
    configs: set[tuple[str, str]] = field(default_factory=set)  # (scope, key); not those of deleted topics
    brokers: set[int] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    producer_ids: bool = False
    controller: bool = False
    # (table of the image, key) of what is said about ACLs, quotas, tokens and accounts.
    security: set[tuple[str, object]] = field(default_factory=set)

    def changed(self, *tables: str) -> bool:
        """Whether something changed in these tables of `security`."""
        return any(table in tables for table, _ in self.security)

    def topic_configs(self) -> list[UUID]:
        """Topics whose settings changed, new ones with settings included."""
        return [UUID(hex=key) for scope, key in self.configs if scope == SCOPE_TOPIC]

    def has_configs(self, scope: str) -> bool:
        """Whether the settings of any resource of this kind changed."""
        return any(changed == scope for changed, _ in self.configs)

    def broker_configs(self, broker_id: int) -> bool:
        """Whether the settings of this broker, or the default of all brokers, changed."""
        return (SCOPE_BROKER, "") in self.configs or (SCOPE_BROKER, str(broker_id)) in self.configs

    def roles(self, broker_id: int) -> RoleChanges:
        changes = RoleChanges()
        for old, new in self.partitions.values():
            had = old is not None and broker_id in old.replicas
            if new is None or broker_id not in new.replicas:
                if had and old is not None:
                    changes.delete.append(old)
                continue
            if old is not None and had and (old.leader, old.leader_epoch) == (new.leader, new.leader_epoch):
                changes.update.append(new)
            elif new.leader == broker_id:
                changes.lead.append(new)
            elif new.leader == NO_LEADER:
                changes.resign.append(new)
            else:
                changes.follow.append(new)
        return changes

    def _topic_made(self, topic: Topic) -> None:
        if self.topics_deleted.pop(topic.topic_id, None) is None:
            self.topics_created[topic.topic_id] = topic

    def _topic_gone(self, topic: Topic) -> None:
        if self.topics_created.pop(topic.topic_id, None) is None:
            self.topics_deleted[topic.topic_id] = topic
        self.configs.discard((SCOPE_TOPIC, topic.topic_id.hex))

    def _partition(self, key: PartitionKey, old: Partition | None, new: Partition | None) -> None:
        earlier = self.partitions.get(key)
        if earlier is not None:
            old = earlier.old
            if old is None and new is None:
                del self.partitions[key]
                return
        self.partitions[key] = PartitionChange(old, new)


class Image:
    """Everything the log says. Read the attributes; only the applier calls `apply`."""

    __slots__ = (
        "accounts",
        "acls",
        "api_keys",
        "brokers",
        "brokers_down",
        "brokers_gone",
        "configs",
        "controller_epoch",
        "controller_id",
        "features",
        "last_lives",
        "next_producer_id",
        "partitions",
        "quotas",
        "scram",
        "tokens",
        "topics_by_id",
        "topics_by_name",
        "unified_names",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        self.controller_id = -1
        self.controller_epoch = 0
        self.brokers: dict[int, BrokerUp] = {}  # alive
        self.brokers_down: dict[int, int] = {}  # known, not alive: id -> epoch of its last life
        self.brokers_gone: dict[int, int] = {}  # unregistered: id -> epoch of the life that may not return
        self.last_lives: dict[int, BrokerUp] = {}  # what those were, as far as is known
        self.topics_by_id: dict[UUID, Topic] = {}
        self.topics_by_name: dict[str, Topic] = {}
        self.unified_names: dict[str, str] = {}  # name with '.' as '_' -> name, for names with either
        self.partitions: dict[UUID, list[Partition]] = {}  # index in the list = partition number
        self.configs: dict[tuple[str, str], Mapping[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.acls: dict[AclBinding, Acl] = {}
        self.quotas: dict[QuotaEntity, Quota] = {}
        self.scram: dict[tuple[str, int], Scram] = {}
        self.tokens: dict[str, Token] = {}
        self.accounts: dict[str, Account] = {}
        self.api_keys: dict[str, ApiKey] = {}

    # --- reading --------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        return self.topics_by_name.get(name)

    def partition(self, topic_id: UUID, index: int) -> Partition | None:
        partitions = self.partitions.get(topic_id)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def topic_config(self, topic_id: UUID) -> Mapping[str, str]:
        return self.configs.get((SCOPE_TOPIC, topic_id.hex), _NOTHING)

    def broker_config(self, broker_id: int | None = None) -> Mapping[str, str]:
        """The dynamic settings of one broker, or (None) the default of all brokers."""
        return self.configs.get((SCOPE_BROKER, "" if broker_id is None else str(broker_id)), _NOTHING)

    def all_partitions(self) -> Iterator[Partition]:
        for partitions in self.partitions.values():
            yield from partitions

    def partitions_of(self, broker_id: int) -> Iterator[Partition]:
        """Partitions with a replica on that broker. A scan: 6 ms for 100,000, so no index to keep right."""
        for partitions in self.partitions.values():
            for partition in partitions:
                if broker_id in partition.replicas:
                    yield partition

    def reassignments(self) -> Iterator[Partition]:
        return (partition for partition in self.all_partitions() if partition.reassigning)

    def knows_broker(self, broker_id: int) -> bool:
        return broker_id in self.brokers or broker_id in self.brokers_down

    def last_epoch(self, broker_id: int) -> int:
        """Of the broker's present or last life; -1 if there was none."""
        broker = self.brokers.get(broker_id)
        if broker is not None:
            return broker.epoch
        return self.brokers_down.get(broker_id, self.brokers_gone.get(broker_id, -1))

    def active_brokers(self) -> set[int]:
        """Those that may lead and join an ISR: alive and not about to stop."""
        return {broker_id for broker_id, broker in self.brokers.items() if not broker.draining}

    def records(self) -> list[Record]:
        """The image as records: a snapshot. Topics come before their settings and partitions."""
        records: list[Record] = [Controller(self.controller_id, self.controller_epoch)]
        records += (Feature(name, level) for name, level in self.features.items())
        for broker_id, epoch in self.brokers_down.items():
            records += [life] if (life := self.last_lives.get(broker_id)) is not None else []
            records.append(BrokerDown(broker_id, epoch))
        for broker_id, epoch in self.brokers_gone.items():
            records += (BrokerDown(broker_id, epoch), BrokerGone(broker_id))
        records += self.brokers.values()
        records.append(ProducerIds(self.next_producer_id))
        records += self.topics_by_id.values()
        records += (Config(scope, key, dict(values)) for (scope, key), values in self.configs.items())
        for partitions in self.partitions.values():
            records += partitions
        for table in security_records.TABLES:
            records += getattr(self, table).values()
        return records

    def copy(self) -> "Image":
        """A separate image, to try records on. Records and partition lists are shared, being never
        changed."""
        other = Image.__new__(Image)
        for name in Image.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, dict) else value)
        return other

    def become(self, other: "Image") -> None:
        """Becomes a copy of the other, so that those who hold this image see the change."""
        for name in Image.__slots__:
            setattr(self, name, getattr(other, name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Image.__slots__)

    __hash__ = None  # type: ignore[assignment]

    # --- changing -------------------------------------------------------------------------------------------

    def apply(self, records: Iterable[Record], version: int) -> Delta:
        """Takes in one entry (or chunk) of the log; afterwards the image is at `version`."""
        delta = Delta(version)
        self.apply_part(records, delta)
        self.version = version
        return delta

    def apply_part(self, records: Iterable[Record], delta: Delta) -> None:
        """Some records of an entry, in order. What they change goes into `delta`; the version stays as it
        is until the entry is complete."""
        fresh: dict[UUID, list[Partition]] = {}  # lists made by this call, which it may still change
        for record in records:
            if isinstance(record, Partition):
                self._apply_partition(record, delta, fresh)
            else:
                self._apply_other(record, delta, fresh)

    def load(self, records: Iterable[Record], version: int) -> None:
        """As `apply`, but faster: for an image that nobody has read yet, and with nobody to tell what
        changed."""
        delta = Delta(version)
        topic_id: UUID | None = None
        partitions: list[Partition] = []  # of that topic
        for record in records:
            if not isinstance(record, Partition):
                self._apply_other(record, delta, {})
                topic_id = None
                continue
            if record.topic_id is not topic_id:
                topic_id = record.topic_id
                partitions = self._partitions_of_known(topic_id)
            if record.index < len(partitions):
                partitions[record.index] = record
            else:
                _append(partitions, record)
        self.version = version

    def _apply_other(self, record: Record, delta: Delta, fresh: dict[UUID, list[Partition]]) -> None:
        if isinstance(record, Topic):
            self._apply_topic(record, delta, fresh)
        elif isinstance(record, TopicGone):
            self._apply_topic_gone(record, delta, fresh)
        elif isinstance(record, Config):
            self._apply_config(record, delta)
        elif isinstance(record, BrokerUp):
            self.brokers_down.pop(record.broker_id, None)
            self.last_lives.pop(record.broker_id, None)
            self.brokers_gone.pop(record.broker_id, None)
            self.brokers[record.broker_id] = record
            delta.brokers.add(record.broker_id)
        elif isinstance(record, BrokerDown):
            life = self.brokers.pop(record.broker_id, None)
            if life is not None:
                self.last_lives[record.broker_id] = life
            self.brokers_down[record.broker_id] = record.epoch
            delta.brokers.add(record.broker_id)
        elif isinstance(record, BrokerGone):
            epoch = self.brokers_down.pop(record.broker_id, None)
            if epoch is not None:
                self.brokers_gone[record.broker_id] = epoch
            self.last_lives.pop(record.broker_id, None)
            delta.brokers.add(record.broker_id)
        elif isinstance(record, ProducerIds):
            self.next_producer_id = record.next_id
            delta.producer_ids = True
        elif isinstance(record, Feature):
            if record.level:
                self.features[record.name] = record.level
            else:
                self.features.pop(record.name, None)
            delta.features.add(record.name)
        elif isinstance(record, Controller):
            self.controller_id = record.broker_id
            self.controller_epoch = record.epoch
            delta.controller = True
        else:
            kind = security_records.KINDS[type(record)]
            table, key = getattr(self, kind.table), kind.key(record)
            if kind.is_gone(record):
                table.pop(key, None)
            else:
                table[key] = record
            delta.security.add((kind.table, key))

    def _apply_topic(self, topic: Topic, delta: Delta, fresh: dict[UUID, list[Partition]]) -> None:
        if topic.name in self.topics_by_name or topic.topic_id in self.topics_by_id:
            raise UnknownMetadata(f"the metadata log makes topic {topic.name!r} ({topic.topic_id}) twice")
        self.topics_by_id[topic.topic_id] = topic
        self.topics_by_name[topic.name] = topic
        if "." in topic.name or "_" in topic.name:
            self.unified_names[topic.name.replace(".", "_")] = topic.name
        self.partitions[topic.topic_id] = fresh[topic.topic_id] = []
        delta._topic_made(topic)

    def _apply_topic_gone(self, gone: TopicGone, delta: Delta, fresh: dict[UUID, list[Partition]]) -> None:
        topic = self.topics_by_id.pop(gone.topic_id, None)
        if topic is None:
            raise UnknownMetadata(f"the metadata log deletes a topic that it never made: {gone.topic_id}")
        del self.topics_by_name[topic.name]
        self.unified_names.pop(topic.name.replace(".", "_"), None)
        self.configs.pop((SCOPE_TOPIC, gone.topic_id.hex), None)
        fresh.pop(gone.topic_id, None)
        for partition in self.partitions.pop(gone.topic_id):
            delta._partition((gone.topic_id, partition.index), partition, None)
        delta._topic_gone(topic)

    def _apply_partition(self, new: Partition, delta: Delta, fresh: dict[UUID, list[Partition]]) -> None:
        topic_id = new.topic_id
        partitions = fresh.get(topic_id)
        if partitions is None:
            known = self._partitions_of_known(topic_id)
            partitions = self.partitions[topic_id] = fresh[topic_id] = known.copy()
        old: Partition | None = None
        if new.index < len(partitions):
            old = partitions[new.index]
            partitions[new.index] = new
        else:
            _append(partitions, new)
        delta._partition((topic_id, new.index), old, new)

    def _partitions_of_known(self, topic_id: UUID) -> list[Partition]:
        known = self.partitions.get(topic_id)
        if known is None:
            raise UnknownMetadata(
                f"the metadata log has a partition of a topic that it never made: {topic_id}"
            )
        return known

    def _apply_config(self, config: Config, delta: Delta) -> None:
        key = (config.scope, config.key)
        if config.values:
            self.configs[key] = config.values
        else:
            self.configs.pop(key, None)
        delta.configs.add(key)


def _append(partitions: list[Partition], new: Partition) -> None:
    if new.index != len(partitions):
        raise UnknownMetadata(
            f"the metadata log has partition {new.index} of topic {new.topic_id} after only {len(partitions)}"
        )
    partitions.append(new)


def difference(old: Image, new: Image) -> Delta:
    """What leads from one image to another, for those who skip entries by way of a snapshot."""
    delta = Delta(new.version)
    delta.topics_created = {
        topic_id: topic for topic_id, topic in new.topics_by_id.items() if topic_id not in old.topics_by_id
    }
    delta.topics_deleted = {
        topic_id: topic for topic_id, topic in old.topics_by_id.items() if topic_id not in new.topics_by_id
    }
    for topic_id, partitions in new.partitions.items():
        before = old.partitions.get(topic_id, [])
        if before is partitions:
            continue
        for index, partition in enumerate(partitions):
            earlier = before[index] if index < len(before) else None
            if earlier != partition:
                delta.partitions[topic_id, index] = PartitionChange(earlier, partition)
    for topic_id in delta.topics_deleted:
        for partition in old.partitions[topic_id]:
            delta.partitions[topic_id, partition.index] = PartitionChange(partition, None)
    for key in old.configs.keys() | new.configs.keys():
        if old.configs.get(key) != new.configs.get(key):
            delta.configs.add(key)
    delta.configs -= {(SCOPE_TOPIC, topic_id.hex) for topic_id in delta.topics_deleted}
    for broker_id in (
        old.brokers.keys() | new.brokers.keys() | old.brokers_down.keys() | new.brokers_down.keys()
    ):
        if old.brokers.get(broker_id) != new.brokers.get(broker_id) or old.brokers_down.get(
            broker_id
        ) != new.brokers_down.get(broker_id):
            delta.brokers.add(broker_id)
    for name in old.features.keys() | new.features.keys():
        if old.features.get(name) != new.features.get(name):
            delta.features.add(name)
    for table in security_records.TABLES:
        earlier_ones, after = getattr(old, table), getattr(new, table)
        delta.security.update(
            (table, key)
            for key in earlier_ones.keys() | after.keys()
            if earlier_ones.get(key) != after.get(key)
        )
    delta.producer_ids = old.next_producer_id != new.next_producer_id
    delta.controller = (old.controller_id, old.controller_epoch) != (new.controller_id, new.controller_epoch)
    return delta
