"""The checker finds each violation in a history that contains it, and nothing in one that does not."""

from collections.abc import Callable

import pytest

from . import checker
from .checker import Violation, check
from .history import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Commit,
    Fetched,
    History,
    Reading,
    Records,
    Stall,
    Transaction,
    derived_key,
    input_of,
    key,
    transaction_id,
    transaction_key,
    transaction_of,
)

PLAIN, LEDGER, DERIVED = ("plain", 0), ("ledger", 0), ("derived", 0)
GROUP, TRANSFORM = "readers", "transform"
GOOD, BAD, OPEN = transaction_id(1, 0), transaction_id(1, 1), transaction_id(1, 2)


def reading(
    reader: str, topic_partition: tuple[str, int], start: int, *records: tuple[int, int], at: float = 50.0
) -> Reading:
    made = Reading(reader, topic_partition, start)
    for offset, record_key in records:
        made.add(offset, record_key, at)
    return made


def history() -> History:
    """Four plain records, read by a group of two, transformed; three transactions, one of them committed."""
    plain = [(offset, key(1, offset)) for offset in range(4)]
    good = [transaction_key(GOOD, 0), transaction_key(GOOD, 1)]
    ledger = [(0, good[0]), (3, good[1])]  # between them a record of another transaction; after each a marker
    derived = [(0, derived_key(0, 0)), (1, derived_key(0, 1)), (3, derived_key(0, 2)), (4, derived_key(0, 3))]
    return History(
        acked={
            PLAIN: Records(plain),
            LEDGER: Records([*ledger, (1, transaction_key(BAD, 0))]),
            DERIVED: Records(derived),
        },
        final={PLAIN: Records(plain), LEDGER: Records(ledger), DERIVED: Records(derived)},
        ends={PLAIN: 4, LEDGER: 5, DERIVED: 6},
        readings=[
            reading(f"{GROUP}/one", PLAIN, 0, *plain[:2]),
            reading(f"{GROUP}/two", PLAIN, 1, *plain[1:]),
            reading("ledger-reader", LEDGER, 0, *ledger),
            reading(f"{TRANSFORM}/it", PLAIN, 0, *plain),
        ],
        transactions={
            GOOD: Transaction(list(good), 40.0, COMMITTED),
            BAD: Transaction([transaction_key(BAD, 0)], None, ABORTED),
            OPEN: Transaction([transaction_key(OPEN, 0), transaction_key(OPEN, 1)], 45.0, UNKNOWN),
        },
        transactional={"ledger"},
        commits=[
            Commit(GROUP, PLAIN, 1, 10.0, 11.0),
            Commit(GROUP, PLAIN, 2, 12.0, None),
            Commit(GROUP, PLAIN, 4, 20.0, 21.0),
            Commit(TRANSFORM, PLAIN, 2, 12.0, 13.0),
            Commit(TRANSFORM, PLAIN, 4, 14.0, 15.0),
        ],
        fetched=[
            Fetched(GROUP, PLAIN, -1, 1.0, 1.1),
            Fetched(GROUP, PLAIN, 1, 13.0, 13.1),
            Fetched(GROUP, PLAIN, 2, 13.0, 13.1),
            Fetched(GROUP, PLAIN, 4, 30.0, 30.1),
            Fetched(TRANSFORM, PLAIN, 4, 30.0, 30.1),
        ],
        derived={"derived": ("plain", TRANSFORM)},
        groups={GROUP: "plain"},
    )


def test_a_good_history_has_no_violation() -> None:
    assert check(history()) == []
    assert history().count() == 10


def test_an_open_transaction_may_turn_out_either_way() -> None:
    whole = history()
    for offset, index in ((6, 0), (7, 1)):
        whole.final[LEDGER].add(offset, transaction_key(OPEN, index))
        whole.readings[2].add(offset, transaction_key(OPEN, index), 60.0)
    assert check(whole) == []


def test_keys_say_what_they_are() -> None:
    assert transaction_of(transaction_key(GOOD, 7)) == GOOD
    assert input_of(derived_key(2, 12345)) == (2, 12345)


def loses_a_write(history: History) -> None:
    history.acked[PLAIN].add(4, key(1, 4))


def loses_a_committed_write(history: History) -> None:
    history.final[LEDGER] = Records([(0, transaction_key(GOOD, 0))])
    history.readings[2] = reading("ledger-reader", LEDGER, 0, (0, transaction_key(GOOD, 0)))


def has_another_record_where_one_was_acknowledged(history: History) -> None:
    history.acked[PLAIN].offsets[3] = 2
    history.acked[PLAIN].offsets[2] = 3


def has_another_record_instead(history: History) -> None:
    history.acked[PLAIN].keys[3] = key(2, 0)


def writes_twice(history: History) -> None:
    for readers in (0, 3):
        history.readings[readers].add(4, key(1, 3), 50.0)
    history.final[PLAIN].add(4, key(1, 3))


def transforms_twice(history: History) -> None:
    history.final[DERIVED].add(7, derived_key(0, 1))


def swaps_two_writes(history: History) -> None:
    for records in (
        history.final[PLAIN],
        history.acked[PLAIN],
        history.readings[1].records,
        history.readings[3].records,
    ):
        records.keys[-1], records.keys[-2] = records.keys[-2], records.keys[-1]


def gives_a_reader_old_records(history: History) -> None:
    history.readings[1].add(2, key(1, 2), 51.0)


