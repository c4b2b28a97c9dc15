"""The bytes in front of a body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.serdes.frame import NotFramed, path_bytes, split, split_path, with_id


def test_ids_and_guids() -> None:
    framed = with_id(258, b"body")
    assert framed == b"\0\0\0\1\2body"
    assert (split(framed)[0], bytes(split(framed)[1])) == (258, b"body")
    guid, rest = split(b"\1" + bytes(range(16)) + b"x")
    assert guid == "00010203-0405-0607-0809-0a0b0c0d0e0f" and bytes(rest) == b"x"


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\1", b"\2abcdefgh", b"\1short", b"{json}"])
def test_what_is_not_framed(data: bytes) -> None:
    with pytest.raises(NotFramed):
        split(data)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.binary(max_size=10))
def test_paths(path: list[int], rest: bytes) -> None:
    found, after = split_path(memoryview(path_bytes(path) + rest))
    assert found == path and bytes(after) == rest


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x80\x80", b"\xff\xff\xff\xff\xff\xff\xff", b"\x01\x00"])
def test_paths_cut_off(data: bytes) -> None:
    with pytest.raises(NotFramed):
        split_path(memoryview(data))
