"""The coordinator in a broker of this process: expiry, transactions, a log that refuses or is slow,
alarms."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import CoroutineType, GeneratorType, SimpleNamespace
from typing import Any

import pytest

from millstream.broker.coordinators.groups import coordinator as module
from millstream.broker.coordinators.groups import offset_records
from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
from millstream.broker.coordinators.groups.group_shard import GroupShard
from millstream.broker.network.dispatch import Call
from millstream.broker.network.slices import run_slices
from millstream.broker.server import Broker
from millstream.client.messages import Exchange
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.settings.resolve import BrokerSettings
from millstream.storage.dump import read_log
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.messages import codec
from tests.support.waiting import let_tasks_run, wait_until_async

MINUTE = 60_000


class Lab:
    """A broker whose handlers are called directly, and whose wall clock can be turned."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.groups: GroupCoordinator = broker.groups
        self.peer = SimpleNamespace(peer="127.0.0.1:1", client_id="lab", loop=asyncio.get_running_loop())

    async def ask(self, name: str, version: int, **fields: Any) -> Any:
        exchange = Exchange(name, version)
        form = codec(exchange.key, version)
        call = Call(self.peer, form, 1, form.read(memoryview(exchange.encode(fields)), 0))  # type: ignore[arg-type]
        result = self.broker.dispatcher.apis[exchange.key].handler(call)  # type: ignore[misc]
        if isinstance(result, GeneratorType):
            result = await run_slices(result)
        if isinstance(result, CoroutineType):
            result = await result
        frame = result if isinstance(result, bytes) else form.pack(1, result)
        return exchange.decode(memoryview(frame)[8:])

    async def commit(self, group: str, topic: str, partition: int, offset: int, **who: Any) -> int:
        answer = await self.ask(
            "offset_commit",
            who.pop("version", 9),
            group_id=group,
            generation_id_or_member_epoch=who.get("generation", -1),
            member_id=who.get("member", ""),
            group_instance_id=None,
            retention_time=who.get("retention", -1),
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        )
        return int(answer.topics[0].partitions[0].error_code)

    async def join(self, group: str, member: str = "", session: int = 10_000, topic: str = "t") -> Any:
        metadata = b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode() + b"\xff\xff\xff\xff"
        return await self.ask(
            "join_group",
            3,
            group_id=group,
            session_timeout=session,
            rebalance_timeout=10_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": metadata}],
        )

    async def stable(self, group: str, **options: Any) -> str:
        member = str((await self.join(group, **options)).member_id)
        await self.sync(group, member)
        return member

    async def sync(self, group: str, member: str, generation: int = 1) -> Any:
        return await self.ask(
            "sync_group",
            3,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
            assignments=[{"member_id": member, "assignment": b"x"}],
        )

    async def loaded(self) -> None:
        for shard in self.groups.runtime.shards.values():
            if shard._load is not None:
                await shard._load

    def shard(self, group: str) -> GroupShard:
        return self.groups.runtime.shard(group)

    def offset(self, group: str, topic: str = "t", partition: int = 0) -> int | None:
        value = self.shard(group).offsets.get(group, topic, partition)
        return None if value is None else offset_records.parse_offset_value(value).offset

    def log(self, group: str) -> list[tuple[bytes | None, bytes | None]]:
        segment = self.shard(group).partition.log.segments[-1]
        return [(r.key, r.value) for batch in read_log(str(segment.path)) for r in batch.records()]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "offsets.topic.num.partitions": "2",
        "offsets.retention.minutes": "10",
    }
    broker = Broker(BrokerSettings(settings))
    await broker.start()
    await broker.controller.submit(CreateTopics([NewTopic("t", 2, 1), NewTopic("u", 1, 1)]))
    await broker.groups.runtime.ensure_exists()
    yield Lab(broker)
    await broker.stop()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Turn the wall clock forward."""
    real, ahead = module.wall_ms, [0]
    monkeypatch.setattr(module, "wall_ms", lambda: real() + ahead[0])

    def turn(milliseconds: int) -> None:
        ahead[0] = milliseconds

    return turn


async def test_offsets_without_a_group_expire_after_their_commit(lab: Lab, later: Any) -> None:
    await lab.commit("g", "t", 0, 5)
    later(9 * MINUTE)
    await lab.groups.expire_offsets()
    assert lab.offset("g") == 5
    later(10 * MINUTE + 1000)
    await lab.groups.expire_offsets()
    assert lab.offset("g") is None
    # As Kafka does: the group has no record of its own, but a tombstone.
    assert lab.log("g")[-2:] == [
        (offset_records.offset_key("g", "t", 0), None),
        (offset_records.group_key("g"), None),
    ]
    assert not lab.shard("g").knows("g")


def reload(lab: Lab, group: str) -> GroupShard:
    """What a start would make of the group's log."""
    shard = GroupShard(lab.groups, lab.shard(group).partition)
    for segment in shard.partition.log.segments:
        for batch in read_log(str(segment.path)):
            for record in batch.records():
                header = batch.header
                shard.replay(header.attributes, header.producer_id, record.offset, record.key, record.value)
    lab.groups.runtime.shards[shard.index] = shard
    shard.ready = True
    shard.loaded()
    return shard


