"""The REST Proxy on one core: produce in batches, and many consumer instances that are polled for long.

    python benchmarks/rest_speed.py [--seconds 10] [--poll-seconds 60] [--connections 4] [--instances 100]
    [--bootstrap host:port] [--check]

The proxy runs pinned to one core with all its threads, its clients and the broker on the others. Beside rates
it prints the processor time that the proxy itself takes, which does not depend on what else runs on the
machine. --check fails when a target is missed: 20,000 records/s in batches of 100 JSON records; 10,000 polls
a minute over 100 instances, its memory no larger at the end than after the first rounds.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import psutil

from millstream.testing import Broker

BATCH = 100
GROWTH = 8.0  # MB that memory may differ by, for buffers that come and go
JSON_TYPE = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"


class Connection:
    """The least of an HTTP client, so that the clients do not take the processor from the proxy."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def open(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        return self

    async def send(self, request: bytes) -> tuple[int, bytes]:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        body = await self._reader.readexactly(int(length[1])) if length and int(length[1]) else b""
        return int(head[9:12]), body

    def close(self) -> None:
        self._writer.close()


def request(method: str, path: str, body: object = None, kind: str = V2, accept: str = "*/*") -> bytes:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: rest\r\nAccept: {accept}\r\n"
    if data:
        head += f"Content-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


@contextmanager
def running_rest(bootstrap: str, core: int | None) -> Iterator[tuple[psutil.Process, str, int]]:
    command = [sys.executable, "-m", "millstream", "rest"]
    settings = {"listeners": "http://127.0.0.1:0", "bootstrap.servers": bootstrap, "log.level": "ERROR"}
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    if core is not None:  # from the start: threads inherit it
        command = ["taskset", "-c", str(core), *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"listeners=http://(\S+):(\d+) ", line)
        assert match is not None, line
        yield psutil.Process(process.pid), match[1], int(match[2])
    finally:
        process.terminate()
        process.wait()


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(
    process: psutil.Process, seconds: float, workers: list[Callable[[], Awaitable[int]]]
) -> tuple[float, float]:
    """What the workers count a second, and the share of a core that the proxy takes."""
    until = time.perf_counter() + seconds
    counts = [0] * len(workers)

    async def work(index: int) -> None:
        while time.perf_counter() < until:
            counts[index] += await workers[index]()

    before, began = used(process), time.perf_counter()
    await asyncio.gather(*(work(index) for index in range(len(workers))))
    elapsed = time.perf_counter() - began
    return sum(counts) / elapsed, (used(process) - before) / elapsed


def batch(size: int) -> bytes:
    records = [
        {
            "key": f"customer-{n}",
            "value": {"id": n, "name": f"Customer {n}", "amount": 12.5, "tags": ["a", "b"]},
        }
        for n in range(size)
    ]
    return json.dumps({"records": records}).encode()


async def run(bootstrap: str, arguments: argparse.Namespace, core: int | None) -> int:
    missed: list[str] = []
    topic = f"speed-{os.getpid()}-{int(time.time())}"
    with running_rest(bootstrap, core) as (process, host, port):
        connections = [await Connection(host, port).open() for _ in range(arguments.connections)]

        def producer(connection: Connection, sent: bytes, size: int) -> Callable[[], Awaitable[int]]:
            async def once() -> int:
                status, body = await connection.send(sent)
                if status != 200 or b'"error_code":5' in body:
                    raise RuntimeError(f"{status} {body[:200]!r}")
                return size

            return once

        for form, size, target in ((JSON_TYPE, BATCH, 20_000), (JSON_TYPE, 1, None)):
            sent = request("POST", f"/topics/{topic}", batch(size), form)
            await connections[0].send(sent)
            workers = [producer(one, sent, size) for one in connections]
            rate, share = await measure(process, arguments.seconds, workers)
            wanted = f"   target {target:,}/s" if target else ""
            cost = share / rate * 1e6
            print(
                f"produce, {size} records a request:  {rate:>10,.0f} records/s  {cost:6.1f} us of "
                "processor time each, "
                f"{share:.0%} of a core{wanted}",
                flush=True,
            )
            if target and rate < target:
                missed.append(f"produce {size}")
        cluster = json.loads((await connections[0].send(request("GET", "/v3/clusters")))[1])["data"][0][
            "cluster_id"
        ]
        await streamed(
            process, host, port, f"/v3/clusters/{cluster}/topics/{topic}/records", arguments.seconds
        )
        await polls(process, host, port, arguments, missed)
        for one in connections:
            one.close()
    if missed:
        print(f"missed: {', '.join(missed)}")
    return 1 if missed and arguments.check else 0


