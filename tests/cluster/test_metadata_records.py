"""The bytes of the metadata log: what goes in comes out, and what is not understood stops the reader."""

from __future__ import annotations

import json
import zlib
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.metadata_records import (
    DEFLATE_ABOVE,
    MAX_ENTRY_RECORDS,
    BrokerDown,
    BrokerGone,
    BrokerUp,
    Config,
    Controller,
    Endpoint,
    Feature,
    Partition,
    ProducerIds,
    Record,
    Topic,
    TopicGone,
    UnknownMetadata,
    decode,
    encode,
    encode_chunks,
)
from millstream.cluster.security_records import (
    Account,
    AccountGone,
    Acl,
    AclGone,
    ApiKey,
    ApiKeyGone,
    Quota,
    Token,
    TokenGone,
)

ids = st.integers(0, 2**31 - 1)
longs = st.integers(0, 2**63 - 1)
lists = st.lists(ids, max_size=4).map(tuple)
text = st.text(max_size=20)
uuids = st.integers(0, 2**128 - 1).map(lambda n: UUID(int=n))
ranges = st.dictionaries(text, st.tuples(ids, ids), max_size=3)
endpoints = st.builds(Endpoint, text, text, ids, text)

any_record: st.SearchStrategy[Record] = st.one_of(
    st.builds(Controller, ids, ids),
    st.builds(
        BrokerUp,
        ids,
        longs,
        text,
        st.lists(endpoints, max_size=2).map(tuple),
        st.none() | text,
        st.booleans(),
        ranges,
    ),
    st.builds(BrokerDown, ids, longs),
    st.builds(BrokerGone, ids),
    st.builds(Topic, uuids, text),
    st.builds(TopicGone, uuids),
    st.builds(Partition, uuids, ids, lists, lists, ids, ids, ids, lists, lists, lists, st.booleans()),
    st.builds(Config, text, text, st.dictionaries(text, text, max_size=3)),
    st.builds(ProducerIds, longs),
    st.builds(Feature, text, ids),
    st.builds(Acl, ids, text, ids, text, text, ids, ids),
    st.builds(AclGone, ids, text, ids, text, text, ids, ids),
    st.builds(
        Quota,
        st.lists(st.tuples(text, st.none() | text), max_size=2).map(tuple),
        st.dictionaries(text, st.floats(0, 1e12), max_size=3),
    ),
    st.builds(Token, text, text, text, st.lists(text, max_size=2).map(tuple), longs, longs, longs),
    st.builds(TokenGone, text),
    st.builds(Account, text, text, text),
    st.builds(AccountGone, text),
    st.builds(ApiKey, text, text, text, longs, longs, text),
    st.builds(ApiKeyGone, text),
)


@given(st.lists(any_record, max_size=6), ids)
def test_what_goes_in_comes_out(records: list[Record], epoch: int) -> None:
    decoded = decode(encode(records, epoch))
    assert decoded == (epoch, records)
    assert [type(r) for r in decoded[1]] == [type(r) for r in records]


def test_long_entries_are_deflated_and_short_ones_are_readable() -> None:
    topic = uuid4()
    many: list[Record] = [Partition(topic, n, (1, 2, 3), (1, 2), 1) for n in range(2000)]
    assert encode(many[:1])[:1] == b"{"
    long = encode(many, 7)
    assert len(long) < 20_000
    assert decode(long) == (7, many)
    assert len(zlib.decompress(long)) > DEFLATE_ABOVE


def test_a_snapshot_is_cut_into_chunks() -> None:
    records: list[Record] = [ProducerIds(n) for n in range(MAX_ENTRY_RECORDS * 2 + 1)]
    chunks = list(encode_chunks(records))
    assert [len(decode(chunk)[1]) for chunk in chunks] == [MAX_ENTRY_RECORDS, MAX_ENTRY_RECORDS, 1]
    assert [record for chunk in chunks for record in decode(chunk)[1]] == records


def entry(*records: Any, **more: Any) -> bytes:
    return json.dumps({"v": 1, "c": 0, "r": list(records)} | more).encode()


@pytest.mark.parametrize(
    "payload",
    [
        entry(["teleporter", 1]),  # a type of a later version
        entry(["producer-ids", 1, "more"]),  # a field of a later version
        entry(["producer-ids"]),
        entry([]),
        entry(7),
        entry(["topic", "no hex", "name"]),
        entry(["broker", 1, 2, "life", 5, None, False, {}]),
        entry(v=2),
        b"{}",
        b"",
        b"nonsense",
        zlib.compress(entry() + b" " * 9000)[:-3],
        zlib.compress(entry() + b" " * 9000) + b"more",
        zlib.compress(b"[" * 100_000),
    ],
)
def test_what_is_not_understood_stops_the_reader(payload: bytes) -> None:
    with pytest.raises(UnknownMetadata):
        decode(payload)


def test_a_newer_format_is_named() -> None:
    with pytest.raises(UnknownMetadata, match="format 2; this version reads format 1"):
        decode(entry(v=2))


def test_a_broker_has_an_endpoint_for_each_listener() -> None:
    inside, outside = Endpoint("INSIDE", "a", 1), Endpoint("OUTSIDE", "b", 2)
    broker = BrokerUp(1, 1, "life", (inside, outside))
    assert broker.endpoint("OUTSIDE") is outside
    assert broker.endpoint("ELSEWHERE") is None
