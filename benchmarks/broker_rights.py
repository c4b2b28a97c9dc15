"""What a login, ACLs and a quota cost on top of TLS: a broker with TLS alone, and one with SASL_SSL, an
authorizer, 1,000 ACLs and a quota.

    python benchmarks/broker_rights.py [--pairs 11] [--seconds 3] [--only produce]

Both run at the same time, with the same key; one has work at a time, in pairs whose order turns. The user of
the second one has an ACL of its own among 1,000, and a quota that it never reaches, so that every request is
counted. As in before_after, brokers and load share one core, and judged is the broker's CPU time for a
request: a row is within the limit up to 1.03. Wall time is printed too. Exit code 1 if a row is not.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

import before_after
import brokers
import common
import load
from apache_kafka import HOST, Unavailable, free_port
from broker_tls import key_and_certificate

ACLS = 1000
LIMIT = 1.03
USER = PASSWORD = "load"  # noqa: S105
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Side(brokers.Millstream):
    """One of the two. Topics are made over the plain listener, whose clients are super users."""

    def __init__(self, name: str, folder: Path, pem: Path, secured: bool) -> None:
        self.secured_port = free_port()
        protocol = "SASL_SSL" if secured else "SSL"
        super().__init__(folder / name, {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)})
        self.settings["listeners"] += f",{protocol}://{HOST}:{self.secured_port}"
        if secured:
            self.settings |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{JAAS} user_{USER}="{PASSWORD}";',
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        self.name = name
        self.options: dict[str, float | bool | str] = {"tls": True, "port": self.secured_port}
        if secured:
            self.options["login"] = f"{USER}:{PASSWORD}"

    def restrict(self) -> None:
        admin = brokers.admin(self)
        # the last one is the user's
        names = [*(f"other-{number}" for number in range(ACLS - 1)), USER]
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                "rights" if name == USER else f"topic-of-{name}",
                ResourcePatternType.PREFIXED,
                f"User:{name}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for name in names
        ]
        for done in admin.create_acls(bindings).values():
            done.result(60)


def produce(name: str, batch_bytes: int, connections: int, in_flight: int) -> before_after.Workload:
    topic = f"rights-{batch_bytes}-{connections}"

    def run(broker: Side, seconds: float) -> tuple[float, float]:
        options = {"batch_bytes": batch_bytes, "connections": connections, "in_flight": in_flight}
        result = load.produce(
            broker, topic, seconds=seconds, max_bytes=2_000_000_000, **options, **broker.options
        )
        return result["requests"], result["seconds"]

    return before_after.Workload(name, run, lambda broker: brokers.create_topic(broker, topic))


def fetch() -> before_after.Workload:
    def prepare(broker: Side) -> None:
        brokers.create_topic(broker, "rights-fetch")
        load.produce(
            broker, "rights-fetch", batch_bytes=65536, max_bytes=100_000_000, seconds=600, **broker.options
        )

    def run(broker: Side, seconds: float) -> tuple[float, float]:
        result = load.fetch(broker, "rights-fetch", fetch_bytes=1 << 20, seconds=seconds, **broker.options)
        return result["requests"], result["seconds"]

    return before_after.Workload("fetch 1 MB, 1 connection", run, prepare)


WORKLOADS = (
    produce("produce 64 KB, 1 connection", 65536, 1, 5),
    fetch(),
    produce("produce 100 bytes, 50 connections", 0, 50, 1),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=11, help="pairs of runs for each row (default 11)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a run (default 3)")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    print("; ".join(f"{key} {value}" for key, value in common.machine().items()), flush=True)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the brokers and the load inherit it
    fine = True
    with TemporaryDirectory(prefix="millstream-bench-", ignore_cleanup_errors=True) as folder:
        pem = key_and_certificate(Path(folder) / "broker.pem")
        alone, restricted = (Side(name, Path(folder), pem, name == "rights") for name in ("tls", "rights"))
        try:
            load.generator(tls=True)
            for side in (alone, restricted):
                brokers.start(side)
            restricted.restrict()
            set_quota(restricted)
            head = f"{'broker CPU in us for a request':<34} {'TLS':>8} {'rights':>8}"
            print(f"{head}   ratio  interval        wall")
            for workload in WORKLOADS:
                if given.only in workload.name:
                    fine &= compare(workload, (alone, restricted), given.pairs, given.seconds)
        except (Unavailable, brokers.Failed) as failure:
            print(f"broker_rights: {failure}", file=sys.stderr)
            return 2
        finally:
            alone.kill()
            restricted.kill()
    return 0 if fine else 1


def set_quota(side: Side) -> None:
    """Far above what any machine does."""
    from millstream.client import ClientConfig, Cluster
    from millstream.client.security_admin import SecurityAdmin

    with Cluster(ClientConfig.of(side.bootstrap)) as cluster:
        rates = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12}
        SecurityAdmin(cluster).alter_quotas((("user", USER),), rates)


def compare(workload: before_after.Workload, sides: tuple[Side, Side], pairs: int, seconds: float) -> bool:
    """Measure one workload and print its row."""
    for side in sides:
        workload.prepare(side)
        before_after.measure(workload, side, seconds)
    found: dict[str, list[before_after.Cost]] = {side.name: [] for side in sides}
    for pair in range(pairs):
        for side in sides if pair % 2 == 0 else sides[::-1]:
            found[side.name].append(before_after.measure(workload, side, seconds))
    runs = list(zip(found["tls"], found["rights"], strict=True))
    ratios = [rights.cpu_us / tls.cpu_us for tls, rights in runs]
    low, high = before_after.interval(ratios)
    wall = median(rights.wall_us / tls.wall_us for tls, rights in runs)
    cells = [median(cost.cpu_us for cost in found[name]) for name in ("tls", "rights")]
    fine = median(ratios) <= LIMIT
    print(
        f"{workload.name:<34} {cells[0]:>8.1f} {cells[1]:>8.1f} {median(ratios):>7.3f}  "
        f"{low:.3f}..{high:.3f}  {wall:>7.3f}  {'ok' if fine else 'SLOWER'}",
        flush=True,
    )
    return fine


if __name__ == "__main__":
    sys.exit(main())