async def test_a_group_that_lost_its_last_offset_stays_until_the_next_check(lab: Lab) -> None:
    await lab.commit("g", "t", 0, 5)
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    answer = await lab.ask("offset_delete", 0, group_id="g", topics=topics)
    assert answer.error_code == ErrorCode.none
    assert lab.offset("g") is None
    assert lab.log("g")[-1] == (offset_records.offset_key("g", "t", 0), None)
    assert lab.shard("g").states() == {"Empty": 1}
    listed = await lab.ask("list_groups", 4, states_filter=[])
    assert [(group.group_id, group.group_state) for group in listed.groups] == [("g", "Empty")]
    assert reload(lab, "g").knows("g")
    await lab.groups.expire_offsets()
    assert lab.log("g")[-1] == (offset_records.group_key("g"), None)
    assert not lab.shard("g").knows("g")
    assert not reload(lab, "g").knows("g")


async def test_an_aborted_transaction_leaves_an_empty_group(lab: Lab) -> None:
    shard = lab.shard("g")
    value = offset_records.offset_value(9, -1, "", 0)
    shard.offsets.put_pending(77, "g", "t", 0, value, 0)
    await lab.groups.expire_offsets()
    assert shard.knows("g")
    lab.groups.transaction_completed(shard.index, 77, committed=False)
    assert shard.knows("g")
    await lab.groups.expire_offsets()
    assert not shard.knows("g")


async def test_groups_without_members_sleep_after_a_start(lab: Lab, later: Any) -> None:
    member = await lab.stable("g")
    await lab.commit("g", "t", 0, 5, member=member, generation=1)
    await lab.stable("busy")
    await lab.ask("leave_group", 2, group_id="g", member_id=member)
    shard = reload(lab, "g")
    assert shard.groups.asleep == 1
    assert shard.states() == {"Empty": 1} if shard is not lab.shard("busy") else {"Empty": 1, "Stable": 1}
    listed = await lab.ask("list_groups", 4, states_filter=["empty"])
    assert [(group.group_id, group.protocol_type) for group in listed.groups] == [("g", "consumer")]
    later(9 * MINUTE)
    await lab.groups.expire_offsets()
    assert (lab.offset("g"), shard.groups.asleep) == (5, 1)
    group = shard.groups.get("g")
    assert group is not None and group.is_empty and group.generation == 2
    assert shard.groups.asleep == 0
    shard = reload(lab, "g")
    later(12 * MINUTE)
    await lab.groups.expire_offsets()
    assert not shard.knows("g")
    assert lab.log("g")[-1] == (offset_records.group_key("g"), None)


async def test_a_retention_of_its_own(lab: Lab, later: Any) -> None:
    await lab.commit("g", "t", 0, 5, version=4, retention=20 * MINUTE)
    later(15 * MINUTE)
    await lab.groups.expire_offsets()
    assert lab.offset("g") == 5
    later(21 * MINUTE)
    await lab.groups.expire_offsets()
    assert lab.offset("g") is None


async def test_a_living_group_keeps_what_it_reads_and_loses_the_rest(lab: Lab, later: Any) -> None:
    member = await lab.stable("g")
    for topic in ("t", "u"):
        assert await lab.commit("g", topic, 0, 5, member=member, generation=1) == 0
    later(60 * MINUTE)
    await lab.groups.expire_offsets()
    assert (lab.offset("g"), lab.offset("g", "u")) == (5, None)
    assert "g" in lab.shard("g").groups


async def test_an_empty_group_keeps_its_offsets_for_a_while_after_the_last_member_left(
    lab: Lab, later: Any
) -> None:
    member = await lab.stable("g")
    await lab.commit("g", "t", 0, 5, member=member, generation=1)
    later(60 * MINUTE)
    await lab.ask("leave_group", 2, group_id="g", member_id=member)
    await lab.groups.expire_offsets()
    assert lab.offset("g") == 5
    later(71 * MINUTE)
    await lab.groups.expire_offsets()
    assert lab.offset("g") is None
    assert "g" not in lab.shard("g").groups
    assert lab.log("g")[-1] == (offset_records.group_key("g"), None)


