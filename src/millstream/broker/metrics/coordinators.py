"""Groups and transactions that are coordinated here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.broker.metrics.page import Page

if TYPE_CHECKING:
    from millstream.broker.server import Broker


def add_groups(page: Page, broker: Broker) -> None:
    states: dict[str, int] = {}
    offsets = 0
    for shard in broker.groups.runtime.ready_shards():
        offsets += shard.offsets.count
        for state, count in shard.states().items():
            states[state] = states.get(state, 0) + count
    manager = "kafka_coordinator_group_groupmetadatamanager"
    page.one(f"{manager}_numgroups", "gauge", "Groups.", sum(states.values()))
    page.one(f"{manager}_numoffsets", "gauge", "Committed offsets.", offsets)
    page.add(
        "millstream_groups",
        "gauge",
        "Groups by state.",
        [(f'state="{state}"', count) for state, count in sorted(states.items())],
    )


def add_transactions(page: Page, broker: Broker) -> None:
    transactions = broker.transactions
    states: dict[str, int] = {}
    for shard in transactions.runtime.shards.values():
        for state, count in shard.states().items():
            states[state.label] = states.get(state.label, 0) + count
    page.add(
        "millstream_transactional_ids",
        "gauge",
        "Transactional ids coordinated here, by state.",
        [(f'state="{state}"', count) for state, count in sorted(states.items())],
    )
    page.add(
        "millstream_transactions_ended_total",
        "counter",
        "Transactions that were ended here, by result.",
        [('result="commit"', transactions.committed), ('result="abort"', transactions.aborted)],
    )
    page.one(
        "millstream_transactions_timed_out_total",
        "counter",
        "Transactions that were aborted because they were open for too long.",
        transactions.timed_out,
    )
    page.one(
        "millstream_transactions_completing",
        "gauge",
        "Decided transactions whose markers are still being written.",
        sum(len(shard.completions) for shard in transactions.runtime.shards.values()),
    )
