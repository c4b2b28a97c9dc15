"""Who may commit for a unit, when all units of a lane commit in one transaction.

A transaction for each unit would be fenced by the unit's own transactional id, but costs a broker five
requests and a dozen writes for each unit and interval. So the units of an application in a lane share one
transactional id (`<application>-lane-<uuid>`, a new one for each lane), and another rule keeps a lane that
lost a unit from committing for it: **whoever opens a unit fences the lane that owned it before.**

The owner of a unit stands beside its committed offsets, and in its marker (`progress`). A unit is opened so:

    1. InitProducerId for the unit's own id (`<application>-<unit>`). Of several who open it at the same time,
       the last one to do this goes on; step 4 of the others fails.
    2. Read the owner. InitProducerId for his id: his open transaction is aborted, and he commits nothing
       any more. It answers when the end of his last transaction is in every log.
    3. Read the offsets. They are final, because nobody else can commit. If they name another owner (a
       coordinator of an older Kafka applies a transaction after it has reported its end), once more from 2.
    4. In a transaction of the unit's own id, commit the same offsets with this lane as owner.

From then on the lane's transactions hold the unit's offsets, with the same owner beside them.

Why no two lanes commit for a unit: let the owners of a unit be o1, o2, ... in the order in which step 4
wrote them. Step 4 is fenced by any step 1 that came between, so whoever wrote o(k+1) had read o(k) and fenced
it before. A lane that was fenced never takes its old id again: it makes another one, which owns nothing. So
when o(k+1) is written, none of o1 to o(k) can commit, whatever it believes, however long it was stopped.

A lane that lets a unit go (it is closed, or has failed) clears the owner, so that its other units are not
fenced by the next one. It does so in a transaction of its own, which cannot begin before the lane's last one
is complete in every log: who finds no owner may read changelogs to their end. If clearing fails, the next
owner fences the lane, and all of its units are opened again: a pause, not an error.

In the second transaction protocol each end of a transaction gives the lane another epoch (and sometimes
another producer id) under the same transactional id; InitProducerId goes beyond that one, too.

New inputs of a running unit (a pattern's) are taken by the same steps, with the unit's id of step 1.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from millstream.client import ClientConfig, Cluster, TransactionalProducer
from millstream.client.transaction_commits import TransactionCommit, commit_all
from millstream.client.transactional import SECOND
from millstream.host.progress import Markers, without_owner
from millstream.host.unit import UnitId
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.host")

RELEASE_SECONDS = 3.0
"""A broker that is away does not keep a lane from ending."""


def _lane_transactional_id(application: str, owner: str) -> str:
    return f"{application}-lane-{owner}"


def fence_owner(cluster: Cluster, application: str, owner: str, timeout_ms: int) -> None:
    """From now on this lane commits nothing for the application; what it had open is aborted everywhere."""
    name = _lane_transactional_id(application, owner)
    TransactionalProducer(cluster, name, transaction_timeout_ms=timeout_ms).begin()


@dataclass(slots=True)
class Claim:
    """A unit's right to commit in the transactions of its lane. `fence`, then `take`."""

    producer: TransactionalProducer
    owner: str
    _unit_producer: TransactionalProducer
    _cluster: Cluster
    _markers: Markers
    _timeout_ms: int
    application: str
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    metadata: dict[TopicPartition, str] = field(default_factory=dict)

    def fence(self, owners: Iterable[str]) -> None:
        """Step 2, for everybody who may still believe to be the owner."""
        for owner in owners:
            if owner == self.owner:
                # This lane, which could not clear it: only its last transaction is waited for.
                self.producer.announce_group(self.application)
                self.producer.abort()
                self.producer.begin_next()
            else:
                fence_owner(self._cluster, self.application, owner, self._timeout_ms)

    def take(self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str]) -> None:
        """Step 4. KafkaError if someone else has opened the unit meanwhile."""
        commit = TransactionCommit(
            self._unit_producer, [], self.application, offsets, metadata, owner=self.owner
        )
        for error in commit_all(self._cluster, [commit], self._markers.join).values():
            raise error
        self.offsets.update(offsets)
        self.metadata.update(metadata)

    def commit(
        self,
        rounds: list[dict[TopicPartition, bytearray | memoryview]],
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str],
        few: Mapping[TopicPartition, Sequence[Record]] | None = None,
    ) -> TransactionCommit:
        """What the unit's part of the lane's next transaction is."""
        return TransactionCommit(
            self.producer, rounds, self.application, offsets, metadata, few or {}, owner=self.owner
        )

    def committed(self, commit: TransactionCommit) -> None:
        self.offsets, self.metadata = dict(commit.offsets), dict(commit.metadata)


