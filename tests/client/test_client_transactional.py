"""Transactions of the client: what read_committed sees, who is fenced, and an end by another connection."""

import uuid

import pytest

from millstream.client import (
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    TransactionalProducer,
    visible_batches,
)
from millstream.client.coordinators import Coordinators
from millstream.client.fetch import next_offset
from millstream.client.groups import Groups
from millstream.client.transaction_commits import TransactionCommit, commit_all
from millstream.client.transactional import end_all, is_fenced, send_all
from millstream.client.transport import PlainTransport
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch, iter_records
from millstream.wire.topic_partition import TopicPartition


@pytest.fixture
def cluster(millstream_broker):
    with Cluster(
        ClientConfig.of(millstream_broker.bootstrap_servers, {"default.api.timeout.ms": "15000"})
    ) as made:
        yield made


@pytest.fixture
def topic(cluster):
    name = f"transactional-{uuid.uuid4().hex[:12]}"
    assert not isinstance(Admin(cluster).create_topics([NewTopic(name, 2, 1)])[name], KafkaError)
    return name


@pytest.fixture(autouse=True, params=[1, 2], ids=lambda version: f"protocol {version}")
def protocol(request, monkeypatch):
    """All tests in both forms of the protocol: of those that say nothing else, every producer may use it."""
    monkeypatch.setitem(TransactionalProducer.__init__.__kwdefaults__, "newest", request.param)
    return request.param


@pytest.fixture
def name():
    return f"tx-{uuid.uuid4().hex[:8]}"


def batch(*values):
    return encode_batch([Record(0, 1_700_000_000_000, None, value) for value in values], transactional=True)


def committed(cluster, topic, partition=0):
    fetcher = Fetcher(cluster, read_committed=True)
    found, offset = [], 0
    while True:
        (answer,) = fetcher.poll({(topic, partition): offset}, max_wait_ms=50)
        for _, data in visible_batches(answer, offset, read_committed=True):
            found += [record.value for record in iter_records(data)]
        after = next_offset(answer, offset)
        if after == offset:
            return found
        offset = after


def test_commit_shows_and_abort_hides(cluster, topic, name):
    producer = TransactionalProducer(cluster, name)
    producer.begin()
    producer.send_batches({(topic, 0): batch(b"a", b"b"), (topic, 1): batch(b"c")})
    assert committed(cluster, topic) == []
    producer.send_batches({(topic, 0): batch(b"d")})
    producer.commit()
    producer.begin()
    producer.send_batches({(topic, 0): batch(b"gone")})
    producer.abort()
    assert committed(cluster, topic) == [b"a", b"b", b"d"]
    assert committed(cluster, topic, 1) == [b"c"]


def test_whoever_begins_later_fences_the_earlier_one(cluster, topic, name):
    first, second = TransactionalProducer(cluster, name), TransactionalProducer(cluster, name)
    first.begin()
    first.send_batches({(topic, 0): batch(b"first")})
    second.begin()
    with pytest.raises(KafkaError) as refused:
        first.send_batches({(topic, 0): batch(b"more")})
    assert is_fenced(refused.value)
    (error,) = end_all(cluster, [first.handle()], True).values()
    assert is_fenced(error)
    second.send_batches({(topic, 0): batch(b"second")})
    second.commit()
    assert committed(cluster, topic) == [b"second"]


def test_another_process_writes_on_and_ends_many_at_once(cluster, topic, name):
    topic_partition = (topic, 0)
    handles = []
    for number in range(5):
        producer = TransactionalProducer(cluster, f"{name}-{number}")
        producer.begin()
        producer.send_batches({topic_partition: batch(b"row %d" % number)})
        handles.append(producer.handle([topic_partition]))
    with Cluster(cluster.config) as other:
        assert send_all(other, topic_partition, [(handle, batch(b"end")) for handle in handles]) == {}
        assert end_all(other, handles, True) == {}
        assert end_all(other, handles, True) == {}, "the same end twice is one end"
    assert sorted(committed(cluster, topic)) == [b"end"] * 5 + [b"row %d" % number for number in range(5)]


def test_a_transaction_that_is_over_takes_no_more(cluster, topic, name):
    producer = TransactionalProducer(cluster, name)
    with pytest.raises(KafkaError):
        producer.send_batches({(topic, 0): batch(b"too early")})


# --- many transactions at once ------------------------------------------------------------------------------


def _work(cluster, topic, name, number, *rounds):
    """A transaction of one producer: rounds of values for partition 0, and an offset."""
    producer = TransactionalProducer(cluster, f"{name}-{number}")
    producer.begin()
    batches = [{TopicPartition(topic, 0): batch(*values)} for values in rounds]
    return TransactionCommit(producer, batches, name, {TopicPartition(topic, number): number + 1})


