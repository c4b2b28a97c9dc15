"""Joins of two tables where the left row names the key of the right one: many to one.

The left side subscribes: it sends (hash of its row, its own key) to the right row's key over a topic. The
right side keeps the subscriptions by right key and answers to the left key over another topic, now and
whenever its row changes. The left side takes an answer only if its row has not changed since: that is what
the hash is for.

    left table -> Subscribe -> topic -> KeepSubscription -> AnswerSubscription -> topic -> TakeAnswer -> rows
    of the join
                                       right table -------> AnswerSubscribers  -> topic

Values on the two topics are this module's own (not readable by Kafka Streams, nor theirs by us).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from millstream.streams.operators.base import Getter, Headers, Out, OutOfOrder, Process, TaskContext
from millstream.streams.serdes import Serde

NO_ANSWER, DELETE, ANSWER_ANYWAY, ANSWER_IF_THERE = range(4)
"""What a subscription asks for: forget me quietly; forget me and say so; answer even if there is no row; only
if there is."""

_HEAD = struct.Struct(">bbi")
_SIZE = struct.Struct(">i")


class Subscription(NamedTuple):
    hash: bytes | None
    instruction: int
    key: bytes
    partition: int


class Answer(NamedTuple):
    hash: bytes | None
    value: Any
    partition: int


def _write_subscription(_topic: str, value: Any) -> bytes | None:
    if value is None:
        return None
    head = _HEAD.pack(value.instruction, value.hash is not None, value.partition)
    return head + (value.hash or b"") + bytes(value.key)


def _read_subscription(_topic: str, data: bytes | None) -> Any:
    if data is None:
        return None
    instruction, hashed, partition = _HEAD.unpack(data[:6])
    end = 6 + 16 * hashed
    return Subscription(bytes(data[6:end]) if hashed else None, instruction, bytes(data[end:]), partition)


SUBSCRIPTIONS = Serde("subscription", _write_subscription, _read_subscription, shared=True)


def answers(value: Serde) -> Serde:
    """Answers that carry a right row, written by that table's serde."""

    def write(topic: str, answer: Any) -> bytes | None:
        if answer is None:
            return None
        body = value.write(topic, answer.value)
        head = _HEAD.pack(body is not None, answer.hash is not None, answer.partition)
        return head + (answer.hash or b"") + (body or b"")

    def read(topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        there, hashed, partition = _HEAD.unpack(data[:6])
        end = 6 + 16 * hashed
        # A right row of no bytes arrives as none, as in Kafka Streams.
        body = value.read(topic, data[end:]) if there and len(data) > end else None
        return Answer(bytes(data[6:end]) if hashed else None, body, partition)

    return Serde(f"answers of {value.name}", write, read, made=(answers, value))


def _subject(task: TaskContext, topic: str, what: str) -> str:
    """The topic name passed to serdes, as Kafka Streams names it: schemas of left keys (pk), right keys (fk)
    and hashed left rows (vh) have a subject each in a registry, and so has each application."""
    return f"{task.application}-{topic}-{what}"


def _hash(write: Callable[[Any], bytes | None], value: Any) -> bytes | None:
    return None if value is None else hashlib.blake2b(write(value) or b"", digest_size=16).digest()


@dataclass(slots=True)
class Subscribe:
    """`foreign_key` takes (key, value) of a left row."""

    foreign_key: Callable[[Any, Any], Any]
    left: bool
    key: Serde
    value: Serde
    right_key: Serde
    topic: str

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, extract, left = out.forward, self.foreign_key, self.left
        write_value = self.value.writer(_subject(task, self.topic, "vh"))
        write_key = self.key.writer(_subject(task, self.topic, "pk"))
        write_right_key = self.right_key.writer(_subject(task, self.topic, "fk"))

        def send(
            key: Any, right: Any, instruction: int, hashed: bytes | None, timestamp: int, headers: Headers
        ) -> None:
            wanted = Subscription(hashed, instruction, write_key(key) or b"", task.partition)
            forward(right, wanted, timestamp, headers)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if type(value) is OutOfOrder:
                task.dropped += 1
                return
            new, old = value
            if new is None and old is None:
                return
            hashed = _hash(write_value, new)
            old_right = None if old is None else extract(key, old)
            new_right = None if new is None else extract(key, new)
            moved = old_right is not None and write_right_key(old_right) != write_right_key(new_right)
            if left:
                if moved:
                    send(key, old_right, NO_ANSWER, hashed, timestamp, headers)
                send(key, new_right, ANSWER_ANYWAY, hashed, timestamp, headers)
            elif new_right is None:
                if new is not None:
                    task.dropped += 1
                if old_right is not None:
                    send(key, old_right, DELETE, hashed, timestamp, headers)
            elif moved:
                send(key, old_right, NO_ANSWER, hashed, timestamp, headers)
                send(key, new_right, ANSWER_ANYWAY, hashed, timestamp, headers)
            else:
                send(key, new_right, ANSWER_IF_THERE, hashed, timestamp, headers)

        return process


def subscription_key(right: bytes, left: bytes) -> bytes:
    """The key of a subscription: all of one right key lie together, ordered by left key."""
    return _SIZE.pack(len(right)) + right + left


def _after(prefix: bytes) -> bytes:
    """The first key behind all that begin with this one. Its first byte is that of a length, and not 255."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1])


@dataclass(slots=True)
class KeepSubscription:
    """Passes on ((right key, left key's bytes), subscription)."""

    store: str
    right_key: Serde
    topic: str

    def build(self, task: TaskContext, out: Out) -> Process:
        store, forward = task.store(self.store), out.forward
        write = self.right_key.writer(_subject(task, self.topic, "fk"))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                if value.instruction != ANSWER_ANYWAY:
                    task.dropped += 1
                    return
            else:
                encoded_key = subscription_key(write(key) or b"", value.key)
                gone = value.instruction in (NO_ANSWER, DELETE)
                store.put(encoded_key, None if gone else value, timestamp)
            forward(key, value, timestamp, headers)

        return process


@dataclass(slots=True)
class AnswerSubscription:
    """To a new subscription: the right row as it is now."""

    right: Getter
    key: Serde
    topic: str

    def build(self, task: TaskContext, out: Out) -> Process:
        get, forward = self.right.build(task), out.forward
        read_key = self.key.reader(_subject(task, self.topic, "pk"))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            row = None if key is None else get(key)
            instruction = value.instruction
            if instruction == NO_ANSWER or (instruction == ANSWER_IF_THERE and row is None):
                return
            if row is not None and row[1] > timestamp:
                timestamp = row[1]
            found = None if row is None or instruction == DELETE else row[0]
            answer = Answer(value.hash, found, value.partition)
            forward(read_key(value.key), answer, timestamp, headers)

        return process


@dataclass(slots=True)
class AnswerSubscribers:
    """To all subscribers of a right row that changed."""

    store: str
    key: Serde
    right_key: Serde
    topic: str

    def build(self, task: TaskContext, out: Out) -> Process:
        store, forward = task.store(self.store), out.forward
        read_key = self.key.reader(_subject(task, self.topic, "pk"))
        write_right = self.right_key.writer(_subject(task, self.topic, "fk"))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or type(value) is OutOfOrder:
                task.dropped += 1
                return
            prefix = subscription_key(write_right(key) or b"", b"")
            for encoded_key, subscription, _then in list(store.range(prefix, _after(prefix))):
                if encoded_key.startswith(prefix):
                    answer = Answer(subscription.hash, value[0], subscription.partition)
                    forward(read_key(subscription.key), answer, timestamp, headers)

        return process


@dataclass(slots=True)
class TakeAnswer:
    """The joiner takes (left key, left, right)."""

    left_rows: Getter
    joiner: Callable[[Any, Any, Any], Any]
    left: bool
    value: Serde
    topic: str

    def build(self, task: TaskContext, out: Out) -> Process:
        get, joiner, left, forward = self.left_rows.build(task), self.joiner, self.left, out.forward
        write = self.value.writer(_subject(task, self.topic, "vh"))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            row = get(key)
            mine = None if row is None else row[0]
            if _hash(write, mine) != value.hash:
                task.dropped += 1
                return
            if value.value is None and (not left or row is None):
                forward(key, None, timestamp, headers)
            else:
                forward(key, joiner(key, mine, value.value), timestamp, headers)

        return process
