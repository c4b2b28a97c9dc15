"""What a session tells again, and what not."""

from __future__ import annotations

from millstream.broker.apis.fetch_sessions import Session
from millstream.wire.fetch import FetchPartition

TOPIC = b"t" * 16


def want(leader_epoch: int, offset: int = 5) -> FetchPartition:
    return FetchPartition(0, leader_epoch, offset, 1, 0, 1000)


def test_a_follower_of_another_epoch_is_told_the_high_watermark_again() -> None:
    """It may not have taken what it was told while its epoch changed."""
    session = Session(1, True, 0.0)
    session.update([(TOPIC, [want(3)])], [])
    cached = session.partitions[TOPIC, 0]
    cached.high_watermark = 5
    session.update([(TOPIC, [want(3, 6)])], [])
    assert cached.high_watermark == 5
    session.update([(TOPIC, [want(4, 6)])], [])
    assert cached.high_watermark == -1 and cached.want.offset == 6
