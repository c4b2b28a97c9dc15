"""Right requests of every API, damaged at random: the broker answers or closes, never falls over, and others
go on.

Bounded in count, so about twenty seconds. In CI the same examples every time; elsewhere new ones each run,
and what once failed is tried first (hypothesis keeps it). FUZZ_EXAMPLES=100000 in the environment makes a
night of it.
"""

import os
import socket
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.client.messages import Exchange
from millstream.wire._kio import api_key_map

from ..support.effort import examples
from ..wire.samples import sample_body
from .raw_frames import Raw, Target, ask, batch, framed, header, target

__all__ = ["target"]  # the fixture

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", examples(600)))
UNREADABLE = {"describe_transactions"}  # kio cannot read a time of -1, which is Kafka's "never"
GROWTH_ALLOWED = 100 << 20


def frame_of(key: int, version: int) -> bytes:
    exchange = Exchange(api_key_map[key], version)
    body = sample_body(exchange.request, string="fuzz", records=bytes(batch()))
    return header(key, version, 1, flexible=exchange.flexible) + body


@pytest.fixture(scope="module")
def frames(target: Target) -> list[bytes]:
    """One right request for each API that the broker serves, in its oldest and its newest version."""
    if not target.is_millstream:
        pytest.skip("among Kafka's APIs are some that end a broker: UnregisterBroker, for one")
    served = ask(target.bootstrap, "api_versions", 0).api_keys
    made = []
    for one in served:
        known = [v for v in (one.min_version, one.max_version, (one.min_version + one.max_version) // 2)]
        for version in sorted(set(known)):
            try:
                made.append(frame_of(one.api_key, version))
            except KeyError:  # listed but refused, as Produce v0
                continue
            except Exception as error:
                if type(error).__name__ not in ("UnknownEntity",):
                    raise
    assert len(made) > 40
    return made


def flip(frame: bytearray, at: int, value: int) -> None:
    if frame:
        frame[at % len(frame)] ^= value


def overwrite(frame: bytearray, at: int, value: int) -> None:
    """A field of four bytes: where lengths and counts are."""
    if len(frame) >= 4:
        struct.pack_into(">i", frame, at % (len(frame) - 3), value)


def cut(frame: bytearray, at: int, value: int) -> None:
    del frame[at % (len(frame) + 1) :]


def insert(frame: bytearray, at: int, value: int) -> None:
    position = at % (len(frame) + 1)
    frame[position:position] = bytes([value & 0xFF]) * (1 + (value >> 8) % 40)


def remove(frame: bytearray, at: int, value: int) -> None:
    position = at % (len(frame) + 1)
    del frame[position : position + 1 + value % 9]


EXTREMES = st.sampled_from(
    [-1, -2, 0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, -0x8000, 0xFFFF, 0x7FFFFFFF, -0x80000000, 1 << 24]
)
MUTATION = st.one_of(
    st.tuples(st.just(flip), st.integers(0, 400), st.integers(1, 255)),
    st.tuples(st.just(overwrite), st.integers(0, 400), EXTREMES),
    st.tuples(st.just(insert), st.integers(0, 400), st.integers(0, 0xFFFF)),
    st.tuples(st.just(remove), st.integers(0, 400), st.integers(0, 8)),
    st.tuples(st.just(cut), st.integers(0, 400), st.just(0)),
)


def test_every_right_request_is_answered(target: Target, frames: list[bytes]) -> None:
    """The ground under the fuzzing: before it is damaged, each frame is understood."""
    for frame in frames:
        with Raw(target.bootstrap) as connection:
            connection.send(framed(frame))
            answer = connection.receive()
            name, version = (
                api_key_map[struct.unpack_from(">h", frame)[0]],
                struct.unpack_from(">h", frame, 2)[0],
            )
            assert answer is not None, f"{name} v{version}: the broker closed the connection"
            if name not in UNREADABLE:
                Exchange(name, version).decode(memoryview(answer)[4:])
    target.is_fine()


def test_damaged_requests(target: Target, frames: list[bytes]) -> None:
    before = target.memory()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        which=st.integers(0, len(frames) - 1),
        mutations=st.lists(MUTATION, min_size=1, max_size=4),
        claimed=st.one_of(st.none(), st.none(), st.none(), EXTREMES),
    )
    def damaged(which: int, mutations: list[Any], claimed: int | None) -> None:
        frame = bytearray(frames[which])
        for change, at, value in mutations:
            change(frame, at, value)
        with Raw(target.bootstrap) as connection:
            try:
                connection.send(
                    framed(bytes(frame)) if claimed is None else struct.pack(">i", claimed) + frame
                )
                # So an unfinished frame, or a long wait, ends as well.
                connection.socket.shutdown(socket.SHUT_WR)
                while connection.receive() is not None:
                    pass
            except (ConnectionError, OSError) as error:
                assert not isinstance(error, TimeoutError), "neither answered nor closed"
        target.is_fine()

    damaged()
    assert target.memory() - before < GROWTH_ALLOWED
