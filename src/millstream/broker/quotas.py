"""How much a client may do: bytes produced and fetched, time of the loop, changes of topics (KIP-13, KIP-124,
KIP-257, KIP-599).

Rates are Kafka's: `quota.window.num` samples of `quota.window.size.seconds`, over at least all but one of
them. Who exceeds a quota is answered at once, is told `throttle_time_ms`, and is not listened to for that
long (KIP-219); nobody else waits. Of eight entities the most specific one with a quota counts, and all
connections of an entity share one counter.

Nobody pays for quotas that do not exist: `Quotas` takes the dispatcher's place when the first one is set and
leaves it with the last one. A connection that a quota applies to becomes one of a subclass, `_Metered`, which
counts what is sent, writes the throttle time into responses and mutes itself. A fetch of a consumer that has
had more than its share is answered without records, before anything is read.
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from millstream.broker.network.file_range import FileRange, Part
from millstream.broker.rates import Rate, TokenBucket, now_ms
from millstream.cluster.security_records import QuotaEntity
from millstream.wire.errors import KafkaError
from millstream.wire.fetch import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_ID,
    FetchRequest,
    pack_fetch_response,
    read_fetch,
)
from millstream.wire.messages import body_start, codec
from millstream.wire.primitives import BAD_FRAME

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection
    from millstream.broker.server import Broker
    from millstream.cluster.image import Image

PRODUCE, FETCH = 0, 1
PRODUCER, CONSUMER, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
# CreateTopics, DeleteTopics, CreatePartitions: the response says whether the quota is used up, also one that
# comes from the controller, to which this broker forwarded the request.
CHANGES = frozenset((19, 20, 37))
MAX_COUNTERS = 10_000  # clients choose their ids
ROOM = MAX_COUNTERS // 10  # that is made when it is used up: looking at all of them is not for every request
MAX_CLIENT_ID = 256  # bytes; longer ones that begin alike count as one
# Between brokers, and what a client needs to begin with: not counted.
EXEMPT = frozenset((17, 18, 36, 56, 58, 62, 63, 67))

_HEADER = struct.Struct(">hhih")
_INT32 = struct.Struct(">i")


class Meters:
    """The counters that a client's requests go to."""

    __slots__ = ("consumer", "mutation", "producer", "request")

    def __init__(
        self,
        producer: Rate | None,
        consumer: Rate | None,
        request: Rate | None,
        mutation: TokenBucket | None,
    ) -> None:
        self.producer = producer
        self.consumer = consumer
        self.request = request
        self.mutation = mutation


NO_METERS = Meters(None, None, None, None)


def applies(
    quotas: Mapping[QuotaEntity, Any], user: str, client_id: str, name: str
) -> tuple[Any, ...] | None:
    """The bound that counts for a client, and whose counter it goes to: (bound, user, client id), with empty
    texts for what the entity does not tell apart."""
    users: tuple[tuple[str, str | None], ...] = (("user", user), ("user", None))
    clients: tuple[tuple[str, str | None], ...] = (("client-id", client_id), ("client-id", None))
    for who in users:
        for client in clients:
            if (found := _value(quotas, (client, who), name)) is not None:
                return found, user, client_id
        if (found := _value(quotas, (who,), name)) is not None:
            return found, user, ""
    for client in clients:
        if (found := _value(quotas, (client,), name)) is not None:
            return found, "", client_id
    return None


def _value(quotas: Mapping[QuotaEntity, Any], entity: QuotaEntity, name: str) -> float | None:
    quota = quotas.get(entity)
    if quota is None:
        return None
    found: float | None = quota.values.get(name)
    return found