class LaneTransactions:
    """The transactional ids of a lane, one for each application, and the claims of its units."""

    def __init__(self) -> None:
        self._producers: dict[str, tuple[str, TransactionalProducer]] = {}
        self._claims: dict[UnitId, tuple[ClientConfig, Claim]] = {}

    def __contains__(self, unit_id: object) -> bool:
        return unit_id in self._claims

    def claim(self, config: ClientConfig, cluster: Cluster, unit_id: UnitId, timeout_ms: int) -> Claim:
        """Step 1."""
        application = unit_id.application
        unit_producer = TransactionalProducer(
            cluster,
            f"{application}-{unit_id.name}",
            transaction_timeout_ms=timeout_ms,
            create_topics=False,
            newest=SECOND,
        )
        unit_producer.begin()
        owner, producer = self._producer(cluster, application, timeout_ms)
        claim = Claim(producer, owner, unit_producer, cluster, Markers(cluster), timeout_ms, application)
        self._claims[unit_id] = (config, claim)
        return claim

    def _producer(
        self, cluster: Cluster, application: str, timeout_ms: int
    ) -> tuple[str, TransactionalProducer]:
        known = self._producers.get(application)
        if known is not None and known[1].producer_id >= 0:
            return known
        owner = uuid.uuid4().hex
        producer = TransactionalProducer(
            cluster,
            _lane_transactional_id(application, owner),
            transaction_timeout_ms=timeout_ms,
            create_topics=False,
            shared=True,
            newest=SECOND,
        )
        producer.begin()
        self._producers[application] = owner, producer
        return owner, producer

    def release_all(self) -> None:
        self.release(list(self._claims))

    def release(self, unit_ids: Iterable[UnitId]) -> None:
        """These units are closed here: whoever opens one next need not fence this lane."""
        by_producer: dict[int, list[tuple[ClientConfig, Claim]]] = {}
        for unit_id in unit_ids:
            found = self._claims.pop(unit_id, None)
            if found is not None and found[1].offsets and found[1].producer.producer_id >= 0:
                by_producer.setdefault(id(found[1].producer), []).append(found)
        for claims in by_producer.values():
            config, first = claims[0]
            try:
                _clear(config, [claim for _, claim in claims])
            except KafkaError as error:
                log.info(
                    "%s keeps what it owned until it is fenced: %s", first.producer.transactional_id, error
                )
                first.producer.give_up()
        applications = {unit_id.application for unit_id in self._claims}
        for application in self._producers.keys() - applications:
            del self._producers[application]


def _clear(config: ClientConfig, claims: list[Claim]) -> None:
    offsets = {which: offset for claim in claims for which, offset in claim.offsets.items()}
    metadata = {which: text for claim in claims for which, text in claim.metadata.items()}
    impatient = replace(
        config,
        total_timeout=min(config.total_timeout, RELEASE_SECONDS),
        request_timeout=min(config.request_timeout, RELEASE_SECONDS),
        connect_timeout=min(config.connect_timeout, RELEASE_SECONDS),
    )
    with Cluster(impatient) as cluster:
        gone = cluster.refresh({topic for topic, _ in offsets})  # deleted, and their offsets with them
        offsets = {which: offset for which, offset in offsets.items() if which.topic not in gone}
        if offsets:
            producer = TransactionalProducer.resume(cluster, claims[0].producer.handle())
            producer.commit_offsets(claims[0].application, offsets, without_owner(metadata))
            producer.commit()
            if producer.version >= SECOND:
                claims[0].producer.go_on_as(producer.producer_id, producer.producer_epoch)