async def test_the_offsets_of_a_transaction(lab: Lab) -> None:
    await lab.commit("g", "t", 0, 5)
    shard = lab.shard("g")
    value = offset_records.offset_value(9, -1, "", 0)

    shard.commit("g", {("t", 0): value}, (77, 0))

    async def fetch(stable: bool) -> tuple[int, int]:
        answer = await lab.ask(
            "offset_fetch",
            8,
            groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}],
            require_stable=stable,
        )
        found = answer.groups[0].topics[0].partitions[0]
        return found.committed_offset, int(found.error_code)

    assert await fetch(stable=False) == (5, 0)
    assert await fetch(stable=True) == (-1, ErrorCode.unstable_offset_commit)
    lab.groups.transaction_completed(shard.index, 77, committed=True)
    assert await fetch(stable=True) == (9, 0)


async def test_a_log_that_refuses(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    member = (await lab.join("g")).member_id

    def refuse(self: Any, *args: Any) -> None:
        raise KafkaError(ErrorCode.kafka_storage_error, "no space left")

    def too_large(self: Any, *args: Any) -> None:
        raise KafkaError(ErrorCode.record_list_too_large)

    monkeypatch.setattr(type(lab.shard("g")), "append", refuse)
    assert (await lab.sync("g", member)).error_code is ErrorCode.not_coordinator
    assert await lab.commit("h", "t", 0, 5) == ErrorCode.not_coordinator
    monkeypatch.setattr(type(lab.shard("g")), "append", too_large)
    assert await lab.commit("h", "t", 0, 5) == ErrorCode.unknown_server_error
    monkeypatch.undo()
    joined = await lab.join("g", member)
    assert (await lab.sync("g", member, joined.generation_id)).assignment == b"x"
    assert await lab.commit("h", "t", 0, 5) == 0


async def test_the_alarm_rings_for_the_silent(lab: Lab) -> None:
    await lab.stable("g", session=200)
    group = lab.shard("g").groups.get("g")
    assert group is not None and group.members
    await wait_until_async(lambda: not group.members)
    assert group.state.value == "Empty"


async def test_a_broker_that_resigns_answers_who_waits(lab: Lab) -> None:
    await lab.stable("g")
    joining = asyncio.create_task(lab.join("g"))
    await let_tasks_run()
    partition = lab.shard("g").partition
    lab.groups.runtime.resigned(partition)
    assert (await joining).error_code is ErrorCode.not_coordinator
    assert await lab.commit("g", "t", 0, 5) == ErrorCode.not_coordinator
    refused = await lab.join("g", "who")
    assert (refused.error_code, refused.member_id) == (ErrorCode.not_coordinator, "")
    described = await lab.ask("describe_groups", 6, groups=["g"], include_authorized_operations=True)
    assert described.groups[0].error_code is ErrorCode.not_coordinator
    assert described.groups[0].authorized_operations == -(1 << 31)
    await lab.commit("other", "t", 0, 5)
    lab.groups.runtime.leads(partition)
    listed = await lab.ask("list_groups", 5, states_filter=[], types_filter=[])
    assert (listed.error_code, listed.groups) == (ErrorCode.coordinator_load_in_progress, ())
    for version, code in (
        (1, ErrorCode.coordinator_not_available),  # producers of that time do not know the other
        (2, ErrorCode.coordinator_load_in_progress),
    ):
        answer = await lab.ask(
            "txn_offset_commit",
            version,
            transactional_id="p",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            topics=[
                {
                    "name": "t",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 4,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        )
        assert answer.topics[0].partitions[0].error_code is code
    await lab.loaded()
    assert [each.state.value for each in lab.shard("g").groups.values()] == ["Stable"]


async def test_many_tombstones_go_out_in_several_batches(lab: Lab) -> None:
    shard = lab.shard("g")
    for partition in range(1200):
        shard.offsets.put("g", "t", partition, offset_records.offset_value(1, -1, "", 0), partition)
    assert lab.groups.delete_group("g") is None
    assert not shard.knows("g")
    assert len(lab.log("g")) == 1201


async def test_records_that_make_no_sense_are_skipped(lab: Lab) -> None:
    await lab.commit("g", "t", 0, 5)
    shard = lab.shard("g")
    shard.append([(b"\0\1\0\x09xx", b"junk"), (b"\0\2\0\1j", b"\0\3junk"), (b"\x7f\x7f", b""), (b"", b"")])
    partition = shard.partition
    lab.groups.runtime.resigned(partition)
    lab.groups.runtime.leads(partition)
    await lab.loaded()
    assert lab.offset("g") == 5
    assert list(lab.shard("g").groups) == []
