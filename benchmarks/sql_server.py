"""What a SQL server takes and gives: pull queries by key, a new statement, many statements.

    python benchmarks/sql_server.py [--pulls 4000] [--connections 8] [--statements 100] [--spark]

Broker and server are processes of this machine; tasks run inside of the server, or with --spark in lanes on
Spark. Pulls: the time of one after the other, then the rate of several connections (raw HTTP over kept
connections, from threads of this process), and the processor time of the server a pull. A new statement: from
the POST of CREATE STREAM ... AS to the first result of a record that was there before. Many statements: as
many projections as asked for, a fifth of them of a topic that is written to; how long it takes until all have
answered a record, and what the server takes when nothing comes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx

from kafkastreams import processor_time
from millstream.testing import Broker

CREATE = (
    "CREATE STREAM {0} (K STRING KEY, V INT) WITH (kafka_topic='{0}', value_format='JSON', partitions={1});"
)


class Server:
    def __init__(self, bootstrap: str, folder: Path, spark: bool) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        settings = {
            "bootstrap.servers": bootstrap,
            "listeners": f"http://127.0.0.1:{port}",
            "ksql.streams.state.dir": str(folder / "state"),
            "ksql.streams.auto.offset.reset": "earliest",
            "ksql.host.local": str(not spark).lower(),
        }
        command = [sys.executable, "-m", "millstream", "sql-server"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self.process = subprocess.Popen(
            command,
            start_new_session=True,
            stdout=(folder / "server.log").open("wb"),
            stderr=subprocess.STDOUT,
        )
        self.port = port
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        until = time.monotonic() + 60
        while True:
            try:
                self.http.get("/info")
                return
            except httpx.HTTPError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def ksql(self, text: str) -> list[Any]:
        answer = self.http.post("/ksql", json={"ksql": text})
        answer.raise_for_status()
        found: list[Any] = answer.json()
        return found

    def rows(self, sql: str) -> list[Any]:
        answer = self.http.post("/query-stream", json={"sql": sql})
        answer.raise_for_status()
        return [json.loads(line) for line in answer.text.splitlines()[1:]]

    def insert(self, lines: list[str]) -> None:
        headers = {"Content-Type": "application/vnd.ksqlapi.delimited.v1"}
        self.http.post("/inserts-stream", content="\n".join(lines), headers=headers).raise_for_status()

    def wait(self, sql: str, count: int) -> None:
        until = time.monotonic() + 120
        while len(self.rows(sql)) < count:
            if time.monotonic() > until:
                raise SystemExit(f"{sql}: not {count} rows within two minutes")
            time.sleep(0.01)

    def cpu(self) -> float:
        return processor_time(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def pull(port: int, sql: str, connection: socket.socket) -> bytes:
    """One pull over a kept connection, by hand: the client must not be what is measured."""
    body = json.dumps({"sql": sql}).encode()
    connection.sendall(
        b"POST /query-stream HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (port, len(body), body)
    )
    found = b""
    while True:
        found += connection.recv(65536)
        head, blank, rest = found.partition(b"\r\n\r\n")
        if not blank:
            continue
        if b"chunked" in head:
            if rest.endswith(b"0\r\n\r\n"):
                return rest
        else:
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(rest) >= length:
                return rest


def pulls(server: Server, count: int, connections: int) -> None:
    server.ksql(
        CREATE.format("P", 2)
        + "CREATE TABLE COUNTS AS SELECT K, COUNT(*) AS N, SUM(V) AS S FROM P GROUP BY K;"
    )
    lines = [json.dumps({"target": "P"})]
    lines += [json.dumps({"K": f"key{number}", "V": number}) for number in range(1000)]
    server.insert(lines)
    server.wait("SELECT K FROM COUNTS;", 1000)

    def ask(numbers: range, times: list[float]) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            for number in numbers:
                began = time.perf_counter()
                found = pull(server.port, f"SELECT * FROM COUNTS WHERE K = 'key{number % 1000}';", connection)
                assert f'"key{number % 1000}",1,'.encode() in found, found
                times.append(time.perf_counter() - began)

    ask(range(500), [])
    times: list[float] = []
    cpu = server.cpu()
    ask(range(count), times)
    spent = (server.cpu() - cpu) / count
    p99 = quantiles(times, n=100)[98]
    print(
        f"pull by key, one after the other: p50 {median(times) * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms, "
        f"{spent * 1e6:.0f} us of the server's processor: {1 / spent:,.0f}/s a core"
    )
    cpu, began = server.cpu(), time.perf_counter()
    threads = [
        threading.Thread(target=ask, args=(range(count // connections), [])) for _ in range(connections)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    seconds, spent = time.perf_counter() - began, server.cpu() - cpu
    done = count // connections * connections
    print(f"pull by key, {connections} connections: {done / seconds:,.0f}/s, {done / spent:,.0f}/s a core")


def statements(server: Server, count: int) -> None:
    server.ksql(CREATE.format("BUSY", 1) + CREATE.format("QUIET", 1))
    server.ksql("INSERT INTO BUSY VALUES ('a', 1); INSERT INTO QUIET VALUES ('a', 1);")
    server.ksql("CREATE STREAM FIRST AS SELECT * FROM BUSY;")
    server.wait("SELECT * FROM FIRST;", 1)
    found = []
    for number in range(5):
        began = time.perf_counter()
        server.ksql(f"CREATE STREAM NEXT{number} AS SELECT K, V + 1 AS V FROM BUSY;")
        server.wait(f"SELECT * FROM NEXT{number};", 1)
        found.append(time.perf_counter() - began)
    print(f"a new statement, until its first result: median {median(found):.2f} s, most {max(found):.2f} s")
    began = time.perf_counter()
    busy = count // 5
    for number in range(count):
        source = "BUSY" if number < busy else "QUIET"
        server.ksql(f"CREATE STREAM MANY{number} AS SELECT K, V + {number} AS V FROM {source};")
    made = time.perf_counter() - began
    for number in range(count):
        server.wait(f"SELECT * FROM MANY{number};", 1)
    print(
        f"{count} statements: accepted in {made:.1f} s, all have results after "
        f"{time.perf_counter() - began:.1f} s"
    )
    cpu = server.cpu()
    time.sleep(10)
    print(f"{count} statements, nothing to do: {(server.cpu() - cpu) * 10:.0f} % of a core")
    lines = [json.dumps({"target": "BUSY"}), *(json.dumps({"K": "k", "V": number}) for number in range(2000))]
    cpu, began = server.cpu(), time.perf_counter()
    server.insert(lines)
    for number in range(busy):
        server.wait(f"SELECT * FROM MANY{number};", 2001)
    seconds = time.perf_counter() - began
    print(
        f"2,000 records through {busy} busy statements: {seconds:.1f} s, {server.cpu() - cpu:.1f} s of "
        "processor"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pulls", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--statements", type=int, default=100)
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, tasks {'on Spark' if given.spark else 'in the server'}")
    with tempfile.TemporaryDirectory() as folder, Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        server = Server(broker.bootstrap_servers, Path(folder), given.spark)
        try:
            if given.pulls:
                pulls(server, given.pulls, given.connections)
            if given.statements:
                statements(server, given.statements)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
