"""The Schema Registry on one core: cached reads, registrations, and how long it takes to start with many
schemas.

    python benchmarks/registry_speed.py [--seconds 5] [--connections 4] [--bootstrap host:port] [--check]

The registry runs pinned to one core, its clients and the broker on the others. Beside the rate it prints the
processor time that the registry itself takes per request, which does not depend on what else runs on the
machine. --check fails when a target is missed: 2,000 cached reads/s, 200 registrations/s, 10,000 schemas read
in 2 s.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.registry.schema_records import Content, Version, schema_key
from millstream.testing import Broker
from millstream.wire.records import Record

SCHEMAS = 10_000
Request = tuple[str, str, str | None]


@contextmanager
def running_registry(bootstrap: str, topic: str) -> Iterator[tuple[subprocess.Popen[str], str, int, float]]:
    """A registry of its own; yields the process, where it listens, and how long it took to read the topic and
    listen."""
    command = [sys.executable, "-m", "millstream", "registry"]
    settings = {
        "listeners": "http://127.0.0.1:0",
        "kafkastore.bootstrap.servers": bootstrap,
        "kafkastore.topic": topic,
        "schema.registry.group.id": topic,
        "log.level": "ERROR",
    }
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"listeners=http://(\S+):(\d+) .* in ([\d.]+) s", line)
        assert match is not None, line
        if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
            for thread in psutil.Process(process.pid).threads():
                os.sched_setaffinity(thread.id, {0})
        yield process, match[1], int(match[2]), float(match[3])
    finally:
        process.terminate()
        process.wait()


def measure(
    registry: tuple[subprocess.Popen[str], str, int, float],
    seconds: float,
    connections: int,
    make: Callable[[int], Request],
) -> tuple[float, float]:
    """Requests per second, and microseconds of the registry's processor time per request."""
    process, host, port, _ = registry
    watched = psutil.Process(process.pid)
    counts = [0] * connections
    numbers = iter(range(10**9))
    until = time.perf_counter() + seconds

    def work(index: int) -> None:
        connection = http.client.HTTPConnection(host, port)
        while time.perf_counter() < until:
            method, path, body = make(next(numbers))
            headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"} if body else {}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read()
            if response.status != 200:
                raise RuntimeError(f"{method} {path}: {response.status} {data[:200]!r}")
            counts[index] += 1
        connection.close()

    before = sum(watched.cpu_times()[:2])
    began = time.perf_counter()
    threads = [threading.Thread(target=work, args=(index,)) for index in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    used = sum(watched.cpu_times()[:2]) - before
    total = sum(counts)
    return total / elapsed, used / max(total, 1) * 1e6


def avro(number: int) -> str:
    fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}]
    return json.dumps({"type": "record", "name": f"Order{number}", "namespace": "shop", "fields": fields})


def json_schema(number: int) -> str:
    properties = {"id": {"type": "integer"}, "note": {"type": "string"}}
    return json.dumps({"title": f"Order{number}", "type": "object", "properties": properties})


def proto(number: int) -> str:
    return f'syntax = "proto3";\nmessage Order{number} {{\n  int64 id = 1;\n  string note = 2;\n}}\n'


def registration(kind: str, make: Callable[[int], str]) -> Callable[[int], Request]:
    def request(number: int) -> Request:
        body = json.dumps({"schema": make(number), "schemaType": kind})
        return "POST", f"/subjects/{kind}-{number}/versions", body

    return request


def fill(bootstrap: str, topic: str, count: int) -> None:
    """A topic as a registry with that many schemas leaves it."""
    with Cluster(ClientConfig.of(bootstrap)) as cluster:
        Admin(cluster).create_topics([NewTopic(topic, 1, 1, {"cleanup.policy": "compact"})])
        producer = Producer(cluster)
        for start in range(0, count, 500):
            records = []
            for number in range(start, min(start + 500, count)):
                subject = f"subject-{number // 4}-value"
                version = Version(subject, number % 4 + 1, number + 1, Content("AVRO", avro(number)))
                records.append(
                    Record(
                        0, int(time.time() * 1000), schema_key(subject, version.version), version.value(), ()
                    )
                )
            producer.send(topic, 0, records)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--bootstrap", help="a broker that is there already")
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    arguments = parser.parse_args()
    broker = None if arguments.bootstrap else Broker({"group.initial.rebalance.delay.ms": 0})
    try:
        bootstrap = arguments.bootstrap or broker.start().bootstrap_servers  # type: ignore[union-attr]
        return run(bootstrap, arguments)
    finally:
        if broker is not None:
            broker.close()


def run(bootstrap: str, arguments: argparse.Namespace) -> int:
    mark = f"{os.getpid()}-{int(time.time())}"
    missed = []

    def report(name: str, rate: float, cost: float, target: float | None = None) -> None:
        wanted = f"   target {target:,.0f}/s" if target else ""
        print(f"{name:<34}{rate:>9,.0f}/s {cost:>9,.0f} us of processor time each{wanted}", flush=True)
        if target and rate < target:
            missed.append(name)

    with running_registry(bootstrap, f"speed-{mark}") as registry:
        for kind, make in (("AVRO", avro), ("JSON", json_schema), ("PROTOBUF", proto)):
            result = measure(registry, arguments.seconds, arguments.connections, registration(kind, make))
            report(f"register new schemas, {kind}", *result, target=200)
        again = measure(
            registry, arguments.seconds, arguments.connections, lambda n: registration("AVRO", avro)(n % 50)
        )
        report("register what is there already", *again)
        reads = measure(
            registry,
            arguments.seconds,
            arguments.connections,
            lambda n: ("GET", f"/schemas/ids/{n % 100 + 1}", None),
        )
        report("cached reads by id", *reads, target=2000)
        latest = measure(
            registry,
            arguments.seconds,
            arguments.connections,
            lambda n: ("GET", f"/subjects/AVRO-{n % 50}/versions/latest", None),
        )
        report("cached reads of the latest version", *latest)
        size = psutil.Process(registry[0].pid).memory_info().rss / 1e6
        print(f"memory: {size:.0f} MB")
    fill(bootstrap, f"many-{mark}", SCHEMAS)
    with running_registry(bootstrap, f"many-{mark}") as registry:
        print(f"start with {SCHEMAS:,} schemas: {registry[3]:.2f} s to read them and listen   target 2 s")
        if registry[3] > 2:
            missed.append("start")
    if missed:
        print(f"missed: {', '.join(missed)}")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
