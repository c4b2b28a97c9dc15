"""Groups whose log is replicated slowly: what is not committed neither counts nor is answered."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from millstream.broker.coordinators.transactions.transaction_state import Marker
from millstream.broker.partition import Partition
from millstream.wire.errors import ErrorCode
from millstream.wire.topic_partition import TopicPartition
from tests.support.held_watermark import HeldWatermark
from tests.support.waiting import let_tasks_run, wait_until_async

from .test_coordinator import Lab, lab, offset_records

__all__ = ["lab"]


@pytest.fixture
def watermark(monkeypatch: pytest.MonkeyPatch) -> HeldWatermark:
    watermark = HeldWatermark()

    def appended(self: Partition, size: int, messages: int, now_ms: int) -> bool:
        return watermark.appended(self, size, messages, now_ms)

    monkeypatch.setattr(Partition, "appended", appended)
    return watermark


async def heartbeat(lab: Lab, group: str, member: str, epoch: int, **fields: Any) -> Any:
    joins = {"rebalance_timeout": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    empty = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    return await lab.ask(
        "consumer_group_heartbeat",
        0,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        server_assignor=None,
        **({**joins, **fields} if epoch == 0 else {**empty, **fields}),
    )


async def test_a_commit_counts_when_the_replicas_have_it(lab: Lab, watermark: HeldWatermark) -> None:
    shard = lab.shard("g")
    watermark.held = True
    asked = asyncio.create_task(lab.commit("g", "t", 0, 5))
    await let_tasks_run()
    assert not asked.done()
    assert lab.offset("g") is None
    watermark.commit(shard.partition)
    assert await asked == 0
    assert lab.offset("g") == 5


async def test_a_commit_that_takes_too_long_is_refused_and_counts_later(
    lab: Lab, watermark: HeldWatermark, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = lab.shard("g")
    watermark.held = True
    settings = lab.broker.settings
    integer = settings.integer
    monkeypatch.setattr(
        type(settings),
        "integer",
        lambda self, name: 1 if name == "offsets.commit.timeout.ms" else integer(name),
    )
    assert await lab.commit("g", "t", 0, 5) == ErrorCode.coordinator_not_available
    assert lab.offset("g") is None
    watermark.commit(shard.partition)
    assert lab.offset("g") == 5


async def test_a_commit_that_another_leader_may_take_back_is_not_answered_with_success(
    lab: Lab, watermark: HeldWatermark
) -> None:
    partition = lab.shard("g").partition
    watermark.held = True
    asked = asyncio.create_task(lab.commit("g", "t", 0, 5))
    await let_tasks_run()
    partition.resign()
    lab.groups.runtime.resigned(partition)
    assert await asked == ErrorCode.not_coordinator


async def test_offsets_of_a_transaction_are_put_down_before_its_marker_counts(
    lab: Lab, watermark: HeldWatermark
) -> None:
    """Both are committed by one move of the high watermark, in the order of the log."""
    shard = lab.shard("g")
    watermark.held = True
    shard.commit("g", {("t", 0): offset_records.offset_value(9, -1, "", 0)}, (77, 0))
    marked = lab.broker.transactions.markers.write(
        Marker(77, 0, True, 0), 1, TopicPartition("__consumer_offsets", shard.index)
    )
    assert marked is not None
    watermark.commit(shard.partition)
    await marked
    assert lab.offset("g") == 9
    assert not shard.offsets.in_transaction("g")


async def test_a_new_coordinator_serves_when_what_it_read_is_committed(
    lab: Lab, watermark: HeldWatermark
) -> None:
    await lab.commit("g", "t", 0, 5)
    partition = lab.shard("g").partition
    watermark.held = True
    shard = lab.shard("g")
    waiting = shard.append(
        [(offset_records.offset_key("g", "t", 1), offset_records.offset_value(6, -1, "", 0))]
    )
    assert waiting is not None
    lab.groups.runtime.resigned(partition)
    lab.groups.runtime.leads(partition)
    await let_tasks_run()
    assert await lab.commit("g", "t", 0, 7) == ErrorCode.coordinator_load_in_progress
    watermark.commit(partition)
    await wait_until_async(lambda: lab.groups.runtime.shards[partition.index].ready)
    assert (lab.offset("g"), lab.offset("g", "t", 1)) == (5, 6)


async def test_an_election_that_is_lost_again_before_all_is_committed(
    lab: Lab, watermark: HeldWatermark, caplog: pytest.LogCaptureFixture
) -> None:
    watermark.held = True
    shard = lab.shard("g")
    shard.append([(offset_records.offset_key("g", "t", 1), offset_records.offset_value(6, -1, "", 0))])
    partition = shard.partition
    lab.groups.runtime.resigned(partition)
    lab.groups.runtime.leads(partition)
    await let_tasks_run()
    partition.resign()
    lab.groups.runtime.resigned(partition)
    await let_tasks_run()
    assert partition.index not in lab.groups.runtime.shards
    assert await lab.commit("g", "t", 0, 7) == ErrorCode.not_coordinator
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_heartbeat_tells_nobody_of_changes_that_are_not_committed(
    lab: Lab, watermark: HeldWatermark
) -> None:
    one, two = str(uuid4()), str(uuid4())
    first = await heartbeat(lab, "g", one, 0)
    partition = lab.shard("g").partition
    watermark.held = True
    joining = asyncio.create_task(heartbeat(lab, "g", two, 0))
    await let_tasks_run()
    beating = asyncio.create_task(heartbeat(lab, "g", one, first.member_epoch))
    await let_tasks_run()
    assert not joining.done() and not beating.done()
    partition.resign()
    lab.groups.runtime.resigned(partition)
    assert (await joining).error_code is ErrorCode.not_coordinator
    assert (await beating).error_code is ErrorCode.not_coordinator


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_nobody_is_expelled_by_a_broker_that_may_be_deposed(
    lab: Lab, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if protocol == "classic":
        await lab.stable("g", session=10_000)
    else:
        await heartbeat(lab, "g", str(uuid4()), 0)
    holds = [False]
    monkeypatch.setattr(lab.broker.controller, "holds_lease", lambda: holds[0])
    shard = lab.shard("g")
    group = shard.groups.get("g")
    assert group is not None
    late = lab.groups.timer.now() + 3_600_000
    lab.groups.timer._expire(shard, group, late)
    assert not group.is_empty
    holds[0] = True
    lab.groups.timer._expire(shard, group, late + 3_600_000)
    assert group.is_empty


async def test_offsets_are_not_told_by_a_broker_that_may_be_deposed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused and does not know yet: the group has gone on elsewhere, in a transaction perhaps."""
    assert await lab.commit("g", "t", 0, 5) == 0
    holds = [False]
    monkeypatch.setattr(lab.broker.controller, "holds_lease", lambda: holds[0])
    partition = lab.shard("g").partition

    async def fetched() -> Any:
        topics = [{"name": "t", "partition_indexes": [0]}]
        return await lab.ask("offset_fetch", 5, group_id="g", topics=topics)

    # The only replica: nobody else can have taken over.
    assert (await fetched()).topics[0].partitions[0].committed_offset == 5
    partition.replicas = (*partition.replicas, 99)
    assert (await fetched()).error_code is ErrorCode.not_coordinator
    holds[0] = True
    assert (await fetched()).topics[0].partitions[0].committed_offset == 5


async def test_a_timer_leaves_groups_alone_that_are_no_longer_coordinated_here(lab: Lab) -> None:
    await lab.stable("g", session=100)
    shard = lab.shard("g")
    group = shard.groups.get("g")
    assert group is not None
    lab.groups.runtime.resigned(shard.partition)
    await wait_until_async(lambda: not lab.groups.timer._deadlines)
    assert group.members
