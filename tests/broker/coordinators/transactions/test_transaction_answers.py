"""What each request of the transaction protocol is answered, version by version, as Apache Kafka 4.3 answers
it."""

import pytest

from millstream.wire.errors import ErrorCode

from .raw_transactions import Client, Identity, batch, name

NONE = ErrorCode.none
FENCED = ErrorCode.producer_fenced
OLD_FENCED = ErrorCode.invalid_producer_epoch
WRONG_ID = ErrorCode.invalid_producer_id_mapping
WRONG_STATE = ErrorCode.invalid_txn_state
ABORTABLE = ErrorCode.transaction_abortable
NOBODY = Identity(NONE, 999_999_999, 0)


def refused(error: ErrorCode) -> Identity:
    return Identity(error, -1, -1)


# ------------------------------------------------------------------ InitProducerId


def test_init_refuses_what_makes_no_sense(client: Client) -> None:
    txn = name("init")
    client.coordinator(txn)
    for timeout_ms in (0, -1, 900_001):
        expected = refused(ErrorCode.invalid_transaction_timeout)
        assert client.try_init(txn, timeout_ms=timeout_ms) == expected
    assert client.try_init("") == refused(ErrorCode.invalid_request)
    assert client.try_init(txn, known=(5, -1)) == refused(ErrorCode.invalid_request)
    assert client.try_init(txn, known=(-1, 5)) == refused(ErrorCode.invalid_request)


def test_init_without_transactional_id_gives_an_id_to_everybody(client: Client) -> None:
    first = client.patiently(lambda: client.try_init(None))
    second = client.try_init(None, version=0)
    assert first.error is second.error is NONE
    assert first.id != second.id
    assert first.epoch == second.epoch == 0


def test_init_bumps_and_fences(client: Client) -> None:
    txn = name("init")
    client.coordinator(txn)
    first = client.patiently(lambda: client.try_init(txn, known=(5, 3)))  # an id nobody knows any more
    assert (first.error, first.epoch) == (NONE, 0)
    second = client.try_init(txn)
    assert second[1:] == (first.id, 1)
    third = client.try_init(txn, known=second[1:])
    assert third[1:] == (first.id, 2)
    assert client.try_init(txn, known=second[1:]) == third, "repeated"
    for known in ((first.id, 0), (first.id, 3), (first.id + 1000, 2)):
        assert client.try_init(txn, known=known) == refused(FENCED)
        assert client.try_init(txn, known=known, version=4) == refused(FENCED)
        assert client.try_init(txn, known=known, version=3) == refused(OLD_FENCED)
    for version in range(6):
        assert client.try_init(txn, version=version)[1:] == (first.id, 3 + version)


def test_init_aborts_an_open_transaction(client: Client) -> None:
    txn, topic = name("init"), client.topic()
    zombie = client.init(txn)
    client.produce(txn, topic, batch(zombie), version=12)
    assert client.try_init(txn) == refused(ErrorCode.concurrent_transactions)
    identity = client.init(txn)
    assert identity[1:] == (zombie.id, 2)
    assert client.try_end(txn, zombie, True, 5) == refused(FENCED)
    assert client.try_end(txn, zombie, True, 4) == refused(FENCED)
    assert client.try_end(txn, zombie, True, 1) == refused(OLD_FENCED)
    for version in (11, 12):
        assert client.produce_code(txn, topic, batch(zombie, 1), version) is OLD_FENCED
    assert client.committed_values(topic) == []


def test_init_after_an_error_goes_on_with_the_fencing_epoch(client: Client) -> None:
    txn, topic = name("init"), client.topic()
    first = client.init(txn)
    client.produce(txn, topic, batch(first), version=12)
    assert client.try_init(txn, known=first[1:]).error is ErrorCode.concurrent_transactions
    assert client.init(txn, known=first[1:])[1:] == (first.id, 1)
    assert client.init(txn)[1:] == (first.id, 2)


# ------------------------------------------------------------------ AddPartitionsToTxn, AddOffsetsToTxn


