"""Three brokers: one that leads 1,000 partitions is killed, or told to stop; one that was away catches up.

  kill -9               from SIGKILL until both others say that each of the 1,000 partitions has a new leader
  controlled shutdown   from SIGTERM until the same, and until the process is gone
  catch-up              a follower that was stopped while --gigabytes were written to four partitions: from
                        the start of its process until it is in all four ISRs again

The victim is never the active controller. Kafka's broker.session.timeout.ms is its default, 9 s, and so is
our session timeout with ZooKeeper, 18 s. --quick has 100 partitions.
"""

import sys
import time

import brokers
import clusters
import common
import load
from clusters import Cluster, View
from common import Measure, Report, Workload

PARTITIONS, QUICK_PARTITIONS = 1000, 100
CATCH_UP_PARTITIONS = 4
IDLE_SECONDS = 1.0  # in which a cluster that has just made a topic comes to rest


def victim_of(cluster: Cluster) -> int:
    """A node that is not the controller."""
    view = View(cluster.nodes[0])
    try:
        controller = view.controller()
    finally:
        view.close()
    return next(number for number in range(clusters.NODES, 0, -1) if number != controller)


def led_by_victim(cluster: Cluster, partitions: int) -> str:
    topic = clusters.new_name("led")
    clusters.create(cluster, topic, [clusters.replicas_from(victim_of(cluster))] * partitions)
    time.sleep(IDLE_SECONDS)
    return topic


def until_led_by_others(cluster: Cluster, topic: str, victim: int, act: str) -> float:
    """Milliseconds from the signal until both survivors name other leaders for all partitions."""
    views = [View(node) for number, node in enumerate(cluster.nodes, start=1) if number != victim]
    node = cluster.nodes[victim - 1]
    try:
        began = time.perf_counter()
        if act == "kill":
            node.kill()
        else:
            node.terminate()
        clusters.wait_for(
            lambda: all(
                found.leader not in (victim, -1) for view in views for found in view.partitions(topic)
            ),
            "every partition had a leader again",
            pause=0.002,
        )
        return (time.perf_counter() - began) * 1e3
    finally:
        for view in views:
            view.close()


def bring_back(cluster: Cluster, topic: str, victim: int) -> None:
    node = cluster.nodes[victim - 1]
    node.launch()
    node.wait_until_serving()
    clusters.wait_until_in_sync(cluster, topic)


def killed(partitions: int) -> Workload:
    def run(cluster: Cluster, topic: str) -> common.Result:
        victim = victim_of(cluster)
        took = until_led_by_others(cluster, topic, victim, "kill")
        bring_back(cluster, topic, victim)
        return {"led_ms": took}

    return Workload(
        f"kill -9 until the last of {partitions:,} partitions is led",
        run,  # type: ignore[arg-type]
        (Measure("led_ms", "ms", more_is_better=False, aim=1.0),),
        lambda cluster: led_by_victim(cluster, partitions),  # type: ignore[arg-type]
        clusters.delete,  # type: ignore[arg-type]
        warm=False,
        starts_broker=True,
    )


def stopped(partitions: int) -> Workload:
    def run(cluster: Cluster, topic: str) -> common.Result:
        victim = victim_of(cluster)
        began = time.perf_counter()
        took = until_led_by_others(cluster, topic, victim, "terminate")
        cluster.nodes[victim - 1].stop(120)
        gone = (time.perf_counter() - began) * 1e3
        bring_back(cluster, topic, victim)
        return {"led_ms": took, "gone_ms": gone}

    return Workload(
        f"controlled shutdown of {partitions:,} leaders",
        run,  # type: ignore[arg-type]
        (
            Measure("led_ms", "ms", "until all are led", more_is_better=False, aim=1.0),
            Measure("gone_ms", "ms", "until it is gone", more_is_better=False, aim=1.0),
        ),
        lambda cluster: led_by_victim(cluster, partitions),  # type: ignore[arg-type]
        clusters.delete,  # type: ignore[arg-type]
        warm=False,
        starts_broker=True,
    )


def catch_up(gigabytes: float) -> Workload:
    def prepare(cluster: Cluster) -> str:
        brokers.require_room(cluster.log_dir, gigabytes * 3)
        topic = clusters.new_name("behind")
        leader = victim_of(cluster) % clusters.NODES + 1
        clusters.create(cluster, topic, [clusters.replicas_from(leader)] * CATCH_UP_PARTITIONS)
        return topic

    def run(cluster: Cluster, topic: str) -> common.Result:
        victim = victim_of(cluster)
        leader = victim % clusters.NODES + 1
        node = cluster.nodes[victim - 1]
        node.stop(120)
        load.produce(
            clusters.Target(cluster.name, cluster.nodes[leader - 1].port),  # type: ignore[arg-type]
            topic,
            batch_bytes=1 << 20,
            record_bytes=1000,
            connections=CATCH_UP_PARTITIONS,
            partitions=CATCH_UP_PARTITIONS,
            seconds=600,
            max_bytes=int(gigabytes * 1e9),
        )
        brokers.settle()
        began = time.perf_counter()
        node.launch()
        node.wait_until_serving()
        view = View(cluster.nodes[leader - 1])
        try:
            clusters.wait_for(
                lambda: all(victim in found.isr for found in view.partitions(topic)),
                "the follower was in sync",
            )
        finally:
            view.close()
        took = time.perf_counter() - began
        return {"seconds": took, "mb_per_s": gigabytes * 1e3 / took}

    return Workload(
        f"follower {gigabytes:g} GB behind",
        run,  # type: ignore[arg-type]
        (
            Measure("mb_per_s", "MB/s", aim=1.5),
            Measure("seconds", "s", "until in sync", more_is_better=False),
        ),
        prepare,  # type: ignore[arg-type]
        clusters.delete,  # type: ignore[arg-type]
        warm=False,
        starts_broker=True,
    )


def measure(report: Report) -> None:
    options = report.options
    partitions = QUICK_PARTITIONS if options.quick else PARTITIONS
    with common.both(options, report, make=clusters.make) as used:
        common.compare(report, [killed(partitions), stopped(partitions), catch_up(options.gigabytes)], used)


if __name__ == "__main__":
    sys.exit(common.main("cluster_failover", __doc__ or "", measure))
