"""The logs of a broker that was killed: what is in them, and cutting them back to an earlier moment."""

import os
from collections.abc import Iterator
from pathlib import Path

from millstream.broker.coordinators.runtime import partition_for
from millstream.broker.coordinators.transactions.transaction_records import State, decode_key, decode_value
from millstream.testing import Broker
from millstream.wire.batch import CONTROL, BatchHeader
from millstream.wire.records import iter_batches, iter_records


def log_file(broker: Broker, topic: str, partition: int) -> Path:
    (path,) = (broker.data_dir / f"{topic}-{partition}").glob("*.log")
    return path


def batches(path: Path) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """(position, header, batch)"""
    at = 0
    for header, data in iter_batches(path.read_bytes()):
        yield at, header, bytes(data)
        at += header.size


def cut_markers(broker: Broker, topic: str, partition: int) -> None:
    """As if the marker, which is the last thing in there, had not been written."""
    path = log_file(broker, topic, partition)
    *_, (position, header, _) = batches(path)
    assert header.attributes & CONTROL
    os.truncate(path, position)


def cut_transaction_log(broker: Broker, txn: str, *states: State) -> None:
    """As if the record that tells of one of these states had not been written."""
    path = log_file(broker, "__transaction_state", log_partition(txn))
    for position, _, data in batches(path):
        (record,) = iter_records(data)
        assert decode_key(record.key or b"") == txn, "every id of this test has a log partition of its own"
        if decode_value(txn, record.value or b"").state in states:
            os.truncate(path, position)
            return
    raise AssertionError(f"{txn} was never in {states}")


def log_partition(txn: str) -> int:
    return partition_for(txn, 50)
