"""What a lane waits for: until the moment, not until the next millisecond, and without missing anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from millstream.host import lane
from millstream.host.lane import wait_for


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    made = socket.socketpair()
    yield made
    for one in made:
        one.close()


def test_what_can_be_read_is_found_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    reader, writer = pair
    assert wait_for([reader], 0) == []
    writer.send(b"x")
    assert wait_for([reader, writer], 60) == [reader]


def test_what_comes_in_the_last_part_of_a_millisecond_is_found(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """poll() waits for whole milliseconds; the rest is slept, and nothing that comes meanwhile is missed."""
    reader, writer = pair
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        writer.send(b"x")

    monkeypatch.setattr(lane.time, "sleep", sleep)
    assert wait_for([reader], 0.0009) == [reader]
    assert len(slept) == 1
    assert 0 < slept[0] <= 0.0009