def begins_before_the_start(history: History) -> None:
    history.readings[1].start = 2


def leaves_out_a_record(history: History) -> None:
    history.readings[3] = reading(f"{TRANSFORM}/it", PLAIN, 0, (0, key(1, 0)), (2, key(1, 2)), (3, key(1, 3)))


def leaves_out_the_first_record(history: History) -> None:
    history.readings[3] = reading(f"{TRANSFORM}/it", PLAIN, 0, (1, key(1, 1)), (2, key(1, 2)), (3, key(1, 3)))


def never_gives_a_record_to_the_group(history: History) -> None:
    history.readings[1] = reading(f"{GROUP}/two", PLAIN, 3, (3, key(1, 3)))


def shows_an_aborted_record(history: History) -> None:
    history.readings[2] = reading(
        "ledger-reader", LEDGER, 0, (0, transaction_key(GOOD, 0)), (1, transaction_key(BAD, 0))
    )


def shows_a_record_that_nobody_tried_to_commit(history: History) -> None:
    history.transactions[OPEN].commit_started = None
    history.readings[2].add(6, transaction_key(OPEN, 0), 60.0)


def keeps_an_aborted_record(history: History) -> None:
    history.final[LEDGER] = Records([*history.final[LEDGER], (6, transaction_key(BAD, 0))])


def shows_a_record_too_early(history: History) -> None:
    history.readings[2].times[0] = 39.9


def shows_another_record_later(history: History) -> None:
    history.readings[0].records.keys[0] = key(1, 77)


def shows_a_record_that_is_gone(history: History) -> None:
    history.readings[0].add(4, key(1, 4), 50.0)


def tells_an_offset_that_nobody_committed(history: History) -> None:
    history.fetched.append(Fetched(GROUP, PLAIN, 3, 13.0, 13.1))


def tells_an_offset_before_it_was_committed(history: History) -> None:
    history.fetched.append(Fetched(GROUP, PLAIN, 4, 18.0, 19.0))


def forgets_an_offset(history: History) -> None:
    history.fetched.append(Fetched(GROUP, PLAIN, 1, 30.0, 30.1))


def forgets_all_offsets(history: History) -> None:
    history.fetched.append(Fetched(GROUP, PLAIN, -1, 30.0, 30.1))


def accepts_the_commit_of_a_former_owner(history: History) -> None:
    history.commits.append(Commit(GROUP, PLAIN, 2, 22.0, 23.0))


def commits_half_a_transaction(history: History) -> None:
    history.final[LEDGER].add(6, transaction_key(OPEN, 0))
    history.readings[2].add(6, transaction_key(OPEN, 0), 60.0)


def commits_offsets_without_output(history: History) -> None:
    history.final[DERIVED] = Records(list(history.final[DERIVED])[:3])
    history.acked[DERIVED] = Records(list(history.acked[DERIVED])[:3])


def commits_output_without_offsets(history: History) -> None:
    history.fetched[-1] = Fetched(TRANSFORM, PLAIN, 2, 30.0, 30.1)
    history.commits[-1] = Commit(TRANSFORM, PLAIN, 4, 14.0, None)


def stops(history: History) -> None:
    history.stalls.append(Stall("group readers", "is at 3 of 4"))


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (loses_a_write, checker.LOST),
        (loses_a_committed_write, checker.LOST),
        (has_another_record_instead, checker.LOST),
        (has_another_record_where_one_was_acknowledged, checker.INCONSISTENT),
        (writes_twice, checker.DUPLICATE),
        (transforms_twice, checker.DUPLICATE),
        (swaps_two_writes, checker.REORDERED),
        (gives_a_reader_old_records, checker.REORDERED),
        (begins_before_the_start, checker.REORDERED),
        (leaves_out_a_record, checker.SKIPPED),
        (leaves_out_the_first_record, checker.SKIPPED),
        (never_gives_a_record_to_the_group, checker.SKIPPED),
        (shows_an_aborted_record, checker.ABORTED_READ),
        (shows_a_record_that_nobody_tried_to_commit, checker.ABORTED_READ),
        (keeps_an_aborted_record, checker.ABORTED_READ),
        (shows_a_record_too_early, checker.EARLY_READ),
        (shows_another_record_later, checker.INCONSISTENT),
        (shows_a_record_that_is_gone, checker.INCONSISTENT),
        (tells_an_offset_that_nobody_committed, checker.INCONSISTENT),
        (tells_an_offset_before_it_was_committed, checker.INCONSISTENT),
        (forgets_an_offset, checker.WENT_BACK),
        (forgets_all_offsets, checker.WENT_BACK),
        (accepts_the_commit_of_a_former_owner, checker.WENT_BACK),
        (commits_half_a_transaction, checker.TORN),
        (commits_offsets_without_output, checker.TORN),
        (commits_output_without_offsets, checker.TORN),
        (stops, checker.STOPPED),
    ],
)
def test_each_violation_is_found(spoil: Callable[[History], None], kind: str) -> None:
    spoilt = history()
    spoil(spoilt)
    found = check(spoilt)
    assert kind in {violation.kind for violation in found}, found
    assert all(str(violation).startswith(violation.kind) for violation in found)


def test_a_lost_write_says_where() -> None:
    spoilt = history()
    loses_a_write(spoilt)
    assert check(spoilt) == [
        Violation(checker.LOST, PLAIN, f"record {key(1, 4):#x} was acknowledged at 4", 4)
    ]
