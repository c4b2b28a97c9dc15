"""What readers of committed records see, and when."""

import threading
from typing import Any

from millstream.wire.errors import ErrorCode
from tests.support.waiting import wait_until

from .raw_transactions import Client, Fetched, Identity, batch, fetched, name

PLAIN = Identity(ErrorCode.none, -1, -1)


def begin(client: Client, topic: str, *values: bytes) -> tuple[str, Identity]:
    txn = name("txn")
    identity = client.init(txn)
    client.produce(txn, topic, batch(identity, 0, values), 12)
    return txn, identity


def plain(client: Client, topic: str, *values: bytes) -> None:
    client.produce(None, topic, batch(PLAIN, -1, values, transactional=False))


def ended(client: Client, txn: str, identity: Identity, commit: bool) -> None:
    client.end(txn, identity, commit, 5)
    client.wait_for_state(txn, "CompleteCommit", "CompleteAbort")


def test_nothing_behind_an_open_transaction_is_seen(client: Client) -> None:
    topic = client.topic()
    plain(client, topic, b"before")
    first = begin(client, topic, b"a0", b"a1")
    plain(client, topic, b"between")
    second = begin(client, topic, b"b0")
    answer = client.fetch(topic)
    assert (answer.values, answer.last_stable, answer.high_watermark) == ([b"before"], 1, 5)
    assert client.fetch(topic, committed=False).values == [b"before", b"a0", b"a1", b"between", b"b0"]
    assert client.end_offset(topic, committed=True) == 1
    assert client.end_offset(topic, committed=False) == 5
    ended(client, *first, commit=False)
    answer = client.fetch(topic)
    assert (answer.last_stable, answer.aborted) == (4, [(first[1].id, 1)])
    assert client.committed_values(topic) == [b"before", b"between"]
    ended(client, *second, commit=True)
    assert client.committed_values(topic) == [b"before", b"between", b"b0"]
    assert client.end_offset(topic, committed=True) == 7


def test_the_aborted_are_named_for_any_range_that_needs_them(client: Client) -> None:
    topic = client.topic()
    aborted = begin(client, topic, b"x0", b"x1")  # 0, 1
    plain(client, topic, b"p")  # 2
    ended(client, *aborted, commit=False)  # 3
    later = begin(client, topic, b"y")  # 4
    ended(client, *later, commit=False)  # 5
    first, second = (aborted[1].id, 0), (later[1].id, 4)
    expected = {0: [first, second], 2: [first, second], 3: [first, second], 4: [second], 6: []}
    for offset, entries in expected.items():
        assert client.fetch(topic, offset).aborted == entries, offset
    assert client.fetch(topic, 0, committed=False).aborted == []


def test_several_transactions_of_one_producer(client: Client) -> None:
    topic, txn = client.topic(), name("txn")
    identity = client.init(txn)
    for number in range(6):
        client.produce(txn, topic, batch(identity, 0, (b"%d" % number,)), 12)
        identity = client.end(txn, identity, number % 2 == 0, 5)
    client.wait_for_state(txn, "CompleteAbort")
    assert client.committed_values(topic) == [b"0", b"2", b"4"]
    assert client.fetch(topic).aborted == [(identity.id, offset) for offset in (2, 6, 10)]


def test_version_1_reuses_the_epoch(client: Client) -> None:
    topic, txn = client.topic(2), name("txn")
    identity = client.init(txn)
    for number in range(4):
        client.add(txn, identity, (topic, 0), (topic, 1))
        for partition in (0, 1):
            client.produce(txn, topic, batch(identity, number, (b"%d" % number,)), 11, partition)
        client.end(txn, identity, number % 2 == 1, 4)
        client.wait_for_state(txn, "CompleteCommit" if number % 2 else "CompleteAbort")
    for partition in (0, 1):
        assert client.committed_values(topic, partition) == [b"1", b"3"]


def test_a_transaction_over_many_partitions(client: Client) -> None:
    """More than the coordinator ends in one turn of its loop."""
    count = 150
    topic, txn = client.topic(count), name("txn")
    identity = client.init(txn)
    wanted = {(topic, partition): batch(identity) for partition in range(count)}

    def written() -> bool:
        for where, answer in client.try_produce(txn, wanted, 12).items():
            if answer.error_code == 0:
                del wanted[where]
        return not wanted

    # A new topic's partitions get their leaders one after the other.
    wait_until(written, lambda: f"without a leader: {sorted(wanted)}")
    client.end(txn, identity, True, 5)
    client.wait_for_state(txn, "CompleteCommit")
    for partition in range(count):
        assert client.end_offset(topic, committed=True, partition=partition) == 2


def waiting_fetch(client: Client, topic: str, offset: int) -> tuple[threading.Thread, list[Fetched]]:
    found: list[Fetched] = []
    thread = threading.Thread(target=lambda: found.append(client.fetch(topic, offset, wait_ms=100_000)))
    thread.start()
    return thread, found


def test_a_waiting_reader_is_woken_by_the_commit(client: Client, other: Client) -> None:
    topic = client.topic()
    txn, identity = begin(client, topic, b"v")
    thread, found = waiting_fetch(other, topic, 0)
    client.produce(txn, topic, batch(identity, 1, (b"w",)), 12)
    assert not found, "more of an open transaction is no news"
    client.end(txn, identity, True, 5)
    thread.join(60)
    assert found[0].values == [b"v", b"w"]


def test_a_waiting_reader_is_woken_by_the_abort(client: Client, other: Client) -> None:
    topic = client.topic()
    txn, identity = begin(client, topic, b"v")
    thread, found = waiting_fetch(other, topic, 0)
    client.end(txn, identity, False, 5)
    thread.join(60)
    assert found[0].aborted == [(identity.id, 0)]


def test_an_incremental_session_is_told_when_records_become_stable(client: Client) -> None:
    topic = client.topic()
    txn, identity = begin(client, topic, b"v")

    def ask(session: int, epoch: int, wanted: bool) -> Any:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        return client.ask(
            "fetch",
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=session,
            session_epoch=epoch,
            topics=[{"topic": topic, "partitions": [partition]}] if wanted else [],
            forgotten_topics_data=[],
            rack_id="",
        )

    first = ask(0, 0, True)
    assert first.responses[0].partitions[0].last_stable_offset == 0
    assert ask(first.session_id, 1, False).responses == ()
    client.end(txn, identity, True, 5)
    client.wait_for_state(txn, "CompleteCommit")
    news = ask(first.session_id, 2, False).responses[0].partitions[0]
    assert fetched(news).values == [b"v"]
    assert news.last_stable_offset == 2
