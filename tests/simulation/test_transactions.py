"""Group and transaction coordinators under faults, in simulated time. `make simulation TRANSACTIONS=1
SEEDS=10000` runs more of them."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import applied
from tests.simulation.transaction_mutants import RULES
from tests.simulation.transaction_world import TransactionWorld
from tests.simulation.world import Outcome, simulate
from tests.support.effort import seeds

LINES = 120
BLOCK = 20
SEEDS = 40
TRIED = 400


def explain(outcome: Outcome) -> str:
    trace = "\n".join(outcome.world.lines[-LINES:])
    return (
        f"{trace}\nseed {outcome.seed}: {outcome.problem!r}\n"
        f"again: python -m tests.simulation.run --transactions --seed {outcome.seed} --verbose"
    )


@pytest.mark.parametrize("first", seeds(SEEDS)[::BLOCK])
def test_what_clients_were_told_is_so(first: int) -> None:
    for seed in range(first, first + BLOCK):
        outcome = simulate(seed, kind=TransactionWorld)
        if outcome.problem is not None:
            pytest.fail(explain(outcome), pytrace=False)


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_it_goes_wrong(rule: str) -> None:
    """A test of the test: some seed finds that the rule is missing. The first one that did goes first."""
    known, changes = RULES[rule]
    with applied(changes):
        for seed in (known, *range(TRIED)):
            if simulate(seed, kind=TransactionWorld).problem is not None:
                return
    pytest.fail(f"{TRIED} seeds did not miss the rule '{rule}'")


def test_transactions_come_to_their_end() -> None:
    """So that the runs above say something."""
    ledgers = [simulate(seed, kind=TransactionWorld).world.ledger for seed in range(5)]  # type: ignore[attr-defined]
    outcomes = [entry.outcome for ledger in ledgers for entry in ledger]
    assert outcomes.count("committed") >= 10 and outcomes.count("aborted") >= 3