async def streamed(process: psutil.Process, host: str, port: int, path: str, seconds: float) -> None:
    """Version 3: one connection, records after records."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: rest\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    writer.write(head.encode())
    part = b"".join(
        json.dumps({"value": {"type": "JSON", "data": {"id": n, "name": f"Customer {n}"}}}).encode()
        for n in range(BATCH)
    )
    chunk = b"%x\r\n%s\r\n" % (len(part), part)
    answered = 0
    done = asyncio.Event()

    async def read() -> None:
        nonlocal answered
        kept = b""
        while data := await reader.read(1 << 16):
            kept += data
            answered += kept.count(b'"error_code":200')
            kept = kept[-15:] if b'"error_code":200' not in kept[-15:] else b""
            if b"0\r\n\r\n" in data[-5:]:
                break
        done.set()

    reading = asyncio.create_task(read())
    before, began = used(process), time.perf_counter()
    while time.perf_counter() - began < seconds:
        writer.write(chunk)
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await done.wait()
    await reading
    elapsed = time.perf_counter() - began
    share = (used(process) - before) / elapsed
    rate = answered / elapsed
    print(
        f"produce, one stream of version 3: {rate:>10,.0f} records/s  {share / rate * 1e6:6.1f} us of "
        "processor time "
        f"each, {share:.0%} of a core",
        flush=True,
    )
    writer.close()


async def polls(
    process: psutil.Process, host: str, port: int, arguments: argparse.Namespace, missed: list[str]
) -> None:
    """Every instance has a client that polls it; new records come all the time."""
    topic = f"polled-{os.getpid()}-{int(time.time())}"
    feeder = await Connection(host, port).open()
    fed = request("POST", f"/topics/{topic}", batch(1), JSON_TYPE)
    await feeder.send(fed)
    rss = process.memory_info().rss / 1e6
    workers = []
    for number in range(arguments.instances):
        connection = await Connection(host, port).open()
        group = f"{topic}-{number}"
        options = {"format": "json", "auto.offset.reset": "earliest"}
        status, body = await connection.send(request("POST", f"/consumers/{group}", options))
        assert status == 200, body
        instance = f"/consumers/{group}/instances/{json.loads(body)['instance_id']}"
        status, body = await connection.send(request("POST", f"{instance}/subscription", {"topics": [topic]}))
        assert status == 204, body
        workers.append(
            poller(connection, request("GET", f"{instance}/records?timeout=500", accept=JSON_TYPE))
        )
    idle = process.memory_info().rss / 1e6
    print(f"{arguments.instances} instances: {(idle - rss) / arguments.instances:.2f} MB each", flush=True)
    feeding = asyncio.create_task(feed(feeder, fed))
    await measure(process, max(5.0, arguments.seconds / 2), workers)
    sizes = [process.memory_info().rss / 1e6]
    for _ in range(3):
        rate, share = await measure(process, arguments.poll_seconds or arguments.seconds, workers)
        sizes.append(process.memory_info().rss / 1e6)
        print(
            f"polls:  {rate * 60:>10,.0f} a minute  {share / rate * 1e6:6.0f} us of processor time "
            f"each, {share:.0%} of a "
            f"core, memory {sizes[-1]:.0f} MB   target 10,000 a minute",
            flush=True,
        )
        if rate * 60 < 10_000:
            missed.append("polls")
    if sizes[-1] > sizes[0] + GROWTH:
        missed.append(f"memory grew by {sizes[-1] - sizes[0]:.0f} MB")
    feeding.cancel()


def poller(connection: Connection, sent: bytes) -> Callable[[], Awaitable[int]]:
    async def once() -> int:
        status, body = await connection.send(sent)
        if status != 200:
            raise RuntimeError(f"{status} {body[:200]!r}")
        return 1

    return once


async def feed(connection: Connection, sent: bytes) -> None:
    while True:
        await connection.send(sent)
        await asyncio.sleep(0.3)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument(
        "--poll-seconds", type=float, help="of each of three rounds of polls; as --seconds without it"
    )
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--bootstrap", help="a broker that is there already")
    parser.add_argument("--quick", action="store_true", help="three seconds each, rough figures")
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds = 3.0
    core = None
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        core = 0
        os.sched_setaffinity(0, set(range(1, os.cpu_count() or 2)))  # the broker inherits it
    broker = None if arguments.bootstrap else Broker({"group.initial.rebalance.delay.ms": 0})
    try:
        bootstrap = arguments.bootstrap or broker.start().bootstrap_servers  # type: ignore[union-attr]
        return asyncio.run(run(bootstrap, arguments, core))
    finally:
        if broker is not None:
            broker.close()


if __name__ == "__main__":
    sys.exit(main())
