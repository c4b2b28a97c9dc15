"""The records of `__transaction_state`, byte for byte."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.coordinators.transactions.transaction_records import (
    FLEXIBLE,
    PLAIN,
    State,
    Transaction,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from millstream.wire.errors import KafkaError


def from_kafka() -> list[tuple[bytes, bytes]]:
    lines = (Path(__file__).parent / "kafka_transaction_state.txt").read_text().splitlines()
    return [(bytes.fromhex(k), bytes.fromhex(v)) for k, v in (s.split() for s in lines if s[0] != "#")]


def test_what_kafka_wrote_is_read_and_written_again_with_the_same_bytes() -> None:
    versions = set()
    for key, value in from_kafka():
        transactional_id = decode_key(key)
        assert transactional_id is not None
        assert encode_key(transactional_id) == key
        version = int.from_bytes(value[:2], "big")
        assert encode_value(decode_value(transactional_id, value), version) == value
        versions.add(version)
    assert versions == {PLAIN, FLEXIBLE}


def test_what_kafka_wrote_means_what_it_says() -> None:
    read = [decode_value(decode_key(key) or "", value) for key, value in from_kafka()]
    overflow = next(t for t in read if t.next_id != -1)
    assert overflow.epoch == 0x7FFF
    assert overflow.previous_id == overflow.producer_id
    assert overflow.client_version == 2
    assert {t.state for t in read} == set(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}
    empty = next(t for t in read if t.state is State.EMPTY)
    assert empty.started_ms == -1
    assert not empty.partitions
    ongoing = next(t for t in read if len(t.partitions) == 2)
    assert ongoing.started_ms > 1_700_000_000_000


def test_an_older_broker_reads_what_a_newer_one_wrote() -> None:
    """Tags it does not know are skipped, wherever they stand."""
    t = Transaction("id", 5, 3, 60_000, State.ONGOING, frozenset({("topic", 1)}), 10, 9, 5, -1, 2)
    value = encode_value(t, FLEXIBLE)
    tags_at = value.rindex(b"\x02\x00\x08")
    newer = value[:tags_at] + b"\x03" + value[tags_at + 1 :] + b"\x07\x03abc"
    assert decode_value("id", newer) == t


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x02" + b"\0" * 40, b"\x00\x01" + b"\0" * 10])
def test_what_cannot_be_read_is_refused(value: bytes) -> None:
    with pytest.raises(KafkaError, match="__transaction_state"):
        decode_value("id", value)


def test_every_cut_of_a_value_is_refused() -> None:
    t = Transaction(
        "id", 5, 3, 60_000, State.ONGOING, frozenset({("topic", 1), ("other", 7)}), 10, 9, 5, 6, 2
    )
    for version in (PLAIN, FLEXIBLE):
        value = encode_value(t, version)
        for size in range(len(value)):
            with pytest.raises(KafkaError):
                decode_value("id", value[:size])


def test_keys_of_another_kind_are_not_ours() -> None:
    assert decode_key(b"\x00\x01\x00\x01a") is None
    assert decode_key(encode_key("Zürich")) == "Zürich"
    with pytest.raises(KafkaError):
        decode_key(b"\x00")


int64 = st.integers(-1, 2**63 - 1)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
transactions = st.builds(
    Transaction,
    transactional_id=names,
    producer_id=int64,
    epoch=st.integers(-1, 0x7FFF),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(State).filter(lambda state: state is not State.EMPTY),
    partitions=st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=20),
    updated_ms=int64,
    started_ms=int64,
    previous_id=int64,
    next_id=int64,
    client_version=st.integers(0, 2),
    last_epoch=st.just(-1),
)


@given(transactions)
def test_a_transaction_survives_its_record(t: Transaction) -> None:
    assert decode_value(t.transactional_id, encode_value(t, FLEXIBLE)) == t
    plain = t._replace(previous_id=-1, next_id=-1, client_version=0)
    assert decode_value(t.transactional_id, encode_value(t, PLAIN)) == plain
    assert decode_key(encode_key(t.transactional_id)) == t.transactional_id


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    for read in (lambda: decode_key(data), lambda: decode_value("id", data)):
        try:
            read()
        except KafkaError:
            pass
