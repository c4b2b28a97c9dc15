"""`millstream transactions` beyond the recorded story: what hangs, other styles, misuse."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from millstream.cli.transactions import without_owner
from millstream.client.transactions import ProducerState, TransactionListing, TransactionState
from millstream.wire.errors import ErrorCode, KafkaError

from .conftest import Run

WAIT = 30
NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


class Known:
    """Coordinators that know one transaction, which is open in one partition, and another that ends
    meanwhile."""

    def listed(self, producer_ids: set[int]) -> list[TransactionListing]:
        all_of_them = [
            TransactionListing(1, "alive", 10, "Ongoing"),
            TransactionListing(1, "gone", 11, "Ongoing"),
        ]
        return [each for each in all_of_them if each.producer_id in producer_ids]

    def describe(self, transactional_id: str) -> TransactionState:
        if transactional_id == "gone":
            raise KafkaError(ErrorCode.transactional_id_not_found, "not found")
        return TransactionState(1, transactional_id, 10, 0, "Ongoing", 60_000, 1, (("t", 0),))


def test_a_transaction_hangs_if_nobody_is_going_to_end_it() -> None:
    def open_by(producer_id: int, partition: int) -> tuple[tuple[str, int], ProducerState]:
        return ("t", partition), ProducerState(producer_id, 0, -1, 5, 1000, 42)

    candidates = [open_by(10, 0), open_by(10, 1), open_by(11, 0), open_by(12, 0)]
    transactions: Any = Known()
    assert list(without_owner(transactions, candidates)) == candidates[1:]
    assert list(without_owner(transactions, [])) == []


def test_json(run: Run, bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx-json"})
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    producer.produce("tx-json", b"1", partition=0)
    producer.flush(WAIT)
    to = ("transactions", "--bootstrap-server", bootstrap)
    listed = json.loads(run(*to, "list", "-o", "json").out)
    assert [(t["transactional_id"], t["state"]) for t in listed if t["transactional_id"] == "tx-json"] == [
        ("tx-json", "Ongoing")
    ]
    described = json.loads(run(*to, "describe", "--transactional-id", "tx-json", "-o", "json").out)
    assert described["partitions"] == ["tx-json-0"]
    assert described["duration_ms"] >= 0
    (state,) = json.loads(
        run(*to, "describe-producers", "--topic", "tx-json", "--partition", "0", "-o", "json").out
    )
    assert state["current_transaction_start_offset"] == 0
    assert run(*to, "forceTerminateTransaction", "--transactional-id", "tx-json").code == 0
    (state,) = json.loads(
        run(*to, "describe-producers", "--topic", "tx-json", "--partition", "0", "-o", "json").out
    )
    assert state["current_transaction_start_offset"] is None


def test_a_partition_that_is_not_there(run: Run, bootstrap: str) -> None:
    done = run(
        "transactions",
        "--bootstrap-server",
        bootstrap,
        "describe-producers",
        "--topic",
        "no",
        "--partition",
        "0",
    )
    assert done.code == 1
    assert done.err.startswith("Failed to describe producers for partition no-0 on leader: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "a command is missing"),
        (["lists"], "there is no command 'lists'"),
        (["describe"], "--transactional-id is required"),
        (["list", "--topic", "t"], '"[topic]" can\'t be used'),
        (["abort", "--topic", "t"], "--partition is required"),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1", "--producer-epoch", "32768"],
            "32767",
        ),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1", "--producer-epoch", "0"],
            "--coordinator-epoch",
        ),
    ],
)
def test_misuse(run: Run, arguments: list[str], words: str) -> None:
    done = run("transactions", *NOWHERE, *arguments)
    assert done.code == 2
    assert words in done.err


def test_a_pattern_that_is_none(run: Run, bootstrap: str) -> None:
    done = run("transactions", "--bootstrap-server", bootstrap, "list", "--transactional-id-pattern", "(")
    assert done.code == 2
    assert done.err.startswith("--transactional-id-pattern (: this is not a valid regular expression")


def test_an_id_without_a_transaction(run: Run, bootstrap: str) -> None:
    """Its start time is -1, which is no time at all."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx-idle"})
    producer.init_transactions(WAIT)
    to = ("transactions", "--bootstrap-server", bootstrap)
    described = json.loads(run(*to, "describe", "--transactional-id", "tx-idle", "-o", "json").out)
    assert (described["state"], described["partitions"]) == ("Empty", [])
