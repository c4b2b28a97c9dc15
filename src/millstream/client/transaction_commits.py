"""The transactions of many producers, committed together with few round trips.

A transaction that is written and committed by itself costs five round trips: its partitions, its group, its
batches, its offsets, its end. Here the requests of all producers go out ahead of their answers, and three
round trips do for all of them: what belongs to the transactions, the batches and offsets, and the ends.

Batches wait until their transaction has begun. Before that a coordinator may still be at the markers of the
last one, and a batch that comes ahead of them would belong to it: it would be aborted with it, or committed
too early. In the second protocol (`transactional`) it could not, having another epoch, and the requests make
partitions part of the transaction themselves: two round trips. But a coordinator adds to a transaction once
at a time, and says CONCURRENT_TRANSACTIONS to others meanwhile; so this is done only where all requests have
the same broker, which takes them one after the other.

Commits of the same producer become one transaction. A request has room for one batch of a partition, so each
further one is a request of its own; few records are given as such, and those of all commits for a partition
become one batch. If the transaction fails for a reason that belongs to one of them, it is aborted, and each
of them has a transaction of its own: who is at fault fails alone.

What fails with an error that passes is done again, one request at a time; what fails for good is reported,
and does not touch the others. Offsets of a topic that the cluster does not have fail at once: it was deleted
while it was read, and all others would wait with whoever waits for it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.errors import check
from millstream.client.messages import exchange
from millstream.client.producer import Batch, Sent
from millstream.client.transactional import (
    ADD_OFFSETS_VERSION,
    ADD_PARTITIONS_VERSION,
    COMMIT_OFFSETS_SECOND,
    COMMIT_OFFSETS_VERSION,
    SECOND,
    TransactionalProducer,
    end_all,
    is_fenced,
)
from millstream.wire.batch import next_sequence, read_header
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

FEW_BYTES = 64 << 10
"""In a batch of few records; more than any commit has for a partition."""
ROUNDS_AHEAD = 5
"""Batches of one partition that are under way at a time: a broker knows so many again if they come twice."""


@dataclass(slots=True)
class TransactionCommit:
    """What one transaction is to hold: rounds of batches, one batch per partition in each; `few` records for
    other partitions; and the offsets of a group without members, if there are any. `sent` is where the last
    batch of each partition went, `owner` whom the offsets belong to, for those who keep a note of it
    (`millstream.host.ownership`)."""

    producer: TransactionalProducer
    rounds: Sequence[Mapping[TopicPartition, Batch]]
    group: str
    offsets: Mapping[TopicPartition, int]
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)
    few: Mapping[TopicPartition, Sequence[Record]] = field(default_factory=dict)
    owner: str = ""
    sent: dict[TopicPartition, Sent] = field(default_factory=dict)
    written: set[tuple[int, TopicPartition]] = field(default_factory=set)
    """By round, and partition."""
    sequences: dict[tuple[int, TopicPartition], int] = field(default_factory=dict)
    """Of the batches that may have gone out, likewise."""
    in_doubt: bool = False
    """Whether batches may have been written of which nobody knows."""

    @property
    def partitions(self) -> set[TopicPartition]:
        return {topic_partition for batches in self.rounds for topic_partition in batches} | self.few.keys()


Complete = Callable[[TransactionCommit], None]
"""Adds to a transaction what belongs beside it, however many commits it is made of."""


def _as_it_is(_commit: TransactionCommit) -> None: ...


@dataclass(slots=True)
class _Step:
    """One request of a transaction, and what its answer does."""

    commit: TransactionCommit
    node: int
    send: Callable[[Connection], int]
    take: Callable[[int, memoryview], None]
    writes: bool = False


def commit_all(
    cluster: Cluster, commits: Sequence[TransactionCommit], complete: Complete = _as_it_is
) -> dict[int, KafkaError]:
    """Write and commit them all. Returns what went wrong for good, by the number of the commit. Those that
    share a producer are of one group."""
    by_producer: dict[int, list[int]] = {}
    for number, commit in enumerate(commits):
        by_producer.setdefault(id(commit.producer), []).append(number)
    members = list(by_producer.values())
    transactions = [_together([commits[number] for number in numbers]) for numbers in members]
    failed: dict[int, KafkaError] = {}
    errors = _commit(cluster, transactions, complete)
    for index, (numbers, transaction) in enumerate(zip(members, transactions, strict=True)):
        error = errors.get(index)
        if error is None:
            for number in numbers:
                _tell_sent(commits[number], transaction)
        elif not transaction.producer.shared:
            failed[numbers[0]] = error
        else:
            alone = {number: commits[number] for number in numbers}
            failed |= _each_alone(cluster, alone, transaction, error, complete)
    return failed


def _together(commits: Sequence[TransactionCommit]) -> TransactionCommit:
    """One transaction for all of them, all in batches."""
    if len(commits) == 1 and not commits[0].few:
        return commits[0]
    queues: dict[TopicPartition, list[Batch]] = {}
    for commit in commits:
        for batches in commit.rounds:
            for topic_partition, batch in batches.items():
                queues.setdefault(topic_partition, []).append(batch)
    few: dict[TopicPartition, list[Record]] = {}
    for commit in commits:
        for topic_partition, records in commit.few.items():
            few.setdefault(topic_partition, []).extend(records)
    for topic_partition, records in few.items():
        queues.setdefault(topic_partition, []).extend(_batches(records))
    depth = max(map(len, queues.values()), default=0)
    return TransactionCommit(
        commits[0].producer,
        [{at: queue[turn] for at, queue in queues.items() if len(queue) > turn} for turn in range(depth)],
        commits[0].group,
        {at: offset for commit in commits for at, offset in commit.offsets.items()},
        {at: text for commit in commits for at, text in commit.metadata.items()},
        owner=commits[0].owner,
    )


def _batches(records: Sequence[Record]) -> Iterator[Batch]:
    """Mostly one."""
    some: list[Record] = []
    size = 0
    for record in records:
        mine = len(record.key or b"") + len(record.value or b"")
        if some and size + mine > FEW_BYTES:
            yield encode_batch(some, transactional=True)
            some, size = [], 0
        some.append(record)
        size += mine
    if some:
        yield encode_batch(some, transactional=True)


def _tell_sent(commit: TransactionCommit, transaction: TransactionCommit) -> None:
    mine = commit.partitions
    commit.sent.update({at: sent for at, sent in transaction.sent.items() if at in mine})


def _each_alone(
    cluster: Cluster,
    commits: Mapping[int, TransactionCommit],
    transaction: TransactionCommit,
    error: KafkaError,
    complete: Complete,
) -> dict[int, KafkaError]:
    """After `error` in the transaction of them all."""
    producer = transaction.producer
    error = _unless_in_doubt(transaction, error)
    usable = _undo(producer, error)
    if len(commits) == 1 or not usable:
        return dict.fromkeys(commits, error)
    failed: dict[int, KafkaError] = {}
    for number, commit in commits.items():
        if not usable:
            failed[number] = error
            continue
        one = _together([commit])
        found = _commit(cluster, [one], complete)
        if found:
            failed[number] = error = _unless_in_doubt(one, found[0])
            usable = _undo(producer, error)
        else:
            _tell_sent(commit, one)
    return failed


def _unless_in_doubt(commit: TransactionCommit, error: KafkaError) -> KafkaError:
    """The error; or, where batches may have been written of which nobody knows, one that ends the use of the
    producer. Its next batch would have the number of such a one, and the broker would take it for that."""
    if not commit.in_doubt or is_fenced(error):
        return error
    return KafkaError(
        ErrorCode.invalid_txn_state, f"{error}; other batches may have been written, so all begin anew"
    )


def _undo(producer: TransactionalProducer, error: KafkaError) -> bool:
    """Abort what is open of a shared producer. False if nobody can use it any more: its id belongs to someone
    else, or nobody knows what has become of its batches."""
    if producer.producer_id < 0:
        return False
    if is_fenced(error) or error.code.retriable or error.code is ErrorCode.out_of_order_sequence_number:
        producer.give_up()
        return False
    try:
        producer.abort()
    except KafkaError as found:
        # Of this epoch nothing is open: the first request was refused already.
        if found.code is not ErrorCode.invalid_txn_state:
            producer.give_up()
            return False
    producer.begin_next()
    return True


def _commit(
    cluster: Cluster, commits: Sequence[TransactionCommit], complete: Complete
) -> dict[int, KafkaError]:
    """One transaction each. What went wrong for good, by number."""
    failed: dict[int, KafkaError] = {}
    for number, commit in enumerate(commits):
        commit.written.clear()
        commit.sequences.clear()
        commit.in_doubt = False
        try:
            complete(commit)
        except KafkaError as error:
            failed[number] = error
    numbers = {id(commit): number for number, commit in enumerate(commits)}
    again: list[TransactionCommit] = []
    completed = [commit for commit in commits if numbers[id(commit)] not in failed]
    for commit, refused in _send_ahead(cluster, completed):
        if refused is None:
            continue
        if (
            refused.code.retriable
            and getattr(refused, "again", True)
            and not _input_is_gone(cluster, commit, refused)
        ):
            again.append(commit)
        else:
            failed[numbers[id(commit)]] = refused
    for commit in again:
        try:
            _one_by_one(commit)
        except KafkaError as error:
            failed[numbers[id(commit)]] = error
    for commit in completed:
        if numbers[id(commit)] in failed:
            continue
        try:
            for batches in commit.rounds[ROUNDS_AHEAD:]:
                commit.sent |= commit.producer.send_batches(batches)
        except KafkaError as error:
            failed[numbers[id(commit)]] = error
    ready = {
        commit.producer.transactional_id: commit for commit in completed if numbers[id(commit)] not in failed
    }
    known: dict[str, int] = {}
    for transactional_id, commit in ready.items():
        with contextlib.suppress(KafkaError):  # looked up again where it is needed
            known[transactional_id] = commit.producer.coordinator()
    identities: dict[str, tuple[int, int]] = {}
    try:
        handles = [commit.producer.handle() for commit in ready.values()]
        ended = end_all(cluster, handles, True, known, identities)
    except KafkaError as error:  # a coordinator was away for too long
        ended = dict.fromkeys(ready, error)
    for transactional_id, commit in ready.items():
        if transactional_id not in ended:
            if transactional_id in identities:
                commit.producer.go_on_as(*identities[transactional_id])
            commit.producer.begin_next()
            continue
        failed[numbers[id(commit)]] = ended[transactional_id]
        if commit.producer.shared:
            commit.producer.give_up()  # its coordinator knows whether it was committed, and nobody here
    return failed


def _input_is_gone(cluster: Cluster, commit: TransactionCommit, error: KafkaError) -> bool:
    if error.code is not ErrorCode.unknown_topic_or_partition or not commit.offsets:
        return False
    try:
        problems = cluster.refresh({topic for topic, _ in commit.offsets})
    except KafkaError:
        return False  # nobody knows; what is tried again will tell
    return any(problem.code is ErrorCode.unknown_topic_or_partition for problem in problems.values())


def _one_by_one(commit: TransactionCommit) -> None:
    """The patient way: every request waits for its answer and is tried again. A batch that went out already
    keeps its sequence number, so a broker that has it, and what came behind it, knows it."""
    producer = commit.producer
    producer.announce(commit.partitions)
    for turn, batches in enumerate(commit.rounds[:ROUNDS_AHEAD]):
        left = {}
        for which, batch in batches.items():
            sequence = commit.sequences.get((turn, which))
            if (turn, which) in commit.written:
                assert sequence is not None
                producer.rewind(which, next_sequence(sequence, read_header(batch).record_count))
                continue
            if sequence is not None:
                producer.rewind(which, sequence)
            left[which] = batch
        if left:
            commit.sent |= producer.send_batches(left)
    commit.in_doubt = False
    if commit.offsets:
        commit.producer.commit_offsets(commit.group, commit.offsets, commit.metadata)


def _send_ahead(
    cluster: Cluster, commits: Iterable[TransactionCommit]
) -> Iterable[tuple[TransactionCommit, KafkaError | None]]:
    announcing: list[_Step] = []
    writing: list[_Step] = []
    errors: dict[int, KafkaError] = {}
    commits = list(commits)
    for commit in commits:
        try:
            _plan(cluster, commit, announcing, writing)
        except KafkaError as error:
            errors[id(commit)] = error
    _exchange(cluster, announcing, errors)
    _exchange(cluster, [step for step in writing if id(step.commit) not in errors], errors)
    return [(commit, errors.get(id(commit))) for commit in commits]


def _plan(cluster: Cluster, commit: TransactionCommit, announcing: list[_Step], writing: list[_Step]) -> None:
    producer = commit.producer
    producer.check_usable()
    for topic in {topic for topic, _ in commit.partitions}:
        cluster.topic(topic)
    coordinator = producer.coordinator()
    written: list[_Step] = []
    ahead: dict[TopicPartition, int] = {}
    for turn, batches in enumerate(commit.rounds[:ROUNDS_AHEAD]):
        for topic_partition, batch in batches.items():
            ahead[topic_partition] = producer.stamp(topic_partition, batch, ahead.get(topic_partition))
            commit.sequences[turn, topic_partition] = read_header(batch).base_sequence
        for node, partitions in cluster.by_leader(batches).items():
            mine = {which: batches[which] for which in partitions}
            written.append(_produce_step(commit, turn, node, mine))
    if commit.offsets:
        written.append(_offsets_step(commit))
    writing += written
    if producer.version >= SECOND and {step.node for step in written} <= {coordinator}:
        return
    new = commit.partitions - producer.announced
    if new:
        announcing.append(
            _Step(
                commit,
                coordinator,
                lambda connection: _send(
                    connection,
                    "add_partitions_to_txn",
                    ADD_PARTITIONS_VERSION,
                    producer.partitions_fields(new),
                ),
                lambda version, body: producer.partitions_answered(
                    exchange("add_partitions_to_txn", version).decode(body), new
                ),
            )
        )
    if commit.offsets:
        announcing.append(_announce_group_step(commit, coordinator))


def _announce_group_step(commit: TransactionCommit, coordinator: int) -> _Step:
    producer = commit.producer
    return _Step(
        commit,
        coordinator,
        lambda connection: _send(
            connection, "add_offsets_to_txn", ADD_OFFSETS_VERSION, producer.group_fields(commit.group)
        ),
        lambda version, body: check(
            exchange("add_offsets_to_txn", version).decode(body).error_code,
            subject=f"group {commit.group} in {producer.transactional_id}",
        ),
    )


def _offsets_step(commit: TransactionCommit) -> _Step:
    producer = commit.producer
    return _Step(
        commit,
        producer.group_coordinator(commit.group),
        lambda connection: _send(
            connection,
            "txn_offset_commit",
            COMMIT_OFFSETS_SECOND if producer.version >= SECOND else COMMIT_OFFSETS_VERSION,
            producer.offsets_fields(commit.group, commit.offsets, commit.metadata),
        ),
        lambda version, body: producer.offsets_answered(exchange("txn_offset_commit", version).decode(body)),
    )


def _produce_step(
    commit: TransactionCommit, turn: int, node: int, batches: Mapping[TopicPartition, Batch]
) -> _Step:
    producer = commit.producer

    def take(version: int, body: memoryview) -> None:
        outcomes = producer.settle_all(batches, exchange("produce", version).decode(body))
        for which, found in outcomes.items():
            if isinstance(found, Sent):
                commit.sent[which] = found
                commit.written.add((turn, which))
            elif found.code.retriable or found.code is ErrorCode.unknown_server_error:
                commit.in_doubt = True
        for outcome in outcomes.values():
            if isinstance(outcome, KafkaError):
                raise outcome

    return _Step(commit, node, lambda connection: producer.pack_and_send(connection, batches), take, True)


def _send(connection: Connection, api: str, up_to: int, fields: Mapping[str, Any]) -> int:
    version = connection.version(api, up_to=up_to)
    form = exchange(api, version)
    connection.send(form.key, version, form.flexible, [form.encode(dict(fields))])
    return version


def _exchange(cluster: Cluster, steps: Sequence[_Step], errors: dict[int, KafkaError]) -> None:
    """All requests, then all answers, of each broker in its order. The first error of a transaction is the
    one that tells: a batch is refused because its partition was not announced."""
    waiting: list[tuple[_Step, Connection, int]] = []
    connections: dict[int, Connection] = {}  # the cluster would give another one while answers are due
    for step in steps:
        try:
            if step.node not in connections:
                if step.node not in cluster.nodes:
                    cluster.refresh([])  # the producers know it from a cluster of their own
                connections[step.node] = cluster.connection(step.node)
                connections[step.node].hold()
            connection = connections[step.node]
            waiting.append((step, connection, step.send(connection)))
        except KafkaError as error:
            step.commit.in_doubt |= step.writes
            errors.setdefault(id(step.commit), error)
    for connection in connections.values():
        with contextlib.suppress(KafkaError):  # whoever waits for an answer hears of it
            connection.flush()
    for step, connection, version in waiting:
        try:
            body = connection.receive()
        except KafkaError as error:
            step.commit.in_doubt |= step.writes
            errors.setdefault(id(step.commit), error)
            continue
        try:
            step.take(version, body)
        except KafkaError as error:
            known = errors.get(id(step.commit))
            # Whatever follows from an error that passes passes with it, unless someone else has the id.
            if known is None or (known.code.retriable and error.code in _FOR_GOOD):
                errors[id(step.commit)] = error


_FOR_GOOD = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
    }
)