def _offsets(cluster, name):
    return {which.partition: found.offset for which, found in Groups(cluster).committed(name).items()}


def test_a_transaction_without_a_group(cluster, topic, name):
    """As of a connector that reads something else than topics."""
    work = _work(cluster, topic, name, 0, [b"a"])
    work.group, work.offsets = "", {}
    for number in range(2):
        work.rounds = [{TopicPartition(topic, 0): batch(b"%d" % number)}]
        assert commit_all(cluster, [work]) == {}
    assert committed(cluster, topic) == [b"0", b"1"]


def test_many_transactions_are_committed_together(cluster, topic, name):
    works = [_work(cluster, topic, name, number, [b"%d" % number]) for number in range(2)]
    assert commit_all(cluster, works) == {}
    assert sorted(committed(cluster, topic)) == [b"0", b"1"]
    assert _offsets(cluster, name) == {0: 1, 1: 2}
    # The next transactions, under the same epochs; one has only offsets, one has several rounds.
    works[0].rounds, works[0].offsets = [], {TopicPartition(topic, 0): 10}
    works[1].rounds = [{TopicPartition(topic, 0): batch(b"2")}, {TopicPartition(topic, 0): batch(b"3", b"4")}]
    works[1].sent.clear()
    assert commit_all(cluster, works) == {}
    assert sorted(committed(cluster, topic)) == [b"0", b"1", b"2", b"3", b"4"]
    assert _offsets(cluster, name)[0] == 10
    last = works[1].sent[TopicPartition(topic, 0)].offset
    (answer,) = Fetcher(cluster).poll({(topic, 0): last}, 500)
    _, data = next(visible_batches(answer, last))
    assert [record.value for record in iter_records(data)] == [b"3", b"4"]


def test_one_that_was_fenced_does_not_touch_the_others(cluster, topic, name):
    works = [_work(cluster, topic, name, number, [b"%d" % number]) for number in range(2)]
    TransactionalProducer(cluster, f"{name}-0").begin()
    failed = commit_all(cluster, works)
    assert failed.keys() == {0}
    assert is_fenced(failed[0])
    assert committed(cluster, topic) == [b"1"]
    assert _offsets(cluster, name) == {1: 2}


def test_what_passes_is_done_again(cluster, topic, name, monkeypatch):
    """The coordinator is still busy with the end of the last transaction."""
    works = [_work(cluster, topic, name, number, [b"%d" % number]) for number in range(2)]
    answered = TransactionalProducer.partitions_answered
    busy = [works[0].producer, works[1].producer]

    def sometimes(self, answer, partitions):
        if self in busy:
            busy.remove(self)
            raise KafkaError(ErrorCode.concurrent_transactions, "busy")
        answered(self, answer, partitions)

    monkeypatch.setattr(TransactionalProducer, "partitions_answered", sometimes)
    assert commit_all(cluster, works) == {}
    assert sorted(committed(cluster, topic)) == [b"0", b"1"]
    assert _offsets(cluster, name) == {0: 1, 1: 2}


def test_a_topic_that_does_not_exist_fails_only_its_own(millstream_broker, topic, name):
    # It is waited for: the topic may be new and not known everywhere.
    config = ClientConfig.of(millstream_broker.bootstrap_servers, {"default.api.timeout.ms": "2000"})
    with Cluster(config) as cluster:
        _fails_only_its_own(cluster, topic, name)


def _fails_only_its_own(cluster, topic, name):
    works = [_work(cluster, topic, name, number, [b"%d" % number]) for number in range(2)]
    works[0].rounds = [{TopicPartition("missing-" + topic, 0): batch(b"x")}]
    failed = commit_all(cluster, works)
    assert failed.keys() == {0}
    assert failed[0].code is ErrorCode.unknown_topic_or_partition
    assert committed(cluster, topic) == [b"1"]


def test_offsets_of_a_topic_that_was_deleted_fail_at_once(cluster, topic, name, monkeypatch):
    works = [_work(cluster, topic, name, number, [b"%d" % number]) for number in range(2)]
    works[0].rounds, works[0].group = [], name
    works[0].offsets = {TopicPartition("deleted-" + topic, 0): 1}
    monkeypatch.setattr(TransactionalProducer, "commit_offsets", lambda *_: pytest.fail("it is waited for"))
    failed = commit_all(cluster, works)
    assert failed.keys() == {0}
    assert failed[0].code is ErrorCode.unknown_topic_or_partition
    assert committed(cluster, topic) == [b"1"]


