"""Talks to a broker in bytes: frames as they are on the wire, right or wrong, over a plain socket."""

import itertools
import os
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from millstream.client.messages import API_KEYS, Exchange
from millstream.testing import Broker
from millstream.wire.records import Record, encode_batch
from tests.support.waiting import wait_until

API_VERSIONS, PRODUCE, FETCH, LIST_OFFSETS, METADATA = 18, 0, 1, 2, 3
WAIT = 20.0
HEADER = struct.Struct(">hhih")
_ids = itertools.count(1)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(key: int, version: int, correlation: int, *, flexible: bool, client: bytes = b"raw") -> bytes:
    return HEADER.pack(key, version, correlation, len(client)) + client + (b"\0" if flexible else b"")


def request(name: str, version: int, correlation: int | None = None, **fields: Any) -> bytes:
    """A right request, framed."""
    exchange = Exchange(name, version)
    number = next(_ids) if correlation is None else correlation
    head = header(API_KEYS[name], version, number, flexible=exchange.flexible)
    return framed(head + exchange.encode(fields))


def batch(count: int = 1, *, value: bytes = b"value", **options: Any) -> bytearray:
    """A right record batch."""
    now = int(time.time() * 1000)
    return encode_batch([Record(n, now, b"key", value, ()) for n in range(count)], **options)


class Raw:
    """One connection."""

    def __init__(self, bootstrap: str, *, receive_buffer: int | None = None) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(WAIT)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next frame's content, or None where the broker closed the connection."""
        try:
            head = self._exactly(4)
            return None if head is None else self._exactly(struct.unpack(">i", head)[0])
        except (ConnectionResetError, BrokenPipeError):
            return None

    def _exactly(self, size: int) -> bytes | None:
        out = bytearray()
        while len(out) < size:
            some = self.socket.recv(min(size - len(out), 1 << 20))
            if not some:
                return None
            out += some
        return bytes(out)

    def closed(self) -> bool:
        """True when the broker closes without a word; raises where it says or does nothing."""
        answer = self.receive()
        assert answer is None, f"it answered: {answer[:200]!r}"
        return True

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """Send a right request; the answer as an object (None where the broker closed)."""
        self.send(request(name, version, **fields))
        return self.answer(name, version)

    def answer(self, name: str, version: int) -> Any:
        frame = self.receive()
        return None if frame is None else Exchange(name, version).decode(memoryview(frame)[4:])


def ask(bootstrap: str, name: str, version: int, **fields: Any) -> Any:
    with Raw(bootstrap) as connection:
        return connection.ask(name, version, **fields)


def new_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    answer = ask(bootstrap, "create_topics", 5, topics=[topic], timeout=10_000, validate_only=False)
    assert answer.topics[0].error_code == 0, answer
    wait_until(lambda: produce_code(bootstrap, name, b"") not in (3, 6), "the topic has no leader")


def produce_fields(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1
) -> dict[str, Any]:
    return {
        "acks": acks,
        "timeout": 5000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    }


def produce(bootstrap: str, topic: str, records: bytes | None, version: int = 9, **options: Any) -> Any:
    """The one partition's answer, or None where the broker closed."""
    answer = ask(bootstrap, "produce", version, **produce_fields(topic, records, **options))
    return None if answer is None else answer.responses[0].partition_responses[0]


def produce_code(
    bootstrap: str, topic: str, records: bytes | None, version: int = 9, **options: Any
) -> int | None:
    answer = produce(bootstrap, topic, records, version, **options)
    return None if answer is None else int(answer.error_code)


def ends(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The offset that the next record gets."""
    asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
    answer = ask(
        bootstrap,
        "list_offsets",
        5,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": [asked]}],
    )
    return int(answer.topics[0].partitions[0].offset)


def fetch_fields(
    topic: str, offset: int = 0, *, wait: int = 500, max_bytes: int = 50_000_000
) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait": wait,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


class Target:
    """The broker under attack, and a well-behaved client that must not notice.

    By default a Millstream of our own, whose memory and log can be watched. With MILLSTREAM_AGAINST=HOST:PORT
    any broker: that is how the expected answers were taken from Apache Kafka.
    """

    def __init__(self, bootstrap: str, broker: Broker | None) -> None:
        self.bootstrap = bootstrap
        self.broker = broker
        self.topic = f"bystander-{uuid.uuid4().hex[:8]}"
        new_topic(bootstrap, self.topic)
        self._client = Raw(bootstrap)
        self._read = 0  # of the broker's log

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.socket.close()

    @property
    def is_millstream(self) -> bool:
        return self.broker is not None

    def is_fine(self) -> None:
        """The well-behaved client, on the connection it has had all the time, writes and is acknowledged."""
        answer = self._client.ask("produce", 9, **produce_fields(self.topic, bytes(batch())))
        assert answer is not None, "the bystander lost its connection"
        assert answer.responses[0].partition_responses[0].error_code == 0
        if self.broker is not None:
            assert self.broker.running
            log = self.broker.log
            new, self._read = log[self._read :], len(log)
            surprises = [line for line in new.splitlines() if "Traceback" in line]
            assert not surprises, surprises

    def memory(self) -> int:
        """Resident bytes."""
        assert self.broker is not None
        return int(psutil.Process(self.broker.pid).memory_info().rss)

    def descriptors(self) -> int:
        assert self.broker is not None
        return int(psutil.Process(self.broker.pid).num_fds())

    @contextmanager
    def one_log_line(self) -> Iterator[None]:
        """What happens inside leaves one line in the broker's log, no more and no less."""
        if self.broker is None:
            yield
            return
        before = self.broker.log.count("\n")
        yield
        broker = self.broker
        wait_until(lambda: broker.log.count("\n") > before, "no line")
        # A second line would follow the first at once. Nothing tells that none will.
        time.sleep(0.02)
        lines = self.broker.log.splitlines()[before:]
        assert len(lines) == 1, lines


@pytest.fixture(scope="session")
def target() -> Iterator[Target]:
    """Import it where it is wanted: one broker for all the bad input of a session."""
    if (elsewhere := os.environ.get("MILLSTREAM_AGAINST")) is not None:
        with Target(elsewhere, None) as target:
            yield target
    else:
        with Broker() as broker, Target(broker.bootstrap_servers, broker) as target:
            yield target
