"""The console: searching a topic on one core, and how quickly its pages come with many topics and groups.

    python benchmarks/console_search.py [--records 1000000] [--topics 1000] [--groups 10000] [--check]

The search's process is pinned to one core, as it runs beside the console; the broker may use the others.
Pages are asked for over HTTP, one at a time, and the median counts. "Worst" is a text that every record
contains, but not where it is looked for, so that every record has to be looked at. --check fails when a
target is missed: 100,000 records/s by text, also in the worst case, 10,000 by expression, the first page
within 300 ms.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import httpx

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.client.groups import Groups
from millstream.testing import Broker
from millstream.wire.compression import CODEC_IDS
from millstream.wire.records import Record, encode_batch

TARGETS = {"text": 100_000, "text, worst": 100_000, "expression": 10_000}
FIRST_PAGE = 0.300
A_BATCH = 500


def fill(cluster: Cluster, topic: str, records: int, codec: str) -> None:
    """Orders of about 200 bytes as JSON, one in 10,000 of which is worth finding."""
    Admin(cluster).create_topics([NewTopic(topic, 4, 1)])
    producer = Producer(cluster, idempotent=False)
    now = round(time.time() * 1000)
    for number in range(0, records, A_BATCH):
        batch = [
            Record(
                0,
                now,
                f"order-{n}".encode(),
                json.dumps(
                    {
                        "id": n,
                        "customer": f"customer-{n % 5000}",
                        "status": "CRITICAL" if n % 10_000 == 7 else "ok",
                        "amount": n % 977,
                        "items": [{"sku": f"s{n % 321}", "count": n % 5}],
                        "note": "delivered to the door, paid by invoice",
                    }
                ).encode(),
                (("source", b"benchmark"),),
            )
            for n in range(number, number + A_BATCH)
        ]
        topic_partition = (topic, number // A_BATCH % 4)
        producer.send_batches({topic_partition: encode_batch(batch, CODEC_IDS[codec])})


def search(bootstrap: str, topic: str, **what: object) -> tuple[float, float, int]:
    """Records per second of the scan, the same per second of the search's own processor time, and hits."""
    task = {
        "bootstrap": bootstrap,
        "topic": topic,
        "parts": ["key", "value", "header"],
        "any_case": False,
        "max_hits": 10_000,
        **what,
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-m", "millstream.console.search_worker"],
        input=json.dumps(task) + "\n",
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}),
    )
    done = json.loads(ended.stdout.splitlines()[-1])
    assert done["kind"] == "done", done
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done["scanned"] / done["seconds"], done["scanned"] / busy, done["hits"]


@contextmanager
def running_console(bootstrap: str) -> Iterator[str]:
    command = [sys.executable, "-m", "millstream", "console", "--set", "listeners=http://127.0.0.1:0"]
    command += ["--set", f"bootstrap.servers={bootstrap}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"listeners=(\S+)", process.stdout.readline())
        assert found is not None, "the console did not start"
        yield found[1]
    finally:
        process.terminate()
        process.wait()


def page_time(client: httpx.Client, path: str, times: int = 15) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        client.get(path).raise_for_status()
        found.append(time.perf_counter() - began)
    return median(found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    arguments = parser.parse_args()
    missed = False
    with Broker() as broker, Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
        for codec in ("none", "lz4", "zstd"):
            topic = f"search-{codec}"
            fill(cluster, topic, arguments.records, codec)
            for kind, what in (
                ("text", {"text": '"CRITICAL"'}),
                ("text, worst", {"text": "invoice", "parts": ["header"]}),
                ("expression", {"expression": 'value.status == "CRITICAL" and value.amount > 0'}),
            ):
                rate, own, hits = search(broker.bootstrap_servers, topic, **what)
                target = TARGETS.get(kind, 0)
                missed |= rate < target
                print(
                    f"search by {kind:<11} {codec:<5} {rate:>10,.0f} records/s, {own:>10,.0f} per "
                    "second of its own "
                    f"processor time, start included; {hits} hits"
                    + (f"; target {target:,}" if target else "")
                )
        names = [NewTopic(f"topic-{i:05d}", 3, 1) for i in range(arguments.topics)]
        Admin(cluster).create_topics(names)
        groups = Groups(cluster)
        for i in range(arguments.groups):
            groups.commit(f"group-{i:05d}", {(f"topic-{i % arguments.topics:05d}", 0): 0})
        with (
            running_console(broker.bootstrap_servers) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            began = time.perf_counter()
            client.get("/").raise_for_status()
            print(f"first page after the start {1000 * (time.perf_counter() - began):>8.0f} ms")
            while client.get("/health").status_code != 200 or "topic-00000" not in client.get("/topics").text:
                time.sleep(0.2)
            first = page_time(client, "/")
            missed |= first > FIRST_PAGE
            print(
                f"first page, {arguments.topics:,} topics  {1000 * first:>10.0f} ms  (target "
                f"{1000 * FIRST_PAGE:.0f})"
            )
            for path in (
                "/topics",
                "/topics?q=077&sort=size",
                "/groups",
                "/groups?q=group-09&page=3",
                "/groups?sort=lag",
            ):
                print(f"{path:<26} {1000 * page_time(client, path):>10.0f} ms")
            metrics = client.get("/metrics").text
            took = re.search(r"^millstream_console_sample_seconds (\S+)", metrics, re.MULTILINE)
            print(f"one look at the cluster    {1000 * float(took[1]) if took else 0:>10.0f} ms")
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