def test_many_commits_take_few_sends_and_no_search(cluster, topic, name, protocol, monkeypatch):
    """What begins all transactions leaves in one piece (in the second protocol there is nothing of it), what
    is in them in another, their ends in a third, and nobody is looked for."""
    producers = [TransactionalProducer(cluster, f"{name}-{number}") for number in range(5)]

    def commits(value):
        return [
            TransactionCommit(
                producer,
                [{TopicPartition(topic, 0): batch(b"%d-%d" % (value, number))}],
                name,
                {TopicPartition(topic, 1): value},
            )
            for number, producer in enumerate(producers)
        ]

    for producer in producers:
        producer.begin()
    assert commit_all(cluster, commits(1)) == {}
    sends = []
    send = PlainTransport.send
    monkeypatch.setattr(PlainTransport, "send", lambda *given: (sends.append(1), send(*given))[1])
    monkeypatch.setattr(Coordinators, "_find", lambda _self, keys: pytest.fail(f"looks for {keys}"))
    assert commit_all(cluster, commits(2)) == {}
    assert len(sends) == (3 if protocol == 1 else 2)
    monkeypatch.undo()
    assert committed(cluster, topic) == [
        b"%d-%d" % (value, number) for value in (1, 2) for number in range(5)
    ]


def test_few_records_for_one_partition_leave_in_one_batch(cluster, topic, name, monkeypatch):
    """Of several commits of a shared producer. Batches stay as they are, and what is much becomes several."""
    producer = TransactionalProducer(cluster, name, shared=True)
    producer.begin()
    requests = []
    pack = TransactionalProducer.pack_and_send
    monkeypatch.setattr(
        TransactionalProducer, "pack_and_send", lambda *given: (requests.append(given[2]), pack(*given))[1]
    )

    def commits(size):
        values = [bytes([number]) * size for number in range(3)]
        few = [
            {TopicPartition(topic, 0): [Record(0, 5, b"k", value) for value in some]}
            for some in (values[:1], values[1:])
        ]
        works = [
            TransactionCommit(producer, [], name, {TopicPartition(topic, at): 1}, few=mine)
            for at, mine in enumerate(few)
        ]
        return works, values

    small, values = commits(3)
    small[0].rounds = [{TopicPartition(topic, 1): batch(b"batch")}]
    assert commit_all(cluster, small) == {}
    assert len(requests) == 1
    assert all(work.sent[TopicPartition(topic, 0)].offset == 0 for work in small)
    assert small[0].partitions == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    large, more = commits(60_000)
    assert commit_all(cluster, large) == {}
    assert len(requests) == 4
    assert committed(cluster, topic) == values + more
    assert committed(cluster, topic, 1) == [b"batch"]


def test_few_records_of_whoever_is_not_at_fault_are_written(cluster, topic, name):
    """One of two commits is refused: the other has a transaction of its own, and hears where it is."""
    producer = TransactionalProducer(cluster, name, shared=True)
    producer.begin()
    works = [
        TransactionCommit(
            producer,
            [],
            name,
            {TopicPartition(topic, number): 1},
            few={TopicPartition(topic, number): [Record(0, 5, None, value)]},
        )
        for number, value in enumerate((b"fine", bytes(2 << 20)))
    ]
    assert commit_all(cluster, works).keys() == {1}
    assert committed(cluster, topic) == [b"fine"]
    assert works[0].sent.keys() == {TopicPartition(topic, 0)}
    assert _offsets(cluster, name) == {0: 1}


def _answers(monkeypatch, change):
    """What the producers hear of their batches, changed on the way."""
    heard = TransactionalProducer.outcomes_in

    def outcomes_in(self, answer):
        return change(self, heard(self, answer))

    monkeypatch.setattr(TransactionalProducer, "outcomes_in", outcomes_in)


def test_no_batch_goes_out_before_its_transaction_has_begun(cluster, topic, name, monkeypatch):
    """It could become a part of the last one, whose markers are still being written."""
    work = _work(cluster, topic, name, 0, [b"a"])
    answered = TransactionalProducer.partitions_answered
    sent = []
    pack = TransactionalProducer.pack_and_send
    monkeypatch.setattr(
        TransactionalProducer, "pack_and_send", lambda *given: (sent.append(given), pack(*given))[1]
    )

    def busy(self, answer, partitions):
        monkeypatch.setattr(TransactionalProducer, "partitions_answered", answered)
        assert not sent
        raise KafkaError(ErrorCode.concurrent_transactions, "busy")

    monkeypatch.setattr(TransactionalProducer, "partitions_answered", busy)
    assert commit_all(cluster, [work]) == {}
    assert committed(cluster, topic) == [b"a"]


def test_a_batch_that_was_written_behind_a_lost_answer_is_there_once(cluster, topic, name, monkeypatch):
    """The first round is written and answered with an error that passes, the second one is acknowledged: the
    first one goes out again under its old number, and the broker knows it."""
    work = _work(cluster, topic, name, 0, [b"a", b"b"], [b"c"], [b"d"])
    rounds = []

    def change(_producer, outcomes):
        rounds.append(outcomes)
        if len(rounds) == 1:
            refused = KafkaError(ErrorCode.not_leader_or_follower, "was it written?")
            return dict.fromkeys(outcomes, refused)
        return outcomes

    _answers(monkeypatch, change)
    assert commit_all(cluster, [work]) == {}
    work.rounds = [{TopicPartition(topic, 0): batch(b"e")}]
    assert commit_all(cluster, [work]) == {}
    assert committed(cluster, topic) == [b"a", b"b", b"c", b"d", b"e"]


