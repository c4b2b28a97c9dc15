"""Clients that behave badly with right bytes: too many, too slow, too greedy, gone too soon. Memory stays
bounded and nobody else notices."""

import os
import socket
import struct
import uuid
from collections.abc import Callable, Iterator

import pytest

from millstream.testing import Broker
from tests.support.waiting import wait_until

from .raw_frames import (
    Raw,
    Target,
    ask,
    batch,
    fetch_fields,
    framed,
    header,
    new_topic,
    produce_code,
    produce_fields,
    request,
    target,
)

__all__ = ["target"]  # the fixture

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def only_on_millstream(target: Target) -> None:
    if not target.is_millstream:
        pytest.skip("the memory of somebody else's broker cannot be watched")


@pytest.fixture
def bounded(target: Target) -> Iterator[Callable[[int], None]]:
    """bounded(megabytes): the broker has not grown by more than that since the test began."""
    before = target.memory()

    def check(megabytes: int) -> None:
        grown = (target.memory() - before) / MEGABYTE
        assert grown < megabytes, f"the broker grew by {grown:.0f} MB"

    yield check
    target.is_fine()


@pytest.fixture(scope="module")
def big_topic(target: Target) -> str:
    """Twenty batches of 1 MB."""
    name = f"big-{uuid.uuid4().hex[:8]}"
    new_topic(target.bootstrap, name)
    megabyte = bytes(batch(value=os.urandom(1_000_000)))
    for _ in range(20):
        assert produce_code(target.bootstrap, name, megabyte) == 0
    return name


def test_a_thousand_idle_connections(target: Target, bounded: Callable[[int], None]) -> None:
    descriptors = target.descriptors()
    idle = [Raw(target.bootstrap) for _ in range(1000)]
    try:
        wait_until(lambda: target.descriptors() >= descriptors + 1000)
        bounded(40)
        target.is_fine()
        for connection in idle[::50]:  # and they can wake up
            assert connection.ask("api_versions", 0).error_code == 0
    finally:
        for connection in idle:
            connection.socket.close()
    wait_until(lambda: target.descriptors() < descriptors + 50)


def test_a_thousand_frames_that_are_announced_and_never_sent(
    target: Target, bounded: Callable[[int], None]
) -> None:
    """Each claims 100 MB and sends 20 bytes: what counts is what was received."""
    waiting = [Raw(target.bootstrap) for _ in range(1000)]
    try:
        for connection in waiting:
            connection.send(
                struct.pack(">i", 100_000_000) + header(0, 9, 1, flexible=True) + b"\0\xff\xff\0\0"
            )
        target.is_fine()
        bounded(60)
    finally:
        for connection in waiting:
            connection.socket.close()


def test_a_frame_that_never_ends(target: Target, bounded: Callable[[int], None]) -> None:
    with Raw(target.bootstrap) as connection:
        connection.send(struct.pack(">i", 1000) + header(3, 9, 1, flexible=True))
        for _ in range(50):
            connection.send(b"\0")
            target.is_fine()
        bounded(20)


def test_a_reader_that_never_reads(target: Target, big_topic: str, bounded: Callable[[int], None]) -> None:
    greedy = [Raw(target.bootstrap, receive_buffer=4096) for _ in range(20)]
    try:
        for connection in greedy:
            connection.send(b"".join(request("fetch", 12, **fetch_fields(big_topic)) for _ in range(50)))
        for _ in range(20):
            target.is_fine()
        bounded(60)
    finally:
        for connection in greedy:
            connection.socket.close()


