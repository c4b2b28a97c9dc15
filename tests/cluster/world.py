"""Helpers of these tests: a cluster that exists only as an image, and commands decided and applied at
once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, TypeVar, cast
from uuid import UUID

from millstream.cluster.commands import BrokerLost, Command, CreateTopics, NewTopic, RegisterBroker
from millstream.cluster.controller import Context, Decision, decide
from millstream.cluster.image import Delta, Image
from millstream.cluster.metadata_records import Endpoint, Partition, Record
from millstream.wire.errors import KafkaError

R = TypeVar("R")


def topic_id(number: int) -> UUID:
    return UUID(int=(1 << 100) + number)


class World:
    """Decides a command, applies what it comes to, and keeps every record ever made."""

    def __init__(self, *brokers: int, racks: Mapping[int, str] | None = None, **context: Any) -> None:
        ids = count(1)
        context.setdefault("new_topic_id", lambda: topic_id(next(ids)))
        context.setdefault("below", lambda n: 0)
        self.context = Context(**context)
        self.image = Image()
        self.log: list[list[Record]] = []
        self.epochs = count(1)
        for broker_id in brokers:
            self.up(broker_id, rack=(racks or {}).get(broker_id))

    def decide(self, command: Command[Any]) -> Decision:
        return decide(self.image, command, self.context)

    def apply(self, *records: Record) -> Delta:
        self.log.append(list(records))
        return self.image.apply(records, self.image.version + 1)

    def do(self, command: Command[R]) -> R:
        decision = self.decide(command)
        if isinstance(decision.reply, KafkaError):
            assert not decision.records
            raise decision.reply
        if decision.records:
            self.apply(*decision.records)
        return cast(R, decision.reply)

    def up(self, broker_id: int, *, rack: str | None = None, **more: Any) -> int:
        epoch = next(self.epochs)
        endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092)
        return self.do(RegisterBroker(broker_id, epoch, f"life-{epoch}", (endpoint,), rack, **more))

    def draining(self, broker_id: int, value: bool = True) -> None:
        broker = self.image.brokers[broker_id]
        self.do(
            RegisterBroker(
                broker_id, broker.epoch, broker.incarnation, broker.endpoints, broker.rack, draining=value
            )
        )

    def down(self, broker_id: int) -> None:
        self.do(BrokerLost(broker_id, self.image.brokers[broker_id].epoch))

    def topic(self, name: str, *assignments: tuple[int, ...], **configs: str) -> UUID:
        """A topic whose partitions have these replicas; settings with _ for the dots."""
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        [made] = self.do(
            CreateTopics([NewTopic(name, assignments=list(enumerate(assignments)), configs=settings)])
        )
        assert made.topic_id is not None, made.message
        return made.topic_id

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.image.partitions[self.image.topics_by_name[name].topic_id][index]


def shape(p: Partition) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """What most tests ask about: leader, ISR, ELR."""
    return p.leader, p.isr, p.elr