def test_add_partitions(client: Client) -> None:
    txn, topic = name("add"), client.topic(2)
    identity = client.init(txn)
    one, two = (topic, 0), (topic, 1)
    assert client.try_add("no" + txn, identity, one) == {one: WRONG_ID}
    assert client.try_add(txn, NOBODY, one) == {one: WRONG_ID}
    assert client.try_add("", identity, one) == {one: ErrorCode.invalid_request}
    for epoch in (identity.epoch - 1, identity.epoch + 1):
        for version, error in ((0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (3, FENCED)):
            answer = client.try_add(txn, identity._replace(epoch=epoch), one, version=version)
            assert answer == {one: error}
    assert client.state(txn) == "Empty"
    for version in range(4):
        assert client.try_add(txn, identity, one, two, version=version) == {one: NONE, two: NONE}
    described = client.describe(txn)[0]
    assert (described.state, described.partitions) == ("Ongoing", {one, two})


def test_add_partitions_all_or_nothing(client: Client) -> None:
    txn, topic = name("add"), client.topic()
    identity = client.init(txn)
    good, no_partition, no_topic = (topic, 0), (topic, 17), ("no-such-topic", 0)
    assert client.try_add(txn, identity, good, no_partition, no_topic) == {
        good: ErrorCode.operation_not_attempted,
        no_partition: ErrorCode.unknown_topic_or_partition,
        no_topic: ErrorCode.unknown_topic_or_partition,
    }
    internal = ("__transaction_state", 0)
    assert client.try_add(txn, identity, internal) == {internal: ErrorCode.topic_authorization_failed}
    assert client.state(txn) == "Empty"


def test_add_partitions_of_several_transactions_as_brokers_do(client: Client) -> None:
    topic = client.topic(2)
    one, two = name("one"), name("two")
    first, second = client.init(one), client.init(two)
    for version in (4, 5):
        assert client.try_add_batched(
            [
                (one, first, True, [(topic, 0)]),
                (two, second, False, [(topic, 0), (topic, 1)]),
                ("no" + one, first, True, [(topic, 0)]),
                ("no" + two, first, False, [("no-such-topic", 0)]),
            ],
            version,
        ) == {
            (one, topic, 0): ABORTABLE,
            (two, topic, 0): NONE,
            (two, topic, 1): NONE,
            ("no" + one, topic, 0): WRONG_ID,
            ("no" + two, "no-such-topic", 0): ErrorCode.unknown_topic_or_partition,
        }
    assert client.try_add_batched([(two, second, True, [(topic, 1)])]) == {(two, topic, 1): NONE}
    stale = second._replace(epoch=second.epoch + 1)
    for verify in (True, False):
        assert client.try_add_batched([(two, stale, verify, [(topic, 0)])]) == {(two, topic, 0): FENCED}
    assert client.state(one) == "Empty"


def test_add_offsets(client: Client) -> None:
    txn, group = name("offsets"), name("group")
    identity = client.init(txn)
    client.coordinator_of_group(group)
    assert client.try_add_offsets("", identity, group) is ErrorCode.invalid_request
    assert client.try_add_offsets("no" + txn, identity, group) is WRONG_ID
    stale = identity._replace(epoch=identity.epoch + 1)
    for version, error in ((0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (4, FENCED)):
        assert client.try_add_offsets(txn, stale, group, version) is error
    for version in range(5):
        assert client.try_add_offsets(txn, identity, group, version) is NONE
    ((topic, _),) = client.describe(txn)[0].partitions
    assert topic == "__consumer_offsets"


# ------------------------------------------------------------------ EndTxn


def test_end_in_version_1(client: Client) -> None:
    txn, topic = name("end"), client.topic()
    identity = client.init(txn)
    for commit in (True, False):
        assert client.try_end(txn, identity, commit, 4) == refused(WRONG_STATE)
    client.add(txn, identity, (topic, 0))
    assert client.try_end("", identity, True) == refused(ErrorCode.invalid_request)
    assert client.try_end("no" + txn, identity, True) == refused(WRONG_ID)
    assert client.try_end(txn, NOBODY, True) == refused(WRONG_ID)
    stale = identity._replace(epoch=identity.epoch + 1)
    for version, error in ((0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (4, FENCED)):
        assert client.try_end(txn, stale, True, version) == refused(error)
    for version in range(5):
        client.add(txn, identity, (topic, 0))
        assert client.try_end(txn, identity, version % 2 == 0, version) == refused(NONE)
        client.wait_for_state(txn, "CompleteCommit", "CompleteAbort")
    assert client.try_end(txn, identity, True) == refused(NONE), "repeated"
    assert client.try_end(txn, identity, False) == refused(WRONG_STATE)
    assert client.try_init(txn)[1:] == (identity.id, 1), "ends do not bump"


def test_end_in_version_2(client: Client) -> None:
    txn, topic = name("end"), client.topic()
    identity = client.init(txn)
    assert client.try_end(txn, identity, True, 5) == refused(WRONG_STATE)
    aborted = client.try_end(txn, identity, False, 5)
    assert aborted == (NONE, identity.id, 1), "an abort of nothing bumps the epoch"
    client.wait_for_state(txn, "CompleteAbort")
    assert client.try_end(txn, identity, False, 5) == aborted, "repeated"
    assert client.try_end(txn, identity, True, 5) == refused(WRONG_STATE)
    client.produce(txn, topic, batch(aborted), version=12)
    committed = client.end(txn, aborted, True, 5)
    assert committed == (NONE, identity.id, 2)
    client.wait_for_state(txn, "CompleteCommit")
    assert client.try_end(txn, aborted, True, 5) == committed, "repeated"
    assert client.try_end(txn, aborted, False, 5) == refused(WRONG_STATE)
    assert client.try_end(txn, committed, True, 5) == refused(WRONG_STATE), "there is nothing to commit"
    assert client.try_end(txn, identity, True, 5) == refused(FENCED), "two epochs behind"
    assert client.try_end(txn, NOBODY, True, 5) == refused(WRONG_ID)


# ------------------------------------------------------------------ Produce


def test_produce_in_version_1_needs_the_partition_to_be_added(client: Client) -> None:
    txn, topic = name("produce"), client.topic(2)
    identity = client.init(txn)
    assert client.produce_code(txn, topic, batch(identity), 11) is ABORTABLE
    answer = client.try_produce(txn, {(topic, 0): batch(identity)}, 10)[topic, 0]
    assert answer.error_code is WRONG_STATE
    assert answer.error_message == "Partition was not added to the transaction"
    client.add(txn, identity, (topic, 0))
    answers = client.try_produce(txn, {(topic, 0): batch(identity), (topic, 1): batch(identity)}, 11)
    assert answers[topic, 0].error_code is NONE
    assert answers[topic, 1].error_code is ABORTABLE
    client.produce(txn, topic, batch(identity, 1))
    client.end(txn, identity, True)
    client.wait_for_state(txn, "CompleteCommit")
    assert client.produce_code(txn, topic, batch(identity, 2), 11) is ABORTABLE, "after its end"
    assert client.produce_code(txn, topic, batch(identity, 1), 11) is ABORTABLE, "repeated after its end"


def test_produce_in_version_2_adds_the_partition(client: Client) -> None:
    txn, topic = name("produce"), client.topic(3)
    identity = client.init(txn)
    client.produce(txn, topic, batch(identity), 12)
    answers = client.try_produce(txn, {(topic, 0): batch(identity, 1), (topic, 1): batch(identity)}, 12)
    assert {answer.error_code for answer in answers.values()} == {NONE}
    described = client.describe(txn)[0]
    assert (described.state, described.partitions) == ("Ongoing", {(topic, 0), (topic, 1)})
    assert client.produce_code(txn, topic, batch(identity, 5), 12, 2) is (
        ErrorCode.out_of_order_sequence_number
    ), "a transaction begins with sequence 0"
    assert client.describe(txn)[0].partitions == {(topic, 0), (topic, 1), (topic, 2)}, "but it is added first"
    stale = identity._replace(epoch=identity.epoch + 1)
    assert client.produce_code(txn, topic, batch(stale, 5), 12, 2) is OLD_FENCED
    ended = client.end(txn, identity, True, 5)
    client.wait_for_state(txn, "CompleteCommit")
    assert client.produce_code(txn, topic, batch(identity, 2), 12) is OLD_FENCED
    assert client.produce_code(txn, topic, batch(ended), 11) is ABORTABLE, "version 11 does not add it"
    client.produce(txn, topic, batch(ended), 12)


@pytest.mark.parametrize("version", [3, 9, 11, 12])
def test_produce_with_a_wrong_identity(client: Client, version: int) -> None:
    txn, topic = name("produce"), client.topic()
    identity = client.init(txn)
    for epoch in (identity.epoch - 1, identity.epoch + 1):
        stale = batch(identity._replace(epoch=max(epoch, 0) or 5))
        assert client.produce_code(txn, topic, stale, version) is OLD_FENCED
    assert client.produce_code(txn, topic, batch(NOBODY), version) is WRONG_ID
    assert client.produce_code("no" + txn, topic, batch(identity), version) is WRONG_ID
    assert client.produce_code(None, topic, batch(identity), version) is (
        ErrorCode.transactional_id_authorization_failed
    )
    assert client.end_offset(topic, committed=False) == 0


def test_produce_of_two_producers_in_one_request(client: Client) -> None:
    txn, topic = name("produce"), client.topic(3)
    identity = client.init(txn)
    batches = {
        (topic, 0): batch(identity),
        (topic, 1): batch(NOBODY),
        (topic, 2): batch(identity, transactional=False),
    }
    answers = client.try_produce(txn, batches, 12)
    assert {answer.error_code for answer in answers.values()} == {WRONG_ID}


def test_a_plain_batch_needs_no_transaction_but_must_not_be_mixed_into_one(client: Client) -> None:
    txn, topic = name("produce"), client.topic()
    identity = client.init(txn)
    client.produce(txn, topic, batch(identity, 0, transactional=False))
    assert client.state(txn) == "Empty"
    client.produce(txn, topic, batch(identity, 1), 12)
    assert client.produce_code(txn, topic, batch(identity, 2, transactional=False), 12) is WRONG_STATE
    out_of_order = ErrorCode.out_of_order_sequence_number
    assert client.produce_code(txn, topic, batch(identity, 3, transactional=False), 12) is out_of_order


# ------------------------------------------------------------------ WriteTxnMarkers


def test_markers(client: Client) -> None:
    topic = client.topic()
    where, producer = (topic, 0), NOBODY._replace(epoch=3)
    missing = {(topic, 9): ErrorCode.unknown_topic_or_partition, ("no-such-topic", 0): ErrorCode(3)}
    assert client.try_markers(producer, True, 0, *missing) == missing
    assert client.try_markers(producer, True, 5, where) == {where: NONE}
    assert client.try_markers(producer._replace(epoch=2), True, 5, where) == {where: OLD_FENCED}
    assert client.try_markers(producer, True, 4, where) == {where: ErrorCode.transaction_coordinator_fenced}
    for version, transaction_version in ((1, 0), (2, 0), (2, 2)):
        again = client.try_markers(
            producer, False, 5, where, version=version, transaction_version=transaction_version
        )
        assert again == {where: NONE}, "a marker more does no harm"
    assert client.end_offset(topic, committed=True) == 4


def test_markers_are_answered_by_producer(client: Client) -> None:
    topic = client.topic(2)
    markers = [
        {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": indexes}] if indexes else [],
            "coordinator_epoch": 0,
            "transaction_version": 0,
        }
        for producer_id, indexes in ((NOBODY.id, [0]), (NOBODY.id + 1, []), (NOBODY.id, [1, 7]))
    ]
    (found,) = client.ask("write_txn_markers", 1, markers=markers).markers
    (where,) = found.topics
    codes = {each.partition_index: each.error_code for each in where.partitions}
    assert (found.producer_id, where.name) == (NOBODY.id, topic)
    assert codes == {0: NONE, 1: NONE, 7: ErrorCode.unknown_topic_or_partition}


def test_an_administrator_ends_a_hanging_transaction(client: Client) -> None:
    txn, topic = name("hanging"), client.topic()
    identity = client.init(txn)
    client.produce(txn, topic, batch(identity), 12)
    assert client.end_offset(topic, committed=True) == 0
    assert client.try_markers(identity, False, 0, (topic, 0)) == {(topic, 0): NONE}
    assert client.end_offset(topic, committed=True) == 2
    assert client.committed_values(topic) == []


# ------------------------------------------------------------------ DescribeTransactions, ListTransactions


def test_describe(client: Client) -> None:
    txn, topic = name("describe"), client.topic()
    client.coordinator(txn)
    unknown, empty = client.describe(txn, "")
    assert (unknown.error_code, unknown.state) == (ErrorCode.transactional_id_not_found, "")
    assert empty.error_code is ErrorCode.invalid_request
    identity = client.init(txn, timeout_ms=12_345)
    (begun,) = client.describe(txn)
    assert begun[:6] == (NONE, txn, "Empty", 12_345, -1, identity.id)
    client.produce(txn, topic, batch(identity), 12)
    (ongoing,) = client.describe(txn)
    assert (ongoing.state, ongoing.partitions) == ("Ongoing", {(topic, 0)})
    assert ongoing.start_ms > 0
    client.end(txn, identity, False, 5)
    client.wait_for_state(txn, "CompleteAbort")
    (ended,) = client.describe(txn)
    assert (ended.producer_epoch, ended.partitions, ended.start_ms) == (1, set(), ongoing.start_ms)


def listed(
    client: Client, version: int = 2, **filters: object
) -> tuple[set[str], tuple[str, ...], ErrorCode]:
    wanted = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1} | filters
    wanted.setdefault("transactional_id_pattern", None)
    answer = client.ask("list_transactions", version, **wanted)
    found = {t.transactional_id for t in answer.transaction_states}
    return found, answer.unknown_state_filters, answer.error_code


def test_list(client: Client) -> None:
    prefix, topic = name("list"), client.topic()
    idle, busy = prefix + "-idle", prefix + "-busy"
    client.init(idle)
    identity = client.init(busy)
    client.produce(busy, topic, batch(identity), 12)
    for version in range(3):
        found, unknown, error = listed(client, version, state_filters=["Ongoing", "Nonsense", "Nonsense"])
        assert busy in found
        assert idle not in found
        assert (unknown, error) == (("Nonsense",), NONE)
        assert listed(client, version, producer_id_filters=[identity.id])[0] == {busy}
        assert {idle, busy} <= listed(client, version)[0]
    mine = f"{prefix}-.*"
    assert listed(client, transactional_id_pattern=mine)[0] == {idle, busy}
    assert listed(client, transactional_id_pattern=prefix)[0] == set(), "the whole id must match"
    assert listed(client, transactional_id_pattern=mine, duration_filter=3_600_000)[0] == {idle}
    found, _, error = listed(client, transactional_id_pattern="(")
    assert (found, error) == (set(), ErrorCode.invalid_regular_expression)


# ------------------------------------------------------------------ the clock


def test_a_transaction_that_is_open_for_too_long_is_aborted(client: Client) -> None:
    txn, topic = name("late"), client.topic()
    identity = client.init(txn, timeout_ms=50)
    client.produce(txn, topic, batch(identity), 12)
    client.wait_for_state(txn, "CompleteAbort")
    assert client.try_end(txn, identity, True, 5) == refused(WRONG_STATE)
    assert client.try_end(txn, identity, False, 5) == (NONE, identity.id, 1)
    assert client.try_end(txn, identity, True, 4) == refused(FENCED)
    assert client.produce_code(txn, topic, batch(identity, 1), 12) is OLD_FENCED
    assert client.end_offset(topic, committed=True) == 2
    assert client.committed_values(topic) == []


def test_a_topic_deleted_meanwhile_does_not_hold_up_the_end(client: Client) -> None:
    txn, gone, stays = name("deleted"), client.topic(), client.topic()
    identity = client.init(txn)
    for topic in (gone, stays):
        client.produce(txn, topic, batch(identity), 12)
    client.ask("delete_topics", 5, topic_names=[gone], timeout=10_000)
    client.end(txn, identity, True, 5)
    client.wait_for_state(txn, "CompleteCommit")
    assert client.committed_values(stays) == [b"v"]
