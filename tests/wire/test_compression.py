"""Codecs: what others write we read, what we write others read, and no input gets past KafkaError or the
limit."""

import gzip
import struct
import zlib
from unittest import mock

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.wire import compression
from millstream.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from millstream.wire.errors import ErrorCode, KafkaError
from tests.support.effort import examples

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b"the quick brown fox jumps over the lazy dog; " * 3000

AIOKAFKA = {
    GZIP: (aiokafka_codec.gzip_encode, aiokafka_codec.gzip_decode),
    SNAPPY: (aiokafka_codec.snappy_encode, aiokafka_codec.snappy_decode),
    LZ4: (aiokafka_codec.lz4_encode, aiokafka_codec.lz4_decode),
    ZSTD: (aiokafka_codec.zstd_encode, aiokafka_codec.zstd_decode),
}


def test_names_match_kafkas_numbers():
    assert compression.CODEC_IDS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None)
@given(data=st.binary(max_size=5000), times=st.sampled_from([1, 100]))
def test_round_trip(codec, data, times):
    assert bytes(decompress(codec, compress(codec, data * times))) == data * times


@pytest.mark.parametrize("codec", AIOKAFKA)
@pytest.mark.parametrize("data", [b"x", TEXT, bytes(range(256)) * 500], ids=["one byte", "text", "binary"])
def test_aiokafka_reads_ours_and_we_read_aiokafkas(codec, data):
    encode, decode = AIOKAFKA[codec]
    assert bytes(decode(compress(codec, data))) == data
    assert bytes(decompress(codec, bytes(encode(data)))) == data


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_levels_are_taken(codec):
    for level in (1, 3, 9, 12) if codec != GZIP else (1, 9):
        assert bytes(decompress(codec, compress(codec, TEXT, level))) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_any_buffer_will_do(codec):
    packed = compress(codec, memoryview(bytearray(TEXT)))
    assert bytes(decompress(codec, memoryview(bytearray(packed)))) == TEXT


def test_lz4_blocks_are_independent_because_java_refuses_linked_ones():
    packed = compress(LZ4, TEXT)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20


def test_snappy_is_written_in_javas_framing_of_32_kb_blocks():
    packed = compress(SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", packed, 16)
    assert len(cramjam.snappy.decompress_raw(packed[20 : 20 + size])) == 32 * 1024


def test_bare_snappy_block_is_read():
    assert bytes(decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


def test_gzip_of_several_members_is_read():
    assert bytes(decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"))) == b"one two"
    assert bytes(decompress(GZIP, gzip.compress(b"") + gzip.compress(b""))) == b""


@settings(deadline=None, max_examples=examples(300))
@given(data=st.data())
def test_gzip_is_read_the_same_with_and_without_isal(data):
    """The same bytes, or refused by both: sound streams, several in a row, damaged, cut off and too large. Of
    what is both damaged and too large, either may be said."""
    isal_zlib = pytest.importorskip("isal.isal_zlib", reason="pip install 'millstream[gzip]'")
    plain = st.binary(max_size=300) | st.integers(0, 70_000).map(lambda size: TEXT[:size])
    members = data.draw(st.lists(plain, min_size=1, max_size=3))
    packed = bytearray(b"".join(gzip.compress(member, data.draw(st.integers(0, 9))) for member in members))
    for at in data.draw(st.lists(st.integers(0, min(60, len(packed) - 1)), max_size=2)):
        packed[at] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del packed[data.draw(st.integers(0, len(packed))) :]
    limit = data.draw(st.sampled_from([100, 1 << 20]))
    found = []
    for module in (zlib, isal_zlib):
        with mock.patch.object(compression, "inflate", module):
            try:
                found.append(bytes(decompress(GZIP, memoryview(packed), limit)))
            except KafkaError:
                found.append(None)
    assert found[0] == found[1]


@pytest.mark.parametrize("codec", CODECS)
def test_limit_is_exact(codec):
    packed = compress(codec, b"\0" * 1_000_000)
    assert len(decompress(codec, packed, 1_000_000)) == 1_000_000
    with pytest.raises(KafkaError) as caught:
        decompress(codec, packed, 999_999)
    assert caught.value.code is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_bomb_is_an_error(codec):
    bomb = compress(codec, b"\0" * (64 << 20))
    with pytest.raises(KafkaError) as caught:
        decompress(codec, bomb, 1 << 20)
    assert caught.value.code is ErrorCode.invalid_record


def test_snappy_block_that_claims_more_than_it_can_hold():
    with pytest.raises(KafkaError) as caught:
        decompress(SNAPPY, b"\xff\xff\xff\x07" + b"\0" * 10)
    assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec):
    for call in (compress, decompress):
        with pytest.raises(KafkaError) as caught:
            call(codec, b"x")
        assert caught.value.code is ErrorCode.unsupported_compression_type


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@settings(deadline=None)
@given(data=st.data())
def test_damage_raises_only_kafka_error(codec, data):
    packed = bytearray(compress(codec, TEXT[:3000]))
    for at in data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=4)):
        packed[at] ^= data.draw(st.integers(1, 255))
    del packed[data.draw(st.integers(0, len(packed))) :]
    try:
        decompress(codec, packed, 1 << 20)
    except KafkaError:
        pass


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@settings(deadline=None)
@given(junk=st.binary(max_size=300))
def test_junk_raises_only_kafka_error(codec, junk):
    try:
        decompress(codec, junk, 1 << 20)
    except KafkaError:
        pass