def test_an_asker_that_never_reads(target: Target, bounded: Callable[[int], None]) -> None:
    """The broker stops reading from a client that does not take its answers, and goes on when it does."""
    with Raw(target.bootstrap, receive_buffer=4096) as connection:
        question = request("api_versions", 3, 1, client_software_name="raw", client_software_version="1")
        connection.socket.settimeout(0.5)
        sent = bytearray()
        try:
            while len(sent) < 64 * MEGABYTE:
                sent += question[: connection.socket.send(question)]
        except TimeoutError:
            pass
        assert len(sent) < 64 * MEGABYTE, "the broker swallowed everything"
        target.is_fine()
        bounded(40)
        connection.socket.settimeout(20)
        for _ in range(len(sent) // len(question)):
            assert connection.receive() is not None


def test_a_reader_that_reads_slowly_gets_everything(target: Target, big_topic: str) -> None:
    with Raw(target.bootstrap, receive_buffer=4096) as connection:
        connection.send(request("fetch", 12, **fetch_fields(big_topic, max_bytes=3_000_000)))
        for _ in range(100):
            assert connection.socket.recv(100)
            target.is_fine()


@pytest.mark.parametrize("how", ["politely", "rudely"])
def test_readers_that_leave_while_they_wait(
    target: Target, big_topic: str, how: str, bounded: Callable[[int], None]
) -> None:
    before = target.descriptors()
    for _ in range(200):
        connection = Raw(target.bootstrap)
        connection.send(request("fetch", 12, **fetch_fields(big_topic, 20, wait=60_000)))
        if how == "rudely":  # a reset instead of a goodbye
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.socket.close()
    wait_until(lambda: target.descriptors() <= before + 5)
    # Wakes whoever is still said to wait.
    assert produce_code(target.bootstrap, big_topic, bytes(batch())) == 0
    bounded(20)


def test_readers_that_leave_in_the_middle_of_an_answer(
    target: Target, big_topic: str, bounded: Callable[[int], None]
) -> None:
    before = target.descriptors()
    for _ in range(50):
        with Raw(target.bootstrap) as connection:
            connection.send(request("fetch", 12, **fetch_fields(big_topic)) * 3)
            connection.socket.recv(1000)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: target.descriptors() <= before + 5)
    bounded(30)


def test_writers_that_leave_in_the_middle_of_a_batch(
    target: Target, big_topic: str, bounded: Callable[[int], None]
) -> None:
    whole = request("produce", 9, **produce_fields(target.topic, bytes(batch(value=os.urandom(900_000)))))
    for part in range(1, 50):
        with Raw(target.bootstrap) as connection:
            connection.send(whole[: len(whole) * part // 50])
    bounded(30)


def test_connections_that_come_and_go(target: Target, bounded: Callable[[int], None]) -> None:
    before = target.descriptors()
    for _ in range(1000):
        Raw(target.bootstrap).socket.close()
    wait_until(lambda: target.descriptors() <= before + 5)
    bounded(20)


def test_fetch_sessions_nobody_closes(target: Target, big_topic: str, bounded: Callable[[int], None]) -> None:
    """There is room for max.incremental.fetch.session.cache.slots of them: the rest are served without
    one."""
    with Raw(target.bootstrap) as connection:
        for _ in range(1500):
            fields = fetch_fields(big_topic, 20, wait=0) | {"session_epoch": 0}
            assert connection.ask("fetch", 12, **fields).error_code == 0
    bounded(20)


def test_the_largest_frame_is_a_setting(target: Target) -> None:
    with (
        Broker({"socket.request.max.bytes": 10_000}) as broker,
        Target(broker.bootstrap_servers, broker) as small,
    ):
        padding = b"x" * (10_000 - len(header(18, 0, 7, flexible=False)))
        with Raw(broker.bootstrap_servers) as connection:
            connection.send(framed(header(18, 0, 7, flexible=False) + padding))
            assert connection.receive() is not None
        with small.one_log_line(), Raw(broker.bootstrap_servers) as connection:
            connection.send(framed(header(18, 0, 7, flexible=False) + padding + b"x"))
            assert connection.closed()
        small.is_fine()


def test_many_large_frames_at_once_stay_within_a_budget(
    target: Target, bounded: Callable[[int], None]
) -> None:
    """Sixty writers with 4 MB of an unfinished frame each: 240 MB that must not all be held."""
    unfinished = struct.pack(">i", 90_000_000) + header(0, 9, 1, flexible=True) + bytes(4 * MEGABYTE)
    writers = [Raw(target.bootstrap) for _ in range(60)]
    try:
        for connection in writers:
            connection.socket.settimeout(0.05)
            try:
                connection.send(unfinished)
            except (TimeoutError, ConnectionError):
                pass
        target.is_fine()
        bounded(300)
    finally:
        for connection in writers:
            connection.socket.close()


def test_a_topic_of_absurd_size_is_refused(target: Target, bounded: Callable[[int], None]) -> None:
    topic = {
        "name": "absurd",
        "num_partitions": 2**31 - 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    answer = ask(target.bootstrap, "create_topics", 5, topics=[topic], timeout=1000, validate_only=False)
    assert answer.topics[0].error_code in (44, 37)  # POLICY_VIOLATION, as Kafka says, or INVALID_PARTITIONS
    bounded(20)
