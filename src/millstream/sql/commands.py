"""The command topic: every statement that changes something, in one order for all servers.

`_confluent-ksql-<service.id>_command_topic` has one partition and keeps its records for ever. A server that
wants to add a statement takes the transactional id of the service, which fences everybody who was about to
write, reads to the end, checks the statement against the catalog as it is then, and commits one record. Of
two servers that create the same stream at once, one sees the other's record. Catalogs are made from committed
records alone, so they agree.

Keys are ksqlDB's command ids (`stream/ORDERS/create`); values have its field names. The plan is ours, so a
topic that a ksqlDB server has written is refused, as is one with a newer version of our plan.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from millstream.client import (
    EARLIEST,
    LATEST,
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    TransactionalProducer,
    list_offsets,
)
from millstream.client.errors import check
from millstream.client.fetch import next_offset, visible_batches
from millstream.client.transactional import is_fenced
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.sql")

PLAN_VERSION = 1
SETTINGS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
}
_BYTES = 8 << 20
_PAUSE = 0.5


class CommandTopicUnusable(Exception):
    """The topic must not be used; the message says why and what to do."""


class Fenced(Exception):
    """Another server has taken the right to write; try again."""


def topic_name(service_id: str) -> str:
    return f"_confluent-ksql-{service_id}_command_topic"


@dataclass(frozen=True, slots=True)
class Command:
    """A statement as it is kept. `plan` is what the statement was found to mean, so that a later version of
    the analyser does not change it."""

    id: str
    statement: str
    properties: dict[str, Any] = field(default_factory=dict)
    original_properties: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    offset: int = -1

    def key(self) -> bytes:
        kind, entity, operation = self.id.split("/")
        return json.dumps({"type": kind, "entity": entity, "operation": operation}).encode()

    def value(self) -> bytes:
        return json.dumps(
            {
                "statement": self.statement,
                "streamsProperties": self.properties,
                "originalProperties": self.original_properties,
                "plan": {"@type": "millstreamPlan", "version": PLAN_VERSION, **self.plan},
                "version": PLAN_VERSION,
            }
        ).encode()


def parse_command(record: Record, topic: str) -> Command:
    """A record of the topic; CommandTopicUnusable for what we did not write."""
    try:
        key, value = json.loads(record.key or b""), json.loads(record.value or b"")
        command_id = f"{str(key['type']).lower()}/{key['entity']}/{str(key['operation']).lower()}"
        plan = value.get("plan") or {}
        statement = str(value["statement"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandTopicUnusable(
            f"offset {record.offset} of {topic} is no command: the topic is damaged, or belongs to "
            "something else. "
            "Give this server another ksql.service.id"
        ) from None
    if plan.get("@type") != "millstreamPlan":
        raise CommandTopicUnusable(
            f"{topic} was written by ksqlDB, whose plans cannot be run here. Give this server another "
            "ksql.service.id, and enter the statements again"
        )
    if int(plan.get("version", 0)) > PLAN_VERSION:
        raise CommandTopicUnusable(
            f"offset {record.offset} of {topic} was written by a newer version of Millstream (plan version "
            f"{plan['version']}, this one knows {PLAN_VERSION}): upgrade this server, or give it another "
            "ksql.service.id"
        )
    return Command(
        command_id,
        statement,
        dict(value.get("streamsProperties") or {}),
        dict(value.get("originalProperties") or {}),
        {name: part for name, part in plan.items() if name not in ("@type", "version")},
        record.offset,
    )


class CommandTopic:
    """`apply` gets every committed command once, in order, in whichever thread read it."""

    def __init__(
        self, client: ClientConfig, service_id: str, apply: Callable[[Command], None], replication: int = 1
    ) -> None:
        self.name = topic_name(service_id)
        self._apply = apply
        self._replication = replication
        self._partition = TopicPartition(self.name, 0)
        # A cluster's connections belong to one thread at a time: the follower has its own.
        self._reader, self._writer, self._follower = Cluster(client), Cluster(client), Cluster(client)
        self._producer = TransactionalProducer(
            self._writer, f"{self.name}-writer", transaction_timeout_ms=10_000, create_topics=False
        )
        self.position = 0
        self._topic_id: Any = None
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: CommandTopicUnusable | None = None

    def start(self) -> None:
        """Makes the topic if it is not there, replays it, and follows it from then on."""
        self._prepare()
        self.read_to_end()
        self._thread = threading.Thread(target=self._follow, name="command-topic", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5)
        self._reader.close()
        self._writer.close()
        self._follower.close()

    # Reading

    def _prepare(self) -> None:
        problem = self._reader.refresh([self.name]).get(self.name)
        if problem is not None and problem.code is ErrorCode.unknown_topic_or_partition:
            copies = max(1, min(self._replication, len(self._reader.nodes)))
            Admin(self._reader).create_if_missing(NewTopic(self.name, 1, copies, SETTINGS))
            self._reader.wait_for_topics([self.name])
        elif problem is not None:
            raise problem
        count = len(self._reader.topic(self.name).partitions)
        if count != 1:
            raise CommandTopicUnusable(
                f"{self.name} has {count} partitions; commands need one, for their order. Delete the topic, "
                "or give "
                "this server another ksql.service.id"
            )
        first = list_offsets(self._reader, {self._partition: EARLIEST})[self._partition].offset
        if first > 0:
            raise CommandTopicUnusable(
                f"{self.name} begins at offset {first}: earlier commands were deleted, and the catalog "
                "cannot be made "
                "from the rest. Restore the topic, or give this server another ksql.service.id"
            )
        self._topic_id = self._reader.topic_id(self.name)

    def _check_topic(self, cluster: Cluster) -> None:
        """Whether it still is the topic that was read: without it, nothing would be left of the statements
        after the next start."""
        problem = cluster.refresh([self.name]).get(self.name)
        gone = problem is not None and problem.code is ErrorCode.unknown_topic_or_partition
        if not gone and (problem is not None or cluster.topic_id(self.name) == self._topic_id):
            return
        raise CommandTopicUnusable(
            f"{self.name} was deleted{'' if gone else ' and made again'}. The statements that it held run on "
            "until this server ends. Restore the topic, or start the server again, with this ksql.service.id "
            "or another one, and enter the statements again"
        )

    def read_to_end(self) -> int:
        """Applies all that is committed now. Returns the offset of the next record."""
        with self._lock:
            end = list_offsets(self._reader, {self._partition: LATEST}, read_committed=True)
            until = end[self._partition].offset
            if until < self.position:
                raise CommandTopicUnusable(
                    f"{self.name} ends at offset {until}, but was read up to {self.position}: it was "
                    "deleted or cut "
                    "off. Restart this server to begin with what the topic has now"
                )
            fetcher = Fetcher(self._reader, read_committed=True, partition_max_bytes=_BYTES)
            while self.position < until:
                self._poll(fetcher, 100)
            return until

    def _poll(self, fetcher: Fetcher, wait_ms: int) -> None:
        with self._lock:
            position = self.position
        for fetched in fetcher.poll({self._partition: position}, wait_ms):
            if fetched.error is ErrorCode.offset_out_of_range:
                raise CommandTopicUnusable(
                    f"{self.name} has no offset {position} any more: it was deleted or cut off. Restart "
                    "this server "
                    "to begin with what the topic has now"
                )
            check(fetched.error, subject=f"topic {self.name}")
            with self._lock:
                if self.position != position:
                    return
                for _, batch in visible_batches(fetched, position, read_committed=True):
                    for record in iter_records(batch):
                        if record.offset >= position:
                            self._apply(parse_command(record, self.name))
                self.position = max(self.position, next_offset(fetched, position))

    def _follow(self) -> None:
        fetcher = Fetcher(self._follower, read_committed=True, partition_max_bytes=_BYTES)
        failing = False
        while not self._stopping.is_set():
            try:
                self._poll(fetcher, 500)
                if failing:
                    log.info("%s can be read again", self.name)
                    failing = False
            except CommandTopicUnusable as error:
                self.failure = error
                log.error("%s", error)
                return
            except (KafkaError, OSError) as error:
                if not failing and not self._stopping.is_set():
                    log.warning("%s cannot be read: %s", self.name, error)
                    failing = True
                if self._is_gone():
                    return
                self._stopping.wait(_PAUSE)

    def _is_gone(self) -> bool:
        try:
            self._check_topic(self._follower)
        except CommandTopicUnusable as error:
            self.failure = error
            log.error("%s", error)
            return True
        except (KafkaError, OSError):
            pass
        return False

    # Writing

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Callable[[Command], Command]]:
        """The right to append. Inside, the catalog is that of the end of the topic; what is appended is
        committed at once and applied before the call returns. `Fenced` if another server came in between."""
        with self._lock:
            if self.failure is not None:
                raise self.failure
            self._check_topic(self._reader)
            self._guard(self._producer.begin)
            self.next_offset = self.read_to_end()
            yield self._append

    def _append(self, command: Command) -> Command:
        record = Record(0, int(time.time() * 1000), command.key(), command.value(), ())

        def write() -> int:
            offset = self._producer.send(self.name, 0, [record]).offset
            self._producer.commit()
            return offset

        offset = self._guard(write)
        while self.position <= offset:
            self.read_to_end()
        self._producer.begin_next()
        self.next_offset = self.position
        return Command(
            command.id,
            command.statement,
            command.properties,
            command.original_properties,
            command.plan,
            offset,
        )

    @staticmethod
    def _guard(act: Callable[[], Any]) -> Any:
        try:
            return act()
        except KafkaError as error:
            if is_fenced(error):
                raise Fenced("another server is writing commands; send the statement again") from None
            raise