def test_batches_in_doubt_end_the_use_of_a_shared_producer(cluster, topic, name, monkeypatch):
    """One commit is refused for good, of the other nobody knows whether its batch was written. Alone, it
    would get the same number, and the broker would take it for the one that was aborted."""
    producer = TransactionalProducer(cluster, name, shared=True)
    producer.begin()
    works = [
        TransactionCommit(
            producer,
            [{TopicPartition(topic, number): batch(b"%d" % number)}],
            name,
            {TopicPartition(topic, number): 1},
        )
        for number in range(2)
    ]

    def change(_producer, outcomes):
        wrong = {0: ErrorCode.message_too_large, 1: ErrorCode.not_enough_replicas_after_append}
        return {which: KafkaError(wrong[which.partition], "no") for which in outcomes}

    _answers(monkeypatch, change)
    failed = commit_all(cluster, works)
    monkeypatch.undo()
    assert failed.keys() == {0, 1}
    assert all(map(is_fenced, failed.values())), "whoever hears this begins anew"
    assert producer.producer_id < 0
    TransactionalProducer(cluster, name).begin()
    assert committed(cluster, topic, 0) == committed(cluster, topic, 1) == []
    assert _offsets(cluster, name) == {}


def test_a_coordinator_that_is_away_at_the_end_is_reported(cluster, topic, name, monkeypatch):
    work = _work(cluster, topic, name, 0, [b"a"])

    def away(*_given):
        raise KafkaError(ErrorCode.coordinator_not_available, "away for too long")

    monkeypatch.setattr("millstream.client.transaction_commits.end_all", away)
    assert commit_all(cluster, [work])[0].code is ErrorCode.coordinator_not_available


def test_every_end_gives_a_producer_another_epoch(cluster, topic, name, protocol):
    """In the second protocol: whatever is late of one transaction cannot become a part of the next."""
    work = _work(cluster, topic, name, 0, [b"a"])
    producer, before = work.producer, work.producer.producer_epoch
    for number in range(3):
        work.rounds = [{TopicPartition(topic, 0): batch(b"%d" % number)}]
        assert commit_all(cluster, [work]) == {}
    producer.send_batches({TopicPartition(topic, 0): batch(b"gone")})
    producer.abort()
    producer.begin_next()
    assert producer.producer_epoch == before + (4 if protocol == 2 else 0)
    late = TransactionalProducer.resume(cluster, producer.handle())
    late.producer_epoch = before
    if protocol == 2:
        with pytest.raises(KafkaError) as refused:
            late.send_batches({TopicPartition(topic, 0): batch(b"late")})
        assert is_fenced(refused.value)
    work.rounds = [{TopicPartition(topic, 0): batch(b"3")}]
    assert commit_all(cluster, [work]) == {}
    assert committed(cluster, topic) == [b"0", b"1", b"2", b"3"]


def test_several_brokers_are_told_what_belongs_to_a_transaction(cluster, topic, name, protocol, monkeypatch):
    """A coordinator adds to a transaction once at a time: brokers that ask it at the same moment would be
    refused. So in both protocols it is told first, if the requests have more than one broker."""
    work = _work(cluster, topic, name, 0, [b"a"])
    assert commit_all(cluster, [work]) == {}
    home = work.producer.coordinator()
    monkeypatch.setattr(TransactionalProducer, "coordinator", lambda _self: home + 1)
    asked = []

    def connection(_self, node):
        asked.append(node)
        return real(_self, home)

    real = Cluster.connection
    cluster.nodes[home + 1] = cluster.nodes[home]
    monkeypatch.setattr(Cluster, "connection", connection)
    work.rounds = [{TopicPartition(topic, 0): batch(b"b")}]
    assert commit_all(cluster, [work]) == {}
    assert asked[0] == home + 1
    assert work.producer.announced == set()
    assert committed(cluster, topic) == [b"a", b"b"]


def test_an_end_whose_answer_got_lost_is_asked_for_again(cluster, topic, name, protocol, monkeypatch):
    """Whoever ends a transaction twice hears the same epoch."""
    work = _work(cluster, topic, name, 0, [b"a"])
    handle = work.producer.handle()
    work.producer.announce([TopicPartition(topic, 0)])
    identities = [{}, {}]
    for heard in identities:
        assert end_all(cluster, [handle], True, identities=heard) == {}
    assert identities[0] == identities[1]
    assert bool(identities[0]) is (protocol == 2)
