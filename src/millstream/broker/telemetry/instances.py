"""Which client instance is asked for which metrics, and when it may push them: the rules of Kafka's
ClientMetricsManager, fed with requests and a clock.

A client instance is known by an id that the broker gave it. Its subscription is all that matches it: the
prefixes together, at the shortest of the intervals. The id of the subscription is a checksum of these, so
that every broker comes to the same, and a client that pushes under another one has missed a change. An
instance is known until its connection is closed or three intervals have passed, as in Kafka.

Two differences: a client that was told UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE may ask again
at once, as KIP-714 has it (Kafka's code means to, but throttles it). And prefixes are sorted before the
checksum is taken, where Kafka takes the order of a Java hash table.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID, uuid4

from millstream.broker.telemetry.subscriptions import ALL_METRICS, DEFAULT_INTERVAL_MS, Subscription
from millstream.wire.checksum import crc32c
from millstream.wire.compression import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD
from millstream.wire.errors import ErrorCode, KafkaError

MAX_INSTANCES = 16384
FORGET_AFTER_MS = 60_000  # at least
ACCEPTED_COMPRESSION = (ZSTD, LZ4, GZIP, SNAPPY)
NEVER = float("-inf")
MAY_ASK_AGAIN = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)


class Peer(Protocol):
    """The connection of a client."""

    @property
    def closed(self) -> bool: ...


@dataclass(slots=True)
class Instance:
    """One client, as long as it is connected."""

    id: UUID
    attributes: Mapping[str, str]
    peer: Peer
    version: int  # of the subscriptions that it was matched with
    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int
    forget_at: float = NEVER
    terminating: bool = False
    last_error: ErrorCode = field(default=ErrorCode.none)
    _asked: bool = False  # since the last push
    _last_get: float = NEVER
    _last_push: float = NEVER

    def may_get(self, now: float) -> bool:
        early = now - max(self._last_get, self._last_push) < self.interval_ms
        if early and self.last_error not in MAY_ASK_AGAIN:
            return False
        self._last_get = now
        self._asked = True
        return True

    def may_push(self, now: float) -> bool:
        """The first push after a Get may come early: clients spread theirs by half an interval."""
        if not self._asked and now - self._last_push < self.interval_ms:
            return False
        self._last_push = now
        self._asked = False
        return True


class Instances:
    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self.known: OrderedDict[UUID, Instance] = OrderedDict()  # used last, last
        self.subscriptions: dict[str, Subscription] = {}
        self.throttled = self.unknown_subscriptions = 0
        self._version = 0
        self._clock = clock_ms

    def subscribe(self, subscriptions: dict[str, Subscription]) -> None:
        """These are all subscriptions now."""
        self.subscriptions = subscriptions
        self._version += 1

    # ------------------------------------------------------------------ requests

    def get(self, id: UUID | None, attributes: Mapping[str, str], peer: Peer) -> Instance:
        """The subscription of a client, which has an id from then on. KafkaError if it asks too often."""
        instance = self._instance(id or uuid4(), attributes, peer)
        if not instance.may_get(self._clock()):
            self.throttled += 1
            raise _too_early(instance)
        instance.last_error = ErrorCode.none
        return instance

    def push(
        self,
        id: UUID | None,
        attributes: Mapping[str, str],
        peer: Peer,
        *,
        subscription_id: int,
        terminating: bool,
        compression: int,
        size: int,
        max_bytes: int,
    ) -> Instance:
        """The instance whose metrics may be taken. KafkaError if they may not."""
        if id is None or id.int <= 1:  # 1 is reserved, too
            raise KafkaError(ErrorCode.invalid_request, "invalid client instance id")
        instance = self._instance(id, attributes, peer)
        try:
            self._check(instance, subscription_id, terminating, compression, size, max_bytes)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = terminating
        instance.last_error = ErrorCode.none
        return instance

    def _check(
        self,
        instance: Instance,
        subscription_id: int,
        terminating: bool,
        compression: int,
        size: int,
        max_bytes: int,
    ) -> None:
        if instance.terminating:
            raise KafkaError(ErrorCode.invalid_request, "this client said that it is terminating")
        if not instance.may_push(self._clock()) and not terminating:
            self.throttled += 1
            raise _too_early(instance)
        if subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.unknown_subscription_id)
        if not 0 <= compression < len(CODEC_NAMES):
            raise KafkaError(ErrorCode.unsupported_compression_type)
        if size > max_bytes:
            raise KafkaError(ErrorCode.telemetry_too_large)

    # ------------------------------------------------------------------ instances

    def _instance(self, id: UUID, attributes: Mapping[str, str], peer: Peer) -> Instance:
        now = self._clock()
        found = self.known.get(id)
        if found is None or found.peer.closed or found.forget_at <= now:
            found = self.known[id] = self._make(id, attributes, peer)
        elif found.version < self._version:
            found = self.known[id] = self._make(id, found.attributes, found.peer)
        found.forget_at = now + max(FORGET_AFTER_MS, 3 * found.interval_ms)
        self.known.move_to_end(id)
        if len(self.known) > MAX_INSTANCES:
            self.known.popitem(last=False)
        return found

    def _make(self, id: UUID, attributes: Mapping[str, str], peer: Peer) -> Instance:
        own = {**attributes, "client_instance_id": instance_name(id)}
        matching = [each for each in self.subscriptions.values() if each.matches(own)]
        prefixes: set[str] = set().union(*(each.metrics for each in matching))
        metrics = (ALL_METRICS,) if ALL_METRICS in prefixes else tuple(sorted(prefixes))
        interval = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in matching)])
        return Instance(
            id, attributes, peer, self._version, metrics, interval, subscription_id(metrics, interval, id)
        )

    def forget(self) -> None:
        """Those that have left, or have been silent for long."""
        now = self._clock()
        gone = [id for id, each in self.known.items() if each.peer.closed or each.forget_at <= now]
        for id in gone:
            del self.known[id]


def subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: UUID) -> int:
    """A signed number: the CRC32C of what is subscribed, mixed with the client's id."""
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    high_low = (instance_id.int >> 64) ^ (instance_id.int & (1 << 64) - 1)
    mixed = (crc ^ (high_low >> 32) ^ high_low) & 0xFFFFFFFF
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed


def instance_name(id: UUID) -> str:
    """As clients and Kafka's tools print it."""
    return base64.urlsafe_b64encode(id.bytes).rstrip(b"=").decode()


def _too_early(instance: Instance) -> KafkaError:
    return KafkaError(
        ErrorCode.throttling_quota_exceeded,
        f"the next request of {instance_name(instance.id)} is due after {instance.interval_ms} ms",
    )