class Quotas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._dispatcher = broker.dispatcher
        self._plain = broker.dispatcher.dispatch
        self._quotas: Mapping[QuotaEntity, Any] = {}
        # Replaced, never cleared: what connections remember of it counts while it is the same.
        self._meters: dict[tuple[str, bytes], Meters] = {}
        self.counters: dict[tuple[str, str, str], Rate | TokenBucket] = {}
        self.by_ip: dict[str | None, float] = {}  # connections a second; None: of all others
        self.active = False
        self.muted = 0

    def follow(self, image: Image) -> None:
        """The quotas have changed. Counters go on under their new bounds."""
        self._quotas = image.quotas
        self._meters = {}
        by_ip: dict[str | None, float] = {}
        for entity, quota in image.quotas.items():
            if entity[0][0] == "ip":
                by_ip[entity[0][1]] = quota.values.get("connection_creation_rate", 0)
        self.by_ip = by_ip
        active = any(entity[0][0] != "ip" for entity in image.quotas)
        if active and not self.active:
            self._dispatcher.dispatch = self.dispatch  # type: ignore[method-assign]
        elif self.active and not active:
            self.counters.clear()
            del self._dispatcher.dispatch
            for connection in self._broker.admission.open:
                if isinstance(connection, _Metered):
                    connection.unmetered()
        self.active = self._dispatcher.metered = active

    # ------------------------------------------------------------------ finding counters

    def meters_of(self, principal: str, client_id: bytes) -> Meters:
        client_id = client_id[:MAX_CLIENT_ID]
        key = (principal, client_id)
        found = self._meters.get(key)
        if found is None:
            if len(self._meters) >= MAX_COUNTERS:
                self._meters = {}
            user, client = principal.partition(":")[2], client_id.decode("utf-8", "replace")
            made: list[Any] = [
                self._counter(name, user, client) for name in (PRODUCER, CONSUMER, REQUEST, MUTATION)
            ]
            found = Meters(*made) if any(made) else NO_METERS
            self._meters[key] = found
        return found

    def mutations(self, principal: str, client_id: str) -> TokenBucket | None:
        return self.meters_of(principal, client_id.encode()).mutation if self.active else None

    def _counter(self, name: str, user: str, client_id: str) -> Rate | TokenBucket | None:
        found = applies(self._quotas, user, client_id, name)
        if found is None:
            return None
        bound, *who = found
        key = (name, *who)
        counter = self.counters.pop(key, None)  # the ones used last are at the end
        if isinstance(counter, Rate):
            counter.bound = bound
        if counter is None or counter.bound != bound:
            self._make_room()
            number = self._broker.settings.integer
            if name == MUTATION:
                windows = number("controller.quota.window.num")
                seconds = number("controller.quota.window.size.seconds")
                counter = TokenBucket(bound, windows, seconds * 1000, ":".join(who))
            else:
                windows = number("quota.window.num")
                counter = Rate(bound, windows, number("quota.window.size.seconds") * 1000, ":".join(who))
        self.counters[key] = counter
        return counter

    def _make_room(self) -> None:
        if len(self.counters) >= MAX_COUNTERS:
            now = now_ms()
            for key in [key for key, counter in self.counters.items() if counter.idle(now)]:
                del self.counters[key]
            while len(self.counters) > MAX_COUNTERS - ROOM:
                del self.counters[next(iter(self.counters))]
            self._meters = {}

    # ------------------------------------------------------------------ requests

    def dispatch(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """In the place of the dispatcher's."""
        if end - start < _HEADER.size:
            self._plain(connection, view, start, end)
            return
        api, version, correlation_id, size = _HEADER.unpack_from(view, start)
        meters, state = NO_METERS, None
        if api not in EXEMPT:  # before a login there is nothing else, and nobody to remember
            state = _STATES.get(connection)
            client_id = view[start + 10 : start + 10 + max(size, 0)]
            if (
                state is not None
                and state.known is self._meters
                and client_id == state.client_id
                and connection.principal == state.principal
            ):
                meters = state.meters
            else:
                meters = self.meters_of(connection.principal, bytes(client_id))
        if meters is NO_METERS:
            if isinstance(connection, _Metered):
                connection.unmetered()
            self._plain(connection, view, start, end)
            return
        now = now_ms()
        throttle = 0.0
        blamed: Rate | None = None
        if api == PRODUCE and meters.producer is not None:
            throttle, blamed = meters.producer.record(end - start + 4, now), meters.producer
        elif api == FETCH and meters.consumer is not None:
            if self._is_follower(view[start:end], size, version):
                self._plain(connection, view, start, end)
                return
            throttle, blamed = meters.consumer.over(now), meters.consumer
        if meters.request is not None:
            # At most one window, as Kafka has it.
            of_request = min(meters.request.over(now), meters.request.window_ms)
            if of_request > throttle:
                throttle, blamed = of_request, meters.request
        if state is None or state.meters is not meters or state.known is not self._meters:
            state = _metered(connection)
            state.quotas, state.known, state.meters = self, self._meters, meters
            # a longer one than counts is not kept, and looked up each time
            state.principal, state.client_id = connection.principal, bytes(client_id[:MAX_CLIENT_ID])
        state.api, state.version = api, version
        state.consumer = meters.consumer if api == FETCH else None
        state.throttle_ms = round(throttle)
        state.looks = state.consumer is not None or state.throttle_ms > 0 or api in CHANGES
        if state.throttle_ms and blamed is not None:
            blamed.throttled_ms += state.throttle_ms
        if api == FETCH and throttle and blamed is meters.consumer:
            self._answer_empty(connection, view[start:end], size, version, correlation_id)
            return
        if meters.request is None:
            self._plain(connection, view, start, end)
        else:
            began = time.perf_counter()
            self._plain(connection, view, start, end)
            meters.request.record((time.perf_counter() - began) * 100, now)
        if state.throttle_ms and api == PRODUCE and not connection.parked and not connection.closed:
            state.mute(connection)  # acks=0: there was no response

    def _is_follower(self, frame: memoryview, client_id_size: int, version: int) -> bool:
        try:
            return self._read(frame, client_id_size, version).replica_id >= 0
        except BAD_FRAME:
            return False

    def _read(self, frame: memoryview, client_id_size: int, version: int) -> FetchRequest:
        api = self._broker.fetch.api
        if not api.lowest <= version <= api.highest:
            raise ValueError(f"Fetch version {version}")
        return read_fetch(frame, body_start(frame, client_id_size, version >= FIRST_FLEXIBLE), version)

    def _answer_empty(
        self,
        connection: Connection,
        frame: memoryview,
        client_id_size: int,
        version: int,
        correlation_id: int,
    ) -> None:
        """A session goes on to its next epoch, for the client counts the response; a new one is not begun."""
        try:
            request = self._read(frame, client_id_size, version)
        except BAD_FRAME:
            self._plain(connection, frame, 0, len(frame))
            return
        sessions, error = self._broker.sessions, 0
        session_id = 0
        if request.session_epoch > 0:
            try:
                by_id = version >= FIRST_WITH_TOPIC_ID
                session, _ = sessions.open(request, by_id, connection.loop.time())
                session_id = session.id if session is not None else 0
            except KafkaError as problem:
                error = problem.code
        parts = pack_fetch_response(correlation_id, version, error, session_id, [])
        connection.send(b"".join(parts))  # type: ignore[arg-type]

    def fetch_limit(self, connection: Connection, client_id: bytes) -> int | None:
        """The bytes that one fetch may get at most: what the quota allows in all its windows."""
        rate = self.meters_of(connection.principal, client_id).consumer
        if rate is None:
            return None
        windows = self._broker.settings.integer("quota.window.num") - 1
        return max(int(rate.bound * windows * rate.window_ms / 1000), 1)


# --- connections --------------------------------------------------------------------------------------------


class _State:
    """What is known of a metered connection: whose requests it sends, and the one that it has in work."""

    __slots__ = (
        "api",
        "client_id",
        "consumer",
        "known",
        "looks",
        "meters",
        "principal",
        "quotas",
        "throttle_ms",
        "timer",
        "version",
    )

    def __init__(self) -> None:
        self.quotas: Quotas | None = None
        self.principal = ""
        self.client_id = b""
        self.meters = NO_METERS
        self.known: object = None  # the table that the meters are from
        self.api = self.version = -1
        self.looks = False  # whether the response has to be looked at
        self.consumer: Rate | None = None
        self.throttle_ms = 0
        self.timer: asyncio.TimerHandle | None = None

    def mute(self, connection: Connection) -> None:
        seconds, self.throttle_ms = self.throttle_ms / 1000, 0
        if connection.closed:
            return
        connection.parked = True
        connection.pending = self
        assert self.quotas is not None
        self.quotas.muted += 1
        self.timer = connection.loop.call_later(seconds, self._listen_again, connection)

    def _listen_again(self, connection: Connection) -> None:
        self.cancel()
        if not connection.closed:
            connection.resume()

    def cancel(self) -> None:
        """The time is over, or the client has left."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            assert self.quotas is not None
            self.quotas.muted -= 1


# Connections have slots: what only few of them need is kept here, until they close.
_STATES: dict[Any, _State] = {}


class _Metered:
    """Mixed into the class of a connection while a quota applies to it."""

    __slots__ = ()

    def send(self, data: bytes) -> None:
        state = _STATES[self]
        if not state.looks:
            super().send(data)  # type: ignore[misc]
            return
        if state.consumer is not None:
            state.consumer.record(len(data), now_ms())
        if state.api in CHANGES:
            state.throttle_ms = max(state.throttle_ms, throttle_time_in(data, state.api, state.version))
        if state.throttle_ms:
            data = with_throttle_time(data, state.api, state.version, state.throttle_ms)
        super().send(data)  # type: ignore[misc]
        if state.throttle_ms:
            state.mute(self)  # type: ignore[arg-type]

    def send_parts(self, parts: Sequence[Part]) -> None:
        state = _STATES[self]
        if state.consumer is not None:
            size = sum(part.size if isinstance(part, FileRange) else len(part) for part in parts)
            state.consumer.record(size, now_ms())
        if state.throttle_ms and not isinstance(parts[0], FileRange):
            first = with_throttle_time(bytes(parts[0]), state.api, state.version, state.throttle_ms)
            parts = [first, *parts[1:]]
        super().send_parts(parts)  # type: ignore[misc]
        if state.throttle_ms:
            state.mute(self)  # type: ignore[arg-type]

    def resume(self) -> None:
        if _STATES[self].timer is None:  # else it is muted: the timer resumes it
            super().resume()  # type: ignore[misc]

    def close(self, reason: str = "") -> None:
        super().close(reason)  # type: ignore[misc]
        self.unmetered()

    def unmetered(self) -> None:
        state = _STATES.get(self)
        if state is not None and state.timer is None:
            del _STATES[self]
            self.__class__ = type(self).__bases__[1]


@cache
def _metered_class(kind: type) -> type:
    return type(f"Metered{kind.__name__}", (_Metered, kind), {"__slots__": ()})


def _metered(connection: Connection) -> _State:
    state = _STATES.get(connection)
    if state is None:
        connection.__class__ = _metered_class(type(connection))  # type: ignore[arg-type]
        state = _STATES[connection] = _State()
    return state


@cache
def _throttle_time_at(api: int, version: int) -> int | None:
    """Where in a response frame the throttle time stands; None where it has none, or not at the beginning."""
    message_codec = codec(api, version)
    names = [field.name for field in dataclasses.fields(message_codec.response)]
    if names[:1] != ["throttle_time"]:
        return None
    return 9 if message_codec.tagged_header else 8


def with_throttle_time(frame: bytes, api: int, version: int, ms: int) -> bytes:
    if api == PRODUCE:  # behind the topics; flexible versions end with tags, of which there are usually none
        if version >= 9 and frame[-1]:
            return frame
        at = len(frame) - (5 if version >= 9 else 4)
    else:
        found = _throttle_time_at(api, version)
        if found is None or len(frame) < found + 4:
            return frame
        at = found
    return frame[:at] + _INT32.pack(ms) + frame[at + 4 :]


def throttle_time_in(frame: bytes, api: int, version: int) -> int:
    at = _throttle_time_at(api, version)
    if at is None or len(frame) < at + 4:
        return 0
    found: int = _INT32.unpack_from(frame, at)[0]
    return found


def rows(quotas: Quotas, limit: int = 1000) -> Iterable[tuple[str, str, str, float, float, float]]:
    """For the metrics: kind, user, client id, rate, bound, seconds throttled in all."""
    now = now_ms()
    for (name, user, client_id), counter in list(quotas.counters.items())[-limit:]:
        yield name, user, client_id, counter.value(now), counter.bound, counter.throttled_ms / 1000
