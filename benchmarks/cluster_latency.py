"""Three brokers: the time from end to end at 1,000 messages a second, with replication factor 3 and acks=all.

As in broker_latency.py: confluent-kafka sends 100 bytes every millisecond (linger 0), confluent-kafka polls
the same partition; a consumer sees a message when all replicas in sync have it. And the round trip of one
message at a time, by the load generator.
"""

import sys

import broker_latency
import clusters
import common
import load
from clusters import Cluster
from common import Measure, Report, Workload


def new_topic(cluster: Cluster) -> str:
    topic = clusters.new_name("latency")
    clusters.create(cluster, topic, [clusters.replicas_from(1)])
    return topic


def round_trip(seconds: float) -> Workload:
    def run(cluster: Cluster, topic: str) -> common.Result:
        leader = clusters.Target(cluster.name, cluster.nodes[0].port)
        return load.produce(
            leader,  # type: ignore[arg-type]
            topic,
            batch_bytes=0,
            record_bytes=100,
            in_flight=1,
            seconds=seconds,
        )

    return Workload(
        "round trip of 100 bytes, RF 3",
        run,  # type: ignore[arg-type]
        (
            Measure("p50_us", "us", "p50", more_is_better=False, aim=1.0),
            Measure("p99_us", "us", "p99", more_is_better=False, aim=1.0),
        ),
        new_topic,  # type: ignore[arg-type]
        clusters.delete,  # type: ignore[arg-type]
    )


def measure(report: Report) -> None:
    seconds = report.options.seconds
    one = broker_latency.end_to_end(seconds)
    end_to_end = Workload(
        f"{one.name}, RF 3",
        one.run,
        one.measures,
        new_topic,  # type: ignore[arg-type]
        clusters.delete,  # type: ignore[arg-type]
    )
    with common.both(report.options, report, make=clusters.make) as used:
        common.compare(report, [round_trip(seconds), end_to_end], used)


if __name__ == "__main__":
    sys.exit(common.main("cluster_latency", __doc__ or "", measure))
