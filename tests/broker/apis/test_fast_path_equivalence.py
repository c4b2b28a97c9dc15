"""The fast paths of Produce and Fetch change nothing but speed: twins prove it.

Two brokers in miniature (real dispatcher, handlers, partitions and logs; connections and clock of our own)
get the same random requests, right and hostile, and the same events: another leader epoch, a smaller ISR,
changed settings, open and aborted transactions, fsyncs, timers, cold files. One twin may take its fast paths,
the other never does; in half of the examples its log has no fast append either. After every step both must
agree in everything that anybody can see: responses, files, indexes, producers, counters, watermarks, and who
waits for what. Where chance would find a difference too seldom, the tests below it try everything: each event
after a template is learned, each bit of a request that repeats one.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.broker.apis import fetch_fast_path, produce, produce_fast_path
from millstream.broker.apis.fetch import FetchHandler
from millstream.broker.apis.fetch_sessions import LAST_EPOCH, FetchSessions, Session
from millstream.broker.apis.pending_produce import PendingProduce, ProduceQueue
from millstream.broker.apis.produce import ProduceHandler
from millstream.broker.network import file_range
from millstream.broker.network.dispatch import Api, Dispatcher
from millstream.broker.network.file_range import FileRange
from millstream.broker.partition import Partition
from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog
from millstream.wire.batch import TRANSACTIONAL
from millstream.wire.errors import KafkaError
from millstream.wire.produce import BEHIND_RECORDS
from tests.support.effort import examples

from ...storage.batches import NOW, batch, real, sealed
from ..raw_frames import request

TOPIC, TOPIC_ID = "orders", uuid.UUID(int=7)
OTHER_ID = uuid.UUID(int=8)
PARTITIONS = 2
CONNECTIONS = 3  # the first for producing, the last for fetching, the other for both
EPOCH = 3
SESSIONS = 2
CONFIG = LogConfig(segment_bytes=120_000, index_interval_bytes=2000, max_message_bytes=40_000)


class LogWithoutFastAppend(PartitionLog):
    """Leaves every batch to the append that looks at everything."""

    __slots__ = ()

    def append_fast(self, batch: memoryview, header: tuple[int, ...], epoch: int, now_ms: int) -> int:
        return -1


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW
        self.cold = False

    def time_ns(self) -> int:
        return self.now_ms * 1_000_000

    def not_in_memory(self, part: FileRange) -> bool:
        return self.cold and not part.newest


class Loop:
    """The event loop as handlers use it, with the twins' clock and timers that fire when the test says so."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.passed = 0.0  # seconds, by timers
        self.timers: list[tuple[float, Callable[[], None], SimpleNamespace]] = []

    def time(self) -> float:
        return self.clock.now_ms / 1000 + self.passed

    def create_task(self, work: Any) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)

    def call_later(self, delay: float, callback: Callable[[], None]) -> SimpleNamespace:
        timer = SimpleNamespace(cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append((delay, callback, timer))
        return timer

    def waiting(self) -> list[float]:
        self.timers = [row for row in self.timers if not row[2].cancelled]
        return [round(delay, 3) for delay, _, _ in self.timers]

    def fire(self) -> None:
        self.passed += max(self.waiting(), default=0)
        fired, self.timers = self.timers, []
        for _, callback, timer in fired:
            if not timer.cancelled:
                callback()


class Connection:
    """What a handler sees of a connection; keeps what it was asked to send."""

    peer = "127.0.0.1:50000"
    context = SimpleNamespace(name="PLAINTEXT")
    may_pipeline = True

    def __init__(self, loop: Loop, dispatcher: Dispatcher) -> None:
        self.loop = loop
        self.dispatcher = dispatcher
        self.client_id = ""
        self.closed = ""
        self.parked = False
        self.pending: Any = None
        self.sent: list[bytes] = []
        self.fast_path: Any = None

    def send(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    send_with_others = send

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        work()

    def send_parts(self, parts: list[Any]) -> None:
        sent = b""
        for part in parts:
            if isinstance(part, FileRange):
                sent += part.segment.read(part.position, part.size)
                part.release()
            else:
                sent += bytes(part)
        self.sent.append(sent)

    def park(self, pending: Any) -> None:
        self.parked, self.pending = True, pending

    def resume(self) -> None:
        self.parked, self.pending = False, None

    def keep_frame(self, frame: memoryview) -> Any:
        return SimpleNamespace(frame=memoryview(bytes(frame)), give_back=lambda: None)

    def close(self, reason: str = "") -> None:
        self.closed = reason or "closed"


class Twin:
    def __init__(self, folder: Path, clock: Clock, *, fast: bool, fast_append: bool) -> None:
        self.folder = folder
        self.clock = clock
        self.loop = Loop(clock)
        opener = PartitionLog if fast_append else LogWithoutFastAppend
        self.partitions = []
        for index in range(PARTITIONS):
            log = opener.open(folder / f"{TOPIC}-{index}", CONFIG)
            partition = Partition(TOPIC, TOPIC_ID, index, log)
            partition.leader = 1
            partition.become_leader(EPOCH, (1,), (1,))
            self.partitions.append(partition)
        hosted = dict(enumerate(self.partitions))
        table: Any = SimpleNamespace(
            by_name={TOPIC.encode(): hosted},
            by_id={TOPIC_ID.bytes: hosted},
            lacks_log=lambda _topic, _index: False,
        )
        self.produce = ProduceHandler(table, self.loop)  # type: ignore[arg-type]
        sessions = FetchSessions(SESSIONS, itertools.count(1).__next__)  # the same for both twins
        self.fetch = FetchHandler(table, sessions, 200_000, 10)
        self.produce.api = Api(0, "Produce", 3, 13, raw=self.produce.handle)
        self.fetch.api = Api(1, "Fetch", 4, 18, raw=self.fetch.handle)
        self.dispatcher = Dispatcher()
        self.dispatcher.serve(self.produce.api)
        self.dispatcher.serve(self.fetch.api)
        self.connections = [Connection(self.loop, self.dispatcher) for _ in range(CONNECTIONS)]
        self.fast = fast

    def dispatch(self, number: int, frame: bytes) -> None:
        """A frame arrives among other bytes. A closed connection is replaced; a parked one is not read."""
        connection = self.connections[number]
        if connection.closed:
            connection = self.connections[number] = Connection(self.loop, self.dispatcher)
        if not self.fast:
            connection.fast_path = None
        if not connection.parked:
            view = memoryview(bytearray(b"before" + frame + b"\0after"))
            self.dispatcher.dispatch(connection, view, 6, 6 + len(frame))  # type: ignore[arg-type]

    async def settle(self) -> None:
        """Let fsyncs and reads of cold ranges end."""
        while tasks := {
            *(partition._flush for partition in self.partitions if partition._flush is not None),
            *self.fetch.tasks,
            *self.produce.tasks,
        }:
            await asyncio.gather(*tasks)

    def observe(self) -> dict[str, Any]:
        """Everything that somebody outside could see."""
        return {
            "connections": [(c.sent, c.closed, c.parked, _kind(c.pending)) for c in self.connections],
            "timers": self.loop.waiting(),
            "counters": (self.produce.failed, self.fetch.failed, self.fetch.cold_reads),
            "requests": [(api.name, api.requests) for api in self.dispatcher.apis.values()],
            "malformed": self.dispatcher.malformed,
            "parked fetches": len(self.fetch.parked),
            "sessions": [
                self._observe_session(session) for session in self.fetch.sessions._sessions.values()
            ],
            "partitions": [self._observe(partition) for partition in self.partitions],
            "files": self.files(),
        }

    def _observe(self, partition: Partition) -> dict[str, Any]:
        log = partition.log
        return {
            "bytes and messages": (partition.bytes_in, partition.bytes_out, partition.messages_in),
            "offsets": (log.start_offset, log.last_stable_offset, log.high_watermark, log.end_offset),
            "ack waiters": [(offset, epoch) for offset, epoch, _ in partition.ack_waiters],
            "fetch waiters": len(partition.fetch_waiters),
            "flushing": partition._flush is not None,
            "producers": log.describe_producers(),
            "epochs": (log.epochs.starts, log.epochs.epochs),
            "segments": [
                (
                    segment.base_offset,
                    segment.size,
                    segment.newest(),
                    list(segment.index.offsets),
                    list(segment.index.positions),
                    segment.refs,
                )
                for segment in log.segments
            ],
        }

    def _observe_session(self, session: Session) -> list[Any]:
        cached = [
            (key, each.want, each.high_watermark, each.last_stable, each.log_start)
            for key, each in session.partitions.items()
        ]
        return [session.id, session.epoch, session.last_used, session.by_id, cached]

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    def close(self) -> None:
        self.dispatcher.close()
        for partition in self.partitions:
            partition.log.close(clean=True)


def _kind(pending: object) -> type:
    """Produce requests wait in a queue or by themselves."""
    return PendingProduce if isinstance(pending, ProduceQueue) else type(pending)


Step = Callable[[Twin], None]
taken: Counter[str] = Counter()  # how often a fast path served a request, over all examples


# -------------------------------------------------------------------- requests

RecordSet = Callable[[int], bytes | None]


@st.composite
def record_sets(draw: st.DrawFn) -> RecordSet:
    """What the n-th of some requests carries: mostly one good batch, with the next sequence number if any."""
    size = draw(st.sampled_from([68, 125, 126, 127, 128, 200, 5000, 16_383, 16_384, 20_000]))
    shape = draw(
        st.sampled_from([*["good"] * 8, *["idempotent"] * 4, "in a transaction", "real", "odd", "bad"])
    )
    if shape == "good":
        return lambda _: bytes(batch(size=size))
    if shape == "idempotent":
        producer, epoch, first = draw(st.integers(5, 6)), draw(st.integers(0, 1)), draw(st.integers(0, 2))
        step = draw(st.sampled_from([1, 1, 1, 0, 2]))
        return lambda count: bytes(
            batch(
                size=size,
                producer=producer,
                epoch=epoch,
                sequence=first + step * count,
            )
        )
    if shape == "in a transaction":  # that may be open, but the request does not name it
        return lambda count: bytes(
            batch(size=size, producer=9, epoch=0, sequence=1 + count, attributes=TRANSACTIONAL)
        )
    if shape == "real":
        values = list(draw(st.lists(st.binary(max_size=50), min_size=1, max_size=5)))
        codec = draw(st.integers(0, 4))
        return lambda _: bytes(real(values, codec=codec))
    if shape == "odd":
        odd = bytes(
            batch(
                draw(st.integers(1, 4)),
                draw(st.sampled_from([200, 50_000])),
                timestamp=NOW + draw(st.sampled_from([0, -(10**9), 10**8, -NOW - 1])),
                attributes=draw(st.sampled_from([0, 1, 4, 5, 7, 8, 0x20, 0x40])),
            )
        )
        return lambda _: odd
    bad = draw(bad_record_sets())
    return lambda _: bad


@st.composite
def bad_record_sets(draw: st.DrawFn) -> bytes | None:
    data = bytearray(batch(size=200))
    damage = draw(st.sampled_from(["flip", "flip and seal", "cut", "longer", "two", "empty", "null"]))
    if damage.startswith("flip"):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
        return bytes(data) if damage == "flip" else bytes(sealed(data))
    if damage == "null":
        return None
    cut = draw(st.integers(0, 199))
    return bytes({"cut": data[:cut], "longer": data + b"\0", "two": data * 2, "empty": b""}[damage])


@st.composite
def repeated(draw: st.DrawFn, make: Callable[[int], bytes]) -> list[bytes]:
    """Some requests of one template, one of which may be damaged."""
    frames = [make(count) for count in range(draw(st.integers(2, 5)))]
    at = draw(st.integers(0, len(frames) - 1))
    frame = frames[at]
    damage = draw(st.sampled_from([*[""] * 6, "flip", "flip", "cut", "longer", "tag"]))
    if damage == "flip":
        changed = bytearray(frame)
        # Headers and ends are more interesting than the filler of a batch.
        near = min(len(frame), 160)
        position = draw(st.one_of(st.integers(0, near - 1), st.integers(-near, -1)))
        changed[position] ^= 1 << draw(st.integers(0, 7))
        frames[at] = bytes(changed)
    elif damage == "cut":
        frames[at] = frame[: draw(st.integers(0, len(frame) - 1))]
    elif damage == "longer":
        frames[at] = frame + draw(st.sampled_from([b"\0", b"\1", frame]))
    elif damage == "tag":
        frames[at] = frame[:-1] + b"\x01\x05\x01x"
    return frames


@st.composite
def produce_frames(draw: st.DrawFn) -> list[bytes]:
    version = draw(st.sampled_from([3, 8, 9, *[11] * 6, *[13] * 6]))
    topics: list[tuple[dict[str, Any], list[tuple[int, RecordSet]]]] = []
    for _ in range(draw(st.sampled_from([1] * 12 + [2]))):
        name = draw(st.sampled_from([TOPIC] * 12 + ["missing", ""]))
        by_id = {"topic_id": TOPIC_ID if name == TOPIC else OTHER_ID}
        partition_count = draw(st.sampled_from([1] * 8 + [2]))
        topics.append(
            (
                by_id if version >= 13 else {"name": name},
                [
                    (draw(st.sampled_from([0, 0, 0, 0, 1, 7])), draw(record_sets()))
                    for _ in range(partition_count)
                ],
            )
        )
    acks = draw(st.sampled_from([-1, -1, -1, -1, 1, 1, 0, 2]))
    timeout = draw(st.sampled_from([1500, 1500, 1500, 0]))

    def make(count: int) -> bytes:
        return request(
            "produce",
            version,
            count,
            transactional_id=None,
            acks=acks,
            timeout=timeout,
            topic_data=[
                {
                    **name,
                    "partition_data": [
                        {"index": index, "records": records(count)} for index, records in partitions
                    ],
                }
                for name, partitions in topics
            ],
        )[4:]

    return draw(repeated(make))


ODD_FETCHES: list[dict[str, Any]] = [
    {"topic_id": OTHER_ID, "topic": "missing"},
    {"partition": 1},
    {"partition": 7},
    {"current_leader_epoch": -1},
    {"current_leader_epoch": EPOCH - 1},
    {"current_leader_epoch": EPOCH + 1},
    {"last_fetched_epoch": EPOCH},
    {"partition_max_bytes": 1},
    {"min_bytes": 1 << 20},
    {"session_epoch": 0},
    {"session_epoch": 1},
    {"session_id": 5},
    {"rack_id": "here"},
    {"replica_id": 2},
    {"partitions": 2},
]


@st.composite
def fetch_frames(draw: st.DrawFn) -> list[bytes]:
    version = draw(st.sampled_from([4, 11, 12, *[16] * 8, 18]))
    offset = draw(st.integers(0, 6))
    fields: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "topic": TOPIC,
        "partition": 0,
        "current_leader_epoch": EPOCH,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": draw(st.sampled_from([100_000, 20_000])),
        "partitions": 1,
        "replica_id": -1,
        "max_wait": draw(st.sampled_from([0, 500])),
        "min_bytes": draw(st.sampled_from([1, 30_000])),
        "max_bytes": draw(st.sampled_from([1 << 20, 25_000])),
        "isolation_level": draw(st.sampled_from([0, 1])),
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "rack_id": "",
        **draw(st.one_of(st.just({}), st.just({}), st.sampled_from(ODD_FETCHES))),
    }
    partition = {name: fields.pop(name) for name in PARTITION_FIELDS}
    names = {name: fields.pop(name) for name in ("topic_id", "topic")}
    name = "topic_id" if version >= 13 else "topic"
    partition_count = fields.pop("partitions")
    fields = {name: value for name, value in fields.items() if _has_field(version, name)}

    def make(count: int) -> bytes:
        partitions = [{**partition, "fetch_offset": offset + count}] * partition_count
        topics = [{name: names[name], "partitions": partitions}]
        return request("fetch", version, count, topics=topics, **fields)[4:]

    return draw(repeated(make))


PARTITION_FIELDS = (
    "partition",
    "current_leader_epoch",
    "last_fetched_epoch",
    "log_start_offset",
    "partition_max_bytes",
)


def _has_field(version: int, name: str) -> bool:
    first = {"session_id": 7, "session_epoch": 7, "forgotten_topics_data": 7, "rack_id": 11}
    return version < 15 if name == "replica_id" else version >= first.get(name, 0)


# -------------------------------------------------------------------- events


def _lead(epoch: int) -> Step:
    def step(twin: Twin) -> None:
        for partition in twin.partitions:
            partition.become_leader(epoch, (1,), (1,))

    return step


def _configure(**changes: Any) -> Step:
    def step(twin: Twin) -> None:
        for partition in twin.partitions:
            partition.log.config = replace(CONFIG, **changes)
            partition.check_in_sync()

    return step


def _transaction(producer: int, epoch: int, end: str) -> Step:
    """A transactional batch as the coordinator's verification lets it in, and the marker that ends it."""

    def step(twin: Twin) -> None:
        partition = twin.partitions[0]
        data = batch(producer=producer, epoch=epoch, sequence=0, attributes=TRANSACTIONAL)
        try:
            partition.log.append_leader(data, partition.leader_epoch, twin.clock.now_ms)
            if end:
                partition.log.append_marker(
                    producer, epoch, end == "commit", 0, partition.leader_epoch, twin.clock.now_ms
                )
        except KafkaError:
            return
        partition.appended(0, 0, twin.clock.now_ms)

    return step


def _shrink_isr(twin: Twin) -> None:
    for partition in twin.partitions:
        partition.enough_in_sync = False


def _resign(twin: Twin) -> None:
    for partition in twin.partitions:
        partition.resign()


def _resign_and_reconfigure(twin: Twin) -> None:
    _resign(twin)
    _configure()(twin)


def _delete_records(twin: Twin) -> None:
    log = twin.partitions[0].log
    log.advance_start(min(log.start_offset + 1, log.high_watermark))


def _client_leaves(number: int) -> Step:
    def step(twin: Twin) -> None:
        connection = twin.connections[number]
        if connection.pending is not None:
            connection.pending.cancel()
        twin.connections[number] = Connection(twin.loop, twin.dispatcher)

    return step


def _park_fetch(twin: Twin) -> None:
    """A consumer that keeps up waits for the next record."""
    twin.dispatch(2, fetch_frame(twin.partitions[0].log.end_offset))


def _pass_time(milliseconds: int) -> Step:
    """Called once for each twin: the clock they share moves when the first of them is asked."""

    def step(twin: Twin) -> None:
        if twin.fast:
            twin.clock.now_ms += milliseconds

    return step


def _cool(cold: bool) -> Step:
    return lambda twin: setattr(twin.clock, "cold", cold)


CONSUMER: dict[str, Any] = {
    "max_wait": 500,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "forgotten_topics_data": [],
    "rack_id": "",
}

SETTLE = None  # the step that lets fsyncs and reads of cold ranges end
EVENTS: list[Step] = [
    _park_fetch,
    _park_fetch,
    _lead(EPOCH),
    _lead(EPOCH + 1),
    _resign,
    _resign_and_reconfigure,
    _shrink_isr,
    _configure(),
    _configure(flush_messages=1),
    _configure(flush_messages=3),
    _configure(message_timestamp_type="LogAppendTime"),
    _configure(message_timestamp_after_max_ms=0, message_timestamp_before_max_ms=0),
    _configure(segment_bytes=30_000),
    _configure(segment_ms=1000),
    _configure(cleanup_policy=frozenset({"compact"})),
    _configure(compression_type="gzip"),
    _transaction(9, 0, ""),
    _transaction(9, 0, "commit"),
    _transaction(10, 0, "abort"),
    _delete_records,
    lambda twin: twin.loop.fire(),
    _client_leaves(0),
    _pass_time(1),
    _pass_time(5000),
    _cool(True),
    _cool(False),
]


@st.composite
def conversations(
    draw: st.DrawFn, connections: list[int], frames: st.SearchStrategy[list[bytes]]
) -> list[Step | None]:
    """Requests of one template, and often an event that comes after the fast path has learned it."""
    number = draw(st.sampled_from(connections))
    steps: list[Step | None] = [partial(Twin.dispatch, number=number, frame=frame) for frame in draw(frames)]
    if draw(st.booleans()):
        steps.insert(draw(st.integers(1, len(steps))), draw(st.sampled_from([*EVENTS, SETTLE])))
    return steps


ODD_IN_SESSION: list[dict[str, Any]] = [
    {"session_epoch": 0},
    {"session_epoch": -1},
    {"session_epoch": 1},
    {"session_id": 7},
    {"rack_id": "here"},
    {"topics": []},
    {"forget": True},
    {"partition": 1},
    {"partition_max": 20_000},
    {"version": 12},
    {"isolation_level": 1},
]


def _in_session(number: int, offset: int, **changes: Any) -> Step:
    """A fetch in the session used last (a new one, if there is none), but for these changes."""

    def step(twin: Twin) -> None:
        session = next(reversed(twin.fetch.sessions._sessions.values()), None)
        frame = (
            {"session_id": session.id, "session_epoch": session.epoch} if session else {"session_epoch": 0}
        )
        options = {**frame, **changes}
        if options.pop("forget", False):
            options["forgotten_topics_data"] = [{"topic_id": TOPIC_ID, "partitions": [0]}]
        twin.dispatch(number, fetch_frame(offset, **options))

    return step


def _last_epoch(twin: Twin) -> None:
    """A session that has been used two thousand million times."""
    for session in twin.fetch.sessions._sessions.values():
        session.epoch = LAST_EPOCH


def _evict(twin: Twin) -> None:
    sessions = twin.fetch.sessions._sessions
    for session in list(sessions.values())[-1:]:
        del sessions[session.id]


@st.composite
def sessions(draw: st.DrawFn) -> list[Step | None]:
    """A consumer that reads on in its session, and what may come between."""
    number = draw(st.sampled_from([2, 2, 1]))
    fixed: dict[str, Any] = {
        "isolation_level": draw(st.sampled_from([0, 0, 1])),
        "partition_max": draw(st.sampled_from([200_000, 20_000])),
        "min_bytes": draw(st.sampled_from([1, 30_000])),
        "version": draw(st.sampled_from([16, 16, 13, 18])),
    }
    if draw(st.integers(0, 3)) == 0:
        fixed = {**fixed, "version": 12}
    first = draw(st.integers(0, 4))
    steps: list[Step | None] = [
        _in_session(number, first + count, **fixed) for count in range(draw(st.integers(3, 7)))
    ]
    for _ in range(draw(st.integers(0, 2))):
        odd = st.sampled_from(ODD_IN_SESSION).map(
            lambda changes: _in_session(draw(st.sampled_from([1, 2])), first, **{**fixed, **changes})
        )
        event = st.sampled_from([*EVENTS, SETTLE, _last_epoch, _evict])
        steps.insert(draw(st.integers(1, len(steps))), draw(st.one_of(odd, odd, event)))
    return steps


SCRIPT = st.lists(
    st.one_of(
        conversations([0, 0, 1], produce_frames()),
        conversations([0, 0, 1], produce_frames()),
        conversations([2, 2, 1], fetch_frames()),
        conversations([2, 2, 1], fetch_frames()),
        sessions(),
        sessions(),
        st.sampled_from([*EVENTS, SETTLE]).map(lambda event: [event]),
    ),
    min_size=3,
    max_size=12,
)


@contextmanager
def twins(*, batches: int = 0, fast_append: bool = True) -> Iterator[tuple[Twin, Twin]]:
    """Two of them in the same state, the fast one first; in the end what is left on their disks is the
    same."""
    clock = Clock()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for module in (produce, produce_fast_path):
            stack.enter_context(patch.object(module, "_time_ns", clock.time_ns))
        for module in (file_range, fetch_fast_path):
            stack.enter_context(patch.object(module, "not_in_memory", clock.not_in_memory))
        fast = Twin(folder / "fast", clock, fast=True, fast_append=True)
        full = Twin(folder / "full", clock, fast=False, fast_append=fast_append)
        for twin in (fast, full):
            for _ in range(batches):
                twin.partitions[0].log.append_leader(batch(size=20_000), EPOCH, NOW)
            twin.partitions[0].appended(0, 0, NOW)
        try:
            yield fast, full
        finally:
            fast.close()
            full.close()
        assert fast.files() == full.files()


def agree(fast: Twin, full: Twin, when: str) -> None:
    seen, expected = fast.observe(), full.observe()
    for what in expected:
        assert seen[what] == expected[what], f"{what} differ {when}"


async def finish(*pair: Twin) -> None:
    for twin in pair:
        for connection in twin.connections:
            if connection.pending is not None:
                connection.pending.cancel()
        await twin.settle()


async def play(
    script: list[list[Step | None]], batches: int, open_transaction: bool, fast_append: bool
) -> None:
    with twins(batches=batches, fast_append=fast_append) as (fast, full):
        if open_transaction:
            script = [[_transaction(9, 0, "")], *script]
        for number, step in enumerate(step for steps in script for step in steps):
            for twin in (fast, full):
                if step is SETTLE:
                    await twin.settle()
                else:
                    step(twin)
            agree(fast, full, f"after step {number}")
        await finish(fast, full)


FAST_PATHS: tuple[Any, ...] = (
    produce_fast_path.ProduceFastPath,
    fetch_fast_path.FetchFastPath,
    fetch_fast_path.SessionFetchFastPath,
)


def _count_fast_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in FAST_PATHS:
        original: Any = kind.try_handle

        def counted(self: Any, *arguments: Any, original: Any = original, name: str = kind.__name__) -> bool:
            handled: bool = original(self, *arguments)
            taken[name, handled] += 1
            return handled

        monkeypatch.setattr(kind, "try_handle", counted)


@pytest.mark.timeout(600)
def test_twins_with_and_without_fast_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    taken.clear()
    _count_fast_paths(monkeypatch)

    @settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
    @given(SCRIPT, st.integers(0, 8), st.booleans(), st.booleans())
    def run(script: list[list[Step | None]], batches: int, open_transaction: bool, fast_append: bool) -> None:
        asyncio.run(play(script, batches, open_transaction, fast_append))

    run()
    for name in (kind.__name__ for kind in FAST_PATHS):
        for handled in (True, False):
            assert taken[name, handled], f"{name} was never tried: {taken}"


def produce_frame(size: int, version: int = 13, acks: int = -1) -> bytes:
    topic = {"topic_id": TOPIC_ID} if version >= 13 else {"name": TOPIC}
    records = bytes(batch(size=size))
    data = [{**topic, "partition_data": [{"index": 0, "records": records}]}]
    return request("produce", version, 7, transactional_id=None, acks=acks, timeout=1500, topic_data=data)[4:]


def fetch_frame(
    offset: int, version: int = 16, partition_max: int = 200_000, partition: int = 0, **options: Any
) -> bytes:
    topic = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": TOPIC}
    wanted = {
        "partition": partition,
        "fetch_offset": offset,
        "current_leader_epoch": EPOCH,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": partition_max,
    }
    old = {"replica_id": -1} if version < 15 else {}
    topics = [{**topic, "partitions": [wanted]}]
    forgotten = options.get("forgotten_topics_data")
    if forgotten and version < 13:
        options["forgotten_topics_data"] = [{"topic": TOPIC, "partitions": [0]}]
    return request("fetch", version, 7, **{"topics": topics, **CONSUMER, **options, **old})[4:]


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("event", range(len(EVENTS)))
async def test_an_event_between_two_requests_of_a_template(event: int, acks: int) -> None:
    """Whatever a template has learned: what has changed since then counts."""
    last = 7
    talk: list[Step | None] = [
        *[partial(Twin.dispatch, number=0, frame=produce_frame(size, acks=acks)) for size in (90, 20_000)],
        *[
            partial(Twin.dispatch, number=1, frame=fetch_frame(offset, isolation_level=1))
            for offset in (0, last, 0, last)
        ],
        *[
            partial(Twin.dispatch, number=2, frame=fetch_frame(offset, min_bytes=30_000, max_bytes=45_000))
            for offset in (0, 2, last + 2)
        ],
        *[_in_session(1, offset, isolation_level=1) for offset in (0, 1, 2, last)],
    ]
    steps = [*talk, EVENTS[event], *talk, SETTLE, *talk, lambda twin: twin.loop.fire(), *talk]
    with twins(batches=last + 1) as (fast, full):
        for number, step in enumerate(steps):
            for twin in (fast, full):
                if step is SETTLE:
                    await twin.settle()
                else:
                    step(twin)
            agree(fast, full, f"after step {number}")
        await finish(fast, full)


def _take_in_partition_1(twin: Twin) -> None:
    """Which has records to send, in each of the following responses."""
    twin.partitions[1].log.append_leader(batch(size=20_000), EPOCH, NOW)
    twin.partitions[1].appended(0, 0, NOW)
    _in_session(2, 0, partition=1)(twin)


def _exchange_partition(twin: Twin) -> None:
    _take_in_partition_1(twin)
    _in_session(2, 0, forget=True, topics=[])(twin)


IN_SESSION_EVENTS: dict[str, Step] = {
    "an append": lambda twin: twin.dispatch(0, produce_frame(20_000)),
    "deleted records": _delete_records,
    "an open transaction": _transaction(9, 0, ""),
    "the last epoch": _last_epoch,
    "eviction": _evict,
    "another partition": _take_in_partition_1,
    "another partition instead": _exchange_partition,
    "the partition is forgotten": _in_session(2, 0, forget=True, topics=[]),
    "another connection reads on": _in_session(2, 3),
    "time": _pass_time(1500),
}


@pytest.mark.parametrize("event", IN_SESSION_EVENTS)
async def test_an_event_between_two_fetches_of_a_session(event: str) -> None:
    """The second of them names the session as the client knows it, whatever has become of it."""
    step = IN_SESSION_EVENTS[event]
    with twins(batches=8) as (fast, full):
        for twin in (fast, full):
            for offset in (0, 1, 2):
                _in_session(1, offset)(twin)
        assert isinstance(fast.connections[1].fast_path, fetch_fast_path.SessionFetchFastPath)
        (session,) = fast.fetch.sessions._sessions.values()
        known = {"session_id": session.id, "session_epoch": session.epoch}
        for next_step in (step, _in_session(1, 3, **known), _in_session(1, 4)):
            for twin in (fast, full):
                next_step(twin)
            agree(fast, full, f"after {event}")
        await finish(fast, full)


def _with_each_bit_changed(frame: bytes) -> Iterator[bytes]:
    for position in range(len(frame)):
        for bit in range(8):
            changed = bytearray(frame)
            changed[position] ^= 1 << bit
            yield bytes(changed)


def _resealed(frame: bytes, start: int, size: int) -> bytes:
    """With the checksum that the batch should have."""
    return frame[:start] + bytes(sealed(bytearray(frame[start : start + size]))) + frame[start + size :]


async def _compare_one_by_one(fast: Twin, full: Twin, good: bytes, frames: Iterable[bytes]) -> None:
    """Each frame after one that teaches the fast path its template."""
    for number, frame in enumerate(frames):
        for each in (good, frame):
            for twin in (fast, full):
                twin.dispatch(0, each)
                if twin.connections[0].parked:
                    twin.loop.fire()
            seen, expected = fast.connections[0], full.connections[0]
            assert (seen.sent, seen.closed) == (expected.sent, expected.closed), f"frame {number}: {frame!r}"
            seen.sent.clear()
            expected.sent.clear()
    agree(fast, full, "in the end")


@pytest.mark.parametrize("reseal", [False, True], ids=["as it is", "with a right checksum"])
@pytest.mark.parametrize("version", [9, 13])
async def test_a_repeated_produce_request_with_any_bit_changed(version: int, reseal: bool) -> None:
    size = 68
    good = produce_frame(size, version)
    frames = _with_each_bit_changed(good)
    if reseal:
        start = len(good) - BEHIND_RECORDS - size
        frames = (_resealed(frame, start, size) for frame in frames)
    with twins() as (fast, full):
        await _compare_one_by_one(fast, full, good, frames)


@pytest.mark.parametrize("version", [12, 16])
async def test_a_repeated_fetch_with_any_bit_changed(version: int) -> None:
    good = fetch_frame(1, version, 30_000, max_wait=0, max_bytes=30_000, isolation_level=1)
    with twins(batches=5) as (fast, full):
        await _compare_one_by_one(fast, full, good, _with_each_bit_changed(good))


@pytest.mark.parametrize("version", [12, 16])
async def test_a_repeated_fetch_in_a_session_with_any_bit_changed(version: int) -> None:
    """Each changed frame comes as the next of a session that has its template."""
    options: dict[str, Any] = {"version": version, "max_wait": 0, "max_bytes": 30_000, "isolation_level": 1}
    size = len(fetch_frame(1, partition_max=30_000, session_id=1, session_epoch=1, **options))
    with twins(batches=5) as (fast, full):
        for position in range(size):
            for bit in range(8):
                for twin in (fast, full):
                    connection = twin.connections[0] = Connection(twin.loop, twin.dispatcher)
                    twin.fetch.sessions._sessions.clear()
                    for offset in (0, 1, 2):
                        _in_session(0, offset, partition_max=30_000, **options)(twin)
                    (session,) = twin.fetch.sessions._sessions.values()
                    wanted = {
                        "session_id": session.id,
                        "session_epoch": session.epoch,
                        "partition_max": 30_000,
                    }
                    frame = bytearray(fetch_frame(2, **wanted, **options))
                    assert len(frame) == size
                    frame[position] ^= 1 << bit
                    twin.dispatch(0, bytes(frame))
                    if connection.parked:
                        twin.loop.fire()
                seen, expected = fast.connections[0], full.connections[0]
                assert isinstance(seen.fast_path, fetch_fast_path.SessionFetchFastPath)
                assert (seen.sent, seen.closed) == (expected.sent, expected.closed), (position, bit)
        agree(fast, full, "in the end")
