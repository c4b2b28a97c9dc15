"""Members of groups in raw frames: one socket each, no client library between the broker and the clock."""

import itertools
import socket
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any

import brokers
from millstream.client.messages import API_KEYS, Exchange, request_header

NO_MEMBER = ""
MEMBER_ID_REQUIRED = 79
_commit_head = struct.Struct(">hhih")  # api, version, correlation id, no client id


class Line:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = itertools.count()
        self._file = self.socket.makefile("rb")

    def send(self, name: str, version: int, **fields: Any) -> None:
        exchange = Exchange(name, version)
        head = request_header(API_KEYS[name], version, next(self._numbers), b"bench", exchange.flexible)
        body = head + exchange.encode(fields)
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._file.read(4))
        return self._file.read(size)

    def answer(self, name: str, version: int) -> Any:
        return Exchange(name, version).decode(memoryview(self.frame())[4:])

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        self.send(name, version, **fields)
        return self.answer(name, version)

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def find_coordinator(broker: brokers.Broker) -> None:
    """Have the coordinators' topic made, and wait until it is there."""
    line = Line(broker.port)
    deadline = time.monotonic() + 60
    while line.ask("find_coordinator", 2, key="any", key_type=0).error_code:
        if time.monotonic() > deadline:
            raise brokers.Failed(f"{broker.name}: no group coordinator")
        time.sleep(0.05)
    time.sleep(0.5)
    line.close()


def commit_frame(group: str, topics: Sequence[tuple[str, Sequence[int]]], offset: int) -> bytes:
    """OffsetCommit 7, packed by hand: there are a million of them."""
    name = group.encode()
    parts = [
        _commit_head.pack(8, 7, 0, -1),
        struct.pack(">h", len(name)),
        name,
        struct.pack(">ihhi", -1, 0, -1, len(topics)),
    ]
    for topic, partitions in topics:
        text = topic.encode()
        parts.append(struct.pack(">h", len(text)) + text + struct.pack(">i", len(partitions)))
        parts += [struct.pack(">iqih", partition, offset, -1, 0) for partition in partitions]
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def refused(answer: bytes) -> bool:
    """Whether a commit of one partition was (the answer ends with its error code)."""
    return answer[-2:] != b"\0\0"


def settle_classic(broker: brokers.Broker, topic: str, partitions: int, members: int, delay: float) -> float:
    """Seconds from the end of the initial rebalance delay until every member has its assignment.

    The delay is prolonged once because members came while it ran, as Kafka does: it ends two delays after the
    first join.
    """
    group = f"settle-{uuid.uuid4().hex[:8]}"
    lines = [Line(broker.port) for _ in range(members)]
    metadata = struct.pack(">hih", 1, 1, len(topic)) + topic.encode() + struct.pack(">ii", -1, 0)

    def join(line: Line, member: str) -> None:
        line.send(
            "join_group",
            5,
            group_id=group,
            session_timeout=30_000,
            rebalance_timeout=60_000,
            member_id=member,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": metadata}],
        )

    try:
        for line in lines:
            join(line, NO_MEMBER)
        names = []
        for line in lines:
            answer = line.answer("join_group", 5)
            if answer.error_code != MEMBER_ID_REQUIRED:
                raise brokers.Failed(f"{broker.name}: a member without an id got {answer.error_code!r}")
            names.append(answer.member_id)
        began = time.perf_counter()
        for line, member in zip(lines, names, strict=True):
            join(line, member)
        answers = [line.answer("join_group", 5) for line in lines]
        if {(answer.error_code, answer.generation_id) for answer in answers} != {(0, 1)}:
            raise brokers.Failed(f"{broker.name}: not everybody joined the first generation")
        shares = {
            member: _assignment(topic, range(at, partitions, members)) for at, member in enumerate(names)
        }
        for line, member, answer in zip(lines, names, answers, strict=True):
            leads = answer.leader == member
            line.send(
                "sync_group",
                3,
                group_id=group,
                generation_id=1,
                member_id=member,
                group_instance_id=None,
                assignments=[{"member_id": m, "assignment": a} for m, a in shares.items()] if leads else [],
            )
        for line, member in zip(lines, names, strict=True):
            synced = line.answer("sync_group", 3)
            if synced.error_code or synced.assignment != shares[member]:
                raise brokers.Failed(f"{broker.name}: {member} got {synced!r}")
        return time.perf_counter() - began - 2 * delay
    finally:
        for line in lines:
            line.close()


def _assignment(topic: str, partitions: Sequence[int]) -> bytes:
    head = struct.pack(">hih", 1, 1, len(topic)) + topic.encode()
    return head + struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, 0)


def settle_consumer(broker: brokers.Broker, topic: str, partitions: int, members: int) -> float:
    """Seconds from the first heartbeat until every member holds its share at the group's last epoch; every
    member sends its next heartbeat when it has the answer to the last."""
    group = f"settle-{uuid.uuid4().hex[:8]}"
    lines = [Line(broker.port) for _ in range(members)]
    names = [str(uuid.uuid4()) for _ in lines]
    epochs = [0] * members
    owned: list[list[dict[str, Any]]] = [[] for _ in lines]
    counts = [0] * members
    try:
        began = time.perf_counter()
        while time.perf_counter() - began < 60:
            for at, line in enumerate(lines):
                line.send(
                    "consumer_group_heartbeat",
                    1,
                    group_id=group,
                    member_id=names[at],
                    member_epoch=epochs[at],
                    instance_id=None,
                    rack_id=None,
                    rebalance_timeout=60_000,
                    subscribed_topic_names=[topic],
                    subscribed_topic_regex=None,
                    server_assignor=None,
                    topic_partitions=owned[at],
                )
            for at, line in enumerate(lines):
                answer = line.answer("consumer_group_heartbeat", 1)
                if answer.error_code:
                    raise brokers.Failed(f"{broker.name}: a heartbeat got {answer.error_message}")
                epochs[at] = answer.member_epoch
                if answer.assignment is not None:
                    given = answer.assignment.topic_partitions
                    owned[at] = [
                        {"topic_id": each.topic_id, "partitions": list(each.partitions)} for each in given
                    ]
                    counts[at] = sum(len(each.partitions) for each in given)
            if len(set(epochs)) == 1 and sum(counts) == partitions:
                return time.perf_counter() - began
        raise brokers.Failed(f"{broker.name}: {sum(counts)} of {partitions} partitions given out in a minute")
    finally:
        for line in lines:
            line.close()
