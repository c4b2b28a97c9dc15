"""Replicas move between three brokers by the command line, slowly if that is asked for, and leadership goes
where it should."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tests.broker.replication.cluster import Cluster
from tests.broker.replication.test_three_brokers import contents, produce

RECORDS = 4000


async def tool(*words: str) -> str:
    """What `millstream ...` prints; it has to succeed."""

    def run() -> str:
        command = [sys.executable, "-m", "millstream", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return await asyncio.to_thread(run)


async def test_a_plan_is_executed_slowly_and_then_faster(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1,))
        values = [b"%d %s" % (number, b"x" * 1000) for number in range(RECORDS)]
        await asyncio.to_thread(produce, cluster.bootstrap, "t", values)
        to = ("--bootstrap-server", cluster.bootstrap)
        plan = tmp_path / "plan.json"
        entry = {"topic": "t", "partition": 0, "replicas": [2, 3]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        file = ("--reassignment-json-file", str(plan))
        said = await tool("reassign-partitions", "--execute", "--throttle", "1000", *file, *to)
        assert "Successfully started partition reassignment for t-0" in said
        await cluster.in_step()
        for broker in cluster.brokers.values():
            assert broker.throttles.leader.rate == broker.throttles.follower.rate == 1000
        # A fetch of a megabyte each, and then a debt that a thousand bytes a second do not pay soon.
        await cluster.until(lambda: cluster.brokers[1].throttles.leader.delay(0) > 0)
        listed = await tool("reassign-partitions", "--list", *to)
        assert "t-0: replicas: 2,3,1. adding: 2,3. removing: 1." in listed
        assert cluster.record("t").isr == (1,)
        printed = await tool("reassign-partitions", "--verify", *file, *to)
        assert "Reassignment of partition t-0 is still in progress." in printed
        faster = ("--additional", "--throttle", "1000000000")
        await tool("reassign-partitions", "--execute", *faster, *file, *to)
        printed = await tool("reassign-partitions", "--verify", "--wait", *file, *to)
        assert "Reassignment of partition t-0 is completed." in printed
        assert "Clearing broker-level throttles on brokers 1,2,3" in printed
        await cluster.in_step()
        record = cluster.record("t")
        assert (record.replicas, sorted(record.isr), record.leader) == ((2, 3), [2, 3], 2)
        assert cluster.brokers[1].partitions.find("t", 0) is None
        assert all(broker.throttles.leader.unlimited for broker in cluster.brokers.values())
        await cluster.until(lambda: cluster.replica(3, "t").log.high_watermark == RECORDS)
        assert contents(cluster, 2, "t") == contents(cluster, 3, "t")


async def test_a_plan_is_cancelled(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1,))
        values = [b"%d %s" % (number, b"x" * 1000) for number in range(RECORDS)]
        await asyncio.to_thread(produce, cluster.bootstrap, "t", values)
        to = ("--bootstrap-server", cluster.bootstrap)
        plan = tmp_path / "plan.json"
        entry = {"topic": "t", "partition": 0, "replicas": [1, 2]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        file = ("--reassignment-json-file", str(plan))
        await tool("reassign-partitions", "--execute", "--throttle", "1", *file, *to)
        said = await tool("reassign-partitions", "--cancel", *file, *to)
        assert "Successfully cancelled partition reassignment for: t-0" in said
        await cluster.in_step()
        assert cluster.record("t").replicas == (1,)
        await cluster.until(lambda: cluster.brokers[2].partitions.find("t", 0) is None)


async def test_leaders_come_home(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1, 2, 3), (2, 3, 1))
        values = [b"%d" % number for number in range(500)]
        await asyncio.to_thread(produce, cluster.bootstrap, "t", values)
        index, victim = (1, 2) if cluster.brokers[1].controller.leading else (0, 1)
        await cluster.kill(victim)
        await cluster.until(lambda: cluster.record("t", index).leader not in (victim, -1))
        to = ("--bootstrap-server", cluster.bootstrap)
        printed = await tool("topics", "--describe", "--under-replicated-partitions", *to)
        assert printed.count("\n") == 2
        await cluster.start(victim)
        await cluster.until(lambda: victim in cluster.record("t", index).isr)
        assert cluster.record("t", index).leader != victim
        to = ("--bootstrap-server", cluster.bootstrap)
        elect = ("leader-election", "--election-type", "preferred")
        said = await tool(*elect, "--all-topic-partitions", *to)
        assert f"Successfully completed leader election (PREFERRED) for partitions t-{index}" in said
        assert cluster.record("t", index).leader == victim
        await cluster.until(lambda: all(len(cluster.record("t", each).isr) == 3 for each in (0, 1)))
        assert await tool("topics", "--describe", "--under-replicated-partitions", *to) == ""
        found = await tool("replica-verification", "--once", "--time", "-2", "-o", "json", *to)
        assert {each["topic"]: each["result"] for each in json.loads(found)} == {"t": "equal"}


async def test_leadership_goes_back_by_itself(tmp_path: Path) -> None:
    async with Cluster(tmp_path, leader_imbalance_check_interval_seconds=1) as cluster:
        victim = next(number for number in cluster.brokers if not cluster.brokers[number].controller.leading)
        others = tuple(number for number in cluster.brokers if number != victim)
        await cluster.create("t", (victim, *others))
        await cluster.kill(victim)
        await cluster.until(lambda: cluster.record("t").leader not in (victim, -1))
        await cluster.start(victim)
        await cluster.until(lambda: cluster.record("t").leader == victim)
