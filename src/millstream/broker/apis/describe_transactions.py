"""What administrators ask about transactions: which there are at this coordinator, and how one stands.

DescribeTransactions 0 (KIP-664)
ListTransactions 0-2
    0  KIP-664    1  by duration (KIP-994)    2  by a pattern of transactional ids (KIP-1152)

A transactional id needs DESCRIBE: one that is not allowed is refused, or left out of the list, and so is a
partition of a topic that is not allowed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import DESCRIBE, TOPIC, TRANSACTIONAL_ID, may
from millstream.broker.coordinators import regex
from millstream.broker.coordinators.runtime import wall_ms
from millstream.broker.coordinators.transactions.transaction_records import (
    STATE_OF_LABEL,
    State,
    Transaction,
)
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.patterns import InvalidPattern
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.varint import uvarint

if TYPE_CHECKING:
    from millstream.broker.server import Broker

_FACTS = struct.Struct(">iqqh")  # timeout, start time, producer id, epoch


class DescribeTransactionsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(65, "DescribeTransactions", 0, 0, self.describe_transactions),
            Api(66, "ListTransactions", 0, 2, self.list_transactions),
        ]

    def describe_transactions(self, call: Call) -> Slices[Any]:
        """Packed by hand: kio has no way to say that a transaction has not begun (-1)."""
        transactional_ids = call.request.transactional_ids
        out = [b"\0\0\0\0", uvarint(len(transactional_ids) + 1)]
        for transactional_id in transactional_ids:
            try:
                if not may(self.broker.authorizer, call, DESCRIBE, TRANSACTIONAL_ID, transactional_id):
                    raise KafkaError(ErrorCode.transactional_id_authorization_failed)
                found = self.broker.transactions.describe(transactional_id)
                shown = [
                    partition
                    for partition in sorted(found.partitions)
                    if may(self.broker.authorizer, call, DESCRIBE, TOPIC, partition[0], quiet=True)
                ]
                out.append(_described(transactional_id, found, shown))
            except KafkaError as error:
                out.append(_undescribed(transactional_id, error.code))
            yield
        out.append(b"\0")
        pack = partial(_packed, call, out)
        return pack if call.is_large else pack()

    # ------------------------------------------------------------------ ListTransactions

    async def list_transactions(self, call: Call) -> Any:
        request = call.request
        known, unknown = await call.in_slices(_state_filters(request.state_filters))
        pattern = request.transactional_id_pattern if call.version >= 2 else None
        try:
            found = await call.in_slices(self._listed(call, known))
            if pattern:
                ids = await regex.matching_in_helper(pattern, (each.transactional_id for each in found))
                found = [each for each in found if each.transactional_id in ids]
        except KafkaError as error:
            return call.answer(error_code=error.code, unknown_state_filters=(), transaction_states=())
        except InvalidPattern:
            error_code = ErrorCode.invalid_regular_expression
            return call.answer(error_code=error_code, unknown_state_filters=(), transaction_states=())
        states = await call.in_slices(
            collect(
                call.make(
                    "TransactionState",
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.label,
                )
                for each in found
            )
        )
        return call.answer(
            error_code=ErrorCode.none, unknown_state_filters=unknown, transaction_states=states
        )

    def _listed(self, call: Call, states: set[State]) -> Slices[list[Transaction]]:
        request = call.request
        duration_ms = request.duration_filter if call.version >= 1 else -1
        producer_ids = set((yield from collect(request.producer_id_filters)))
        now_ms = wall_ms()
        found = []
        for each in self.broker.transactions.all():
            if (
                (not request.state_filters or each.state in states)
                and (not producer_ids or each.producer_id in producer_ids)
                and (duration_ms < 0 or now_ms - each.started_ms > duration_ms)
                and may(
                    self.broker.authorizer,
                    call,
                    DESCRIBE,
                    TRANSACTIONAL_ID,
                    each.transactional_id,
                    quiet=True,
                )
            ):
                found.append(each)
            yield
        return found


def _state_filters(labels: Iterable[str]) -> Slices[tuple[set[State], tuple[str, ...]]]:
    """The states that are asked for, and the names of which there is no state."""
    states: set[State] = set()
    unknown: dict[str, None] = {}
    for label in labels:
        state = STATE_OF_LABEL.get(label)
        if state is None:
            unknown[label] = None
        else:
            states.add(state)
        yield
    return states, tuple(unknown)


def _described(
    transactional_id: str, transaction: Transaction, partitions: Iterable[tuple[str, int]]
) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    out = [
        struct.pack(">h", 0),
        _text(transactional_id),
        _text(transaction.state.label),
        _FACTS.pack(
            transaction.timeout_ms, transaction.started_ms, transaction.producer_id, transaction.epoch
        ),
        uvarint(len(topics) + 1),
    ]
    for topic, indexes in topics.items():
        out.append(_text(topic) + uvarint(len(indexes) + 1))
        out.append(struct.pack(f">{len(indexes)}i", *indexes) + b"\0")
    out.append(b"\0")
    return b"".join(out)


def _packed(call: Call, parts: list[bytes]) -> bytes:
    return call.codec.pack(call.correlation_id, b"".join(parts))


def _undescribed(transactional_id: str, error: ErrorCode) -> bytes:
    return (
        struct.pack(">h", error) + _text(transactional_id) + _text("") + _FACTS.pack(0, 0, 0, 0) + b"\x01\0"
    )


def _text(text: str) -> bytes:
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw
