"""Does a history contain something that must not happen? Pure: a history in, violations out.

lost            an acknowledged write that is not in the log
duplicate       one record twice in a log, or one input turned into two outputs
reordered       records of one writer in another order than written, or a reader that goes back by itself
skipped         a reader that leaves out a record, or a group that never read one
aborted read    a reader of committed records sees one of a transaction that was aborted, or never committed
early read      ... or that was not committed yet when it was read
inconsistent    an offset that means different records at different times, or a group's offset that nobody
                committed
went back       a group's offset that falls behind what was acknowledged
torn            a part of a transaction: some of its records, or its records without its offsets
stopped         a group, a reader or a writer that does not go on although the broker runs
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from millstream.wire.topic_partition import TopicPartition

from .history import ABORTED, COMMITTED, WRITER_BITS, History, Records, input_of, transaction_of

LOST = "lost"
DUPLICATE = "duplicate"
REORDERED = "reordered"
SKIPPED = "skipped"
ABORTED_READ = "aborted read"
EARLY_READ = "early read"
INCONSISTENT = "inconsistent"
WENT_BACK = "went back"
TORN = "torn"
STOPPED = "stopped"


class Violation(NamedTuple):
    kind: str
    topic_partition: TopicPartition | None
    text: str
    offset: int | None = None

    def __str__(self) -> str:
        where = (
            "" if self.topic_partition is None else f" {self.topic_partition[0]}-{self.topic_partition[1]}"
        )
        return f"{self.kind}{where}: {self.text}"


Found = Iterator[Violation]


def check(history: History) -> list[Violation]:
    """All violations."""
    found: list[Violation] = []
    for rule in RULES:
        found += rule(history)
    return found


# --- the log ------------------------------------------------------------------------------------------------


def acknowledged_writes_stay(history: History) -> Found:
    """Each is there, at the offset that was acknowledged. Those of transactions that were not committed need
    not be."""
    for topic_partition, acked in history.acked.items():
        records = history.final.get(topic_partition, Records())
        final, keys = dict(iter(records)), set(records.keys)
        transactional = topic_partition[0] in history.transactional
        for offset, key in acked:
            there = final.get(offset)
            if there == key or (transactional and not _committed(history, key)):
                continue
            if key not in keys:
                yield Violation(
                    LOST, topic_partition, f"record {key:#x} was acknowledged at {offset}", offset
                )
            else:
                holds = "nothing" if there is None else f"{there:#x}"
                text = f"offset {offset} was acknowledged for {key:#x} and holds {holds}"
                yield Violation(INCONSISTENT, topic_partition, text, offset)


def _committed(history: History, key: int) -> bool:
    transaction = history.transactions.get(transaction_of(key))
    return transaction is not None and transaction.outcome == COMMITTED


def nothing_is_there_twice(history: History) -> Found:
    for topic_partition, records in history.final.items():
        seen: dict[int, int] = {}
        for offset, key in records:
            if key in seen:
                text = f"record {key:#x} is at {seen[key]} and at {offset}"
                yield Violation(DUPLICATE, topic_partition, text, offset)
            seen[key] = offset


def writers_keep_their_order(history: History) -> Found:
    for topic_partition, records in history.final.items():
        last: dict[int, int] = {}
        for offset, key in records:
            writer = key >> WRITER_BITS
            if key < last.get(writer, -1):
                text = f"record {key:#x} at {offset} comes after {last[writer]:#x}"
                yield Violation(REORDERED, topic_partition, text, offset)
            last[writer] = max(key, last.get(writer, -1))


# --- readers ------------------------------------------------------------------------------------------------


def readers_see_the_log(history: History) -> Found:
    """A reader sees, from its start on, every record of the log, in order, and the same as everybody else."""
    logs = {topic_partition: (list(r.offsets), dict(iter(r))) for topic_partition, r in history.final.items()}
    for reading in history.readings:
        topic_partition = reading.topic_partition
        offsets, keys = logs.get(topic_partition, ([], {}))
        expected = reading.start
        for offset, key in reading.records:
            if offset < expected:
                text = f"{reading.reader} was given {offset} after {expected - 1}"
                yield Violation(REORDERED, topic_partition, text, offset)
                continue
            missed = offsets[bisect_left(offsets, expected) : bisect_left(offsets, offset)]
            if missed:
                text = f"{reading.reader} went on to {offset} without {_span(missed)}"
                yield Violation(SKIPPED, topic_partition, text, missed[0])
            expected = offset + 1
            if topic_partition[0] in history.transactional and not _may_be_read(history, key):
                continue  # reported by committed_readers_see_committed_records
            if keys.get(offset) != key:
                there = keys.get(offset)
                now = "is gone" if there is None else f"holds {there:#x}"
                text = f"{reading.reader} read {key:#x} at {offset}, which {now}"
                yield Violation(INCONSISTENT, topic_partition, text, offset)


def _may_be_read(history: History, key: int) -> bool:
    transaction = history.transactions.get(transaction_of(key))
    return (
        transaction is not None and transaction.outcome != ABORTED and transaction.commit_started is not None
    )


def committed_readers_see_committed_records(history: History) -> Found:
    for reading in history.readings:
        if reading.topic_partition[0] not in history.transactional:
            continue
        for (offset, key), moment in zip(reading.records, reading.times, strict=True):
            transaction = history.transactions.get(transaction_of(key))
            if not _may_be_read(history, key):
                text = f"{reading.reader} read {key:#x} at {offset}, which was never committed"
                yield Violation(ABORTED_READ, reading.topic_partition, text, offset)
            elif transaction is not None and moment < (transaction.commit_started or 0):
                early = (transaction.commit_started or 0) - moment
                text = f"{reading.reader} read {key:#x} at {offset} {early:.3f} s before its commit"
                yield Violation(EARLY_READ, reading.topic_partition, text, offset)


def groups_read_everything(history: History) -> Found:
    """Whoever reads for a group, together they have read every record."""
    for group, topic in history.groups.items():
        seen: dict[TopicPartition, set[int]] = {}
        for reading in history.readings:
            if reading.reader.startswith(f"{group}/"):
                seen.setdefault(reading.topic_partition, set()).update(reading.records.offsets)
        for topic_partition, records in history.final.items():
            if topic_partition[0] == topic:
                missed = sorted(set(records.offsets) - seen.get(topic_partition, set()))
                if missed:
                    text = f"group {group} never read {_span(missed)}"
                    yield Violation(SKIPPED, topic_partition, text, missed[0])


def _span(offsets: list[int]) -> str:
    if len(offsets) == 1:
        return f"offset {offsets[0]}"
    return f"{len(offsets)} offsets from {offsets[0]} to {offsets[-1]}"


# --- transactions -------------------------------------------------------------------------------------------


def transactions_are_whole(history: History) -> Found:
    there: dict[int, set[int]] = {}
    for topic_partition, records in history.final.items():
        if topic_partition[0] in history.transactional:
            for key in records.keys:
                there.setdefault(transaction_of(key), set()).add(key)
    for number, transaction in history.transactions.items():
        found = there.pop(number, set())
        wanted = set(transaction.keys)
        name = f"transaction {number:#x} ({transaction.outcome})"
        if transaction.outcome == COMMITTED and found != wanted:
            yield Violation(TORN, None, f"{name}: {len(found)} of its {len(wanted)} records are in the log")
        elif transaction.outcome == ABORTED and found:
            yield Violation(ABORTED_READ, None, f"{name}: {len(found)} of its records can be read")
        elif found and found != wanted:
            yield Violation(TORN, None, f"{name}: {len(found)} of its {len(wanted)} records are in the log")
    for number in there:
        yield Violation(ABORTED_READ, None, f"transaction {number:#x} is in the log and nobody wrote it")


def outputs_match_inputs(history: History) -> Found:
    """Each input up to the group's committed offset was turned into one output, and no other was."""
    for output, (source, group) in history.derived.items():
        made: dict[int, list[int]] = {}
        for topic_partition, records in history.final.items():
            if topic_partition[0] == output:
                for key in records.keys:
                    partition, offset = input_of(key)
                    made.setdefault(partition, []).append(offset)
        final_offsets = _last_fetched(history, group)
        for topic_partition, records in history.final.items():
            if topic_partition[0] != source:
                continue
            outputs = made.pop(topic_partition[1], [])
            for offset in sorted(offset for offset, times in Counter(outputs).items() if times > 1):
                yield Violation(
                    DUPLICATE, topic_partition, f"input {offset} was turned into two outputs", offset
                )
            committed = final_offsets.get(topic_partition, 0)
            inputs = {offset for offset in records.offsets if offset < committed}
            lacking, excess = sorted(inputs - set(outputs)), sorted(set(outputs) - inputs)
            if lacking:
                text = f"group {group} is at {committed}, but {_span(lacking)} has no output"
                yield Violation(TORN, topic_partition, text, lacking[0])
            if excess:
                text = f"group {group} is at {committed}, but there is output for {_span(excess)}"
                yield Violation(TORN, topic_partition, text, excess[0])


