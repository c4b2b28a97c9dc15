"""One consumer that lives between requests.

Requests to an instance come one after the other (a lock); what may wait runs in a thread. Asking librdkafka
for records that it has fetched already does not wait, so a request for records asks, sleeps a little in the
loop, and asks again: a hundred instances that wait for records need no threads for it.

What counts as read is what a client was given, not what was fetched. With auto commit an answer's records
count from the next request on, for a client that never comes back may not have got them.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from millstream.rest import errors
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")
Run = Callable[[Callable[[], Any]], Awaitable[Any]]
# Records taken from librdkafka in one call.
AT_ONCE = 500
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.05
BLOCKING = 10.0  # seconds for what a broker has to answer
IDLE = 30.0  # an instance that nobody asks stops fetching after that
AFTER_IDLE = 0.5  # and its next request may take so long, however short it is to be
EXCLUSIVE = "Subscription to topics, partitions and pattern are mutually exclusive"
# What a consumer says beside records, and what goes by without anybody doing anything.
_PASSING = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


@dataclass(frozen=True, slots=True)
class Options:
    """What a client chose when it made the instance."""

    form: str
    wait: float  # seconds
    min_bytes: int
    auto_commit: bool


class Instance:
    def __init__(self, group: str, name: str, options: Options, consumer: Consumer, run: Run) -> None:
        self.group = group
        self.name = name
        self.options = options
        self.lock = asyncio.Lock()
        self.used = time.monotonic()
        self.pattern: Any = None
        self.topics: list[str] = []
        self.closing = False
        self._consumer = consumer
        self._run = run
        self._mode = ""  # topics, pattern or partitions: they exclude each other
        self._pending: deque[Message] = deque()  # fetched, not given out yet
        self._given: dict[TopicPartition, int] = {}  # the offset after the last record that the client got
        self._stored: dict[TopicPartition, int] = {}
        self._paused = False

    # Records

    async def read(
        self,
        wait: float,
        max_bytes: int,
        render: Callable[[list[Message]], Awaitable[tuple[Any, int]]],
    ) -> Any:
        """What `render` makes of the next records. It tells how many it could; the others stay for the next
        time."""
        async with self.lock:
            try:
                self._acknowledge()
                if self._paused:
                    await self._run(self._resume)
                    wait = max(wait, AFTER_IDLE)
                taken = await self._take(wait, max_bytes)
            except KafkaException as error:
                raise errors.for_client(error) from None
            except RuntimeError:  # closed while this request waited for the one before
                raise errors.instance_not_found() from None
            try:
                body, count = await render(taken)
            except BaseException:
                self._pending.extendleft(reversed(taken))
                raise
            self._pending.extendleft(reversed(taken[count:]))
            for message in taken[:count]:
                self._given[message.topic(), message.partition()] = message.offset() + 1  # type: ignore[index,operator]
            self.used = time.monotonic()
            return body

    async def _take(self, wait: float, max_bytes: int) -> list[Message]:
        taken: list[Message] = []
        size = 0
        deadline = time.monotonic() + wait
        pause = FIRST_PAUSE
        enough = self.options.min_bytes
        pending = self._pending
        while True:
            if not pending:
                self._fetch(AT_ONCE)
            while pending:
                message = pending[0]
                more = len(message.key() or b"") + len(message.value() or b"")
                if taken and size + more > max_bytes:
                    return taken
                taken.append(pending.popleft())
                size += more
            if len(taken) and (size > enough if enough >= 0 else True):
                if len(taken) % AT_ONCE:
                    return taken
                if not self._fetch(AT_ONCE):
                    return taken
                continue
            left = deadline - time.monotonic()
            if left <= 0 or self.closing:
                return taken
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _fetch(self, limit: int) -> int:
        """Records that librdkafka has, into `_pending`. Does not wait."""
        count = 0
        for message in self._consumer.consume(limit, 0):
            error = message.error()
            if error is None:
                self._pending.append(message)
                count += 1
            elif error.code() not in _PASSING:
                raise errors.for_client(error)
            else:
                log.debug("%s/%s: %s", self.group, self.name, error)
        return count

    def _revoked(self, consumer: Consumer, partitions: list[ConfluentTopicPartition]) -> None:
        self._forget(TopicPartition(one.topic, one.partition) for one in partitions)

    def _forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """What was fetched of these partitions is no longer what comes next."""
        gone = set(topic_partitions)
        kept = [one for one in self._pending if (one.topic(), one.partition()) not in gone]
        self._pending.clear()  # in place: this happens while a request looks at it, too
        self._pending.extend(kept)
        for topic_partition in gone:
            self._given.pop(topic_partition, None)
            self._stored.pop(topic_partition, None)

    def _acknowledge(self) -> None:
        """The client asks for more, so it has what it was given: auto commit may commit it."""
        if not self.options.auto_commit:
            return
        for topic_partition, offset in self._given.items():
            if self._stored.get(topic_partition) != offset:
                try:
                    self._consumer.store_offsets(offsets=[ConfluentTopicPartition(*topic_partition, offset)])
                except KafkaException as error:  # the partition belongs to another member now
                    log.debug("%s/%s: %s", self.group, self.name, error)
                self._stored[topic_partition] = offset

    # Which partitions

    async def subscribe(self, topics: Sequence[str], pattern: Any = None) -> None:
        mode = "topics" if pattern is None else "pattern"
        if self._mode not in ("", mode):
            raise errors.illegal_state(EXCLUSIVE)
        self._mode = mode
        self.pattern = pattern
        await self._act(lambda: self._subscribe(topics))

    async def follow(self, topics: Sequence[str]) -> None:
        """Topics that the pattern matches now."""
        if list(topics) != self.topics and not self.closing:
            await self._act(lambda: self._subscribe(topics))

    def _subscribe(self, topics: Sequence[str]) -> None:
        if topics:
            self._consumer.subscribe(list(topics), on_revoke=self._revoked)
        else:
            self._consumer.unsubscribe()
        self.topics = list(topics)

    async def unsubscribe(self) -> None:
        def act() -> None:
            self._acknowledge()
            if self._mode == "partitions":
                self._consumer.unassign()
            else:
                self._consumer.unsubscribe()
            self._pending.clear()
            self._given.clear()
            self._stored.clear()
            self.topics = []
            self.pattern = None
            self._mode = ""

        await self._act(act)

    async def assign(self, topic_partitions: Sequence[TopicPartition]) -> None:
        if self._mode in ("topics", "pattern"):
            raise errors.illegal_state(EXCLUSIVE)

        def act() -> None:
            self._acknowledge()
            kept = {(one.topic, one.partition) for one in self._consumer.assignment()} & set(topic_partitions)
            wanted = [
                ConfluentTopicPartition(*one, self._next(one) if one in kept else -1001)
                for one in topic_partitions
            ]
            self._forget([one for one in list(self._given) if one not in kept])
            self._pending.clear()  # comes again, from where the client is
            self._consumer.assign(wanted)
            self._mode = "partitions" if topic_partitions else ""

        await self._act(act)

    def _next(self, topic_partition: TopicPartition) -> int:
        """The offset of the next record for the client; -1001 if that is up to the group and the reset
        policy."""
        for message in self._pending:
            if (message.topic(), message.partition()) == topic_partition:
                return int(message.offset())  # type: ignore[arg-type]
        return self._given.get(topic_partition, -1001)

    async def assignment(self) -> list[TopicPartition]:
        found = await self._act(self._consumer.assignment)
        return sorted(TopicPartition(one.topic, one.partition) for one in found)

    # Positions

    async def seek(self, offsets: Sequence[tuple[str, int, int]]) -> None:
        await self._act(lambda: self._seek(offsets))

    def _seek(self, offsets: Sequence[tuple[str, int, int]]) -> None:
        held = {(one.topic, one.partition) for one in self._consumer.assignment()}
        for topic, partition, _ in offsets:
            if (topic, partition) not in held:
                raise errors.illegal_state(f"No current assignment for partition {topic}-{partition}")
        for topic, partition, offset in offsets:
            self._acknowledge()
            self._seek_one(ConfluentTopicPartition(topic, partition, offset))
            self._forget([TopicPartition(topic, partition)])

    def _seek_one(self, topic_partition: ConfluentTopicPartition) -> None:
        """A partition that was just assigned cannot be moved in at once."""
        deadline = time.monotonic() + BLOCKING
        while True:
            try:
                self._consumer.seek(topic_partition)
                return
            except KafkaException as error:
                passing = error.args[0].code() in (KafkaError._STATE, KafkaError._PREV_IN_PROGRESS)
                if not passing or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    async def seek_to_edge(self, topic_partitions: Sequence[TopicPartition], *, end: bool) -> None:
        def act() -> None:
            held = {(one.topic, one.partition) for one in self._consumer.assignment()}
            offsets = []
            for topic_partition in topic_partitions:
                if topic_partition not in held:
                    raise errors.illegal_state(
                        f"No current assignment for partition {topic_partition[0]}-{topic_partition[1]}"
                    )
                low, high = self._watermarks(topic_partition)
                offsets.append((*topic_partition, high if end else low))
            self._seek(offsets)

        await self._act(act)

    async def seek_to_times(self, times: Sequence[tuple[str, int, int]]) -> None:
        """To the first record at or after a moment (milliseconds), or to the end."""

        def act() -> None:
            wanted = [ConfluentTopicPartition(topic, partition, moment) for topic, partition, moment in times]
            found = self._consumer.offsets_for_times(wanted, timeout=BLOCKING)
            self._seek(
                [
                    (
                        one.topic,
                        one.partition,
                        one.offset
                        if one.offset >= 0
                        else self._watermarks(TopicPartition(one.topic, one.partition))[1],
                    )
                    for one in found
                ]
            )

        await self._act(act)

    def _watermarks(self, topic_partition: TopicPartition) -> tuple[int, int]:
        found: Any = self._consumer.get_watermark_offsets(
            ConfluentTopicPartition(*topic_partition), timeout=BLOCKING
        )
        if found is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return int(found[0]), int(found[1])

    # Offsets

    async def commit(self, offsets: Sequence[tuple[str, int, int, str | None]] | None) -> None:
        """Commit these, or all that the client was given."""

        def act() -> None:
            if offsets is None:
                wanted = [
                    ConfluentTopicPartition(*topic_partition, offset)
                    for topic_partition, offset in self._given.items()
                ]
            else:
                wanted = [
                    ConfluentTopicPartition(topic, partition, offset, metadata)
                    if metadata is not None
                    else ConfluentTopicPartition(topic, partition, offset)
                    for topic, partition, offset, metadata in offsets
                ]
            if not wanted:
                return
            for one in self._consumer.commit(offsets=wanted, asynchronous=False) or []:
                if one.error is not None:
                    raise KafkaException(one.error)
            if offsets is None:
                self._stored.update(self._given)

        await self._act(act)

    async def committed(self, topic_partitions: Sequence[TopicPartition]) -> list[tuple[str, int, int, str]]:
        def act() -> list[tuple[str, int, int, str]]:
            wanted = [ConfluentTopicPartition(*topic_partition) for topic_partition in topic_partitions]
            found = self._consumer.committed(wanted, timeout=BLOCKING)
            return [
                (one.topic, one.partition, one.offset, one.metadata or "")
                for one in found
                if one.offset >= 0 and one.error is None
            ]

        return await self._act(act)

    # Life

    def log_in_as(self, user: str, password: str) -> None:
        """Whenever it logs in again; does not wait."""
        if not self.closing:
            self._consumer.set_sasl_credentials(user, password)

    async def _act(self, act: Callable[[], T]) -> T:
        async with self.lock:
            self.used = time.monotonic()
            try:
                result: T = await self._run(act)
            except KafkaException as error:
                raise errors.for_client(error) from None
            except RuntimeError:  # closed meanwhile
                raise errors.instance_not_found() from None
            return result

    def _resume(self) -> None:
        self._paused = False
        held = self._consumer.assignment()
        if held:
            self._consumer.resume(held)

    async def keep(self) -> None:
        """While nobody asks: fetch nothing, but take part in the group, or its other members would wait for
        this one."""
        if (
            self.lock.locked()
            or time.monotonic() - self.used < IDLE
            or self._mode not in ("topics", "pattern")
        ):
            return
        async with self.lock:
            await self._run(self._idle)

    def _idle(self) -> None:
        if self.closing:
            return
        try:
            self._paused = True
            held = self._consumer.assignment()
            if held:
                self._consumer.pause(held)
            if len(self._pending) < 2 * AT_ONCE:
                self._fetch(1)
        except (KafkaException, errors.RestError, RuntimeError) as error:
            log.debug("%s/%s: %s", self.group, self.name, error)

    async def close(self) -> None:
        self.closing = True
        async with self.lock:

            def act() -> None:
                try:
                    self._acknowledge()
                    self._consumer.close()
                except (KafkaException, RuntimeError) as error:
                    log.warning("closing %s/%s: %s", self.group, self.name, error)
                self._pending.clear()

            await self._run(act)