def _last_fetched(history: History, group: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, tuple[float, int]] = {}
    for fetched in history.fetched:
        if fetched.group == group:
            found[fetched.topic_partition] = max(
                found.get(fetched.topic_partition, (0.0, 0)), (fetched.started, fetched.offset)
            )
    return {topic_partition: max(0, offset) for topic_partition, (_, offset) in found.items()}


# --- offsets of groups --------------------------------------------------------------------------------------


def offsets_never_go_back(history: History) -> Found:
    """Once a commit is acknowledged, nobody is told less, and no later commit of less is accepted."""
    acked: dict[tuple[str, TopicPartition], list[tuple[float, int]]] = {}
    for commit in history.commits:
        if commit.finished is not None:
            acked.setdefault((commit.group, commit.topic_partition), []).append(
                (commit.finished, commit.offset)
            )
    highest: dict[tuple[str, TopicPartition], tuple[list[float], list[int]]] = {}
    for name, entries in acked.items():
        times, tops = [], []
        top = -1
        for moment, offset in sorted(entries):
            top = max(top, offset)
            times.append(moment)
            tops.append(top)
        highest[name] = (times, tops)

    def before(group: str, topic_partition: TopicPartition, moment: float) -> int:
        times, tops = highest.get((group, topic_partition), ([], []))
        at = bisect_left(times, moment)
        return tops[at - 1] if at else -1

    for fetched in history.fetched:
        known = before(fetched.group, fetched.topic_partition, fetched.started)
        if fetched.offset < known:
            text = f"group {fetched.group} is told {fetched.offset} after {known} was acknowledged"
            yield Violation(WENT_BACK, fetched.topic_partition, text, fetched.offset)
    for commit in history.commits:
        known = before(commit.group, commit.topic_partition, commit.started)
        if commit.finished is not None and commit.offset < known:
            text = f"group {commit.group} commits {commit.offset} after {known} was acknowledged"
            yield Violation(WENT_BACK, commit.topic_partition, text, commit.offset)


def offsets_were_committed(history: History) -> Found:
    """What a group is told is what somebody committed. (Offsets inside of transactions are checked by their
    outputs.)"""
    tried: dict[tuple[str, TopicPartition], dict[int, float]] = {}
    for commit in history.commits:
        starts = tried.setdefault((commit.group, commit.topic_partition), {})
        starts[commit.offset] = min(commit.started, starts.get(commit.offset, commit.started))
    in_transactions = {group for _, group in history.derived.values()}
    for fetched in history.fetched:
        if fetched.group in in_transactions or fetched.offset < 0:
            continue
        started = tried.get((fetched.group, fetched.topic_partition), {}).get(fetched.offset)
        if started is None or started > fetched.finished:
            text = f"group {fetched.group} is told {fetched.offset}, which nobody had committed"
            yield Violation(INCONSISTENT, fetched.topic_partition, text, fetched.offset)


def everybody_goes_on(history: History) -> Found:
    for stall in history.stalls:
        yield Violation(STOPPED, None, f"{stall.who}: {stall.text}")


RULES: tuple[Callable[[History], Found], ...] = (
    acknowledged_writes_stay,
    nothing_is_there_twice,
    writers_keep_their_order,
    readers_see_the_log,
    committed_readers_see_committed_records,
    groups_read_everything,
    transactions_are_whole,
    outputs_match_inputs,
    offsets_never_go_back,
    offsets_were_committed,
    everybody_goes_on,
)
